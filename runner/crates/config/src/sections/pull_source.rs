//! `PullSource`: parses `[source.NAME]` of type `http-pull`, an indexed log behind an HTTP service.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{http, queue, retry};
use crate::diagnostic::Diagnostic;
use crate::model::{Meta, PullSource};
use crate::parse::context::{ParseContext, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::named_table::Chosen;
use crate::parse::table::TableReader;
use tidegate_model::template::{Template, TemplatePart};
use tidegate_model::{RetryPolicy, parse_duration, parse_size};

const EVERY_DEFAULT: Duration = Duration::from_secs(2);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const RESPONSE_BYTES_MAX_DEFAULT: u64 = 16 << 20;
const CONCURRENCY_DEFAULT: usize = 4;
const CONCURRENCY_MAX: usize = 64;
/// The statuses of a number that the service does not have yet.
const NOT_YET_DEFAULT: RangeInclusive<u16> = 404..=404;

/// A source as written, with the choice of its policy. The source is `None` after an error.
pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    title: &str,
    value: &Value<'_>,
) -> (Option<(PullSource, Meta)>, Option<Chosen<RetryPolicy>>) {
    let Some(section) = TableReader::open(reading, TableKind::PullSource, title, value) else {
        return (None, None);
    };
    let before = reading.diagnostics.len();
    let retry = section.field("retry").map(|field| Chosen::read(reading, field, retry::read));
    let source = source(reading, &section);
    let meta = section.field("meta").map(|field| queue::meta_of_file(reading, field)).unwrap_or_default();
    let source = source.filter(|_| reading.diagnostics.len() == before);
    (source.map(|source| (source, meta)), retry)
}

fn source(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Option<PullSource> {
    let help = "name the address: `url = \"https://node/blocks/{index}\"`";
    let url = section.required(reading, "url", help).and_then(|field| url(reading, field));
    let headers = section.field("headers").map(|field| headers(reading, field)).unwrap_or_default();
    let first = section.field("first").and_then(|field| field.count(reading, 0));
    let until = section.field("until").and_then(|field| field.count(reading, 0));
    if let (Some(field), Some(until)) = (section.field("until"), until)
        && until < first.unwrap_or(1)
    {
        let message = "`until` must not be less than `first`";
        let help = "`until` is the last number of the service that is read";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
    let not_yet = section.field("not_yet").map(|field| http::statuses(reading, field));
    let accept = section.field("accept").map(|field| http::statuses(reading, field));
    let every = section
        .field("every")
        .and_then(|field| field.quantity(reading, ("duration", "2s"), parse_duration, Some(&Duration::ZERO)));
    let timeout = section.field("timeout").and_then(|field| {
        field.quantity(reading, ("duration", "10s"), parse_duration, Some(&Duration::ZERO))
    });
    let max_response = section
        .field("max_response")
        .and_then(|field| field.quantity(reading, ("size", "16MiB"), parse_size, Some(&0)));
    let concurrency = section.field("concurrency").and_then(|field| concurrency(reading, field));
    Some(PullSource {
        url: url?,
        headers,
        first: first.unwrap_or(1),
        until,
        not_yet: not_yet.unwrap_or_else(|| vec![NOT_YET_DEFAULT]),
        accept: accept.unwrap_or_else(|| vec![200..=299]),
        every: every.unwrap_or(EVERY_DEFAULT),
        concurrency: concurrency.unwrap_or(CONCURRENCY_DEFAULT),
        timeout: timeout.unwrap_or(TIMEOUT_DEFAULT),
        max_response: max_response.unwrap_or(RESPONSE_BYTES_MAX_DEFAULT),
        retry: PullSource::default_retry(),
    })
}

/// The address, which depends on `{index}` and on nothing else.
fn url(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Template> {
    let url = http::url(reading, field, false)?;
    let is_index =
        |part: &&TemplatePart| matches!(part, TemplatePart::Field(path) if path.names() == ["index"]);
    let is_text = |part: &TemplatePart| matches!(part, TemplatePart::Text(_) | TemplatePart::Secret(_));
    let indices = url.parts().iter().filter(is_index).count();
    let others = url.parts().iter().filter(|part| !is_text(part) && !is_index(part)).count();
    if indices == 1 && others == 0 {
        return Some(url);
    }
    let message = "`url` must have `{index}` once, and no other field";
    let help = "write the number of the job in the address: `url = \"https://node/blocks/{index}\"`";
    reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    None
}

/// Headers, which are the same for every request.
fn headers(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<(String, Template)> {
    let headers = http::headers(reading, field);
    if let Some((name, _)) = headers.iter().find(|(_, value)| !value.is_fixed()) {
        let message = format!("the header `{name}` must be the same for every request");
        let help = "leave the field out; `{{` is a literal brace";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
    headers
}

fn concurrency(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<usize> {
    let count = usize::try_from(field.count(reading, 1)?).ok();
    let fits = count.filter(|&count| count <= CONCURRENCY_MAX);
    if fits.is_none() {
        let message = format!("`concurrency` exceeds {CONCURRENCY_MAX}");
        let help = format!("write a number from 1 to {CONCURRENCY_MAX}");
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
    fits
}
