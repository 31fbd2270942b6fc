//! The functions that a script has beyond Rhai's own: control and logging.

use std::cell::RefCell;
use std::rc::Rc;

use rhai::{Dynamic, Engine, EvalAltResult, ImmutableString, NativeCallContext, Position};

use super::context::Context;
use super::json;
use crate::config::Limits;

/// Ends a script from within, past any `try` of the script.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Rejected {
        why: String,
        /// What the author says about the circumstances, as JSON.
        context: Option<Box<str>>,
        /// Where `reject` was called; Rhai forgets it on the way out.
        at: Position,
        file: Option<String>,
    },
    TimedOut,
}

/// What `emit` has collected for the job that runs now.
pub(super) type Emitted = Rc<RefCell<Vec<(ImmutableString, Dynamic)>>>;

pub(super) fn register(engine: &mut Engine, context: &Context, emitted: &Emitted, limits: &Limits) {
    register_control(engine, emitted, limits);
    register_log(engine, context);
}

fn register_control(engine: &mut Engine, emitted: &Emitted, limits: &Limits) {
    engine
        .register_fn("reject", |call: NativeCallContext<'_>, why: Dynamic, context: Dynamic| {
            reject(&call, text(&why), as_json(&context))
        })
        .register_fn("reject", |call: NativeCallContext<'_>, why: Dynamic| {
            reject(&call, text(&why), context(&why))
        })
        .register_fn("reject", |call: NativeCallContext<'_>| {
            reject(&call, "without a reason".to_owned(), None)
        });
    let emitted = Rc::clone(emitted);
    // Each takes some memory before it is written, however small it is.
    let most = usize::try_from(limits.memory / 64).unwrap_or(usize::MAX).max(1);
    engine.register_fn(
        "emit",
        move |call: NativeCallContext<'_>,
              binding: ImmutableString,
              job: Dynamic|
              -> Result<(), Box<EvalAltResult>> {
            let mut emitted = emitted.borrow_mut();
            if emitted.len() >= most {
                let what = "Number of emitted jobs".to_owned();
                return Err(EvalAltResult::ErrorDataTooLarge(what, call.call_position()).into());
            }
            emitted.push((binding, job));
            Ok(())
        },
    );
}

fn reject(
    call: &NativeCallContext<'_>,
    why: String,
    context: Option<Box<str>>,
) -> Result<Dynamic, Box<EvalAltResult>> {
    let (at, file) = (call.call_position(), call.call_source().map(str::to_owned));
    let ended = Dynamic::from(Ended::Rejected { why, context, at, file });
    Err(EvalAltResult::ErrorTerminated(ended, at).into())
}

/// What was thrown or given as a reason, as a message: a text as it is, of a map its `message`,
/// anything else as JSON.
pub(super) fn text(value: &Dynamic) -> String {
    if let Ok(text) = value.as_immutable_string_ref() {
        return text.to_string();
    }
    if let Ok(map) = value.as_map_ref()
        && let Some(Ok(message)) = map.get("message").map(Dynamic::as_immutable_string_ref)
    {
        return message.to_string();
    }
    if value.is_map() || value.is_array() {
        let mut text = Vec::new();
        if json::write(value, &mut text).is_ok() {
            return String::from_utf8_lossy(&text).into_owned();
        }
    }
    value.to_string()
}

/// What was thrown or given as a reason says beside its `message`, as JSON.
pub(super) fn context(value: &Dynamic) -> Option<Box<str>> {
    let map = value.as_map_ref().ok()?;
    let mut rest = map.get("message")?.is_string().then(|| map.clone())?;
    rest.remove("message");
    if rest.is_empty() { None } else { as_json(&Dynamic::from_map(rest)) }
}

fn as_json(value: &Dynamic) -> Option<Box<str>> {
    let mut text = Vec::new();
    // A context that is no JSON is better left out than in the way of the failure itself.
    json::write(value, &mut text).ok()?;
    String::from_utf8(text).ok().map(String::into_boxed_str)
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
