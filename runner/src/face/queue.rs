//! `tidegate queue`: what stands on queues.

use super::cli::{Format, Look};
use super::exit::Exit;
use super::find::{ask, other_question, print_json, print_text};
use super::look::{Answer, Query};
use super::table::{grouped, table};
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
    let rows: Vec<Vec<String>> = queues
        .iter()
        .map(|queue| {
            let waiting =
                queue.readers.iter().map(|reader| format!("{} for {}", grouped(reader.waiting), reader.step));
            let open = queue.open.map(|open| match open {
                0 => "no errors".to_owned(),
                1 => "1 error".to_owned(),
                _ => format!("{} errors", grouped(open)),
            });
            let mut waiting: Vec<String> = open.into_iter().chain(waiting).collect();
            if waiting.is_empty() {
                waiting.push("nobody reads it".to_owned());
            }
            vec![
                queue.queue.clone(),
                grouped(queue.first),
                grouped(queue.head),
                grouped(queue.jobs),
                format_size(queue.bytes),
                waiting.join(", "),
            ]
        })
        .collect();
    print_text(&table(&["queue", "first", "last", "kept", "size", "waiting"], &[1, 2, 3, 4], &rows));
    Exit::Done
}
