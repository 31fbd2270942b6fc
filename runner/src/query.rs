//! `Query` and `Answer`: questions about the state. A stopped store and, through the local socket, a running
//! runner give the same answers.

pub(crate) mod age;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod job_list;
pub(crate) mod job_outputs;
pub(crate) mod job_payload;
pub(crate) mod join_partners;
pub(crate) mod late;
pub(crate) mod parked;
pub(crate) mod parked_counts;
pub(crate) mod parked_payload;
pub(crate) mod pause_change;
pub(crate) mod pending_fields;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod preview;
pub(crate) mod queue_jobs;
pub(crate) mod reload_status;
pub(crate) mod replay;
pub(crate) mod retry_status;
mod source_status;
pub(crate) mod status;
pub(crate) mod step_status;
pub(crate) mod stopped;
pub(crate) mod table_status;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use self::age::Oldest;
pub(crate) use self::explain::PAUSED;
pub(crate) use self::history::{HistoryFiles, HistoryPage, HistoryRow};
pub(crate) use self::parked::{DelayedPage, DelayedStatus, WaitsFor};
pub(crate) use self::pause_change::PausedPart;
pub(crate) use self::place::ConfigurationPlace;
pub(crate) use self::plan::Planned;
pub(crate) use self::reload_status::{
    EarlierRollback, LingeringStatus, RefusedFiles, ReloadStatus, RollbackStatus,
};
pub(crate) use self::retry_status::RetryStatus;
pub(crate) use self::source_status::SourceStatus;
pub(crate) use self::step_status::{
    BlockStatus, Halted, HeldBehind, HeldLaneStatus, LaneStatus, LanesStatus, ProbeStatus, StepStatus,
};
pub(crate) use self::table_status::TableStatus;
pub(crate) use job::{JobStatus, ReportedState, StepOutcome};
#[cfg(test)]
pub(crate) use preview::Unseen;
pub(crate) use preview::{Preview, PreviewedRound};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use tidegate_config::Configuration;
use tidegate_engine::{Handle, RemovedPart, Stats, removed_parts};
use tidegate_model::Address;
pub(crate) use tidegate_model::rfc3339;
use tidegate_store::export;
use tidegate_store::verify;
use tidegate_store::{ExportError, Inventory, ParkedPosition, ReadError, Store, Writer, open_existing};

/// The maximum number of jobs in one answer.
pub(crate) const JOBS_MAX: usize = 10_000;

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "query")]
pub(crate) enum Query {
    /// The configuration that a runner runs.
    Place,
    /// The progress of each step, with the `lanes` fullest lanes of each queued step.
    Status {
        #[serde(default)]
        lanes: usize,
    },
    Queues,
    /// Removed queues and steps: one by its address, or those of a pipeline.
    Removed {
        part: String,
    },
    /// Jobs of a queue, starting at `from` or at the oldest kept.
    Jobs {
        queue: String,
        from: Option<u64>,
        to: Option<u64>,
        limit: usize,
    },
    /// The last errors of a queue, or of each queue; `all`: also those that were retried or dropped.
    Errors {
        queue: Option<String>,
        all: bool,
        limit: usize,
    },
    Error {
        queue: String,
        index: u64,
    },
    /// The outcome of a job; with `whole` also its payload, and with `why` also the reasons why it does not
    /// run. `why` scans all waiting jobs.
    Job {
        queue: String,
        index: u64,
        why: bool,
        #[serde(default)]
        whole: bool,
    },
    /// The state of a late job, or the outcome of the job that it has become.
    Late {
        /// `pipeline/queue/due/number`
        job: String,
    },
    /// Parked jobs, which are in the store outside of their queue.
    Delayed {
        step: Option<String>,
        /// Only those made from this job: `pipeline/queue/index`.
        job: Option<String>,
        /// Only those in this lane.
        #[serde(default)]
        lane: Option<String>,
        /// With their payloads.
        #[serde(default)]
        whole: bool,
        after: Option<ParkedPosition>,
        limit: usize,
    },
    /// Open errors, neither retried nor dropped, from an index on.
    OpenErrors {
        queue: String,
        from: u64,
        to: Option<u64>,
    },
    /// The jobs that the next rounds of a step would start, up to a number of each round. Scans all waiting
    /// jobs.
    Preview {
        step: String,
        rounds: usize,
        listed: usize,
    },
    /// The effect of running a step again.
    Replay {
        step: String,
        input: Option<String>,
        start: ReplayStart,
    },
    /// The files of these steps that have changed since the runner read them.
    Changed {
        steps: Vec<Address>,
    },
    /// The changes from the configuration of the runner, or of the last run, to the files.
    Plan,
    /// The configurations that were taken over; with a generation, its files.
    History {
        generation: Option<u64>,
    },
    /// The generation that a rollback goes back to while no run is active.
    Previous,
    /// Whether the store is consistent.
    Verify,
    /// Export everything to this file, which the client has created.
    Export {
        file: PathBuf,
    },
}

/// The job at which a step begins again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReplayStart {
    At(u64),
    /// Milliseconds since 1970: the first job that was committed at this time or later.
    Since(i64),
}

/// An answer; its variant matches the question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Place(ConfigurationPlace),
    Status(Box<RunnerStatus>),
    Queues(Vec<QueueStatus>),
    Removed(Vec<RemovedPart>),
    Jobs(Page),
    /// `total`: the number of errors, also of those that the answer leaves out.
    Errors {
        errors: Vec<QueueJob>,
        total: u64,
    },
    Job(JobStatus),
    Late(late::LateStatus),
    Delayed(DelayedPage),
    Preview(Preview),
    Replay(ReplayPlan),
    Plan(Planned),
    History(HistoryPage),
    HistoryFiles(HistoryFiles),
    /// Number of a generation.
    Previous(u64),
    Verify(Verified),
    Exported(Inventory),
    /// Files, relative to the folder of the configuration.
    Changed(Vec<PathBuf>),
    /// The queue or job does not exist, or the question cannot be answered; a sentence.
    Missing(String),
}

/// The state of a runner, or of its store.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunnerStatus {
    /// `null` without a runner.
    pub(crate) reload: Option<ReloadStatus>,
    /// The error for which no commit succeeds now, while a disk is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) full: Option<String>,
    /// A row for each step and input.
    pub(crate) steps: Vec<StepStatus>,
    /// The sources that may fail, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<SourceStatus>,
    /// The lookup tables whose rows are in queues, by name and queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tables: Vec<TableStatus>,
}

/// The content of a queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QueueStatus {
    pub(crate) queue: String,
    /// The index of the oldest job that is kept.
    pub(crate) first: u64,
    /// The index of the last job; 0 if the queue never had one.
    #[serde(rename = "last")]
    pub(crate) head: u64,
    pub(crate) jobs: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: bool,
    /// The number of open errors of an error queue.
    #[serde(default)]
    pub(crate) open: Option<u64>,
    /// Number of jobs that are appended later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) late: u64,
    /// The names of the lookup tables that have its jobs as rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tables: Vec<String>,
    pub(crate) readers: Vec<ReaderStatus>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReaderStatus {
    pub(crate) step: String,
    pub(crate) waiting: u64,
}

/// The jobs that fit into one answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) jobs: Vec<QueueJob>,
    /// The index at which the next page begins.
    pub(crate) next: u64,
    /// More jobs exist now.
    pub(crate) more: bool,
    /// The index of the last job of the queue.
    pub(crate) head: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QueueJob {
    pub(crate) queue: String,
    pub(crate) index: u64,
    /// The commit time; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    /// The number of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transaction: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<JobMaker>,
    /// The provenance of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) meta: Option<Box<RawValue>>,
    /// The error was retried or dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) handled: bool,
    /// The present name of the step of the error, if it was renamed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) present_step: Option<String>,
    pub(crate) job: Box<RawValue>,
}

/// The delivery that made a job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobMaker {
    pub(crate) step: String,
    /// The index by input, as it enters the delivery hash.
    pub(crate) inputs: BTreeMap<String, u64>,
    pub(crate) hash: String,
}

/// The effect of running a step again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReplayPlan {
    pub(crate) step: Address,
    /// The first and the last job to run again, by rewound input.
    pub(crate) inputs: Vec<Again>,
    /// Number of jobs that the step runs again; of a join, tuples.
    pub(crate) jobs: u64,
    /// Number of jobs among them that are delayed, pending or held back, and go on as they are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) waiting: u64,
    /// Queues and sinks that the step delivers to, errors last.
    pub(crate) outputs: Vec<String>,
    /// A difference from the request; a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Again {
    pub(crate) input: Address,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The result of the scan of the whole store.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Verified {
    pub(crate) queues: u64,
    pub(crate) jobs: u64,
    pub(crate) bytes: u64,
    pub(crate) problems: Vec<String>,
}

/// Time that an answer waits for a store that a run is reopening.
const REOPEN_PATIENCE: Duration = Duration::from_millis(200);

const REOPEN_PAUSE: Duration = Duration::from_millis(5);

/// Answers from one snapshot of the store, and from the run if one has the store open.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn answer(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    query: &Query,
) -> Result<Answer, ReadError> {
    let read = || try_answer(store, configuration, run, query);
    match run {
        Some(run) => while_reopened(run, read),
        None => read(),
    }
}

/// Reads from the store of a run, again if the run is reopening it. While a disk is full, it does so again and again,
/// which takes milliseconds.
///
/// # Errors
/// Errors of `read`; [`ReadError::Interrupted`] if the store stays closed, or the run is over.
pub(crate) fn while_reopened<T>(
    run: &Handle,
    mut read: impl FnMut() -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let mut interrupted = None;
    loop {
        let found = read();
        if !matches!(found, Err(ReadError::Interrupted))
            || run.is_over()
            || interrupted.get_or_insert_with(Instant::now).elapsed() > REOPEN_PATIENCE
        {
            return found;
        }
        thread::sleep(REOPEN_PAUSE);
    }
}

fn try_answer(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    query: &Query,
) -> Result<Answer, ReadError> {
    if let Query::Plan = query {
        // The files are read outside of the moment, which would keep pages of the store.
        return plan::plan(store, configuration, run);
    }
    let mut answer = store.at_one_moment(|store| answer_from(store, configuration, run, query))?;
    if let Answer::Status(status) = &mut answer {
        status.reload = run.map(ReloadStatus::of);
        status.full = run.and_then(|run| run.stats().full());
    }
    Ok(answer)
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
        Query::Removed { part } => {
            Ok(removed_parts(store, configuration, part).map_or_else(Answer::Missing, Answer::Removed))
        }
        Query::Jobs { queue, from, to, limit } => {
            queue_jobs::jobs(store, configuration, queue, (*from, *to), *limit)
        }
        Query::Errors { queue, all, limit } => {
            queue_jobs::errors(store, configuration, queue.as_deref(), *all, *limit)
        }
        Query::Error { queue, index } => queue_jobs::error(store, configuration, queue, *index),
        Query::Job { queue, index, why, whole } => job::status(
            store,
            configuration,
            (queue, *index),
            &job::JobSelection { why: *why, whole: *whole, before: true, run },
        ),
        Query::Late { job } => match late::LateAddress::parse(job) {
            Some(asked) => late::status(store, configuration, run, &asked),
            None => Ok(Answer::Missing(format!("`{job}` does not name a late job"))),
        },
        Query::Delayed { step, job, lane, whole, after, limit } => {
            let (step, job, lane) = (step.as_deref(), job.as_deref(), lane.as_deref());
            let wanted = parked::ParkedFilter { step, job, lane, whole: *whole };
            parked::delayed(store, configuration, &wanted, *after, *limit)
        }
        Query::OpenErrors { queue, from, to } => {
            queue_jobs::open_errors(store, configuration, queue, *from, *to)
        }
        Query::Preview { step, rounds, listed } => {
            preview::preview(store, configuration, run, step, (*rounds, *listed))
        }
        Query::Replay { step, input, start } => {
            replay::plan(store, configuration, step, input.as_deref(), *start)
        }
        Query::Changed { steps } => {
            // Files that were rolled back differ, and the retry is of the generation that goes on.
            let run = run.filter(|run| run.rolled_back().is_none());
            let changed = run.map(|run| run.changed_files(steps)).unwrap_or_default();
            let shown =
                |path: PathBuf| path.strip_prefix(&configuration.root).map_or(path.clone(), Path::to_owned);
            Ok(Answer::Changed(changed.into_iter().map(shown).collect()))
        }
        Query::Place => Ok(Answer::Place(ConfigurationPlace::of(&configuration.given.config))),
        Query::Plan => plan::plan(store, configuration, run),
        Query::History { generation } => history::history(store, *generation),
        Query::Previous => {
            let (entries, _) = store.history()?;
            Ok(tidegate_engine::previous(&entries).map_or_else(Answer::Missing, Answer::Previous))
        }
        Query::Verify => verify(store).map(|report| {
            let tidegate_store::VerifyReport { queues, jobs, bytes, problems, .. } = report;
            Answer::Verify(Verified { queues, jobs, bytes, problems })
        }),
        Query::Export { file } => write_export(store, file),
    }
}

/// The store after a run.
pub(crate) struct Afterwards(Store, #[expect(dead_code, reason = "it keeps other processes out")] Writer);

impl Afterwards {
    /// `None` where another process has the store by now, or if jobs of the run were still in an attempt.
    pub(crate) fn open(configuration: &Configuration) -> Option<Self> {
        open_existing(&configuration.data).ok()?.map(|(store, writer)| Self(store, writer))
    }
}

/// Number of open errors among those that a run added to each error queue, by its position in the
/// configuration. `failed`: the number of errors that the run added.
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

/// The jobs after a run that has nothing left to do now.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The inputs of steps that still have jobs, or may have.
    pub(crate) steps: Vec<StepStatus>,
    /// The queues whose jobs are due later, and the numbers of these.
    pub(crate) late: Vec<(Address, u64)>,
}

/// `None` if the store cannot be read.
pub(crate) fn left(
    configuration: &Configuration,
    stats: &Stats,
    Afterwards(store, _): &Afterwards,
) -> Option<Backlog> {
    let mut steps = status::statuses(store, configuration, None, 0).ok()?;
    for (step, stats) in stats.of(configuration) {
        let name = step.address.to_string();
        let own = steps.iter_mut().filter(|status| status.configured && status.step == name);
        own.for_each(|status| status.closed = status::closed(&stats));
    }
    steps.retain(|step| step.configured && (step.has_jobs() || step.may_have_jobs()));
    let mut late = Vec::new();
    for queue in &configuration.queues {
        let jobs = store.late_count(&queue.address).ok()?;
        late.extend((jobs > 0).then(|| (queue.address.clone(), jobs)));
    }
    Some(Backlog { steps, late })
}

/// The inputs of steps with halted lanes. `None` if the store cannot be read.
pub(crate) fn left_in_halted_lanes(
    configuration: &Configuration,
    stats: &Stats,
    store: &Afterwards,
) -> Option<Backlog> {
    let Backlog { mut steps, .. } = left(configuration, stats, store)?;
    steps.retain(|step| step.held_lanes.iter().any(|held| held.halted.is_some()));
    Some(Backlog { steps, late: Vec::new() })
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
