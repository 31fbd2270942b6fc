//! What a checked configuration says, with every name resolved.
//!
//! Sources, queues, sinks and steps of all pipelines stand in one list each; a `…Ref` is a
//! position in its list, valid for the [`Configuration`] it came from.

mod inquiry;
mod queuer;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use twox_hash::XxHash3_64;

use super::diagnostic::Place;
use super::exec::ExecCommand;
use super::http::HttpRequest;
use super::push::PushSource;
use crate::decide::RetryPolicy;
use crate::words::{Address, Name};

pub use inquiry::{Gate, GateRef, Inquiry, Monitor};
pub use queuer::{FieldPath, Lane, LaneMissing, Queuer, Strategy};

/// A configuration without mistakes.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The folder of the configuration (of the file, where it is a single one).
    pub root: PathBuf,
    /// Where state lives.
    pub data: PathBuf,
    pub settings: Settings,
    pub log: LogSettings,
    /// In order of name.
    pub pipelines: Vec<Pipeline>,
    /// Those that are pulled. What is pushed comes through a queue.
    pub sources: Vec<Source>,
    pub queues: Vec<Queue>,
    pub sinks: Vec<Sink>,
    pub gates: Vec<Gate>,
    /// Upstream before downstream, but for cycles that `allow_cycle` allows.
    pub steps: Vec<Step>,
}

/// `[runner]`
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// 0 = one a core.
    pub workers: usize,
    /// `None` = 30 seconds.
    pub shutdown_timeout: Option<Duration>,
    /// Where plugins are looked for, in order.
    pub plugins: Vec<PathBuf>,
    /// By name of the plugin.
    pub pins: BTreeMap<String, Pin>,
    /// Where HTTP sources are reached; `None`: no port is opened.
    pub listen: Option<SocketAddr>,
}

/// `[log]`
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// A level, or directives like `info,tidegate::store=debug`.
    pub level: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug)]
pub struct Pipeline {
    pub name: Name,
    pub file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceRef(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueRef(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkRef(pub usize);

/// `[source.NAME]`
#[derive(Clone, Debug)]
pub struct Source {
    pub address: Address,
    pub kind: SourceKind,
}

#[derive(Clone, Debug)]
pub enum SourceKind {
    File(FileSource),
}

#[derive(Clone, Debug)]
pub struct FileSource {
    /// Absolute (or relative to the working folder as the configuration was): a file, a folder
    /// (every file in it), or a glob.
    pub path: PathBuf,
    pub format: DataFormat,
    /// Wait for more, across truncation and rotation.
    pub follow: bool,
    /// Longest line, record or (with `bytes`) file, in bytes; a longer one is a fault.
    pub max_line: usize,
    /// csv: the first record names the fields.
    pub headers: bool,
    /// csv: one ASCII character.
    pub delimiter: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFormat {
    /// A JSON value a line; blank lines are no jobs.
    Ndjson,
    /// A line a job: its text as a JSON string.
    Lines,
    /// A record a job: an object of strings by header, or an array of strings without headers.
    Csv,
    /// A file a job: `{"path", "size", "text"}`, or `"base64"` where it is not UTF-8.
    Bytes,
}

/// `[queue.NAME]`, a queue that is only mentioned, or that of a source that is pushed.
#[derive(Clone, Debug)]
pub struct Queue {
    pub address: Address,
    pub retain: Retain,
    /// Bytes in the store past which jobs go that every reader has accounted for, though `retain`
    /// would keep them.
    pub max_size: Option<u64>,
    /// What a job is told about this queue when it has passed it.
    pub meta: Meta,
    /// For how long a delivery that stands here does not come a second time.
    pub dedupe: Option<Duration>,
    /// It is the error queue of some step.
    pub holds_errors: bool,
    /// The source of its name, which fills it; no step does then.
    pub source: Option<PushSource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retain {
    /// Until every reader has accounted for it; where nobody reads, for ever.
    Consumed,
    For(Duration),
    Forever,
}

/// `meta = ["index", "time", "tx"]` of a queue: the provenance that its jobs carry along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub index: bool,
    /// When it was committed.
    pub time: bool,
    /// The number of the commit, over the whole store.
    pub transaction: bool,
}

impl Meta {
    /// Whether jobs carry nothing of the queue.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// `[sink.NAME]`
#[derive(Clone, Debug)]
pub struct Sink {
    pub address: Address,
    pub kind: SinkKind,
}

#[derive(Clone, Debug)]
pub enum SinkKind {
    File(FileSink),
    Stdout(SinkFormat),
    /// Whoever delivers into it makes its requests, as the last part of the attempt.
    Http(Box<HttpRequest>),
    Null,
}

#[derive(Clone, Debug)]
pub struct FileSink {
    pub path: PathBuf,
    pub format: SinkFormat,
    pub on_mismatch: OnMismatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFormat {
    /// A JSON value a line.
    Ndjson,
    /// A string payload's text a line; other payloads as JSON.
    Lines,
}

/// What a file sink does about a file that is not as it left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMismatch {
    Refuse,
    /// Takes the file as it is and goes on at its end.
    Append,
}

/// `[step.NAME]`, or the unnamed step that a sink with `from` is: it has the sink's name, no
/// processors, and the sink as its only target.
#[derive(Clone, Debug)]
pub struct Step {
    pub address: Address,
    pub take: Take,
    /// In order of binding; one, with an empty binding, for `from`.
    pub inputs: Vec<InputRef>,
    /// Run one after the other, in memory. None: jobs are handed on as they are.
    pub processors: Vec<Processor>,
    pub filter: StepFilter,
    /// The bindings of `to`, in order of name. One with an empty name for `to = "name"`; none for a
    /// step without `to`, whose outputs are dropped.
    pub outputs: Vec<OutputRef>,
    /// Where jobs go that are rejected or fail. `None`: the step stops at the first one.
    pub errors: Option<QueueRef>,
    pub limits: Limits,
    pub delivery: Promise,
    /// So many times in a row a job may take the process down before it is set aside; at least 1.
    pub crash_limit: u32,
    /// Longest run of one attempt.
    pub timeout: Option<Duration>,
    /// `config = { … }` as JSON; seen as `ctx.config`.
    pub config: serde_json::Value,
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
pub enum Take {
    /// `from`: the one input.
    From,
    /// `join`: one job of each, in pairs (triples, …) by order.
    Join,
    /// `alts`: one job of whichever has one first.
    Alts,
}

/// `delivery`: what a step promises about each job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

#[derive(Clone, Debug)]
pub enum Processor {
    Script(Script),
    Plugin(PluginStep),
    /// `builtin:http`
    Http(Box<HttpRequest>),
    /// `builtin:exec`
    Exec(Box<ExecCommand>),
}

impl Processor {
    /// The script that it is.
    #[must_use]
    pub fn script(&self) -> Option<&Script> {
        match self {
            Self::Script(script) => Some(script),
            _ => None,
        }
    }

    /// The plugin's step that it is.
    #[must_use]
    pub fn plugin(&self) -> Option<&PluginStep> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// The plugin's step that it is.
    #[must_use]
    pub fn plugin_mut(&mut self) -> Option<&mut PluginStep> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }
}

impl PluginStep {
    /// As messages name it: `NAME/STEP`, or `NAME`.
    #[must_use]
    pub fn named(&self) -> String {
        match &self.step {
            _ if self.secret => "…".to_owned(),
            Some(step) => format!("{}/{step}", self.plugin),
            None => self.plugin.clone(),
        }
    }

    /// A message about it, without what must not be shown.
    #[must_use]
    pub fn masked(&self, message: String) -> String {
        if !self.secret {
            return message;
        }
        let file = self.plugin.replace('-', "_");
        let words = [Some(&self.plugin), Some(&file), self.step.as_ref()];
        words.into_iter().flatten().fold(message, |message, word| message.replace(word.as_str(), "…"))
    }
}

/// A step of a native plugin: `plugin:NAME/STEP`.
#[derive(Clone, Debug)]
pub struct PluginStep {
    pub plugin: String,
    /// `None`: the only one, or the one of the plugin's name.
    pub step: Option<String>,
    /// Some of the name came from outside the file, so it must not be shown.
    pub secret: bool,
    /// Where `run` names it.
    pub named_in: PathBuf,
    pub named_at: std::ops::Range<usize>,
    /// Attempts can be seen outside. Known when the library is loaded; until then `false`.
    pub has_effects: bool,
    /// Of the library. Known when it is loaded; until then empty.
    pub sha256: String,
}

/// `[plugin.NAME] sha256`
#[derive(Clone, Debug)]
pub struct Pin {
    /// 64 lowercase hex digits.
    pub sha256: String,
    pub place: Place,
}

/// A script as it was on disk when the configuration was read.
#[derive(Clone, Debug)]
pub struct Script {
    /// Resolved, for reading.
    pub path: PathBuf,
    pub text: String,
    /// Where `run` names it: file, and byte range of the name in it, for diagnostics.
    pub named_in: PathBuf,
    pub named_at: std::ops::Range<usize>,
}

/// `types`, `topics` and `when`; a job passes if all that are given hold.
#[derive(Clone, Debug, Default)]
pub struct StepFilter {
    /// The job's `type` is one of these.
    pub types: Vec<String>,
    /// One of the job's `topics` (or its `topic`) is one of these.
    pub topics: Vec<String>,
    /// A Rhai expression over `job`, with the byte range of its text in `Step::file`.
    pub when: Option<(String, std::ops::Range<usize>)>,
}

impl StepFilter {
    /// Whether every job passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty() && self.topics.is_empty() && self.when.is_none()
    }
}

/// `limits = { … }` of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rhai operations.
    pub operations: u64,
    /// Bytes that one value of a script may come to.
    pub memory: u64,
    /// Nesting of values and calls.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations: 10_000_000, memory: 64 << 20, depth: 64 }
    }
}

impl Step {
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
        if self.delivery == Promise::AtMostOnce {
            return None;
        }
        self.retry.as_ref().or_else(|| self.acts_outside().then_some(&RETRY_DEFAULT))
    }

    /// How it picks its jobs, if it does not take them as they come. A step whose code acts outside
    /// picks, so that its jobs can run beside each other for as long as the outside takes; so does one
    /// that waits for a gate, or for somebody to finish its jobs.
    #[must_use]
    pub fn picks(&self) -> Option<Queuer> {
        let one_by_one =
            self.take == Take::From && (self.acts_outside() || self.gate.is_some() || self.monitor.is_some());
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

/// For how long it is kept on record how the deliveries of a step with outside effects ended, where no
/// queue says otherwise.
const EFFECTS_KEPT: Duration = Duration::from_hours(7 * 24);

impl Configuration {
    /// A number that changes when what the configuration says does, scripts included.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        // Written out in words, everything stands in it; the folders where it lies do not matter.
        let said = format!("{:?}", (&self.sources, &self.queues, &self.sinks, &self.gates, &self.steps));
        let root = self.root.display().to_string();
        XxHash3_64::oneshot(said.replace(&root, "").as_bytes())
    }

    /// For how long it is kept on record how the deliveries of `step` ended, if at all.
    #[must_use]
    pub fn keeps_records(&self, step: &Step) -> Option<Duration> {
        let asked = self.queues_of(step).filter_map(|queue| queue.dedupe).max();
        asked.or_else(|| step.has_effects(self).then_some(EFFECTS_KEPT))
    }

    /// Whether a delivery of `step` whose outputs stand already must not come a second time.
    #[must_use]
    pub fn dedupes(&self, step: &Step) -> bool {
        self.queues_of(step).any(|queue| queue.dedupe.is_some())
    }

    /// The queues that `step` delivers to, but for its errors.
    fn queues_of<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = &'a Queue> {
        step.outputs.iter().filter_map(|output| match output.target {
            Target::Queue(QueueRef(queue)) => self.queues.get(queue),
            Target::Sink(_) => None,
        })
    }

    /// What reads `input`: steps, each with the position among its inputs.
    pub fn readers(&self, input: Input) -> impl Iterator<Item = (usize, usize)> + '_ {
        let inputs = move |(step, declared): (usize, &'_ Step)| {
            let inputs = declared.inputs.iter().enumerate();
            let reading = inputs.filter(move |(_, one)| one.input == input);
            reading.map(move |(position, _)| (step, position)).collect::<Vec<_>>()
        };
        self.steps.iter().enumerate().flat_map(inputs)
    }

    /// Positions of the queues by address.
    #[must_use]
    pub fn queues_by_address(&self) -> BTreeMap<&Address, QueueRef> {
        self.queues.iter().enumerate().map(|(position, queue)| (&queue.address, QueueRef(position))).collect()
    }
}
