//! Failure handler: decides about each job of a batch whose attempt failed.

use tidegate_plugin::Failure;

use super::result_builder::Yield;
use super::setup::Setback;
use crate::batch::error_record;
use crate::batch::error_record::Case;
use crate::batch::job_builder::Item;
use crate::batch::result::{Halts, Hindrance};
use crate::batch::retry;
use crate::batch::retry::{Fate, Retrying, Why};
use crate::step::stats::ClosedBy;
use crate::step::turn;
use tidegate_config::Take;
use tidegate_dispatch::{Ending, Failed, FailedJob, FailureCause, JobEnd};
use tidegate_model::{Address, Timestamp};
use tidegate_store::{Delayed, Outcome};

/// Failure handling of one batch.
pub(crate) struct Failing<'w> {
    pub(crate) retrying: &'w Retrying,
    pub(crate) step: &'w Address,
    pub(crate) take: Take,
    pub(crate) generation: u64,
}

/// Disposition of a job after its attempt.
pub(crate) enum After {
    /// The job is finished, and its outcome is recorded.
    Through(Outcome),
    /// The job is parked in the store.
    Stays,
    /// The job keeps its place in the order and waits there for its next attempt.
    Waits(Box<Delayed>, JobEnd),
    /// The job halts the step.
    Halts(Box<Failure>, Halts),
}

impl Failing<'_> {
    /// Handles a failed setup: the job waits, or it halts the step.
    pub(crate) fn sets_back(
        &self,
        item: &Item<'_>,
        setback: &Setback,
        now: Timestamp,
        made: &mut Yield,
    ) -> After {
        let Setback { failure, until } = setback;
        match *until {
            Some(until) => {
                made.ran.held = Some(Hindrance::of_setup(failure, until));
                self.holds(item, until, now, made)
            }
            None => After::Halts(Box::new(failure.clone()), Halts::Run),
        }
    }

    /// Puts a job back that was not attempted.
    fn holds(&self, item: &Item<'_>, until: Timestamp, now: Timestamp, made: &mut Yield) -> After {
        // A queued step keeps its own time of the next start.
        let due = if made.sequential { now } else { until };
        stays(made, retry::held(self.step, item, due), JobEnd::Held(until))
    }

    /// `refused`: there was no attempt, and the external system reported the job as invalid.
    pub(crate) fn befalls(
        &self,
        item: &Item<'_>,
        mut failure: Failure,
        refused: bool,
        now: Timestamp,
        made: &mut Yield,
    ) -> After {
        let fate =
            if refused { self.retrying.refused() } else { self.retrying.fate(item, &mut failure, now) };
        match fate {
            Fate::Again(at) => {
                let row = retry::delayed(self.step, item, &failure, at, now);
                return stays(made, row, JobEnd::Delayed(at));
            }
            Fate::Held(until) => {
                made.ran.held = Some(Hindrance { by: ClosedBy::Job, why: failure.message });
                return self.holds(item, until, now, made);
            }
            Fate::Pending => {
                let row = retry::pending(self.step, item, &failure.message, now);
                made.ran.stays(row, JobEnd::Pending);
                return After::Stays;
            }
            Fate::Error => {
                let (step, take, generation) = (self.step, self.take, self.generation);
                let case = Case { now, step, take, generation, item };
                // Serialization to memory cannot fail; if it did, the step would stop.
                if made.errors.push_with(|buffer| error_record::write(&case, &failure, buffer)).is_err() {
                    return After::Halts(Box::new(failure), Halts::Run);
                }
                made.error_side.push(item, made.carries);
                note(item, &failure, Ending::SetAside, made);
            }
            Fate::Dropped(Why::AtMostOnce) => note(item, &failure, Ending::DroppedOnce, made),
            Fate::Dropped(Why::Exhausted) => note(item, &failure, Ending::DroppedByPolicy, made),
            Fate::Halts(halts) => return After::Halts(Box::new(failure), halts),
        }
        made.ran.counters.failed += 1;
        After::Through(Outcome::Error)
    }
}

/// Records the job for the log, which reports it once the batch is durable.
fn note(item: &Item<'_>, failure: &Failure, ending: Ending, made: &mut Yield) {
    let cause = FailureCause { kind: failure.word(), ending };
    let job = item.given().map(|(seen, index)| format!("{}/{index}", seen.address));
    let job = FailedJob { job: job.collect::<Vec<_>>().join(" + "), why: failure.to_string() };
    Failed::add(&mut made.ran.failed, cause, job);
}

/// Parks a job. In an ordered step a job that waits ends its batch, unless its order was given up before.
fn stays(made: &mut Yield, row: Delayed, end: JobEnd) -> After {
    if !made.sequential && turn::keeps(&row.job) {
        return After::Waits(Box::new(row), end);
    }
    made.ran.stays(row, end);
    After::Stays
}
