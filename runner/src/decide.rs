//! Decisions, as pure functions and state machines: events in, commands out.
//!
//! Architecture Invariant: nothing here does I/O, reads a clock, or knows a thread.

mod dispatcher;
mod monitor;
mod progress;
mod queuer;
mod retry;
mod schedule;

pub use dispatcher::{
    BatchId, Before, Bounds, Command, Dispatcher, End, Event, Feed, Flow, FlowInput, Gather, JobEnd, Look,
    Picking, Port, ReadId, Redo,
};
pub use monitor::{Monitor, MonitorCommand, MonitorEvent, Soon, Status};
pub use progress::{Counters, Progress};
pub use queuer::{
    Card, Counts, JobId, JobKey, LaneCounts, Rate, Refusal, Round, Rules, State, Strategy, WaitingRoom, Why,
};
pub use retry::{Backoff, Decision, Exhausted, Jitter, RetryPolicy, Then, Tried, Trouble};
pub use schedule::{Cron, Missed, Schedule, Ticker};
