//! Engine: runs the decisions of the dispatcher on threads and channels.
//!
//! ```text
//! readers ──jobs──┐                                ┌──batches──> workers
//!                 ├──> coordinator ⇄ dispatcher ───┤                │
//! committer ──────┘      (event loop)  (pure)      └──deliveries──> committer ──> sinks, store
//! ```
//!
//! The coordinator is the state of the event loop: it keeps the jobs in flight and turns decisions into
//! actions. The runtime owns the threads and carries out the actions. One thread runs the event loop, one
//! reads all queues from the store, one commits, and a small pool reads the sources. Each worker is a thread
//! with its own compiled scripts.
//!
//! | module | content |
//! | --- | --- |
//! | `run` | a run of a configuration, and the handle for other threads |
//! | `generation` | a checked configuration with its scripts and plugins |
//! | `recovery` | the state in which a run starts |
//! | `runtime` | the threads, and the messages between them |
//! | `coordinator` | the state of the event loop |
//! | `step` | the state of one step |
//! | `batch`, `processor` | a batch on a worker: attempts, retries, results |
//! | `commit` | the group commit of sinks and store |
//! | `operator` | requests of operators and external systems |
//! | `test_run` | tests of pipelines: runs on one thread, under a clock that moves by itself |
//! | `simulation` | whole runs with crashes, as a test |
//!
//! Channels are unbounded. The dispatcher limits the work in flight, and a thread that cannot block on a
//! channel cannot deadlock on it.

pub(crate) mod batch;
pub(crate) mod commit;
mod coordinator;
mod error;
mod generation;
mod load_plugins;
pub(crate) mod operator;
mod processor;
pub(crate) mod recovery;
mod report;
mod run;
mod runtime;
pub(crate) mod step;
mod test_run;

pub use crate::commit::inbox::{IdempotencyKey, KeyConflict, Push, PushReply, Pushed, PushedPlace};
pub use crate::generation::bindings::mark_bindings;
pub use crate::generation::current::NumberedGeneration;
pub use crate::generation::earlier::{EarlierGeneration, different_library, previous};
pub use crate::generation::renames::RepeatedIndices;
pub use crate::generation::resumed::resume;
pub use crate::generation::source_files::SourceFiles;
pub use crate::generation::trial::FailedSetup;
pub use crate::operator::apply::{apply, no_push};
pub use crate::operator::cancel::{DropKind, dropped, may_cancel};
pub use crate::operator::complete::{TokenClaim, check, claim, completion_of};
pub use crate::operator::effect::RequestEffect;
pub use crate::operator::late::{LateEnd, late_end};
pub use crate::operator::removed::removed_parts;
pub use crate::operator::request::{
    CompletionOutcome, MoveSummary, RemovedPart, Reply, Request, RequestOutcome,
};
pub use crate::recovery::source_kinds::ChangedFraming;
pub use crate::recovery::start_position::{progress, watermark, watermark_below};
pub use crate::step::counts::{JobLocation, StepCounts};
pub use crate::step::held_lanes::holds_lanes;
pub use crate::step::probe_health::{ProbeHealth, ProbeKind};
pub use crate::step::queue_view::{QueueView, SCAN_MAX};
pub use crate::step::source_health::{SourceHealth, SourceState, SourceStats};
pub use crate::step::stats::{BlockCause, Stats, StepBlock, StepStats};
pub use crate::step::turn::first_in_line;
pub use error::{Chain, EngineError};
pub use generation::Generation;
pub use report::{
    Halt, LingeringStep, RefusedReload, ReloadOutcome, ResumedRollback, RolledBack, RolledBackBefore,
    RunOptions, RunReport,
};
pub use run::{Handle, Run};
pub use test_run::{Difference, TestOutcome, run_test, run_tests};

#[cfg(test)]
mod simulation;
