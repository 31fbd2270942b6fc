//! The functions that a script has beyond Rhai's own: control and logging.

use std::fmt::Write as _;

use rhai::{Dynamic, Engine};
use tracing::Level;

use super::context::Context;
use super::control::{self, Emitted};
use super::said;
use crate::config::Limits;
use crate::words::{TokenKey, grouped};

/// How many messages of one attempt at a job are written.
const MESSAGES_MAX: u64 = 100;

/// How many bytes of one message are written.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

pub(super) fn register(engine: &mut Engine, context: &Context, emitted: &Emitted, limits: &Limits) {
    control::register_endings(engine, context);
    control::register_outputs(engine, context, emitted, limits);
    register_log(engine, context);
}

/// An engine that has these functions and no others, to ask for their names: nothing calls them.
pub(super) fn alone(limits: &Limits) -> Engine {
    let context = Context::new(("", ""), Dynamic::UNIT, &[], &TokenKey::NONE);
    let mut engine = Engine::new_raw();
    register(&mut engine, &context, &Emitted::default(), limits);
    engine
}

fn register_log(engine: &mut Engine, context: &Context) {
    for (name, level) in [
        ("log_error", Level::ERROR),
        ("log_warn", Level::WARN),
        ("log_info", Level::INFO),
        ("log_debug", Level::DEBUG),
        ("log_trace", Level::TRACE),
    ] {
        let of = context.clone();
        engine.register_fn(name, move |message: Dynamic| say(&of, level, None, || said::shown(&message)));
    }
    let of = context.clone();
    engine.on_print(move |message| say(&of, Level::INFO, None, || message.to_owned()));
    let of = context.clone();
    engine.on_debug(move |message, _, position| {
        say(&of, Level::DEBUG, position.line(), || message.to_owned());
    });
}

/// Says how many messages of the attempt that has ended were left out.
pub(super) fn say_left_out(of: &Context) {
    let left_out = of.take_messages().saturating_sub(MESSAGES_MAX);
    if left_out > 0 {
        let messages = if left_out == 1 { "message" } else { "messages" };
        let note = format!("… {} more {messages} of this job left out", grouped(left_out));
        write(of, Level::WARN, None, &note);
    }
}

/// Writes one message of the job, as long as it has not written too many.
fn say(of: &Context, level: Level, line: Option<usize>, message: impl FnOnce() -> String) {
    if is_heard(level) && of.count_message() <= MESSAGES_MAX {
        write(of, level, line, &shortened(of, &message()));
    }
}

fn shortened(of: &Context, message: &str) -> String {
    // Twice as much as is shown, so that no secret stands at the cut in part.
    let (beginning, rest) = message.split_at(message.floor_char_boundary(2 * MESSAGE_BYTES_MAX));
    let mut shown = of.clean(beginning);
    let end = shown.floor_char_boundary(MESSAGE_BYTES_MAX);
    let left_out = shown.len() - end + rest.len();
    if left_out > 0 {
        shown.truncate(end);
        let left_out = grouped(left_out as u64);
        let _ = write!(shown, "… {left_out} more bytes left out"); // writing to a String cannot fail
    }
    shown
}

/// Calls `$macro` with the name of a level in the place of its value: `tracing` needs that while it compiles.
macro_rules! at_level {
    ($level:expr, $macro:ident) => {
        match $level {
            Level::ERROR => $macro!(ERROR),
            Level::WARN => $macro!(WARN),
            Level::INFO => $macro!(INFO),
            Level::DEBUG => $macro!(DEBUG),
            Level::TRACE => $macro!(TRACE),
        }
    };
}

fn is_heard(level: Level) -> bool {
    macro_rules! enabled {
        ($level:ident) => {
            tracing::enabled!(target: "tidegate::script", Level::$level)
        };
    }
    at_level!(level, enabled)
}

fn write(of: &Context, level: Level, line: Option<usize>, message: &str) {
    let (pipeline, step, index) = (of.pipeline(), of.step(), of.index());
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(target: "tidegate::script", Level::$level, pipeline, step, index, line, "{message}")
        };
    }
    at_level!(level, event);
}
