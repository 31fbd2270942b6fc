//! Threads and channels that carry out what the dispatcher decides.
//!
//! ```text
//! readers ──batches──┐                  ┌──batches──> workers
//!                    ├──> dispatcher ───┤                │
//! committer ─────────┘      (pure)      └──deliveries──> committer ──> store, sinks
//! ```
//!
//! One thread runs the dispatcher; each source that a step reads has a thread, and all queues
//! together have one; each worker has a thread with its own compiled scripts; one thread commits.
//! Channels are unbounded: what is on its way is bounded by the dispatcher, and a thread that
//! cannot block on a channel cannot deadlock on it.

mod committer;
mod error;
mod error_record;
mod generation;
mod readers;
mod run;
mod start;
mod stats;
mod tail;
mod work;
mod workers;

pub use error::{Chain, EngineError};
pub use generation::Generation;
pub use run::{Halt, Handle, Options, Report, Run};
pub use stats::{Stats, StepStats};
