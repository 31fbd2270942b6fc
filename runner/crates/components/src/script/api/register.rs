//! Registration: adds functions to a module.

use std::any::TypeId;
use std::rc::Rc;

use rhai::{
    Dynamic, EvalAltResult, FuncRegistration, Module, NativeCallContext, RhaiFunc, RhaiNativeFunc, Variant,
};

/// Adds a function.
pub(crate) fn add<A: 'static, const N: usize, const X: bool, R: Variant + Clone, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + 'static,
) {
    FuncRegistration::new(name).in_global_namespace().set_into_module(module, function);
}

/// Adds the getter of a property.
pub(crate) fn add_getter<A: 'static, const N: usize, const X: bool, R: Variant + Clone, const F: bool>(
    module: &mut Module,
    property: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + 'static,
) {
    FuncRegistration::new_getter(property).set_into_module(module, function);
}

/// Adds a function with access to its raw arguments.
pub(crate) fn add_raw<T: Variant + Clone>(
    module: &mut Module,
    name: &str,
    kinds: &[TypeId],
    function: impl Fn(NativeCallContext<'_>, &mut [&mut Dynamic]) -> Result<T, Box<EvalAltResult>> + 'static,
) {
    let func = move |call: Option<NativeCallContext<'_>>, arguments: &mut [&mut Dynamic]| match call {
        Some(call) => function(call, arguments).map(Dynamic::from),
        None => Ok(Dynamic::UNIT),
    };
    let function =
        RhaiFunc::Method { func: Rc::new(func), has_context: true, is_pure: true, is_volatile: true };
    FuncRegistration::new(name).in_global_namespace().set_into_module_raw(module, kinds, function);
}
