//! Native functions: replace Rhai's own by functions that respect the limits of an attempt.
//!
//! Rhai's own check no limit before they return. Each function that creates more than its arguments, runs
//! long, or recurses into a value has an equal replacement here that stops in time. A test lists all
//! functions of an engine, and requires a decision on each.

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

/// Registers a function that does not change its arguments, so that constants can be passed.
fn reads<A: 'static, const N: usize, const X: bool, R: Variant + Clone, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + 'static,
) {
    FuncRegistration::new(name).in_global_namespace().with_purity(true).set_into_module(module, function);
}

/// Registers a function that changes its first argument, so that constants cannot be passed.
fn changes<A: 'static, const N: usize, const X: bool, R: Variant + Clone, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + 'static,
) {
    FuncRegistration::new(name).in_global_namespace().with_purity(false).set_into_module(module, function);
}
