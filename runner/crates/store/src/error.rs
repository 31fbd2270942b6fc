//! What can be wrong with the store, in words for the person who has to put it right.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::database::disk::Taken;
use tidegate_model::{Address, LockHolder};

/// The end of every message about a file that cannot be used as it is.
const WAY_OUT: &str = "put back a copy of it, or move it away to begin anew (progress is then forgotten, and \
                       the jobs of sources run again)";

/// Why a store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("cannot create the data folder `{}`", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot use the store `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the store `{}` is in use by {holder}; one runner at a time can have it", path.display())]
    Locked { path: PathBuf, holder: LockHolder },
    #[error("{}", taken(path))]
    Taken { path: PathBuf },
    #[error("the store `{}` is empty, and a store never is; {WAY_OUT}", path.display())]
    Empty { path: PathBuf },
    #[error("the store `{}` holds zeros where its header should be; {WAY_OUT}", path.display())]
    Zeros { path: PathBuf },
    #[error("`{}` is not a store of Tidegate; move it away, or choose another folder with `--data`", path.display())]
    Foreign { path: PathBuf },
    #[error(
        "the store `{}` was written by a newer Tidegate: its format is version {found}, and this one knows \
         up to version {known}; run the newer Tidegate on it",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("the store `{}` is damaged: {what}; {WAY_OUT}", path.display())]
    Damaged { path: PathBuf, what: String },
}

/// Why something could not be read from an open store.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Passes once [`super::Writer::reopen`] has succeeded.
    #[error(
        "the store cannot be read just now: a write to it failed, most likely for want of room on its disk"
    )]
    Interrupted,
    #[error("cannot read from the store")]
    Io(#[source] io::Error),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("job {index} of `{queue}` is no longer kept; the oldest that is has index {first}")]
    Gone { queue: Address, index: u64, first: u64 },
}

/// Why a commit did not happen. [`super::Writer::reopen`] is the way on, whichever it was.
#[derive(Debug, Error)]
pub enum CommitError {
    #[error("there is no room left on the disk of the store")]
    Full(#[source] io::Error),
    #[error("cannot write to the store")]
    Io(#[source] io::Error),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("an earlier write to the store failed, and it has not been opened again since")]
    MustReopen,
    #[error("{}", taken(path))]
    Taken { path: PathBuf },
    /// The changes may be in the file that was there.
    #[error(
        "the store `{}` is no longer there: it or its folder was deleted, moved or replaced while this process \
         had it; put it back and start again",
        path.display()
    )]
    Missing { path: PathBuf },
}

fn taken(path: &Path) -> String {
    format!(
        "another process has written to the store `{}` since this one opened it, and this one writes nothing \
         more to it: the file `lock` beside it must not be removed while a runner works",
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

/// Why an export could not be imported. Nothing of it is left then.
#[derive(Debug, Error)]
pub enum ImportError {
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(
        "the store `{}` holds something already, and an import would replace it; choose another folder with \
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
    /// It was a lack of room: the same call succeeds when there is some.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } | Self::Folder { source, .. } if is_full(source))
    }
}

impl CommitError {
    /// It was a lack of room: the same commit succeeds when there is some.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

/// What went wrong inside this crate, before it is known whose question it was.
#[derive(Debug)]
pub(crate) enum Cause {
    Interrupted,
    Taken,
    Io(io::Error),
    Damaged(String),
    Newer { found: u32, known: u32 },
    Gone { queue: Address, index: u64, first: u64 },
}

impl Cause {
    /// redb found, in its own words, that the file is not whole.
    pub(crate) fn broken(what: &str) -> Self {
        // Only these words of redb tell this case from the others.
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
            other => OpenError::Damaged { path, what: ReadError::from(other).to_string() },
        }
    }
}

impl From<Cause> for ReadError {
    fn from(cause: Cause) -> Self {
        match cause {
            // Readers of a store that is not written any more go on as when it is closed.
            Cause::Interrupted | Cause::Taken => Self::Interrupted,
            Cause::Io(source) => Self::Io(source),
            Cause::Damaged(what) => Self::Damaged(what),
            Cause::Newer { found, .. } => Self::Damaged(format!("its format is version {found}")),
            Cause::Gone { queue, index, first } => Self::Gone { queue, index, first },
        }
    }
}

impl Cause {
    /// Why a commit to the store at `path` did not happen.
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

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        let is_taken = error.get_ref().and_then(|inner| inner.downcast_ref::<Taken>()).is_some();
        if is_taken { Self::Taken } else { Self::Io(error) }
    }
}

impl From<redb::StorageError> for Cause {
    fn from(error: redb::StorageError) -> Self {
        match error {
            redb::StorageError::Io(error) => error.into(),
            redb::StorageError::PreviousIo | redb::StorageError::DatabaseClosed => Self::Interrupted,
            redb::StorageError::Corrupted(what) => Self::broken(&what),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::TableError> for Cause {
    fn from(error: redb::TableError) -> Self {
        match error {
            redb::TableError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::TransactionError> for Cause {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::CommitError> for Cause {
    fn from(error: redb::CommitError) -> Self {
        match error {
            redb::CommitError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::CompactionError> for Cause {
    fn from(error: redb::CompactionError) -> Self {
        match error {
            redb::CompactionError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::DatabaseError> for Cause {
    fn from(error: redb::DatabaseError) -> Self {
        match error {
            redb::DatabaseError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
