//! The one file that holds what must outlive a crash: logs of queues, progress, delivery hashes,
//! places in sources and sinks.
//!
//! [`open`] gives two handles. A [`Store`] reads, from any thread; the [`Writer`] writes, from the
//! one thread that owns it, and what [`Writer::commit`] has answered `Ok` to is durable as a whole.
//!
//! | room | what it knows |
//! | --- | --- |
//! | `disk` | the bytes under the store, and how redb is given them |
//! | `overlay` | reading a disk that cannot be written |
//! | `guard` | what happens when redb panics |
//! | `bytes` | numbers and texts in bytes |
//! | `column` | what is known of jobs besides their payloads, as bytes |
//! | `block` | jobs as bytes: lengths, compression, checksums |
//! | `value` | the jobs of a commit, as the log holds them |
//! | `format` | the tables and their records |
//! | `private` | the data folder, which only its owner reaches |
//! | `lock` | one process at a time |
//! | `read` | the reading handle: queues, progress, sources, sinks, and which jobs a step made of a job |
//! | `snapshot`, `delayed`, `delivered`, `generation`, `ticks` | a table each: its records, reading, writing |
//! | `delayed_job` | what waits, for what, and how it is called |
//! | `walk` | the delayed jobs of a step one by one, however many |
//! | `completion` | what the outside has said of a pending job |
//! | `pause`, `stop`, `token_key` | records that stand alone |
//! | `trim`, `write` | the writing handle |
//! | `migrate` | the format's version, and older ones |
//! | `origin` | where a store can be opened again |
//! | `open` | from a folder to the handles, or to what is wrong with the file |
//! | `verify` | the walk over everything |
//! | `compact` | gives unused room back |
//! | `lines`, `export`, `fill`, `import` | everything as lines of text, and back |
//! | `attempts` | the file beside it that says what was attempted when the process died |
//! | `faulty` | a disk that fails on demand, for tests |
//!
//! Architecture Invariant: only this crate knows redb, and none of redb's types is in its API.

pub(crate) mod api;
pub(crate) mod codec;
mod crash_guard;
pub(crate) mod database;
mod error;
#[cfg(any(test, feature = "testing"))]
mod faulty_disk;
pub(crate) mod transfer;

pub use crate::api::completion::CompletionRecord;
pub use crate::api::parked_job::{JobForm, NO_DUE_TIME, NewParkedJob, ParkReason, ParkedJob, ParkedKey};
pub use crate::codec::block::Block;
pub use crate::codec::job_metadata::Details;
pub use crate::crash_guard::{
    AttemptGuard, AttemptSpan, BatchMode, CrashGuard, SuspectRun, SuspectVerdict, WorkerSlot,
};
pub use crate::database::catch_panics::answers_panics;
pub use crate::database::compact::{Compacted, compact};
pub use crate::database::dedupe::{DedupeOutcome, DedupeRecord};
pub use crate::database::disk::Disk;
pub use crate::database::generations::GenerationRecord;
pub use crate::database::open::{open, open_disk, open_existing};
pub use crate::database::pauses::Pause;
pub use crate::database::read::{DetailedBatch, OutputOrigin, QueueState, Store, StoredOutput};
pub use crate::database::retention::{Trim, TrimWhen, Trimmed};
pub use crate::database::scan::ParkedJobs;
pub use crate::database::snapshots::{Snapshot, SnapshotInput, SnapshotKey};
pub use crate::database::stops::StepStop;
pub use crate::database::verify::{VerifyReport, verify};
pub use crate::database::write::{Append, Appended, Changes, Committed, Reopened, Writer};
pub use crate::transfer::export::export;
pub use crate::transfer::export_format::Inventory;
pub use crate::transfer::import::import;
pub use error::{CommitError, ExportError, ImportError, OpenError, ReadError};

/// A disk that fails on demand, for the tests of the crates above.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use crate::faulty_disk::{Failure, FaultyDisk};
}

#[cfg(test)]
mod tests;
