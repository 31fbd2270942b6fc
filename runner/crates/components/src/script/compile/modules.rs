//! Modules: the functions of scripts, which all engines of a thread share.
//!
//! Thousands of steps may have a script each, and functions of its own took each of them more than 60 KB. So no
//! function holds anything of a step: it finds what it needs in the attempt that runs now.

use std::rc::Rc;

use rhai::packages::{Package, StandardPackage};
use rhai::{Engine, EvalAltResult, Module};

use super::made;
use crate::script::api::register::add;
use crate::script::api::{context, functions, natives};
use crate::script::values;
use crate::script::values::{frozen, number};

thread_local! {
    /// Rhai's own functions.
    static STANDARD: StandardPackage = StandardPackage::new();
    /// What every expression and script has in place of them, or beside them.
    static OWN: Rc<Module> = own().into();
    /// How a script decides upon its job, and logs.
    static CONTROL: Rc<Module> = control().into();
}

/// Gives `engine` what every expression and script has.
pub(crate) fn register(engine: &mut Engine) {
    STANDARD.with(|standard| engine.register_global_module(standard.as_shared_module()));
    OWN.with(|own| engine.register_global_module(Rc::clone(own)));
    frozen::register(engine);
}

/// Lets scripts of `engine` decide upon their jobs, and log, as only those of a step, a gate and a monitor can.
pub(crate) fn register_control(engine: &mut Engine) {
    CONTROL.with(|control| engine.register_global_module(Rc::clone(control)));
    functions::listen(engine);
}

/// An engine that has these functions and no others, to ask for their names: nothing calls them.
pub(crate) fn control_alone() -> Engine {
    let mut engine = Engine::new_raw();
    register_control(&mut engine);
    engine
}

fn own() -> Module {
    let mut module = Module::new();
    natives::register(&mut module);
    number::register(&mut module);
    values::register(&mut module);
    context::register(&mut module);
    made::register(&mut module);
    without_sleep(&mut module);
    module
}

fn control() -> Module {
    let mut module = Module::new();
    functions::register(&mut module);
    module
}

/// `sleep` would hold up a worker past any timeout. The standard package brings it, and what is registered later
/// goes before it.
fn without_sleep(module: &mut Module) {
    fn refuse() -> Result<(), Box<EvalAltResult>> {
        Err("a script cannot wait: it would hold up other jobs".into())
    }
    add(module, "sleep", |_: i64| refuse());
    add(module, "sleep", |_: f64| refuse());
}
