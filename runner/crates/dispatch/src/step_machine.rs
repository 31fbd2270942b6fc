//! Step machine: defines the interface between the dispatcher and one step, ordered or queued.

use std::fmt::Debug;

use crate::counts::JobCounts;
use crate::protocol::{BatchEnd, BatchId, Bounds, Command, PortInput, ReadId, Turn};
use crate::waiting_room::{Hold, JobAttributes, JobKey, WaitingRoom, WaitingState};
use tidegate_model::{Due, Timestamp};

/// State machine of one step.
pub(crate) trait StepMachine: Debug + Send {
    /// Handles one event. `next_batch` is the number of the next batch.
    fn handle(&mut self, event: StepEvent, next_batch: &mut u64, now: Timestamp, commands: &mut Vec<Command>);

    /// Makes all progress that is possible now, except for starting batches on workers.
    fn advance(&mut self, context: &mut DispatchContext<'_>, now: Timestamp, commands: &mut Vec<Command>);

    /// Starts batches on free workers. A paused step starts only the batches that were begun before.
    fn run(&mut self, hands: &mut WorkerCapacity<'_>, now: Timestamp, commands: &mut Vec<Command>);

    /// Whether some batches are neither delivered nor dropped.
    fn has_left(&self) -> bool;

    /// Whether a batch runs in a pool of threads and takes no worker from other steps.
    fn is_aside(&self, _batch: BatchId) -> bool {
        false
    }

    /// Records that a running batch has left its worker. Returns whether it had one.
    fn go_aside(&mut self, batch: BatchId) -> bool;

    /// Adds a job to the waiting room.
    fn add_waiting(&mut self, _card: &JobAttributes<'_>, _state: WaitingState) {}

    /// Adds a job that waits in the store for its next attempt and goes before all others.
    fn park(&mut self, _turn: Turn, _due: Timestamp) {}

    /// Adds an output that was made earlier and is due at `due`.
    fn add_delayed_output(&mut self, _key: JobKey, _due: Due) {}

    /// Adds completed jobs, which were pending.
    fn settle(&mut self, _jobs: &[SettledJob], _now: Timestamp) {}

    /// Frees the lane of a pending job.
    fn free_lane(&mut self, _key: JobKey, _now: Timestamp) {}

    /// Holds a lane, or ends its hold.
    fn hold_lane(&mut self, _lane: &[u8], _hold: Option<Hold>) {}

    /// State of a job in the waiting room.
    fn state(&self, _key: JobKey) -> Option<WaitingState> {
        None
    }

    /// Changes the due time of a delayed job.
    fn reschedule(&mut self, _key: JobKey, _due: Due) {}

    /// Removes a job that is neither in flight nor waiting for the delivery of a known outcome.
    fn cancel(&mut self, _key: JobKey, _now: Timestamp) {}

    /// Whether the step gives back all jobs that it has claimed and not run, and claims no other.
    fn withhold_claims(&mut self, _withhold: bool) {}

    /// Jobs that are claimed or being claimed, and that do not run.
    fn claimed(&self) -> Vec<JobKey> {
        Vec::new()
    }

    /// Whether a job of the input is being cancelled.
    fn is_cancelling(&self, _index: u64) -> bool {
        false
    }

    /// Ends the cancellation of a job of the input that was not cancelled.
    fn release(&mut self, _index: u64) {}

    /// Marks a cancelled job of the input as accounted for.
    fn mark_cancelled(&mut self, _index: u64, _commands: &mut Vec<Command>) {}

    /// Snapshot of the waiting room; `None` for an ordered step.
    fn look(&self) -> Option<QueueSnapshot<'_>> {
        None
    }

    /// Counts the jobs by state, and lists at most `lanes` lanes.
    fn job_counts(&self, heads: &[u64], lanes: usize, now: Timestamp) -> JobCounts;

    /// Excludes the step before the run starts.
    fn exclude(&mut self);

    /// Whether a job halted the step, so that it takes no more jobs in this run.
    fn is_halted(&self) -> bool;

    /// Whether the step cannot finish its jobs in this run.
    fn cannot_finish(&self) -> bool;

    /// Whether some of its work is in flight.
    fn is_busy(&self, stopping: bool) -> bool;

    /// Whether some work that was begun, or that runs without being begun, is not delivered.
    fn is_at_work(&self) -> bool;

    /// Whether the step has nothing to do until another step or client adds jobs.
    fn is_drained(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool;

    /// Whether the setup of the step failed and is retried later.
    fn is_held(&self, now: Timestamp) -> bool;

    /// Time of the next work, if the step waits for a time.
    fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp>;
}

/// Snapshot of the waiting room of a queued step, and of the conditions that block the whole step.
#[derive(Clone, Copy, Debug)]
pub struct QueueSnapshot<'a> {
    pub room: &'a WaitingRoom,
    /// The step is paused by an operator.
    pub paused: bool,
    /// Time of the next check of its gate, which was closed at the last one.
    pub gate: Option<Timestamp>,
    /// Time before which nothing starts, because a job reported its gate closed.
    pub held_until: Option<Timestamp>,
    /// Last index that is considered, if search-ahead is limited.
    pub ahead: Option<u64>,
    /// Last index that was read.
    pub read: u64,
    /// A job halted the step.
    pub halted: bool,
    /// The first job that is not delivered, if the results of others wait for it.
    pub first_in_line: Option<JobKey>,
}

/// A completed job, which was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledJob {
    pub key: JobKey,
    /// Whether it is submitted again, because the external system does not know it.
    pub resubmits: bool,
}

/// State of the dispatcher that a step reads when it advances.
#[derive(Debug)]
pub(crate) struct DispatchContext<'a> {
    pub(crate) bounds: &'a Bounds,
    /// The last index of each queue.
    pub(crate) heads: &'a [u64],
    pub(crate) next_batch: &'a mut u64,
    pub(crate) mode: Mode,
}

/// Worker capacity that a step may use.
#[derive(Debug)]
pub(crate) struct WorkerCapacity<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) paused: bool,
    /// Number of further batches that the workers can take.
    pub(crate) free: &'a mut usize,
    /// A batch of the step that could start has found no free worker.
    pub(crate) is_short: bool,
    pub(crate) next_batch: &'a mut u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Starts nothing until it is resumed.
    Paused,
    /// Starts nothing more in this run.
    Stopping,
}

/// Fact about one step: see [`crate::dispatcher::Event`].
#[derive(Clone, Debug)]
pub(crate) enum StepEvent {
    Read { input: PortInput, read: ReadId, first: u64, jobs: usize, bytes: usize },
    Idle { input: PortInput },
    Full { input: PortInput, full: bool },
    Ended { input: PortInput },
    Broken { input: PortInput },
    Returned { due: Timestamp },
    Parked { turn: Turn, due: Timestamp },
    Gone { turn: Turn },
    NoneDue { next: Option<Timestamp> },
    Picked { batch: BatchId, bytes: usize },
    Begun { batch: BatchId },
    Ran { batch: BatchId, ran: BatchEnd },
    Committed { batch: BatchId },
    Gate { open: bool },
    Hold { until: Timestamp },
    PutBack { batch: BatchId },
    Failed,
    GivenBack,
}

/// Returns the next batch number and advances the counter.
pub(crate) fn number(next: &mut u64) -> BatchId {
    let id = BatchId(*next);
    *next += 1;
    id
}
