//! `BigNumber`: a number that JSON has and Rhai cannot hold.

use std::sync::Arc;

use rhai::{Dynamic, EvalAltResult, Module};

use crate::script::api::register::add;

/// An integer past 64 bits, or a float past the largest one, by its digits. A script can pass it on unchanged
/// and read its text; computing with it is an error instead of a wrong result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BigNumber(Arc<str>);

impl BigNumber {
    pub(crate) fn new(digits: &str) -> Self {
        Self(Arc::from(digits))
    }

    pub(crate) fn digits(&self) -> &str {
        &self.0
    }

    fn refuse(&self) -> Refused {
        let digits = self.digits();
        let message = format!(
            "`{digits}` is too big to compute with; it can be passed on, and `to_string` gives its digits"
        );
        Err(message.into())
    }
}

/// The name of the type in messages of Rhai, and in `type_of`.
pub(crate) const BIG_NUMBER: &str = "big number";

/// Rhai treats values of different types as unequal and unordered, without an error, unless a function is
/// registered: so each operator is.
const OPERATORS: [&str; 9] = ["-", "*", "/", "%", "**", "<", "<=", ">", ">="];

type Refused = Result<Dynamic, Box<EvalAltResult>>;

pub(crate) fn register(module: &mut Module) {
    module.set_custom_type::<BigNumber>(BIG_NUMBER);
    add(module, "to_string", |number: &mut BigNumber| number.digits().to_owned());
    add(module, "to_debug", |number: &mut BigNumber| number.digits().to_owned());
    add(module, "==", |a: BigNumber, b: BigNumber| a == b);
    add(module, "!=", |a: BigNumber, b: BigNumber| a != b);
    for operator in OPERATORS {
        add(module, operator, |number: BigNumber, _: Dynamic| -> Refused { number.refuse() });
        add(module, operator, |_: Dynamic, number: BigNumber| -> Refused { number.refuse() });
    }
    // `+` also concatenates texts.
    add(module, "-", |number: BigNumber| -> Refused { number.refuse() });
    add(module, "+", |number: BigNumber, other: Dynamic| -> Refused {
        match other.as_immutable_string_ref() {
            Ok(text) => Ok(format!("{}{}", number.digits(), *text).into()),
            Err(_) => number.refuse(),
        }
    });
    add(module, "+", |other: Dynamic, number: BigNumber| -> Refused {
        match other.as_immutable_string_ref() {
            Ok(text) => Ok(format!("{}{}", *text, number.digits()).into()),
            Err(_) => number.refuse(),
        }
    });
}
