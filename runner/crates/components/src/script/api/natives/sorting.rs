//! Sorting: `sort`, `order` and their variants. This merge sort can be interrupted, and tolerates
//! inconsistent comparison functions.

use rhai::{Array, Dynamic, EvalAltResult, FnPtr, ImmutableString, Module, NativeCallContext, Position};
use std::any::TypeId;
use std::cmp::Ordering;

use super::{Answer, changes, reads};
use crate::script::attempt::{ScriptAttempt, current};

pub(crate) fn register(module: &mut Module) {
    for name in ["sort", "sort_by"] {
        changes(module, name, |call: NativeCallContext<'_>, array: &mut Array, by: FnPtr| {
            let of = current();
            sort(array, |a, b| compare(&of, &call, &by, a, b))
        });
    }
    for name in ["order", "order_by"] {
        reads(module, name, |call: NativeCallContext<'_>, array: &mut Array, by: FnPtr| -> Answer<Array> {
            let of = current();
            let mut array = copy(&of, array)?;
            sort(&mut array, |a, b| compare(&of, &call, &by, a, b))?;
            Ok(array)
        });
    }
    for (sort, order, descending) in [("sort", "order", false), ("sort_desc", "order_desc", true)] {
        changes(module, sort, move |array: &mut Array| natural(&current(), array, descending));
        reads(module, order, move |array: &mut Array| -> Answer<Array> {
            let of = current();
            let mut array = copy(&of, array)?;
            natural(&of, &mut array, descending)?;
            Ok(array)
        });
    }
}

/// A copy of an array for `order`.
fn copy(attempt: &ScriptAttempt, array: &Array) -> Answer<Array> {
    attempt.room("order", size_of_val(array.as_slice()))?;
    let mut copied = Array::with_capacity(array.len());
    for element in array {
        attempt.go_on("order")?;
        copied.push(element.clone());
    }
    Ok(copied)
}

/// The order that `by` returns for two elements: a number below, at or above 0, or whether the first comes
/// first.
fn compare(
    attempt: &ScriptAttempt,
    call: &NativeCallContext<'_>,
    by: &FnPtr,
    a: &Dynamic,
    b: &Dynamic,
) -> Answer<Ordering> {
    attempt.go_on("sort")?;
    let answer = match by.call_raw(call, None, [a.clone(), b.clone()]) {
        Err(error) if !error.is_catchable() => return Err(error),
        answer => answer.ok(),
    };
    let number = answer.and_then(|answer| match answer.as_bool() {
        Ok(first) => Some(if first { -1 } else { 1 }),
        Err(_) => answer.as_int().ok(),
    });
    // As in Rhai, if no order is returned.
    Ok(number.map_or_else(|| a.type_id().cmp(&b.type_id()), |number| number.cmp(&0)))
}

/// The order of the values themselves, which must be of one type.
fn natural(attempt: &ScriptAttempt, array: &mut Array, descending: bool) -> Answer<()> {
    let Some(kind) = array.first().map(Dynamic::type_id).filter(|_| array.len() > 1) else { return Ok(()) };
    let refused =
        |what: String| -> Answer<()> { Err(EvalAltResult::ErrorRuntime(what.into(), Position::NONE).into()) };
    if array.iter().any(|element| element.type_id() != kind) {
        return refused(
            "elements of different types cannot be sorted: give `sort` a function, like `|a, b| a < b`"
                .to_owned(),
        );
    }
    let mut sorted = |compare: fn(&Dynamic, &Dynamic) -> Option<Ordering>| {
        sort(array, |a, b| {
            attempt.go_on("sort")?;
            let ordering = compare(a, b).unwrap_or(Ordering::Equal);
            Ok(if descending { ordering.reverse() } else { ordering })
        })
    };
    if kind == TypeId::of::<i64>() {
        sorted(|a, b| Some(a.as_int().ok()?.cmp(&b.as_int().ok()?)))
    } else if kind == TypeId::of::<ImmutableString>() {
        sorted(|a, b| Some(a.as_immutable_string_ref().ok()?.cmp(&*b.as_immutable_string_ref().ok()?)))
    } else if kind == TypeId::of::<f64>() {
        sorted(|a, b| a.as_float().ok()?.partial_cmp(&b.as_float().ok()?))
    } else if kind == TypeId::of::<char>() {
        sorted(|a, b| Some(a.as_char().ok()?.cmp(&b.as_char().ok()?)))
    } else if kind == TypeId::of::<bool>() {
        sorted(|a, b| Some(a.as_bool().ok()?.cmp(&b.as_bool().ok()?)))
    } else if kind == TypeId::of::<()>() {
        Ok(())
    } else {
        refused(format!("elements of {} cannot be sorted", array[0].type_name()))
    }
}

/// A stable sort. After an error the array has all its elements, in some order.
fn sort(array: &mut Array, mut compare: impl FnMut(&Dynamic, &Dynamic) -> Answer<Ordering>) -> Answer<()> {
    let length = array.len();
    let mut spare = Array::new();
    let mut width = 1;
    while width < length {
        let mut from = 0;
        while from + width < length {
            let end = (from + 2 * width).min(length);
            merge(&mut array[from..end], width, &mut spare, &mut compare)?;
            from = end;
        }
        width *= 2;
    }
    Ok(())
}

/// Merges the two sorted parts of `both`; the first has `width` elements.
fn merge(
    both: &mut [Dynamic],
    width: usize,
    spare: &mut Array,
    compare: &mut impl FnMut(&Dynamic, &Dynamic) -> Answer<Ordering>,
) -> Answer<()> {
    if compare(&both[width - 1], &both[width])?.is_le() {
        return Ok(());
    }
    spare.clear();
    spare.extend(both[..width].iter_mut().map(std::mem::take));
    let (mut left, mut right, mut to) = (0, width, 0);
    let mut failed = Ok(());
    while left < spare.len() && right < both.len() {
        match compare(&spare[left], &both[right]) {
            Ok(Ordering::Greater) => {
                both[to] = std::mem::take(&mut both[right]);
                right += 1;
            }
            Ok(_) => {
                both[to] = std::mem::take(&mut spare[left]);
                left += 1;
            }
            Err(error) => {
                failed = Err(error);
                break;
            }
        }
        to += 1;
    }
    // The places from `to` on belong to the rest of `spare`, before `right`.
    for element in &mut spare[left..] {
        both[to] = std::mem::take(element);
        to += 1;
    }
    failed
}
