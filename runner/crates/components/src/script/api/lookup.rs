//! `lookup`: lets a script find a row of a lookup table.

use rhai::{Dynamic, EvalAltResult, ImmutableString, Module, NativeCallContext};

use super::register::add;
use crate::script::attempt::current;
use crate::script::values::{json, thrown, type_names};
use tidegate_config::LookupTables;
use tidegate_model::scalar;
use tidegate_model::suggest::{did_you_mean, listed};

pub(crate) fn register(module: &mut Module) {
    let lookup = |call: NativeCallContext<'_>,
                  table: ImmutableString,
                  key: Dynamic|
     -> Result<Dynamic, Box<EvalAltResult>> {
        find(&table, &key).map_err(|message| {
            EvalAltResult::ErrorRuntime(message.into_string().into(), call.call_position()).into()
        })
    };
    add(module, "lookup", lookup);
}

/// The row, or `()` if the table has none with this key.
fn find(name: &str, key: &Dynamic) -> Result<Dynamic, Box<str>> {
    let attempt = current();
    let tables = attempt.context().tables();
    let Some(table) = tables.iter().find(|(other, _)| other.as_str() == name).map(|(_, table)| table) else {
        let (message, help) = unknown_table(name, tables);
        return Err(format!("{message}; {help}").into());
    };
    let row = match key.as_immutable_string_ref() {
        Ok(text) => table.get(&text),
        // No row has it, and a job may lack the value.
        Err(_) if key.is_unit() => None,
        Err(_) => {
            let written = thrown::as_json(key);
            let Some(value) = written.as_deref().and_then(scalar) else {
                let given = type_names::of(key);
                let wanted = "a text, a number or a truth value";
                return Err(format!("the key of `lookup` must be {wanted}, not {given}").into());
            };
            table.get(&value)
        }
    };
    let Some(row) = row else { return Ok(Dynamic::UNIT) };
    json::read(row.as_bytes())
        .map_err(|error| format!("the row of the table `{name}` cannot be read: {error}").into())
}

/// The error for an unknown table, and its fix.
#[must_use]
pub fn unknown_table(name: &str, tables: &LookupTables) -> (String, String) {
    let names = || tables.keys().map(tidegate_model::Name::as_str);
    let help = match did_you_mean(name, names()) {
        Some(help) => help,
        None if tables.is_empty() => {
            format!("declare it, in the pipeline or for all in tidegate.toml: `[table.{name}]`")
        }
        None => format!("the tables are {}", listed(names(), "and")),
    };
    (format!("table `{name}` is unknown"), help)
}
