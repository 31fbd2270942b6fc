//! Functions of scripts: control and logging, in addition to Rhai's own.

use rhai::{Dynamic, Engine, Module};
use tracing::Level;

use super::context::ScriptContext;
use super::control;
use super::register::add;
use crate::script::attempt::current;
use crate::script::values::thrown;
use tidegate_model::{grouped, leave_out, log_target};

/// Maximum number of messages of one attempt at a job.
const MESSAGES_MAX: u64 = 100;

/// Maximum bytes of one message.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

pub(crate) fn register(module: &mut Module) {
    control::register_endings(module);
    control::register_outputs(module);
    register_log(module);
}

/// Logs the prints of `engine`'s scripts.
pub(crate) fn listen(engine: &mut Engine) {
    engine.on_print(|message| log(Level::INFO, None, || message.to_owned()));
    engine.on_debug(|message, _, position| {
        log(Level::DEBUG, position.line(), || message.to_owned());
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
        add(module, name, move |message: Dynamic| log(level, None, || thrown::shown(&message)));
    }
}

/// Logs the number of omitted messages of the attempt that has ended.
pub(crate) fn log_left_out(of: &ScriptContext) {
    let left_out = of.take_messages().saturating_sub(MESSAGES_MAX);
    if left_out > 0 {
        let messages = if left_out == 1 { "message" } else { "messages" };
        let note = format!("… {} more {messages} of this job left out", grouped(left_out));
        write(of, Level::WARN, None, &note);
    }
}

/// Logs one message of the job, unless it has reached the limit.
fn log(level: Level, line: Option<usize>, message: impl FnOnce() -> String) {
    let attempt = current();
    let of = attempt.context();
    if is_heard(level) && of.count_message() <= MESSAGES_MAX {
        write(of, level, line, &shortened(of, &message()));
    }
}

fn shortened(of: &ScriptContext, message: &str) -> String {
    // Twice the shown length, so that no secret is cut in two.
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

/// Calls `$macro` with the name of a level in place of its value, which `tracing` requires at compile time.
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

fn write(of: &ScriptContext, level: Level, line: Option<usize>, message: &str) {
    let (pipeline, step, index) = (of.pipeline(), of.step(), of.index());
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(target: log_target::SCRIPT, Level::$level, pipeline, step, index, line, "{message}")
        };
    }
    at_level!(level, event);
}
