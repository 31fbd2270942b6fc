//! `[step.NAME]`: what it takes, what it hands on, and how it goes about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Configuration, GateRef, Limits, Monitor, Processor, QueueRef, Queuer, SinkKind, SinkRef, SourceRef,
    StepFilter, Strategy,
};
use tidegate_model::{Address, RetryPolicy, Secret};

/// `[step.NAME]`, or the unnamed step that a sink with `from` is: it has the sink's name, no
/// processors, and the sink as its only target.
#[derive(Clone, Debug)]
pub struct Step {
    pub address: Address,
    pub take: InputMode,
    /// In order of binding; one, with an empty binding, for `from`.
    pub inputs: Vec<InputRef>,
    pub begin_at: BeginAt,
    /// Run one after the other, in memory. None: jobs are handed on as they are.
    pub processors: Vec<Processor>,
    pub filter: StepFilter,
    /// The bindings of `to`, in order of name. One with an empty name for `to = "name"`; none for a
    /// step without `to`, whose outputs are dropped.
    pub outputs: Vec<OutputRef>,
    /// Where jobs go that are rejected or fail. `None`: the step stops at the first one.
    pub errors: Option<QueueRef>,
    pub limits: Limits,
    pub delivery: DeliveryGuarantee,
    /// So many times in a row a job may take the process down before it is set aside; at least 1.
    pub crash_limit: u32,
    /// Longest run of one attempt.
    pub timeout: Option<Duration>,
    /// `config = { … }` as JSON; seen as `ctx.config`. It can be large.
    pub config: Arc<serde_json::Value>,
    /// What of it must not be shown.
    pub secrets: Vec<Secret>,
    /// Its plugins run in a process of their own.
    pub isolate: bool,
    /// As it is written; what holds, [`Self::retry_policy`] says.
    pub retry: Option<RetryPolicy>,
    /// `None`: oldest first, as many as there are workers for.
    pub queuer: Option<Queuer>,
    /// It delivers to an HTTP service, in its attempts.
    pub serves: bool,
    pub gate: Option<GateRef>,
    pub monitor: Option<Monitor>,
    /// The pipeline's file and the line of the step's header, for messages.
    pub file: PathBuf,
    pub line: u64,
}

/// How a step takes jobs from its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputMode {
    /// `from`: the one input.
    From,
    /// `join`: one job of each, in pairs (triples, …) by order.
    Join,
    /// `alts`: one job of whichever has one first.
    Alts,
}

/// `begin_at`: with which job a step begins that has never taken any of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeginAt {
    /// The oldest that is kept.
    #[default]
    Oldest,
    /// The first that comes after its first start.
    Newest,
    /// The one at this index, from 1, which may be still to come.
    Index(u64),
}

/// `delivery`: what a step promises about each job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryGuarantee {
    #[default]
    ExactlyOnce,
    /// No snapshot is recorded before an attempt that can be seen outside.
    AtLeastOnce,
    /// Progress moves before the attempt, which is never made again.
    AtMostOnce,
}

#[derive(Clone, Debug)]
pub struct InputRef {
    /// The name under which the step sees it; empty for `from`. Part of the delivery hash.
    pub binding: String,
    /// As it was written, made absolute: for `from` part of the delivery hash.
    pub address: Address,
    pub input: Input,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    Source(SourceRef),
    Queue(QueueRef),
}

#[derive(Clone, Debug)]
pub struct OutputRef {
    pub binding: String,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Queue(QueueRef),
    Sink(SinkRef),
}

/// The order in which the outputs of a step stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputOrder {
    /// That of the jobs of each input, whatever fails and is tried again.
    AsInputs,
    /// Each as soon as its job is through.
    AsFinished,
}

impl OutputOrder {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AsInputs => "in order",
            Self::AsFinished => "as finished",
        }
    }
}

impl Step {
    /// What it promises about the order of its outputs.
    #[must_use]
    pub fn order(&self) -> OutputOrder {
        match self.picks() {
            None | Some(Queuer { strategy: Strategy::Serial, age: None, .. }) => OutputOrder::AsInputs,
            Some(_) => OutputOrder::AsFinished,
        }
    }

    /// Whether jobs come to it from outside.
    #[must_use]
    pub fn reads_source(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input.input, Input::Source(_)))
    }

    /// How jobs whose attempt failed are tried again; `None`: not at all. An error of pure code would only
    /// repeat, so a step without a policy of its own tries once; where its code acts outside, the default
    /// is followed.
    #[must_use]
    pub fn retry_policy(&self) -> Option<&RetryPolicy> {
        if self.delivery == DeliveryGuarantee::AtMostOnce {
            return None;
        }
        self.retry.as_ref().or_else(|| self.acts_outside().then_some(&RETRY_DEFAULT))
    }

    /// How it picks its jobs, if it does not take them as they come. A step whose code acts outside
    /// picks, so that its jobs can run beside each other for as long as the outside takes; so does one
    /// that waits for a gate, or for somebody to finish its jobs.
    #[must_use]
    pub fn picks(&self) -> Option<Queuer> {
        let one_by_one = self.take == InputMode::From
            && (self.acts_outside() || self.gate.is_some() || self.monitor.is_some());
        self.queuer.clone().or_else(|| one_by_one.then(Queuer::for_outside))
    }

    /// Whether what its processors do can be seen outside.
    #[must_use]
    pub fn acts_outside(&self) -> bool {
        let seen = |processor: &Processor| match processor {
            Processor::Script(_) => false,
            Processor::Plugin(plugin) => plugin.has_effects,
            Processor::Http(_) | Processor::Exec(_) => true,
        };
        // What waits for somebody outside was handed there.
        self.monitor.is_some() || self.serves || self.processors.iter().any(seen)
    }

    /// Whether an attempt can be seen outside before it is committed: what is printed cannot be taken
    /// back, while a file is cut back to its committed position.
    #[must_use]
    pub fn has_effects(&self, configuration: &Configuration) -> bool {
        self.acts_outside()
            || self.outputs.iter().any(|output| match output.target {
                Target::Queue(_) => false,
                Target::Sink(sink) => match configuration.sinks[sink.0].kind {
                    SinkKind::Stdout(_) => true,
                    SinkKind::Http(_) | SinkKind::File(_) | SinkKind::Null => false,
                },
            })
    }
}

impl InputRef {
    /// The name under which the input enters the delivery hash.
    #[must_use]
    pub fn hash_name(&self) -> String {
        if self.binding.is_empty() { self.address.to_string() } else { self.binding.clone() }
    }
}

static RETRY_DEFAULT: RetryPolicy = RetryPolicy::DEFAULT;
