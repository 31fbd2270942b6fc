//! Decisions, as pure functions and state machines: events in, commands out.
//!
//! Architecture Invariant: nothing here does I/O, reads a clock, or knows a thread.

mod dispatcher;
mod progress;

pub use dispatcher::{BatchId, Command, Dispatcher, End, Event, Flow, FlowInput, Room};
pub use progress::{Counters, Progress};
