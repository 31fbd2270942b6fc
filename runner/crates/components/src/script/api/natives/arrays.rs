//! Functions on arrays: replace Rhai's that create more than their arguments, or run long.

use rhai::{Array, Dynamic, FnPtr, Module, NativeCallContext};

use super::equality::equal;
use super::{Answer, changes};
use crate::script::attempt::{ScriptAttempt, current};

pub(crate) fn register(module: &mut Module) {
    changes(module, "pad", |array: &mut Array, length: i64, with: Dynamic| {
        pad(&current(), array, length, &with)
    });
    changes(module, "dedup", |call: NativeCallContext<'_>, array: &mut Array| {
        let of = current();
        dedup(array, |kept, next| equal(&of, &call, kept, next, 0))
    });
    changes(module, "dedup", |call: NativeCallContext<'_>, array: &mut Array, same: FnPtr| {
        let of = current();
        dedup(array, |kept, next| {
            of.go_on("dedup")?;
            match same.call_raw(&call, None, [kept.clone(), next.clone()]) {
                Ok(same) => Ok(same.as_bool().unwrap_or(false)),
                // As in Rhai: values that cannot be compared are not equal.
                Err(error) if error.is_catchable() => Ok(false),
                Err(error) => Err(error),
            }
        })
    });
}

fn pad(attempt: &ScriptAttempt, array: &mut Array, length: i64, with: &Dynamic) -> Answer<()> {
    const NAME: &str = "pad";
    let Ok(length) = usize::try_from(length) else { return Ok(()) };
    let Some(lacking) = length.checked_sub(array.len()).filter(|lacking| *lacking > 0) else { return Ok(()) };
    attempt.room(NAME, lacking.saturating_mul(size_of::<Dynamic>()))?;
    array.reserve_exact(lacking);
    for _ in 0..lacking {
        attempt.go_on(NAME)?;
        array.push(with.clone());
    }
    Ok(())
}

/// Keeps the first of adjacent equal elements.
fn dedup(array: &mut Array, mut same: impl FnMut(&mut Dynamic, &mut Dynamic) -> Answer<bool>) -> Answer<()> {
    let mut failure = None;
    array.dedup_by(|next, kept| {
        if failure.is_some() {
            return false;
        }
        same(kept, next).unwrap_or_else(|error| {
            failure = Some(error);
            false
        })
    });
    failure.map_or(Ok(()), Err)
}
