//! The reading handle: every question is answered from one consistent snapshot, and so are several that
//! are asked with [`Store::at_one_moment`].

pub(crate) mod outputs;
pub(crate) mod parked_rows;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use redb::{Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _};

use self::outputs::Pages;
use self::parked_rows::Rows;
use super::catch_panics::{close, guarded};
use super::format::{
    self, BY_HAND, CommitRecord, LOG, MARKS, META, NAMES, Names, PROGRESS, QUEUES, QueueRecord, RecordKey,
    SEGMENTS, SINKS,
};
use crate::codec::block::{Jobs, Wanted};
use crate::codec::bytes::Wrong;
use crate::codec::log_record::Value;
use crate::error::{Cause, ReadError};
use tidegate_model::{Address, Batch, Origin, Progress, Segment, SinkPosition, SourceOffset, Timestamp};

pub use self::outputs::{OutputOrigin, StoredOutput};

/// Reads the store, from any thread. Cheap to clone.
///
/// While the [`crate::Writer`] opens the store again, reads wait; after it has been dropped they
/// answer [`ReadError::Interrupted`].
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
    /// All questions are answered from this transaction.
    moment: Option<Moment>,
}

/// A snapshot, as long as the call of [`Store::at_one_moment`] that made it.
#[derive(Clone, Debug)]
struct Moment {
    txn: Weak<ReadTransaction>,
    /// The opening of the database that it belongs to.
    opening: u64,
}

/// The open database. `None` once the writer is gone, or could not open it again.
///
/// A reader holds the lock while it reads, so that no one reads the file when it is opened again.
#[derive(Debug)]
pub(crate) struct Shared {
    database: RwLock<Option<Database>>,
    /// How often the database was closed or opened again. Changes only while `database` is locked for writing.
    openings: AtomicU64,
    /// Where jobs stand, as far as searches for some have found.
    pages: Pages,
    rows: Rows,
}

/// What is known of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    pub address: Address,
    /// The index of the oldest job that is kept; `head + 1` where none is.
    pub first: u64,
    /// The index of the last job; 0 where there never was one.
    pub head: u64,
    /// What the kept jobs take in the store.
    pub bytes: u64,
}

/// A batch, and for each of its jobs where it came from, where that is known.
pub type DetailedBatch = (Batch, Vec<Option<Origin>>);

impl QueueState {
    /// How many jobs are kept.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        (self.head + 1).saturating_sub(self.first)
    }
}

impl Store {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, moment: None }
    }

    /// Answers all questions that `look` asks from one snapshot: what is committed meanwhile is not in it.
    ///
    /// The pages of a snapshot are not used again before it is dropped, so `look` should not take long.
    ///
    /// # Errors
    /// Those of `look`; [`ReadError::Interrupted`] where the store is closed or opened again meanwhile.
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

    /// Every queue that a job was ever appended to, in order of address.
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

    /// `None` where no job was ever appended to it.
    pub fn queue(&self, queue: &Address) -> Result<Option<QueueState>, ReadError> {
        self.view(|txn| {
            let found = find_queue(txn, queue)?;
            Ok(found.map(|(_, record)| queue_state(queue.clone(), record)))
        })
    }

    /// The jobs of `queue` from the index `from` on: at most `jobs` of them, of together at most
    /// `bytes` bytes with what they carry, but at least one. There may be fewer than there could be. `None` where `from`
    /// is past the head.
    ///
    /// # Errors
    /// [`ReadError::Gone`] where the job at `from` has been trimmed.
    pub fn read(
        &self,
        queue: &Address,
        from: u64,
        jobs: usize,
        bytes: usize,
    ) -> Result<Option<Batch>, ReadError> {
        self.read_into(queue, from, Wanted { jobs, bytes }, Jobs::default())
            .map(|jobs| jobs.map(|jobs| batch(from, jobs).0))
    }

    /// As [`Self::read`], and for each job where it came from, where that is known.
    pub fn read_details(
        &self,
        queue: &Address,
        from: u64,
        jobs: usize,
        bytes: usize,
    ) -> Result<Option<DetailedBatch>, ReadError> {
        self.read_into(queue, from, Wanted { jobs, bytes }, Jobs::with_origins())
            .map(|jobs| jobs.map(|jobs| batch(from, jobs)))
    }

    fn read_into(
        &self,
        queue: &Address,
        from: u64,
        wanted: Wanted,
        jobs: Jobs,
    ) -> Result<Option<Jobs>, ReadError> {
        self.view(|txn| {
            let Some((id, record)) = find_queue(txn, queue)? else { return Ok(None) };
            if from > record.head {
                return Ok(None);
            }
            if from < record.first {
                return Err(Cause::Gone { queue: queue.clone(), index: from, first: record.first });
            }
            read_jobs(txn, id, from, wanted, jobs).map(Some).map_err(|error| in_queue(queue, error))
        })
    }

    /// The index of the first kept job of `queue` that was committed at `time` or later; `None` where
    /// none was. Where the clock was set back meanwhile, a job that follows on one from before `time`.
    pub fn index_at(&self, queue: &Address, time: Timestamp) -> Result<Option<u64>, ReadError> {
        self.view(|txn| {
            let Some((id, record)) = find_queue(txn, queue)? else { return Ok(None) };
            index_at(txn, id, record, time).map_err(|error| in_queue(queue, error))
        })
    }

    /// `None` where the step has never accounted for a job of the input.
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

    /// Which jobs of an error queue somebody has dealt with by hand; `None` where none ever was.
    pub fn handled(&self, queue: &Address) -> Result<Option<Progress>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, queue)? else { return Ok(None) };
            let stored = txn.open_table(PROGRESS)?.get((BY_HAND, id))?;
            stored.map(|stored| RecordKey::Progress(BY_HAND, id).unseal_json(stored.value())).transpose()
        })
    }

    /// Step, input, and how far the one is with the other; in order of their addresses.
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

    /// `None` where nothing was ever committed to the sink.
    pub fn sink(&self, sink: &Address) -> Result<Option<SinkPosition>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, sink)? else { return Ok(None) };
            let stored = txn.open_table(SINKS)?.get(id)?;
            stored.map(|stored| RecordKey::Sink(id).unseal_json(stored.value())).transpose()
        })
    }

    /// The time of the last commit, or when the store was made.
    pub fn committed_at(&self) -> Result<Timestamp, ReadError> {
        self.view(|txn| Ok(CommitRecord::read(&txn.open_table(META)?)?.time))
    }

    /// The number of the last commit; 0 in a new store.
    pub fn transaction(&self) -> Result<u64, ReadError> {
        self.view(|txn| Ok(CommitRecord::read(&txn.open_table(META)?)?.number))
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.shared.pages
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.shared.rows
    }

    /// As it is now, whatever moment this handle shows.
    pub(crate) fn latest(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), moment: None }
    }

    pub(crate) fn view<T>(
        &self,
        question: impl FnOnce(&ReadTransaction) -> Result<T, Cause>,
    ) -> Result<T, ReadError> {
        let ask = |database: &Database| {
            let Some(Moment { txn, opening }) = &self.moment else {
                return question(&database.begin_read()?);
            };
            // A transaction does not outlive the opening of its database: the file is another one then.
            let txn = txn.upgrade().filter(|_| *opening == self.shared.opening());
            question(&*txn.ok_or(Cause::Interrupted)?)
        };
        guarded(|| self.shared.with(ask)).map_err(ReadError::from)
    }
}

impl Shared {
    pub(crate) fn new(database: Database) -> Self {
        Self {
            database: RwLock::new(Some(database)),
            openings: AtomicU64::new(0),
            pages: Pages::default(),
            rows: Rows::default(),
        }
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    fn opening(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// Does something with the database, which stays open meanwhile.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, Cause>) -> Result<T, Cause> {
        // A panic while it was locked leaves it as it was: open, or not.
        let guard = self.database.read().unwrap_or_else(PoisonError::into_inner);
        work(guard.as_ref().ok_or(Cause::Interrupted)?)
    }

    /// Closes the database when no one uses it any more, and puts the one that `open` gives in its
    /// place before anyone can.
    pub(crate) fn replace<E>(&self, open: impl FnOnce() -> Result<Option<Database>, E>) -> Result<(), E> {
        let mut guard = self.database.write().unwrap_or_else(PoisonError::into_inner);
        self.openings.fetch_add(1, Ordering::Release);
        close(guard.take());
        self.pages.forget();
        self.rows.forget();
        *guard = open()?;
        Ok(())
    }
}

/// As [`Store::all_progress`].
pub(crate) fn all_progress(txn: &ReadTransaction) -> Result<Vec<(Address, Address, Progress)>, Cause> {
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

fn find_queue(txn: &ReadTransaction, queue: &Address) -> Result<Option<(u32, QueueRecord)>, Cause> {
    let Some(id) = format::find_id(&txn.open_table(NAMES)?, queue)? else { return Ok(None) };
    let Some(stored) = txn.open_table(QUEUES)?.get(id)? else { return Ok(None) };
    Ok(Some((id, QueueRecord::unseal(id, stored.value())?)))
}

fn queue_state(address: Address, record: QueueRecord) -> QueueState {
    QueueState { address, first: record.first, head: record.head, bytes: record.bytes }
}

fn batch(first: u64, jobs: Jobs) -> DetailedBatch {
    let Jobs { payloads, carried, origins, stamps } = jobs;
    let batch = Batch { stamps, carried, ..Batch::json(first, payloads) };
    (batch, origins.unwrap_or_default())
}

fn in_queue(queue: &Address, error: Cause) -> Cause {
    match error {
        Cause::Damaged(what) => Cause::Damaged(format!("queue `{queue}`: {what}")),
        other => other,
    }
}

fn missing(index: u64) -> Cause {
    Cause::Damaged(format!("job {index} is missing"))
}

fn unreadable(first: u64, what: Wrong) -> Cause {
    Cause::Damaged(format!("the jobs from {first} on cannot be read: {what}"))
}

/// Reads from the value that holds `from` on, until there is enough or no more. `jobs` is empty.
fn read_jobs(
    txn: &ReadTransaction,
    queue: u32,
    from: u64,
    wanted: Wanted,
    mut jobs: Jobs,
) -> Result<Jobs, Cause> {
    let log = txn.open_table(LOG)?;
    let start = match log.range((queue, 0)..=(queue, from))?.next_back() {
        Some(entry) => entry?.0.value().1,
        None => return Err(missing(from)),
    };
    for entry in log.range((queue, start)..=(queue, u64::MAX))? {
        let (key, stored) = entry?;
        let (_, first) = key.value();
        let next = from + jobs.payloads.len() as u64;
        let value = Value::parse(stored.value(), RecordKey::Log(queue, first).seed());
        let value = value.map_err(|what| unreadable(first, what))?;
        // The first value may start before the first job that is asked for; the others follow each
        // other without gaps.
        let position = next.checked_sub(first).filter(|&position| position < value.jobs);
        let Some(position) = position else {
            // What came before the gap is good.
            return if jobs.payloads.is_empty() { Err(missing(next)) } else { Ok(jobs) };
        };
        match value.read(position, wanted, &mut jobs) {
            Ok(()) => {}
            // As above: the error is told to whoever asks for the damaged job itself.
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

/// Halves what is kept until the value is found that is the first of its time or later.
fn index_at(
    txn: &ReadTransaction,
    queue: u32,
    record: QueueRecord,
    time: Timestamp,
) -> Result<Option<u64>, Cause> {
    let log = txn.open_table(LOG)?;
    // What is before `low` is from before `time`; what starts at `high` or behind is not.
    let (mut low, mut high) = (record.first, record.head + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let entry = log.range((queue, low)..=(queue, middle))?.next_back().ok_or_else(|| missing(middle))?;
        let (key, stored) = entry?;
        let (_, first) = key.value();
        let value = Value::parse(stored.value(), RecordKey::Log(queue, first).seed());
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
