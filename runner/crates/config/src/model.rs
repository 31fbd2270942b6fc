//! `Configuration`: a checked configuration, with every name resolved.
//!
//! Sources, queues, sinks, gates and steps of all pipelines are in one list each. A `…Ref` is a position in its
//! list. It is valid in the [`Configuration`] it came from, and in all that kept their positions:
//! [`Configuration::keep_positions`].

pub(crate) mod former_names;
pub(crate) mod http_request;
pub(crate) mod invocation;
pub(crate) mod keyed_join;
pub(crate) mod lookup_table;
pub(crate) mod positions;
pub(crate) mod probe;
pub(crate) mod processor;
pub(crate) mod push_source;
mod queue_tables;
pub(crate) mod queuer;
pub(crate) mod step;
pub(crate) mod test_case;
pub(crate) mod test_wiring;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use self::push_source::{HttpSource, PushSource};
use self::test_case::TestCase;
use tidegate_model::template::Template;
use tidegate_model::{Address, Name, Parts, RetryPolicy, Secret};

pub use self::former_names::{FormerNames, SinkStep};
pub use self::probe::{BatchBy, Gate, GateRef, Monitor, MonitorLimits, ProbeConfig};
pub(crate) use http_request::METHODS;
pub use http_request::{Body, Hosts, HttpRequest, Method, Response, Shape};
pub use invocation::Invocation;
pub use keyed_join::{JoinSide, KeyedJoin};
pub use lookup_table::{FileTable, LookupTable, LookupTables, QueueTable};
pub use positions::Positions;
pub use processor::{ImportedScript, Limits, Pin, PluginStepConfig, Processor, Script, StepFilter};
pub use queuer::{AfterInvalid, FreesAt, KeysMissing, Lane, LaneMissing, Queuer, Strategy};
pub use step::{
    BeginAt, DeliveryGuarantee, Input, InputMode, InputRef, OutputOrder, OutputRef, Scheduling, Step, Target,
};

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The folder of the configuration, or of its only file.
    pub root: PathBuf,
    /// The data folder.
    pub data: PathBuf,
    pub settings: Settings,
    pub log: LogSettings,
    /// In order of name.
    pub pipelines: Vec<Pipeline>,
    /// Pulled sources. Pushed ones are in their queues.
    pub sources: Parts<Source>,
    pub queues: Parts<Queue>,
    pub sinks: Parts<Sink>,
    pub gates: Parts<Gate>,
    /// Upstream before downstream, except for cycles that `allow_cycle` permits.
    pub steps: Parts<Step>,
    /// The earlier names of parts.
    pub former: FormerNames,
    /// The readers of each input: steps, each with the position among its inputs. See [`Self::derive`].
    pub(crate) readers: BTreeMap<Input, Vec<(usize, usize)>>,
    /// The tests of all pipelines. They are no part of [`Self::fingerprint`]: runs do not depend on them.
    pub tests: Vec<TestCase>,
    /// The name that the operator gave.
    pub given: Invocation,
    /// The values of all `${…}`, which must not be shown.
    pub inserted: Vec<Secret>,
}

/// `[runner]`
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// 0 = one per core.
    pub workers: usize,
    /// `None` = 30 seconds.
    pub shutdown_timeout: Option<Duration>,
    /// The folders of plugins, in order.
    pub plugins: Vec<PathBuf>,
    /// By name of the plugin.
    pub pins: BTreeMap<String, Pin>,
    /// The address of HTTP sources; `None`: no port is opened.
    pub listen: Option<SocketAddr>,
    /// The names for which the port answers in addition to its own, in small letters.
    pub hosts: Vec<String>,
    pub reload: ReloadSettings,
}

/// `[reload]`
#[derive(Clone, Debug, PartialEq)]
pub struct ReloadSettings {
    /// A change of a file starts a reload.
    pub watch: bool,
    /// The files are also compared at this interval, for file systems that report no changes.
    pub poll: Option<Duration>,
    /// The tests of the changed parts run before a swap.
    pub tests: bool,
    pub watch_errors: Option<WatchErrors>,
}

impl Default for ReloadSettings {
    fn default() -> Self {
        Self { watch: true, poll: None, tests: false, watch_errors: None }
    }
}

/// `watch_errors`: a share of failed attempts that rolls a reload back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchErrors {
    /// The share of failed attempts that must be exceeded; above 0, at most 1.
    pub rate: f64,
    /// The time after the swap in which attempts count.
    pub within: Duration,
}

/// `[log]`
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// A level, or directives like `info,tidegate_store=debug`.
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
    /// The provenance that a job receives from this source.
    pub meta: Meta,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SourceKind {
    File(FileSource),
    Service(Box<PullSource>),
}

/// `type = "http-pull"`: the job at the index `i` is the answer of a service for its number `first + i - 1`.
#[derive(Clone, Debug, PartialEq)]
pub struct PullSource {
    /// Has `{index}`, the number of the service, once.
    pub url: Template,
    /// In lowercase, and the same for every request.
    pub headers: Vec<(String, Template)>,
    /// The number of the first job.
    pub first: u64,
    /// The number of the last job; `None`: the source is followed.
    pub until: Option<u64>,
    /// The statuses of a number that the service does not have yet.
    pub not_yet: Vec<RangeInclusive<u16>>,
    /// The statuses of a job.
    pub accept: Vec<RangeInclusive<u16>>,
    /// The time between two requests for a number that is not there yet.
    pub every: Duration,
    /// Maximum number of requests at the same time, for each reading step.
    pub concurrency: usize,
    pub timeout: Duration,
    /// Maximum bytes of an answer.
    pub max_response: u64,
    pub retry: RetryPolicy,
}

impl PullSource {
    /// A service is asked again without end, after 1 s to 1 min.
    pub(crate) fn default_retry() -> RetryPolicy {
        RetryPolicy { max: Duration::from_mins(1), max_attempts: 0, ..RetryPolicy::DEFAULT }
    }

    /// The number of the service for the job at `index`.
    #[must_use]
    pub fn number(&self, index: u64) -> u64 {
        self.first.saturating_add(index.saturating_sub(1))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    /// Absolute: a file, a folder (every file in it), or a glob.
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

/// The records that a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFormat {
    pub format: DataFormat,
    /// Longest line or record, in bytes; a longer one is a fault.
    pub max_line: usize,
    /// csv: the first record names the fields.
    pub headers: bool,
    /// csv: one ASCII character.
    pub delimiter: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFormat {
    /// One JSON value per line; blank lines are skipped.
    Ndjson,
    /// One job per line: its text as a JSON string.
    Lines,
    /// One job per record: an object of strings by header, or an array of strings without headers.
    Csv,
    /// One job per file: `{"path", "size", "text"}`, or `"base64"` if it is not UTF-8.
    Bytes,
}

/// `[queue.NAME]`, a queue that is only mentioned, or that of a pushed source.
#[derive(Clone, Debug)]
pub struct Queue {
    pub address: Address,
    pub retain: Retain,
    /// Bytes in the store beyond which jobs that every reader has accounted for are deleted, even if `retain`
    /// would keep them.
    pub max_size: Option<u64>,
    /// The provenance that a job receives from this queue.
    pub meta: Meta,
    /// How long a delivery to this queue is deduplicated.
    pub dedupe: Option<Duration>,
    /// It is the error queue of some step.
    pub holds_errors: bool,
    /// It is the queue of the events of some step.
    pub holds_events: bool,
    /// The source that fills it instead of steps.
    pub source: Option<PushSource>,
}

impl Queue {
    /// The source of HTTP requests that fills it.
    #[must_use]
    pub fn http_source(&self) -> Option<&HttpSource> {
        match &self.source {
            Some(PushSource::Http(source)) => Some(source),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retain {
    /// Until every reader has accounted for it; without a reader, for ever.
    Consumed,
    For(Duration),
    Forever,
}

/// `meta = ["index", "time", "tx"]` of a queue, or `["index", "place"]` of a file source: the provenance of its jobs.
#[expect(clippy::struct_excessive_bools, reason = "each is one word of the list")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub index: bool,
    /// The commit time.
    pub time: bool,
    /// The number of the commit, over the whole store.
    pub transaction: bool,
    /// The file and the line in it.
    pub place: bool,
    /// `meta = false`: jobs on the queue carry no provenance, that of earlier queues included.
    pub dropped: bool,
}

impl Meta {
    /// Whether jobs receive no provenance from the queue.
    #[must_use]
    pub fn is_empty(self) -> bool {
        !(self.index || self.time || self.transaction || self.place)
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
    /// Its requests are part of the attempt, as its last action.
    Http(Box<HttpRequest>),
    Null,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSink {
    pub path: PathBuf,
    pub format: SinkFormat,
    pub on_mismatch: OnMismatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFormat {
    /// One JSON value per line.
    Ndjson,
    /// One line per string payload, with its text; other payloads as JSON.
    Lines,
}

/// The reaction of a file sink to a changed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMismatch {
    Refuse,
    /// Accepts the file and continues at its end.
    Append,
}

impl SinkKind {
    /// Whether both kinds write to the same place in the same way, outside of attempts.
    #[must_use]
    pub fn writes_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => one == other,
            (Self::Stdout(one), Self::Stdout(other)) => one == other,
            // The requests to a service are part of the attempt.
            (Self::Http(_) | Self::Null, Self::Http(_) | Self::Null) => true,
            _ => false,
        }
    }
}

/// How long the outcomes of deliveries with external effects are recorded, unless a queue sets it.
const EFFECTS_KEPT: Duration = Duration::from_hours(7 * 24);

/// The processors of steps, of their monitors and of gates.
pub fn all_processors<'c>(
    steps: impl IntoIterator<Item = &'c Step>,
    gates: impl IntoIterator<Item = &'c Gate>,
) -> impl Iterator<Item = &'c Processor> {
    let of_steps = steps.into_iter().flat_map(|step| {
        let asked = step.monitor.iter().flat_map(|monitor| &monitor.inquiry.run);
        step.processors.iter().chain(asked)
    });
    of_steps.chain(gates.into_iter().flat_map(|gate| &gate.inquiry.run))
}

impl Configuration {
    /// A command of Tidegate for this configuration, as the operator would type it here.
    #[must_use]
    pub fn command(&self, command: &str) -> String {
        self.given.command(command)
    }

    /// The steps whose attempts the crash guard records.
    pub fn guarded_steps(&self) -> impl Iterator<Item = &Address> {
        self.steps.iter().filter(|step| step.crash_guard_limit().is_some()).map(|step| &step.address)
    }

    /// The gate and the monitor of `step`.
    pub fn probes<'c>(&'c self, step: &'c Step) -> impl Iterator<Item = &'c ProbeConfig> {
        let gate = step.gate.map(|GateRef(gate)| &self.gates[gate].inquiry);
        gate.into_iter().chain(step.monitor.as_ref().map(|monitor| &monitor.inquiry))
    }

    /// How long the outcomes of deliveries of `step` are recorded, if at all.
    #[must_use]
    pub fn keeps_records(&self, step: &Step) -> Option<Duration> {
        let asked = self.queues_of(step).filter_map(|queue| queue.dedupe).max();
        asked.or_else(|| step.has_effects(self).then_some(EFFECTS_KEPT))
    }

    /// Whether repeated deliveries of `step` are dropped.
    #[must_use]
    pub fn dedupes(&self, step: &Step) -> bool {
        self.queues_of(step).any(|queue| queue.dedupe.is_some())
    }

    /// The output queues of `step`, without its error queue.
    fn queues_of<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = &'a Queue> {
        step.outputs.iter().filter_map(|output| match output.target {
            Target::Queue(QueueRef(queue)) => self.queues.get(queue),
            Target::Sink(_) => None,
        })
    }

    /// Derives how steps start their jobs, and the readers of each input. Call it after a change of the steps, and
    /// when the effects of their plugins are known.
    pub fn derive(&mut self) {
        self.steps.iter_mut().for_each(Step::resolve_scheduling);
        self.readers.clear();
        for (step, declared) in self.steps.entries() {
            for (position, input) in declared.inputs.iter().enumerate() {
                self.readers.entry(input.input).or_default().push((step, position));
            }
        }
    }

    /// The readers of `input`: steps, each with the position among its inputs.
    #[must_use]
    pub fn readers(&self, input: Input) -> &[(usize, usize)] {
        self.readers.get(&input).map(Vec::as_slice).unwrap_or_default()
    }

    /// Positions of the queues by address.
    #[must_use]
    pub fn queues_by_address(&self) -> BTreeMap<&Address, QueueRef> {
        self.queues.entries().map(|(position, queue)| (&queue.address, QueueRef(position))).collect()
    }
}
