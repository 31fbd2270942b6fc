//! Logging: writes tracing events to standard error, above the progress bar.
//!
//! One line is one event: text of jobs and external systems cannot end it. Messages of one cause are
//! rate-limited and counted (`sparing`).

pub(crate) mod sparing;

use std::fmt::{self, Debug, Write as _};
use std::io::{self, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

use super::console;
use crate::query::rfc3339;
use sparing::RateLimitedLog;
pub(crate) use sparing::write_rest;
use tidegate_config::{LogFormat, LogSettings};
use tidegate_model::plain;
use tidegate_model::plain::Plain;
use tidegate_model::{Clock as _, SystemClock};

/// Starts logging as `[log]` configures it. A second start has no effect.
pub(crate) fn start(settings: &LogSettings) {
    if settings.format == LogFormat::Json {
        console::speak_json();
    }
    let filter = EnvFilter::try_new(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let layer = tracing_subscriber::fmt::layer::<Registry>().with_timer(Times).log_internal_errors(false);
    let layer = match settings.format {
        LogFormat::Text => {
            let layer = layer.fmt_fields(Fields).with_writer(|| Line { json: false });
            layer.with_ansi(console::colours()).boxed()
        }
        LogFormat::Json => layer.json().flatten_event(true).with_writer(|| Line { json: true }).boxed(),
    };
    let _ = tracing_subscriber::registry().with(layer).with(filter).with(RateLimitedLog).try_init();
}

/// Times in the format of all commands, so that listed times can be found in the log.
struct Times;

impl FormatTime for Times {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&rfc3339(SystemClock.now()))
    }
}

/// The output of the log: one write per line.
struct Line {
    json: bool,
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if self.json {
            console::write(&plain::json(&text));
        } else {
            console::write(&text);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The message, and the fields as `name=value`, on one line.
struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut one_by_one = OneByOne { writer, begun: false, outcome: Ok(()) };
        fields.record(&mut one_by_one);
        one_by_one.outcome
    }
}

struct OneByOne<'w> {
    writer: Writer<'w>,
    begun: bool,
    outcome: fmt::Result,
}

impl OneByOne<'_> {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) -> fmt::Result {
        if std::mem::replace(&mut self.begun, true) {
            self.writer.write_char(' ')?;
        }
        match field.name() {
            "message" => {}
            name if self.writer.has_ansi_escapes() => {
                write!(self.writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?;
            }
            name => write!(self.writer, "{name}=")?,
        }
        Plain(&mut self.writer).write_fmt(value)
    }
}

impl Visit for OneByOne<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.outcome.is_ok() {
            self.outcome = self.put(field, format_args!("{value:?}"));
        }
    }
}
