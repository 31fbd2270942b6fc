//! File sources: indexed logs that are read where they are, and never copied.
//!
//! A source is a list of [`Segment`]s (a file, or one life of a followed file). Several readers may
//! read one source at their own pace, and agree about which index is which line: the first one to
//! find the end of a segment and the next file adds a segment, and the others follow it.
//!
//! Architecture invariant: what an index means is fixed no later than the commit of the first
//! delivery that depends on it, since each batch carries the segments it stands on. What a file
//! loses afterwards (cut off, overwritten) turns into faults, never into other jobs.

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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::batch_builder::BatchLimit;
pub use error::SourceError;
pub use reader::{Read, Reader, SourceBatch};
pub use watch::{SourceWatch, Wake, Watched};

use segments::Segments;
use tidegate_config::FileSource;
use tidegate_model::{Address, Batch, Segment, SourceOffset};

/// A file source; a cheap handle over what its readers share.
#[derive(Clone, Debug)]
pub struct SourceLog {
    shared: Arc<Shared>,
}

/// Where a source ends, and what the store must know for every index up to there to keep its meaning.
#[derive(Debug)]
pub struct SourceEnd {
    /// The index of the last job; 0 where there is none.
    pub last: u64,
    /// The place of the job after it.
    pub mark: Option<SourceOffset>,
    pub segments: Vec<Segment>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    address: Address,
    spec: FileSource,
    segments: Mutex<Segments>,
}

impl SourceLog {
    /// `segments`: what the store knows of the source, in order.
    ///
    /// # Errors
    /// The files are missing (unless followed), or cannot be listed; that too many files are open is none.
    pub fn open(
        address: &Address,
        spec: &FileSource,
        mut segments: Vec<Segment>,
    ) -> Result<Self, SourceError> {
        let mut spec = spec.clone();
        // The store remembers paths, and the next run may start in another folder.
        spec.path = std::path::absolute(&spec.path).map_err(|error| SourceError::open(&spec.path, error))?;
        match files::list(address, &spec.path, spec.follow) {
            // Its readers list them too, and can be asked again.
            Err(error) if error.is_short_of_files() => {}
            listed => _ = listed?,
        }
        for segment in &mut segments {
            files::relocate(segment, &spec.path);
        }
        let segments = Mutex::new(Segments::new(segments));
        let shared = Shared { address: address.clone(), spec, segments };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A reader whose first job has the index `next`: what is before has been delivered. `mark`: the
    /// greatest mark at or before `next`. Make all readers before the first of them reads, so that
    /// none finds an index that another one has delivered.
    #[must_use]
    pub fn reader(&self, next: u64, mark: Option<SourceOffset>) -> Reader {
        self.shared.segments().join(next);
        Reader::new(Arc::clone(&self.shared), next, mark)
    }

    /// A reader for a step that begins with the job at `next`, whatever is before it and whether it has
    /// come yet or not.
    #[must_use]
    pub fn beginner(&self, next: u64, mark: Option<SourceOffset>) -> Reader {
        self.shared.segments().join(mark.map_or(1, |mark| mark.index));
        Reader::early(Arc::clone(&self.shared), next, mark)
    }

    /// A reader begins at `next`, but is made later: no index below it may get another meaning.
    pub fn join(&self, next: u64) {
        self.shared.segments().join(next);
    }

    /// Where the source ends for now. Reads all that is behind `mark`, the last one known, and keeps none
    /// of it.
    ///
    /// # Errors
    /// What a reader would meet.
    pub fn end(&self, mark: Option<SourceOffset>) -> Result<SourceEnd, SourceError> {
        let mut reader = Reader::early(Arc::clone(&self.shared), u64::MAX, mark);
        while let Read::Batch(_) = reader.read(BatchLimit { jobs: 1, bytes: 1 })? {}
        let segments = self.shared.segments();
        let last = segments.floor() - 1;
        let mark = reader.stands_at().filter(|mark| mark.index == last + 1);
        Ok(SourceEnd { last, mark, segments: segments.news() })
    }

    /// The job at `index` alone, for a person to look at; `None` where no known segment holds it.
    /// `mark`: the greatest mark at or before it. Changes nothing.
    ///
    /// # Errors
    /// What a reader would meet.
    pub fn at(&self, index: u64, mark: Option<SourceOffset>) -> Result<Option<Batch>, SourceError> {
        let mut reader = Reader::looking(Arc::clone(&self.shared), index, mark);
        match reader.read(BatchLimit { jobs: 1, bytes: 1 })? {
            Read::Batch(read) if read.batch.first == index => Ok(Some(read.batch)),
            Read::Batch(_) | Read::End | Read::Idle => Ok(None),
        }
    }
}

impl Shared {
    fn segments(&self) -> MutexGuard<'_, Segments> {
        // Every change to the segments is whole when it ends; a reader that panicked left none half.
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
