//! `Store` and `Writer`: the one file, with its write-ahead log, that holds all state that survives a crash. That state is
//! the logs of queues, progress, delivery hashes, and positions in sources and sinks.
//!
//! [`open`] returns two handles. A [`Store`] reads, from any thread; the [`Writer`] writes, from the one
//! thread that owns it. A [`Writer::commit`] that returns `Ok` is durable as a whole.
//!
//! | folder | content |
//! | --- | --- |
//! | `api` | types without a database: the places of appended jobs, parked jobs, completions |
//! | `codec` | records as bytes: the jobs of a commit with their details, and parked jobs |
//! | `database` | redb: its tables, opening and locking, reading, writing, retention, migration, verification |
//! | `transfer` | the whole content as lines of text, and back |
//! | `crash_guard` | the jobs in progress when the process died |
//! | `faulty_disk` | a disk that fails on demand, for tests |
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
pub use crate::api::delivery::{DeliveredJob, DeliveredJobs, DeliveryOutcome, DeliveryPlace, DeliveryTimes};
pub use crate::api::finished_result::{FinishedEnd, FinishedOutput, FinishedResult};
pub use crate::api::late_job::{LateChanges, LateJob, LateKey, NewLateJob};
pub use crate::api::parked_job::{
    JobForm, NewParkedJob, ParkReason, ParkedId, ParkedJob, ParkedKey, ParkedPosition, ParkedTotals,
};
pub use crate::codec::block::Block;
pub use crate::codec::job_metadata::Details;
pub use crate::crash_guard::{
    AttemptGuard, AttemptRecord, AttemptSpan, BatchMode, CrashGuard, LiftedRecord, SuspectRun,
    SuspectVerdict, WorkerSlot,
};
pub use crate::database::bindings::FirstInput;
pub use crate::database::catch_panics::answers_panics;
pub use crate::database::changes::{Append, Changes, Committed};
pub use crate::database::compact::{Compacted, compact};
pub use crate::database::dedupe::{DedupeOutcome, DedupeRecord, DeliveryKey, DeliveryRecord, IngestedKey};
pub use crate::database::disk::{Disk, WalBounds, WalSpace};
pub use crate::database::generations::GenerationRecord;
pub use crate::database::held_lanes::{LaneChange, LaneHold, LaneRecord};
pub use crate::database::history::{
    ENTRIES_MAX, HistoryChange, HistoryEntry, NewHistoryEntry, TakeoverOutcome, TextHash, Trigger,
};
pub use crate::database::open::{exists, open, open_disk, open_existing, open_in_memory};
pub use crate::database::pauses::Pause;
pub use crate::database::read::{DetailedBatch, OutputOrigin, QueueState, Store, StoredOutput};
pub use crate::database::renames::Renames;
pub use crate::database::retention::{Trim, TrimWhen, Trimmed};
pub use crate::database::scan::ParkedJobs;
pub use crate::database::snapshots::{Snapshot, SnapshotInput, SnapshotKey};
pub use crate::database::stops::StepStop;
pub use crate::database::verify::{VerifyReport, verify};
pub use crate::database::write::{Reopened, Writer};
pub use crate::transfer::export::export;
pub use crate::transfer::export_format::Inventory;
pub use crate::transfer::import::{import, is_export};
pub use error::{CommitError, ExportError, ImportError, OpenError, ReadError};

/// A disk that fails on demand, for the tests of the crates above.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use crate::faulty_disk::{DiskBytes, DiskFailure, FaultyDisk};
}

#[cfg(test)]
mod tests;
