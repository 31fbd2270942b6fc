//! `Step`: a `[step.NAME]`, with its inputs, processors, outputs and policies.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Configuration, GateRef, KeyedJoin, Limits, LookupTables, Monitor, Processor, QueueRef, Queuer, SinkKind,
    SinkRef, SourceRef, StepFilter, Strategy,
};
use tidegate_model::{Address, RetryPolicy, Secret};

/// `[step.NAME]`, or the unnamed step that a sink with `from` implies: it has the sink's name, no processors,
/// and the sink as its only output.
#[derive(Clone, Debug)]
pub struct Step {
    pub address: Address,
    pub take: InputMode,
    /// In order of binding; one, with an empty binding, for `from`.
    pub inputs: Vec<InputRef>,
    /// It finds the tuples of a join by key, for the step that declares the join.
    pub joins: Option<Box<KeyedJoin>>,
    /// The bindings of the jobs in a tuple, if it declares a join by key: its jobs are the tuples.
    pub tuple_of: Vec<String>,
    pub begin_at: BeginAt,
    /// Run one after the other, in memory. Empty: jobs are passed on unchanged.
    pub processors: Vec<Processor>,
    pub filter: StepFilter,
    /// The bindings of `to`, in order of name. One with an empty name for `to = "name"`; none for a
    /// step without `to`, whose outputs are dropped.
    pub outputs: Vec<OutputRef>,
    /// The queue for rejected and failed jobs. `None`: the step stops at the first one, or drops them.
    pub errors: Option<QueueRef>,
    /// Without an error queue, failed jobs are consumed, counted and logged.
    pub drops_errors: bool,
    /// The queue for its events: the beginnings, failures, waits, verdicts and ends of its jobs.
    pub events: Option<QueueRef>,
    pub limits: Limits,
    pub delivery: DeliveryGuarantee,
    /// Number of deaths of the process in a row before a job is quarantined; `None`: it never is.
    pub crash_limit: Option<NonZeroU32>,
    /// Maximum time of one attempt.
    pub timeout: Option<Duration>,
    /// `config = { … }` as JSON, over the values of the pipeline and the runner; available as `ctx.config`. It can be
    /// large.
    pub config: Arc<serde_json::Value>,
    /// The parts that must not be shown.
    pub secrets: Vec<Secret>,
    /// The keys of `config` that are the pipeline's or the runner's.
    pub shared: Vec<String>,
    /// The tables that its scripts and its `when` may read.
    pub tables: LookupTables,
    /// Its plugins run in a process of their own.
    pub isolate: bool,
    /// As configured; [`Self::retry_policy`] is the effective one.
    pub retry: Option<RetryPolicy>,
    /// `None`: oldest first, as many as there are workers.
    pub queuer: Option<Queuer>,
    /// Derived; see [`Configuration::derive`].
    pub(crate) scheduling: Scheduling,
    /// It delivers to an HTTP service, within its attempts.
    pub serves: bool,
    pub gate: Option<GateRef>,
    pub monitor: Option<Monitor>,
    /// The pipeline's file and the line of the step's header, for messages.
    pub file: PathBuf,
    pub line: u64,
}

/// How a step starts its waiting jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// In batches, in the order of its inputs.
    #[default]
    InOrder,
    /// One by one, by the rules of this queuer.
    Queued(Box<Queuer>),
}

/// The input mode of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputMode {
    /// `from`: the one input.
    From,
    /// `join`: one job of each, in pairs (triples, …) by order.
    Join,
    /// `alts`: one job of the input that has one first.
    Alts,
}

/// `begin_at`: the first job of a step that has not accounted for any job of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeginAt {
    /// The oldest that is kept.
    #[default]
    Oldest,
    /// The first that arrives after its first start.
    Newest,
    /// The one at this index, from 1, which may not exist yet.
    Index(u64),
}

/// `delivery`: the delivery guarantee of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryGuarantee {
    #[default]
    ExactlyOnce,
    /// No snapshot is recorded before an attempt with external effects.
    AtLeastOnce,
    /// Progress is committed before the attempt, which is never repeated.
    AtMostOnce,
}

#[derive(Clone, Debug)]
pub struct InputRef {
    /// The name of the input in the step; empty for `from`. Part of the delivery hash.
    pub binding: String,
    /// The configured name, made absolute: for `from` part of the delivery hash.
    pub address: Address,
    pub input: Input,
    /// Whether the binding named another input first.
    pub is_moved: bool,
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

/// The order of a step's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputOrder {
    /// The order of each input's jobs, also across failures and retries.
    AsInputs,
    /// The order in which jobs finish.
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
    /// The guaranteed order of its outputs.
    #[must_use]
    pub fn order(&self) -> OutputOrder {
        match self.picks() {
            // A tuple is delivered with the last of its jobs.
            _ if self.joins.is_some() => OutputOrder::AsFinished,
            None
            | Some(Queuer { ordered: true, .. } | Queuer { strategy: Strategy::Serial, age: None, .. }) => {
                OutputOrder::AsInputs
            }
            Some(_) => OutputOrder::AsFinished,
        }
    }

    /// Whether it reads a source.
    #[must_use]
    pub fn reads_source(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input.input, Input::Source(_)))
    }

    /// The retry policy for failed attempts; `None`: no retry. An error of pure code would only repeat, so a
    /// step without a policy attempts once. A step with external effects has a default policy.
    #[must_use]
    pub fn retry_policy(&self) -> Option<&RetryPolicy> {
        if self.delivery == DeliveryGuarantee::AtMostOnce {
            return None;
        }
        self.retry.as_ref().or_else(|| self.acts_outside().then_some(&RETRY_DEFAULT))
    }

    /// How it starts its jobs.
    #[must_use]
    pub fn scheduling(&self) -> &Scheduling {
        &self.scheduling
    }

    /// The queuer of a queued step; `None` for an ordered one.
    #[must_use]
    pub fn picks(&self) -> Option<&Queuer> {
        match &self.scheduling {
            Scheduling::InOrder => None,
            Scheduling::Queued(queuer) => Some(queuer),
        }
    }

    /// Resolves how it starts its jobs. A step with external effects is queued, so that its jobs run in parallel
    /// while they wait for the external system. A step with a gate or a monitor is queued too.
    pub(crate) fn resolve_scheduling(&mut self) {
        let one_by_one = self.take == InputMode::From
            && (self.acts_outside() || self.gate.is_some() || self.monitor.is_some());
        self.scheduling = match &self.queuer {
            Some(queuer) => Scheduling::Queued(Box::new(queuer.clone())),
            None if one_by_one => Scheduling::Queued(Box::new(Queuer::for_outside())),
            None => Scheduling::InOrder,
        };
    }

    /// Whether its processors have external effects.
    #[must_use]
    pub fn acts_outside(&self) -> bool {
        let seen = |processor: &Processor| match processor {
            Processor::Script(_) => false,
            Processor::Plugin(plugin) => plugin.has_effects,
            Processor::Http(_) | Processor::Exec(_) => true,
        };
        // A pending job was submitted to an external system.
        self.monitor.is_some() || self.serves || self.processors.iter().any(seen)
    }

    /// Whether an attempt runs code in the process of the runner, which may kill it: a script, also in `when`,
    /// or a plugin without a process of its own. Commands and requests cannot.
    #[must_use]
    pub fn runs_code_in_process(&self) -> bool {
        let here = |processor: &Processor| match processor {
            Processor::Script(_) => true,
            Processor::Plugin(_) => !self.isolate,
            Processor::Http(_) | Processor::Exec(_) => false,
        };
        self.filter.when.is_some() || self.processors.iter().any(here)
    }

    /// Whether a job whose attempt ended with the death of a process is attempted again. The progress of
    /// `at-most-once` is committed before the attempt, so its jobs are not.
    #[must_use]
    pub fn attempts_again_after_a_death(&self) -> bool {
        self.delivery != DeliveryGuarantee::AtMostOnce
    }

    /// Maximum number of deaths of the runner that a job may cause. `None` if it has no maximum, or can cause
    /// no death: its attempts are not recorded. Otherwise all jobs that a killed runner had begun, such as
    /// calls of a slow service, would run one by one.
    #[must_use]
    pub fn crash_guard_limit(&self) -> Option<NonZeroU32> {
        let is_guarded = self.attempts_again_after_a_death() && self.runs_code_in_process();
        self.crash_limit.filter(|_| is_guarded)
    }

    /// Whether an attempt has external effects before its commit: printed lines cannot be undone, while a
    /// file is truncated to its committed length.
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
    /// The name of the input in the step: its binding, or the address.
    #[must_use]
    pub fn name(&self) -> String {
        if self.binding.is_empty() { self.address.to_string() } else { self.binding.clone() }
    }

    /// The name of the input in the delivery hash, in parked jobs and in snapshots. The inputs that a binding names one
    /// after the other have equal indices, so all but the first are named with their addresses.
    #[must_use]
    pub fn hash_name(&self) -> String {
        if self.is_moved { format!("{}={}", self.binding, self.address) } else { self.name() }
    }
}

static RETRY_DEFAULT: RetryPolicy = RetryPolicy::DEFAULT;
