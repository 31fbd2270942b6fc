//! Bindings: parse the names of a step's inputs and outputs in `from`, `join`, `alts` and `to`.

use toml::de::DeTable;

use crate::diagnostic::Diagnostic;
use crate::model::InputMode;
use crate::parse::context::{ParseContext, Text, shown};
use crate::parse::field::Field;
use crate::parse::reference::{Reference, name, reference};
use crate::parse::table::TableReader;
use tidegate_model::suggest::listed;

const WAYS: [(&str, InputMode); 3] =
    [("from", InputMode::From), ("join", InputMode::Join), ("alts", InputMode::Alts)];

/// The inputs or outputs of a step, by binding; a single name has an empty binding.
pub(crate) type Bound = Vec<(String, Reference)>;

/// The input mode of a step, and its inputs. Invalid ones are left out.
pub(crate) fn inputs(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> (InputMode, Bound) {
    let written: Vec<(Field<'_>, InputMode)> =
        WAYS.iter().filter_map(|(key, take)| Some((section.field(key)?, *take))).collect();
    let bound = match written[..] {
        [] => {
            let help = "name the source or queue to read: `from = \"…\"` (or several, with `join` or `alts`)";
            section.required(reading, "from", help);
            reading.names_missing = true;
            Vec::new()
        }
        [(field, InputMode::From)] => one(reading, field),
        [(field, take)] => several(reading, field, take),
        _ => {
            let diagnostic = two_ways(reading, section, &written);
            reading.report(diagnostic);
            reading.names_missing = true;
            Vec::new()
        }
    };
    (written.first().map_or(InputMode::From, |(_, take)| *take), bound)
}

/// A name, or a table of bindings.
pub(crate) fn outputs(reading: &mut ParseContext<'_>, field: Field<'_>) -> Bound {
    let Some(table) = field.value().get_ref().as_table() else {
        if field.value().get_ref().is_array() {
            let help = "a fork gives each output a binding: `to = { a = \"a\", b = \"b\" }`";
            refuse(reading, field, "`to` must be a text or a table, but is a list", help);
            return Vec::new();
        }
        return one(reading, field);
    };
    if table.is_empty() {
        let diagnostic = Diagnostic::error_at(&field.place(reading), "`to` has no binding");
        reading.report(diagnostic.help("write `to = { binding = \"queue\" }`, or leave `to` out"));
    }
    bindings(reading, field.name, table)
}

fn one(reading: &mut ParseContext<'_>, field: Field<'_>) -> Bound {
    reference(reading, field).map(|name| (String::new(), name)).into_iter().collect()
}

/// `join` or `alts`.
fn several(reading: &mut ParseContext<'_>, field: Field<'_>, take: InputMode) -> Bound {
    let key = field.name;
    let Some(table) = field.value().get_ref().as_table() else {
        let what = shown(field.value());
        let help = format!("give each input a binding: `{key} = {{ a = \"a\", b = \"b\" }}`");
        refuse(reading, field, &format!("`{key}` must be a table, but is {what}"), &help);
        return Vec::new();
    };
    let bound = bindings(reading, key, table);
    let does = if take == InputMode::Join {
        "waits for one job of each"
    } else {
        "reads from the input that has a job first"
    };
    match table.len() {
        0 => {
            let help = format!("it {does}: `{key} = {{ a = \"a\", b = \"b\" }}`");
            refuse(reading, field, &format!("`{key}` has no binding"), &help);
        }
        1 => {
            let name = bound.first().filter(|(_, name)| !name.secret);
            let name = name.map_or_else(|| "…".to_owned(), |(_, name)| name.as_written());
            let help = format!("it {does}, so name at least two; for one input, write `from = \"{name}\"`");
            refuse(reading, field, &format!("`{key}` has only one binding"), &help);
        }
        _ => {}
    }
    bound
}

/// All valid bindings of the table, in order.
fn bindings(reading: &mut ParseContext<'_>, key: &str, table: &DeTable<'_>) -> Bound {
    let mut bound = Vec::new();
    for (binding, value) in table {
        let place = reading.place(binding.span());
        let binding = Text::written(binding.get_ref().to_string(), place);
        let named = name(reading, "binding", &binding);
        let reference = reference(reading, Field::of(&format!("{key}.{}", binding.value), value));
        reading.names_missing |= named.is_none();
        if let (Some(named), Some(reference)) = (named, reference) {
            bound.push((named.value.to_string(), reference));
        }
    }
    bound.sort_by(|(a, _), (b, _)| a.cmp(b));
    bound
}

fn two_ways(
    reading: &ParseContext<'_>,
    section: &TableReader<'_>,
    written: &[(Field<'_>, InputMode)],
) -> Diagnostic {
    let keys = listed(written.iter().map(|(field, _)| field.name), "and");
    let message = format!("`{}` must have one input mode, but has {}: {keys}", section.title, written.len());
    let mut places: Vec<_> = written.iter().map(|(field, _)| field.place(reading)).collect();
    places.sort_by_key(|place| place.span.start);
    let (first, others) = places.split_at(1);
    let diagnostic = Diagnostic::error_at(&first[0], message);
    let diagnostic =
        others.iter().fold(diagnostic, |diagnostic, place| diagnostic.related(place.clone(), "and here"));
    diagnostic.help(
        "keep one of them: `from` reads one input, `join` waits for one job of each, `alts` reads the input that has a job first",
    )
}

/// Reports an error that hides a part of the graph.
fn refuse(reading: &mut ParseContext<'_>, field: Field<'_>, message: &str, help: &str) {
    let diagnostic = Diagnostic::error_at(&field.place(reading), message);
    reading.report(diagnostic.help(help));
    reading.names_missing = true;
}
