//! `CommandSource`: parses `[source.NAME]` of type `exec`, a command whose lines are jobs.

use std::path::PathBuf;

use super::exec;
use super::lines::{LINE_BYTES_MAX_DEFAULT, delimiter, max_line, refuse_outside_csv};
use super::retry;
use crate::diagnostic::Diagnostic;
use crate::model::push_source::{BadLines, CommandSource, CursorRule};
use crate::model::{DataFormat, LineFormat};
use crate::parse::context::{ParseContext, Text, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::named_table::Chosen;
use crate::parse::table::TableReader;
use crate::sections::exec::ExecCommand;
use tidegate_model::template::Template;
use tidegate_model::{Restart, RetryPolicy};

const FORMATS: [(&str, DataFormat); 3] =
    [("ndjson", DataFormat::Ndjson), ("lines", DataFormat::Lines), ("csv", DataFormat::Csv)];
const RESTARTS: [(&str, Restart); 3] =
    [("on-failure", Restart::OnFailure), ("always", Restart::Always), ("never", Restart::Never)];

const WAITING_MAX_DEFAULT: u64 = 1_000_000;

/// A source as written, with the choice of its policy. The source is `None` after an error.
pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    title: &str,
    value: &Value<'_>,
) -> (Option<CommandSource>, Option<Chosen<RetryPolicy>>) {
    let Some(section) = TableReader::open(reading, TableKind::CommandSource, title, value) else {
        return (None, None);
    };
    let before = reading.diagnostics.len();
    let retry = section.field("retry").map(|field| Chosen::read(reading, field, retry::read));
    let source = source(reading, &section, retry.as_ref());
    (source.filter(|_| reading.diagnostics.len() == before), retry)
}

fn source(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    retry: Option<&Chosen<RetryPolicy>>,
) -> Option<CommandSource> {
    let help = "write the command and its arguments: `command = [\"./watch.sh\", \"--all\"]`";
    let texts = section.required(reading, "command", help).and_then(|field| exec::words(reading, field));
    let command = texts.and_then(|texts| command(reading, &texts));
    let environment = section.field("env").map(|field| environment(reading, field));
    let folder = section.field("cwd").and_then(|field| exec::folder(reading, field));
    let format = section.field("format");
    let format = format.map(|field| field.choice(reading, &FORMATS));
    let format = format.unwrap_or(Some(DataFormat::Ndjson));
    if format.is_some_and(|format| format != DataFormat::Csv) {
        refuse_outside_csv(reading, section);
    }
    let headers = section.field("headers").and_then(|field| field.boolean(reading)).unwrap_or(true);
    let delimiter = section.field("delimiter").and_then(|field| delimiter(reading, field));
    let max_line = section.field("max_line").and_then(|field| max_line(reading, field));
    let cursor = cursor(reading, section, format, headers);
    let restart = section.field("restart");
    let restart = restart.and_then(|field| field.choice(reading, &RESTARTS));
    if let (Some(Restart::Never), Some(retry)) = (restart, retry) {
        let message = "`retry` has no effect with `restart = \"never\"`";
        let help = "leave `retry` out, or write `restart = \"on-failure\"`";
        reading.report(Diagnostic::error_at(&retry.place, message).help(help));
    }
    let max_waiting = section.field("max_waiting").and_then(|field| field.count(reading, 0));
    let (program, arguments) = command?;
    Some(CommandSource {
        command: ExecCommand {
            program,
            arguments,
            environment: environment.unwrap_or_default(),
            folder: folder.unwrap_or_else(|| exec::own_folder(reading)),
            timeout: None,
        },
        lines: LineFormat {
            format: format?,
            max_line: max_line.unwrap_or(LINE_BYTES_MAX_DEFAULT),
            headers,
            delimiter: delimiter.unwrap_or(b','),
        },
        cursor,
        restart: restart.unwrap_or_default(),
        retry: RetryPolicy::DEFAULT,
        max_waiting: Some(max_waiting.unwrap_or(WAITING_MAX_DEFAULT)).filter(|&most| most > 0),
        // Known when the names of the pipeline are resolved, like a named policy.
        bad_lines: BadLines::Stop,
    })
}

/// The program and its arguments. No job fills them, so braces are plain text.
fn command(reading: &mut ParseContext<'_>, texts: &[Text]) -> Option<(PathBuf, Vec<Template>)> {
    let (first, arguments) = texts.split_first()?;
    let program = exec::executable(reading, first, &first.value);
    let mut fixed = Vec::with_capacity(arguments.len());
    for argument in arguments {
        fixed.push(without_nul(reading, argument, "an argument")?);
    }
    Some((program?, fixed))
}

fn environment(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<(String, Template)> {
    let mut environment = Vec::new();
    let Some(table) = field.table(reading) else { return environment };
    for (key, value) in table {
        let place = reading.place(key.span());
        let key = Text::written(key.get_ref().to_string(), place);
        let name = format!("{}.{}", field.name, key.value);
        let Some(text) = Field::of(&name, value).text(reading) else { continue };
        let Some(value) = without_nul(reading, &text, &format!("`{name}`")) else { continue };
        if exec::is_variable(reading, &key) {
            environment.push((key.value, value));
        }
    }
    environment
}

fn without_nul(reading: &mut ParseContext<'_>, text: &Text, what: &str) -> Option<Template> {
    if text.value.contains('\0') {
        let message = format!("{what} has the character 0, which a command cannot receive");
        reading.report(Diagnostic::error_at(&text.place, message).help("leave it out"));
        return None;
    }
    Some(Template::fixed(&text.value, &text.outside))
}

fn cursor(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    format: Option<DataFormat>,
    headers: bool,
) -> Option<CursorRule> {
    match (section.field("cursor"), section.field("cursor_prefix")) {
        (Some(_), Some(prefix)) => {
            let message = format!("`{}` has both `cursor` and `cursor_prefix`", section.title);
            let help = "keep `cursor` if each job has its cursor, or `cursor_prefix` for cursors on lines of their own";
            reading.report(Diagnostic::error_at(&prefix.place(reading), message).help(help));
            None
        }
        (Some(field), None) => {
            let has_fields = match format {
                Some(DataFormat::Lines) => false,
                Some(DataFormat::Csv) => headers,
                _ => true,
            };
            if !has_fields {
                let message = "`cursor` names a field, but the jobs of this format have no fields";
                let help = "let the command print lines with the cursor, and name their beginning: \
                            `cursor_prefix = \"CURSOR=\"`";
                reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
                return None;
            }
            field.path_in_job(reading).map(CursorRule::Field)
        }
        (None, Some(field)) => {
            let text = field.filled_text(reading)?;
            if text.value.contains(['\n', '\r']) {
                let message = "`cursor_prefix` must be a part of one line";
                reading.report(Diagnostic::error_at(&text.place, message).help("leave the line end out"));
                return None;
            }
            Some(CursorRule::Prefix(text.value))
        }
        (None, None) => None,
    }
}
