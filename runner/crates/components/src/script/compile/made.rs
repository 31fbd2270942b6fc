//! Hand-over of what the top of a script has made: the last statement of the top calls a function, which keeps
//! constants and imports until [`take`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rhai::{Dynamic, ImmutableString, Module, NativeCallContext};

use crate::script::api::register::add;

/// The function that the last statement of a top calls. Another call of it has no effect.
pub(crate) const KEEP: &str = "tidegate_keep";

/// What the top of a script has made.
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

/// What the top that ran last on this thread has handed over, once.
pub(crate) fn take() -> Option<TopResult> {
    MADE.take()
}
