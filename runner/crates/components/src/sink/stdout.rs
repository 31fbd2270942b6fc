//! `StdoutWriter`: writes to standard output.

use std::fmt;
use std::io::{self, Write};

use rustix::fs::{fstat, stat};
use tidegate_plugin::Payloads;

use super::error::SinkError;
use super::format::append_lines;
use tidegate_config::SinkFormat;
use tidegate_model::{Address, log_target};

/// Bytes that are buffered until the commit; beyond it, lines are written early.
const HELD_BYTES: usize = 1 << 20;

/// Buffers lines until they are synced, so that a failed commit repeats nothing.
pub struct StdoutWriter {
    output: Box<dyn Write + Send>,
    format: SinkFormat,
    held: Vec<u8>,
}

impl StdoutWriter {
    #[must_use]
    pub fn new(output: Box<dyn Write + Send>, format: SinkFormat) -> Self {
        Self { output, format, held: Vec::new() }
    }

    /// The writer of this process for the sink.
    #[expect(clippy::disallowed_methods, reason = "its errors are those of the sink")]
    pub(crate) fn of_process(sink: &Address, format: SinkFormat) -> Self {
        // A process that is started with a closed standard output has this file in its place.
        if is_discarded() {
            tracing::warn!(target: log_target::SINK, %sink, "standard output is `/dev/null` or was closed: the jobs of this sink are lost");
        }
        Self::new(Box::new(io::stdout()), format)
    }

    pub(crate) fn write(&mut self, payloads: &Payloads) -> Result<(), SinkError> {
        append_lines(self.format, payloads, &mut self.held);
        if self.held.len() > HELD_BYTES { self.pass_on() } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        self.pass_on()?;
        self.output.flush().map_err(explain)
    }

    /// Drops the buffered lines; written ones cannot be undone.
    pub(crate) fn roll_back(&mut self) {
        self.held.clear();
    }

    fn pass_on(&mut self) -> Result<(), SinkError> {
        self.output.write_all(&self.held).map_err(explain)?;
        self.held.clear();
        self.held.shrink_to(HELD_BYTES);
        Ok(())
    }
}

/// Whether what is written to standard output is lost.
fn is_discarded() -> bool {
    let device = |stat: rustix::fs::Stat| stat.st_rdev;
    let (output, null) = (fstat(rustix::stdio::stdout()).map(device), stat("/dev/null").map(device));
    matches!((output, null), (Ok(output), Ok(null)) if output == null && null != 0)
}

fn explain(source: io::Error) -> SinkError {
    match source.kind() {
        io::ErrorKind::BrokenPipe => SinkError::Closed,
        _ => SinkError::Stdout { source },
    }
}

impl fmt::Debug for StdoutWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdoutWriter").field("held", &self.held.len()).finish_non_exhaustive()
    }
}
