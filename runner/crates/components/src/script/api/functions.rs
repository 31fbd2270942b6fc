//! The functions that a script has beyond Rhai's own: control and logging.

use rhai::{Dynamic, Engine, Module};
use tracing::Level;

use super::context::Context;
use super::control;
use super::register::add;
use crate::script::attempt::current;
use crate::script::values::thrown;
use tidegate_model::{grouped, leave_out, log_target};

/// How many messages of one attempt at a job are written.
const MESSAGES_MAX: u64 = 100;

/// How many bytes of one message are written.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

pub(crate) fn register(module: &mut Module) {
    control::register_endings(module);
    control::register_outputs(module);
    register_log(module);
}

/// Writes what scripts of `engine` print.
pub(crate) fn listen(engine: &mut Engine) {
    engine.on_print(|message| say(Level::INFO, None, || message.to_owned()));
    engine.on_debug(|message, _, position| {
        say(Level::DEBUG, position.line(), || message.to_owned());
    });
}

fn register_log(module: &mut Module) {
    for (name, level) in [
        ("log_error", Level::ERROR),
        ("log_warn", Level::WARN),
        ("log_info", Level::INFO),
        ("log_debug", Level::DEBUG),
        ("log_trace", Level::TRACE),
    ] {
        add(module, name, move |message: Dynamic| say(level, None, || thrown::shown(&message)));
    }
}

/// Says how many messages of the attempt that has ended were left out.
pub(crate) fn say_left_out(of: &Context) {
    let left_out = of.take_messages().saturating_sub(MESSAGES_MAX);
    if left_out > 0 {
        let messages = if left_out == 1 { "message" } else { "messages" };
        let note = format!("… {} more {messages} of this job left out", grouped(left_out));
        write(of, Level::WARN, None, &note);
    }
}

/// Writes one message of the job, as long as it has not written too many.
fn say(level: Level, line: Option<usize>, message: impl FnOnce() -> String) {
    let attempt = current();
    let of = attempt.context();
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
        leave_out(&mut shown, left_out);
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
            tracing::enabled!(target: log_target::SCRIPT, Level::$level)
        };
    }
    at_level!(level, enabled)
}

fn write(of: &Context, level: Level, line: Option<usize>, message: &str) {
    let (pipeline, step, index) = (of.pipeline(), of.step(), of.index());
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(target: log_target::SCRIPT, Level::$level, pipeline, step, index, line, "{message}")
        };
    }
    at_level!(level, event);
}
