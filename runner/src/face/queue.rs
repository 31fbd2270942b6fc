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
            let waiting: Vec<String> = waiting.collect();
            let waiting = match (queue.errors, waiting.is_empty()) {
                (true, _) => "errors".to_owned(),
                (false, true) => "nobody reads it".to_owned(),
                (false, false) => waiting.join(", "),
            };
            vec![
                queue.queue.clone(),
                grouped(queue.first),
                grouped(queue.head),
                grouped(queue.jobs),
                format_size(queue.bytes),
                waiting,
            ]
        })
        .collect();
    print_text(&table(&["queue", "first", "last", "kept", "size", "waiting"], &[1, 2, 3, 4], &rows));
    Exit::Done
}
