//! What became of a batch, and what its jobs have come to while it runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_plugin::{Failure, Outputs, Payloads};

use crate::config::{self, Target};
use crate::decide::{Counters, EndedBy, Failed, JobEnd};
use crate::engine::delivery::Made;
use crate::engine::gather::Item;
use crate::engine::held::Attempt;
use crate::engine::retrying::{self, Halts};
use crate::engine::stats::ClosedBy;
use crate::store::{Delayed, Outcome, Span};
use crate::words::{Address, DeliveryHash, Origins, Timestamp};

/// What became of a batch.
#[derive(Debug, Default)]
pub(in crate::engine) struct Ran {
    /// How many of its jobs are accounted for: all, or those before the one that halts the step.
    pub(in crate::engine) taken: usize,
    /// In the order of the step's bindings.
    pub(in crate::engine) outputs: Vec<Made>,
    /// Error records.
    pub(in crate::engine) errors: Option<Made>,
    /// Jobs that are run again, and outputs that are due later.
    pub(in crate::engine) delayed: Vec<Delayed>,
    pub(in crate::engine) outcomes: Vec<(DeliveryHash, Outcome)>,
    /// Jobs that are no suspects any more when this is delivered.
    pub(in crate::engine) settles: Vec<Span>,
    pub(in crate::engine) counters: Counters,
    pub(in crate::engine) halt: Option<Stumble>,
    /// How many of those that are taken come again.
    pub(in crate::engine) stayed: usize,
    /// Of jobs that were picked: what became of each that is taken.
    pub(in crate::engine) ends: Vec<JobEnd>,
    /// By cause: the jobs that failed for good.
    pub(in crate::engine) failed: Vec<Failed>,
    /// What keeps the step from starting anything, if the batch has come upon that.
    pub(in crate::engine) held: Option<Hindrance>,
    /// Nothing of it has run, and it can run again as it is.
    pub(in crate::engine) goes_back: bool,
    /// The rest was not attempted: it took long, or gave much.
    pub(in crate::engine) cut: bool,
    /// The job behind those that were taken waits for its next attempt: as it is delivered when its turn comes
    /// before that.
    pub(in crate::engine) waits: Option<Box<Ran>>,
    /// How long the worker took.
    pub(in crate::engine) took: Duration,
}

/// What keeps a step from starting anything.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Hindrance {
    pub(in crate::engine) by: ClosedBy,
    /// A sentence fragment.
    pub(in crate::engine) why: String,
}

impl Hindrance {
    /// What the step runs could not be set up, and is set up again at `until`.
    pub(super) fn of_setup(failure: &Failure, until: Timestamp) -> Self {
        Self { by: ClosedBy::Setup { until }, why: failure.to_string() }
    }
}

/// The job that halted a step, and why.
#[derive(Debug)]
pub(in crate::engine) struct Stumble {
    pub(in crate::engine) index: u64,
    pub(in crate::engine) failure: Failure,
    pub(in crate::engine) halts: Halts,
    /// Where the job stood in a file.
    pub(in crate::engine) file: Option<(Arc<Path>, u64)>,
}

/// What the jobs of a batch have come to so far.
pub(super) struct Yield {
    pub(super) ran: Ran,
    pub(super) outputs: Outputs,
    /// By binding to a queue: where its jobs come from, and what they carry. Sinks keep neither.
    pub(super) sides: Vec<Option<Side>>,
    pub(super) errors: Payloads,
    pub(super) error_side: Side,
    pub(super) carries: bool,
    /// Its jobs were picked.
    pub(super) sequential: bool,
    has_bindings: bool,
    /// How many outputs were noted, and how many of those that are due later.
    given: usize,
    late: usize,
    /// Outputs that were made before.
    handed_on: usize,
}

pub(super) struct Side {
    origins: Origins,
    carried: Payloads,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) to_queue: bool,
}

impl Ran {
    /// A job is taken, and stands in the store by itself.
    pub(super) fn stays(&mut self, row: Delayed, end: JobEnd) {
        self.delayed.push(row);
        self.taken += 1;
        self.stayed += 1;
        self.ends.push(end);
    }

    /// One job that waits for its next attempt.
    pub(super) fn waiting(row: Delayed, end: JobEnd, settles: Vec<Span>) -> Box<Self> {
        let mut ran = Self { settles, ..Self::default() };
        ran.stays(row, end);
        Box::new(ran)
    }

    /// What was attempted of its one job, where that waits for its next attempt.
    pub(in crate::engine) fn attempt(&self) -> Option<Attempt> {
        let job = &self.delayed.first()?.job;
        Some(Attempt { number: job.attempt, first: job.first_attempt, error: job.last_error.clone() })
    }

    /// Why the worker ended the batch.
    pub(in crate::engine) fn ending(&self) -> EndedBy {
        let waits = self.waits.as_ref().and_then(|waits| waits.ends.first());
        match waits {
            Some(JobEnd::Held(until)) => EndedBy::Holds(*until),
            Some(JobEnd::Delayed(due)) => EndedBy::Waits(*due),
            _ if self.halt.is_some() => EndedBy::Halts,
            _ if self.cut => EndedBy::Cut,
            _ => EndedBy::Whole,
        }
    }

    /// Bytes of everything that it brings.
    pub(in crate::engine) fn byte_len(&self) -> usize {
        self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len()).sum()
    }
}

impl Yield {
    /// `origins`: of nothing yet.
    pub(super) fn new(bindings: &[Binding], origins: &Origins, carries: bool, sequential: bool) -> Self {
        let side = || Side { origins: origins.clone(), carried: Payloads::new() };
        Self {
            ran: Ran::default(),
            outputs: Outputs::new(bindings.iter().map(|binding| binding.name.as_str())),
            sides: bindings.iter().map(|binding| binding.to_queue.then(side)).collect(),
            errors: Payloads::new(),
            error_side: side(),
            carries,
            sequential,
            has_bindings: !bindings.is_empty(),
            given: 0,
            late: 0,
            handed_on: 0,
        }
    }

    /// What outputs and errors come to so far, in bytes.
    pub(super) fn byte_len(&self) -> usize {
        let outputs = (0..self.outputs.bindings()).filter_map(|position| self.outputs.get(position));
        let outputs: usize = outputs.map(Payloads::byte_len).sum();
        outputs + self.outputs.delayed().payloads().byte_len() + self.errors.byte_len()
    }

    /// What the next job comes to was made by an earlier delivery.
    pub(super) fn was_given_before(&mut self) {
        self.ran.counters.filtered += u64::from(self.has_bindings);
        self.take();
    }

    /// Notes what `item` came to.
    pub(super) fn note(&mut self, step: &Address, bindings: &[Binding], item: &Item<'_>) -> Outcome {
        self.note_origins(item);
        for (position, due_ms, payload) in self.outputs.delayed().iter().skip(self.late) {
            let to = bindings.get(position).map_or("", |binding| &binding.name);
            self.ran.delayed.push(retrying::late(step, item, to, Timestamp(due_ms), payload));
        }
        let later = self.outputs.delayed().len() - self.late;
        self.late += later;
        let jobs = self.outputs.total() - self.given;
        self.given += jobs;
        self.ran.counters.filtered += u64::from(jobs + later == 0 && self.has_bindings);
        match u32::try_from(jobs + later) {
            Ok(0) => Outcome::Nothing,
            jobs => Outcome::Output { jobs: jobs.unwrap_or(u32::MAX) },
        }
    }

    /// A job is through.
    pub(super) fn through(&mut self, item: &Item<'_>, outcome: Outcome, keeps_records: bool) {
        // An output that was made before is on record with its job.
        if keeps_records && item.to.is_none() {
            self.ran.outcomes.push((item.hash, outcome));
        }
        self.handed_on += usize::from(item.to.is_some());
        self.take();
    }

    fn take(&mut self) {
        self.ran.taken += 1;
        if self.sequential {
            self.ran.ends.push(JobEnd::Finished);
        }
    }

    /// Notes for all jobs that `item` came to where they come from.
    fn note_origins(&mut self, item: &Item<'_>) {
        for (position, side) in self.sides.iter_mut().enumerate() {
            let Some(side) = side else { continue };
            let there = self.outputs.get(position).map_or(0, Payloads::len);
            while side.origins.len() < there {
                side.push(item, self.carries);
            }
        }
    }

    pub(super) fn finish(self) -> Ran {
        let mut ran = self.ran;
        // What comes again is counted when it is through; an output that was made before, with its job.
        ran.counters.taken = (ran.taken - ran.stayed - self.handed_on) as u64;
        ran.counters.given = self.given as u64;
        let made = self.outputs.into_payloads().into_iter().zip(self.sides);
        ran.outputs = made
            .map(|(payloads, side)| match side {
                Some(side) => side.made(payloads, self.carries),
                None => Made::for_sink(payloads),
            })
            .collect();
        ran.errors = (!self.errors.is_empty()).then(|| self.error_side.made(self.errors, self.carries));
        ran
    }
}

impl Side {
    pub(super) fn push(&mut self, item: &Item<'_>, carries: bool) {
        self.origins.push(item.indices);
        if carries {
            self.carried.push(item.carried.as_bytes());
        }
    }

    fn made(self, payloads: Payloads, carries: bool) -> Made {
        Made::for_queue(payloads, &self.origins, carries.then_some(self.carried))
    }
}

impl Binding {
    pub(super) fn new(output: &config::OutputRef) -> Self {
        Self { name: output.binding.clone(), to_queue: matches!(output.target, Target::Queue(_)) }
    }
}
