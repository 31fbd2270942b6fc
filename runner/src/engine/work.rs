//! One batch through one step, on a worker's thread.

use std::sync::Arc;

use tidegate_plugin::{Checkpoint, Failure, FailureKind, Job, Outputs, Payloads, Step as _};

use super::attempted::Watch;
use super::cards::{Cards, Lane};
use super::chain::{self, Links, shown};
use super::delivery::Made;
use super::error_record::{self, Case};
use super::gather::{Gatherer, Item, Walk};
use super::held::{Portion, Work};
use super::link::{Common, Owner, Scripts};
use super::retrying::{self, Fate, Halts, Retrying, Why};
use super::status::Word;
use crate::config::{self, Configuration, Processor, Promise, Take, Target};
use crate::decide::{Counters, JobEnd, Status};
use crate::hands::script::{Entry, ScriptStep};
use crate::store::{Delayed, Outcome, Slot, Span, Store};
use crate::words::{Address, Clock, DeliveryHash, Form, Origins, Timestamp};

/// A step made ready for one thread.
#[derive(Debug)]
pub(super) struct Worker {
    runner: Runner,
    address: Address,
    gatherer: Gatherer,
    bindings: Vec<Binding>,
    retrying: Retrying,
    /// Tells the lane of a job, where the step has lanes.
    cards: Option<Cards>,
    /// So often a job may take the process down; `None` where no job is attempted twice.
    crash_limit: Option<u32>,
    keeps_records: bool,
    /// Where it is asked which deliveries were made before, if the step must not make one twice.
    made_before: Option<Store>,
    generation: u64,
}

#[derive(Debug)]
struct Binding {
    name: String,
    to_queue: bool,
}

#[derive(Debug)]
enum Runner {
    Script(Box<ScriptStep>),
    /// With plugins among the processors.
    Links(Box<Links>),
    /// Hands jobs on as they are.
    Pass,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// How many of its jobs are accounted for: all, or those before the one that halts the step.
    pub(super) taken: usize,
    /// In the order of the step's bindings.
    pub(super) outputs: Vec<Made>,
    /// Error records.
    pub(super) errors: Option<Made>,
    /// Jobs that are run again, and outputs that are due later.
    pub(super) delayed: Vec<Delayed>,
    pub(super) outcomes: Vec<(DeliveryHash, Outcome)>,
    /// Jobs that are no suspects any more when this is delivered.
    pub(super) settles: Vec<Span>,
    pub(super) counters: Counters,
    pub(super) halt: Option<Stumble>,
    /// How many of those that are taken come again.
    pub(super) stayed: usize,
    /// Of jobs that were picked: what became of each that is taken.
    pub(super) ends: Vec<JobEnd>,
    /// Why a job of it has found its gate closed, if one has.
    pub(super) held: Option<String>,
}

/// The job that halted a step, and why.
#[derive(Debug)]
pub(super) struct Stumble {
    pub(super) index: u64,
    pub(super) failure: Failure,
    pub(super) halts: Halts,
    /// Where the job stood in a file.
    pub(super) file: Option<(Arc<std::path::Path>, u64)>,
}

/// What the jobs of a batch have come to so far.
struct Yield {
    outputs: Outputs,
    /// By binding to a queue: where its jobs come from, and what they carry. Sinks keep neither.
    sides: Vec<Option<Side>>,
    errors: Payloads,
    error_side: Side,
    carries: bool,
}

struct Side {
    origins: Origins,
    carried: Payloads,
}

impl Worker {
    /// # Errors
    /// A script that does not compile, though `check` has found them all before, or a plugin that
    /// cannot be set up.
    pub(super) fn new(
        configuration: &Configuration,
        step: &config::Step,
        generation: u64,
        store: &Store,
        common: &Common<'_>,
    ) -> Result<Self, String> {
        let scripts: Vec<config::Script> =
            step.processors.iter().filter_map(Processor::script).cloned().collect();
        let filter = &step.filter;
        let runner = if Links::needed(configuration, step) {
            Runner::Links(Box::new(Links::new(configuration, step, common)?))
        } else if step.processors.is_empty() && filter.is_empty() {
            Runner::Pass
        } else {
            Runner::Script(Owner::of(step, &shown(configuration, &step.file), common).script(&Scripts {
                scripts: &scripts,
                filter,
                unnamed_output: step.outputs.iter().all(|output| output.binding.is_empty()),
                wrapped: step.take == Take::Alts,
                entry: Entry::Process,
            })?)
        };
        Ok(Self {
            runner,
            gatherer: Gatherer::new(configuration, step),
            bindings: step.outputs.iter().map(Binding::new).collect(),
            cards: step.queuer.as_ref().map(Cards::new).filter(Cards::has_lanes),
            retrying: Retrying::new(configuration, step),
            // Progress of `at-most-once` moves first: nothing is attempted after a crash.
            crash_limit: (step.delivery != Promise::AtMostOnce).then_some(step.crash_limit),
            keeps_records: configuration.keeps_records(step).is_some(),
            made_before: configuration.dedupes(step).then(|| store.clone()),
            address: step.address.clone(),
            generation,
        })
    }

    /// Runs every job of `work`, up to one that halts the step.
    pub(super) fn run(&mut self, work: &Work, slot: &mut Slot, clock: &dyn Clock) -> Ran {
        let carries = self.gatherer.carries(work);
        match (&self.runner, &work.portions[..]) {
            (Runner::Pass, [portion])
                if portion.batch.form == Form::Json
                    && portion.batch.faults.is_empty()
                    && portion.jobs == portion.batch.len()
                    && portion.returned.is_none()
                    && !carries
                    && !self.keeps_records =>
            {
                self.pass_all(portion)
            }
            _ => self.run_each(work, slot, carries, clock),
        }
    }

    fn pass_all(&self, portion: &Portion) -> Ran {
        let jobs = portion.jobs as u64;
        let mut origins = self.origins();
        if self.bindings.iter().any(|binding| binding.to_queue) {
            let mut row = vec![0; self.gatherer.inputs.len()];
            for index in portion.batch.first..portion.batch.end() {
                row[portion.input] = index;
                origins.push(&row);
            }
        }
        let made = |binding: &Binding| {
            let payloads = portion.batch.payloads.clone();
            if binding.to_queue {
                Made::for_queue(payloads, &origins, None)
            } else {
                Made::for_sink(payloads)
            }
        };
        let outputs: Vec<Made> = self.bindings.iter().map(made).collect();
        let given = jobs * outputs.len() as u64;
        let counters = Counters { taken: jobs, given, ..Counters::default() };
        Ran { taken: portion.jobs, outputs, counters, ..Ran::default() }
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one loop over the jobs; what becomes of each is decided elsewhere"
    )]
    fn run_each(&mut self, work: &Work, slot: &mut Slot, carries: bool, clock: &dyn Clock) -> Ran {
        let now = clock.now();
        let mut ran = Ran::default();
        let made_before = match self.made_before(work, carries) {
            Ok(made_before) => made_before,
            Err(failure) => {
                ran.halt = Some(Stumble { index: 0, failure, halts: Halts::Run, file: None });
                return ran;
            }
        };
        let names = self.bindings.iter().map(|binding| binding.name.as_str());
        let side = || Side { origins: self.origins(), carried: Payloads::new() };
        let mut made = Yield {
            outputs: Outputs::new(names),
            sides: self.bindings.iter().map(|binding| binding.to_queue.then(side)).collect(),
            errors: Payloads::new(),
            error_side: side(),
            carries,
        };
        if work.words.is_none() {
            self.prepare(work, carries, &made_before, now);
        }
        let mut checkpoint = Checkpoint::default();
        // Where nothing is attempted, nothing can take the process down.
        let crash_limit = self.crash_limit.filter(|_| work.words.is_none());
        let mut watch = Watch::begin(slot, &self.address, &mut self.gatherer, work, crash_limit);
        let (mut walk, take) = (Walk::new(work), self.gatherer.take);
        let (mut given, mut late, mut handed_on) = (0, 0, 0);
        while let Some(mut item) = self.gatherer.next(&mut walk, carries) {
            let said = item.said().map(Word::of);
            let word = work.words.as_ref().and_then(|words| words.get(ran.taken)).or(said.as_ref());
            // What became of it is told of the attempt that handed it over, and is none itself.
            item.attempt -= u32::from(word.is_some());
            if made_before.get(ran.taken).is_some_and(|before| *before) {
                ran.counters.filtered += u64::from(!self.bindings.is_empty());
                ran.taken += 1;
                if work.sequential {
                    ran.ends.push(JobEnd::Finished);
                }
                watch.take(&item);
                continue;
            }
            made.outputs.mark(&mut checkpoint);
            let (cards, runner) = (self.cards.as_ref(), &mut self.runner);
            let attempted = match word {
                Some(Word { status: Status::Unknown, .. }) => {
                    ran.stays(retrying::forgotten(&self.address, &item, now), JobEnd::Forgotten);
                    continue;
                }
                Some(word) => word.settle(item.payload, &mut made.outputs),
                None => watch.attempt(&item, || attempt(runner, cards, &item, now, &mut made.outputs)),
            };
            let outcome = if let Err(mut failure) = attempted {
                made.outputs.roll_back(&checkpoint);
                // What comes later is counted from here, however long the attempt took.
                let now = clock.now();
                item.attempt = watch.crashes().unwrap_or(item.attempt);
                let fate = match word {
                    Some(_) => self.retrying.refused(),
                    None => self.retrying.fate(&item, &mut failure, now),
                };
                match fate {
                    Fate::Again(at) => {
                        let row = retrying::delayed(&self.address, &item, &failure, at, now);
                        ran.stays(row, JobEnd::Delayed(at));
                        watch.take(&item);
                        continue;
                    }
                    Fate::Held(until) => {
                        // With a queuer the whole step waits; without, the job steps aside.
                        let due = if work.sequential { now } else { until };
                        ran.stays(retrying::held(&self.address, &item, due), JobEnd::Held(until));
                        ran.held = Some(failure.message);
                        watch.take(&item);
                        continue;
                    }
                    Fate::Pending => {
                        let row = retrying::pending(&self.address, &item, &failure.message, now);
                        ran.stays(row, JobEnd::Pending);
                        watch.take(&item);
                        continue;
                    }
                    Fate::Error => {
                        let (step, generation) = (&self.address, self.generation);
                        let case = Case { now, step, take, generation, item: &item };
                        // Writing plain texts and numbers to memory cannot fail; were it to, the step stops.
                        let written =
                            made.errors.push_with(|buffer| error_record::write(&case, &failure, buffer));
                        if written.is_err() {
                            let (index, file) = (item.index(), item.file());
                            ran.halt = Some(Stumble { index, failure, halts: Halts::Run, file });
                            break;
                        }
                        made.error_side.push(&item, carries);
                    }
                    Fate::Dropped(why) => {
                        let (step, index) = (&self.address, item.index());
                        let says = match why {
                            Why::AtMostOnce => "as at-most-once says",
                            Why::Exhausted => "as its retry policy says",
                        };
                        tracing::warn!(%step, index, "the job failed and is dropped, {says}: {failure}");
                    }
                    Fate::Halts(halts) => {
                        watch.halt(&item, &failure);
                        ran.halt = Some(Stumble { index: item.index(), failure, halts, file: item.file() });
                        break;
                    }
                }
                ran.counters.failed += 1;
                Outcome::Error
            } else {
                made.note(&item);
                for (position, due_ms, payload) in made.outputs.delayed().iter().skip(late) {
                    let to = self.bindings.get(position).map_or("", |binding| &binding.name);
                    let due = Timestamp(due_ms);
                    ran.delayed.push(retrying::late(&self.address, &item, to, due, payload));
                }
                let later = made.outputs.delayed().len() - late;
                late += later;
                let jobs = made.outputs.total() - given;
                given += jobs;
                ran.counters.filtered += u64::from(jobs + later == 0 && !self.bindings.is_empty());
                match u32::try_from(jobs + later) {
                    Ok(0) => Outcome::Nothing,
                    jobs => Outcome::Output { jobs: jobs.unwrap_or(u32::MAX) },
                }
            };
            // An output that was made before is on record with its job.
            if self.keeps_records && item.to.is_none() {
                ran.outcomes.push((item.hash, outcome));
            }
            handed_on += usize::from(item.to.is_some());
            ran.taken += 1;
            if work.sequential {
                ran.ends.push(JobEnd::Finished);
            }
            watch.take(&item);
        }
        ran.settles = watch.finish();
        // What comes again is counted when it is through; an output that was made before, with its job.
        ran.counters.taken = (ran.taken - ran.stayed - handed_on) as u64;
        ran.counters.given = given as u64;
        made.finish(&mut ran);
        ran
    }

    /// Shows all jobs that will be run to processors that are better at batches.
    fn prepare(&mut self, work: &Work, carries: bool, made_before: &[bool], now: Timestamp) {
        let Runner::Links(links) = &mut self.runner else { return };
        if !links.wants_batches() {
            return;
        }
        links.begin(self.retrying.may_halt());
        let (mut walk, mut position) = (Walk::new(work), 0);
        while let Some(item) = self.gatherer.next(&mut walk, carries) {
            let made = made_before.get(position).is_some_and(|before| *before);
            let job = job(&item, now);
            let sound = item.form != Form::Unchecked || chain::check_form(&job).is_ok();
            if !made && item.said().is_none() && item.fault.is_none() && sound {
                links.prepare(&job);
            }
            position += 1;
        }
    }

    /// For each job whether its outputs stand already, where the step must not make them twice.
    fn made_before(&mut self, work: &Work, carries: bool) -> Result<Vec<bool>, Failure> {
        let Some(store) = &self.made_before else { return Ok(Vec::new()) };
        let (mut walk, mut hashes) = (Walk::new(work), Vec::with_capacity(work.jobs));
        let mut handed_on = Vec::with_capacity(work.jobs);
        while let Some(item) = self.gatherer.next(&mut walk, carries) {
            hashes.push(item.hash);
            // What is only due later was made by a delivery that is on record, and is not made by it twice.
            handed_on.push(item.to.is_some());
        }
        let outcomes = store.deliveries(&hashes).map_err(|error| {
            let message = format!("the store does not tell which deliveries were made before: {error}");
            Failure::new(FailureKind::Failed, message)
        })?;
        let made = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Output { .. }));
        Ok(outcomes.iter().zip(handed_on).map(|(outcome, handed_on)| made(outcome) && !handed_on).collect())
    }

    fn origins(&self) -> Origins {
        let inputs = self.gatherer.inputs.iter().map(|input| input.name.clone()).collect();
        Origins::new(self.address.clone(), inputs)
    }
}

fn attempt(
    runner: &mut Runner,
    cards: Option<&Cards>,
    item: &Item<'_>,
    now: Timestamp,
    outputs: &mut Outputs,
) -> Result<(), Failure> {
    if let Some(fault) = &item.fault {
        return Err(Failure::new(FailureKind::Payload, fault.as_ref()));
    }
    if let Some(to) = item.to {
        return hand_on(to, item.payload, outputs);
    }
    let job = job(item, now);
    if item.form == Form::Unchecked && !matches!(runner, Runner::Script(_)) {
        chain::check_form(&job)?;
    }
    if let Some(cards) = cards {
        let lane = match cards.lane(job.payload) {
            Lane::Missing => return Err(cards.lacks_lane()),
            Lane::Shared => None,
            Lane::Named(lane) => Some(lane),
        };
        match runner {
            Runner::Script(script) => script.set_lane(lane.as_deref()),
            Runner::Links(links) => links.set_lane(lane.as_deref()),
            Runner::Pass => {}
        }
    }
    match runner {
        Runner::Script(script) => script.process(&job, outputs),
        Runner::Links(links) => links.process(&job, outputs),
        Runner::Pass => {
            for position in 0..outputs.bindings() {
                if let Some(payloads) = outputs.get_mut(position) {
                    payloads.push(job.payload);
                }
            }
            Ok(())
        }
    }
}

/// Gives an output that was made by an attempt before.
fn hand_on(to: &str, payload: &[u8], outputs: &mut Outputs) -> Result<(), Failure> {
    let place = outputs.position(to).and_then(|position| outputs.get_mut(position));
    let gone = || Failure::new(FailureKind::Output, format!("the step has no output `{to}` any more"));
    place.ok_or_else(gone)?.push(payload);
    Ok(())
}

fn job<'a>(item: &Item<'a>, now: Timestamp) -> Job<'a> {
    Job {
        index: item.index(),
        payload: item.payload,
        attempt: item.attempt,
        now_ms: now.0,
        hash: item.hash.0,
    }
}

impl Yield {
    /// Notes for all jobs that `item` came to where they come from.
    fn note(&mut self, item: &Item<'_>) {
        for (position, side) in self.sides.iter_mut().enumerate() {
            let Some(side) = side else { continue };
            let there = self.outputs.get(position).map_or(0, Payloads::len);
            while side.origins.len() < there {
                side.push(item, self.carries);
            }
        }
    }

    fn finish(self, ran: &mut Ran) {
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
    fn push(&mut self, item: &Item<'_>, carries: bool) {
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
    fn new(output: &config::OutputRef) -> Self {
        Self { name: output.binding.clone(), to_queue: matches!(output.target, Target::Queue(_)) }
    }
}

impl Ran {
    /// A job is taken, and stands in the store by itself.
    fn stays(&mut self, row: Delayed, end: JobEnd) {
        self.delayed.push(row);
        self.taken += 1;
        self.stayed += 1;
        self.ends.push(end);
    }

    /// Bytes of everything that it brings.
    pub(super) fn byte_len(&self) -> usize {
        self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len()).sum()
    }
}
