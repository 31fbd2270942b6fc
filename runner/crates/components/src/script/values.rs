//! Values as texts: `parse_json`, `to_json`, `print` and `debug`.
//!
//! Rhai's own `parse_json` evaluates its text as a script, so that data would run as code. Here it is the
//! reader of jobs, and `to_json` is the writer of outputs: both replace Rhai's for every type of argument.

pub(crate) mod captured;
pub(crate) mod frozen;
mod indexed_map;
pub mod json;
pub(crate) mod number;
pub(crate) mod order;
pub(crate) mod thrown;
pub(crate) mod type_names;

use std::any::TypeId;

use rhai::{Array, Dynamic, EvalAltResult, ImmutableString, Map, Module, NativeCallContext};

use self::json::WriteError;
use super::api::register::{add, add_raw};
use super::attempt::current;

type Answer<T> = Result<T, Box<EvalAltResult>>;

/// Types of Rhai without a name, whose values a script can hold.
const ITERATORS: [&str; 4] = [
    "rhai::packages::iter_basic::CharsStream",
    "rhai::packages::iter_basic::BitRange",
    "rhai::packages::iter_basic::StepRange<i64>",
    "rhai::packages::iter_basic::StepRange<f64>",
];

pub(crate) fn register(module: &mut Module) {
    add(module, "parse_json", |call: NativeCallContext<'_>, text: ImmutableString| {
        json::read(text.as_bytes()).map_err(|error| {
            // The value is freed by now, and its memory is available again.
            if error.is_full() {
                current().full("parse_json")
            } else {
                Box::new(fail(&call, format!("the argument of `parse_json` is not JSON: {error}")))
            }
        })
    });
    // Rhai prefers the function for the exact type of an argument, and has one for maps.
    for kind in [TypeId::of::<Map>(), TypeId::of::<Dynamic>()] {
        add_raw(module, "to_json", &[kind], |call, arguments| -> Answer<ImmutableString> {
            let attempt = current();
            let mut text = Vec::new();
            json::write_within(arguments[0], &mut text, attempt.free()).map_err(|error| match error {
                WriteError::Unsayable(why) => {
                    Box::new(fail(&call, format!("`to_json` cannot write this: {why}")))
                }
                WriteError::TooLarge(_) => attempt.full("to_json"),
            })?;
            Ok(String::from_utf8_lossy(&text).as_ref().into())
        });
    }
    for name in ["print", "debug"] {
        for kind in [TypeId::of::<Map>(), TypeId::of::<Array>()] {
            add_raw(module, name, &[kind], |_, arguments| -> Answer<ImmutableString> {
                Ok(thrown::shown(arguments[0]).into())
            });
        }
    }
    for path in ITERATORS {
        module.set_custom_type_raw(path, "iterator");
    }
}

fn fail(call: &NativeCallContext<'_>, message: String) -> EvalAltResult {
    EvalAltResult::ErrorRuntime(message.into(), call.call_position())
}
