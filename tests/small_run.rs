//! `SmallRun`: a run in this process, on a disk that can fail. It has a file source, two steps with a queue
//! between them, an error queue, and a file sink.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_components::source::BatchLimit;
use tidegate_config::{Configuration, LoadOptions};
use tidegate_dispatch::RunOutcome;
use tidegate_engine::{EngineError, Generation, Handle, Run, RunOptions};
use tidegate_model::{Address, ManualClock, SinkPosition};
use tidegate_store::testing::{DiskBytes, FaultyDisk};
use tidegate_store::{Store, open_disk, verify};

use crate::project::jobs;
use crate::random::Random;

const PIPELINE: &str = r#"
[pipeline]
errors = "failed"
[source.in]
type = "file"
path = "in.ndjson"
format = "ndjson"
[step.first]
from = "in"
run = "first.rhai"
to = "between"
[queue.between]
retain = "forever"
[step.second]
from = "between"
run = "second.rhai"
to = "out"
errors = "thrown"                # of its own: which of two steps fails first is up to the machine
[sink.out]
type = "file"
path = "out.ndjson"
"#;

const FIRST: &str = "fn process(job) { if job.id % 7 == 0 { reject(\"no\") } [job, #{ id: job.id + 100 }] }";
const SECOND: &str = "fn process(job) { if job.id % 9 == 0 { throw \"neither\" } job.seen = true; job }";

/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// The configuration and the file of its sink. The disk of the store is passed to each run.
pub(crate) struct SmallRun {
    folder: TempDir,
    configuration: Arc<Configuration>,
}

/// The final state of a run, except for values that the file system determines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Left {
    output: String,
    between: Vec<String>,
    failed: Vec<String>,
    thrown: Vec<String>,
    /// Progress, and the committed length of the output.
    progress: String,
    committed: u64,
}

impl SmallRun {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let input = jobs(1..=40);
        for (name, text) in
            [("p.toml", PIPELINE), ("first.rhai", FIRST), ("second.rhai", SECOND), ("in.ndjson", &input)]
        {
            fs::write(folder.path().join(name), text).expect("files can be written");
        }
        let loaded = Generation::load(folder.path(), &LoadOptions::default());
        let configuration = loaded.expect("the configuration is right").configuration;
        Self { folder, configuration }
    }

    /// An image of an empty store.
    pub(crate) fn image() -> DiskBytes {
        let disk = FaultyDisk::new();
        drop(open_disk(Box::new(disk.clone())).expect("a store can be made"));
        disk.bytes()
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.folder.path().join("out.ndjson")
    }

    /// Removes the output of earlier runs.
    pub(crate) fn begin_anew(&self) {
        let _ = fs::remove_file(self.output());
    }

    /// Runs to the end, or to an error.
    pub(crate) fn run(&self, disk: &FaultyDisk) -> Result<RunOutcome, EngineError> {
        self.start(disk)?.end()
    }

    /// Starts a run on a thread of its own.
    pub(crate) fn start(&self, disk: &FaultyDisk) -> Result<Started, EngineError> {
        let opened = open_disk(Box::new(disk.clone()))?;
        let options = RunOptions {
            // A single worker, so that a commit has few batches.
            workers: 1,
            batch: BatchLimit { jobs: 2, bytes: 1 << 20 },
            retry_after: Duration::from_millis(1),
            shutdown_timeout: Duration::from_millis(50),
            ..RunOptions::default()
        };
        // The clock does not advance, so that error records are the same in every run.
        let clock = Arc::new(ManualClock::at(0));
        let run = Run::new(Arc::clone(&self.configuration), opened, clock, options)?;
        let handle = run.handle();
        let (tell, ended) = mpsc::channel();
        thread::spawn(move || {
            // The test may have ended.
            let _ = tell.send(run.run().map(|report| report.end));
        });
        Ok(Started { handle, ended })
    }

    /// The state of the disk and of the output file. Also checks the store as a whole.
    pub(crate) fn left(&self, disk: &FaultyDisk) -> Left {
        let (store, _writer) = open_disk(Box::new(FaultyDisk::with(disk.bytes()))).expect("it opens");
        let problems = verify(&store).expect("the store can be read").problems;
        assert!(problems.is_empty(), "{problems:?}");
        Left {
            output: fs::read_to_string(self.output()).unwrap_or_default(),
            between: queue(&store, "p/between"),
            failed: queue(&store, "p/failed"),
            thrown: queue(&store, "p/thrown"),
            progress: format!("{:?}", store.all_progress().expect("the store can be read")),
            committed: position(&store).map_or(0, |position| position.offset),
        }
    }

    /// Rewrites the output file as after a loss of power: the committed part stays, and of the bytes after it
    /// a part is kept, or garbage.
    pub(crate) fn lose_power(&self, disk: &FaultyDisk, random: &mut Random) {
        let (store, _writer) = open_disk(Box::new(disk.clone())).expect("it opens");
        let committed = position(&store);
        let Ok(mut bytes) = fs::read(self.output()) else { return };
        let durable =
            usize::try_from(committed.as_ref().map_or(0, |position| position.offset)).expect("a small file");
        assert!(durable <= bytes.len(), "{durable} bytes are committed, and {} written", bytes.len());
        // No byte is written before its announcement.
        let unsure = if committed.is_some_and(|position| position.open) { bytes.len() - durable } else { 0 };
        bytes.truncate(durable + random.up_to(unsure));
        let torn = bytes.len() - random.up_to(bytes.len() - durable);
        bytes[torn..].fill(0);
        // Keeps the identity of the file.
        fs::write(self.output(), bytes).expect("files can be written");
    }
}

impl Left {
    /// Part by part, so that a failure is readable.
    pub(crate) fn assert_is(&self, expected: &Self, what: &str) {
        assert_eq!(self.output, expected.output, "{what}");
        assert_eq!(self.between, expected.between, "{what}");
        assert_eq!(self.failed, expected.failed, "{what}");
        assert_eq!(self.thrown, expected.thrown, "{what}");
        assert_eq!(self.progress, expected.progress, "{what}");
        assert_eq!(self.committed, expected.committed, "{what}");
    }
}

/// A run on a thread of its own.
pub(crate) struct Started {
    pub(crate) handle: Handle,
    ended: mpsc::Receiver<Result<RunOutcome, EngineError>>,
}

impl Started {
    pub(crate) fn has_ended(&self) -> Option<Result<RunOutcome, EngineError>> {
        self.ended.try_recv().ok()
    }

    pub(crate) fn end(self) -> Result<RunOutcome, EngineError> {
        self.ended.recv_timeout(PATIENCE).expect("the run ends")
    }
}

fn position(store: &Store) -> Option<SinkPosition> {
    store.sink(&address("p/out")).expect("the store can be read")
}

fn queue(store: &Store, name: &str) -> Vec<String> {
    let name = address(name);
    let mut jobs = Vec::new();
    while let Some(batch) = store.read(&name, jobs.len() as u64 + 1, 1000, 1 << 20).expect("it can be read") {
        jobs.extend(batch.payloads.iter().map(|payload| String::from_utf8_lossy(payload).into_owned()));
    }
    jobs
}

fn address(text: &str) -> Address {
    Address::parse(text).expect("it is an address")
}
