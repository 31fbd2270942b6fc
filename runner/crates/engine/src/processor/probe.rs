//! Probe: runs the processors of a gate or a monitor, set up for one thread.
//!
//! The processors run one after the other. Each one gets the result of the one before as a single value. A
//! list stays one value, although between the processors of a step it would be several jobs.

use tidegate_plugin::{Failure, Job, Outputs, Payloads};

use super::chain::shown;
use super::deadline::AttemptDeadline;
use super::{ProcessorStage, ScriptGroup, SharedResources, StepContext};
use tidegate_components::plugin::AfterDeath;
use tidegate_components::redact::Redactor;
use tidegate_components::script::{EntryPoint, ScriptOutlet, ScriptStep};
use tidegate_config::{
    Configuration, GateRef, InputMode, Limits, MockPlace, ProbeConfig, Processor, Step, StepFilter,
};
use tidegate_model::{Address, DeliveryHash, Timestamp, delivery_hash};

/// Gate or monitor of a step.
#[derive(Debug)]
pub(crate) struct Probe {
    step: Address,
    processors: Vec<ProcessorStage>,
    deadline: AttemptDeadline,
    entry: EntryPoint,
    outputs: Outputs,
    scrub: Redactor,
}

/// The step as the owner of the processors of its gate or monitor. `file`: the path of the step's file, for messages.
pub(crate) fn owner<'c>(
    step: &'c Step,
    inquiry: &'c ProbeConfig,
    (limits, file): (&'c Limits, &'c str),
    common: &SharedResources<'c>,
) -> StepContext<'c> {
    StepContext {
        limits,
        timeout: Some(inquiry.timeout),
        config: &inquiry.config,
        shared: &inquiry.shared,
        secrets: &inquiry.secrets,
        tables: &inquiry.tables,
        // A failed call is repeated later, so no limit is needed.
        after_death: AfterDeath::Crashed,
        ..StepContext::of(step, file, common)
    }
}

impl Probe {
    /// # Errors
    /// The part that cannot be set up, as a sentence fragment.
    pub(crate) fn new(
        configuration: &Configuration,
        step: &Step,
        (inquiry, entry): (&ProbeConfig, EntryPoint),
        common: &SharedResources<'_>,
    ) -> Result<Self, String> {
        let (limits, filter, file) =
            (Limits::default(), StepFilter::default(), shown(configuration, &step.file));
        let owner = owner(step, inquiry, (&limits, &file), common);
        let last = inquiry.run.len().saturating_sub(1);
        let place = match (entry, step.gate) {
            (EntryPoint::Open, Some(GateRef(gate))) => {
                MockPlace::Gate(configuration.gates[gate].name.clone())
            }
            _ => MockPlace::Monitor(step.address.name.clone()),
        };
        let run = |(position, processor): (usize, &Processor)| match processor {
            Processor::Plugin(plugin) => owner.plugin(plugin, common.plugins, &[""], 0),
            Processor::Http(request) => Ok(ProcessorStage::Http(Box::new(owner.http(request)))),
            Processor::Exec(command) => Ok(ProcessorStage::Exec(Box::new(owner.exec(command)))),
            Processor::Script(script) => {
                let entry = if position == last { entry } else { EntryPoint::Process };
                let scripts = std::slice::from_ref(script);
                let (take, outlet) = (InputMode::From, ScriptOutlet::Next);
                let scripts = ScriptGroup {
                    scripts,
                    filter: &filter,
                    take,
                    outlet,
                    entry,
                    inputs: &[],
                    parts: &[],
                    outputs: &[],
                };
                owner.script(&scripts).map(ProcessorStage::Script)
            }
        };
        let link = |(position, processor)| match owner.mocked(processor, &place) {
            Some(mocked) => Ok(mocked),
            None => run((position, processor)),
        };
        Ok(Self {
            step: step.address.clone(),
            processors: inquiry.run.iter().enumerate().map(link).collect::<Result<_, _>>()?,
            deadline: AttemptDeadline::new(Some(inquiry.timeout)),
            entry,
            outputs: Outputs::new([""]),
            scrub: Redactor::new(&inquiry.secrets),
        })
    }

    /// Answer of the last processor, as JSON. The first processor gets `given`.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn ask(&mut self, given: &[u8], now: Timestamp) -> Result<Vec<u8>, Failure> {
        // Each call needs its own key: a service that recognizes the key would repeat its first answer for
        // ever.
        let what = match self.entry {
            EntryPoint::Status => "monitor",
            EntryPoint::Process | EntryPoint::Open | EntryPoint::Accept => "gate",
        };
        let time = now.0.cast_unsigned();
        let (pipeline, step) = (self.step.pipeline.as_str(), self.step.name.as_str());
        let hash = delivery_hash(pipeline, step, std::iter::once((what, std::slice::from_ref(&time))));
        self.deadline.begin(std::time::Duration::ZERO);
        self.scripts().for_each(ScriptStep::begin_batch);
        let asked = self.ask_all(given, (now, hash));
        self.scripts().for_each(ScriptStep::end_batch);
        asked
    }

    fn ask_all(&mut self, given: &[u8], (now, hash): (Timestamp, DeliveryHash)) -> Result<Vec<u8>, Failure> {
        let (mut answer, mut pieces) = (given.to_vec(), 0);
        for link in &mut self.processors {
            let left = self.deadline.left()?;
            let job = Job::new(0, &answer).attempted(1, now.0).hashed(hash.0);
            self.outputs.clear();
            let asked = link.process(&job, &mut pieces, &mut self.outputs, left);
            asked.map_err(|failure| self.scrub.failure(failure))?;
            answer = whole(self.outputs.get(0));
        }
        Ok(answer)
    }

    fn scripts(&self) -> impl Iterator<Item = &ScriptStep> {
        self.processors.iter().filter_map(|link| match link {
            ProcessorStage::Script(script) => Some(&**script),
            _ => None,
        })
    }
}

/// All outputs as one value: several are a list, none is `null`.
fn whole(came: Option<&Payloads>) -> Vec<u8> {
    let values: Vec<&[u8]> = came.into_iter().flat_map(Payloads::iter).collect();
    match values[..] {
        [] => b"null".to_vec(),
        [one] => one.to_vec(),
        _ => [b"[", &*values.join(&b","[..]), b"]"].concat(),
    }
}
