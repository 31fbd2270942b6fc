//! Modules: the functions of scripts, which all engines of a thread share.
//!
//! Thousands of steps may have a script each, and functions of its own would cost each of them more than 60
//! KB. So no function holds state of a step: it uses the running attempt.

use std::rc::Rc;

use rhai::packages::{Package, StandardPackage};
use rhai::{Engine, EvalAltResult, Module};

use super::made;
use crate::script::api::register::add;
use crate::script::api::{context, functions, lookup, natives};
use crate::script::values;
use crate::script::values::{frozen, number, order};

thread_local! {
    /// Rhai's own functions.
    static STANDARD: StandardPackage = StandardPackage::new();
    /// The functions that replace or extend them for every expression and script.
    static OWN: Rc<Module> = own().into();
    /// Control and logging functions.
    static CONTROL: Rc<Module> = control().into();
}

/// Registers the functions of every expression and script.
pub(crate) fn register(engine: &mut Engine) {
    STANDARD.with(|standard| engine.register_global_module(standard.as_shared_module()));
    OWN.with(|own| engine.register_global_module(Rc::clone(own)));
    frozen::register(engine);
    order::take_over(engine);
}

/// Registers control and logging functions, which only scripts of a step, a gate or a monitor have.
pub(crate) fn register_control(engine: &mut Engine) {
    CONTROL.with(|control| engine.register_global_module(Rc::clone(control)));
    functions::listen(engine);
}

/// An engine with these functions only, for listing their names: nothing calls them.
pub(crate) fn control_alone() -> Engine {
    let mut engine = Engine::new_raw();
    register_control(&mut engine);
    engine
}

fn own() -> Module {
    let mut module = Module::new();
    natives::register(&mut module);
    number::register(&mut module);
    order::register(&mut module);
    values::register(&mut module);
    context::register(&mut module);
    lookup::register(&mut module);
    made::register(&mut module);
    without_sleep(&mut module);
    module
}

fn control() -> Module {
    let mut module = Module::new();
    functions::register(&mut module);
    module
}

/// `sleep` would block a worker past any timeout. The standard package has it, and later registrations take
/// precedence.
fn without_sleep(module: &mut Module) {
    fn refuse() -> Result<(), Box<EvalAltResult>> {
        Err("a script cannot wait: it would block other jobs".into())
    }
    add(module, "sleep", |_: i64| refuse());
    add(module, "sleep", |_: f64| refuse());
}
