//! `Store` and `Writer`: the one file that holds all state that survives a crash. That state is the logs of
//! queues, progress, delivery hashes, and positions in sources and sinks.
//!
//! [`open`] returns two handles. A [`Store`] reads, from any thread; the [`Writer`] writes, from the one
//! thread that owns it. A [`Writer::commit`] that returns `Ok` is durable as a whole.
//!
//! | module | content |
//! | --- | --- |
//! | `disk` | the bytes under the store, and redb's access to them |
//! | `overlay` | read access to a disk that is full |
//! | `guard` | conversion of redb's panics into errors |
//! | `bytes` | numbers and texts in bytes |
//! | `column` | the details of jobs besides their payloads, as bytes |
//! | `block` | jobs as bytes: lengths, compression, checksums |
//! | `value` | the jobs of a commit, as the log holds them |
//! | `format` | the tables and their records |
//! | `private` | the data folder, which only its owner can access |
//! | `lock` | one process at a time |
//! | `read` | the reading handle: queues, progress, sources, sinks, and the jobs that a step made from a job |
//! | `snapshot`, `delayed`, `delivered`, `generation`, `ticks` | a table each: its records, reading, writing |
//! | `parked_job` | parked jobs, with the reason for their wait, their due times and their numbers |
//! | `walk` | the parked jobs of a step, one by one |
//! | `completion` | the outcome of a pending job, as an external system sends it |
//! | `history` | the configurations that runners took over, with their texts |
//! | `pause`, `stop`, `token_key` | single records |
//! | `trim`, `write` | the writing handle |
//! | `migrate` | the version of the format, and migration from older ones |
//! | `origin` | the place at which a store can be reopened |
//! | `open` | opening a folder, or the error of its file |
//! | `verify` | the check of the whole store |
//! | `compact` | the return of unused space |
//! | `lines`, `export`, `fill`, `import` | the whole content as lines of text, and back |
//! | `attempts` | the crash guard: the jobs in progress when the process died |
//! | `faulty` | a disk that fails on demand, for tests |
//!
//! Architecture Invariant: only this crate uses redb, and its API has none of redb's types.

pub(crate) mod api;
pub(crate) mod codec;
mod crash_guard;
pub(crate) mod database;
mod error;
#[cfg(any(test, feature = "testing"))]
mod faulty_disk;
pub(crate) mod transfer;

pub use crate::api::appended::Appended;
pub use crate::api::completion::CompletionRecord;
pub use crate::api::parked_job::{
    JobForm, NewParkedJob, ParkReason, ParkedId, ParkedJob, ParkedKey, ParkedPosition, ParkedTotals,
};
pub use crate::codec::block::Block;
pub use crate::codec::job_metadata::Details;
pub use crate::crash_guard::{
    AttemptGuard, AttemptSpan, BatchMode, CrashGuard, SuspectRun, SuspectVerdict, WorkerSlot,
};
pub use crate::database::catch_panics::answers_panics;
pub use crate::database::compact::{Compacted, compact};
pub use crate::database::dedupe::{DedupeOutcome, DedupeRecord, IngestedKey};
pub use crate::database::disk::Disk;
pub use crate::database::generations::GenerationRecord;
pub use crate::database::history::{
    ENTRIES_MAX, HistoryChange, HistoryEntry, NewHistoryEntry, TakeoverOutcome, TextHash, Trigger,
};
pub use crate::database::open::{open, open_disk, open_existing, open_in_memory};
pub use crate::database::pauses::Pause;
pub use crate::database::read::{DetailedBatch, OutputOrigin, QueueState, Store, StoredOutput};
pub use crate::database::renames::RenamedStep;
pub use crate::database::retention::{Trim, TrimWhen, Trimmed};
pub use crate::database::scan::ParkedJobs;
pub use crate::database::snapshots::{Snapshot, SnapshotInput, SnapshotKey};
pub use crate::database::stops::StepStop;
pub use crate::database::verify::{VerifyReport, verify};
pub use crate::database::write::{Append, Changes, Committed, Reopened, Writer};
pub use crate::transfer::export::export;
pub use crate::transfer::export_format::Inventory;
pub use crate::transfer::import::import;
pub use error::{CommitError, ExportError, ImportError, OpenError, ReadError};

/// A disk that fails on demand, for the tests of the crates above.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use crate::faulty_disk::{DiskFailure, FaultyDisk};
}

#[cfg(test)]
mod tests;
