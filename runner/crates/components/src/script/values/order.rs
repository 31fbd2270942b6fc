//! `<`, `<=`, `>` and `>=`: compare two numbers or two texts. Any other pair is an error.
//!
//! Rhai itself answers `false` for values of different kinds, so that `99 > "60"` would keep a gate open. It does so
//! before it looks for a function, except for the operators of its host: so these four are such operators, with the
//! precedence of Rhai's own.

use std::any::TypeId;
use std::cmp::Ordering;
use std::rc::Rc;

use rhai::{
    Dynamic, Engine, EvalAltResult, FLOAT, FuncRegistration, Module, NativeCallContext, Position, RhaiFunc,
};

use super::number::BigNumber;
use super::type_names;

/// An operator, and whether it holds for an order.
type Operator = (&'static str, fn(Ordering) -> bool);

const OPERATORS: [Operator; 4] =
    [("<", Ordering::is_lt), ("<=", Ordering::is_le), (">", Ordering::is_gt), (">=", Ordering::is_ge)];

/// Rhai's precedence of comparisons.
const PRECEDENCE: u8 = 130;

/// Lets the functions of [`register`] compare, in the scripts that `engine` compiles.
pub(crate) fn take_over(engine: &mut Engine) {
    for (operator, _) in OPERATORS {
        engine.disable_symbol(operator);
        // Rhai refuses only symbols that are not disabled, and a precedence of 0.
        let registered = engine.register_custom_operator(operator, PRECEDENCE);
        debug_assert!(registered.is_ok(), "{operator}");
    }
}

pub(crate) fn register(module: &mut Module) {
    for (operator, holds) in OPERATORS {
        let compare = move |_: Option<NativeCallContext<'_>>, arguments: &mut [&mut Dynamic]| {
            let [a, b] = arguments else { return Ok(Dynamic::FALSE) };
            match order(a, b) {
                Ok(order) => Ok(Dynamic::from(order.is_some_and(holds))),
                Err(Incomparable) => Err(Box::new(refused(operator, a, b))),
            }
        };
        // Without a context, which costs time; Rhai adds the position of the operator to an error.
        let function = RhaiFunc::Method {
            func: Rc::new(compare),
            has_context: false,
            is_pure: true,
            is_volatile: false,
        };
        let kinds = [TypeId::of::<Dynamic>(); 2];
        FuncRegistration::new(operator).in_global_namespace().set_into_module_raw(module, kinds, function);
    }
}

/// Two values of kinds that have no order.
struct Incomparable;

/// The order of two values; `None` if one of them is `NaN`.
fn order(a: &Dynamic, b: &Dynamic) -> Result<Option<Ordering>, Incomparable> {
    if let (Ok(a), Ok(b)) = (a.as_int(), b.as_int()) {
        return Ok(Some(a.cmp(&b)));
    }
    if let (Some(a), Some(b)) = (number(a), number(b)) {
        return Ok(a.partial_cmp(&b));
    }
    if let (Ok(a), Ok(b)) = (a.as_immutable_string_ref(), b.as_immutable_string_ref()) {
        return Ok(Some(a.as_str().cmp(b.as_str())));
    }
    if let (Some(a), Some(b)) = (letters(a), letters(b)) {
        return Ok(Some(a.cmp(&b)));
    }
    if let (Ok(a), Ok(b)) = (a.as_bool(), b.as_bool()) {
        return Ok(Some(a.cmp(&b)));
    }
    Err(Incomparable)
}

#[expect(clippy::cast_precision_loss, reason = "as Rhai compares an integer with a float")]
fn number(value: &Dynamic) -> Option<FLOAT> {
    value.as_float().ok().or_else(|| value.as_int().ok().map(|int| int as FLOAT))
}

/// A text or a character.
fn letters(value: &Dynamic) -> Option<String> {
    value
        .as_char()
        .map(String::from)
        .or_else(|_| value.as_immutable_string_ref().map(|text| text.to_string()))
        .ok()
}

fn refused(operator: &str, a: &Dynamic, b: &Dynamic) -> EvalAltResult {
    let [one, other] = [a, b].map(type_names::of);
    let is_number = |value: &Dynamic| number(value).is_some() || value.read_lock::<BigNumber>().is_some();
    let help = match (a.is_string(), b.is_string()) {
        (true, false) if is_number(b) => "; convert the text with `parse_int` or `parse_float`",
        (false, true) if is_number(a) => "; convert the text with `parse_int` or `parse_float`",
        _ => "",
    };
    let message = format!("`{operator}` cannot compare {one} with {other}{help}");
    EvalAltResult::ErrorRuntime(message.into(), Position::NONE)
}
