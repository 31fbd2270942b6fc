//! `tidegate errors`: jobs that were rejected or failed.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::cli::{ErrorsList, ErrorsShow, Format};
use super::exit::{self, Exit};
use super::find::{ask, print_json, print_text};
use super::look::{Answer, Job, Query};
use super::table::table;

/// Longest message in a list, in characters.
const MESSAGE_MAX: usize = 100;

pub(super) fn list(command: &ErrorsList) -> Exit {
    let query = Query::Errors { queue: command.queue.clone(), limit: command.limit };
    let errors = match ask(&command.look, &query) {
        Ok(Answer::Errors(errors)) => errors,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return exit::fail("the runner answered another question; is it of another version?"),
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

/// An error record, as far as commands show it. The job stays the text that it is, since it may be
/// what no JSON reader takes.
#[derive(Debug, Deserialize)]
struct Record<'a> {
    time: String,
    pipeline: String,
    step: String,
    input: String,
    index: u64,
    attempt: u32,
    kind: String,
    message: String,
    at: Option<Place>,
    file: Option<Place>,
    hash: String,
    #[serde(borrow)]
    job: Option<&'a RawValue>,
    job_text: Option<String>,
    #[serde(borrow)]
    job_bytes: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Place {
    path: String,
    line: u64,
    column: Option<u64>,
}

impl Record<'_> {
    fn of(error: &Job) -> Result<Record<'_>, String> {
        let what = |problem| format!("{}/{} is no error record: {problem}", error.queue, error.index);
        serde_json::from_str(error.job.get()).map_err(what)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.path, self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}

fn row(error: &Job) -> Vec<String> {
    let name = format!("{}/{}", error.queue, error.index);
    let Ok(record) = Record::of(error) else {
        let blank = String::new;
        return vec![name, blank(), blank(), blank(), blank(), "no error record".to_owned()];
    };
    let mut message = record.message.replace('\n', " ");
    if message.chars().count() > MESSAGE_MAX {
        message = message.chars().take(MESSAGE_MAX - 1).chain(['…']).collect();
    }
    let job = format!("{}/{}", record.input, record.index);
    vec![name, record.time, record.step, job, record.kind, message]
}

pub(super) fn show(command: &ErrorsShow) -> Exit {
    let parts = command.error.rsplit_once('/').and_then(|(queue, index)| Some((queue, index.parse().ok()?)));
    let Some((queue, index)) = parts else {
        let what =
            format!("`{}` is no error; write PIPELINE/QUEUE/INDEX, as `errors list` shows it", command.error);
        return exit::misuse(what);
    };
    let errors = match ask(&command.look, &Query::Error { queue: queue.to_owned(), index }) {
        Ok(Answer::Errors(errors)) => errors,
        Ok(Answer::Missing(what)) => return exit::fail(what),
        Ok(_) => return exit::fail("the runner answered another question; is it of another version?"),
        Err(exit) => return exit,
    };
    let Some(error) = errors.first() else { return exit::fail("no such error") };
    if command.look.format == Format::Json {
        return print_json(error, Exit::Done);
    }
    match Record::of(error) {
        Ok(record) => print_text(&describe(error, &record)),
        Err(problem) => return exit::fail(problem),
    }
    Exit::Done
}

/// One error as a page: the words first, the job last.
fn describe(error: &Job, record: &Record<'_>) -> String {
    let mut lines = vec![format!("{}/{}: {}", error.queue, error.index, record.message), String::new()];
    let mut line = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("{name:<9}{value}")));
    };
    line("kind", Some(record.kind.clone()));
    line("at", record.at.as_ref().map(Place::to_string));
    line("step", Some(format!("{}/{}", record.pipeline, record.step)));
    line("job", Some(format!("{}/{}", record.input, record.index)));
    line("file", record.file.as_ref().map(Place::to_string));
    line("attempt", Some(record.attempt.to_string()));
    line("time", Some(record.time.clone()));
    line("hash", Some(record.hash.clone()));
    lines.push(String::new());
    lines.push(job(record));
    lines.join("\n")
}

/// The job for people: indented where it can be, otherwise as it is.
fn job(record: &Record<'_>) -> String {
    if let Some(text) = &record.job_text {
        return text.clone();
    }
    let Some(raw) = record.job.or(record.job_bytes) else { return String::new() };
    let pretty = serde_json::from_str::<serde_json::Value>(raw.get())
        .and_then(|job| serde_json::to_string_pretty(&job));
    pretty.unwrap_or_else(|_| raw.get().to_owned())
}
