//! Functions of Rhai that are replaced by ones that keep to the limits of an attempt.
//!
//! Rhai's own look at no limit before they return. So each that can make more than it is given, that works long
//! by itself, or that goes as deep into a value as it nests, has its counterpart here, which does the same and
//! stops in time. A test goes through all functions that an engine has, and asks that each was decided upon.

pub(crate) mod arrays;
pub(crate) mod blobs;
pub(crate) mod characters;
pub(crate) mod equality;
pub(crate) mod print;
pub(crate) mod sorting;
pub(crate) mod texts;

use rhai::{EvalAltResult, FuncRegistration, Module, RhaiNativeFunc, Variant};

type Answer<T> = Result<T, Box<EvalAltResult>>;

pub(crate) fn register(module: &mut Module) {
    texts::register(module);
    characters::register(module);
    arrays::register(module);
    sorting::register(module);
    equality::register(module);
    blobs::register(module);
    print::register(module);
}

/// Registers a function that leaves what it is given as it is, so that it is good for constants.
fn reads<A: 'static, const N: usize, const X: bool, R: Variant + Clone, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + 'static,
) {
    FuncRegistration::new(name).in_global_namespace().with_purity(true).set_into_module(module, function);
}

/// Registers a function that changes the first of what it is given, so that constants are out.
fn changes<A: 'static, const N: usize, const X: bool, R: Variant + Clone, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + 'static,
) {
    FuncRegistration::new(name).in_global_namespace().with_purity(false).set_into_module(module, function);
}
