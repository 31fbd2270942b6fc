//! `Files`: a configuration that changes at random.

use std::fs;

use crate::plugins;
use crate::project::Project;
use crate::random::Random;

/// Queues that the first step fills in turn.
pub(super) const QUEUES: [&str; 3] = ["a", "b", "c"];
pub(super) const LANES: u64 = 7;
/// One of this many jobs is rejected.
pub(super) const REJECTED: u64 = 97;
/// One of this many jobs fails twice.
const FAILING: u64 = 41;

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Script,
    /// The queue between the first two steps has another name.
    Queue,
    Sink,
    Queuer,
    Retry,
    /// A pipeline is removed, or added again.
    Pipeline,
    /// The library of a plugin is replaced.
    Plugin,
    /// The first step, the source or the queue before the third step has another name.
    Rename(Renamed),
    /// A file cannot be read.
    Mistake,
}

/// Part that gets another name again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renamed {
    Step,
    Source,
    Queue,
}

const RENAMED: [Renamed; 3] = [Renamed::Step, Renamed::Source, Renamed::Queue];

/// Content of the files.
pub(super) struct Files {
    /// Versions of the three scripts, which only grow.
    scripts: [u64; 3],
    /// Queue of the first step, and the one before it.
    queue: usize,
    queue_before: usize,
    /// Number of the file of the sink, which only grows.
    sink: u64,
    processing: u64,
    /// Strategy and lane of the queuer, by position.
    queuer: usize,
    attempts: u64,
    has_extra: bool,
    /// Version of the plugin, which only grows.
    plugin: u64,
    /// Number of renames of each part, and of those that a runner has carried out: `was` names a part that ran.
    renamed: [u64; 3],
    ran: Option<[u64; 3]>,
    /// Name of a file with a mistake, and its text.
    mistake: Option<(&'static str, &'static str)>,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            scripts: [1; 3],
            queue: 0,
            queue_before: 1,
            sink: 0,
            processing: 4,
            queuer: 0,
            attempts: 10,
            has_extra: true,
            plugin: 1,
            renamed: [0; 3],
            ran: None,
            mistake: None,
        }
    }

    /// Changes one thing. An earlier mistake is mended.
    pub(super) fn change(&mut self, random: &mut Random) -> Change {
        self.mistake = None;
        match random.below(10) {
            0 | 1 => {
                self.scripts[random.up_to(2)] += 1;
                Change::Script
            }
            2 => {
                self.queue_before = self.queue;
                self.queue = (self.queue + 1 + random.up_to(1)) % QUEUES.len();
                Change::Queue
            }
            3 => {
                self.sink += 1;
                Change::Sink
            }
            4 => {
                self.processing = 1 + (self.processing + random.below(6)) % 7;
                self.queuer = random.up_to(QUEUERS.len() - 1);
                Change::Queuer
            }
            5 => {
                self.attempts = 10 + (self.attempts + random.below(6)) % 7;
                Change::Retry
            }
            6 => {
                self.has_extra = !self.has_extra;
                Change::Pipeline
            }
            7 => {
                self.plugin += 1;
                Change::Plugin
            }
            8 if self.ran == Some(self.renamed) => {
                let part = random.up_to(RENAMED.len() - 1);
                self.renamed[part] += 1;
                Change::Rename(RENAMED[part])
            }
            _ => {
                self.mistake = Some(MISTAKES[random.up_to(MISTAKES.len() - 1)]);
                Change::Mistake
            }
        }
    }

    /// A runner carries out these files, or perhaps others.
    pub(super) fn note_run(&mut self, are_run: bool) {
        self.ran = are_run.then_some(self.renamed);
    }

    pub(super) fn have_a_mistake(&self) -> bool {
        self.mistake.is_some()
    }

    pub(super) fn mend(&mut self, project: &Project) {
        self.mistake = None;
        self.write(project);
    }

    /// Writes the files that let a run end when all jobs of all queues are delivered.
    pub(super) fn finish(&mut self, project: &Project) {
        (self.has_extra, self.mistake) = (true, None);
        self.write(project);
        let all = QUEUES.map(|queue| format!("{queue} = \"{queue}\"")).join(", ");
        project.write("p.toml", self.pipeline(&all).replace("follow = true", ""));
        project.write("extra.toml", EXTRA.replace("follow = true", ""));
    }

    /// Files of the sink, in the order of time.
    pub(super) fn sinks(&self) -> impl Iterator<Item = String> {
        (0..=self.sink).map(|number| format!("out/{number}.ndjson"))
    }

    /// Writes the files that differ, as editors do: a new file takes the place of the old one.
    pub(super) fn write(&self, project: &Project) {
        let [first, second, third] = self.scripts;
        let before = if self.queue_before == self.queue { 1 - self.queue.min(1) } else { self.queue_before };
        let read = [self.queue, before].map(|queue| format!("{0} = \"{0}\"", QUEUES[queue])).join(", ");
        let texts = [
            ("p.toml", self.pipeline(&read)),
            ("first.rhai", script(FIRST, first)),
            ("second.rhai", script(SECOND, second)),
            ("third.rhai", script(THIRD, third)),
        ];
        self.write_plugin(project);
        for (name, text) in texts {
            let text = match self.mistake {
                Some((file, mistake)) if file == name => mistake.to_owned(),
                _ => text,
            };
            replace(project, name, &text);
        }
        if self.has_extra {
            replace(project, "extra.toml", EXTRA);
        } else {
            // It may be gone already.
            let _ = fs::remove_file(project.path().join("extra.toml"));
        }
    }

    /// Compiles the plugin if its version is new. The new library takes the place of the old one.
    fn write_plugin(&self, project: &Project) {
        let built = format!("build/{}.so", self.plugin);
        if project.path().join(&built).exists() {
            return;
        }
        for folder in ["build", "plugins"] {
            fs::create_dir_all(project.path().join(folder)).expect("folders can be made");
        }
        let version = format!("-DVERSION=\"{}\"", self.plugin);
        plugins::compile(&plugins::c_count(), &project.path().join(&built), &[&version]);
        let new = project.path().join("plugins/new");
        fs::copy(project.path().join(built), &new).expect("files can be copied");
        fs::rename(new, project.path().join("plugins/libc_count.so")).expect("files can be renamed");
    }

    fn pipeline(&self, read: &str) -> String {
        let Self { sink, processing, queuer, attempts, renamed, .. } = self;
        let mut text = PIPELINE.to_owned();
        for (name, number) in ["STEP", "SOURCE", "READY"].into_iter().zip(renamed) {
            let part = name.to_lowercase();
            let was = match number {
                0 => String::new(),
                number => format!("was = \"{part}{}\"", number - 1),
            };
            text = text.replace(&format!("WAS_{name}"), &was).replace(name, &format!("{part}{number}"));
        }
        text.replace("QUEUE", QUEUES[self.queue])
            .replace("READ", read)
            .replace("SINK", &sink.to_string())
            .replace("PICKS", QUEUERS[*queuer])
            .replace("PROCESSING", &processing.to_string())
            .replace("ATTEMPTS", &attempts.to_string())
    }
}

fn script(text: &str, version: u64) -> String {
    let numbers = [("VERSION", version), ("REJECTED", REJECTED), ("LANES", LANES), ("FAILING", FAILING)];
    numbers.iter().fold(text.to_owned(), |text, (name, number)| text.replace(name, &number.to_string()))
}

fn replace(project: &Project, name: &str, text: &str) {
    if project.read_if_there(name) == text {
        return;
    }
    let new = format!("{name}.new");
    project.write(&new, text);
    fs::rename(project.path().join(new), project.path().join(name)).expect("files can be renamed");
}

/// Queuers that keep the order in each of the lanes. Some have fewer lanes, and so keep more.
const QUEUERS: [&str; 3] = [
    "strategy = \"one-round-serial\", lane = \"lane\", max_processing = PROCESSING",
    "strategy = \"one-round-serial\", lane = \"half\", max_processing = PROCESSING",
    "strategy = \"serial\"",
];

const MISTAKES: [(&str, &str); 4] = [
    ("first.rhai", "fn process(job) { job. }"),
    ("third.rhai", "fn other(job) { job }"),
    ("p.toml", "[step.first]\nfrm = \"in\"\n"),
    ("p.toml", "[pipeline\n"),
];

/// The name of the queue is in the settings of the step, so that one file changes both.
const PIPELINE: &str = r#"
[pipeline]
errors = "failed"
[source.SOURCE]
WAS_SOURCE
type = "file"
path = "in.ndjson"
format = "ndjson"
follow = true
[queue.READY]
WAS_READY
[step.STEP]
WAS_STEP
from = "SOURCE"
run = "first.rhai"
crash_limit = 1000
config = { queue = "QUEUE" }
to = "QUEUE"
[step.second]
alts = { READ }
run = "second.rhai"
crash_limit = 1000
to = { ready = "READY", seen = "seen" }
[step.third]
from = "READY"
run = "third.rhai"
to = "out"
crash_limit = 1000
queuer = { PICKS }
retry = { backoff = "fixed", initial = "2ms", jitter = "none", max_attempts = ATTEMPTS }
[step.native]
from = "SOURCE"
run = "plugin:c_count"
crash_limit = 1000
to = "native"
[sink.native]
type = "file"
path = "out/native.ndjson"
[sink.seen]
type = "file"
path = "out/seen.ndjson"
[sink.out]
type = "file"
path = "out/SINK.ndjson"
"#;

const EXTRA: &str = r#"
[source.in]
type = "file"
path = "extra.ndjson"
format = "ndjson"
follow = true
[step.copy]
from = "in"
to = "out"
[sink.out]
type = "file"
path = "out/extra.ndjson"
"#;

const FIRST: &str = "
fn process(job, ctx) {
    if job.id % REJECTED == 0 { reject(\"no\") }
    job.first = VERSION;
    job.queue = ctx.config.queue;
    job
}
";

const SECOND: &str = "
fn process(job) {
    let taken = ();
    for queue in [\"a\", \"b\", \"c\"] { if queue in job { taken = job[queue]; } }
    taken.second = VERSION;
    taken.lane = taken.id % LANES;
    taken.half = taken.lane % 2;
    #{ ready: taken, seen: taken }
}
";

const THIRD: &str = "
fn process(job, ctx) {
    if job.id % FAILING == 0 && ctx.attempt < 3 { throw \"not yet\" }
    job.third = VERSION;
    job
}
";
