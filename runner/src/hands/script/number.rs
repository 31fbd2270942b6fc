//! Numbers that JSON can say and Rhai cannot hold.

use std::sync::Arc;

/// An integer past 64 bits, or a float past the largest one, by its digits. A script can pass it
/// on unchanged and ask for its text; computing with it is an error instead of a wrong result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BigNumber(Arc<str>);

impl BigNumber {
    pub(super) fn new(digits: &str) -> Self {
        Self(Arc::from(digits))
    }

    pub(super) fn digits(&self) -> &str {
        &self.0
    }
}

/// The name of the type in messages of Rhai, and in `type_of`.
pub(super) const BIG_NUMBER: &str = "big number";

pub(super) fn register(engine: &mut rhai::Engine) {
    engine
        .register_type_with_name::<BigNumber>(BIG_NUMBER)
        .register_fn("to_string", |number: &mut BigNumber| number.digits().to_owned())
        .register_fn("to_debug", |number: &mut BigNumber| number.digits().to_owned())
        .register_fn("==", |a: BigNumber, b: BigNumber| a == b)
        .register_fn("!=", |a: BigNumber, b: BigNumber| a != b);
}
