//! `Store`: the reading handle. Each call reads one consistent snapshot; [`Store::at_one_moment`] reads
//! several values from the same one.

pub(crate) mod late_rows;
pub(crate) mod outputs;
pub(crate) mod parked_rows;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use redb::{Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _};

use self::outputs::Pages;
use super::catch_panics::{close, guarded};
use super::format::{
    self, BY_HAND, CommitRecord, LOG, MARKS, META, NAMES, Names, PROGRESS, QUEUES, QueueRecord, RecordKey,
    SEGMENTS, SINKS,
};
use super::name_history;
use crate::codec::block::{DecodedJobs, ReadBounds};
use crate::codec::bytes::Wrong;
use crate::codec::log_record::LogValue;
use crate::error::{ReadError, StoreCause};
use tidegate_model::sync::RwLock;
use tidegate_model::{
    Address, Batch, NameHistory, NamedKind, Origin, Progress, RenamedPart, Segment, SinkPosition,
    SourceOffset, Timestamp,
};

pub use self::outputs::{OutputOrigin, StoredOutput};

/// Reads the store, from any thread. Cheap to clone.
///
/// While the [`crate::Writer`] reopens the store, reads wait. After it is dropped they return
/// [`ReadError::Interrupted`].
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<SharedDatabase>,
    /// Every read uses this transaction.
    moment: Option<Moment>,
}

/// A snapshot, which lives as long as the call of [`Store::at_one_moment`] that created it.
#[derive(Clone, Debug)]
struct Moment {
    txn: Weak<ReadTransaction>,
    /// The opening of the database that it belongs to.
    opening: u64,
}

/// The open database. `None` once the writer is gone, or could not reopen it.
///
/// A reader holds the lock while it reads, so that the file is not reopened during a read.
#[derive(Debug)]
pub(crate) struct SharedDatabase {
    database: RwLock<Option<Database>>,
    /// Number of times that the database was closed or reopened. Changes only while `database` is locked for
    /// writing.
    openings: AtomicU64,
    /// Index of the pages that earlier searches have read.
    pages: Pages,
    /// Present names of the parts that were renamed since the store was opened, by their former names: for reads that
    /// begin before a rename and end after it.
    renamed: RwLock<BTreeMap<(NamedKind, Address), Address>>,
    names: RwLock<KnownNames>,
}

/// The state of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    pub address: Address,
    /// The index of the oldest job that is kept; `head + 1` if none is.
    pub first: u64,
    /// The index of the last job; 0 if none was ever appended.
    pub head: u64,
    /// Bytes of the kept jobs in the store.
    pub bytes: u64,
}

/// A batch, with the origin of each of its jobs if it is recorded.
pub type DetailedBatch = (Batch, Vec<Option<Origin>>);

impl QueueState {
    /// Number of kept jobs.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        (self.head + 1).saturating_sub(self.first)
    }
}

impl Store {
    pub(crate) fn new(shared: Arc<SharedDatabase>) -> Self {
        Self { shared, moment: None }
    }

    /// Runs `look` on one snapshot, which excludes later commits.
    ///
    /// The pages of a snapshot are not reused before it is dropped, so `look` should be short.
    ///
    /// # Errors
    /// Errors of `look`; [`ReadError::Interrupted`] if the store is closed or reopened meanwhile.
    pub fn at_one_moment<T, E: From<ReadError>>(
        &self,
        look: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.moment.is_some() {
            return look(self);
        }
        let begun = guarded(|| {
            self.shared.with(|database| Ok((Arc::new(database.begin_read()?), self.shared.opening())))
        });
        let (txn, opening) = begun.map_err(ReadError::from)?;
        let moment = Some(Moment { txn: Arc::downgrade(&txn), opening });
        look(&Self { shared: Arc::clone(&self.shared), moment })
    }

    /// Every queue that ever had a job, in order of address.
    pub fn queues(&self) -> Result<Vec<QueueState>, ReadError> {
        self.view(|txn| {
            let queues = txn.open_table(QUEUES)?;
            let mut states = Vec::new();
            for (id, address) in format::names(&txn.open_table(NAMES)?)? {
                if let Some(stored) = queues.get(id)? {
                    states.push(queue_state(address, QueueRecord::unseal(id, stored.value())?));
                }
            }
            Ok(states)
        })
    }

    /// `None` if the queue never had a job.
    pub fn queue(&self, queue: &Address) -> Result<Option<QueueState>, ReadError> {
        self.view(|txn| {
            let found = find_queue(txn, queue)?;
            Ok(found.map(|(_, record)| queue_state(queue.clone(), record)))
        })
    }

    /// The jobs of `queue` from the index `from` on: at most `jobs` of them, and at most `bytes` bytes with
    /// their provenance, but at least one. Fewer may be returned. `None` if `from` is past the head.
    ///
    /// # Errors
    /// [`ReadError::Gone`] if retention has deleted the job at `from`.
    pub fn read(
        &self,
        queue: &Address,
        from: u64,
        jobs: usize,
        bytes: usize,
    ) -> Result<Option<Batch>, ReadError> {
        self.read_into(queue, from, ReadBounds { jobs, bytes }, DecodedJobs::default())
            .map(|jobs| jobs.map(|jobs| batch(from, jobs).0))
    }

    /// As [`Self::read`], with the origin of each job if it is recorded.
    pub fn read_details(
        &self,
        queue: &Address,
        from: u64,
        jobs: usize,
        bytes: usize,
    ) -> Result<Option<DetailedBatch>, ReadError> {
        self.read_into(queue, from, ReadBounds { jobs, bytes }, DecodedJobs::with_origins())
            .map(|jobs| jobs.map(|jobs| batch(from, jobs)))
    }

    fn read_into(
        &self,
        queue: &Address,
        from: u64,
        wanted: ReadBounds,
        jobs: DecodedJobs,
    ) -> Result<Option<DecodedJobs>, ReadError> {
        self.view(|txn| {
            let found = match (find_queue(txn, queue)?, self.shared.present_name(NamedKind::Endpoint, queue))
            {
                (None, Some(queue)) => find_queue(txn, &queue)?,
                (found, _) => found,
            };
            let Some((id, record)) = found else { return Ok(None) };
            if from > record.head {
                return Ok(None);
            }
            if from < record.first {
                return Err(StoreCause::Gone { queue: queue.clone(), index: from, first: record.first });
            }
            read_jobs(txn, id, from, wanted, jobs).map(Some).map_err(|error| in_queue(queue, error))
        })
    }

    /// The index of the first kept job of `queue` that was committed at `time` or later; `None` if none was.
    /// If the clock was set back, it may follow a job from before `time`.
    pub fn index_at(&self, queue: &Address, time: Timestamp) -> Result<Option<u64>, ReadError> {
        self.view(|txn| {
            let Some((id, record)) = find_queue(txn, queue)? else { return Ok(None) };
            index_at(txn, id, record, time).map_err(|error| in_queue(queue, error))
        })
    }

    /// `None` if the step has never accounted for a job of the input.
    pub fn progress(&self, step: &Address, input: &Address) -> Result<Option<Progress>, ReadError> {
        self.view(|txn| {
            let names = txn.open_table(NAMES)?;
            let (Some(step), Some(input)) = (format::find_id(&names, step)?, format::find_id(&names, input)?)
            else {
                return Ok(None);
            };
            let stored = txn.open_table(PROGRESS)?.get((step, input))?;
            stored.map(|stored| RecordKey::Progress(step, input).unseal_json(stored.value())).transpose()
        })
    }

    /// The jobs of an error queue that an operator handled; `None` if none ever was.
    pub fn handled(&self, queue: &Address) -> Result<Option<Progress>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, queue)? else { return Ok(None) };
            let stored = txn.open_table(PROGRESS)?.get((BY_HAND, id))?;
            stored.map(|stored| RecordKey::Progress(BY_HAND, id).unseal_json(stored.value())).transpose()
        })
    }

    /// Step, input, and progress, in order of their addresses.
    pub fn all_progress(&self) -> Result<Vec<(Address, Address, Progress)>, ReadError> {
        self.view(all_progress)
    }

    /// The last mark of `source` at or before the index.
    pub fn mark(&self, source: &Address, at_or_before: u64) -> Result<Option<SourceOffset>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, source)? else { return Ok(None) };
            let marks = txn.open_table(MARKS)?;
            let Some(entry) = marks.range((id, 0)..=(id, at_or_before))?.next_back() else { return Ok(None) };
            let (key, stored) = entry?;
            format::unseal_mark(id, key.value().1, stored.value()).map(Some)
        })
    }

    /// The segments of `source`, in order.
    pub fn segments(&self, source: &Address) -> Result<Vec<Segment>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, source)? else { return Ok(Vec::new()) };
            let mut segments = Vec::new();
            for entry in txn.open_table(SEGMENTS)?.range((id, 0)..=(id, u32::MAX))? {
                let (key, stored) = entry?;
                segments.push(RecordKey::Segment(id, key.value().1).unseal_json(stored.value())?);
            }
            Ok(segments)
        })
    }

    /// `None` if no job was ever committed to the sink.
    pub fn sink(&self, sink: &Address) -> Result<Option<SinkPosition>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, sink)? else { return Ok(None) };
            let stored = txn.open_table(SINKS)?.get(id)?;
            stored.map(|stored| RecordKey::Sink(id).unseal_json(stored.value())).transpose()
        })
    }

    /// All sinks to which a job was ever committed.
    pub fn all_sinks(&self) -> Result<Vec<(Address, SinkPosition)>, ReadError> {
        self.view(|txn| {
            let names = Names::read(&txn.open_table(NAMES)?)?;
            let mut all = Vec::new();
            for entry in txn.open_table(SINKS)?.iter()? {
                let (id, stored) = entry?;
                let position = RecordKey::Sink(id.value()).unseal_json(stored.value())?;
                all.push((names.get(id.value())?.clone(), position));
            }
            Ok(all)
        })
    }

    /// The time of the last commit, or the creation time of the store.
    pub fn committed_at(&self) -> Result<Timestamp, ReadError> {
        self.view(|txn| Ok(CommitRecord::read(&txn.open_table(META)?)?.time))
    }

    /// The number of the last commit; 0 in a new store.
    pub fn transaction(&self) -> Result<u64, ReadError> {
        self.view(|txn| Ok(CommitRecord::read(&txn.open_table(META)?)?.number))
    }

    /// All renames of the store.
    pub fn name_history(&self) -> Result<Arc<NameHistory>, ReadError> {
        let KnownNames { history, version, .. } = self.shared.names.read().clone();
        if let Some(known) = history {
            return Ok(known);
        }
        let history = Arc::new(self.view(name_history::read)?);
        let mut names = self.shared.names.write();
        // A snapshot may be older than a rename.
        if names.version == version && !names.are_changing && self.moment.is_none() {
            names.history = Some(Arc::clone(&history));
        }
        Ok(history)
    }

    pub(crate) fn present_name(&self, kind: NamedKind, address: &Address) -> Option<Address> {
        self.shared.present_name(kind, address)
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.shared.pages
    }

    pub(crate) fn view<T>(
        &self,
        question: impl FnOnce(&ReadTransaction) -> Result<T, StoreCause>,
    ) -> Result<T, ReadError> {
        let ask = |database: &Database| {
            let Some(Moment { txn, opening }) = &self.moment else {
                return question(&database.begin_read()?);
            };
            // A transaction does not outlive the opening of its database, since a reopened file is another
            // one.
            let txn = txn.upgrade().filter(|_| *opening == self.shared.opening());
            question(&*txn.ok_or(StoreCause::Interrupted)?)
        };
        guarded(|| self.shared.with(ask)).map_err(ReadError::from)
    }
}

/// All renames, as far as they were read.
#[derive(Clone, Debug, Default)]
struct KnownNames {
    history: Option<Arc<NameHistory>>,
    /// Number of changes.
    version: u64,
    /// A rename is being committed: it may be durable or not.
    are_changing: bool,
}

impl SharedDatabase {
    pub(crate) fn new(database: Database) -> Self {
        Self {
            database: RwLock::new(Some(database)),
            openings: AtomicU64::new(0),
            pages: Pages::default(),
            renamed: RwLock::default(),
            names: RwLock::default(),
        }
    }

    /// Records renames that are about to be durable. Until [`Self::forget_names`] each reader reads them itself.
    pub(crate) fn rename(&self, parts: &[RenamedPart]) {
        if parts.is_empty() {
            return;
        }
        let mut names = self.names.write();
        *names = KnownNames { history: None, version: names.version + 1, are_changing: true };
        drop(names);
        let mut renamed = self.renamed.write();
        for RenamedPart { kind, from, to } in parts {
            renamed.remove(&(*kind, to.clone()));
            for name in renamed.iter_mut().filter(|((other, _), name)| other == kind && *name == from) {
                *name.1 = to.clone();
            }
            renamed.insert((*kind, from.clone()), to.clone());
        }
    }

    /// Forgets what was read under names that have changed.
    pub(crate) fn forget_names(&self) {
        self.pages.forget();
        let mut names = self.names.write();
        *names = KnownNames { history: None, version: names.version + 1, are_changing: false };
    }

    /// The present name of a part that has another one since the store was opened.
    pub(crate) fn present_name(&self, kind: NamedKind, address: &Address) -> Option<Address> {
        self.renamed.read().get(&(kind, address.clone())).cloned()
    }

    fn opening(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// Runs `work` with the database, which stays open meanwhile.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreCause>,
    ) -> Result<T, StoreCause> {
        let guard = self.database.read();
        work(guard.as_ref().ok_or(StoreCause::Interrupted)?)
    }

    /// Closes the database when no reader uses it any more, and replaces it by that of `open` before the next
    /// read.
    pub(crate) fn replace<E>(&self, open: impl FnOnce() -> Result<Option<Database>, E>) -> Result<(), E> {
        let mut guard = self.database.write();
        self.openings.fetch_add(1, Ordering::Release);
        close(guard.take());
        self.forget_names();
        *guard = open()?;
        Ok(())
    }
}

/// As [`Store::all_progress`].
pub(crate) fn all_progress(txn: &ReadTransaction) -> Result<Vec<(Address, Address, Progress)>, StoreCause> {
    let names = Names::read(&txn.open_table(NAMES)?)?;
    let mut all = Vec::new();
    for entry in txn.open_table(PROGRESS)?.iter()? {
        let (key, stored) = entry?;
        let (step, input) = key.value();
        if step == BY_HAND {
            continue;
        }
        let progress = RecordKey::Progress(step, input).unseal_json(stored.value())?;
        all.push((names.get(step)?.clone(), names.get(input)?.clone(), progress));
    }
    all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    Ok(all)
}

fn find_queue(txn: &ReadTransaction, queue: &Address) -> Result<Option<(u32, QueueRecord)>, StoreCause> {
    let Some(id) = format::find_id(&txn.open_table(NAMES)?, queue)? else { return Ok(None) };
    let Some(stored) = txn.open_table(QUEUES)?.get(id)? else { return Ok(None) };
    Ok(Some((id, QueueRecord::unseal(id, stored.value())?)))
}

fn queue_state(address: Address, record: QueueRecord) -> QueueState {
    QueueState { address, first: record.first, head: record.head, bytes: record.bytes }
}

fn batch(first: u64, jobs: DecodedJobs) -> DetailedBatch {
    let DecodedJobs { payloads, carried, origins, stamps } = jobs;
    let batch = Batch { stamps, carried, ..Batch::json(first, payloads) };
    (batch, origins.unwrap_or_default())
}

fn in_queue(queue: &Address, error: StoreCause) -> StoreCause {
    match error {
        StoreCause::Damaged(what) => StoreCause::Damaged(format!("queue `{queue}`: {what}")),
        other => other,
    }
}

fn missing(index: u64) -> StoreCause {
    StoreCause::Damaged(format!("job {index} is missing"))
}

fn unreadable(first: u64, what: Wrong) -> StoreCause {
    StoreCause::Damaged(format!("the jobs from {first} on cannot be read: {what}"))
}

/// Reads values from the one that holds `from`, until the limit or the end. `jobs` is empty.
fn read_jobs(
    txn: &ReadTransaction,
    queue: u32,
    from: u64,
    wanted: ReadBounds,
    mut jobs: DecodedJobs,
) -> Result<DecodedJobs, StoreCause> {
    let log = txn.open_table(LOG)?;
    let start = match log.range((queue, 0)..=(queue, from))?.next_back() {
        Some(entry) => entry?.0.value().1,
        None => return Err(missing(from)),
    };
    for entry in log.range((queue, start)..=(queue, u64::MAX))? {
        let (key, stored) = entry?;
        let (_, first) = key.value();
        let next = from + jobs.payloads.len() as u64;
        let value = LogValue::parse(stored.value(), RecordKey::Log(queue, first).seed());
        let value = value.map_err(|what| unreadable(first, what))?;
        // The first value may start before the requested job; later ones follow without gaps.
        let position = next.checked_sub(first).filter(|&position| position < value.jobs);
        let Some(position) = position else {
            // The jobs before the gap are valid.
            return if jobs.payloads.is_empty() { Err(missing(next)) } else { Ok(jobs) };
        };
        match value.read(position, wanted, &mut jobs) {
            Ok(()) => {}
            // The error is returned to the read of the damaged job itself.
            Err(_) if next > from => break,
            Err(what) => return Err(unreadable(first, what)),
        }
        let read = jobs.payloads.len();
        let read_to_its_end = from + read as u64 == first + value.jobs;
        if !read_to_its_end || read >= wanted.jobs || jobs.byte_len() >= wanted.bytes {
            break;
        }
    }
    if jobs.payloads.is_empty() { Err(missing(from)) } else { Ok(jobs) }
}

/// Binary search for the first value of this time or later.
fn index_at(
    txn: &ReadTransaction,
    queue: u32,
    record: QueueRecord,
    time: Timestamp,
) -> Result<Option<u64>, StoreCause> {
    let log = txn.open_table(LOG)?;
    // Values before `low` are older than `time`; those from `high` on are not.
    let (mut low, mut high) = (record.first, record.head + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let entry = log.range((queue, low)..=(queue, middle))?.next_back().ok_or_else(|| missing(middle))?;
        let (key, stored) = entry?;
        let (_, first) = key.value();
        let value = LogValue::parse(stored.value(), RecordKey::Log(queue, first).seed());
        let value = value.map_err(|what| unreadable(first, what))?;
        let end = first.checked_add(value.jobs).filter(|&end| end > middle).ok_or_else(|| missing(middle))?;
        if value.time < time {
            low = end;
        } else {
            high = first;
        }
    }
    Ok(Some(low).filter(|&index| index <= record.head))
}
