//! One batch through one step, on a worker's thread.

use std::sync::Arc;

use tidegate_plugin::{Checkpoint, Failure, FailureKind, Job, Outputs, Payloads, Step as _};

use super::delivery::Made;
use super::error_record::{self, Case};
use crate::config::{self, Configuration, Processor, Target};
use crate::decide::Counters;
use crate::hands::script::{CompileError, ScriptStep, ScriptStepSpec, json};
use crate::words::{Address, Batch, Clock, Form, HashPrefix, Places, Timestamp};

/// A step made ready for one thread.
#[derive(Debug)]
pub(super) struct Worker {
    runner: Runner,
    address: Address,
    input: Address,
    bindings: Vec<Binding>,
    has_errors: bool,
    prefix: HashPrefix,
}

#[derive(Debug)]
struct Binding {
    name: String,
    to_queue: bool,
}

#[derive(Debug)]
enum Runner {
    Script(Box<ScriptStep>),
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
    pub(super) counters: Counters,
    pub(super) halt: Option<Stumble>,
}

/// The job that halted a step, and why.
#[derive(Debug)]
pub(super) struct Stumble {
    pub(super) index: u64,
    pub(super) failure: Failure,
    /// Where the job stood in a file.
    pub(super) file: Option<(Arc<std::path::Path>, u64)>,
}

impl Worker {
    pub(super) fn new(configuration: &Configuration, step: &config::Step) -> Result<Self, CompileError> {
        let scripts: Vec<config::Script> =
            step.processors.iter().map(|Processor::Script(script)| script.clone()).collect();
        let filter = &step.filter;
        let filters = !filter.types.is_empty() || !filter.topics.is_empty() || filter.when.is_some();
        let runner = if scripts.is_empty() && !filters {
            Runner::Pass
        } else {
            let file = shown(configuration, &step.file);
            Runner::Script(Box::new(ScriptStep::new(&ScriptStepSpec {
                pipeline: step.address.pipeline.as_str(),
                step: step.address.name.as_str(),
                scripts: &scripts,
                filter,
                limits: &step.limits,
                timeout: step.timeout,
                config: &step.config,
                file: &file,
                unnamed_output: step.outputs.iter().all(|output| output.binding.is_empty()),
            })?))
        };
        let input = &step.inputs[0].address;
        let (pipeline, name) = (step.address.pipeline.as_str(), step.address.name.as_str());
        Ok(Self {
            runner,
            bindings: step.outputs.iter().map(Binding::new).collect(),
            has_errors: step.errors.is_some(),
            prefix: HashPrefix::new(pipeline, name, &input.to_string()),
            address: step.address.clone(),
            input: input.clone(),
        })
    }

    /// Runs every job of `batch`, up to one that halts the step.
    pub(super) fn run(&mut self, batch: &Batch, clock: &dyn Clock) -> Ran {
        let now = clock.now();
        match &self.runner {
            Runner::Pass if batch.form == Form::Json && batch.faults.is_empty() => self.pass_all(batch),
            _ => self.run_each(batch, now),
        }
    }

    fn pass_all(&self, batch: &Batch) -> Ran {
        let jobs = batch.len() as u64;
        let outputs: Vec<Made> =
            self.bindings.iter().map(|binding| binding.made(batch.payloads.clone())).collect();
        let given = jobs * outputs.len() as u64;
        let counters = Counters { taken: jobs, given, ..Counters::default() };
        Ran { taken: batch.len(), outputs, counters, ..Ran::default() }
    }

    fn run_each(&mut self, batch: &Batch, now: Timestamp) -> Ran {
        let mut outputs = Outputs::new(self.bindings.iter().map(|binding| binding.name.as_str()));
        let mut ran = Ran::default();
        let mut checkpoint = Checkpoint::default();
        let mut errors = Payloads::new();
        let mut given = 0;
        for (position, payload) in batch.payloads.iter().enumerate() {
            let index = batch.first + position as u64;
            let hash = self.prefix.hash(index);
            let job = Job { index, payload, attempt: 1, now_ms: now.0, hash: hash.0 };
            outputs.mark(&mut checkpoint);
            let attempt = match batch.fault(position) {
                Some(fault) => Err(Failure::new(FailureKind::Payload, fault)),
                None => self.attempt(&job, batch.form, &mut outputs),
            };
            if let Err(failure) = attempt {
                outputs.roll_back(&checkpoint);
                let file = batch.places.as_ref().map(|places| place(places, position));
                if !self.has_errors {
                    ran.halt = Some(Stumble { index, failure, file });
                    break;
                }
                ran.counters.failed += 1;
                let path = file.as_ref().map(|(path, line)| (path.to_string_lossy(), *line));
                let case = Case {
                    now,
                    step: &self.address,
                    input: &self.input,
                    index,
                    attempt: 1,
                    hash,
                    file: path.as_ref().map(|(path, line)| (&**path, *line)),
                    payload,
                };
                // Writing plain texts and numbers to memory cannot fail; were it to, the step stops.
                if errors.push_with(|buffer| error_record::write(&case, &failure, buffer)).is_err() {
                    ran.halt = Some(Stumble { index, failure, file });
                    break;
                }
            } else {
                let total = outputs.total();
                ran.counters.filtered += u64::from(total == given && outputs.bindings() > 0);
                given = total;
            }
            ran.taken += 1;
        }
        ran.counters.taken = ran.taken as u64;
        ran.counters.given = outputs.total() as u64;
        let payloads = outputs.into_payloads().into_iter();
        ran.outputs =
            self.bindings.iter().zip(payloads).map(|(binding, payloads)| binding.made(payloads)).collect();
        ran.errors = (!errors.is_empty()).then(|| Made::for_queue(errors));
        ran
    }

    fn attempt(&mut self, job: &Job<'_>, form: Form, outputs: &mut Outputs) -> Result<(), Failure> {
        match &mut self.runner {
            Runner::Script(script) => script.process(job, outputs),
            Runner::Pass => {
                if form == Form::Unchecked {
                    json::check(job.payload).map_err(|error| {
                        Failure::new(FailureKind::Payload, format!("the job is no JSON: {error}"))
                    })?;
                }
                for position in 0..outputs.bindings() {
                    if let Some(payloads) = outputs.get_mut(position) {
                        payloads.push(job.payload);
                    }
                }
                Ok(())
            }
        }
    }
}

impl Binding {
    fn new(output: &config::OutputRef) -> Self {
        Self { name: output.binding.clone(), to_queue: matches!(output.target, Target::Queue(_)) }
    }

    fn made(&self, payloads: Payloads) -> Made {
        if self.to_queue { Made::for_queue(payloads) } else { Made::for_sink(payloads) }
    }
}

impl Ran {
    /// Bytes of everything that it brings.
    pub(super) fn byte_len(&self) -> usize {
        self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len()).sum()
    }
}

fn place(places: &Places, position: usize) -> (Arc<std::path::Path>, u64) {
    (Arc::clone(&places.file), places.line(position))
}

/// A path as messages show it: from the configuration's folder on, where it lies in it.
fn shown(configuration: &Configuration, path: &std::path::Path) -> String {
    path.strip_prefix(&configuration.root).unwrap_or(path).display().to_string()
}
