//! `TestCase`: a `[[test]]` of a pipeline's file, with its names resolved.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_model::{Address, Name, Timestamp};

/// `[[test]]`: jobs for a step or a whole pipeline, and the expected results.
#[derive(Clone, Debug)]
pub struct TestCase {
    /// Unique in its pipeline.
    pub name: String,
    pub pipeline: Name,
    pub file: PathBuf,
    /// The line of its header.
    pub line: u64,
    /// The only step that runs; `None`: all steps of the pipeline.
    pub step: Option<Address>,
    /// The jobs of each input, as JSON. They are there when the test begins.
    pub given: Vec<(Address, Vec<String>)>,
    /// Jobs that come later, in the order of time.
    pub later: Vec<LaterJobs>,
    /// The time at which its clock begins.
    pub at: Timestamp,
    /// How long its clock runs. `None`: until all work is done; schedules then do not tick.
    pub lasts: Option<Duration>,
    pub mocks: Vec<Mock>,
    pub expect: Expectations,
}

/// Jobs that come during a test.
#[derive(Clone, Debug)]
pub struct LaterJobs {
    /// Since the test began.
    pub after: Duration,
    pub given: Vec<(Address, Vec<String>)>,
}

/// The answers of a plugin or a built-in, which does not run in the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mock {
    pub place: MockPlace,
    /// As in `run`: `plugin:NAME/STEP`, `builtin:http` or `builtin:exec`. An HTTP sink is `sink:NAME`.
    pub processor: String,
    pub answers: MockAnswers,
    pub line: u64,
}

/// The processors that a mock replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MockPlace {
    /// All of its name, except those with a mock of their own.
    Anywhere,
    Step(Name),
    /// The monitor of this step.
    Monitor(Name),
    Gate(Name),
    /// An HTTP sink.
    Sink(Address),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MockAnswers {
    /// Each is used once.
    InOrder(Vec<MockAnswer>),
    /// The answer to every call.
    Always(MockAnswer),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MockAnswer {
    /// Values as JSON; each is an output, or a map of the step's outputs.
    Outputs(Vec<String>),
    /// A failed attempt. The cause is a word like `timeout`, `connection`, `http 503` or `exit 1`.
    Error {
        message: String,
        cause: Option<String>,
    },
    Retry {
        why: String,
        delay: Option<Duration>,
    },
    Reject(String),
    Halt(String),
    /// The job is pending in an external system, which identifies it by this handle.
    Pending(String),
    GateClosed(String),
}

/// `expect` of a test.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    /// Jobs of queues and sinks, in order.
    pub outputs: Vec<ExpectedJobs>,
    /// Error records on all error queues.
    pub errors: Option<Expected<Vec<serde_json::Value>>>,
    /// Number of attempts of a step.
    pub attempts: Vec<(Address, Expected<u64>)>,
    /// Time of the test's clock from the begin to the end.
    pub elapsed: Option<Expected<Duration>>,
    /// A part of the reason for which a step stops.
    pub halted: Option<Expected<String>>,
    /// Number of failed jobs that are on no error queue.
    pub dropped: Option<Expected<u64>>,
    /// Number of jobs that are delayed or pending at the end.
    pub waiting: Option<Expected<u64>>,
}

/// An expected value, with its line in the file of the test.
#[derive(Clone, Debug)]
pub struct Expected<T> {
    pub value: T,
    pub line: u64,
}

/// The expected jobs of a queue or a sink.
#[derive(Clone, Debug)]
pub struct ExpectedJobs {
    pub address: Address,
    /// As it is written in the test.
    pub name: String,
    pub jobs: Expected<Vec<serde_json::Value>>,
}
