//! Decisions, as pure functions and state machines: events in, commands out.
//!
//! Architecture Invariant: nothing here does I/O, reads a clock, or knows a thread.

mod dispatcher;
mod progress;
mod retry;
mod schedule;

pub use dispatcher::{
    BatchId, Before, Command, Dispatcher, End, Event, Feed, Flow, FlowInput, Gather, Port, ReadId, Redo, Room,
};
pub use progress::{Counters, Progress};
pub use retry::{Backoff, Decision, Exhausted, Jitter, RetryPolicy, Then, Tried, Trouble};
pub use schedule::{Cron, Missed, Schedule};
