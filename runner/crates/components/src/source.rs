//! `SourceLog`: a file source, an indexed log that is read in place and never copied.
//!
//! A source is a list of [`SourceOffset`]s (a file, or one version of a followed file). Several readers may read
//! one source at their own pace, and agree on the index of each line. The first reader that finds the end of
//! a segment and the next file adds a segment, and the others use it.
//!
//! Architecture invariant: the meaning of an index is fixed at the latest by the commit of the first delivery
//! that depends on it. Each batch carries its segments. Content that a file loses afterwards
//! (truncated, overwritten) turns into faults, never into other jobs.

pub(crate) mod batch_builder;
pub(crate) mod byte_window;
pub(crate) mod codec;
pub(crate) mod csv;
pub(crate) mod cursor;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod reader;
pub(crate) mod rotated;
pub(crate) mod segments;
pub(crate) mod watch;

use std::sync::Arc;

pub use self::batch_builder::BatchLimit;
pub use error::SourceError;
pub use reader::{Read, Reader, SourceBatch};
pub use watch::{SourceWatch, Wake, Watched};

use segments::Segments;
use tidegate_config::FileSource;
use tidegate_model::sync::{Mutex, MutexGuard};
use tidegate_model::{Address, Batch, Segment, SourceOffset};

/// A file source; a cheap handle of the state that its readers share.
#[derive(Clone, Debug)]
pub struct SourceLog {
    shared: Arc<SourceShared>,
}

/// The end of a source, and the records that the store needs for every index up to it.
#[derive(Debug)]
pub struct SourceEnd {
    /// The index of the last job; 0 if none exists.
    pub last: u64,
    /// The place of the job after it.
    pub mark: Option<SourceOffset>,
    pub segments: Vec<Segment>,
}

#[derive(Debug)]
pub(crate) struct SourceShared {
    address: Address,
    spec: FileSource,
    segments: Mutex<Segments>,
}

impl SourceLog {
    /// `segments`: the segments of the source in the store, in order.
    ///
    /// # Errors
    /// The files are missing (unless followed), or cannot be listed; a lack of file handles is no error.
    pub fn open(
        address: &Address,
        spec: &FileSource,
        mut segments: Vec<Segment>,
    ) -> Result<Self, SourceError> {
        let mut spec = spec.clone();
        // The store keeps paths, and the next run may start in another folder.
        spec.path = std::path::absolute(&spec.path).map_err(|error| SourceError::open(&spec.path, error))?;
        match files::list(address, &spec.path, spec.follow) {
            // Its readers list them too, and can retry.
            Err(error) if error.is_short_of_files() => {}
            listed => _ = listed?,
        }
        for segment in &mut segments {
            files::relocate(segment, &spec.path);
        }
        let segments = Mutex::new(Segments::new(segments));
        let shared = SourceShared { address: address.clone(), spec, segments };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A reader whose first job has the index `next`; earlier jobs are delivered. `mark`: the greatest mark
    /// at or before `next`. Create all readers before the first of them reads, so that none finds an index
    /// that another one has delivered.
    #[must_use]
    pub fn reader(&self, next: u64, mark: Option<SourceOffset>) -> Reader {
        self.shared.segments().join(next);
        Reader::new(Arc::clone(&self.shared), next, mark)
    }

    /// A reader for a step that begins with the job at `next`, which may not exist yet, and skips earlier
    /// ones.
    #[must_use]
    pub fn beginner(&self, next: u64, mark: Option<SourceOffset>) -> Reader {
        self.shared.segments().join(mark.map_or(1, |mark| mark.index));
        Reader::early(Arc::clone(&self.shared), next, mark)
    }

    /// Announces a reader that begins at `next` and is created later: no index below it may change its
    /// meaning.
    pub fn join(&self, next: u64) {
        self.shared.segments().join(next);
    }

    /// The present end of the source. Reads all jobs after `mark`, the last known one, and keeps none of
    /// them.
    ///
    /// # Errors
    /// The errors of a reader.
    pub fn end(&self, mark: Option<SourceOffset>) -> Result<SourceEnd, SourceError> {
        let mut reader = Reader::early(Arc::clone(&self.shared), u64::MAX, mark);
        while let Read::Batch(_) = reader.read(BatchLimit { jobs: 1, bytes: 1 })? {}
        let segments = self.shared.segments();
        let last = segments.floor() - 1;
        let mark = reader.stands_at().filter(|mark| mark.index == last + 1);
        Ok(SourceEnd { last, mark, segments: segments.news() })
    }

    /// The job at `index` alone, for display; `None` if no known segment holds it. `mark`: the greatest mark
    /// at or before it. Changes nothing.
    ///
    /// # Errors
    /// The errors of a reader.
    pub fn at(&self, index: u64, mark: Option<SourceOffset>) -> Result<Option<Batch>, SourceError> {
        let mut reader = Reader::looking(Arc::clone(&self.shared), index, mark);
        match reader.read(BatchLimit { jobs: 1, bytes: 1 })? {
            Read::Batch(read) if read.batch.first == index => Ok(Some(read.batch)),
            Read::Batch(_) | Read::End | Read::Idle | Read::Busy => Ok(None),
        }
    }
}

impl SourceShared {
    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock()
    }
}

#[cfg(test)]
mod tests;
