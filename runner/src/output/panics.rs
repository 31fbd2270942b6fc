//! Panic hook: writes a panic to standard error, as text or as one line of a JSON log.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::thread;

use serde_json::{Map, Value};

use super::console::{self, Gravity};
use tidegate_model::log_target;
use tidegate_model::plain;

/// Installs the hook.
pub(crate) fn watch() {
    std::panic::set_hook(Box::new(report));
}

/// A panic, as texts.
struct PanicReport {
    message: String,
    thread: String,
    place: String,
    trace: Option<String>,
}

fn report(panic: &PanicHookInfo<'_>) {
    if tidegate_store::answers_panics() {
        return;
    }
    let backtrace = Backtrace::capture();
    let panic_report = PanicReport {
        message: panic.payload_as_str().unwrap_or("no message").to_owned(),
        thread: thread::current().name().unwrap_or("without a name").to_owned(),
        place: panic.location().map(ToString::to_string).unwrap_or_default(),
        trace: (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string()),
    };
    let text = if console::speaks_json() { panic_report.json() } else { panic_report.text() };
    console::write_of_panic(&text);
}

impl PanicReport {
    fn text(&self) -> String {
        let Self { message, thread, place, trace } = self;
        let trace = trace.as_deref().unwrap_or_default();
        let text = format!("\nthread `{thread}` panicked at {place}:\n{message}\n{trace}");
        plain::lines(&text)
    }

    fn json(self) -> String {
        let Self { message, thread, place, trace } = self;
        let fields = [("thread", Some(thread)), ("place", Some(place)), ("backtrace", trace)];
        let fields: Map<String, Value> =
            fields.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))).collect();
        console::json_line(Gravity::Error, log_target::PANIC, &format!("panicked: {message}"), &fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_plain_text_or_one_line_of_json() {
        let panic_report = PanicReport {
            message: "no \u{1b}[2J\nway".into(),
            thread: "worker-0".into(),
            place: "a.rs:1:2".into(),
            trace: Some("0: main\n1: start\n".into()),
        };
        let text = "\nthread `worker-0` panicked at a.rs:1:2:\nno \\u{1b}[2J\nway\n0: main\n1: start\n";
        assert_eq!(panic_report.text(), text);
        let line = panic_report.json();
        assert_eq!(line.lines().count(), 1);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["message"], "panicked: no \u{1b}[2J\nway");
        assert_eq!(value["backtrace"], "0: main\n1: start\n");
        assert_eq!((&value["level"], &value["place"]), (&"ERROR".into(), &"a.rs:1:2".into()));
    }
}
