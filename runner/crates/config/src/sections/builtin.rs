//! Built-in processors: parses `builtin:NAME` in `run`, with its options in the table of that name.

use std::time::Duration;

use super::exec;
use super::http;
use crate::diagnostic::Diagnostic;
use crate::model::Processor;
use crate::parse::context::{ParseContext, Text};
use crate::parse::table::TableReader;
use tidegate_model::format_duration;
use tidegate_model::suggest::{did_you_mean, listed};

const PREFIX: &str = "builtin:";
const HTTP: &str = "builtin:http";
const EXEC: &str = "builtin:exec";

/// Whether a processor is a built-in.
pub(crate) fn is_one(run: &str) -> bool {
    run.starts_with(PREFIX)
}

/// Parses a built-in in the table `section`, whose attempts have this `timeout`.
pub(crate) fn processor(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    run: &Text,
    timeout: Duration,
) -> Option<Processor> {
    match run.value.as_str() {
        HTTP => {
            let help =
                "name the address: `http = { url = \"https://host/path/{field}\", method = \"POST\" }`";
            let field = section.required(reading, "http", help)?;
            let request = http::options(reading, field)?;
            shorter(reading, section, "http", request.timeout, timeout)?;
            Some(Processor::Http(Box::new(request)))
        }
        EXEC => {
            let help = "name the command: `exec = { command = [\"./charge.sh\", \"{id}\"] }`";
            let field = section.required(reading, "exec", help)?;
            let command = exec::options(reading, field)?;
            shorter(reading, section, "exec", command.timeout, timeout)?;
            Some(Processor::Exec(Box::new(command)))
        }
        other => {
            let message = format!("{} in `run` is not a processor", run.quoted());
            let help = (!run.secret).then(|| did_you_mean(other, [HTTP, EXEC])).flatten();
            let help = help.unwrap_or_else(|| format!("the processors are {}", listed([HTTP, EXEC], "and")));
            reading.report(Diagnostic::error_at(&run.place, message).help(help));
            None
        }
    }
}

/// Reports options whose built-in is not in `run`, or occurs twice.
pub(crate) fn check(reading: &mut ParseContext<'_>, section: &TableReader<'_>, runs: &[Text]) {
    for (key, named) in [("http", HTTP), ("exec", EXEC)] {
        let mut uses = runs.iter().filter(|run| run.value == named);
        match (uses.next(), uses.next(), section.field(key)) {
            (None, _, Some(field)) => {
                let message = format!("`{key}` has no effect: `run` has no `{named}`");
                let diagnostic = Diagnostic::error_at(&field.place(reading), message);
                reading.report(diagnostic.help(format!("write `run = [\"{named}\"]`, or leave `{key}` out")));
            }
            (Some(first), Some(second), _) => {
                let message = format!("`{named}` is in `run` twice, but one `{key}` applies to both");
                let diagnostic = Diagnostic::error_at(&second.place, message);
                let diagnostic = diagnostic.related(first.place.clone(), "first here");
                reading.report(diagnostic.help("use a separate step for the other one"));
            }
            _ => {}
        }
    }
}

/// Refuses a `timeout` that cannot be reached.
fn shorter(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    key: &'static str,
    own: Option<Duration>,
    whole: Duration,
) -> Option<()> {
    let Some(own) = own.filter(|own| *own > whole) else { return Some(()) };
    let field = section.field(key)?;
    let table = field.table(reading)?;
    let place =
        table.get("timeout").map_or_else(|| field.place(reading), |value| reading.place(value.span()));
    let whole = format_duration(whole);
    let message = format!("`{key}.timeout` exceeds the `timeout` of the whole attempt, {whole}");
    let help = format!("write `timeout = \"{}\"` in `{}` too", format_duration(own), section.title);
    reading.report(Diagnostic::error_at(&place, message).help(help));
    None
}
