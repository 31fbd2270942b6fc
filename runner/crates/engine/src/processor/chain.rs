//! Processor chain: runs a job through all processors of a step, in memory.
//!
//! Consecutive scripts are one processor, and pass values without serialization. Other processors pass JSON
//! texts. Each unnamed output of a processor is a piece of the job for the next one. A script in the middle
//! emits straight to the outputs of the step. At the end the outputs for HTTP sinks are sent.
//!
//! A chain calls an external system between two processors, never within one. At a call the chain hands out the
//! attempt as [`Suspended`], which needs no thread, and the answer resumes it on any worker.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use tidegate_plugin::{Checkpoint, Failure, FailureKind, Job, Outputs, Payloads, Step as _};

use super::deadline::AttemptDeadline;
use super::services::{Service, late_request, mocked_requests, requests};
use super::walk::{AttemptTimes, Attempted, Calling, Frame, PieceNumbers, Sends, Suspended, Walk};
use super::{ProcessorStage, ScriptGroup, SharedResources, StepContext};
use tidegate_components::attempt_outputs::after_outputs;
use tidegate_components::calls::{Answer, Call, Calls};
use tidegate_components::script::json;
use tidegate_components::script::{EntryPoint, ScriptOutlet, ScriptStep};
use tidegate_config::{
    Configuration, InputMode, MockPlace, PluginStepConfig, Processor, Script, Step, StepFilter,
};
use tidegate_store::{AttemptRecord, LiftedRecord};

/// Position of a processor that has run, its outputs, and its result.
type ProcessorRun = (usize, Outputs, Result<(), Failure>);

/// Processors of a step, set up for one thread.
#[derive(Debug)]
pub(crate) struct ProcessorChain {
    processors: Vec<ProcessorStage>,
    /// Outputs of any processor except the last, without payloads.
    middle: Outputs,
    /// The same, reused to save allocations.
    spare: Vec<Outputs>,
    /// Position of the first processor that runs in its own process and gains from batches.
    isolated: Option<usize>,
    /// Time limit that all processors share.
    deadline: AttemptDeadline,
    /// Results of the processors before that one, for the jobs of a batch.
    prepared: VecDeque<Prefetched>,
    /// Outputs that are HTTP services, by position.
    services: Vec<(usize, Service)>,
    /// Numbers of the pieces of the current job.
    numbers: PieceNumbers,
    calls: Calls,
    /// State of the outputs before the current job.
    before: Checkpoint,
    /// Record of the attempts; `None` if they are not recorded.
    record: Option<AttemptRecord>,
    /// Set from before a call until it is suspended or answered.
    lifted: Option<LiftedRecord>,
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
        let inputs: Vec<String> = step.inputs.iter().map(tidegate_config::InputRef::name).collect();
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
        let middle = Outputs::new(std::iter::once("").chain(emits.iter().copied()));
        let services = match common.mocks {
            Some(mocks) => mocked_requests(configuration, step, mocks).collect(),
            None => requests(configuration, step)
                .map(|(position, request)| (position, Service::Http(Box::new(owner.http(request)))))
                .collect(),
        };
        Ok(Self {
            isolated: isolated(&processors),
            processors,
            middle,
            spare: Vec::new(),
            deadline: AttemptDeadline::new(step.timeout),
            prepared: VecDeque::new(),
            services,
            numbers: PieceNumbers::default(),
            calls: common.calls.clone(),
            before: Checkpoint::default(),
            record: None,
            lifted: None,
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

    /// Begins a batch: its scripts see the present rows of lookup tables until [`Self::end_batch`].
    pub(crate) fn begin_batch(&self) {
        self.scripts().for_each(ScriptStep::begin_batch);
    }

    pub(crate) fn end_batch(&self) {
        self.scripts().for_each(ScriptStep::end_batch);
    }

    fn scripts(&self) -> impl Iterator<Item = &ScriptStep> {
        self.processors.iter().filter_map(|link| match link {
            ProcessorStage::Script(script) => Some(&**script),
            _ => None,
        })
    }

    /// Sets the lane of the next job.
    pub(crate) fn set_lane(&self, lane: Option<&str>) {
        self.scripts().for_each(|script| script.set_lane(lane));
    }

    /// Sets the provenance of the next job, and its index in each input of the step.
    pub(crate) fn set_origin(&self, carried: &str, indices: &[u64]) {
        self.scripts().for_each(|script| script.set_origin(carried, indices));
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
        let mut emitted = Outputs::new(self.middle.names().skip(1));
        let mut pieces = 0;
        self.numbers.begin(self.processors.len());
        self.deadline.begin(Duration::ZERO);
        let failed = self.run_until(until, 0, job, &mut emitted, &mut pieces).err();
        let spent = self.deadline.spent();
        self.prepared.push_back(Prefetched { index: job.index, pieces, spent, emitted, failed });
    }

    /// Whether its attempts can be suspended during their calls: prefetched jobs belong to their thread.
    pub(crate) fn suspends(&self) -> bool {
        self.isolated.is_none()
    }

    /// Runs a job through all processors and sends its requests to services. A suspended attempt has all outputs
    /// of the job so far, and is resumed with the same job.
    ///
    /// # Errors
    /// The first failure.
    #[inline]
    pub(crate) fn process(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        calling: Calling,
    ) -> Result<Attempted, Failure> {
        // Most steps are scripts or have no processor. The other processors take longer than these branches.
        match (&mut self.processors[..], &self.services[..]) {
            ([ProcessorStage::Script(only)], []) => only.process(job, outputs).map(|()| Attempted::Through),
            ([ProcessorStage::Pass], []) => {
                outputs.push_to_all(job.payload);
                Ok(Attempted::Through)
            }
            _ => self.process_and_send(job, outputs, calling),
        }
    }

    fn process_and_send(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        calling: Calling,
    ) -> Result<Attempted, Failure> {
        self.numbers.begin(self.processors.len());
        outputs.mark(&mut self.before);
        let mut walk = Walk::default();
        let called = self.begin_walk(job, outputs, &mut walk);
        self.go_on(called, job, outputs, (walk, calling))
    }

    /// Resumes an attempt with the answer to its call.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn resume(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        (suspended, answer): (Suspended, Result<Answer, Failure>),
    ) -> Result<Attempted, Failure> {
        let Suspended { mut walk, numbers, outputs: earlier, begun_nanos, .. } = suspended;
        outputs.mark(&mut self.before);
        *outputs = earlier;
        self.numbers = numbers;
        self.deadline.resume(begun_nanos);
        let called = self.answered(answer, job, outputs, &mut walk);
        self.go_on(called, job, outputs, (walk, Calling::Suspends))
    }

    /// Ends the attempt, or suspends it at its next call.
    fn go_on(
        &mut self,
        mut called: Result<Option<Call>, Failure>,
        job: &Job<'_>,
        outputs: &mut Outputs,
        (mut walk, calling): (Walk, Calling),
    ) -> Result<Attempted, Failure> {
        while let Some(call) = called? {
            if calling == Calling::Suspends {
                let empty = Outputs::new(outputs.names());
                let suspended = Suspended {
                    walk,
                    numbers: std::mem::take(&mut self.numbers),
                    outputs: std::mem::replace(outputs, empty),
                    begun_nanos: self.deadline.begun_nanos(),
                    times: AttemptTimes::default(),
                    lifted: self.lifted.take(),
                };
                return Ok(Attempted::Calls(call, Box::new(suspended)));
            }
            let answer = self.wait(call);
            called = self.answered(answer, job, outputs, &mut walk);
        }
        Ok(Attempted::Through)
    }

    /// Waits for the answer to a call.
    fn wait(&mut self, call: Call) -> Result<Answer, Failure> {
        let lift = || self.record.as_ref().and_then(AttemptRecord::lift);
        let _lifted = self.lifted.take().or_else(lift);
        self.calls.wait(call)
    }

    /// Starts with a job. Returns the first call.
    fn begin_walk(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        walk: &mut Walk,
    ) -> Result<Option<Call>, Failure> {
        let called = if self.isolated.is_some() && !self.prepared.is_empty() {
            self.run_prepared(job, outputs).map(|()| None)
        } else {
            self.run_first(job, outputs, walk)
        };
        self.send_after(called, job, outputs, walk)
    }

    /// Goes on with the answer to a call. Returns the next call.
    fn answered(
        &mut self,
        answer: Result<Answer, Failure>,
        job: &Job<'_>,
        outputs: &mut Outputs,
        walk: &mut Walk,
    ) -> Result<Option<Call>, Failure> {
        let called = match walk.end_call() {
            Some(at) => self.run_answer((at, answer?), job, outputs, walk),
            None => answer.map(|_| None),
        };
        self.send_after(called, job, outputs, walk)
    }

    /// Runs a job through the processors, up to the first call.
    fn run_first(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        walk: &mut Walk,
    ) -> Result<Option<Call>, Failure> {
        self.deadline.begin(Duration::ZERO);
        match self.enter(0, job, outputs, walk)? {
            None => self.run_pieces(job, outputs, walk),
            call => Ok(call),
        }
    }

    /// Gives an answer to its processor, and runs the outputs through the later ones, up to the next call.
    fn run_answer(
        &mut self,
        (at, answer): (usize, Answer),
        job: &Job<'_>,
        outputs: &mut Outputs,
        walk: &mut Walk,
    ) -> Result<Option<Call>, Failure> {
        let piece = job.with_piece(0, walk.piece().unwrap_or(job.payload));
        if self.is_last(at) {
            self.processors[at].take(&piece, answer, outputs)?;
        } else {
            let mut middle = self.begin_middle();
            self.processors[at].take(&piece, answer, &mut middle)?;
            walk.push(at, middle, Ok(()));
        }
        self.run_pieces(job, outputs, walk)
    }

    /// Runs the outputs of processors through the later ones, up to the next call.
    fn run_pieces(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        walk: &mut Walk,
    ) -> Result<Option<Call>, Failure> {
        loop {
            let ran = if let Some(at) = walk.next_piece() {
                match self.enter(at, job, outputs, walk) {
                    Ok(Some(call)) => return Ok(Some(call)),
                    ran => ran.map(drop),
                }
            } else if let Some(frame) = walk.pop() {
                self.leave(frame, outputs)
            } else {
                return Ok(None);
            };
            if let Err(failure) = ran {
                // A pending job keeps what was emitted, and the first failure counts.
                while let Some(frame) = walk.pop() {
                    let _ = self.leave(frame, outputs);
                }
                return Err(failure);
            }
        }
    }

    /// Runs the last piece of the walk through the processor at this position. Returns its call, if it makes one.
    fn enter(
        &mut self,
        at: usize,
        job: &Job<'_>,
        outputs: &mut Outputs,
        walk: &mut Walk,
    ) -> Result<Option<Call>, Failure> {
        let left = self.deadline.left()?;
        let piece = job.with_piece(self.numbers.next_at(at), walk.piece().unwrap_or(job.payload));
        // A command starts before its attempt is suspended.
        let lifted = self.leaves(at);
        if let Some(call) = self.processors[at].call(&piece, &mut self.numbers) {
            let call = call?;
            walk.begin_call(at);
            self.lifted = lifted;
            return Ok(Some(call));
        }
        if self.is_last(at) {
            let ran = self.processors[at].process(&piece, &mut self.numbers.calls, outputs, left);
            return ran.map(|()| None);
        }
        let mut middle = self.begin_middle();
        let ran = self.processors[at].process(&piece, &mut self.numbers.calls, &mut middle, left);
        drop(lifted);
        match ran {
            Err(failure) if failure.kind != FailureKind::Pending => Err(failure),
            ran => {
                walk.push(at, middle, ran);
                Ok(None)
            }
        }
    }

    /// All pieces of a processor are through.
    fn leave(&mut self, frame: Frame, outputs: &mut Outputs) -> Result<(), Failure> {
        append_named(&frame.outputs, outputs);
        self.end_middle(frame.outputs);
        frame.ran
    }

    fn is_last(&self, at: usize) -> bool {
        at + 1 == self.processors.len()
    }

    /// Empty outputs of a processor that is not the last.
    fn begin_middle(&mut self) -> Outputs {
        self.spare.pop().unwrap_or_else(|| Outputs::new(self.middle.names()))
    }

    fn end_middle(&mut self, mut middle: Outputs) {
        if self.spare.len() < self.processors.len() {
            middle.clear();
            self.spare.push(middle);
        }
    }

    /// Sends requests to services after the processors. Returns the next request. After the last one, the result
    /// of the processors counts.
    fn send_after(
        &mut self,
        called: Result<Option<Call>, Failure>,
        job: &Job<'_>,
        outputs: &Outputs,
        walk: &mut Walk,
    ) -> Result<Option<Call>, Failure> {
        let ran = match called {
            Ok(None) => Ok(()),
            Err(failure) if failure.kind == FailureKind::Pending => Err(failure),
            over => return over,
        };
        if self.services.is_empty() {
            return ran.map(|()| None);
        }
        let sends = match &mut walk.sends {
            Some(sends) => sends,
            None => {
                let mut late = outputs.delayed().iter().filter(|(position, ..)| self.sends(*position));
                if let Some((position, ..)) = late.next() {
                    return Err(late_request(outputs.names().nth(position).unwrap_or_default()));
                }
                walk.sends.insert(Sends { ran, service: 0, sent: 0 })
            }
        };
        while let Some((position, service)) = self.services.get_mut(sends.service) {
            let before = self.before.lengths().get(*position).copied().unwrap_or(0);
            let payload = outputs.get(*position).and_then(|payloads| payloads.get(before + sends.sent));
            let Some(payload) = payload else {
                (sends.service, sends.sent) = (sends.service + 1, 0);
                continue;
            };
            sends.sent += 1;
            let number = self.numbers.next_call();
            match service {
                Service::Http(http) => {
                    let call = http.prepare_to_send(&job.with_piece(job.piece, payload), number)?;
                    return Ok(Some(Call::Http(call)));
                }
                Service::Mocked(mocked) => mocked.accept()?,
            }
        }
        std::mem::replace(&mut sends.ran, Ok(())).map(|()| None)
    }

    /// Whether the output at this position is sent as a request.
    pub(crate) fn sends(&self, position: usize) -> bool {
        self.services.iter().any(|(of, _)| *of == position)
    }

    /// Takes the answers of the isolated processor for a job that was prefetched.
    fn run_prepared(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        let Some(at) = self.isolated else { return Ok(()) };
        let prepared = loop {
            match self.prepared.pop_front() {
                Some(prepared) if prepared.index == job.index => break prepared,
                // The job was rejected meanwhile, so its answers are not needed.
                Some(other) => self.discard(at, other.pieces),
                None => return self.run_waiting(job, outputs, (Walk::default(), None)),
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
        let is_last = self.is_last(at);
        let Some(ProcessorStage::Isolated(isolated)) = self.processors.get_mut(at) else { return Ok(()) };
        if is_last {
            return isolated.next(outputs).map(drop);
        }
        let mut middle = self.spare.pop().unwrap_or_else(|| Outputs::new(self.middle.names()));
        // The wait for the whole batch does not count against the time of this job.
        let spent = self.deadline.spent();
        let answered = isolated.next(&mut middle);
        drop(lifted);
        self.deadline.begin(spent + *answered.as_ref().unwrap_or(&Duration::ZERO));
        self.run_waiting(job, outputs, (Walk::default(), Some((at, middle, answered.map(drop)))))
    }

    /// Runs a job through all processors, or the outputs of one through the later ones. Waits for the answers to
    /// calls.
    fn run_waiting(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        (mut walk, ran): (Walk, Option<ProcessorRun>),
    ) -> Result<(), Failure> {
        let mut called = match ran {
            None => self.run_first(job, outputs, &mut walk),
            Some((_, _, Err(failure))) if failure.kind != FailureKind::Pending => Err(failure),
            Some((at, middle, ran)) => {
                walk.push(at, middle, ran);
                self.run_pieces(job, outputs, &mut walk)
            }
        };
        while let Some(call) = called? {
            let Some(at) = walk.end_call() else { return Ok(()) };
            let answer = self.wait(call)?;
            called = self.run_answer((at, answer), job, outputs, &mut walk);
        }
        Ok(())
    }

    /// Runs a piece up to the processor `until`, where it waits with the others.
    fn run_until(
        &mut self,
        until: usize,
        at: usize,
        job: &Job<'_>,
        emitted: &mut Outputs,
        pieces: &mut usize,
    ) -> Result<(), Failure> {
        let job = &job.with_piece(self.numbers.next_at(at), job.payload);
        if at == until {
            let spent = self.deadline.spent();
            if let Some(ProcessorStage::Isolated(isolated)) = self.processors.get_mut(at) {
                isolated.queue(job, spent);
                *pieces += 1;
            }
            return Ok(());
        }
        let left = self.deadline.left()?;
        let mut middle = self.begin_middle();
        let ran = self.processors[at].process(job, &mut self.numbers.calls, &mut middle, left);
        let ran = after_outputs(ran, || {
            let mut outputs = middle.get(0).into_iter().flat_map(Payloads::iter);
            outputs.try_for_each(|payload| {
                self.run_until(until, at + 1, &job.with_piece(0, payload), emitted, pieces)
            })
        });
        append_named(&middle, emitted);
        self.end_middle(middle);
        ran
    }
}

/// Number of earlier processors with the same plugin; the plugin is added to them.
pub(crate) fn earlier(before: &mut Vec<String>, plugin: &PluginStepConfig) -> u32 {
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
