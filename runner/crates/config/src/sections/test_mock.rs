//! `MockDeclaration`: parses `mock` of a `[[test]]`, the answers of plugins and built-ins.

use std::path::Path;

use super::test_jobs::entries;
use crate::diagnostic::Diagnostic;
use crate::model::test_case::{MockAnswer, MockAnswers};
use crate::parse::context::{ParseContext, Text, Value};
use crate::parse::field::Field;
use crate::parse::json;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use tidegate_model::parse_duration;
use tidegate_model::suggest::listed;
use toml::de::DeValue;

/// The key of a monitor in the table of its step.
pub(crate) const MONITOR: &str = "monitor";

/// The keys of an answer that decide its kind; each answer has one.
const KINDS: [&str; 8] = ["output", "outputs", "error", "retry", "reject", "halt", "pending", "gate_closed"];

/// The answers of one processor, as written.
#[derive(Debug)]
pub(crate) struct MockDeclaration {
    /// The step or gate that runs it; `None`: any.
    pub(crate) owner: Option<Text>,
    /// It belongs to the monitor of the step.
    pub(crate) of_monitor: bool,
    pub(crate) processor: Text,
    pub(crate) answers: MockAnswers,
    pub(crate) line: u64,
}

/// The mocks, without those with an error.
pub(crate) fn read(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<MockDeclaration> {
    let mut mocks = Vec::new();
    for (key, field) in entries(reading, field) {
        if is_processor(&key) {
            mocks.extend(mock(reading, None, key, field));
        } else if field.value().get_ref().is_table() {
            of_owner(reading, &key, field, &mut mocks);
        } else {
            let expected = "a table of mocks, by `plugin:NAME`, `builtin:http` or `builtin:exec`";
            reading.wrong_type(field.name, field.value(), expected);
        }
    }
    mocks
}

/// The mocks of one step or gate.
fn of_owner(
    reading: &mut ParseContext<'_>,
    owner: &Text,
    field: Field<'_>,
    mocks: &mut Vec<MockDeclaration>,
) {
    for (key, field) in entries(reading, field) {
        if key.value != MONITOR {
            mocks.extend(mock(reading, Some((owner, false)), key, field));
            continue;
        }
        for (processor, field) in entries(reading, field) {
            mocks.extend(mock(reading, Some((owner, true)), processor, field));
        }
    }
}

/// `None` after an error.
fn mock(
    reading: &mut ParseContext<'_>,
    owner: Option<(&Text, bool)>,
    processor: Text,
    field: Field<'_>,
) -> Option<MockDeclaration> {
    let answers = answers(reading, field)?;
    let line = reading.line(&processor.place);
    let of_monitor = owner.is_some_and(|(_, of_monitor)| of_monitor);
    let owner = owner.map(|(owner, _)| owner.clone());
    Some(MockDeclaration { owner, of_monitor, processor, answers, line })
}

/// Whether a key is a processor, and not the name of a step or gate.
fn is_processor(key: &Text) -> bool {
    key.value.contains(':') || is_script(key)
}

/// Whether a key is the file of a script.
pub(crate) fn is_script(key: &Text) -> bool {
    Path::new(&key.value).extension().is_some_and(|extension| extension == "rhai")
}

/// One answer for every call, or a list of answers.
fn answers(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<MockAnswers> {
    match field.value().get_ref() {
        DeValue::Table(_) => answer(reading, field.name, field.value()).map(MockAnswers::Always),
        DeValue::Array(values) => {
            let answers: Vec<_> = values.iter().map(|value| answer(reading, field.name, value)).collect();
            answers.into_iter().collect::<Option<_>>().map(MockAnswers::InOrder)
        }
        _ => {
            reading.wrong_type(field.name, field.value(), "an answer, or a list of answers");
            None
        }
    }
}

/// `None` after an error.
fn answer(reading: &mut ParseContext<'_>, of: &str, value: &Value<'_>) -> Option<MockAnswer> {
    let before = reading.diagnostics.len();
    let section = TableReader::open(reading, TableKind::MockAnswer, of, value)?;
    let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| section.field(kind).is_some()).collect();
    for (key, kind) in [("cause", "error"), ("in", "retry")] {
        if let Some(field) = section.field(key).filter(|_| !kinds.contains(&kind)) {
            field.refuse(reading, format!("`{key}` has no effect without `{kind}`"));
        }
    }
    let [kind] = kinds[..] else {
        let message = match kinds[..] {
            [] => "the answer is empty".to_owned(),
            _ => {
                format!("the answer has {}, but must have one of them", listed(kinds.iter().copied(), "and"))
            }
        };
        let help = format!("write one of {}", listed(KINDS, "or"));
        // A misspelled key has been reported.
        if reading.diagnostics.len() == before {
            reading.report(Diagnostic::error_at(&section.place, message).help(help));
        }
        return None;
    };
    let field = section.field(kind)?;
    let answer = match kind {
        "output" => Some(MockAnswer::Outputs(vec![json::json(reading, field.value()).to_string()])),
        "outputs" => outputs(reading, field),
        "error" => {
            let cause = section.field("cause").and_then(|field| cause(reading, field));
            text(reading, field).map(|message| MockAnswer::Error { message, cause })
        }
        "retry" => {
            let delay = section
                .field("in")
                .and_then(|field| field.quantity(reading, ("duration", "10s"), parse_duration, None));
            text(reading, field).map(|why| MockAnswer::Retry { why, delay })
        }
        "reject" => text(reading, field).map(MockAnswer::Reject),
        "halt" => text(reading, field).map(MockAnswer::Halt),
        "pending" => text(reading, field).map(MockAnswer::Pending),
        _ => text(reading, field).map(MockAnswer::GateClosed),
    };
    answer.filter(|_| reading.diagnostics.len() == before)
}

fn text(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<String> {
    field.text(reading).map(|text| text.value)
}

fn outputs(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<MockAnswer> {
    let Some(values) = field.value().get_ref().as_array() else {
        reading.wrong_type(field.name, field.value(), "a list of outputs");
        return None;
    };
    let outputs = values.iter().map(|value| json::json(reading, value).to_string());
    Some(MockAnswer::Outputs(outputs.collect()))
}

/// A word of error records and retry policies: `timeout`, `connection`, `http STATUS` or `exit CODE`.
fn cause(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<String> {
    let text = field.text(reading)?;
    let known = match text.value.split_once(' ') {
        None => matches!(&*text.value, "timeout" | "connection"),
        Some(("http", status)) => status.parse::<u16>().is_ok_and(|status| (100..600).contains(&status)),
        Some(("exit", code)) => code.parse::<i32>().is_ok(),
        Some(_) => false,
    };
    if !known {
        let message = format!("`cause` cannot be {}", text.quoted());
        let help = "use `timeout`, `connection`, a status like `http 503`, or an exit code like `exit 1`";
        reading.report(Diagnostic::error_at(&text.place, message).help(help));
    }
    known.then_some(text.value)
}
