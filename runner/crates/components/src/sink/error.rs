//! `SinkError`: why a sink cannot write jobs, with the fix.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::open_files;
use tidegate_config::shown;
use tidegate_model::{Address, LockHolder};

#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error(
        "sink `{address}` cannot continue in `{}`: {mismatch}; {}, or accept it with \
         `on_mismatch = \"append\"`", shown(path), mismatch.way_out(path)
    )]
    Mismatch { address: Address, path: PathBuf, mismatch: Mismatch },
    #[error(
        "sink `{address}` cannot continue in `{}`: it has the lines of sink `{other}`; write to another path, or \
         continue behind these lines with `on_mismatch = \"append\"`",
        shown(path)
    )]
    OtherSink { address: Address, path: PathBuf, other: Address },
    #[error("sink `{address}` cannot write to `{}`: {} has it locked", shown(path), lock_holder(holder))]
    Locked { address: Address, path: PathBuf, holder: Box<LockHolder> },
    #[error("cannot make the folder `{}`", shown(path))]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot open `{}` for writing", shown(path))]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot write to `{}` at byte {offset}", shown(path))]
    Write { path: PathBuf, offset: u64, source: io::Error },
    #[error("cannot truncate `{}` to {offset} bytes", shown(path))]
    CutBack { path: PathBuf, offset: u64, source: io::Error },
    #[error("cannot read `{}` to verify its content", shown(path))]
    Look { path: PathBuf, source: io::Error },
    #[error("standard output was closed by the program that read it")]
    Closed,
    #[error("cannot write to standard output")]
    Stdout { source: io::Error },
}

fn lock_holder(holder: &LockHolder) -> String {
    match holder.pid {
        Some(pid) if pid == std::process::id() => "another sink of this runner".to_owned(),
        Some(_) => holder.to_string(),
        None => "another sink or another process".to_owned(),
    }
}

/// The difference between a file and its committed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It existed before the sink was first used.
    NotOurs {
        len: u64,
    },
    Missing {
        expected: u64,
    },
    Shorter {
        expected: u64,
        len: u64,
    },
    /// It was copied to another place, most likely together with the store.
    Copied,
    /// Its bytes at the committed position differ.
    Changed,
    /// Another program appended to it.
    Longer {
        expected: u64,
        len: u64,
    },
    /// Another file replaced it while the sink was in use.
    Replaced,
    /// It was removed or renamed while the sink was in use.
    Removed,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs { len } => write!(f, "it holds {len} bytes that Tidegate did not write"),
            Self::Copied => write!(f, "it is a copy of what Tidegate wrote at another path"),
            Self::Missing { expected } => write!(f, "it is missing, but must hold {expected} bytes"),
            Self::Shorter { expected, len } => {
                write!(f, "it was shortened by another program from {expected} bytes to {len}")
            }
            Self::Changed => write!(f, "its content was changed by another program"),
            Self::Longer { expected, len } => {
                write!(f, "it was extended by another program from {expected} bytes to {len}")
            }
            Self::Replaced => write!(f, "it was replaced by another file"),
            Self::Removed => write!(f, "it was removed or renamed"),
        }
    }
}

impl Mismatch {
    /// The fix, other than accepting the file.
    fn way_out(self, path: &Path) -> String {
        match self {
            Self::Missing { .. } | Self::Removed | Self::Shorter { .. } | Self::Changed | Self::Replaced => {
                "restore it".to_owned()
            }
            Self::NotOurs { .. } => "move it away".to_owned(),
            // The sources of the copy start from the beginning too, so continuing here would deliver twice.
            Self::Copied => "a copied folder cannot continue elsewhere, but a moved one can; \
                             to start a copy afresh, remove its `.tidegate` and its outputs"
                .to_owned(),
            Self::Longer { expected, .. } => {
                format!("truncate it with `truncate --size={expected} {}`", shown(path))
            }
        }
    }
}

impl SinkError {
    /// The disk is full: the same write may succeed later.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let full = |error: &io::Error| {
            use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
            matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
        };
        match self {
            Self::Folder { source, .. }
            | Self::Open { source, .. }
            | Self::Write { source, .. }
            | Self::Stdout { source } => full(source),
            Self::Mismatch { .. }
            | Self::OtherSink { .. }
            | Self::Locked { .. }
            | Self::CutBack { .. }
            | Self::Look { .. }
            | Self::Closed => false,
        }
    }

    /// Too many files are open just now: the same may succeed later.
    #[must_use]
    pub fn is_short_of_files(&self) -> bool {
        match self {
            Self::Folder { source, .. } | Self::Open { source, .. } => open_files::are_short(source),
            _ => false,
        }
    }

    pub(crate) fn open(path: &Path, source: io::Error) -> Self {
        Self::Open { path: path.to_owned(), source }
    }

    pub(crate) fn write(path: &Path, offset: u64, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), offset, source }
    }

    pub(crate) fn look(path: &Path, source: io::Error) -> Self {
        Self::Look { path: path.to_owned(), source }
    }
}
