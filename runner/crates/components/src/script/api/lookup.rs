//! `lookup`: lets a script find a row of a lookup table.

use rhai::{Dynamic, EvalAltResult, ImmutableString, Module, NativeCallContext};

use super::register::add;
use crate::script::attempt::current;
use crate::script::script_tables::NoAnswer;
use crate::script::values::{json, thrown, type_names};
use tidegate_model::suggest::{did_you_mean, listed};
use tidegate_model::{format_size, scalar};

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
    if !tables.names().any(|other| other == name) {
        let (message, help) = unknown_table(name, tables.names());
        return Err(format!("{message}; {help}").into());
    }
    let read = |key: &str| tables.read(name, key, |row| json::read(row.as_bytes()));
    let row = match key.as_immutable_string_ref() {
        Ok(text) => read(&text),
        // No row has it, and a job may lack the value.
        Err(_) if key.is_unit() => Ok(None),
        Err(_) => {
            let written = thrown::as_json(key);
            let Some(value) = written.as_deref().and_then(scalar) else {
                let given = type_names::of(key);
                let wanted = "a text, a number or a truth value";
                return Err(format!("the key of `lookup` must be {wanted}, not {given}").into());
            };
            read(&value)
        }
    };
    match row {
        Ok(None) => Ok(Dynamic::UNIT),
        Ok(Some(row)) => {
            row.map_err(|error| format!("the row of the table `{name}` cannot be read: {error}").into())
        }
        Err(NoAnswer::Full { max_size }) => {
            let limit = format_size(max_size);
            Err(format!("the table `{name}` exceeds its `max_size` of {limit}; raise it in `[table.{name}]`")
                .into())
        }
        Err(NoAnswer::OutsideOfBatch) => {
            Err(format!("the rows of the table `{name}` are known only to jobs; call `lookup` in a function")
                .into())
        }
    }
}

/// The error for an unknown table, and its fix.
#[must_use]
pub fn unknown_table<'n>(name: &str, tables: impl Iterator<Item = &'n str> + Clone) -> (String, String) {
    let help = match did_you_mean(name, tables.clone()) {
        Some(help) => help,
        None if tables.clone().next().is_none() => {
            format!("declare it, in the pipeline or for all in tidegate.toml: `[table.{name}]`")
        }
        None => format!("the tables are {}", listed(tables, "and")),
    };
    (format!("table `{name}` is unknown"), help)
}
