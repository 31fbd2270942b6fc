//! Decisions of Tidegate: pure functions and state machines that turn events into commands.
//!
//! Architecture Invariant: nothing here does I/O, reads a clock or starts a thread.
//!
//! | module | content |
//! | --- | --- |
//! | `dispatcher`, `protocol` | the state machine of all steps, with its events and commands |
//! | `ordered` | a step that takes its jobs in order |
//! | `queued`, `waiting_room` | a step that picks its jobs by the rules of a queuer |
//! | `poller` | the polls of pending jobs |
//! | `thread_shares` | the threads that each step has for attempts with effects |
//! | `ticker` | the ticks of a schedule |
//! | `restarts` | the starts of the command of a source |
//! | `failures` | the log lines of failed jobs |
//! | `error_watch` | whether a reload is rolled back, because more attempts fail |

mod batch_size;
mod counts;
mod dispatcher;
mod error_watch;
mod failures;
mod input;
mod ordered;
mod poller;
mod protocol;
mod queued;
mod restarts;
mod step_machine;
mod thread_shares;
mod ticker;
mod waiting_room;

pub use crate::poller::{PollRules, Poller, PollerCommand, PollerEvent};
pub use crate::waiting_room::{
    HeldLane, Hold, InvalidTransition, JobAttributes, JobId, JobKey, LaneCounts, LaneSummary, PreviewHorizon,
    QueuePolicy, Round, StartOrder, StartRate, StateCounts, WaitReason, WaitingRoom, WaitingState,
};
pub use batch_size::LONG;
pub use dispatcher::{
    BatchComposition, BatchCut, BatchEnd, BatchId, Bounds, Command, Dispatcher, DurabilityBarrier, Event,
    InputCounts, InputKind, InputPlan, InputPort, JobCounts, JobOutcome, PortInput, QueuePlan, QueueSnapshot,
    QueuedCounts, ReadId, RecoveredBatch, RunOutcome, SettledJob, StepPlan, Turn, Wait,
};
pub use error_watch::{AttemptShare, ErrorLimit, ErrorWatch, ErrorWatchEvent, RollBack, Swap};
pub use failures::{Ending, Failed, FailedJob, FailureCause, FailureLine, FailureLog, NextAttempt};
pub use restarts::{NextStart, Restarts};
pub use thread_shares::{NextTask, TaskTicket, ThreadShares};
pub use ticker::Ticker;
