//! Logs through tracing to standard error, without tearing a progress bar apart.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use indicatif::ProgressBar;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::look::rfc3339;
use crate::config::{LogFormat, LogSettings};
use crate::words::{Clock as _, SystemClock};

static BAR: OnceLock<Mutex<Option<ProgressBar>>> = OnceLock::new();

/// Starts logging as `[log]` says. Where logging was started before, it stays as it was.
pub(super) fn start(settings: &LogSettings) {
    let filter = EnvFilter::try_new(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| AroundBar)
        .with_timer(Times)
        .with_ansi(super::exit::colours());
    let _ = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Times as all commands tell them, so that what they list can be found in the log.
struct Times;

impl FormatTime for Times {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        writer.write_str(&rfc3339(SystemClock.now()))
    }
}

/// From now on log lines are written above `bar`; `None`: there is none any more.
pub(super) fn around(bar: Option<ProgressBar>) {
    *slot() = bar;
}

fn slot() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    BAR.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

struct AroundBar;

impl Write for AroundBar {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().write_all(text);
        match &*slot() {
            Some(bar) => bar.suspend(write)?,
            None => write()?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether progress can be shown.
pub(super) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}
