//! `TestDeclaration`: parses `[[test]]`.

use std::time::Duration;

use super::test_expect::{self, ExpectDeclaration};
use super::test_jobs::{GivenJobs, given};
use super::test_mock::{self, MockDeclaration};
use crate::diagnostic::Diagnostic;
use crate::parse::context::{ParseContext, Text, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use tidegate_model::{Timestamp, parse_duration};
use toml::de::DeValue;

/// 2026-01-01T00:00:00Z, a Thursday: the begin of a test's clock by default.
const AT_DEFAULT: Timestamp = Timestamp(1_767_225_600_000);

/// A test as written.
#[derive(Debug)]
pub(crate) struct TestDeclaration {
    pub(crate) name: Text,
    pub(crate) line: u64,
    pub(crate) step: Option<Text>,
    pub(crate) given: GivenJobs,
    /// In the order of time.
    pub(crate) later: Vec<(Duration, GivenJobs)>,
    pub(crate) at: Timestamp,
    pub(crate) lasts: Option<Duration>,
    pub(crate) mocks: Vec<MockDeclaration>,
    pub(crate) expect: ExpectDeclaration,
}

/// All tests of a file; those with an error are left out.
pub(crate) fn read_all(reading: &mut ParseContext<'_>, root: &TableReader<'_>) -> Vec<TestDeclaration> {
    let Some(field) = root.field("test") else { return Vec::new() };
    let Some(tests) = field.value().get_ref().as_array() else {
        let place = field.place(reading);
        let diagnostic = Diagnostic::error_at(&place, "`test` must be a list of tables");
        reading.report(diagnostic.help("write `[[test]]`, in double brackets, with a `name`"));
        return Vec::new();
    };
    let mut declared: Vec<TestDeclaration> = Vec::new();
    for value in tests {
        let Some(test) = read(reading, value) else { continue };
        if let Some(first) = declared.iter().find(|other| other.name.value == test.name.value) {
            let diagnostic = Diagnostic::error_at(
                &test.name.place,
                format!("two tests have the name {}", test.name.quoted()),
            );
            reading.report(diagnostic.related(first.name.place.clone(), "the other one"));
            continue;
        }
        declared.push(test);
    }
    declared
}

/// `None` after an error.
fn read(reading: &mut ParseContext<'_>, value: &Value<'_>) -> Option<TestDeclaration> {
    let before = reading.diagnostics.len();
    let section = TableReader::open(reading, TableKind::Test, "[[test]]", value)?;
    let help = "write the claim of the test: `name = \"a refused order is no order\"`";
    let name = section.required(reading, "name", help).and_then(|field| field.filled_text(reading));
    let step = section.field("step").and_then(|field| field.filled_text(reading));
    let given = section.field("given").map(|field| given(reading, field)).unwrap_or_default();
    let later = section.field("later").map(|field| later(reading, field)).unwrap_or_default();
    let at = section.field("at").and_then(|field| time(reading, field));
    let lasts = section
        .field("for")
        .and_then(|field| field.quantity(reading, ("duration", "1h"), parse_duration, Some(&Duration::ZERO)));
    let mocks = section.field("mock").map(|field| test_mock::read(reading, field)).unwrap_or_default();
    let help =
        "write the expected jobs, by the name of their queue or sink: `expect = { done = [{ id = 1 }] }`";
    let expect = section.required(reading, "expect", help).map(|field| test_expect::read(reading, field));
    if reading.diagnostics.len() > before {
        return None;
    }
    Some(TestDeclaration {
        name: name?,
        line: reading.line(&section.place),
        step,
        given,
        later,
        at: at.unwrap_or(AT_DEFAULT),
        lasts,
        mocks,
        expect: expect?,
    })
}

/// Jobs that come later, without those with an error.
fn later(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<(Duration, GivenJobs)> {
    let Some(values) = field.value().get_ref().as_array() else {
        reading.wrong_type(field.name, field.value(), "a list of tables");
        return Vec::new();
    };
    let mut later: Vec<_> = values.iter().filter_map(|value| later_jobs(reading, value)).collect();
    later.sort_by_key(|(after, _)| *after);
    later
}

fn later_jobs(reading: &mut ParseContext<'_>, value: &Value<'_>) -> Option<(Duration, GivenJobs)> {
    let section = TableReader::open(reading, TableKind::LaterJobs, "[[test.later]]", value)?;
    let help = "write the time since the test began: `after = \"10s\"`";
    let after = section.required(reading, "after", help);
    let after = after.and_then(|field| field.quantity(reading, ("duration", "10s"), parse_duration, None));
    let help = "write the jobs: `given = [{ id = 1 }]`";
    let given = section.required(reading, "given", help).map(|field| given(reading, field));
    Some((after?, given?))
}

/// A time: a TOML date-time with an offset, or a text like it.
fn time(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Timestamp> {
    let text = match field.value().get_ref() {
        DeValue::Datetime(datetime) => datetime.to_string(),
        _ => field.text(reading)?.value,
    };
    let time: Option<jiff::Timestamp> = text.parse().ok();
    if time.is_none() {
        let diagnostic =
            Diagnostic::error_at(&field.place(reading), format!("`{}` is not a time", field.name));
        reading.report(diagnostic.help("write a time with its offset, like `2026-01-31T12:00:00Z`"));
    }
    Some(Timestamp(time?.as_millisecond()))
}
