//! Jobs of tests: parses lists of jobs, and files of jobs.

use serde_json::value::RawValue;

use crate::diagnostic::files::read_text;
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::parse::context::{ParseContext, Text};
use crate::parse::field::Field;
use crate::parse::json;
use toml::de::DeValue;

/// `given` of a test: the jobs, as JSON.
#[derive(Debug, Default)]
pub(crate) enum GivenJobs {
    #[default]
    None,
    /// The jobs of the only input, with the place of the list.
    Only(SourceSpan, Vec<String>),
    /// The jobs by name or binding of their input.
    ByName(Vec<(Text, Vec<String>)>),
}

pub(crate) fn given(reading: &mut ParseContext<'_>, field: Field<'_>) -> GivenJobs {
    if let DeValue::Table(_) = field.value().get_ref() {
        let named = entries(reading, field).into_iter();
        let lists = named.map(|(name, field)| (name, jobs(reading, field).unwrap_or_default()));
        return GivenJobs::ByName(lists.collect());
    }
    match jobs(reading, field) {
        Some(jobs) => GivenJobs::Only(field.place(reading), jobs),
        None => GivenJobs::None,
    }
}

/// A list of jobs, lines with one job each, or the path of a file with such lines; as JSON.
pub(crate) fn jobs(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Vec<String>> {
    match field.value().get_ref() {
        DeValue::Array(values) => {
            Some(values.iter().map(|value| json::json(reading, value).to_string()).collect())
        }
        DeValue::String(text) if text.contains('\n') => {
            let lines = field.text(reading)?;
            of_lines(reading, &format!("`{}`", field.name), &lines.value, &lines.place)
        }
        DeValue::String(_) => file(reading, field),
        _ => {
            let expected = "a list of jobs, lines with one job each, or the path of a file with such lines";
            reading.wrong_type(field.name, field.value(), expected);
            None
        }
    }
}

/// The jobs of an NDJSON file. The path is relative to the file that names it.
fn file(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Vec<String>> {
    let path = field.path(reading)?;
    let what = format!("the file of `{}`", field.name);
    reading.depends_on_disk = true;
    match read_text(&path.value) {
        Ok(text) => of_lines(reading, &what, &text, &path.place),
        Err(error) => {
            reading.report(Diagnostic::error_at(&path.place, format!("{what} {error}")));
            reading.sought.push(path.value);
            None
        }
    }
}

/// The jobs of the lines of `what`, without blank lines; `None` after an error.
fn of_lines(
    reading: &mut ParseContext<'_>,
    what: &str,
    lines: &str,
    place: &SourceSpan,
) -> Option<Vec<String>> {
    let mut jobs = Vec::new();
    for (number, line) in (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<&RawValue>(line) {
            Ok(job) => jobs.push(job.get().to_owned()),
            Err(error) => {
                let message = format!("line {number} of {what} is not JSON: {error}");
                reading.report(Diagnostic::error_at(place, message));
                return None;
            }
        }
    }
    Some(jobs)
}

/// The entries of a table in order of place, each as a field.
pub(crate) fn entries<'t>(reading: &mut ParseContext<'_>, field: Field<'t>) -> Vec<(Text, Field<'t>)> {
    let Some(table) = field.table(reading) else { return Vec::new() };
    let entry = |(key, value): (&'t toml::Spanned<_>, _)| {
        let key: &'t toml::Spanned<std::borrow::Cow<'t, str>> = key;
        let name = Text::written(key.get_ref().to_string(), reading.place(key.span()));
        (name, Field::of(key.get_ref(), value))
    };
    let mut entries: Vec<_> = table.iter().map(entry).collect();
    entries.sort_by_key(|(name, _)| name.place.span.start);
    entries
}
