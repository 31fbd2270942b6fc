//! `TopResult`: the constants and imports of a script's top. The last statement of the top calls a function that
//! keeps them until [`take`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rhai::{Dynamic, ImmutableString, Module, NativeCallContext};

use crate::script::api::register::add;

/// The function that the last statement of a top calls. Another call of it has no effect.
pub(crate) const KEEP: &str = "tidegate_keep";

/// The constants and imports of a script's top.
pub(crate) struct TopResult {
    pub(crate) constants: Option<Rc<RefCell<BTreeMap<ImmutableString, Dynamic>>>>,
    pub(crate) imports: Vec<(ImmutableString, Rc<Module>)>,
}

thread_local! {
    static MADE: RefCell<Option<TopResult>> = const { RefCell::new(None) };
}

pub(crate) fn register(module: &mut Module) {
    add(module, KEEP, |call: NativeCallContext<'_>| {
        let global = call.global_runtime_state();
        let imports = global.scan_imports_raw().map(|(name, module)| (name.clone(), Rc::clone(module)));
        MADE.set(Some(TopResult { constants: global.constants.clone(), imports: imports.collect() }));
    });
}

/// Returns those of the top that ran last on this thread, once.
pub(crate) fn take() -> Option<TopResult> {
    MADE.take()
}
