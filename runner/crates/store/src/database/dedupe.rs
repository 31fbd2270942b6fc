//! Delivery records: keep the outcome of each delivery until it may be forgotten.
//!
//! A delivery that was made from one job is recorded by the place of the job (see [`super::delivered`]). Others, pushed
//! keys and completions are recorded by their hash, and so are all deliveries of older versions. All are also stored
//! in order of their expiry, so that each commit removes expired ones without a search.

use redb::{ReadableTable as _, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::delivered::{self, DeliveredSpan, Deliveries, TimedOutcome};
use super::format::{
    CommitRecord, DELIVERIES, EXPIRIES, RecordKey, SPANS, from_ordered, ordered, u32_at, u64_at,
};
use super::read::Store;
use crate::api::appended::Appended;
use crate::api::completion;
use crate::api::delivery::{DeliveredJobs, DeliveryOutcome, DeliveryPlace, DeliveryTimes};
use crate::api::late_job::LateKey;
use crate::api::parked_job::ParkedId;
use crate::codec::bytes::{Bytes, put_varint};
use crate::codec::delivery_times;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, DeliveryHash, ExternalStatus, Timestamp, delivery_hash};

/// Maximum number of deliveries that a commit removes, in addition to twice the number it adds.
const FORGET_MAX: usize = 1024;
/// Maximum number of hashes, or of spans, in one record.
const PART_MAX: usize = 1024;

/// The outcome of a delivery, or of what else is recorded by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupeOutcome {
    /// The number of jobs on the outputs.
    Output { jobs: u32 },
    /// The job is on the error queue.
    Error,
    /// It was consumed with no output.
    Nothing,
    /// Ingested jobs, recorded under the hash of their key: `jobs` jobs from the index `first` on. `content`
    /// is a hash of the jobs, which identifies a repeated request.
    #[serde(rename = "arrived")]
    Ingested { first: u64, jobs: u32, content: u64 },
    /// As [`Self::Ingested`], with `late` jobs that are appended later, whose numbers begin at `late_first`. `first` is
    /// 0 if `jobs` is.
    #[serde(rename = "arrives")]
    IngestedLate { first: u64, jobs: u32, content: u64, late_first: ParkedId, late: u32 },
    /// A completion by an external system. `content` is a hash of the completion, which identifies a repeated
    /// one.
    #[serde(rename = "told")]
    CompletedExternally { status: ExternalStatus, content: u64 },
}

/// A delivery to record by its hash. It was made from several jobs, or is an external completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupeRecord {
    pub hash: DeliveryHash,
    pub outcome: DedupeOutcome,
    /// `None` for anything but a delivery. Only the outcomes of a delivery are stored with times.
    pub times: Option<DeliveryTimes>,
    /// It may be forgotten from this time on; `None`: never.
    pub keep_until: Option<Timestamp>,
}

/// The key of pushed jobs to record. The store adds the index of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestedKey {
    pub hash: DeliveryHash,
    /// The position in [`crate::Changes::appends`] of the append that has the jobs.
    pub append: usize,
    /// The position of the first job in that append.
    pub position: u64,
    /// If it is 0, the append need not exist.
    pub jobs: u32,
    /// The position of the first late job in [`crate::LateChanges::new`].
    pub late_position: usize,
    /// Number of late jobs.
    pub late: u32,
    /// See [`DedupeOutcome::Ingested`].
    pub content: u64,
    /// See [`DedupeRecord::keep_until`].
    pub keep_until: Option<Timestamp>,
}

/// The stored form of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredRecord {
    pub(crate) outcome: DedupeOutcome,
    /// Time of the commit. 0 in records that a store of version 1 wrote.
    pub(crate) time: Timestamp,
    /// See [`DedupeRecord::times`]. `None` in records up to version 10.
    pub(crate) times: Option<DeliveryTimes>,
    /// See [`DedupeRecord::keep_until`].
    pub(crate) keep_until: Option<Timestamp>,
}

/// The stored time of records that are never forgotten.
const FOR_EVER: i64 = i64::MAX;

/// The record of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRecord {
    pub outcome: DedupeOutcome,
    /// Time of the commit; `None` if an older version did not record it.
    pub ended: Option<Timestamp>,
    /// `None` if an older version did not record them.
    pub times: Option<DeliveryTimes>,
}

/// The key of a delivery record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryKey<'a> {
    /// A delivery that was made from one job. An older version recorded it by its hash.
    Place(DeliveryPlace<'a>),
    /// Anything else.
    Hash(DeliveryHash),
}

impl<'a> DeliveryKey<'a> {
    /// The key of the delivery of `step` that was made from these jobs: the names of their inputs in the hash, and their
    /// indices.
    #[must_use]
    pub fn new(step: &'a Address, jobs: &'a [(String, u64)]) -> Self {
        if let [(input, index)] = jobs {
            return Self::Place(DeliveryPlace { step, input, index: *index });
        }
        let jobs = jobs.iter().map(|(input, index)| (input.as_str(), std::slice::from_ref(index)));
        Self::Hash(delivery_hash(step.pipeline.as_str(), step.name.as_str(), jobs))
    }
}

impl From<DeliveryOutcome> for DedupeOutcome {
    fn from(outcome: DeliveryOutcome) -> Self {
        match outcome {
            DeliveryOutcome::Output { jobs } => Self::Output { jobs },
            DeliveryOutcome::Error => Self::Error,
            DeliveryOutcome::Nothing => Self::Nothing,
        }
    }
}

impl Store {
    /// The outcome that is recorded by a hash; `None` if there is none, or if it is forgotten.
    pub fn delivery(&self, hash: DeliveryHash) -> Result<Option<DedupeOutcome>, ReadError> {
        Ok(self.deliveries(&[DeliveryKey::Hash(hash)])?.pop().flatten())
    }

    /// The outcomes that are recorded by these keys of pushed jobs. A key that may be forgotten at `now` has none, also if
    /// no commit has removed it yet.
    pub fn known_keys(
        &self,
        keys: &[DeliveryHash],
        now: Timestamp,
    ) -> Result<Vec<Option<DedupeOutcome>>, ReadError> {
        self.view(|txn| {
            let table = txn.open_table(DELIVERIES)?;
            let find = |&key: &DeliveryHash| -> Result<Option<DedupeOutcome>, StoreCause> {
                let Some(stored) = table.get(key.0)? else { return Ok(None) };
                let StoredRecord { outcome, keep_until, .. } = StoredRecord::unseal(key, stored.value())?;
                Ok(keep_until.is_none_or(|until| now < until).then_some(outcome))
            };
            keys.iter().map(find).collect()
        })
    }

    /// The record of a delivery; `None` if it has not ended, or is forgotten.
    pub fn delivery_record(&self, key: DeliveryKey<'_>) -> Result<Option<DeliveryRecord>, ReadError> {
        self.view(|txn| {
            let hash = match key {
                DeliveryKey::Hash(hash) => hash,
                DeliveryKey::Place(place) => match Deliveries::new(txn)?.timed(&place)? {
                    Some(TimedOutcome { outcome, ended, times }) => {
                        return Ok(Some(DeliveryRecord {
                            outcome: outcome.into(),
                            ended: Some(ended),
                            times,
                        }));
                    }
                    None => place.hash(),
                },
            };
            let table = txn.open_table(DELIVERIES)?;
            let stored = table.get(hash.0)?;
            let stored = stored.map(|stored| StoredRecord::unseal(hash, stored.value())).transpose()?;
            Ok(stored.map(|StoredRecord { outcome, time, times, .. }| {
                let ended = Some(time).filter(|time| *time > Timestamp(0));
                DeliveryRecord { outcome, ended, times }
            }))
        })
    }

    /// The outcome of each delivery, from one snapshot. It is fast if places are in order.
    pub fn deliveries(&self, keys: &[DeliveryKey<'_>]) -> Result<Vec<Option<DedupeOutcome>>, ReadError> {
        self.view(|txn| {
            let (table, mut by_place) = (txn.open_table(DELIVERIES)?, Deliveries::new(txn)?);
            let mut find = |key: &DeliveryKey<'_>| -> Result<Option<DedupeOutcome>, StoreCause> {
                let hash = match key {
                    DeliveryKey::Hash(hash) => *hash,
                    DeliveryKey::Place(place) => match by_place.find(place)? {
                        Some(outcome) => return Ok(Some(outcome.into())),
                        None => place.hash(),
                    },
                };
                let stored = table.get(hash.0)?;
                stored.map(|stored| Ok(StoredRecord::unseal(hash, stored.value())?.outcome)).transpose()
            };
            keys.iter().map(&mut find).collect()
        })
    }
}

/// The keys of a commit, and the places of its jobs.
pub(crate) struct Arrivals<'a> {
    pub(crate) keys: &'a [IngestedKey],
    pub(crate) appended: &'a [Appended],
    pub(crate) late: &'a [LateKey],
}

/// Removes some expired deliveries, and records those of this commit.
pub(crate) fn write(
    txn: &WriteTransaction,
    (delivered, deliveries): (&[DeliveredJobs], &[DedupeRecord]),
    arrivals: &Arrivals<'_>,
    commit: CommitRecord,
) -> Result<(), StoreCause> {
    // More than are added, so that a backlog shrinks.
    let jobs: usize = delivered.iter().map(|delivered| delivered.jobs.len()).sum();
    forget(txn, commit.time, FORGET_MAX + 2 * (jobs + deliveries.len() + arrivals.keys.len()))?;
    insert_spans(txn, delivered::write(txn, delivered, commit.time)?, commit.number)?;
    if deliveries.is_empty() && arrivals.keys.is_empty() {
        return Ok(());
    }
    let keys = arrivals.keys.iter().filter_map(|key| {
        let outcome = arrivals.outcome(key)?;
        Some(DedupeRecord { hash: key.hash, outcome, times: None, keep_until: key.keep_until })
    });
    let record = |DedupeRecord { hash, outcome, times, keep_until }| {
        (hash, StoredRecord { outcome, time: commit.time, times, keep_until })
    };
    insert(txn, deliveries.iter().copied().chain(keys).map(record).collect(), commit.number)
}

impl Arrivals<'_> {
    /// `None` if the commit has no such jobs.
    fn outcome(&self, key: &IngestedKey) -> Option<DedupeOutcome> {
        let IngestedKey { append, position, jobs, late_position, late, content, .. } = *key;
        let first = match jobs {
            0 => 0,
            _ => self.appended.get(append)?.first + position,
        };
        if late == 0 {
            return Some(DedupeOutcome::Ingested { first, jobs, content });
        }
        let late_first = self.late.get(late_position)?.id;
        Some(DedupeOutcome::IngestedLate { first, jobs, content, late_first, late })
    }
}

/// Inserts records with their expiries. `number` has not been used before.
pub(crate) fn insert(
    txn: &WriteTransaction,
    mut records: Vec<(DeliveryHash, StoredRecord)>,
    number: u64,
) -> Result<(), StoreCause> {
    // The last record of a hash is kept.
    records.sort_by_key(|&(hash, _)| hash);
    let mut table = txn.open_table(DELIVERIES)?;
    let mut expiring = Vec::new();
    for &(hash, record) in &records {
        table.insert(hash.0, &*record.seal(hash))?;
        expiring.extend(record.keep_until.map(|until| (until, hash)));
    }
    expiring.sort_unstable();
    expiring.dedup();
    let mut expiries = txn.open_table(EXPIRIES)?;
    for group in expiring.chunk_by(|one, other| one.0 == other.0) {
        for (part, hashes) in (0..).zip(group.chunks(PART_MAX)) {
            let key = (ordered(group[0].0), number, part);
            let record = hashes.iter().flat_map(|(_, hash)| hash.0.to_le_bytes()).collect();
            expiries.insert(key, &*RecordKey::Expiry(key.0, key.1, key.2).seal(record))?;
        }
    }
    Ok(())
}

/// Inserts the expiries of ranges. `number` has not been used before for ranges.
pub(crate) fn insert_spans(
    txn: &WriteTransaction,
    mut expiring: Vec<(Timestamp, DeliveredSpan)>,
    number: u64,
) -> Result<(), StoreCause> {
    if expiring.is_empty() {
        return Ok(());
    }
    expiring.sort_unstable();
    let mut expiries = txn.open_table(EXPIRIES)?;
    for group in expiring.chunk_by(|one, other| one.0 == other.0) {
        for (part, spans) in (SPANS..).zip(group.chunks(PART_MAX)) {
            let key = (ordered(group[0].0), number, part);
            let mut record = Vec::new();
            for (_, DeliveredSpan { series, first, last }) in spans {
                for number in [u64::from(*series), *first, last - first + 1] {
                    put_varint(&mut record, number);
                }
            }
            expiries.insert(key, &*RecordKey::Expiry(key.0, key.1, key.2).seal(record))?;
        }
    }
    Ok(())
}

/// Removes about `most` expired deliveries.
fn forget(txn: &WriteTransaction, now: Timestamp, most: usize) -> Result<(), StoreCause> {
    let mut expiries = txn.open_table(EXPIRIES)?;
    let mut over = Vec::new();
    let (mut hashes, mut spans, mut jobs) = (Vec::new(), Vec::new(), 0);
    for entry in expiries.range(..=(ordered(now), u64::MAX, u32::MAX))? {
        let (key, stored) = entry?;
        over.push(key.value());
        match unseal_expiry(key.value(), stored.value())? {
            Expiring::Hashes(more) => {
                jobs += more.len() as u64;
                hashes.extend(more);
            }
            Expiring::Spans(more) => {
                jobs += more.iter().map(|span| span.last - span.first + 1).sum::<u64>();
                spans.extend(more);
            }
        }
        if jobs >= most as u64 {
            break;
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    for key in over {
        expiries.remove(key)?;
    }
    delivered::forget(txn, &spans, now)?;
    let mut table = txn.open_table(DELIVERIES)?;
    hashes.sort_unstable();
    for hash in hashes {
        let record =
            table.get(hash.0)?.map(|stored| StoredRecord::unseal(hash, stored.value())).transpose()?;
        // A delivery recorded again has a later expiry, under which its hash is stored too.
        if record.and_then(|record| record.keep_until).is_some_and(|until| until <= now) {
            table.remove(hash.0)?;
        }
    }
    Ok(())
}

/// The length of the record of a delivery without times.
const UNTIMED_LEN: usize = 21;

impl StoredRecord {
    /// A record of version 1 has the kind (u8) and the number of jobs (u32). Later ones also have the time of the commit
    /// and that of the expiry (i64), and behind these what is particular to their kind. Kinds 0 to 2 are deliveries. They
    /// have one run of [`delivery_times`] there, from version 11 on.
    pub(crate) fn seal(self, hash: DeliveryHash) -> Vec<u8> {
        let (kind, jobs) = match self.outcome {
            DedupeOutcome::Output { jobs } => (0, jobs),
            DedupeOutcome::Error => (1, 0),
            DedupeOutcome::Nothing => (2, 0),
            DedupeOutcome::Ingested { jobs, .. } => (3, jobs),
            DedupeOutcome::CompletedExternally { status, .. } => (4, u32::from(completion::code(status))),
            DedupeOutcome::IngestedLate { jobs, .. } => (5, jobs),
        };
        let keep_until = self.keep_until.map_or(FOR_EVER, |until| until.0);
        let times = [self.time.0.to_le_bytes(), keep_until.to_le_bytes()].concat();
        let mut record = [&[kind][..], &u32::to_le_bytes(jobs), &times].concat();
        if let DedupeOutcome::Ingested { first, content, .. } = self.outcome {
            record.extend_from_slice(&[first.to_le_bytes(), content.to_le_bytes()].concat());
        }
        if let DedupeOutcome::IngestedLate { first, content, late_first, late, .. } = self.outcome {
            for number in [first, content, late_first.0] {
                record.extend_from_slice(&number.to_le_bytes());
            }
            record.extend_from_slice(&late.to_le_bytes());
        }
        if let DedupeOutcome::CompletedExternally { content, .. } = self.outcome {
            record.extend_from_slice(&content.to_le_bytes());
        }
        if let Some(times) = self.times.filter(|_| is_delivery(kind)) {
            delivery_times::put(&mut record, self.time, &[(times, 1)]);
        }
        RecordKey::Delivery(hash).seal(record)
    }

    pub(crate) fn unseal(hash: DeliveryHash, stored: &[u8]) -> Result<Self, StoreCause> {
        let place = RecordKey::Delivery(hash);
        let record = place.unseal(stored)?;
        let time = |at| Timestamp(u64_at(record, at).cast_signed());
        let keep_until = |at| Some(time(at)).filter(|until| until.0 < FOR_EVER);
        let (time, times, keep_until) = match record.len() {
            // In the form of version 1.
            5 => (Timestamp(0), None, None),
            UNTIMED_LEN => (time(5), None, keep_until(13)),
            UNTIMED_LEN.. if is_delivery(record[0]) => {
                let times = delivery_times::take(Bytes(&record[UNTIMED_LEN..]), time(5));
                let damaged = |what: &str| {
                    StoreCause::Damaged(format!("the times of the delivery {hash} cannot be read: {what}"))
                };
                match times.map_err(damaged)?[..] {
                    [(times, 1)] => (time(5), Some(times), keep_until(13)),
                    _ => return Err(damaged("they are not those of one delivery")),
                }
            }
            37 if record[0] == 3 => {
                let (first, jobs, content) = (u64_at(record, 21), u32_at(record, 1), u64_at(record, 29));
                let outcome = DedupeOutcome::Ingested { first, jobs, content };
                return Ok(Self { outcome, time: time(5), times: None, keep_until: keep_until(13) });
            }
            49 if record[0] == 5 => {
                let (first, jobs, content) = (u64_at(record, 21), u32_at(record, 1), u64_at(record, 29));
                let (late_first, late) = (ParkedId(u64_at(record, 37)), u32_at(record, 45));
                let outcome = DedupeOutcome::IngestedLate { first, jobs, content, late_first, late };
                return Ok(Self { outcome, time: time(5), times: None, keep_until: keep_until(13) });
            }
            29 if record[0] == 4 => {
                let Some(status) = completion::status(record[1]) else {
                    let what = format!("the record {place:?} has a status that is unknown");
                    return Err(StoreCause::Damaged(what));
                };
                let outcome = DedupeOutcome::CompletedExternally { status, content: u64_at(record, 21) };
                return Ok(Self { outcome, time: time(5), times: None, keep_until: keep_until(13) });
            }
            _ => return Err(StoreCause::Damaged(format!("the record {place:?} has the wrong length"))),
        };
        let outcome = match record[0] {
            0 => DedupeOutcome::Output { jobs: u32_at(record, 1) },
            1 => DedupeOutcome::Error,
            2 => DedupeOutcome::Nothing,
            kind => {
                let what = format!("the delivery {hash} has an outcome of the unknown kind {kind}");
                return Err(StoreCause::Damaged(what));
            }
        };
        Ok(Self { outcome, time, times, keep_until })
    }
}

/// Whether a record of this kind is that of a delivery, which may have times.
fn is_delivery(kind: u8) -> bool {
    kind <= 2
}

/// Deliveries with the same expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expiring {
    Hashes(Vec<DeliveryHash>),
    Spans(Vec<DeliveredSpan>),
}

pub(crate) fn unseal_expiry(
    (until, commit, part): (u64, u64, u32),
    stored: &[u8],
) -> Result<Expiring, StoreCause> {
    let record = RecordKey::Expiry(until, commit, part).unseal(stored)?;
    let damaged = || {
        let until = from_ordered(until).0;
        StoreCause::Damaged(format!("the deliveries to be forgotten at {until} cannot be read"))
    };
    if part >= SPANS {
        return read_spans(Bytes(record)).map(Expiring::Spans).ok_or_else(damaged);
    }
    let (hashes, rest) = record.as_chunks();
    if !rest.is_empty() {
        return Err(damaged());
    }
    Ok(Expiring::Hashes(hashes.iter().map(|&hash| DeliveryHash(u128::from_le_bytes(hash))).collect()))
}

fn read_spans(mut bytes: Bytes<'_>) -> Option<Vec<DeliveredSpan>> {
    let mut spans = Vec::new();
    while !bytes.0.is_empty() {
        let series = u32::try_from(bytes.varint().ok()?).ok()?;
        let first = bytes.varint().ok()?;
        let last = first.checked_add(bytes.varint().ok()?.checked_sub(1)?)?;
        spans.push(DeliveredSpan { series, first, last });
    }
    Some(spans)
}
