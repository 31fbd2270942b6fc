//! Keyed jobs: carry the jobs of a join by key from a worker to the committer, which pairs them.

use tidegate_store::{NewParkedJob, ParkedId, ParkedJob};

/// The key of a job: a hash of its text, as of a lane. `1` and `"1"` are the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JoinKey(pub(crate) u128);

/// A job of a join by key, as a worker has seen it.
#[derive(Clone, Debug)]
pub(crate) enum KeyedJob {
    /// It has arrived on the input `side`, and waits for its partners in this row if they are not there.
    Arrived { key: JoinKey, side: usize, row: Box<NewParkedJob> },
    /// Its time is over: it goes on with the partners that are there.
    Leaves { key: JoinKey, side: usize, row: ParkedId, job: Box<ParkedJob> },
    /// It has failed, with this error record unless it is dropped. `row`: its time is over.
    Fails { row: Option<ParkedId>, record: Option<Box<KeyedError>> },
}

/// An error record of a join by key.
#[derive(Clone, Debug)]
pub(crate) struct KeyedError {
    pub(crate) record: Vec<u8>,
    /// By input; 0 if the input has no job here.
    pub(crate) indices: Vec<u64>,
    /// Provenance as JSON; empty if there is none.
    pub(crate) carried: String,
}

impl KeyedJob {
    /// Bytes of its payload.
    pub(crate) fn byte_len(&self) -> usize {
        match self {
            Self::Arrived { row, .. } => row.job.payload.len(),
            Self::Leaves { job, .. } => job.payload.len(),
            Self::Fails { record, .. } => record.as_ref().map_or(0, |record| record.record.len()),
        }
    }
}
