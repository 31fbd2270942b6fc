//! Errors of the store: name the problem and its fix for the operator.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::database::disk::{Taken, WAL_FILE};
use tidegate_model::{Address, LockHolder};

/// The end of every message about a file that cannot be used unchanged.
const WAY_OUT: &str = "restore a copy, or move it away to start empty (progress is then lost, and \
                       the jobs of sources run again)";

/// Why a store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("cannot create the data folder `{}`", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot use the store `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the store `{}` is in use by {holder}; only one runner can open it", path.display())]
    Locked { path: PathBuf, holder: LockHolder },
    #[error("{}", taken(path))]
    Taken { path: PathBuf },
    #[error("the store `{}` is empty, so it is not a store; {WAY_OUT}", path.display())]
    Empty { path: PathBuf },
    #[error("the store `{}` has zeros instead of a header; {WAY_OUT}", path.display())]
    Zeros { path: PathBuf },
    #[error("`{}` is not a store of Tidegate; move it away, or choose another folder with `--data`", path.display())]
    Foreign { path: PathBuf },
    #[error(
        "the store `{}` was written by a newer Tidegate: its format is version {found}, and this version reads \
         up to version {known}; use the newer Tidegate",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("the store `{}` is damaged: {what}; {WAY_OUT}", path.display())]
    Damaged { path: PathBuf, what: String },
    /// The problem and its fix, as a sentence about the log.
    #[error("the write-ahead log `{}` {problem}", path.display())]
    Wal { path: PathBuf, problem: String },
}

/// Why a value could not be read from an open store.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Temporary, until [`super::Writer::reopen`] succeeds.
    #[error(
        "the store cannot be read at the moment: a write to it failed, most likely because its disk is full"
    )]
    Interrupted,
    #[error("cannot read from the store")]
    Io(#[source] io::Error),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("job {index} of `{queue}` is no longer kept; the oldest kept job is {first}")]
    Gone { queue: Address, index: u64, first: u64 },
}

/// Why a commit failed. [`super::Writer::reopen`] is the recovery from each.
#[derive(Debug, Error)]
pub enum CommitError {
    #[error("the disk of the store is full")]
    Full(#[source] io::Error),
    #[error("cannot write to the store")]
    Io(#[source] io::Error),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("an earlier write to the store failed, and the store is not reopened yet")]
    MustReopen,
    #[error("{}", taken(path))]
    Taken { path: PathBuf },
    /// The changes may be in the file that was moved or replaced.
    #[error(
        "the store `{}` is missing: it or its folder was deleted, moved or replaced while this process \
         had it open; restore it and start again",
        path.display()
    )]
    Missing { path: PathBuf },
    /// The changes may be durable.
    #[error(
        "the write-ahead log `{}` is not as this process has left it: it was deleted, moved, replaced or cut short; \
         start again",
        path.display()
    )]
    WalMissing { path: PathBuf },
}

fn taken(path: &Path) -> String {
    format!(
        "another process has written to the store `{}` since this one opened it, so this one stops writing \
         to it: the file `lock` beside it must not be removed while a runner is active",
        path.display()
    )
}

/// Why a store could not be exported.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot write the export")]
    Write(#[source] io::Error),
}

/// Why an export could not be imported. No part of it remains.
#[derive(Debug, Error)]
pub enum ImportError {
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(
        "the store `{}` is not empty, and an import would replace it; choose another folder with \
         `--data`, or move it away",
        path.display()
    )]
    Occupied { path: PathBuf },
    #[error("cannot read line {line} of the export")]
    Read { line: u64, source: io::Error },
    #[error("line {line} of the export: {what}")]
    Line { line: u64, what: String },
}

impl OpenError {
    /// The disk was full: the same call succeeds when space is free.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } | Self::Folder { source, .. } if is_full(source))
    }
}

impl CommitError {
    /// The disk was full: the same commit succeeds when space is free.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

/// The cause of an error, before it is known which call it belongs to.
#[derive(Debug)]
pub(crate) enum StoreCause {
    Interrupted,
    Taken,
    Io(io::Error),
    Damaged(String),
    /// A problem of the write-ahead log; see [`OpenError::Wal`].
    Wal(String),
    Newer {
        found: u32,
        known: u32,
    },
    Gone {
        queue: Address,
        index: u64,
        first: u64,
    },
}

impl StoreCause {
    /// redb reports, with its own text, that the file is damaged.
    pub(crate) fn broken(what: &str) -> Self {
        // Only this text of redb identifies the case.
        let cut = what.starts_with("File truncated");
        let sentence = if cut { "it has been cut short" } else { "its structure is broken" };
        Self::Damaged(format!("{sentence} ({what})"))
    }

    pub(crate) fn at(self, path: PathBuf) -> OpenError {
        match self {
            Self::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                OpenError::Damaged { path, what: "it has been cut short".into() }
            }
            Self::Io(source) => OpenError::Io { path, source },
            Self::Taken => OpenError::Taken { path },
            Self::Newer { found, known } => OpenError::Newer { path, found, known },
            Self::Damaged(what) => OpenError::Damaged { path, what },
            Self::Wal(problem) => OpenError::Wal { path: path.with_file_name(WAL_FILE), problem },
            other => OpenError::Damaged { path, what: ReadError::from(other).to_string() },
        }
    }
}

impl From<StoreCause> for ReadError {
    fn from(cause: StoreCause) -> Self {
        match cause {
            // Readers of a store that is no longer written treat it as closed.
            StoreCause::Interrupted | StoreCause::Taken => Self::Interrupted,
            StoreCause::Io(source) => Self::Io(source),
            StoreCause::Damaged(what) => Self::Damaged(what),
            StoreCause::Wal(problem) => Self::Damaged(format!("its write-ahead log {problem}")),
            StoreCause::Newer { found, .. } => Self::Damaged(format!("its format is version {found}")),
            StoreCause::Gone { queue, index, first } => Self::Gone { queue, index, first },
        }
    }
}

impl StoreCause {
    /// The error of a commit to the store at `path`.
    pub(crate) fn of_commit(self, path: &Path) -> CommitError {
        match self {
            Self::Interrupted => CommitError::MustReopen,
            Self::Taken => CommitError::Taken { path: path.to_path_buf() },
            Self::Io(source) if is_full(&source) => CommitError::Full(source),
            Self::Io(source) => CommitError::Io(source),
            other => CommitError::Damaged(match ReadError::from(other) {
                ReadError::Damaged(what) => what,
                error => error.to_string(),
            }),
        }
    }
}

impl From<io::Error> for StoreCause {
    fn from(error: io::Error) -> Self {
        let is_taken = error.get_ref().and_then(|inner| inner.downcast_ref::<Taken>()).is_some();
        if is_taken { Self::Taken } else { Self::Io(error) }
    }
}

impl From<redb::StorageError> for StoreCause {
    fn from(error: redb::StorageError) -> Self {
        match error {
            redb::StorageError::Io(error) => error.into(),
            redb::StorageError::PreviousIo | redb::StorageError::DatabaseClosed => Self::Interrupted,
            redb::StorageError::Corrupted(what) => Self::broken(&what),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::TableError> for StoreCause {
    fn from(error: redb::TableError) -> Self {
        match error {
            redb::TableError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::TransactionError> for StoreCause {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::CommitError> for StoreCause {
    fn from(error: redb::CommitError) -> Self {
        match error {
            redb::CommitError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::CompactionError> for StoreCause {
    fn from(error: redb::CompactionError) -> Self {
        match error {
            redb::CompactionError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::DatabaseError> for StoreCause {
    fn from(error: redb::DatabaseError) -> Self {
        match error {
            redb::DatabaseError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
