//! `ExpectDeclaration`: parses `expect` of a `[[test]]`.

use std::time::Duration;

use super::test_jobs::{entries, jobs};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::test_case::Expected;
use crate::parse::context::{ParseContext, Text};
use crate::parse::field::Field;
use serde_json::Value as Json;
use tidegate_model::parse_duration;

/// The expected results, as written.
#[derive(Debug, Default)]
pub(crate) struct ExpectDeclaration {
    /// Jobs by name of their queue or sink.
    pub(crate) outputs: Vec<(Text, Expected<Vec<Json>>)>,
    pub(crate) errors: Option<(SourceSpan, Expected<Vec<Json>>)>,
    pub(crate) attempts: Option<AttemptsDeclaration>,
    pub(crate) elapsed: Option<Expected<Duration>>,
    pub(crate) halted: Option<Expected<String>>,
    pub(crate) dropped: Option<Expected<u64>>,
    pub(crate) waiting: Option<Expected<u64>>,
}

#[derive(Debug)]
pub(crate) enum AttemptsDeclaration {
    /// Attempts of the only step.
    Only(SourceSpan, Expected<u64>),
    ByStep(Vec<(Text, Expected<u64>)>),
}

pub(crate) fn read(reading: &mut ParseContext<'_>, field: Field<'_>) -> ExpectDeclaration {
    let (mut expect, place) = (ExpectDeclaration::default(), field.place(reading));
    let entries = entries(reading, field);
    if entries.is_empty() && field.value().get_ref().is_table() {
        let help = "write the expected jobs, by the name of their queue or sink: `done = [{ id = 1 }]`";
        reading.report(Diagnostic::error_at(&place, "`expect` is empty").help(help));
    }
    for (key, field) in entries {
        let line = reading.line(&key.place);
        match &*key.value {
            "errors" => {
                let errors = values(reading, field);
                expect.errors = errors.map(|value| (key.place, Expected { value, line }));
            }
            "attempts" => expect.attempts = attempts(reading, &key, field),
            "elapsed" => {
                let elapsed = field.quantity(reading, ("duration", "10s"), parse_duration, None);
                expect.elapsed = elapsed.map(|value| Expected { value, line });
            }
            "halted" => {
                let why = field.filled_text(reading);
                expect.halted = why.map(|text| Expected { value: text.value, line });
            }
            "dropped" => expect.dropped = field.count(reading, 0).map(|value| Expected { value, line }),
            "waiting" => expect.waiting = field.count(reading, 0).map(|value| Expected { value, line }),
            _ => {
                let jobs = values(reading, field);
                expect.outputs.extend(jobs.map(|value| (key, Expected { value, line })));
            }
        }
    }
    expect
}

fn attempts(reading: &mut ParseContext<'_>, key: &Text, field: Field<'_>) -> Option<AttemptsDeclaration> {
    let line = reading.line(&key.place);
    if !field.value().get_ref().is_table() {
        let value = field.count(reading, 0)?;
        return Some(AttemptsDeclaration::Only(key.place.clone(), Expected { value, line }));
    }
    let mut by_step = Vec::new();
    for (step, field) in entries(reading, field) {
        let line = reading.line(&step.place);
        by_step.extend(field.count(reading, 0).map(|value| (step, Expected { value, line })));
    }
    Some(AttemptsDeclaration::ByStep(by_step))
}

/// A list of jobs.
fn values(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Vec<Json>> {
    // Each job is JSON, so no error remains.
    let parse = |job: String| serde_json::from_str(&job).unwrap_or(Json::Null);
    Some(jobs(reading, field)?.into_iter().map(parse).collect())
}
