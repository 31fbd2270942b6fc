//! Batch runner: runs one batch through a step, on a worker's thread.
//!
//! A batch of one picked job is suspended while its attempt calls an external system. Its attempt alone is kept,
//! and the batch is walked again with the answer. Everything else that the first walk made is made again.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_plugin::{Checkpoint, Failure, FailureKind, Job, Outputs};

use super::budget;
use super::budget::BatchBudget;
use super::crash_guard;
use super::crash_guard::BatchCrashGuard;
use super::error_record::RecordedConfiguration;
use super::events::{EventRecorder, EventWriter, JobEvent};
use super::input::{BatchInput, BatchSlice};
use super::job_builder::{BatchCursor, JobBuilder, JobInput};
use super::join_keys::{JoinKeys, UnpairedJob};
use super::outcomes::DeliveryKeys;
use super::reason;
use super::result::{BatchResult, HaltCause, HaltReason, StartBlock};
use super::retry;
use super::retry::{RetryDecider, before};
use crate::commit::request::OutputBlock;
use crate::processor::SharedResources;
use crate::processor::chain;
use crate::processor::chain::ProcessorChain;
use crate::processor::monitor_protocol::JobVerdict;
use crate::processor::services;
use crate::processor::walk::{AttemptTimes, Attempted, Calling, Suspended};
use crate::step::job_attributes::{AttributeExtractor, LaneSource};
use tidegate_components::calls::{Answer, Call};
use tidegate_components::redact::Redactor;
use tidegate_config::{Configuration, Queuer};
use tidegate_dispatch::{AttemptShare, DurabilityBarrier, JobOutcome};
use tidegate_model::{Address, Clock, Counters, ExternalStatus, Form, Origins, Timestamp};
use tidegate_store::{AttemptRecord, DedupeOutcome, Store, WorkerSlot};

pub(crate) mod failures;
pub(crate) mod result_builder;
pub(crate) mod setup;

use self::failures::{FailureHandler, JobDisposition};
use self::result_builder::{BatchResultBuilder, OutputSpec};
use setup::{SetupFailure, SetupState};

/// A step that is set up for one thread.
#[derive(Debug)]
pub(crate) struct BatchRunner {
    processors: ProcessorChain,
    setup: SetupState,
    /// The result of [`Self::set_up_ahead`] for the next batch.
    set_up_ahead: Option<Result<(), SetupFailure>>,
    /// Whether a batch may run without a durable record.
    starts_at_once: bool,
    address: Address,
    gatherer: JobBuilder,
    bindings: Vec<OutputSpec>,
    retrying: RetryDecider,
    /// Extracts the lane of a job and checks its keys, if the step has lanes or keys.
    attributes: Option<AttributeExtractor>,
    /// Maximum number of process deaths a job may cause; `None` if its jobs are not recorded.
    crash_limit: Option<u32>,
    keeps_records: bool,
    /// Whether jobs of a batch wait for each other, so that one that is not finished ends the batch.
    in_a_row: bool,
    /// Store with the delivery hashes, if the step must not repeat an earlier delivery.
    made_before: Option<Store>,
    generation: u64,
    recorded: RecordedConfiguration,
    scrub: Redactor,
    /// Writer of events, if the step has a queue for them.
    events: Option<EventWriter>,
    budget: BatchBudget,
    /// The keys of the jobs, if the step is a join by key.
    join_keys: Option<JoinKeys>,
}

/// Outcome of a batch, or of its part up to a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is handed on at once")]
pub(crate) enum BatchRun {
    Ran(Box<BatchResult>),
    /// Its attempt waits for the answer to a call.
    Suspended(Call, Box<Suspended>),
}

/// Attempt that goes on with the answer to its call.
pub(crate) type Resumed = (Box<Suspended>, Result<Answer, Failure>);

impl BatchRunner {
    /// # Errors
    /// The part that cannot be set up, as a sentence fragment.
    pub(crate) fn new(
        configuration: &Configuration,
        step: &tidegate_config::Step,
        generation: u64,
        store: &Store,
        common: &SharedResources<'_>,
        ever_set_up: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        Ok(Self {
            processors: ProcessorChain::new(configuration, step, common)?,
            setup: SetupState::new(Arc::clone(ever_set_up)),
            set_up_ahead: None,
            starts_at_once: before(step, configuration) == DurabilityBarrier::Nothing,
            gatherer: JobBuilder::new(configuration, step),
            bindings: step.outputs.iter().map(|output| OutputSpec::new(configuration, output)).collect(),
            attributes: step
                .queuer
                .as_ref()
                .map(AttributeExtractor::new)
                .filter(AttributeExtractor::requires),
            retrying: RetryDecider::new(configuration, step),
            crash_limit: step.crash_guard_limit().map(NonZeroU32::get),
            // The committer makes the tuples of a join by key, each of them once.
            keeps_records: configuration.keeps_records(step).is_some() && step.joins.is_none(),
            made_before: (configuration.dedupes(step) && step.joins.is_none()).then(|| store.clone()),
            join_keys: JoinKeys::new(step),
            in_a_row: step.picks().is_some_and(Queuer::is_serial),
            address: step.address.clone(),
            generation,
            recorded: RecordedConfiguration::new(step),
            scrub: Redactor::new(&step.secrets),
            events: EventWriter::new(step),
            budget: BatchBudget::new(),
        })
    }

    /// Lifts this record while a job is outside of this process.
    pub(crate) fn recorded(mut self, record: AttemptRecord) -> Self {
        if self.crash_limit.is_some() {
            self.processors.set_record(record);
        }
        self
    }

    /// Whether a job of this batch may have killed the last process.
    pub(crate) fn is_suspected(&mut self, work: &BatchInput, slot: &WorkerSlot) -> bool {
        self.crash_limit.is_some()
            && work.verdicts.is_none()
            && !work.is_recalled()
            && slot.suspects(&crash_guard::spans(&self.address, &mut self.gatherer, work))
    }

    #[cfg(test)]
    pub(crate) fn set_budget(&mut self, budget: BatchBudget) {
        self.budget = budget;
    }

    /// Runs the jobs of `work` in order, and waits for their calls. It stops at a job that halts the step, or that
    /// blocks the jobs behind it until its next attempt. It also stops if the batch takes long or has many outputs.
    pub(crate) fn run(&mut self, work: &BatchInput, slot: &mut WorkerSlot, clock: &dyn Clock) -> BatchResult {
        match self.run_once(work, slot, clock, (Calling::Blocks, None)) {
            BatchRun::Ran(ran) => *ran,
            // No attempt of this run is suspended.
            BatchRun::Suspended(..) => BatchResult { goes_back: true, ..BatchResult::default() },
        }
    }

    /// As [`Self::run`], but a batch of one job ends early at a call.
    pub(crate) fn begin(&mut self, work: &BatchInput, slot: &mut WorkerSlot, clock: &dyn Clock) -> BatchRun {
        // A suspect is attempted alone, so no other may run during its calls.
        let is_alone = work.is_picked && work.jobs == 1 && work.verdicts.is_none();
        let suspends = is_alone && self.processors.suspends() && !self.is_suspected(work, slot);
        let calling = if suspends { Calling::Suspends } else { Calling::Blocks };
        self.run_once(work, slot, clock, (calling, None))
    }

    /// Goes on with a batch that was suspended.
    pub(crate) fn resume(
        &mut self,
        work: &BatchInput,
        slot: &mut WorkerSlot,
        clock: &dyn Clock,
        resumed: Resumed,
    ) -> BatchRun {
        self.run_once(work, slot, clock, (Calling::Suspends, Some(resumed)))
    }

    fn run_once(
        &mut self,
        work: &BatchInput,
        slot: &mut WorkerSlot,
        clock: &dyn Clock,
        (calling, resumed): (Calling, Option<Resumed>),
    ) -> BatchRun {
        let started = resumed.as_ref().and_then(|(suspended, _)| suspended.times.started);
        let budget = self.budget.begin(started);
        let carries = self.gatherer.has_provenance(work);
        self.processors.begin_batch();
        let ran = self.run_portions(work, slot, clock, (&budget, carries), (calling, resumed));
        self.processors.end_batch();
        self.set_up_ahead = None;
        match ran {
            BatchRun::Ran(ran) => BatchRun::Ran(Box::new(BatchResult { took: budget.took(), ..*ran })),
            suspended @ BatchRun::Suspended(..) => suspended,
        }
    }

    fn run_portions(
        &mut self,
        work: &BatchInput,
        slot: &mut WorkerSlot,
        clock: &dyn Clock,
        (budget, carries): (&budget::BudgetMeter, bool),
        (calling, resumed): (Calling, Option<Resumed>),
    ) -> BatchRun {
        let ran = match &work.portions[..] {
            [portion]
                if self.processors.is_passthrough()
                    && self.join_keys.is_none()
                    && portion.batch.form == Form::Json
                    && portion.batch.faults.is_empty()
                    && portion.jobs == portion.batch.len()
                    && portion.returned.is_none()
                    && !carries
                    && !work.in_order
                    && !self.keeps_records
                    && self.events.is_none() =>
            {
                self.pass_all(portion, work.is_picked)
            }
            _ if let Some(keys) = self.join_keys.take() => {
                let ran = self.find_keys(&keys, work, carries, (budget, clock));
                self.join_keys = Some(keys);
                ran
            }
            _ => {
                let setback = match self.set_up_ahead.take() {
                    _ if resumed.is_some() => None,
                    Some(set_up) => set_up.err(),
                    None => self.set_up_for(work, clock),
                };
                match setback {
                    Some(SetupFailure { failure, until: Some(until) })
                        if self.starts_at_once && !work.is_picked =>
                    {
                        BatchResult {
                            held: Some(StartBlock::of_setup(&failure, until)),
                            goes_back: true,
                            ..BatchResult::default()
                        }
                    }
                    setback => {
                        let ran =
                            self.run_each(work, slot, carries, (budget, clock), (setback, calling, resumed));
                        match ran {
                            BatchRun::Ran(ran) => *ran,
                            BatchRun::Suspended(call, mut suspended) => {
                                // The record of the attempt has ended by now, so it does not return.
                                suspended.lifted = None;
                                return BatchRun::Suspended(call, suspended);
                            }
                        }
                    }
                }
            }
        };
        BatchRun::Ran(Box::new(ran))
    }

    /// Sets up the step for the next batch ahead of its time.
    pub(crate) fn set_up_ahead(&mut self, work: &BatchInput, clock: &dyn Clock) {
        if self.join_keys.is_none() {
            self.set_up_ahead = Some(self.set_up_for(work, clock).map_or(Ok(()), Err));
        }
    }

    /// Sets up the step before the first job begins, and returns the setback if that fails. Redelivered jobs
    /// are set up one by one, because some need no setup.
    fn set_up_for(&mut self, work: &BatchInput, clock: &dyn Clock) -> Option<SetupFailure> {
        let fresh = work.verdicts.is_none() && work.portions.iter().all(|portion| portion.returned.is_none());
        if !fresh {
            return None;
        }
        match self.processors.set_up() {
            Ok(()) => {
                self.setup.succeeded();
                None
            }
            Err(failure) => {
                let failure = reason::bounded(self.scrub.failure(failure));
                Some(self.setup.failed(failure, &self.retrying, clock.now()))
            }
        }
    }

    /// `picked`: whether the outcome of each job is needed.
    fn pass_all(&self, portion: &BatchSlice, picked: bool) -> BatchResult {
        let jobs = portion.jobs as u64;
        let mut origins = self.origins();
        if self.bindings.iter().any(|binding| binding.to_queue) {
            let mut row = vec![0; self.gatherer.inputs.len()];
            for index in portion.batch.first..portion.batch.end() {
                if let Some(input) = portion.input {
                    row[input] = index;
                }
                origins.push(&row);
            }
        }
        let made = |binding: &OutputSpec| {
            let payloads = portion.batch.payloads.clone();
            if binding.to_queue {
                OutputBlock::for_queue(payloads, &origins, None)
            } else {
                OutputBlock::for_sink(payloads)
            }
        };
        let outputs: Vec<OutputBlock> = self.bindings.iter().map(made).collect();
        let given = jobs * outputs.len() as u64;
        let counters = Counters { taken: jobs, given, ..Counters::default() };
        let ends = if picked { vec![JobOutcome::Finished; portion.jobs] } else { Vec::new() };
        let attempts = AttemptShare { attempts: jobs, failed: 0 };
        BatchResult { taken: portion.jobs, outputs, counters, ends, attempts, ..BatchResult::default() }
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one pass over the jobs of a batch, in the order of its events"
    )]
    fn run_each(
        &mut self,
        work: &BatchInput,
        slot: &mut WorkerSlot,
        carries: bool,
        (budget, clock): (&budget::BudgetMeter, &dyn Clock),
        (mut setback, calling, mut resumed): (Option<SetupFailure>, Calling, Option<Resumed>),
    ) -> BatchRun {
        let times = resumed.as_ref().map(|(suspended, _)| suspended.times);
        let now = times.map_or_else(|| clock.now(), |times| times.now);
        // The delivery of a job that runs was not made meanwhile.
        let made_before = if resumed.is_some() { Ok(Vec::new()) } else { self.made_before(work, carries) };
        let made_before = match made_before {
            Ok(made_before) => made_before,
            Err(halts) => return BatchRun::Ran(halts),
        };
        let mut made = BatchResultBuilder::new(&self.bindings, &self.origins(), carries, work);
        // `ctx.meta` and `ctx.inputs` of the last batch.
        self.processors.set_origin("", &[]);
        let sets_origin = carries || self.gatherer.inputs.len() > 1;
        let attempts = work.verdicts.is_none() && !work.is_recalled();
        if attempts && setback.is_none() {
            self.prepare(work, carries, &made_before, now);
        }
        let mut checkpoint = Checkpoint::default();
        // Without an attempt no job can crash the process.
        let crash_limit = self.crash_limit.filter(|_| attempts);
        let mut watch = BatchCrashGuard::begin(slot, &self.address, &mut self.gatherer, work, crash_limit);
        let (mut walk, take) = (BatchCursor::new(work), self.gatherer.take);
        let (step, retrying, configuration) = (&self.address, &self.retrying, &self.recorded);
        let failing = FailureHandler { retrying, step, take, generation: self.generation, configuration };
        let mut events = EventRecorder::new(self.events.as_ref());
        while let Some(mut item) = self.gatherer.next(&mut walk, carries) {
            if let Some(before) = &work.before {
                item.goes_on_after(before);
            }
            events.begin(work.before.as_ref().map(|before| &before.events));
            let completed = item.completion().map(JobVerdict::of);
            let word =
                work.verdicts.as_ref().and_then(|words| words.get(made.ran.taken)).or(completed.as_ref());
            // The verdict belongs to the attempt that handed the job over, and is no attempt of its own.
            item.attempt -= u32::from(word.is_some());
            if made_before.get(made.ran.taken).is_some_and(|before| *before) {
                made.was_given_before();
                events.was_given_before(&item, now, &mut made.ran.events);
                watch.take(&item);
                continue;
            }
            let sends = |position| self.processors.sends(position);
            let recalled = failing.recall(&mut item, now, sends, (&mut made, &mut events));
            if let Some(word) = word {
                let why = word.reason.as_ref().map(|why| reason::bounded_text(self.scrub.clean(why)));
                events.note(&item, &JobEvent::Verdict { status: word.status, reason: why.as_deref() }, now);
            }
            made.outputs.mark(&mut checkpoint);
            let (attributes, processors) = (self.attributes.as_ref(), &mut self.processors);
            let began = if retrying.has_delay_window() { clock.now() } else { now };
            let began = times.map_or(began, |times| times.began);
            let attempted = match word {
                _ if recalled.is_some() => Ok(Attempted::Through),
                Some(JobVerdict { status: ExternalStatus::Unknown, .. }) if retrying.is_only_once() => {
                    let why =
                        "the external system does not know it, and `at-most-once` hands no job over again";
                    Err(Failure::new(FailureKind::Rejected, why))
                }
                Some(JobVerdict { status: ExternalStatus::Unknown, .. }) => {
                    made.ran.stays(retry::resubmit(step, &item, now), JobOutcome::Forgotten);
                    events.end(&mut made.ran.events);
                    continue;
                }
                Some(word) => word.settle(item.payload, &mut made.outputs).map(|()| Attempted::Through),
                None => self.setup.ready(setback.as_ref(), &item, || processors.set_up()).and_then(|()| {
                    if sets_origin {
                        processors.set_origin(&item.carried, item.indices);
                    }
                    let how = (calling, resumed.take());
                    // An attempt that goes on was recorded before.
                    if let (Some(&claim), (_, None)) = (work.claims.get(made.ran.taken), &how) {
                        watch.begin_claimed(claim);
                    }
                    watch.attempt(&item, || {
                        attempt(processors, attributes, &item, (now, how), &mut made.outputs)
                    })
                }),
            };
            let attempted = match attempted {
                Ok(Attempted::Calls(call, mut suspended)) => {
                    suspended.times = AttemptTimes { now, began, started: Some(budget.begun()) };
                    return BatchRun::Suspended(call, suspended);
                }
                Ok(Attempted::Through) => Ok(()),
                Err(failure) => Err(failure),
            };
            let is_attempt = word.is_none() && item.to.is_none() && recalled.is_none();
            if is_attempt {
                made.ran.attempts.add(failures::share(&attempted));
            }
            let after = match (recalled, attempted) {
                (Some(after), _) => after,
                (None, Ok(())) => {
                    let outcome = made.note(step, &self.bindings, &item);
                    // The clock is read for each job otherwise.
                    if events.are_recorded() {
                        events.note(&item, &JobEvent::of_success(outcome), clock.now());
                    }
                    JobDisposition::Through(outcome)
                }
                (None, Err(failure)) if failure.of_setup => {
                    let failure = reason::bounded(self.scrub.failure(failure));
                    made.outputs.roll_back(&checkpoint);
                    let failed = || self.setup.failed(failure, retrying, clock.now());
                    let setback = setback.get_or_insert_with(failed);
                    failing.sets_back(&item, setback, now, (&mut made, &mut events))
                }
                (None, Err(failure)) => {
                    let failure = reason::bounded(self.scrub.failure(failure));
                    if !made.fail(step, &self.bindings, &item, (&failure, &checkpoint)) {
                        break;
                    }
                    item.attempt = watch.crashes().unwrap_or(item.attempt);
                    // Delays count from the second time, which is after the attempt.
                    let times = (began, clock.now());
                    if word.is_some_and(|word| word.status == ExternalStatus::Invalid)
                        && let Some(lane) = attributes.and_then(|lanes| lanes.halted_lane(item.payload))
                    {
                        made.ran.halted_lanes.push((lane, failures::halt_of_lane(&item, &failure)));
                    }
                    failing.handle_failure(&item, failure, word, times, (&mut made, &mut events))
                }
            };
            let recorded = self.keeps_records.then_some(began);
            if !conclude(after, &item, recorded, (&mut made, &mut events, &watch)) {
                break;
            }
            watch.take(&item);
            if item.to.is_none() && is_over(&self.processors, budget, (&made, self.in_a_row), work) {
                made.ran.cut = true;
                break;
            }
        }
        BatchRun::Ran(Box::new(BatchResult { settles: watch.finish(), ..made.finish() }))
    }

    /// Finds the keys of the jobs of a join by key, which has no processors.
    fn find_keys(
        &mut self,
        keys: &JoinKeys,
        work: &BatchInput,
        carries: bool,
        (budget, clock): (&budget::BudgetMeter, &dyn Clock),
    ) -> BatchResult {
        let now = clock.now();
        let mut made = BatchResultBuilder::new(&self.bindings, &self.origins(), carries, work);
        let (mut walk, take) = (BatchCursor::new(work), self.gatherer.take);
        let (step, retrying, configuration) = (&self.address, &self.retrying, &self.recorded);
        let failing = FailureHandler { retrying, step, take, generation: self.generation, configuration };
        let mut events = EventRecorder::new(None);
        while let Some(item) = self.gatherer.next(&mut walk, carries) {
            match keys.find(step, &item, now) {
                Ok(found) => made.ran.pairs_later(found),
                Err(unpaired) => {
                    let UnpairedJob { failure, row } = *unpaired;
                    let failure = reason::bounded(self.scrub.failure(failure));
                    match failing.handle_failure(&item, failure, None, (now, now), (&mut made, &mut events)) {
                        JobDisposition::Through(outcome) => {
                            made.fails_in_join(&item, row);
                            made.through(&item, outcome, None);
                        }
                        JobDisposition::Halts(failure, halts) => {
                            let (index, file) = (item.index(), item.file());
                            made.ran.halt = Some(HaltCause { index, failure: *failure, halts, file });
                            break;
                        }
                        // The step has no retry policy.
                        JobDisposition::Stays | JobDisposition::Waits(..) => {}
                    }
                }
            }
            if is_over(&self.processors, budget, (&made, false), work) {
                made.ran.cut = true;
                break;
            }
        }
        made.finish()
    }

    /// Passes all jobs of the batch to processors that are faster on batches.
    fn prepare(&mut self, work: &BatchInput, carries: bool, made_before: &[bool], now: Timestamp) {
        if !self.processors.wants_batches() {
            return;
        }
        self.processors.begin(self.retrying.may_halt());
        let (mut walk, mut position) = (BatchCursor::new(work), 0);
        while let Some(item) = self.gatherer.next(&mut walk, carries) {
            let made = made_before.get(position).is_some_and(|before| *before);
            let job = job(&item, now);
            let sound = item.form != Form::Unchecked || chain::check_form(&job).is_ok();
            let runs = item.completion().is_none() && item.finished_result().is_none();
            if !made && runs && item.fault.is_none() && sound {
                self.processors.set_origin(&item.carried, item.indices);
                self.processors.prefetch(&job);
            }
            position += 1;
        }
    }

    /// For each job, whether its delivery was made before, if the step must not repeat one.
    ///
    /// # Errors
    /// The store cannot be read, which halts the step.
    fn made_before(&mut self, work: &BatchInput, carries: bool) -> Result<Vec<bool>, Box<BatchResult>> {
        let Some(store) = &self.made_before else { return Ok(Vec::new()) };
        let (mut walk, mut keys) = (BatchCursor::new(work), DeliveryKeys::default());
        let mut handed_on = Vec::with_capacity(work.jobs);
        while let Some(item) = self.gatherer.next(&mut walk, carries) {
            keys.push(item.only_input(), item.hash);
            // A delayed output belongs to a recorded delivery, which is not made twice.
            handed_on.push(item.to.is_some());
        }
        let outcomes = store.deliveries(&keys.of_step(&self.address)).map_err(|error| {
            let message = format!("the store cannot be searched for earlier deliveries: {error}");
            let failure = Failure::new(FailureKind::Failed, message);
            let halt = Some(HaltCause { index: 0, failure, halts: HaltReason::Run, file: None });
            Box::new(BatchResult { halt, ..BatchResult::default() })
        })?;
        let made = |outcome: &Option<DedupeOutcome>| matches!(outcome, Some(DedupeOutcome::Output { .. }));
        Ok(outcomes.iter().zip(handed_on).map(|(outcome, handed_on)| made(outcome) && !handed_on).collect())
    }

    fn origins(&self) -> Origins {
        let inputs = self.gatherer.inputs.iter().map(|input| input.name.clone()).collect();
        Origins::new(self.address.clone(), inputs)
    }
}

/// Records the disposition of a job. Returns whether the batch goes on behind it.
fn conclude(
    after: JobDisposition,
    item: &JobInput<'_>,
    recorded: Option<Timestamp>,
    (made, events, watch): (&mut BatchResultBuilder, &mut EventRecorder<'_>, &BatchCrashGuard<'_>),
) -> bool {
    match after {
        JobDisposition::Through(outcome) => {
            made.through(item, outcome, recorded);
            events.end(&mut made.ran.events);
            true
        }
        JobDisposition::Stays => {
            events.end(&mut made.ran.events);
            true
        }
        JobDisposition::Waits(row, end) => {
            made.ran.waits = Some(BatchResult::waiting(*row, end, watch.wait(item), events.take()));
            false
        }
        JobDisposition::Halts(failure, halts) => {
            watch.halt(item, &failure);
            let (index, file) = (item.index(), item.file());
            made.ran.halt = Some(HaltCause { index, failure: *failure, halts, file });
            false
        }
    }
}

/// Whether a batch ends early. If jobs wait for each other, or results are delivered in order, an unfinished job ends
/// it. Delayed outputs, verdicts and stored results do not count: they take no time and are in memory already.
fn is_over(
    processors: &ProcessorChain,
    budget: &budget::BudgetMeter,
    (made, in_a_row): (&BatchResultBuilder, bool),
    work: &BatchInput,
) -> bool {
    let may_end = work.verdicts.is_none() && !work.is_recalled() && made.ran.taken < work.jobs;
    let stays = (made.in_order || in_a_row) && made.ran.stayed > 0;
    may_end && (stays || budget.is_over(made.ran.taken, made.byte_len(), processors.is_ahead()))
}

fn attempt(
    processors: &mut ProcessorChain,
    attributes: Option<&AttributeExtractor>,
    item: &JobInput<'_>,
    (now, (calling, resumed)): (Timestamp, (Calling, Option<Resumed>)),
    outputs: &mut Outputs,
) -> Result<Attempted, Failure> {
    if let Some(fault) = &item.fault {
        return Err(Failure::new(FailureKind::Payload, fault.as_ref()));
    }
    if let Some(to) = item.to {
        return hand_on(processors, to, item.payload, outputs).map(|()| Attempted::Through);
    }
    let job = job(item, now);
    if item.form == Form::Unchecked && !processors.decodes_json() {
        chain::check_form(&job)?;
    }
    if let Some(attributes) = attributes {
        let lane = match attributes.lane(job.payload) {
            LaneSource::Missing => return Err(attributes.missing_lane_error(job.payload)),
            LaneSource::Shared => None,
            LaneSource::Named(lane) => Some(lane),
        };
        if let Some(failure) = attributes.missing_keys_error(job.payload) {
            return Err(failure);
        }
        processors.set_lane(lane.as_deref());
    }
    match resumed {
        Some((suspended, answer)) => processors.resume(&job, outputs, (*suspended, answer)),
        None => processors.process(&job, outputs, calling),
    }
}

/// Delivers an output that an earlier attempt made.
fn hand_on(
    processors: &ProcessorChain,
    to: &str,
    payload: &[u8],
    outputs: &mut Outputs,
) -> Result<(), Failure> {
    let position = outputs.position(to);
    if position.is_some_and(|position| processors.sends(position)) {
        return Err(services::late_request(to));
    }
    let place = position.and_then(|position| outputs.get_mut(position));
    place.ok_or_else(|| services::late_output_gone(to))?.push(payload);
    Ok(())
}

fn job<'a>(item: &JobInput<'a>, now: Timestamp) -> Job<'a> {
    Job::new(item.index(), item.payload).attempted(item.attempt, now.0).hashed(item.hash.0)
}
