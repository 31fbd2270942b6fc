//! `tidegate queue list`: prints the queues with the number of their jobs.

use crate::cli::{Format, QueryOptions};
use crate::client::{ask, other_question, print_json, print_painted, print_text};
use crate::output::console;
use crate::output::console::{Paint, painted};
use crate::output::exit::Exit;
use crate::output::table::{Column, columns, grouped, short};
use crate::output::terminal::width;
use crate::query::{Answer, Query, QueueStatus};
use tidegate_model::format_size;

/// The open errors of an error queue, if any.
fn open_errors(queue: &QueueStatus) -> Option<String> {
    match queue.open? {
        0 => None,
        1 => Some("1 error".to_owned()),
        open => Some(format!("{} errors", grouped(open))),
    }
}

pub(crate) fn list(command: &QueryOptions) -> Exit {
    let queues = match ask(command, Query::Queues) {
        Ok(Answer::Queues(queues)) => queues,
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    if command.format == Format::Json {
        return print_json(&queues, Exit::Done);
    }
    if queues.is_empty() {
        print_text("no queue has had a job yet");
        return Exit::Done;
    }
    let waiting: Vec<String> = queues
        .iter()
        .map(|queue| {
            let waiting = queue.readers.iter().map(|reader| {
                format!("{} for {}", grouped(reader.waiting), short(&reader.step, &queue.queue))
            });
            let no_errors = queue.open.filter(|&open| open == 0).map(|_| "no errors".to_owned());
            let open = open_errors(queue).or(no_errors);
            let mut waiting: Vec<String> = open.into_iter().chain(waiting).collect();
            waiting.extend(queue.tables.iter().map(|table| format!("table {table}")));
            if waiting.is_empty() {
                waiting.push("no reader".to_owned());
            }
            if queue.late > 0 {
                waiting.push(format!("{} due later", grouped(queue.late)));
            }
            waiting.join(", ")
        })
        .collect();
    let cells = |of: &dyn Fn(&QueueStatus) -> String| queues.iter().map(of).collect();
    let shown = [
        Column::left("queue", cells(&|queue| queue.queue.clone())).cuts_front(20),
        Column::right(
            "first",
            cells(&|queue| if queue.jobs > 0 { grouped(queue.first) } else { "-".to_owned() }),
        )
        .drops(1),
        Column::right("last", cells(&|queue| grouped(queue.head))).drops(3),
        Column::right("kept", cells(&|queue| grouped(queue.jobs))),
        Column::right("size", cells(&|queue| format_size(queue.bytes))).drops(2),
        Column::left("waiting", waiting).cuts(24),
    ];
    let lines = columns(&shown, width()).into_iter();
    let of_queues = std::iter::once(None).chain(queues.iter().map(Some));
    let paint = |(line, queue): (String, Option<&QueueStatus>)| {
        let open = queue.and_then(open_errors).filter(|_| console::prints_colours());
        open.map_or_else(|| line.clone(), |open| line.replacen(&open, &painted(&open, Paint::Red), 1))
    };
    print_painted(&lines.zip(of_queues).map(paint).collect::<Vec<_>>().join("\n"));
    Exit::Done
}
