//! Equality of arrays and maps: compares them with a depth limit. Rhai recurses without one, which may exceed
//! the stack.

use rhai::{Array, Dynamic, EvalAltResult, Map, Module, NativeCallContext, Position};

use super::{Answer, reads};
use crate::script::attempt::{ScriptAttempt, current};

/// Maximum nesting of compared values.
const DEPTH_MAX: usize = 1000;

pub(crate) fn register(module: &mut Module) {
    macro_rules! compare {
        ($name:literal, $kind:ty, $with:ident, $wanted:literal) => {
            reads(
                module,
                $name,
                |call: NativeCallContext<'_>, a: &mut $kind, mut b: $kind| -> Answer<bool> {
                    Ok($with(&current(), &call, a, &mut b, 0)? == $wanted)
                },
            );
        };
    }
    compare!("==", Array, arrays, true);
    compare!("!=", Array, arrays, false);
    compare!("==", Map, maps, true);
    compare!("!=", Map, maps, false);
}

fn arrays(
    attempt: &ScriptAttempt,
    call: &NativeCallContext<'_>,
    a: &mut Array,
    b: &mut Array,
    depth: usize,
) -> Answer<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.iter_mut().zip(b) {
        if !equal(attempt, call, a, b, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps(
    attempt: &ScriptAttempt,
    call: &NativeCallContext<'_>,
    a: &mut Map,
    b: &mut Map,
    depth: usize,
) -> Answer<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, a) in a {
        let Some(b) = b.get_mut(key) else { return Ok(false) };
        if !equal(attempt, call, a, b, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether two values are equal, as by `==`; values of types without a comparison are not.
pub(crate) fn equal(
    attempt: &ScriptAttempt,
    call: &NativeCallContext<'_>,
    a: &mut Dynamic,
    b: &mut Dynamic,
    depth: usize,
) -> Answer<bool> {
    attempt.go_on("==")?;
    if depth > DEPTH_MAX {
        let message = format!("values that nest deeper than {DEPTH_MAX} levels cannot be compared");
        return Err(EvalAltResult::ErrorRuntime(message.into(), Position::NONE).into());
    }
    if let (Ok(a), Ok(b)) = (a.as_int(), b.as_int()) {
        return Ok(a == b);
    }
    if let (Ok(a), Ok(b)) = (a.as_immutable_string_ref(), b.as_immutable_string_ref()) {
        return Ok(*a == *b);
    }
    if a.is_array() && b.is_array() {
        return match (a.write_lock::<Array>(), b.write_lock::<Array>()) {
            (Some(mut a), Some(mut b)) => arrays(attempt, call, &mut a, &mut b, depth),
            _ => Ok(false),
        };
    }
    if a.is_map() && b.is_map() {
        return match (a.write_lock::<Map>(), b.write_lock::<Map>()) {
            (Some(mut a), Some(mut b)) => maps(attempt, call, &mut a, &mut b, depth),
            _ => Ok(false),
        };
    }
    let of_one_kind = a.type_id() == b.type_id();
    match call.call_native_fn_raw("==", true, &mut [a, b]) {
        Ok(equal) => Ok(equal.as_bool().unwrap_or(false)),
        Err(error) => match &*error {
            EvalAltResult::ErrorFunctionNotFound(call, _) if call.starts_with("==") && !of_one_kind => {
                Ok(false)
            }
            _ => Err(error),
        },
    }
}
