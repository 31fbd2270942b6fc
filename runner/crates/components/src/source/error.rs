//! `SourceError`: why a source cannot be read, with the place.

use std::io;
use std::path::PathBuf;

use crate::open_files;
use tidegate_model::Address;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(
        "source `{address}` reads `{path}`, which does not exist; with `follow = true` it would wait for it"
    )]
    Missing { address: Address, path: PathBuf },
    #[error("cannot open `{path}`")]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot read `{path}` at byte {offset}")]
    Read { path: PathBuf, offset: u64, source: io::Error },
    /// `offset` counts decompressed bytes: everything before it was readable.
    #[error("`{path}` is damaged or cut short: its content cannot be decompressed past byte {offset}")]
    Gzip { path: PathBuf, offset: u64, source: io::Error },
    #[error("cannot list `{path}`")]
    List { path: PathBuf, source: io::Error },
    #[error(
        "`{path}` is neither a regular file nor a folder; for the output of a program use `… | tidegate queue push PIPELINE/QUEUE`"
    )]
    NotAFile { path: PathBuf },
    #[error("the name of `{path}` is not UTF-8; rename the file")]
    Name { path: PathBuf },
    #[error("`{path}` is not a pattern of file names")]
    Pattern { path: PathBuf, source: glob::PatternError },
    /// `why`: a sentence fragment.
    #[error("{why}")]
    Service { why: String },
    #[error("the header of `{path}` {reason}")]
    Header { path: PathBuf, reason: String },
}

impl SourceError {
    /// Too many files are open at the moment: the source itself may be valid.
    #[must_use]
    pub fn is_short_of_files(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Read { source, .. } | Self::List { source, .. } => {
                open_files::are_short(source)
            }
            _ => false,
        }
    }

    pub(crate) fn open(path: &std::path::Path, source: io::Error) -> Self {
        Self::Open { path: path.to_owned(), source }
    }

    pub(crate) fn list(path: &std::path::Path, source: io::Error) -> Self {
        Self::List { path: path.to_owned(), source }
    }
}
