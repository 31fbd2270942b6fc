//! `tidegate queue`: what stands on queues.

use std::fmt::Write as _;

use super::cli::{Format, Look, QueueShow};
use super::exit::{self, Exit};
use super::find::{ask, print_json, print_text};
use super::look::{Answer, Query};
use super::table::{grouped, table};
use crate::words::format_size;

pub(super) fn list(command: &Look) -> Exit {
    let queues = match ask(command, &Query::Queues) {
        Ok(Answer::Queues(queues)) => queues,
        Ok(_) => return exit::fail("the runner answered another question; is it of another version?"),
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

pub(super) fn show(command: &QueueShow) -> Exit {
    let query = Query::Jobs { queue: command.queue.clone(), from: command.from, limit: command.limit };
    let jobs = match ask(&command.look, &query) {
        Ok(Answer::Jobs(jobs)) => jobs,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return exit::fail("the runner answered another question; is it of another version?"),
        Err(exit) => return exit,
    };
    if command.look.format == Format::Json {
        return print_json(&jobs, Exit::Done);
    }
    let mut text = String::new();
    for job in &jobs {
        let _ = writeln!(text, "{:>8}  {}", job.index, job.job.get()); // writing to a String cannot fail
    }
    print_text(if text.is_empty() { "no jobs there" } else { &text });
    Exit::Done
}
