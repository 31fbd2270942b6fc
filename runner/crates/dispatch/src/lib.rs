//! Decisions of Tidegate: pure functions and state machines that turn events into commands.
//!
//! Architecture Invariant: nothing here does I/O, reads a clock or starts a thread.

mod dispatcher;
mod failures;
mod monitor;
mod queuer;
mod ticker;

pub use dispatcher::{
    BatchEnd, BatchId, Before, Bounds, Command, Dispatcher, End, EndedBy, Event, Feed, Flow, FlowInput,
    Gather, Glance, JobEnd, Look, Picked, Picking, Port, ReadId, Redo, Turn, Waiting,
};
pub use failures::{Ending, Failed, FailedJob, FailureCause, FailureLine, FailureLog};
pub use monitor::{Monitor, MonitorCommand, MonitorEvent};
pub use queuer::{
    Card, Counts, JobId, JobKey, LaneCounts, Rate, Reach, Refusal, Round, Rules, State, Strategy, Survey,
    WaitingRoom, Why,
};
pub use ticker::Ticker;
