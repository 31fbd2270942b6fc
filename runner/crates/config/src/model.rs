//! What a checked configuration says, with every name resolved.
//!
//! Sources, queues, sinks and steps of all pipelines stand in one list each; a `…Ref` is a
//! position in its list, valid for the [`Configuration`] it came from.

pub(crate) mod http_request;
pub(crate) mod invocation;
pub(crate) mod probe;
pub(crate) mod processor;
pub(crate) mod push_source;
pub(crate) mod queuer;
pub(crate) mod step;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use twox_hash::XxHash3_64;

use self::push_source::PushSource;
use crate::parse::absolute_path::absolute;
use tidegate_model::{Address, Name};

pub use self::probe::{Gate, GateRef, Monitor, ProbeConfig};
pub(crate) use http_request::METHODS;
pub use http_request::{Body, HttpRequest, Method, Response, Shape};
pub use invocation::Invocation;
pub use processor::{Limits, Pin, PluginStep, Processor, Script, StepFilter};
pub use queuer::{FieldPath, Lane, LaneMissing, Queuer, Strategy};
pub use step::{
    BeginAt, DeliveryGuarantee, Input, InputMode, InputRef, OutputOrder, OutputRef, Step, Target,
};

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
    /// How the operator has named it.
    pub given: Invocation,
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
    /// The names that the port answers for besides its own, in small letters.
    pub hosts: Vec<String>,
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
}

#[derive(Clone, Debug)]
pub enum SourceKind {
    File(FileSource),
}

#[derive(Clone, Debug)]
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

/// For how long it is kept on record how the deliveries of a step with outside effects ended, where no
/// queue says otherwise.
const EFFECTS_KEPT: Duration = Duration::from_hours(7 * 24);

impl Configuration {
    /// A number that changes when what the configuration says does, scripts included.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        // Written out in words, everything stands in it; the folders where it lies do not matter.
        let said = format!("{:?}", (&self.sources, &self.queues, &self.sinks, &self.gates, &self.steps));
        let root = absolute(&self.root).display().to_string();
        let said = said.replace(&root, "").replace(&self.root.display().to_string(), "");
        XxHash3_64::oneshot(said.as_bytes())
    }

    /// A command of Tidegate about this configuration, as the operator would type it here.
    #[must_use]
    pub fn command(&self, command: &str) -> String {
        self.given.command(command)
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
