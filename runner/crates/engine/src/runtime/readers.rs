//! Store reader: reads the jobs of all queues, and the parked jobs, on one thread.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::Sender;
use tidegate_plugin::Payloads;

use super::message::Message;
use crate::batch::input::{ReadBatch, RedeliveredJob};
use crate::step::declared::DeclaredStep;
use crate::step::job_buffer::{FetchedJobs, MissingJobs};
use tidegate_components::source::BatchLimit;
use tidegate_config::InputRef;
use tidegate_dispatch::{BatchId, InputPort};
use tidegate_model::{Address, Batch, Clock, Due, NamesSince, Timestamp};
use tidegate_store::{ParkedId, ParkedJob, ParkedKey, ParkedPosition, ReadError, Store};

/// Request for jobs in the store.
#[derive(Debug)]
pub(crate) struct StoreRequest {
    /// The step as it runs: the names are those of its generation.
    pub(crate) step: DeclaredStep,
    pub(crate) port: InputPort,
    pub(crate) reader: u64,
    pub(crate) what: ReadAhead,
    /// Whether the request is for a queued step.
    pub(crate) picks: bool,
}

#[derive(Debug)]
pub(crate) enum ReadAhead {
    /// Jobs of a queue, from an index on.
    Queue { queue: Address, from: u64 },
    /// Parked jobs of a step that are due out of order, except those that are in flight already.
    Returned {
        but: BTreeSet<ParkedKey>,
        /// Queues whose jobs come first: a job of a join by key is at its end only if no partner has arrived in time.
        first: Vec<Address>,
    },
    /// A parked job that is read again in its turn.
    Turn { row: ParkedKey },
    /// Picked jobs.
    Picked { batch: BatchId, queue: Address, missing: MissingJobs },
}

/// The thread that reads the store.
#[derive(Debug)]
pub(crate) struct StoreReader {
    requests: Sender<StoreRequest>,
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Due jobs of a step, or the time of the next ones.
enum DueRows {
    Due(Vec<(ParkedKey, ParkedJob)>),
    None { next: Option<Timestamp> },
}

/// Time to wait while the store is being reopened after a failed write.
const REOPEN_WAIT: Duration = Duration::from_millis(10);

/// Time until due jobs of a join are read again, if jobs that arrived before are not taken.
const CATCH_UP_WAIT: Duration = Duration::from_millis(100);

impl StoreReader {
    pub(crate) fn start(
        store: Store,
        clock: Arc<dyn Clock>,
        limit: BatchLimit,
        messages: Sender<Message>,
    ) -> std::io::Result<Self> {
        let (requests, asked) = crossbeam_channel::unbounded::<StoreRequest>();
        let ending = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ending);
        let thread = thread::Builder::new().name("queues".into()).spawn(move || {
            for ask in asked {
                let message = loop {
                    match read_store(&store, limit, &ask, clock.now()) {
                        Some(message) => break message,
                        // The committer reopens the store as soon as there is room, or ends the run.
                        None if ended.load(Ordering::Acquire) => return,
                        None => thread::sleep(REOPEN_WAIT),
                    }
                };
                if messages.send(message).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, ending, thread })
    }

    pub(crate) fn ask(&self, ask: StoreRequest) {
        // The thread lives until `end`.
        let _ = self.requests.send(ask);
    }

    pub(crate) fn end(self) {
        self.ending.store(true, Ordering::Release);
        drop(self.requests);
        let _ = self.thread.join();
    }
}

/// Answers a request; `None` while the store is closed.
pub(crate) fn read_store(
    store: &Store,
    limit: BatchLimit,
    ask: &StoreRequest,
    now: Timestamp,
) -> Option<Message> {
    let StoreRequest { port, reader, .. } = *ask;
    let broken = |error| match error {
        ReadError::Interrupted => None,
        error => Some(Message::Broken { port, reader, error: error.into() }),
    };
    let mut history = match store.name_history() {
        Ok(history) => history,
        Err(error) => return broken(error),
    };
    loop {
        let names = history.since(ask.step.generation.number);
        let message = read_named(store, limit, ask, names, now);
        // A rename may have been committed in between.
        match store.name_history() {
            Ok(later) if Arc::ptr_eq(&later, &history) || later == history => return message,
            Ok(later) => history = later,
            Err(error) => return broken(error),
        }
    }
}

/// Reads jobs of parts that may have other names than in the generation of the request.
fn read_named(
    store: &Store,
    limit: BatchLimit,
    ask: &StoreRequest,
    names: NamesSince<'_>,
    now: Timestamp,
) -> Option<Message> {
    let StoreRequest { step, port, reader, .. } = ask;
    let (port, reader, own) = (*port, *reader, names.step(&step.address));
    let fetched = match &ask.what {
        ReadAhead::Queue { queue, from } => {
            let queue = names.endpoint(queue);
            let read = |from| store.read(&queue, from, limit.jobs, limit.bytes);
            let read = match read(*from) {
                // A queued step may have finished jobs that it has not read in this run.
                Err(ReadError::Gone { first, .. }) if ask.picks => {
                    let none = || Batch::json(first, Payloads::new());
                    read(first).map(|batch| batch.or_else(|| Some(none())))
                }
                read => read,
            };
            read.and_then(|batch| {
                let lost = || format!("queue `{queue}` has lost its jobs from index {from}");
                batch.map(ReadBatch::new).ok_or_else(|| ReadError::Damaged(lost()))
            })
        }
        ReadAhead::Returned { but, first } => {
            match due_behind(store, limit, (&own, names, first), but, now) {
                Ok(DueRows::Due(due)) => {
                    Ok(returned(due.into_iter().map(|row| as_in(step, names, row)).collect()))
                }
                Ok(DueRows::None { next }) => return Some(Message::NoneDue { port, reader, next }),
                Err(error) => Err(error),
            }
        }
        ReadAhead::Turn { row } => match store.parked(&[row.id.of(&own)]) {
            Ok(mut found) => match found.pop().flatten() {
                Some(job) => Ok(returned(vec![as_in(step, names, (row.clone(), job))])),
                // The job was moved meanwhile; a commit notice has its new state.
                None => return Some(Message::Moved),
            },
            Err(error) => Err(error),
        },
        ReadAhead::Picked { batch, queue, missing } => {
            match gather(store, limit, &names.endpoint(queue), missing, (step, names)) {
                Ok(gathered) => {
                    let (step, id) = (port.step, *batch);
                    return Some(Message::Gathered { step, id, gathered });
                }
                Err(error) => Err(error),
            }
        }
    };
    match fetched {
        Ok(fetched) => Some(Message::Read { port, reader, fetched }),
        Err(ReadError::Interrupted) => None,
        Err(error) => Some(Message::Broken { port, reader, error: error.into() }),
    }
}

/// The row with the names that the step and its inputs have in the generation of the step.
fn as_in(
    step: &DeclaredStep,
    names: NamesSince<'_>,
    (key, mut job): (ParkedKey, ParkedJob),
) -> (ParkedKey, ParkedJob) {
    if !names.are_the_same() {
        let inputs = step.inputs.iter().map(InputRef::hash_name);
        let inputs: Vec<(String, String)> = inputs.map(|name| (names.input(&name), name)).collect();
        for (name, _) in &mut job.inputs {
            if let Some((_, then)) = inputs.iter().find(|(now, _)| now == name) {
                name.clone_from(then);
            }
        }
    }
    (key.id.of(&step.address), job)
}

/// Due jobs that are not in `but`; otherwise the time of the next one. Jobs that became due after the arrival of jobs
/// that the step has not taken from the queues in `first` come later.
fn due_behind(
    store: &Store,
    limit: BatchLimit,
    (step, names, first): (&Address, NamesSince<'_>, &[Address]),
    but: &BTreeSet<ParkedKey>,
    now: Timestamp,
) -> Result<DueRows, ReadError> {
    let mut until = now;
    for queue in first {
        until = until.min(arrived_before(store, step, &names.endpoint(queue))?.unwrap_or(now));
    }
    let due = due(store, limit, step, but, until)?;
    if !due.is_empty() {
        return Ok(DueRows::Due(due));
    }
    let next = store.next_due(step, Some(until))?;
    let soon = now + CATCH_UP_WAIT;
    Ok(DueRows::None { next: next.map(|next| if next <= now { soon } else { next }) })
}

/// The time before which all jobs of a queue that the step has not taken have arrived; `None` if it has taken all.
fn arrived_before(store: &Store, step: &Address, queue: &Address) -> Result<Option<Timestamp>, ReadError> {
    let next = store.progress(step, queue)?.unwrap_or_default().position() + 1;
    let batch = match store.read(queue, next, 1, 0) {
        Err(ReadError::Gone { first, .. }) => store.read(queue, first, 1, 0),
        batch => batch,
    };
    let stamp = batch?.and_then(|batch| batch.stamp(0).copied());
    Ok(stamp.map(|stamp| Timestamp(stamp.time.0 - 1)))
}

/// Due jobs that are not in `but`; empty only if there are none. The jobs in `but` may come before them in
/// the store, and may fill more than one read.
fn due(
    store: &Store,
    limit: BatchLimit,
    step: &Address,
    but: &BTreeSet<ParkedKey>,
    now: Timestamp,
) -> Result<Vec<(ParkedKey, ParkedJob)>, ReadError> {
    let but: BTreeSet<ParkedId> = but.iter().map(|key| key.id).collect();
    let mut after = None;
    loop {
        let mut due = store.due(step, Due::At(now), after, limit.jobs, limit.bytes)?;
        let Some((last, job)) = due.last() else { return Ok(due) };
        after = Some(ParkedPosition::of(last.id, job));
        due.retain(|(key, _)| !but.contains(&key.id));
        if !due.is_empty() {
            return Ok(due);
        }
    }
}

/// Reads picked jobs; jobs of one block are read together.
fn gather(
    store: &Store,
    limit: BatchLimit,
    queue: &Address,
    missing: &MissingJobs,
    (step, names): (&DeclaredStep, NamesSince<'_>),
) -> Result<FetchedJobs, ReadError> {
    let mut gathered = FetchedJobs::default();
    for &index in &missing.fresh {
        if gathered.blocks.last().is_some_and(|last: &Arc<Batch>| index < last.end()) {
            continue;
        }
        let batch = store.read(queue, index, limit.jobs, limit.bytes)?;
        let lost = || ReadError::Damaged(format!("queue `{queue}` has lost its job {index}"));
        gathered.blocks.push(Arc::new(batch.ok_or_else(lost)?));
    }
    let own = names.step(&step.address);
    let rows: Vec<ParkedKey> = missing.rows.iter().map(|key| key.id.of(&own)).collect();
    for (key, job) in missing.rows.iter().zip(store.parked(&rows)?) {
        // A job that was cancelled meanwhile is missing, and the builder of the batch leaves it out.
        gathered.rows.extend(job.map(|job| {
            let (key, job) = as_in(step, names, (key.clone(), job));
            RedeliveredJob { key, job }
        }));
    }
    Ok(gathered)
}

/// Makes a read of redelivered jobs.
pub(crate) fn returned(due: Vec<(ParkedKey, ParkedJob)>) -> ReadBatch {
    let returned: Vec<RedeliveredJob> =
        due.into_iter().map(|(key, job)| RedeliveredJob { key, job }).collect();
    let payloads = returned.iter().map(|returned| &*returned.job.payload).collect();
    // These jobs have no common order by index; each row has the index of its job.
    let batch = Batch::json(1, payloads);
    ReadBatch { returned: Some(returned.into()), ..ReadBatch::new(batch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::current::NumberedGeneration;
    use tidegate_model::{NamedKind, RenamedPart};
    use tidegate_store::testing::FaultyDisk;
    use tidegate_store::{Append, Block, Changes, Details, JobForm, NewParkedJob, Renames, open_disk};

    fn delayed(step: &Address, payload: &str) -> NewParkedJob {
        let job = ParkedJob {
            inputs: vec![("p/in".into(), 1)],
            attempt: 2,
            first_attempt: None,
            last_error: None,
            from_error: None,
            form: JobForm::Json,
            payload: payload.as_bytes().to_vec(),
            carried: None,
            ..ParkedJob::default()
        };
        NewParkedJob { step: step.clone(), job }
    }

    /// Step of generation 1 that reads the queue `q`.
    fn step() -> DeclaredStep {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.toml"), "[step.step]\nfrom = \"q\"\nto = \"out\"\n").unwrap();
        let draft = tidegate_config::load(folder.path(), &tidegate_config::LoadOptions::default());
        let configuration = Arc::new(draft.finish().unwrap().0);
        let generation = NumberedGeneration::new(1, configuration, Arc::default(), Arc::default());
        DeclaredStep::new(&Arc::new(generation), 0)
    }

    #[test]
    fn a_step_of_an_earlier_generation_reads_a_queue_that_was_renamed() {
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let [old, new] = ["p/q", "p/r"].map(|name| Address::parse(name).unwrap());
        let block = Block::encode(&[b"1".as_slice()].into_iter().collect(), Details::default());
        let appends = vec![Append { queue: old.clone(), block }];
        writer.commit(&Changes { appends, ..Changes::default() }).unwrap();
        let parts = vec![RenamedPart { kind: NamedKind::Endpoint, from: old.clone(), to: new }];
        let renamed = Renames { generation: 2, parts };
        writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
        let ask = StoreRequest {
            step: step(),
            port: InputPort::of_input(0, 0),
            reader: 1,
            what: ReadAhead::Queue { queue: old, from: 1 },
            picks: false,
        };
        let read = read_store(&store, BatchLimit { jobs: 1, bytes: 1 }, &ask, Timestamp(0));
        let Some(Message::Read { fetched, .. }) = read else { panic!("{read:?}") };
        assert_eq!(fetched.batch.payloads.iter().collect::<Vec<_>>(), [b"1"]);
    }

    #[test]
    fn jobs_that_come_again_are_found_behind_those_that_are_on_their_way() {
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let step = Address::parse("p/step").unwrap();
        let delayed = vec![delayed(&step, "[1, 2, 3]"), delayed(&step, "[4]")];
        let keys = writer.commit(&Changes { parked: delayed, ..Changes::default() }).unwrap().parked;
        let found = |but: &[ParkedKey]| {
            let but = but.iter().cloned().collect();
            // The limit is smaller than the first job.
            let limit = BatchLimit { jobs: 1, bytes: 3 };
            let due = due(&store, limit, &step, &but, Timestamp(0)).unwrap();
            due.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), keys[..1]);
        assert_eq!(found(&keys[..1]), keys[1..]);
        assert_eq!(found(&keys), []);
    }
}
