//! `RateLimitedLog`: limits the rate of log messages of one cause, and reports the number left out.
//!
//! A cause is a place in Tidegate's code, together with the step, source or sink of the message. The count of
//! omitted messages and the last of them are logged when the window ends.

use std::collections::HashMap;
use std::fmt::{self, Debug, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::output::console;
use crate::output::console::Gravity;
use tidegate_model::format_duration;
use tidegate_model::log_target;
use tidegate_model::sync::{Mutex, MutexGuard};

/// Messages of one cause per window …
const MESSAGES_MAX: u64 = 100;
/// … messages of scripts and plugins per window …
const MESSAGES_OF_AUTHORS_MAX: u64 = 1_000;
/// … and the length of the window.
const WINDOW: Duration = Duration::from_secs(10);

static CAUSES: LazyLock<Mutex<Causes<Cause>>> = LazyLock::new(|| Mutex::new(Causes(HashMap::new())));

/// Passes messages within the limit. Messages at `debug` and below always pass.
pub(crate) struct RateLimitedLog;

/// The place in the code, and a hash of the message's subject.
type Cause = (Identifier, u64);

impl<S: Subscriber> Layer<S> for RateLimitedLog {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let gravity = match *metadata.level() {
            Level::ERROR => Gravity::Error,
            Level::WARN => Gravity::Warning,
            Level::INFO => Gravity::Info,
            _ => return true,
        };
        let target = metadata.target();
        let most = match target {
            log_target::SCRIPT | log_target::PLUGIN => MESSAGES_OF_AUTHORS_MAX,
            _ => MESSAGES_MAX,
        };
        let mut about = About(DefaultHasher::new());
        event.record(&mut about);
        let cause = (metadata.callsite(), about.0.finish());
        let last = || {
            let mut text = Text(String::new());
            event.record(&mut text);
            Last { gravity, target, text: text.0 }
        };
        let (passes, left_out) = causes().take(cause, most, Instant::now(), last);
        left_out.iter().for_each(LeftOut::write);
        passes
    }
}

/// Logs the omitted messages whose window is over, or `all` of them.
pub(crate) fn write_rest(all: bool) {
    let rest = causes().rest(Instant::now(), all);
    rest.iter().for_each(LeftOut::write);
}

fn causes() -> MutexGuard<'static, Causes<Cause>> {
    CAUSES.lock()
}

/// The windows of all causes with recent messages.
struct Causes<C>(HashMap<C, Window>);

struct Window {
    since: Instant,
    messages: u64,
    left_out: u64,
    last: Option<Last>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Last {
    gravity: Gravity,
    target: &'static str,
    text: String,
}

#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    messages: u64,
    last: Last,
}

impl LeftOut {
    fn write(&self) {
        let Self { messages, last: Last { gravity, target, text } } = self;
        let messages = if *messages == 1 { "1 message".to_owned() } else { format!("{messages} messages") };
        let window = format_duration(WINDOW);
        let message = format!("{messages} like this one left out within {window}, the last: {text}");
        console::log(*gravity, target, &message);
    }
}

impl<C: std::hash::Hash + Eq> Causes<C> {
    /// Whether one more message passes, and the messages omitted in a window that is over.
    fn take(
        &mut self,
        cause: C,
        most: u64,
        now: Instant,
        last: impl FnOnce() -> Last,
    ) -> (bool, Option<LeftOut>) {
        let new = || Window { since: now, messages: 0, left_out: 0, last: None };
        let window = self.0.entry(cause).or_insert_with(new);
        let before = if window.is_over(now) { std::mem::replace(window, new()).left_out() } else { None };
        window.messages += 1;
        if window.messages <= most {
            return (true, before);
        }
        window.left_out += 1;
        window.last = Some(last());
        (false, before)
    }

    fn rest(&mut self, now: Instant, all: bool) -> Vec<LeftOut> {
        let over = self.0.extract_if(|_, window| all || window.is_over(now));
        over.filter_map(|(_, window)| window.left_out()).collect()
    }
}

impl Window {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }

    fn left_out(self) -> Option<LeftOut> {
        Some(LeftOut { messages: self.left_out, last: self.last? })
    }
}

/// Hashes the fields that name the subject of a message.
struct About(DefaultHasher);

impl Visit for About {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if matches!(field.name(), "pipeline" | "step" | "source" | "sink" | "gate" | "plugin") {
            // Hashing cannot fail.
            let _ = write!(Hashed(&mut self.0), "{}={value:?} ", field.name());
        }
    }
}

struct Hashed<'h>(&'h mut DefaultHasher);

impl fmt::Write for Hashed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The message and its fields.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let before = if self.0.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{before}{value:?}"),
            name => write!(self.0, "{before}{name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(text: &str) -> Last {
        Last { gravity: Gravity::Warning, target: "t", text: text.into() }
    }

    #[test]
    fn what_is_left_out_is_counted_and_told_once_its_time_is_over() {
        let (mut causes, start) = (Causes(HashMap::new()), Instant::now());
        let mut passed = Vec::new();
        for (cause, text) in [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"), ("a", "5")] {
            let (passes, before) = causes.take(cause, 2, start, || last(text));
            assert_eq!(before, None);
            passed.push(passes);
        }
        assert_eq!(passed, [true, true, true, false, false]);
        assert_eq!(causes.rest(start + WINDOW / 2, false), []);
        let left_out = LeftOut { messages: 2, last: last("5") };
        assert_eq!(causes.take("a", 2, start + WINDOW, || last("6")), (true, Some(left_out)));
        assert_eq!(causes.rest(start + 2 * WINDOW, false), []);
        assert!(causes.0.is_empty(), "windows that are over are removed");
    }

    #[test]
    fn the_end_of_a_run_tells_all_that_was_left_out() {
        let (mut causes, start) = (Causes(HashMap::new()), Instant::now());
        for text in ["1", "2", "3"] {
            causes.take("a", 1, start, || last(text));
        }
        assert_eq!(causes.rest(start, true), [LeftOut { messages: 2, last: last("3") }]);
        assert_eq!(causes.rest(start, true), []);
    }
}
