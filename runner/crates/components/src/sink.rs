//! Where jobs leave: files and standard output.
//!
//! The order of a commit, for every sink alike:
//! 1. [`SinkWriter::needs_opening`]: if it answers a position, that is committed first, and then
//!    [`SinkWriter::committed`].
//! 2. [`SinkWriter::write`], as often as needed.
//! 3. [`SinkWriter::sync`]: the position it answers is committed with the deliveries, and then
//!    [`SinkWriter::committed`].
//!
//! If a write, a sync or the commit fails, [`SinkWriter::roll_back`] makes the sink as it was at the last
//! commit, so that the same payloads can be written again. A clean stop commits
//! [`SinkWriter::closing`], if it answers a position.

pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod file_tail;
pub(crate) mod format;
pub(crate) mod stdout;

use tidegate_plugin::Payloads;

pub use error::{Mismatch, SinkError};
pub use file::FileSinkWriter;
pub use stdout::StdoutWriter;

use tidegate_config::SinkKind;
use tidegate_model::{Address, SinkPosition};

/// Where jobs leave.
#[derive(Debug)]
pub enum SinkWriter {
    /// Exactly once, by a position that is part of the commit.
    File(FileSinkWriter),
    /// At least once: what a terminal or a pipe has taken cannot be taken back.
    Stdout(StdoutWriter),
    Null,
}

impl SinkWriter {
    /// `committed`: what the store holds for this sink, `None` on first use. Bytes past it that a
    /// runner left when it died are cut off here. A file that is not there is made when the first
    /// payload comes, so that a run with nothing to do changes nothing.
    ///
    /// # Errors
    /// The file is not as it was left (unless `on_mismatch = "append"`), is in use, or cannot be
    /// opened, but for too many open files: it is opened with the first write then.
    pub fn open(
        address: &Address,
        kind: &SinkKind,
        committed: Option<&SinkPosition>,
    ) -> Result<Self, SinkError> {
        Ok(match kind {
            SinkKind::File(spec) => Self::File(FileSinkWriter::open(address, spec, committed)?),
            SinkKind::Stdout(format) => Self::Stdout(StdoutWriter::of_process(*format)),
            // What goes there has been sent when a delivery is written.
            SinkKind::Http(_) | SinkKind::Null => Self::Null,
        })
    }

    /// To be asked before every write: a position that must be committed first, or `None`.
    ///
    /// # Errors
    /// The file was changed or taken away (unless `on_mismatch = "append"`), or cannot be made; because of too many
    /// open files for now alone ([`SinkError::is_short_of_files`]).
    pub fn needs_opening(&mut self) -> Result<Option<SinkPosition>, SinkError> {
        match self {
            Self::File(file) => file.needs_opening(),
            Self::Stdout(_) | Self::Null => Ok(None),
        }
    }

    /// Writes each payload as a line; one write for all.
    ///
    /// # Errors
    /// There is no room ([`SinkError::is_full`]), or the write failed otherwise.
    pub fn write(&mut self, payloads: &Payloads) -> Result<(), SinkError> {
        match self {
            Self::File(file) => file.write(payloads),
            Self::Stdout(stdout) => stdout.write(payloads),
            Self::Null => Ok(()),
        }
    }

    /// Makes durable what was written. The position belongs into the same commit as the deliveries
    /// that it stands for; `None` where there is nothing to commit.
    ///
    /// # Errors
    /// The outside did not take it.
    pub fn sync(&mut self) -> Result<Option<SinkPosition>, SinkError> {
        match self {
            Self::File(file) => file.sync(),
            Self::Stdout(stdout) => stdout.flush().map(|()| None),
            Self::Null => Ok(None),
        }
    }

    /// The store holds `position`, durably.
    pub fn committed(&mut self, position: &SinkPosition) {
        match self {
            Self::File(file) => file.committed(position),
            Self::Stdout(_) | Self::Null => {}
        }
    }

    /// Undoes what was written since the last commit, as far as the outside allows.
    ///
    /// # Errors
    /// The file cannot be cut back.
    pub fn roll_back(&mut self) -> Result<(), SinkError> {
        match self {
            Self::File(file) => file.roll_back(),
            Self::Stdout(stdout) => {
                stdout.roll_back();
                Ok(())
            }
            Self::Null => Ok(()),
        }
    }

    /// The position to commit at a clean stop, when everything written is committed; `None` where
    /// nothing changes.
    #[must_use]
    pub fn closing(&self) -> Option<SinkPosition> {
        match self {
            Self::File(file) => file.closing(),
            Self::Stdout(_) | Self::Null => None,
        }
    }
}

#[cfg(test)]
mod tests;
