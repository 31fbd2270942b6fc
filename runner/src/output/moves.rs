//! `Outcomes`: reports step by step which waiting jobs an operator's request moved.

use std::collections::BTreeMap;

use serde::Serialize;

use super::exit::{self, Exit};
use super::table::{grouped, jobs};
use crate::cli::Format;
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use tidegate_engine::{MoveSummary, Request, RequestOutcome};
use tidegate_model::Address;

/// The requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveAction {
    Now,
    Cancel { drop: bool, pending: bool },
}

/// The outcomes of a request.
pub(crate) struct Outcomes<'a> {
    place: &'a CommandTarget,
    how: MoveAction,
    answered_by: AnsweredBy,
    /// The request chooses some of the jobs.
    pub(crate) filtered: bool,
    steps: BTreeMap<Address, Outcome>,
}

/// The outcome for the jobs of one step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// The jobs that were moved, and those that the runner or the store left unchanged.
    moved: MoveSummary,
    /// Left unchanged, since an external system has them and the request excludes those.
    pub(crate) outside: u64,
    /// Left unchanged, since they are outputs that were already made and the request does not drop them.
    pub(crate) outputs: u64,
    /// Left unchanged, since they are not on their queue yet and the request does not drop them.
    pub(crate) late: u64,
    /// Left unchanged, since they wait for a partner without a time limit, so that there is no time to bring forward.
    pub(crate) unmatched: u64,
    /// Already due.
    pub(crate) due: u64,
    /// Left unchanged, since an attempt runs or a result is being delivered.
    pub(crate) busy: u64,
}

/// For programs.
#[derive(Serialize)]
struct MoveReport {
    jobs: u64,
    /// Left unchanged.
    busy: u64,
    /// Not waiting any more, or not for a time.
    gone: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepMoveReport>,
}

#[derive(Serialize)]
struct StepMoveReport {
    step: String,
    jobs: u64,
    busy: u64,
    gone: u64,
}

impl<'a> Outcomes<'a> {
    pub(crate) fn new(place: &'a CommandTarget, how: MoveAction) -> Self {
        Self { place, how, answered_by: AnsweredBy::Store, filtered: false, steps: BTreeMap::new() }
    }

    pub(crate) fn of(&mut self, step: &Address) -> &mut Outcome {
        self.steps.entry(step.clone()).or_default()
    }

    /// Moves jobs of a step.
    pub(crate) fn change(&mut self, step: &Address, request: Request) -> Result<(), Exit> {
        let (outcome, answered_by) = self.place.change(request)?;
        let some = match outcome {
            Ok(RequestOutcome::Hastened(moved) | RequestOutcome::Cancelled(moved)) => moved,
            Ok(_) => return Err(other_question()),
            Err(why) => {
                // Earlier changes of the command remain.
                self.print(Format::Text);
                return Err(exit::fail(why));
            }
        };
        self.answered_by = answered_by;
        let moved = &mut self.of(step).moved;
        moved.jobs += some.jobs;
        moved.busy += some.busy;
        moved.gone += some.gone;
        Ok(())
    }

    /// Whether no step has an outcome.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether all of them had already gone.
    pub(crate) fn all_gone(&self) -> bool {
        self.steps.values().all(|outcome| outcome.gone() > 0 && outcome.moved.jobs + outcome.left() == 0)
    }

    /// Prints the outcomes. A job that was left unchanged makes the command fail.
    pub(crate) fn print(&self, format: Format) -> Exit {
        let left: u64 = self.steps.values().map(Outcome::left).sum();
        let exit = if left > 0 { Exit::Failed } else { Exit::Done };
        if format == Format::Json {
            return print_json(&self.report(), exit);
        }
        for (step, outcome) in &self.steps {
            for line in self.done(step, outcome) {
                print_text(&line);
            }
        }
        for (step, outcome) in &self.steps {
            for line in self.left_alone(step, outcome) {
                exit::fail(line);
            }
        }
        exit
    }

    fn report(&self) -> MoveReport {
        let of = |(step, outcome): (&Address, &Outcome)| {
            let (jobs, busy, gone) = (outcome.moved.jobs, outcome.left(), outcome.gone());
            StepMoveReport { step: step.to_string(), jobs, busy, gone }
        };
        let steps: Vec<StepMoveReport> = self.steps.iter().map(of).collect();
        let sum = |count: fn(&StepMoveReport) -> u64| steps.iter().map(count).sum();
        MoveReport {
            jobs: sum(|step| step.jobs),
            busy: sum(|step| step.busy),
            gone: sum(|step| step.gone),
            steps,
        }
    }

    fn done(&self, step: &Address, outcome: &Outcome) -> Vec<String> {
        let mut lines = Vec::new();
        if outcome.moved.jobs > 0 {
            let count = jobs(outcome.moved.jobs);
            lines.push(match (self.how, self.answered_by) {
                (MoveAction::Now, AnsweredBy::Runner) => format!("{count} of {step} due now"),
                (MoveAction::Now, AnsweredBy::Store) => {
                    format!("{count} of {step} due with the next `tidegate run`")
                }
                (MoveAction::Cancel { drop: false, .. }, _) => {
                    format!("{count} of {step} cancelled: on the error queue{}", self.errors(step))
                }
                (MoveAction::Cancel { drop: true, .. }, _) => format!("{count} of {step} dropped"),
            });
        }
        if outcome.gone() > 0 {
            let why =
                if self.how == MoveAction::Now { "already due or finished" } else { "already finished" };
            lines.push(format!("{} of {step} {why}", jobs(outcome.gone())));
        }
        if lines.is_empty() && outcome.left() == 0 {
            let which = if self.filtered { "none of the chosen jobs" } else { "no job" };
            lines.push(format!("{which} of {step} waits for a time{}", self.partners(step)));
        }
        lines
    }

    fn left_alone(&self, step: &Address, outcome: &Outcome) -> Vec<String> {
        let mut lines = Vec::new();
        let mut left = |count: u64, what: String, why: &str| {
            if count > 0 {
                lines.push(format!("{what} of {step} unchanged: {why}"));
            }
        };
        let outside = match self.how {
            MoveAction::Now => "pending in an external system",
            MoveAction::Cancel { .. } => "pending in an external system; add `--pending` to cancel them",
        };
        left(outcome.outside, jobs(outcome.outside), outside);
        let outputs = match outcome.outputs {
            1 => "1 output".to_owned(),
            more => format!("{} outputs", grouped(more)),
        };
        left(outcome.outputs, outputs, "already made and due later; add `--drop` to discard them");
        left(outcome.late, jobs(outcome.late), "not on the queue yet; add `--drop` to discard them");
        let unmatched = "waiting for a partner without a time limit; `delayed cancel` ends the wait";
        left(outcome.unmatched, jobs(outcome.unmatched), unmatched);
        let busy = match self.how {
            MoveAction::Now => "running, or pending in an external system",
            MoveAction::Cancel { .. } => "running, or finished and not delivered yet",
        };
        let running = outcome.moved.busy + outcome.busy;
        left(running, jobs(running), &format!("each is {busy}"));
        lines
    }

    /// The step in which jobs of a join by key wait for their partners.
    fn partners(&self, step: &Address) -> String {
        let name = format!("{step}-join");
        let mut joins = self.place.configuration.steps.iter().filter(|declared| declared.joins.is_some());
        let declared = joins.any(|declared| declared.address.to_string() == name);
        if declared { format!("; its jobs without a partner wait at `{name}`") } else { String::new() }
    }

    /// The error queue of a step, if it has one.
    fn errors(&self, step: &Address) -> String {
        let configuration = &self.place.configuration;
        let declared = configuration.steps.iter().find(|declared| declared.address == *step);
        let queue = declared.and_then(|declared| declared.errors).map(|queue| &configuration.queues[queue.0]);
        queue.map_or_else(String::new, |queue| format!(" {}", queue.address))
    }
}

impl Outcome {
    fn left(&self) -> u64 {
        self.moved.busy + self.busy + self.outside + self.outputs + self.late + self.unmatched
    }

    fn gone(&self) -> u64 {
        self.moved.gone + self.due
    }
}
