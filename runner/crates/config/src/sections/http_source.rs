//! `HttpSource`: parses `[source.NAME]` of type `http`.

use std::time::Duration;

use super::{run, step};
use crate::diagnostic::Diagnostic;
use crate::model::push_source::{AcceptScript, HttpSource, SchemaFile, Token};
use crate::parse::context::{ParseContext, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::{parse_duration, parse_size};

const BODY_BYTES_MAX_DEFAULT: usize = 16 << 20;
const WAITING_MAX_DEFAULT: u64 = 1_000_000;
/// A client waits for the call.
const ACCEPT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// `None` after an error.
pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    title: &str,
    value: &Value<'_>,
) -> Option<HttpSource> {
    let section = TableReader::open(reading, TableKind::HttpSource, title, value)?;
    let before = reading.diagnostics.len();
    let key = section.field("key").and_then(|field| field.path_in_job(reading));
    let dedupe = section
        .field("dedupe")
        .and_then(|field| field.quantity(reading, ("duration", "7d"), parse_duration, Some(&Duration::ZERO)));
    let max_body = section.field("max_body").and_then(|field| {
        let bytes = field.quantity(reading, ("size", "16MiB"), parse_size, Some(&0))?;
        usize::try_from(bytes).ok()
    });
    let max_waiting = section.field("max_waiting").and_then(|field| field.count(reading, 0));
    let token = section.field("token").and_then(|field| token(reading, field));
    let schema = section.field("schema").and_then(|field| schema(reading, files, field));
    let accept = accept(reading, files, &section).map(Box::new);
    let due = section.field("due").and_then(|field| field.path_in_job(reading));
    let delay = section.field("delay").and_then(|field| field.path_in_job(reading));
    (reading.diagnostics.len() == before).then(|| HttpSource {
        key,
        dedupe,
        max_body: max_body.unwrap_or(BODY_BYTES_MAX_DEFAULT),
        max_waiting: Some(max_waiting.unwrap_or(WAITING_MAX_DEFAULT)).filter(|&most| most > 0),
        token,
        schema,
        accept,
        due,
        delay,
    })
}

/// The script that accepts or refuses jobs, with its limits.
fn accept(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    section: &TableReader<'_>,
) -> Option<AcceptScript> {
    let limits = section.field("limits");
    let timeout = section.field("timeout");
    let Some(field) = section.field("accept") else {
        for field in [limits, timeout].into_iter().flatten() {
            let message = format!("`{}` has no effect without `accept`", field.name);
            let help = format!("leave `{}` out, or name a script: `accept = \"accept.rhai\"`", field.name);
            reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
        }
        return None;
    };
    let limits = limits.and_then(|field| step::limits(reading, field));
    let timeout = timeout
        .and_then(|field| field.quantity(reading, ("duration", "1s"), parse_duration, Some(&Duration::ZERO)));
    let named = field.filled_text(reading)?;
    if !run::is_script(&named.value) {
        let message = format!("{} in `accept` is not a script", named.quoted());
        let help = "name a script, which ends in `.rhai` and has a function `accept(job)`";
        reading.report(Diagnostic::error_at(&named.place, message).help(help));
        return None;
    }
    let script = run::script(reading, files, &named)?;
    Some(AcceptScript {
        script,
        limits: limits.unwrap_or_default(),
        timeout: timeout.unwrap_or(ACCEPT_TIMEOUT_DEFAULT),
    })
}

/// The file of a JSON Schema. Its content is checked later.
fn schema(reading: &mut ParseContext<'_>, files: &mut TextReader, field: Field<'_>) -> Option<SchemaFile> {
    let name = field.filled_text(reading)?;
    let path = reading.folder().join(&name.value);
    match files.read(&path) {
        Ok(text) => {
            let (text, named_in) = (text.to_string(), reading.file.to_path_buf());
            Some(SchemaFile { path, text, named_in, named_at: name.place.span })
        }
        Err(error) => {
            let named = if name.secret { "named here".into() } else { name.quoted() };
            reading.report(Diagnostic::error_at(&name.place, format!("the schema {named} {error}")));
            None
        }
    }
}

fn token(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Token> {
    let text = field.filled_text(reading)?;
    // A token that a header cannot carry would be useless.
    if !text.value.bytes().all(|byte| byte.is_ascii_graphic()) {
        let diagnostic =
            Diagnostic::error_at(&text.place, "`token` has characters that a header cannot carry");
        reading.report(diagnostic.help("use ASCII letters, digits and punctuation, without blanks"));
        return None;
    }
    Some(Token::new(text.value))
}
