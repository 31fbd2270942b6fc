//! `tidegate queue`: what stands on queues.

use super::cli::{Format, Look};
use super::exit::Exit;
use super::find::{ask, other_question, print_json, print_text};
use super::look::{Answer, Query, QueueStatus};
use super::table::{Column, columns, grouped, short};
use super::terminal::width;
use crate::words::format_size;

pub(super) fn list(command: &Look) -> Exit {
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
            let open = queue.open.map(|open| match open {
                0 => "no errors".to_owned(),
                1 => "1 error".to_owned(),
                _ => format!("{} errors", grouped(open)),
            });
            let mut waiting: Vec<String> = open.into_iter().chain(waiting).collect();
            if waiting.is_empty() {
                waiting.push("nobody reads it".to_owned());
            }
            waiting.join(", ")
        })
        .collect();
    let cells = |of: &dyn Fn(&QueueStatus) -> String| queues.iter().map(of).collect();
    let shown = [
        Column::left("queue", cells(&|queue| queue.queue.clone())).cuts_front(20),
        Column::right("first", cells(&|queue| grouped(queue.first))).drops(1),
        Column::right("last", cells(&|queue| grouped(queue.head))).drops(3),
        Column::right("kept", cells(&|queue| grouped(queue.jobs))),
        Column::right("size", cells(&|queue| format_size(queue.bytes))).drops(2),
        Column::left("waiting", waiting).cuts(24),
    ];
    print_text(&columns(&shown, width()).join("\n"));
    Exit::Done
}
