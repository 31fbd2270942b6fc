//! `SinkWriter`: the destination of jobs, a file or standard output.
//!
//! Every sink is committed in this order:
//! 1. [`SinkWriter::needs_opening`]: if it answers a position, that is committed first, and then
//!    [`SinkWriter::committed`].
//! 2. [`SinkWriter::write`], as often as needed.
//! 3. [`SinkWriter::sync`]: the position it answers is committed with the deliveries, and then
//!    [`SinkWriter::committed`].
//!
//! If a write, a sync or the commit fails, [`SinkWriter::roll_back`] restores the sink of the last commit. The same
//! payloads can then be written again. A clean stop commits
//! [`SinkWriter::closing`], if it answers a position.

pub(crate) mod cut_back;
pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod file_tail;
pub(crate) mod format;
pub(crate) mod stdout;

use tidegate_plugin::Payloads;

pub use cut_back::{cut_back, holds};
pub use error::{Mismatch, SinkError};
pub use file::{FileSinkWriter, stored_path};
pub use stdout::StdoutWriter;

use tidegate_config::SinkKind;
use tidegate_model::{Address, SinkPosition};

/// A destination of jobs.
#[derive(Debug)]
pub enum SinkWriter {
    /// Exactly once, by a position that is part of the commit.
    File(Box<FileSinkWriter>),
    /// At least once: output on a terminal or a pipe cannot be undone.
    Stdout(StdoutWriter),
    Null,
}

impl SinkWriter {
    /// `committed`: the position in the store, `None` on first use. Bytes after it that a dead runner left
    /// are cut off here. A missing file is created with the first payload, so that a run without jobs changes
    /// nothing.
    ///
    /// # Errors
    /// The file is not as it was left (unless `on_mismatch = "append"`), is in use, or cannot be opened. If too
    /// many files are open, it is opened with the first write instead.
    pub fn open(
        address: &Address,
        kind: &SinkKind,
        committed: Option<&SinkPosition>,
    ) -> Result<Self, SinkError> {
        Ok(match kind {
            SinkKind::File(spec) => Self::File(Box::new(FileSinkWriter::open(address, spec, committed)?)),
            SinkKind::Stdout(format) => Self::Stdout(StdoutWriter::of_process(address, *format)),
            // Its jobs are sent when a delivery is written.
            SinkKind::Http(_) | SinkKind::Null => Self::Null,
        })
    }

    /// To be called before every write: a position that must be committed first, or `None`.
    ///
    /// # Errors
    /// The file was changed or removed (unless `on_mismatch = "append"`), or cannot be created. The error is
    /// temporary if too many files are open ([`SinkError::is_short_of_files`]).
    pub fn needs_opening(&mut self) -> Result<Option<SinkPosition>, SinkError> {
        match self {
            Self::File(file) => file.needs_opening(),
            Self::Stdout(_) | Self::Null => Ok(None),
        }
    }

    /// Writes each payload as a line; one write for all.
    ///
    /// # Errors
    /// The disk is full ([`SinkError::is_full`]), or the write failed otherwise.
    pub fn write(&mut self, payloads: &Payloads) -> Result<(), SinkError> {
        match self {
            Self::File(file) => file.write(payloads),
            Self::Stdout(stdout) => stdout.write(payloads),
            Self::Null => Ok(()),
        }
    }

    /// Makes the written data durable. The position belongs to the same commit as the deliveries; `None` if
    /// no position changes.
    ///
    /// # Errors
    /// The destination did not accept the data.
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

    /// The store holds no position of this sink in its file: the next write is announced by one.
    pub fn forget_position(&mut self) {
        if let Self::File(file) = self {
            file.forget_position();
        }
    }

    /// Undoes all writes since the last commit, as far as the destination allows.
    ///
    /// # Errors
    /// The file cannot be truncated.
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

    /// The position to commit at a clean stop, when everything written is committed; `None` if it does not
    /// change.
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
