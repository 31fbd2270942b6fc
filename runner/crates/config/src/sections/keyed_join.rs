//! `KeyedJoinKeys`: parses `on`, `within`, `max_waiting` and `left`, the keys of a join by key.

use std::time::Duration;

use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::JoinSide;
use crate::parse::context::{ParseContext, Placed, Text};
use crate::parse::field::Field;
use crate::parse::table::TableReader;
use tidegate_model::suggest::{did_you_mean, listed};
use tidegate_model::{FieldPath, Name, parse_duration};

const MAX_WAITING_DEFAULT: u64 = 100_000;

/// A join by key as written.
#[derive(Debug)]
pub(crate) struct JoinDeclaration {
    /// The declared step; that of the implied one is in its [`StepDeclaration`].
    pub(crate) reader: Name,
    /// By binding.
    pub(crate) sides: Vec<(String, JoinSide)>,
    pub(crate) within: Option<Duration>,
    pub(crate) max_waiting: u64,
    /// `within`, or `on`.
    pub(crate) place: SourceSpan,
}

/// The queue of the tuples, which a join by key implies.
#[derive(Debug)]
pub(crate) struct TupleQueue {
    pub(crate) name: Placed<Name>,
    pub(crate) was: Option<Placed<Name>>,
    /// The inputs of the join.
    pub(crate) bindings: Vec<String>,
}

/// `on` of a step and its kin.
#[derive(Debug)]
pub(crate) struct KeyedJoinKeys {
    /// `within`, or `on`.
    pub(crate) place: SourceSpan,
    /// By binding.
    pub(crate) sides: Vec<(String, JoinSide)>,
    pub(crate) within: Option<Duration>,
    pub(crate) max_waiting: u64,
}

/// The keys of a join by key; `None` if the step has no valid `on`.
pub(crate) fn read(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Option<KeyedJoinKeys> {
    let join = section.field("join");
    let Some(on) = section.field("on") else {
        refuse_without_on(reading, section, join.is_some());
        return None;
    };
    let Some(table) = join.and_then(|join| join.value().get_ref().as_table()) else {
        if join.is_none() {
            let diagnostic = Diagnostic::error_at(&on.place(reading), "`on` has no effect without `join`");
            reading.report(diagnostic.help("name the inputs: `join = { a = \"a\", b = \"b\" }`"));
        }
        return None;
    };
    let bindings: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
    let paths = paths(reading, on, &bindings);
    let within = section.field("within");
    let place = within.unwrap_or(on).place(reading);
    let within = within
        .and_then(|field| field.quantity(reading, ("duration", "1h"), parse_duration, Some(&Duration::ZERO)));
    let max_waiting = section.field("max_waiting").and_then(|field| field.count(reading, 1));
    let left = left(reading, section, &bindings);
    let side = |(binding, on): (String, FieldPath)| {
        let left = left.contains(&binding);
        (binding, JoinSide { on, left })
    };
    let sides = paths?.into_iter().map(side).collect();
    Some(KeyedJoinKeys { place, sides, within, max_waiting: max_waiting.unwrap_or(MAX_WAITING_DEFAULT) })
}

/// A key without an effect is a misunderstanding.
fn refuse_without_on(reading: &mut ParseContext<'_>, section: &TableReader<'_>, joins: bool) {
    for key in ["within", "max_waiting", "left"] {
        let Some(field) = section.field(key) else { continue };
        let (message, help) = if joins {
            (
                format!("`{key}` has no effect without `on`: a join without `on` pairs jobs in order"),
                "name the field that belongs together: `on = \"id\"`",
            )
        } else {
            let message = format!("`{key}` has no effect without `join` and `on`");
            (message, "it belongs to a join by key: `join = { a = \"a\", b = \"b\" }, on = \"id\"`")
        };
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
}

/// `on`: one path for all inputs, or a table with one for each. `None` after an error.
fn paths(
    reading: &mut ParseContext<'_>,
    on: Field<'_>,
    bindings: &[String],
) -> Option<Vec<(String, FieldPath)>> {
    let Some(table) = on.value().get_ref().as_table() else {
        if on.value().get_ref().as_str().is_none() {
            reading.wrong_type("on", on.value(), "the path of a field, or a table with one for each input");
            return None;
        }
        let path = on.path_in_job(reading)?;
        return Some(bindings.iter().map(|binding| (binding.clone(), path.clone())).collect());
    };
    let mut found = Vec::new();
    let mut whole = true;
    for (key, value) in table {
        let binding = key.get_ref().to_string();
        let text = Text::written(binding.clone(), reading.place(key.span()));
        let path = Field::of(&format!("on.{binding}"), value).path_in_job(reading);
        whole &= path.is_some();
        if known(reading, "on", &text, bindings) {
            found.extend(path.map(|path| (binding, path)));
        } else {
            whole = false;
        }
    }
    let missing = bindings.iter().filter(|binding| !table.contains_key(binding.as_str()));
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    if !missing.is_empty() {
        let message = format!("`on` has no path for {}", listed(missing, "and"));
        let help = "give each input the field with its key, or write one path for all: `on = \"id\"`";
        reading.report(Diagnostic::error_at(&on.place(reading), message).help(help));
        whole = false;
    }
    whole.then_some(found)
}

/// `left`: the bindings whose jobs go on without a partner.
fn left(reading: &mut ParseContext<'_>, section: &TableReader<'_>, bindings: &[String]) -> Vec<String> {
    let Some(field) = section.field("left") else { return Vec::new() };
    let texts = field.text_or_texts(reading).unwrap_or_default();
    let left = texts.into_iter().filter(|text| known(reading, "left", text, bindings));
    let left = left.map(|text| text.value).collect();
    if section.field("within").is_none() {
        let message = "`left` has no effect without `within`: every job waits for its partners";
        let help = "add the time after which a job goes on alone: `within = \"1h\"`";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
    left
}

fn known(reading: &mut ParseContext<'_>, key: &str, binding: &Text, bindings: &[String]) -> bool {
    if bindings.contains(&binding.value) {
        return true;
    }
    let message = format!("{} in `{key}` is no input of the join", binding.quoted());
    let names = || bindings.iter().map(String::as_str);
    let near = (!binding.secret).then(|| did_you_mean(&binding.value, names())).flatten();
    let help = near.unwrap_or_else(|| format!("the inputs are {}", listed(names(), "and")));
    reading.report(Diagnostic::error_at(&binding.place, message).help(help));
    false
}
