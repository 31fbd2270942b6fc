//! Batch result builder: collects the results of the jobs of a batch while it runs.

use tidegate_plugin::{Checkpoint, Failure, FailureKind, Outputs, Payloads};

use crate::batch::input::BatchInput;
use crate::batch::job_builder::JobInput;
use crate::batch::keyed_job::{KeyedError, KeyedJob};
use crate::batch::result::BatchResult;
use crate::batch::retry;
use crate::commit::request::OutputBlock;
use crate::processor::services;
use tidegate_config::{Configuration, OutputRef, Target};
use tidegate_dispatch::JobOutcome;
use tidegate_model::{Address, Origins, Timestamp};
use tidegate_store::{DeliveryOutcome, FinishedEnd, FinishedOutput, FinishedResult, ParkedId};

/// Results of the jobs so far.
pub(crate) struct BatchResultBuilder {
    pub(crate) ran: BatchResult,
    pub(crate) outputs: Outputs,
    /// Origins and provenance of the outputs, by binding to a queue. Sinks keep neither.
    pub(crate) sides: Vec<Option<OutputColumns>>,
    pub(crate) errors: Payloads,
    pub(crate) error_side: OutputColumns,
    /// Whether the jobs were picked.
    pub(crate) sequential: bool,
    /// Whether results of picked jobs are delivered in order.
    pub(crate) in_order: bool,
    has_bindings: bool,
    /// Number of recorded outputs, and of recorded delayed outputs.
    given: usize,
    late: usize,
    /// Number of delayed outputs that were delivered.
    handed_on: usize,
}

pub(crate) struct OutputColumns {
    origins: Origins,
    /// `None`: no provenance is carried.
    carried: Option<Payloads>,
}

#[derive(Debug)]
pub(crate) struct OutputSpec {
    pub(crate) name: String,
    pub(crate) to_queue: bool,
    /// The queue has `meta = false`.
    drops_provenance: bool,
}

impl BatchResultBuilder {
    /// `origins`: an empty list of origins.
    pub(crate) fn new(bindings: &[OutputSpec], origins: &Origins, carries: bool, work: &BatchInput) -> Self {
        let side =
            |carries: bool| OutputColumns { origins: origins.clone(), carried: carries.then(Payloads::new) };
        let of = |spec: &OutputSpec| spec.to_queue.then(|| side(carries && !spec.drops_provenance));
        Self {
            ran: BatchResult::default(),
            outputs: Outputs::new(bindings.iter().map(|binding| binding.name.as_str())),
            sides: bindings.iter().map(of).collect(),
            errors: Payloads::new(),
            error_side: side(carries),
            sequential: work.is_picked,
            in_order: work.in_order,
            has_bindings: !bindings.is_empty(),
            given: 0,
            late: 0,
            handed_on: 0,
        }
    }

    /// Bytes of the outputs and errors so far.
    pub(crate) fn byte_len(&self) -> usize {
        let outputs = (0..self.outputs.bindings()).filter_map(|position| self.outputs.get(position));
        let outputs: usize = outputs.map(Payloads::byte_len).sum();
        outputs + self.outputs.delayed().payloads().byte_len() + self.errors.byte_len()
    }

    /// Records that the next job was delivered earlier.
    pub(crate) fn was_given_before(&mut self) {
        self.ran.counters.filtered += u64::from(self.has_bindings);
        self.take();
    }

    /// Records the outputs of `item`, which is finished.
    pub(crate) fn note(
        &mut self,
        step: &Address,
        bindings: &[OutputSpec],
        item: &JobInput<'_>,
    ) -> DeliveryOutcome {
        let jobs = self.note_outputs(step, bindings, item);
        self.ran.counters.filtered += u64::from(jobs == 0 && self.has_bindings);
        match u32::try_from(jobs) {
            Ok(0) => DeliveryOutcome::Nothing,
            jobs => DeliveryOutcome::Output { jobs: jobs.unwrap_or(u32::MAX) },
        }
    }

    /// Records the outputs of `item`, and returns their number.
    pub(crate) fn note_outputs(
        &mut self,
        step: &Address,
        bindings: &[OutputSpec],
        item: &JobInput<'_>,
    ) -> usize {
        self.note_origins(item);
        for (position, due_ms, payload) in self.outputs.delayed().iter().skip(self.late) {
            let to = bindings.get(position).map_or("", |binding| &binding.name);
            self.ran.delayed.push(retry::delayed_output(step, item, to, Timestamp(due_ms), payload));
        }
        let later = self.outputs.delayed().len() - self.late;
        self.late += later;
        let jobs = self.outputs.total() - self.given;
        self.given += jobs;
        jobs + later
    }

    /// Records the outputs of `item`, whose attempt failed: only a pending job has some. Returns false if the job is put
    /// back. The outputs of a pending job belong to the commit that makes it pending. If results are delivered in order,
    /// that is not the commit of the jobs before it, so the job runs again alone.
    pub(crate) fn fail(
        &mut self,
        step: &Address,
        bindings: &[OutputSpec],
        item: &JobInput<'_>,
        (failure, checkpoint): (&Failure, &Checkpoint),
    ) -> bool {
        let is_pending = failure.kind == FailureKind::Pending;
        if is_pending && !(self.in_order && self.ran.taken > 0) {
            self.note_outputs(step, bindings, item);
            return true;
        }
        self.outputs.roll_back(checkpoint);
        self.ran.cut |= is_pending;
        !is_pending
    }

    /// Records the outputs of a result that is in the store. `sends`: whether the output at a position is sent as a
    /// request, which an attempt does.
    ///
    /// # Errors
    /// The step no longer has an output, or now sends it.
    pub(crate) fn recall(
        &mut self,
        step: &Address,
        item: &JobInput<'_>,
        result: &FinishedResult,
        sends: impl Fn(usize) -> bool,
    ) -> Result<DeliveryOutcome, Failure> {
        let place = |output: &FinishedOutput| match self.outputs.position(&output.to) {
            _ if output.was_sent() => Ok(None),
            Some(position) if sends(position) => Err(services::late_request(&output.to)),
            Some(position) => Ok(Some(position)),
            None => Err(services::late_output_gone(&output.to)),
        };
        let places: Vec<Option<usize>> = result.outputs.iter().map(place).collect::<Result<_, _>>()?;
        for (position, FinishedOutput { to, due, payload }) in places.into_iter().zip(&result.outputs) {
            let Some(position) = position else {
                self.given += 1;
                continue;
            };
            match due {
                Some(due) => self.ran.delayed.push(retry::delayed_output(step, item, to, *due, payload)),
                None => {
                    if let Some(output) = self.outputs.get_mut(position) {
                        output.push(payload);
                        self.given += 1;
                    }
                }
            }
        }
        self.note_origins(item);
        result.events.iter().for_each(|event| self.ran.events.push(event));
        let count = u32::try_from(result.outputs.len()).unwrap_or(u32::MAX);
        match &result.end {
            FinishedEnd::Delivered if count > 0 => Ok(DeliveryOutcome::Output { jobs: count }),
            FinishedEnd::Delivered => {
                self.ran.counters.filtered += u64::from(self.has_bindings);
                Ok(DeliveryOutcome::Nothing)
            }
            FinishedEnd::SetAside { record } => {
                self.errors.push(record);
                self.error_side.push(item);
                self.ran.counters.failed += 1;
                Ok(DeliveryOutcome::Error)
            }
            FinishedEnd::Dropped => {
                self.ran.counters.failed += 1;
                Ok(DeliveryOutcome::Error)
            }
        }
    }

    /// Records a finished job. `recorded`: the begin of its attempt, if the step keeps delivery records.
    pub(crate) fn through(
        &mut self,
        item: &JobInput<'_>,
        outcome: DeliveryOutcome,
        recorded: Option<Timestamp>,
    ) {
        // A delayed output is recorded with its job.
        if recorded.is_some() && item.to.is_none() {
            self.ran.outcomes.push(item.only_input(), item.hash, (outcome, item.times(recorded)));
        }
        self.handed_on += usize::from(item.to.is_some());
        self.take();
    }

    fn take(&mut self) {
        self.ran.taken += 1;
        if self.sequential {
            self.ran.ends.push(JobOutcome::Finished);
        }
    }

    /// Records the origin of all outputs of `item`.
    fn note_origins(&mut self, item: &JobInput<'_>) {
        for (position, side) in self.sides.iter_mut().enumerate() {
            let Some(side) = side else { continue };
            let there = self.outputs.get(position).map_or(0, Payloads::len);
            while side.origins.len() < there {
                side.push(item);
            }
        }
    }

    /// Moves the last error record, if there is one, to the jobs of a join by key: the committer decides whether it
    /// counts. `row`: the job has waited, and its time is over.
    pub(crate) fn fails_in_join(&mut self, item: &JobInput<'_>, row: Option<ParkedId>) {
        let record = self.errors.get(0).map(|record| {
            let (record, indices) = (record.to_vec(), item.indices.to_vec());
            Box::new(KeyedError { record, indices, carried: item.carried.clone() })
        });
        self.errors.clear();
        self.ran.keyed.push(KeyedJob::Fails { row, record });
    }

    pub(crate) fn finish(self) -> BatchResult {
        let mut ran = self.ran;
        // A redelivered job is counted when it is finished, and a delayed output with its job.
        ran.counters.taken = (ran.taken - ran.stayed - self.handed_on) as u64;
        ran.counters.given = self.given as u64;
        let made = self.outputs.into_payloads().into_iter().zip(self.sides);
        ran.outputs = made
            .map(|(payloads, side)| match side {
                Some(side) => side.made(payloads),
                None => OutputBlock::for_sink(payloads),
            })
            .collect();
        ran.errors = (!self.errors.is_empty()).then(|| self.error_side.made(self.errors));
        ran
    }
}

impl OutputColumns {
    pub(crate) fn push(&mut self, item: &JobInput<'_>) {
        self.origins.push(item.indices);
        if let Some(carried) = &mut self.carried {
            carried.push(item.carried.as_bytes());
        }
    }

    fn made(self, payloads: Payloads) -> OutputBlock {
        OutputBlock::for_queue(payloads, &self.origins, self.carried)
    }
}

impl OutputSpec {
    pub(crate) fn new(configuration: &Configuration, output: &OutputRef) -> Self {
        let queue = match output.target {
            Target::Queue(queue) => configuration.queues.get(queue.0),
            Target::Sink(_) => None,
        };
        let drops_provenance = queue.is_some_and(|queue| queue.meta.dropped);
        Self { name: output.binding.clone(), to_queue: queue.is_some(), drops_provenance }
    }
}
