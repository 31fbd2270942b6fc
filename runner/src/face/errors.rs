//! `tidegate errors list` and `show`: jobs that were rejected or failed.

use super::cli::{ErrorsList, ErrorsShow, Format};
use super::exit::{self, Exit};
use super::find::{ask, other_question, print_json, print_text};
use super::look::{Answer, Job, Query};
use super::record::Record;
use super::table::table;
use super::terminal::cut;

/// Longest message in a list, in characters.
const MESSAGE_MAX: usize = 100;

pub(super) fn list(command: &ErrorsList) -> Exit {
    let query = Query::Errors { queue: command.queue.clone(), all: command.all, limit: command.limit };
    let errors = match ask(&command.look, query) {
        Ok(Answer::Errors(errors)) => errors,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    if command.look.format == Format::Json {
        return print_json(&errors, Exit::Done);
    }
    if errors.is_empty() {
        print_text("no errors");
        return Exit::Done;
    }
    let rows: Vec<Vec<String>> = errors.iter().map(row).collect();
    print_text(&table(&["error", "time", "step", "job", "kind", "message"], &[], &rows));
    Exit::Done
}

fn row(error: &Job) -> Vec<String> {
    let mark = if error.handled { " (handled)" } else { "" };
    let name = format!("{}/{}{mark}", error.queue, error.index);
    let Ok(record) = Record::of(error) else {
        let blank = String::new;
        return vec![name, blank(), blank(), blank(), blank(), "no error record".to_owned()];
    };
    let message = cut(&record.message.replace('\n', " "), MESSAGE_MAX);
    let job = record.origin();
    vec![name, record.time, record.step, job, record.kind, message]
}

pub(super) fn show(command: &ErrorsShow) -> Exit {
    let parts = command.error.rsplit_once('/').and_then(|(queue, index)| Some((queue, index.parse().ok()?)));
    let Some((queue, index)) = parts else {
        let what =
            format!("`{}` is no error; write PIPELINE/QUEUE/INDEX, as `errors list` shows it", command.error);
        return exit::misuse(what);
    };
    let errors = match ask(&command.look, Query::Error { queue: queue.to_owned(), index }) {
        Ok(Answer::Errors(errors)) => errors,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    let Some(error) = errors.first() else { return exit::fail("no such error") };
    if command.look.format == Format::Json {
        return print_json(error, Exit::Done);
    }
    match Record::of(error) {
        Ok(record) => print_text(&record.describe(error)),
        Err(problem) => return exit::fail(problem),
    }
    Exit::Done
}
