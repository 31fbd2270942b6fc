//! The functions that a script has beyond Rhai's own: control and logging.

use rhai::{Dynamic, Engine};

use super::context::Context;
use super::control::{self, Emitted};
use crate::config::Limits;

pub(super) fn register(engine: &mut Engine, context: &Context, emitted: &Emitted, limits: &Limits) {
    control::register_endings(engine, context);
    control::register_outputs(engine, context, emitted, limits);
    register_log(engine, context);
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
        let line = position.line();
        tracing::debug!(target: "tidegate::script", pipeline, step, index, line, "{message}");
    });
}
