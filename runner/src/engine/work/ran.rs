//! What became of a batch, and what its jobs have come to while it runs.

use std::path::Path;
use std::sync::Arc;

use tidegate_plugin::{Failure, Outputs, Payloads};

use crate::config::{self, Target};
use crate::decide::{Counters, JobEnd};
use crate::engine::delivery::Made;
use crate::engine::gather::Item;
use crate::store::{Delayed, Outcome, Span};
use crate::words::{DeliveryHash, Origins};

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
    /// Why a job of it has found its gate closed, if one has.
    pub(in crate::engine) held: Option<String>,
}

/// The job that halted a step, and why.
#[derive(Debug)]
pub(in crate::engine) struct Stumble {
    pub(in crate::engine) index: u64,
    pub(in crate::engine) failure: Failure,
    /// Where the job stood in a file.
    pub(in crate::engine) file: Option<(Arc<Path>, u64)>,
}

/// What the jobs of a batch have come to so far.
pub(super) struct Yield {
    pub(super) outputs: Outputs,
    /// By binding to a queue: where its jobs come from, and what they carry. Sinks keep neither.
    pub(super) sides: Vec<Option<Side>>,
    pub(super) errors: Payloads,
    pub(super) error_side: Side,
    pub(super) carries: bool,
}

pub(super) struct Side {
    pub(super) origins: Origins,
    pub(super) carried: Payloads,
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

    /// Bytes of everything that it brings.
    pub(in crate::engine) fn byte_len(&self) -> usize {
        self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len()).sum()
    }
}

impl Yield {
    /// Notes for all jobs that `item` came to where they come from.
    pub(super) fn note(&mut self, item: &Item<'_>) {
        for (position, side) in self.sides.iter_mut().enumerate() {
            let Some(side) = side else { continue };
            let there = self.outputs.get(position).map_or(0, Payloads::len);
            while side.origins.len() < there {
                side.push(item, self.carries);
            }
        }
    }

    pub(super) fn finish(self, ran: &mut Ran) {
        let made = self.outputs.into_payloads().into_iter().zip(self.sides);
        ran.outputs = made
            .map(|(payloads, side)| match side {
                Some(side) => side.made(payloads, self.carries),
                None => Made::for_sink(payloads),
            })
            .collect();
        ran.errors = (!self.errors.is_empty()).then(|| self.error_side.made(self.errors, self.carries));
    }
}

impl Side {
    pub(super) fn push(&mut self, item: &Item<'_>, carries: bool) {
        self.origins.push(item.indices);
        if carries {
            self.carried.push(item.carried.as_bytes());
        }
    }

    pub(super) fn made(self, payloads: Payloads, carries: bool) -> Made {
        Made::for_queue(payloads, &self.origins, carries.then_some(self.carried))
    }
}

impl Binding {
    pub(super) fn new(output: &config::OutputRef) -> Self {
        Self { name: output.binding.clone(), to_queue: matches!(output.target, Target::Queue(_)) }
    }
}
