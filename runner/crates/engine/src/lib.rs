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
//! Channels are unbounded. The dispatcher limits the work in flight, and a thread that cannot block on a
//! channel cannot deadlock on it.

mod error;

mod pace;

mod answering;

mod stats;

mod report;

mod plugins;

mod as_read;

mod generation;

mod error_record;

mod reason;

mod request;

mod push;

mod ticks;

mod delivery;

mod provenance;

mod held;

mod result;

mod in_flight;

mod gather;

mod allowance;

mod link;

mod chain;

mod asker;

mod attempted;

mod peek;
mod places;

mod begin;

mod cards;

mod status;

mod glance;

mod set_back;
mod sight;

mod shelf;

mod turn;

mod retrying;

mod leash;

mod work;

mod message;

mod workers;

mod readers;

mod source_pool;

mod tail;

mod sinks;

mod ledger;

mod arrivals;

mod amendment;

mod cancel;

mod whereabouts;

mod completion;

mod amend;

mod committer;

mod recover;

mod start;

mod floor;

mod last_run;

mod crew;

mod run;

pub use amend::{amend, error_queue};
pub use amendment::Amendment;
pub use answering::{Answering, Asked};
pub use as_read::AsRead;
pub use begin::progress;
pub use cancel::{Dropped, dropped, may_cancel};
pub use completion::{Claim, check, claim, completion_of};
pub use error::{Chain, EngineError};
pub use generation::Generation;
pub use glance::{Glance, Spot};
pub use push::{Answer, Conflict, Key, Push, Pushed};
pub use report::{Halt, Options, Report};
pub use request::{Completed, Granted, Moved, Reply, Request, Row};
pub use run::{Handle, Run};
pub use sight::{LOOKED_AT_MAX, Sight};
pub use stats::{Closed, ClosedBy, Stats, StepStats};
pub use turn::first_in_line;
pub use whereabouts::Whereabouts;

#[cfg(test)]
mod simulation;
