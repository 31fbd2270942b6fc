//! `JobLog`: the indexed log of a pull source, in files or behind an HTTP service.

use std::path::Path;
use std::sync::Weak;
use std::time::Duration;

use crate::calls::Calls;
use crate::pull_source::{PullLog, PullReader};
use crate::source::{BatchLimit, Read, Reader, SourceEnd, SourceError, SourceLog, Wake};
use tidegate_config::SourceKind;
use tidegate_model::{Address, Segment, SourceOffset};

/// A pull source; a cheap handle.
#[derive(Clone, Debug)]
pub enum JobLog {
    Files(SourceLog),
    Service(PullLog),
}

/// Reads a pull source at its own pace.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few readers, one for each input of a step")]
pub enum JobReader {
    Files(Reader),
    Service(PullReader),
}

impl JobLog {
    /// `segments`: the segments of the source in the store, in order.
    ///
    /// # Errors
    /// The source cannot be opened. Whether a service answers is not known yet.
    pub fn open(address: &Address, kind: &SourceKind, segments: Vec<Segment>) -> Result<Self, SourceError> {
        Ok(match kind {
            SourceKind::File(file) => Self::Files(SourceLog::open(address, file, segments)?),
            SourceKind::Service(service) => Self::Service(PullLog::new(address, service)),
        })
    }

    /// A reader whose first job has the index `next`; see [`SourceLog::reader`].
    #[must_use]
    pub fn reader(&self, next: u64, mark: Option<SourceOffset>) -> JobReader {
        match self {
            Self::Files(files) => JobReader::Files(files.reader(next, mark)),
            Self::Service(service) => JobReader::Service(service.reader(next)),
        }
    }

    /// A reader for a step that skips the jobs before `next`, some of which may not exist yet.
    #[must_use]
    pub fn beginner(&self, next: u64, mark: Option<SourceOffset>) -> JobReader {
        match self {
            Self::Files(files) => JobReader::Files(files.beginner(next, mark)),
            Self::Service(service) => JobReader::Service(service.reader(next)),
        }
    }

    /// Announces a reader that begins at `next` and is created later.
    pub fn join(&self, next: u64) {
        match self {
            Self::Files(files) => files.join(next),
            // The numbers of a service have a fixed meaning.
            Self::Service(_) => {}
        }
    }

    /// The present end of the source.
    ///
    /// # Errors
    /// The errors of a reader. The end of a service is unknown.
    pub fn end(&self, mark: Option<SourceOffset>) -> Result<SourceEnd, SourceError> {
        match self {
            Self::Files(files) => files.end(mark),
            Self::Service(_) => {
                Err(SourceError::Service { why: "the newest job of a service is unknown".to_owned() })
            }
        }
    }
}

impl JobReader {
    /// Reads the next batch. Does not wait for more.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn read(&mut self, limit: BatchLimit) -> Result<Read, SourceError> {
        match self {
            Self::Files(files) => files.read(limit),
            Self::Service(service) => service.read(limit),
        }
    }

    /// The path of its files, which can be watched.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Files(files) => Some(files.path()),
            Self::Service(_) => None,
        }
    }

    /// Lets it make requests. `wake` is called for each answer.
    pub fn connect(&mut self, calls: &Calls, wake: Weak<dyn Wake>) {
        match self {
            // Their files are watched.
            Self::Files(_) => {}
            Self::Service(service) => service.connect(calls, wake),
        }
    }

    /// The time until the next read of a service; `None`: an answer comes before, or the source is a file.
    #[must_use]
    pub fn looks_again(&self) -> Option<Duration> {
        match self {
            Self::Files(_) => None,
            Self::Service(service) => service.looks_again(),
        }
    }

    /// The reader of a service.
    #[must_use]
    pub fn service(&self) -> Option<&PullReader> {
        match self {
            Self::Files(_) => None,
            Self::Service(service) => Some(service),
        }
    }
}
