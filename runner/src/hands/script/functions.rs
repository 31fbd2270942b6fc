//! The functions that a script has beyond Rhai's own: control and logging.

use std::cell::RefCell;
use std::rc::Rc;

use rhai::{Dynamic, Engine, EvalAltResult, ImmutableString, NativeCallContext};

use super::context::Context;

/// Ends a script from within, past any `try` of the script.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Rejected(ImmutableString),
    TimedOut,
}

/// What `emit` has collected for the job that runs now.
pub(super) type Emitted = Rc<RefCell<Vec<(ImmutableString, Dynamic)>>>;

pub(super) fn register(engine: &mut Engine, context: &Context, emitted: &Emitted) {
    register_control(engine, emitted);
    register_log(engine, context);
}

fn register_control(engine: &mut Engine, emitted: &Emitted) {
    engine.register_fn(
        "reject",
        |call: NativeCallContext<'_>, why: ImmutableString| -> Result<Dynamic, Box<EvalAltResult>> {
            let ended = Dynamic::from(Ended::Rejected(why));
            Err(EvalAltResult::ErrorTerminated(ended, call.call_position()).into())
        },
    );
    let emitted = Rc::clone(emitted);
    engine.register_fn("emit", move |binding: ImmutableString, job: Dynamic| {
        emitted.borrow_mut().push((binding, job));
    });
}

fn register_log(engine: &mut Engine, context: &Context) {
    macro_rules! log {
        ($name:literal, $level:ident) => {
            let of = context.clone();
            engine.register_fn($name, move |message: Dynamic| {
                tracing::$level!(
                    target: "tidegate::script",
                    pipeline = of.pipeline(),
                    step = of.step(),
                    index = of.index(),
                    "{message}"
                );
            });
        };
    }
    log!("log_error", error);
    log!("log_warn", warn);
    log!("log_info", info);
    log!("log_debug", debug);
    log!("log_trace", trace);
    let of = context.clone();
    engine.on_print(move |message| {
        let (pipeline, step, index) = (of.pipeline(), of.step(), of.index());
        tracing::info!(target: "tidegate::script", pipeline, step, index, "{message}");
    });
    let of = context.clone();
    engine.on_debug(move |message, _, position| {
        let (pipeline, step, index) = (of.pipeline(), of.step(), of.index());
        tracing::debug!(target: "tidegate::script", pipeline, step, index, %position, "{message}");
    });
}
