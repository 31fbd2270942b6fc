//! `tidegate errors`: jobs that were rejected or failed.

use super::cli::{ErrorsList, ErrorsShow, Format};
use super::exit::{self, Exit};
use super::find::{ask, print_json, print_lines};
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
        print_lines("no errors");
        return Exit::Done;
    }
    let rows: Vec<Vec<String>> = errors.iter().map(row).collect();
    print_lines(&table(&["error", "time", "step", "job", "kind", "message"], &[], &rows));
    Exit::Done
}

fn row(error: &Job) -> Vec<String> {
    let record: serde_json::Value = serde_json::from_str(error.job.get()).unwrap_or_default();
    let text = |key: &str| match &record[key] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    };
    let mut message = text("message").replace('\n', " ");
    if message.chars().count() > MESSAGE_MAX {
        message = message.chars().take(MESSAGE_MAX - 1).chain(['…']).collect();
    }
    vec![
        format!("{}/{}", error.queue, error.index),
        text("time"),
        text("step"),
        format!("{}/{}", text("input"), text("index")),
        text("kind"),
        message,
    ]
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
    print_lines(&describe(error));
    Exit::Done
}

/// One error as a page: the words first, the job last.
fn describe(error: &Job) -> String {
    let record: serde_json::Value = serde_json::from_str(error.job.get()).unwrap_or_default();
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let place = |value: &serde_json::Value| {
        let column = value["column"].as_u64().map_or_else(String::new, |column| format!(":{column}"));
        value["path"].as_str().map(|path| format!("{path}:{}{column}", value["line"]))
    };
    let mut lines =
        vec![format!("{}/{}: {}", error.queue, error.index, text(&record["message"])), String::new()];
    let mut line = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("{name:<9}{value}")));
    };
    line("kind", Some(text(&record["kind"])));
    line("at", place(&record["at"]));
    line("step", Some(format!("{}/{}", text(&record["pipeline"]), text(&record["step"]))));
    line("job", Some(format!("{}/{}", text(&record["input"]), record["index"])));
    line("file", place(&record["file"]));
    line("attempt", Some(record["attempt"].to_string()));
    line("time", Some(text(&record["time"])));
    line("hash", Some(text(&record["hash"])));
    lines.push(String::new());
    let job = ["job", "job_text", "job_bytes"].iter().find_map(|key| record.get(key));
    lines.push(job.map_or_else(String::new, |job| serde_json::to_string_pretty(job).unwrap_or_default()));
    lines.join("\n")
}
