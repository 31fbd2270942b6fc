//! Processor chain: runs a job through all processors of a step, in memory.
//!
//! Consecutive scripts are one processor, and pass values without serialization. Other processors pass JSON
//! texts. Each unnamed output of a processor is a piece of the job for the next one. A script in the middle
//! emits straight to the outputs of the step. At the end the outputs for HTTP sinks are sent.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use tidegate_plugin::{Checkpoint, Failure, FailureKind, Job, Outputs, Payloads, Step as _};

use super::deadline::AttemptDeadline;
use super::mock::{MockedProcessor, Mocks};
use super::{ProcessorStage, ScriptGroup, SharedResources, StepContext};
use tidegate_components::attempt_outputs::after_outputs;
use tidegate_components::http::HttpStep;
use tidegate_components::script::json;
use tidegate_components::script::{EntryPoint, ScriptOutlet};
use tidegate_config::{
    Configuration, HttpRequest, InputMode, MockPlace, PluginStepConfig, Processor, QueueRef, Script,
    SinkKind, SinkRef, Step, StepFilter, Target,
};
use tidegate_store::{AttemptRecord, LiftedRecord};

/// Processors of a step, set up for one thread.
#[derive(Debug)]
pub(crate) struct ProcessorChain {
    processors: Vec<ProcessorStage>,
    /// Outputs of each processor except the last.
    intermediate_outputs: Vec<Outputs>,
    /// Position of the first processor that runs in its own process and gains from batches.
    isolated: Option<usize>,
    /// Time limit that all processors share.
    deadline: AttemptDeadline,
    /// Results of the processors before that one, for the jobs of a batch.
    prepared: VecDeque<Prefetched>,
    /// Outputs that are HTTP services, by position.
    services: Vec<(usize, Service)>,
    /// Number of requests and commands of the current job.
    pieces: u32,
    /// Number of pieces of the current job, by processor.
    counts: Vec<u32>,
    /// State of the outputs before the current job.
    before: Checkpoint,
    /// Record of the attempts; `None` if they are not recorded.
    record: Option<AttemptRecord>,
}

#[derive(Debug)]
struct Prefetched {
    index: u64,
    /// Number of pieces that wait for the isolated processor.
    pieces: usize,
    /// Time that the attempt has used.
    spent: Duration,
    /// Outputs emitted so far.
    emitted: Outputs,
    failed: Option<Failure>,
}

impl ProcessorChain {
    /// # Errors
    /// The part that cannot be set up, as a sentence fragment.
    pub(crate) fn new(
        configuration: &Configuration,
        step: &Step,
        common: &SharedResources<'_>,
    ) -> Result<Self, String> {
        let file = shown(configuration, &step.file);
        let (owner, plugins) = (StepContext::of(step, &file, common), common.plugins);
        let bindings: Vec<&str> = step.outputs.iter().map(|output| output.binding.as_str()).collect();
        let place = MockPlace::Step(step.address.name.clone());
        let named = bindings.iter().any(|binding| !binding.is_empty());
        let inputs: Vec<String> = step.inputs.iter().map(tidegate_config::InputRef::hash_name).collect();
        let none = StepFilter::default();
        let script = |scripts: &[Script], first: bool, last: bool| {
            owner.script(&ScriptGroup {
                scripts,
                filter: if first { &step.filter } else { &none },
                take: if first { step.take } else { InputMode::From },
                outlet: match (last, named) {
                    (false, _) => ScriptOutlet::Next,
                    (true, true) => ScriptOutlet::Named,
                    (true, false) => ScriptOutlet::Unnamed,
                },
                entry: EntryPoint::Process,
                inputs: &inputs,
                parts: &step.tuple_of,
                outputs: &bindings,
            })
        };
        let groups = step
            .processors
            .chunk_by(|a, b| matches!(a, Processor::Script(_)) && matches!(b, Processor::Script(_)));
        let (mut processors, mut named_before) = (Vec::new(), Vec::new());
        if !step.filter.is_empty() && !matches!(step.processors.first(), Some(Processor::Script(_))) {
            processors.push(ProcessorStage::Script(script(&[], true, step.processors.is_empty())?));
        }
        let count = processors.len() + groups.clone().count();
        if count == 0 {
            processors.push(ProcessorStage::Pass);
        }
        for group in groups {
            let last = processors.len() + 1 == count;
            if let Some(mocked) = group.first().and_then(|only| owner.mocked(only, &place)) {
                processors.push(mocked);
                continue;
            }
            let link = match group {
                [Processor::Plugin(plugin)] => {
                    let bindings = if last { &bindings[..] } else { &[""] };
                    owner.plugin(plugin, plugins, bindings, earlier(&mut named_before, plugin))?
                }
                [Processor::Http(request)] => ProcessorStage::Http(Box::new(owner.http(request))),
                [Processor::Exec(command)] => ProcessorStage::Exec(Box::new(owner.exec(command))),
                scripts => {
                    let scripts: Vec<Script> =
                        scripts.iter().filter_map(Processor::script).cloned().collect();
                    ProcessorStage::Script(script(&scripts, processors.is_empty(), last)?)
                }
            };
            processors.push(link);
        }
        let emits = if named { &bindings[..] } else { &[] };
        let middle = || Outputs::new(std::iter::once("").chain(emits.iter().copied()));
        let middles = (1..processors.len()).map(|_| middle()).collect();
        let services = match common.mocks {
            Some(mocks) => mocked_requests(configuration, step, mocks).collect(),
            None => requests(configuration, step)
                .map(|(position, request)| (position, Service::Http(Box::new(owner.http(request)))))
                .collect(),
        };
        Ok(Self {
            isolated: isolated(&processors),
            counts: vec![0; processors.len()],
            processors,
            intermediate_outputs: middles,
            deadline: AttemptDeadline::new(step.timeout),
            prepared: VecDeque::new(),
            services,
            pieces: 0,
            before: Checkpoint::default(),
            record: None,
        })
    }

    /// Sets the record of the attempts, which is lifted while a job is outside of this process.
    pub(crate) fn set_record(&mut self, record: AttemptRecord) {
        self.record = Some(record);
    }

    /// Lifts the record while the processor at this position works outside of this process.
    fn leaves(&self, at: usize) -> Option<LiftedRecord> {
        let is_outside = matches!(
            self.processors.get(at)?,
            ProcessorStage::Isolated(_) | ProcessorStage::Http(_) | ProcessorStage::Exec(_)
        );
        self.record.as_ref().filter(|_| is_outside)?.lift()
    }

    /// Whether every job becomes each output unchanged.
    pub(crate) fn is_passthrough(&self) -> bool {
        matches!(self.processors[..], [ProcessorStage::Pass]) && self.services.is_empty()
    }

    /// Whether the first processor decodes the job, so that the job needs no check before.
    pub(crate) fn decodes_json(&self) -> bool {
        matches!(self.processors.first(), Some(ProcessorStage::Script(_)))
    }

    /// Sets the lane of the next job.
    pub(crate) fn set_lane(&self, lane: Option<&str>) {
        for link in &self.processors {
            if let ProcessorStage::Script(script) = link {
                script.set_lane(lane);
            }
        }
    }

    /// Sets the provenance of the next job, and its index in each input of the step.
    pub(crate) fn set_origin(&self, carried: &str, indices: &[u64]) {
        for link in &self.processors {
            if let ProcessorStage::Script(script) = link {
                script.set_origin(carried, indices);
            }
        }
    }

    /// Sets up the plugins that are not set up: at first, and after a panic or a crash.
    ///
    /// # Errors
    /// The error of the plugin, or the reason for which it cannot be reached.
    pub(crate) fn set_up(&mut self) -> Result<(), Failure> {
        self.processors.iter_mut().try_for_each(ProcessorStage::set_up)
    }

    /// Whether jobs of a batch should be passed to the isolated processor before they run.
    pub(crate) fn wants_batches(&self) -> bool {
        self.isolated.is_some()
    }

    /// Whether the isolated processor has finished jobs behind the current one.
    pub(crate) fn is_ahead(&self) -> bool {
        let isolated = self.isolated.and_then(|at| self.processors.get(at));
        matches!(isolated, Some(ProcessorStage::Isolated(isolated)) if isolated.is_ahead())
    }

    /// Discards the prefetched jobs, and the outcome of the last batch.
    pub(crate) fn begin(&mut self, stops_at_failure: bool) {
        self.prepared.clear();
        if let Some(ProcessorStage::Isolated(isolated)) =
            self.isolated.and_then(|at| self.processors.get_mut(at))
        {
            isolated.begin(stops_at_failure);
        }
    }

    /// Runs a job up to the isolated processor, where it waits with the others of its batch.
    pub(crate) fn prefetch(&mut self, job: &Job<'_>) {
        let Some(until) = self.isolated else { return };
        let mut emitted = self
            .intermediate_outputs
            .first()
            .map_or_else(Outputs::default, |middle| Outputs::new(middle.names().skip(1)));
        let mut pieces = 0;
        self.counts.fill(0);
        self.deadline.begin(Duration::ZERO);
        let failed = self.run_until(until, 0, job, &mut emitted, &mut pieces).err();
        let spent = self.deadline.spent();
        self.prepared.push_back(Prefetched { index: job.index, pieces, spent, emitted, failed });
    }

    /// Runs a job through all processors and sends its requests to services.
    ///
    /// # Errors
    /// The first failure.
    #[inline]
    pub(crate) fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        // Most steps are scripts or have no processor. The other processors take longer than these branches.
        match (&mut self.processors[..], &self.services[..]) {
            ([ProcessorStage::Script(only)], []) => only.process(job, outputs),
            ([ProcessorStage::Pass], []) => {
                outputs.push_to_all(job.payload);
                Ok(())
            }
            _ => self.process_and_send(job, outputs),
        }
    }

    fn process_and_send(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        self.pieces = 0;
        self.counts.fill(0);
        if self.services.is_empty() {
            return self.run(job, outputs);
        }
        outputs.mark(&mut self.before);
        let ran = self.run(job, outputs);
        after_outputs(ran, || self.send(job, outputs))
    }

    /// Sends the requests of the current job to services.
    fn send(&mut self, job: &Job<'_>, outputs: &Outputs) -> Result<(), Failure> {
        if let Some((position, ..)) = outputs.delayed().iter().find(|(position, ..)| self.sends(*position)) {
            return Err(late_request(outputs.names().nth(position).unwrap_or_default()));
        }
        let _lifted = self.record.as_ref().and_then(AttemptRecord::lift);
        for (position, service) in &mut self.services {
            let before = self.before.lengths().get(*position).copied().unwrap_or(0);
            for payload in outputs.get(*position).into_iter().flat_map(Payloads::iter).skip(before) {
                self.pieces += 1;
                match service {
                    Service::Http(http) => http.send(&job.with_piece(job.piece, payload), self.pieces)?,
                    Service::Mocked(mocked) => mocked.accept()?,
                }
            }
        }
        Ok(())
    }

    /// Whether the output at this position is sent as a request.
    pub(crate) fn sends(&self, position: usize) -> bool {
        self.services.iter().any(|(of, _)| *of == position)
    }

    fn run(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        let Some(at) = self.isolated.filter(|_| !self.prepared.is_empty()) else {
            return self.run_all(job, outputs);
        };
        let prepared = loop {
            match self.prepared.pop_front() {
                Some(prepared) if prepared.index == job.index => break prepared,
                // The job was rejected meanwhile, so its answers are not needed.
                Some(other) => self.discard(at, other.pieces),
                None => return self.run_all(job, outputs),
            }
        };
        self.deadline.begin(prepared.spent);
        let mut result = Ok(());
        for _ in 0..prepared.pieces {
            // Answers come in order, so those of a failed job must be read, too.
            match result {
                Ok(()) => result = self.answer(at, job, outputs),
                Err(_) => self.discard(at, 1),
            }
        }
        after_outputs(result, || {
            append_named(&prepared.emitted, outputs);
            prepared.failed.map_or(Ok(()), Err)
        })
    }

    /// Reads and drops the isolated processor's answers for a job that is not needed.
    fn discard(&mut self, at: usize, pieces: usize) {
        let Some(ProcessorStage::Isolated(isolated)) = self.processors.get_mut(at) else { return };
        for _ in 0..pieces {
            let _ = isolated.next(&mut Outputs::default()); // the result is not needed
        }
    }

    /// Reads the isolated processor's answer for one piece and runs the processors after it.
    fn answer(&mut self, at: usize, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        let lifted = self.leaves(at);
        let Some(ProcessorStage::Isolated(isolated)) = self.processors.get_mut(at) else { return Ok(()) };
        if at == self.intermediate_outputs.len() {
            return isolated.next(outputs).map(drop);
        }
        let mut middle = std::mem::take(&mut self.intermediate_outputs[at]);
        // The wait for the whole batch does not count against the time of this job.
        let spent = self.deadline.spent();
        let answered = isolated.next(&mut middle);
        drop(lifted);
        self.deadline.begin(spent + *answered.as_ref().unwrap_or(&Duration::ZERO));
        let answered = after_outputs(answered.map(drop), || self.hand_on(at, job, &middle, outputs));
        middle.clear();
        self.intermediate_outputs[at] = middle;
        answered
    }

    fn run_all(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        let _lifted = if self.processors.len() == 1 { self.leaves(0) } else { None };
        if let [only] = &mut self.processors[..] {
            return only.process(job, &mut self.pieces, outputs, self.deadline.timeout());
        }
        self.deadline.begin(Duration::ZERO);
        self.run_from(0, job, outputs)
    }

    /// Next piece of the job at this processor. Each processor counts its own pieces, so a piece has the same
    /// number on its own and in a batch.
    fn counted<'j>(&mut self, at: usize, job: &Job<'j>) -> Job<'j> {
        let piece = self.counts[at];
        self.counts[at] = piece.saturating_add(1);
        job.with_piece(piece, job.payload)
    }

    fn run_from(&mut self, at: usize, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        let left = self.deadline.left()?;
        let job = &self.counted(at, job);
        let lifted = self.leaves(at);
        if at == self.intermediate_outputs.len() {
            return self.processors[at].process(job, &mut self.pieces, outputs, left);
        }
        let mut middle = std::mem::take(&mut self.intermediate_outputs[at]);
        let ran = self.processors[at].process(job, &mut self.pieces, &mut middle, left);
        drop(lifted);
        let ran = after_outputs(ran, || self.hand_on(at, job, &middle, outputs));
        middle.clear();
        self.intermediate_outputs[at] = middle;
        ran
    }

    fn hand_on(
        &mut self,
        at: usize,
        job: &Job<'_>,
        middle: &Outputs,
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let mut pieces = middle.get(0).into_iter().flat_map(Payloads::iter);
        let ran = pieces.try_for_each(|payload| self.run_from(at + 1, &job.with_piece(0, payload), outputs));
        after_outputs(ran, || {
            append_named(middle, outputs);
            Ok(())
        })
    }

    /// Like [`Self::run_from`], but ends at the processor `until`, which only receives the pieces.
    fn run_until(
        &mut self,
        until: usize,
        at: usize,
        job: &Job<'_>,
        emitted: &mut Outputs,
        pieces: &mut usize,
    ) -> Result<(), Failure> {
        let job = &self.counted(at, job);
        if at == until {
            let spent = self.deadline.spent();
            if let Some(ProcessorStage::Isolated(isolated)) = self.processors.get_mut(at) {
                isolated.queue(job, spent);
                *pieces += 1;
            }
            return Ok(());
        }
        let left = self.deadline.left()?;
        let mut middle = std::mem::take(&mut self.intermediate_outputs[at]);
        let ran = self.processors[at].process(job, &mut self.pieces, &mut middle, left);
        let ran = after_outputs(ran, || {
            let mut outputs = middle.get(0).into_iter().flat_map(Payloads::iter);
            outputs.try_for_each(|payload| {
                self.run_until(until, at + 1, &job.with_piece(0, payload), emitted, pieces)
            })
        });
        append_named(&middle, emitted);
        middle.clear();
        self.intermediate_outputs[at] = middle;
        ran
    }
}

/// Failure of a delayed request: a request is sent within the attempt, under its hash.
pub(crate) fn late_request(output: &str) -> Failure {
    let which = if output.is_empty() { "an output".to_owned() } else { format!("the output `{output}`") };
    let why = format!("{which} cannot be delayed, because it goes to an HTTP sink: put a queue between them");
    Failure::new(FailureKind::Rejected, why)
}

/// Number of earlier processors with the same plugin; the plugin is added to them.
fn earlier(before: &mut Vec<String>, plugin: &PluginStepConfig) -> u32 {
    let named = plugin.named();
    let count = before.iter().filter(|other| **other == named).count();
    before.push(named);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// First isolated processor, if no processor before it has external effects: effects belong to an attempt,
/// and not to its preparation.
fn isolated(processors: &[ProcessorStage]) -> Option<usize> {
    let outside = |link: &ProcessorStage| {
        matches!(link, ProcessorStage::Isolated(_) | ProcessorStage::Http(_) | ProcessorStage::Exec(_))
    };
    processors.iter().position(outside).filter(|&at| matches!(processors[at], ProcessorStage::Isolated(_)))
}

/// HTTP service that gets an output of a step.
#[derive(Debug)]
enum Service {
    Http(Box<HttpStep>),
    /// A queue of a test, in the place of an HTTP sink.
    Mocked(MockedProcessor),
}

/// The same as [`requests`], in a test: queues are in the place of the sinks.
fn mocked_requests<'c>(
    configuration: &'c Configuration,
    step: &'c Step,
    mocks: &'c Mocks,
) -> impl Iterator<Item = (usize, Service)> {
    step.outputs.iter().enumerate().filter_map(|(position, output)| match output.target {
        Target::Queue(QueueRef(queue)) => {
            let sink = mocks.sink(&configuration.queues[queue].address)?;
            Some((position, Service::Mocked(sink)))
        }
        Target::Sink(_) => None,
    })
}

/// Outputs of `step` that are HTTP services, by position.
fn requests<'c>(
    configuration: &'c Configuration,
    step: &'c Step,
) -> impl Iterator<Item = (usize, &'c HttpRequest)> {
    step.outputs.iter().enumerate().filter_map(|(position, output)| match output.target {
        Target::Sink(SinkRef(sink)) => match &configuration.sinks.get(sink)?.kind {
            SinkKind::Http(request) => Some((position, &**request)),
            _ => None,
        },
        Target::Queue(_) => None,
    })
}

/// Checks that a payload is JSON, for processors that pass it on unchanged.
pub(crate) fn check_form(job: &Job<'_>) -> Result<(), Failure> {
    json::check(job.payload)
        .map_err(|error| Failure::new(FailureKind::Payload, format!("the job is not JSON: {error}")))
}

/// Adds the named outputs of `from` to those of `to`.
fn append_named(from: &Outputs, to: &mut Outputs) {
    for (position, name) in from.names().enumerate().filter(|(_, name)| !name.is_empty()) {
        let place = to.position(name);
        if let (Some(payloads), Some(place)) = (from.get(position), place.and_then(|place| to.get_mut(place)))
        {
            place.append(payloads);
        }
    }
    to.append_delayed(from);
}

/// Path for messages: relative to the configuration's folder if it is in it.
pub(crate) fn shown(configuration: &Configuration, path: &Path) -> String {
    path.strip_prefix(&configuration.root).unwrap_or(path).display().to_string()
}
