//! Comparison: finds the differences between the results of a test and its expectations.

use serde_json::{Map, Value};

use super::Difference;
use super::results::{Ended, TestResults};
use crate::report::Halt;
use tidegate_config::{Expected, TestCase};
use tidegate_model::format_duration;

/// The differences, in the order of their causes: unexpected events first.
pub(crate) fn differences(test: &TestCase, results: &TestResults) -> Vec<Difference> {
    let mut found = unexpected(test, results);
    let expect = &test.expect;
    for expected in &expect.outputs {
        let kind = if results.errors.contains_key(&expected.address) {
            Some(RecordKind::Error)
        } else {
            results.events.contains(&expected.address).then_some(RecordKind::Event)
        };
        let actual = results.jobs.get(&expected.address).map(Vec::as_slice).unwrap_or_default();
        found.extend(of_jobs(&expected.name, &expected.jobs, actual, kind));
    }
    if let Some(errors) = &expect.errors {
        let actual: Vec<Value> = results.errors.values().flatten().cloned().collect();
        found.extend(of_jobs("errors", errors, &actual, Some(RecordKind::Error)));
    }
    for (step, attempts) in &expect.attempts {
        let name = if expect.attempts.len() > 1 || test.step.is_none() {
            format!("attempts of {}", step.name)
        } else {
            "attempts".to_owned()
        };
        let actual = results.attempts.get(step).copied().unwrap_or(0);
        found.extend(of_value(name, attempts, attempts.value == actual, &attempts.value, &actual));
    }
    if let Some(elapsed) = &expect.elapsed {
        let (expected, actual) = (format_duration(elapsed.value), format_duration(results.elapsed));
        found.extend(of_value(
            "elapsed".into(),
            elapsed,
            elapsed.value == results.elapsed,
            &expected,
            &actual,
        ));
    }
    if let Some(halted) = &expect.halted {
        found.extend(of_halts(halted, &results.halts));
    }
    if let Some(dropped) = &expect.dropped {
        let (same, actual) = (dropped.value == results.dropped, results.dropped);
        found.extend(of_value("dropped".into(), dropped, same, &dropped.value, &actual));
    }
    if let Some(waiting) = &expect.waiting {
        let (same, actual) = (waiting.value == results.waiting, results.waiting);
        found.extend(of_value("waiting".into(), waiting, same, &waiting.value, &actual));
    }
    found
}

/// Events that the test does not expect.
fn unexpected(test: &TestCase, results: &TestResults) -> Vec<Difference> {
    let expect = &test.expect;
    let mut found: Vec<Difference> = results
        .problems
        .iter()
        .map(|problem| Difference::Unexpected { line: problem.line, message: problem.message.clone() })
        .collect();
    let mut add = |message: String| found.push(Difference::Unexpected { line: None, message });
    let is_over = matches!(results.ended, Ended::Done | Ended::Waiting);
    if !is_over {
        let elapsed = format_duration(results.elapsed);
        let help = "limit it with `for`, like `for = \"1h\"`";
        add(match results.ended {
            Ended::TooMany => format!("the test does not end, after {elapsed} of its clock; {help}"),
            _ => format!("jobs still wait after {elapsed} of the test's clock; {help}"),
        });
    }
    if expect.halted.is_none() {
        for halt in &results.halts {
            add(format!("the step `{}` stops: {}", halt.step.name, halt.why));
        }
    }
    if expect.errors.is_none() {
        for (queue, errors) in &results.errors {
            if expect.outputs.iter().any(|expected| expected.address == *queue) {
                continue;
            }
            let is_known = |error: &&Value| {
                let text = error["message"].as_str().unwrap_or_default();
                results.problems.iter().any(|problem| text.contains(&problem.message))
            };
            for error in errors.iter().filter(|error| !is_known(error)) {
                let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
                add(format!("a job fails in the step `{}`: {}", text("step"), text("message")));
            }
        }
    }
    if expect.dropped.is_none() && results.dropped > 0 {
        let (jobs, are) = if results.dropped == 1 { ("job", "is") } else { ("jobs", "are") };
        let dropped = results.dropped;
        add(format!("{dropped} failed {jobs} {are} dropped; expect it with `dropped = {dropped}`"));
    }
    // A stopped step keeps its jobs, and the stop has been reported.
    let may_wait = expect.waiting.is_some() || test.lasts.is_some() || !results.halts.is_empty();
    if results.waiting > 0 && is_over && !may_wait {
        let (jobs, wait) = if results.waiting == 1 { ("job", "waits") } else { ("jobs", "wait") };
        add(format!(
            "{} {jobs} still {wait} for an external system; expect it with `waiting = {}`",
            results.waiting, results.waiting
        ));
    }
    found
}

/// One of the stops must have the expected text in its reason.
fn of_halts(expected: &Expected<String>, halts: &[Halt]) -> Option<Difference> {
    if halts.is_empty() {
        let message = "`halted` is expected, but no step stops".to_owned();
        return Some(Difference::Unexpected { line: Some(expected.line), message });
    }
    let reasons: Vec<String> = halts.iter().map(|halt| format!("{}: {}", halt.step.name, halt.why)).collect();
    let same = reasons.iter().any(|reason| reason.contains(&expected.value));
    let (wanted, actual) = (format!("`{}`", expected.value), format!("`{}`", reasons.join("`, `")));
    of_value("halted".into(), expected, same, &wanted, &actual)
}

fn of_value<T>(
    name: String,
    expected: &Expected<T>,
    same: bool,
    wanted: &dyn std::fmt::Display,
    actual: &dyn std::fmt::Display,
) -> Option<Difference> {
    let (line, expected, actual) = (expected.line, wanted.to_string(), actual.to_string());
    (!same).then_some(Difference::Value { name, line, expected, actual })
}

/// Records of a queue. Only their expected fields are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordKind {
    Error,
    Event,
}

/// Compares lists of jobs. `kind`: they are records.
fn of_jobs(
    name: &str,
    expected: &Expected<Vec<Value>>,
    actual: &[Value],
    kind: Option<RecordKind>,
) -> Option<Difference> {
    let wanted = &expected.value;
    let shown = |(position, job): (usize, &Value)| match (wanted.get(position), kind) {
        (Some(wanted), None) => matched(wanted, job),
        (None, None) => without_nulls(job),
        (wanted, Some(kind)) => matched_record(wanted, job, kind),
    };
    let actual: Vec<Value> = actual.iter().enumerate().map(shown).collect();
    let (name, line, expected) = (name.to_owned(), expected.line, wanted.clone());
    (expected != actual).then_some(Difference::Jobs { name, line, expected, actual })
}

/// The job, in the form of the expected one where both mean the same. TOML has no `null`, so a field that is
/// `null` may be missing in the expected job.
fn matched(wanted: &Value, job: &Value) -> Value {
    match (wanted, job) {
        (Value::Object(wanted), Value::Object(job)) => {
            let field = |(key, value): (&String, &Value)| match wanted.get(key) {
                Some(wanted) => Some((key.clone(), matched(wanted, value))),
                None if value.is_null() => None,
                None => Some((key.clone(), without_nulls(value))),
            };
            Value::Object(job.iter().filter_map(field).collect::<Map<_, _>>())
        }
        (Value::Array(wanted), Value::Array(job)) => {
            let element = |(position, value): (usize, &Value)| match wanted.get(position) {
                Some(wanted) => matched(wanted, value),
                None => without_nulls(value),
            };
            Value::Array(job.iter().enumerate().map(element).collect())
        }
        (Value::Number(wanted), Value::Number(job))
            if wanted.is_f64() != job.is_f64() && wanted.as_f64() == job.as_f64() =>
        {
            Value::Number(wanted.clone())
        }
        _ => job.clone(),
    }
}

/// As [`matched`], for a record: a map has some of its fields. A text is a part of the message of an error, or the
/// word of an event.
fn matched_record(wanted: Option<&Value>, record: &Value, kind: RecordKind) -> Value {
    let main = match kind {
        RecordKind::Error => "message",
        RecordKind::Event => "event",
    };
    let text = || record.get(main).cloned().unwrap_or(Value::Null);
    let matched_text = |wanted: &str| match text().as_str() {
        Some(message) if kind == RecordKind::Error && message.contains(wanted) => Value::from(wanted),
        _ => text(),
    };
    match wanted {
        Some(Value::String(wanted)) => matched_text(wanted),
        Some(Value::Object(fields)) => {
            let field = |(key, wanted): (&String, &Value)| {
                let value = match wanted {
                    Value::String(wanted) if key == main => matched_text(wanted),
                    _ => matched(wanted, record.get(key)?),
                };
                Some((key.clone(), value))
            };
            Value::Object(fields.iter().filter_map(field).collect())
        }
        _ => text(),
    }
}

/// The job without the fields that are `null`.
fn without_nulls(job: &Value) -> Value {
    match job {
        Value::Object(fields) => {
            let some = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(some.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(without_nulls).collect()),
        _ => job.clone(),
    }
}
