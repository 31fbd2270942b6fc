//! Engine errors: end a run early.

use std::fmt;
use std::io;

use thiserror::Error;

use crate::generation::renames::RepeatedIndices;
use crate::recovery::source_kinds::ChangedFraming;
use tidegate_components::sink::SinkError;
use tidegate_components::source::SourceError;
use tidegate_store::{CommitError, OpenError, ReadError};

/// Reason for which a run cannot start or continue. No job is lost: the next run delivers all jobs that were
/// not committed.
#[derive(Debug, Error)]
pub enum EngineError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Rename(#[from] RepeatedIndices),
    #[error(transparent)]
    Framing(#[from] ChangedFraming),
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    #[error("a thread of the runner ended unexpectedly: please report this bug")]
    Died,
}

/// An error with all its causes, on one line.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
