//! What becomes of the jobs of a batch whose attempts failed: each is put where its fate says.

use tidegate_plugin::Failure;

use super::ran::Yield;
use super::setup::Setback;
use crate::error_record;
use crate::error_record::Case;
use crate::gather::Item;
use crate::result::{Halts, Hindrance};
use crate::retrying;
use crate::retrying::{Fate, Retrying, Why};
use crate::stats::ClosedBy;
use crate::turn;
use tidegate_config::Take;
use tidegate_dispatch::{Ending, Failed, FailedJob, FailureCause, JobEnd};
use tidegate_model::{Address, Timestamp};
use tidegate_store::{Delayed, Outcome};

/// How a step goes about failed attempts of one batch.
pub(crate) struct Failing<'w> {
    pub(crate) retrying: &'w Retrying,
    pub(crate) step: &'w Address,
    pub(crate) take: Take,
    pub(crate) generation: u64,
}

/// Where a job of a batch is after its attempt.
pub(crate) enum After {
    /// It is through, and that is on record.
    Through(Outcome),
    /// It stands in the store by itself.
    Stays,
    /// It keeps its place in the order, and waits there for its next attempt.
    Waits(Box<Delayed>, JobEnd),
    /// It stands in the way of the step.
    Halts(Box<Failure>, Halts),
}

impl Failing<'_> {
    /// What the step runs could not be set up: the job waits, or stands in the way.
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

    /// It was no attempt: the job waits.
    fn holds(&self, item: &Item<'_>, until: Timestamp, now: Timestamp, made: &mut Yield) -> After {
        // A step that picks knows by itself when it goes on.
        let due = if made.sequential { now } else { until };
        stays(made, retrying::held(self.step, item, due), JobEnd::Held(until))
    }

    /// `refused`: there was no attempt, and the outside has said that the job is invalid.
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
                let row = retrying::delayed(self.step, item, &failure, at, now);
                return stays(made, row, JobEnd::Delayed(at));
            }
            Fate::Held(until) => {
                made.ran.held = Some(Hindrance { by: ClosedBy::Job, why: failure.message });
                return self.holds(item, until, now, made);
            }
            Fate::Pending => {
                let row = retrying::pending(self.step, item, &failure.message, now);
                made.ran.stays(row, JobEnd::Pending);
                return After::Stays;
            }
            Fate::Error => {
                let (step, take, generation) = (self.step, self.take, self.generation);
                let case = Case { now, step, take, generation, item };
                // Writing plain texts and numbers to memory cannot fail; were it to, the step stops.
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

/// Notes the job for the log, which tells of it once this is durable.
fn note(item: &Item<'_>, failure: &Failure, ending: Ending, made: &mut Yield) {
    let cause = FailureCause { kind: failure.word(), ending };
    let job = item.given().map(|(seen, index)| format!("{}/{index}", seen.address));
    let job = FailedJob { job: job.collect::<Vec<_>>().join(" + "), why: failure.to_string() };
    Failed::add(&mut made.ran.failed, cause, job);
}

/// Where jobs are taken in order, one that waits ends its batch, but for one whose place was given up before.
fn stays(made: &mut Yield, row: Delayed, end: JobEnd) -> After {
    if !made.sequential && turn::keeps(&row.job) {
        return After::Waits(Box::new(row), end);
    }
    made.ran.stays(row, end);
    After::Stays
}
