//! Decisions, as pure functions and state machines: events and `now` in, commands out.
//!
//! Architecture Invariant: nothing here does I/O, reads a clock, or knows a thread.

mod progress;

pub use progress::{Counters, Progress};
