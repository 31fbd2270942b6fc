//! Questions about state, and their answers. They are the same on a stopped store and, through the
//! local socket, against a running runner.

pub(crate) mod age;
pub(crate) mod explain;
pub(crate) mod job;
pub(crate) mod job_outputs;
pub(crate) mod job_payload;
pub(crate) mod join_partners;
pub(crate) mod parked;
pub(crate) mod parked_counts;
pub(crate) mod parked_payload;
pub(crate) mod preview;
pub(crate) mod queue_jobs;
pub(crate) mod replay;
pub(crate) mod status;
pub(crate) mod step_status;
pub(crate) mod stopped;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

pub(crate) use self::age::Oldest;
pub(crate) use self::explain::PAUSED;
pub(crate) use self::parked::{DelayedPage, DelayedStatus, WaitsFor};
pub(crate) use self::step_status::{
    BlockStatus, Halted, HeldBehind, LaneStatus, LanesStatus, ProbeStatus, StepStatus,
};
pub(crate) use job::{JobState, JobStatus, StepOutcome};
#[cfg(test)]
pub(crate) use preview::Unseen;
pub(crate) use preview::{Preview, PreviewedRound};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use tidegate_config::Configuration;
use tidegate_engine::{Handle, ParkedJobRef, Stats};
use tidegate_model::Address;
pub(crate) use tidegate_model::rfc3339;
use tidegate_store::export;
use tidegate_store::verify;
use tidegate_store::{ExportError, Inventory, ReadError, Store, Writer, open_existing};

/// The most jobs that one answer brings.
pub(crate) const JOBS_MAX: usize = 10_000;

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "query")]
pub(crate) enum Query {
    /// How far each step is; of those that pick, so many lanes with the most jobs waiting.
    Status {
        #[serde(default)]
        lanes: usize,
    },
    Queues,
    /// Jobs of a queue, from the oldest that is kept where `from` does not say.
    Jobs {
        queue: String,
        from: Option<u64>,
        to: Option<u64>,
        limit: usize,
    },
    /// The last errors of a queue, or of each; `all`: also those that were dealt with.
    Errors {
        queue: Option<String>,
        all: bool,
        limit: usize,
    },
    Error {
        queue: String,
        index: u64,
    },
    /// What has become of a job; with `whole` also its payload, and with `why` also why it does not run. The
    /// last looks at all jobs that wait.
    Job {
        queue: String,
        index: u64,
        why: bool,
        #[serde(default)]
        whole: bool,
    },
    /// Jobs that stand in the store by themselves.
    Delayed {
        step: Option<String>,
        /// Only those that were made of this one: `pipeline/queue/index`.
        job: Option<String>,
        after: Option<ParkedJobRef>,
        limit: usize,
    },
    /// Errors that nobody has dealt with, from an index on.
    OpenErrors {
        queue: String,
        from: u64,
        to: Option<u64>,
    },
    /// What the next rounds of a step would start, so many jobs of each told one by one. Looks at all jobs
    /// that wait.
    Preview {
        step: String,
        rounds: usize,
        told: usize,
    },
    /// What running a step again would come to.
    Replay {
        step: String,
        input: Option<String>,
        start: ReplayStart,
    },
    /// Which files of these steps have changed since the runner has read them.
    Changed {
        steps: Vec<Address>,
    },
    /// Whether the store is whole.
    Verify,
    /// Write everything to this file, which is there and the asker's own.
    Export {
        file: PathBuf,
    },
}

/// Where a step shall begin again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReplayStart {
    At(u64),
    /// Milliseconds since 1970: the first job that was committed then or later.
    Since(i64),
}

/// An answer; which one belongs to the question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Status(Vec<StepStatus>),
    Queues(Vec<QueueStatus>),
    Jobs(Page),
    /// `total`: how many there are, told or not.
    Errors {
        errors: Vec<Job>,
        total: u64,
    },
    Job(JobStatus),
    Delayed(DelayedPage),
    Preview(Preview),
    Replay(Replay),
    Verify(Verified),
    Exported(Inventory),
    /// Files, relative to the folder of the configuration.
    Changed(Vec<PathBuf>),
    /// There is no queue, or no job, of that name, or it cannot be done; a sentence.
    Missing(String),
}

/// What a queue holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QueueStatus {
    pub(crate) queue: String,
    /// The index of the oldest job that is kept.
    pub(crate) first: u64,
    /// The index of the last job; 0 where there was none yet.
    #[serde(rename = "last")]
    pub(crate) head: u64,
    pub(crate) jobs: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: bool,
    /// Where it holds errors: how many of them nobody has dealt with.
    #[serde(default)]
    pub(crate) open: Option<u64>,
    pub(crate) readers: Vec<ReaderStatus>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReaderStatus {
    pub(crate) step: String,
    pub(crate) waiting: u64,
}

/// As many jobs as one answer may bring.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) jobs: Vec<Job>,
    /// Where to go on.
    pub(crate) next: u64,
    /// There are more now.
    pub(crate) more: bool,
    /// The index of the last job of the queue.
    pub(crate) head: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) queue: String,
    pub(crate) index: u64,
    /// When it was committed; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    /// The number of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transaction: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<JobMaker>,
    /// The provenance that it carries along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) meta: Option<Box<RawValue>>,
    /// It is an error that was retried or dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) handled: bool,
    pub(crate) job: Box<RawValue>,
}

/// The delivery that made a job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobMaker {
    pub(crate) step: String,
    /// By input, as it enters the hash: the index.
    pub(crate) inputs: BTreeMap<String, u64>,
    pub(crate) hash: String,
}

/// What running a step again comes to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Replay {
    pub(crate) step: Address,
    /// By input that goes back: the indices of the first and the last job to run again.
    pub(crate) inputs: Vec<Again>,
    /// How many jobs the step takes again; tuples, of a join.
    pub(crate) jobs: u64,
    /// Queues and sinks that it delivers to, errors last.
    pub(crate) outputs: Vec<String>,
    /// What is not as was asked for; a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Again {
    pub(crate) input: Address,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What the walk over the whole store found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Verified {
    pub(crate) queues: u64,
    pub(crate) jobs: u64,
    pub(crate) bytes: u64,
    pub(crate) problems: Vec<String>,
}

/// Answers from one snapshot of the store, and where a run has it open, from that.
///
/// # Errors
/// Where the store cannot be read.
pub(crate) fn answer(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    query: &Query,
) -> Result<Answer, ReadError> {
    store.at_one_moment(|store| answer_from(store, configuration, run, query))
}

fn answer_from(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    query: &Query,
) -> Result<Answer, ReadError> {
    match query {
        Query::Status { lanes } => status::status(store, configuration, run, *lanes),
        Query::Queues => status::queues(store, configuration, run),
        Query::Jobs { queue, from, to, limit } => {
            queue_jobs::jobs(store, configuration, queue, (*from, *to), *limit)
        }
        Query::Errors { queue, all, limit } => {
            queue_jobs::errors(store, configuration, queue.as_deref(), *all, *limit)
        }
        Query::Error { queue, index } => queue_jobs::error(store, configuration, queue, *index),
        Query::Job { queue, index, why, whole } => {
            job::status(store, configuration, (queue, *index), &job::Wanted { why: *why, whole: *whole, run })
        }
        Query::Delayed { step, job, after, limit } => {
            parked::delayed(store, configuration, (step.as_deref(), job.as_deref()), *after, *limit)
        }
        Query::OpenErrors { queue, from, to } => {
            queue_jobs::open_errors(store, configuration, queue, *from, *to)
        }
        Query::Preview { step, rounds, told } => {
            preview::preview(store, configuration, run, step, (*rounds, *told))
        }
        Query::Replay { step, input, start } => {
            replay::plan(store, configuration, step, input.as_deref(), *start)
        }
        Query::Changed { steps } => {
            let changed = run.map(|run| run.changed_files(steps)).unwrap_or_default();
            let shown =
                |path: PathBuf| path.strip_prefix(&configuration.root).map_or(path.clone(), Path::to_owned);
            Ok(Answer::Changed(changed.into_iter().map(shown).collect()))
        }
        Query::Verify => verify(store).map(|report| {
            let tidegate_store::VerifyReport { queues, jobs, bytes, problems, .. } = report;
            Answer::Verify(Verified { queues, jobs, bytes, problems })
        }),
        Query::Export { file } => write_export(store, file),
    }
}

/// The store after a run.
pub(crate) struct Afterwards(Store, #[expect(dead_code, reason = "it keeps others out")] Writer);

impl Afterwards {
    /// `None` where another process has the store by now, or the run could not end all it had begun.
    pub(crate) fn open(configuration: &Configuration) -> Option<Self> {
        open_existing(&configuration.data).ok()?.map(|(store, writer)| Self(store, writer))
    }
}

/// Of each error queue, by its place in the configuration: how many of the errors that a run has put there are
/// open. `failed`: how many those are.
pub(crate) fn still_open(
    configuration: &Configuration,
    failed: &BTreeMap<usize, u64>,
    Afterwards(store, _): &Afterwards,
) -> Option<BTreeMap<usize, u64>> {
    let open = |(&queue, &failed): (&usize, &u64)| {
        let open = status::open_of_last(store, &configuration.queues[queue].address, failed).ok()?;
        Some((queue, open))
    };
    failed.iter().map(open).collect()
}

/// The inputs of steps that still have jobs after a run that has nothing left to do now, or may have.
pub(crate) fn left(
    configuration: &Configuration,
    stats: &Stats,
    Afterwards(store, _): &Afterwards,
) -> Option<Vec<StepStatus>> {
    let mut steps = status::statuses(store, configuration, None, 0).ok()?;
    for (step, stats) in configuration.steps.iter().zip(&stats.steps) {
        let name = step.address.to_string();
        let own = steps.iter_mut().filter(|status| status.configured && status.step == name);
        own.for_each(|status| status.closed = status::closed(stats));
    }
    steps.retain(|step| step.configured && (step.has_jobs() || step.may_have_jobs()));
    Some(steps)
}

fn write_export(store: &Store, path: &Path) -> Result<Answer, ReadError> {
    let failed =
        |error: &std::io::Error| Ok(Answer::Missing(format!("cannot write `{}`: {error}", path.display())));
    let file = match File::options().write(true).truncate(true).open(path) {
        Ok(file) => file,
        Err(error) => return failed(&error),
    };
    match export(store, BufWriter::new(&file)) {
        Ok(inventory) => {
            file.sync_all().map_or_else(|error| failed(&error), |()| Ok(Answer::Exported(inventory)))
        }
        Err(ExportError::Read(error)) => Err(error),
        Err(ExportError::Write(error)) => failed(&error),
    }
}
