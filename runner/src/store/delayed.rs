//! Delayed jobs: those that wait for a time, in order of that time.
//!
//! ```text
//! job    flags u8 | attempt varint | inputs varint | of each input: name, as text, and index varint
//!        | (where flag 4 is set) time of the first attempt i64
//!        | (where flag 8 is set) last error, as text
//!        | (where flag 16 is set) error queue, as text, and index varint
//!        | (where flag 32 is set) what it carries, as text
//!        | (where flag 64 is set) output, as text
//!        | (where flag 128 is set) standing u8: 1 started | 2 pending, then since when i64, handle as text
//!        | 3 told, then as 2, and what, see [`super::completion`]
//!        | payload
//! ```
//!
//! The lowest two bits of the flags are the form: 0 JSON, 1 text, 2 bytes. A text is its length as
//! varint and its bytes.

use std::collections::BTreeMap;
use std::ops::Bound;

use redb::{ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::bytes::{Bytes, Wrong, put_bytes, put_varint};
use super::completion::Completion;
use super::error::{Cause, ReadError};
use super::format::{self, DELAYED, DELAYED_COUNTS, META, NAMES, Place, from_ordered, ordered};
use super::read::Store;
use crate::words::{Address, Timestamp};

/// A job that shall wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    /// The step that will run it.
    pub step: Address,
    pub due: Timestamp,
    pub job: DelayedJob,
}

/// What is kept of a job while it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayedJob {
    /// The inputs that it was made of, as they enter the delivery hash, and their indices.
    pub inputs: Vec<(String, u64)>,
    /// The number of the last attempt; 0 where there was none.
    pub attempt: u32,
    pub first_attempt: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The error queue that it was put back from, and its index there.
    pub from_error: Option<(Address, u64)>,
    /// The output of the step that it is for: made already, and only due later. `None`: the step runs it.
    pub to: Option<String>,
    pub standing: Standing,
    pub form: JobForm,
    pub payload: Vec<u8>,
    /// The provenance that it carries along, as JSON text.
    pub carried: Option<String>,
}

/// What a job that is not through waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The time when it is due.
    #[default]
    Delayed,
    /// An attempt was begun, and nothing is known of its end.
    Started,
    /// An outside system finishes it, which knows it by the handle.
    Pending { handle: String, since: Timestamp },
    /// The same, and it has said how the job stands: it is in order and goes on to wait, or that is not
    /// delivered yet.
    Told { handle: String, since: Timestamp, completion: Completion },
}

/// What a payload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobForm {
    #[default]
    Json,
    Text,
    Bytes,
}

/// What a delayed job is called. In order of due time, for one step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayedKey {
    pub step: Address,
    pub due: Timestamp,
    /// Given by the store, and never twice.
    pub sequence: u64,
}

impl DelayedJob {
    /// Whether it waits for its turn at its step, and for no time any more. `due`: when it is due.
    #[must_use]
    pub fn waits_for_turn(&self, due: Timestamp, now: Timestamp) -> bool {
        self.standing == Standing::Delayed && self.to.is_none() && due <= now
    }
}

const FLAG_FIRST_ATTEMPT: u8 = 4;
const FLAG_LAST_ERROR: u8 = 8;
const FLAG_FROM_ERROR: u8 = 16;
const FLAG_CARRIED: u8 = 32;
const FLAG_TO: u8 = 64;
const FLAG_STANDING: u8 = 128;

const STARTED: u8 = 1;
const PENDING: u8 = 2;
const TOLD: u8 = 3;

/// When those are due that no time makes due.
pub const NEVER: Timestamp = Timestamp(i64::MAX);

/// Where the last sequence stands in `meta`.
const SEQUENCE_KEY: &str = "delayed";

impl Store {
    /// The jobs of `step` that are due at `now`, in order of due time, and behind `after`: at most
    /// `jobs` of them, of together at most `bytes` bytes with what they carry, but at least one.
    pub fn due(
        &self,
        step: &Address,
        now: Timestamp,
        after: Option<&DelayedKey>,
        jobs: usize,
        bytes: usize,
    ) -> Result<Vec<(DelayedKey, DelayedJob)>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(Vec::new()) };
            let start = match after {
                Some(after) => Bound::Excluded((id, ordered(after.due), after.sequence)),
                None => Bound::Included((id, 0, 0)),
            };
            let end = (id, ordered(now), u64::MAX);
            // Where `after` is not due yet, nothing can be behind it.
            if matches!(start, Bound::Excluded(start) if start >= end) {
                return Ok(Vec::new());
            }
            let (mut found, mut found_bytes) = (Vec::new(), 0);
            for entry in txn.open_table(DELAYED)?.range((start, Bound::Included(end)))? {
                let (key, stored) = entry?;
                let (_, due, sequence) = key.value();
                let job = unseal(key.value(), stored.value())?;
                found_bytes += job.payload.len() + job.carried.as_ref().map_or(0, String::len);
                if !found.is_empty() && (found.len() >= jobs || found_bytes > bytes) {
                    break;
                }
                found.push((DelayedKey { step: step.clone(), due: from_ordered(due), sequence }, job));
            }
            Ok(found)
        })
    }

    /// The delayed jobs with these keys; `None` for those that are not there.
    pub fn delayed(&self, keys: &[DelayedKey]) -> Result<Vec<Option<DelayedJob>>, ReadError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.view(|txn| {
            let (names, table) = (txn.open_table(NAMES)?, txn.open_table(DELAYED)?);
            let find = |key: &DelayedKey| {
                let Some(id) = format::find_id(&names, &key.step)? else { return Ok(None) };
                let key = (id, ordered(key.due), key.sequence);
                table.get(key)?.map(|stored| unseal(key, stored.value())).transpose()
            };
            keys.iter().map(find).collect()
        })
    }

    /// The last number that a delayed job was given; 0 where none ever was.
    pub fn delayed_sequence(&self) -> Result<u64, ReadError> {
        self.view(|txn| last_sequence(&txn.open_table(META)?))
    }

    /// When the first delayed job of `step` is due, or the first one that is due later than `after`.
    /// What is due at no time is not.
    pub fn next_due(&self, step: &Address, after: Option<Timestamp>) -> Result<Option<Timestamp>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(None) };
            let start = match after {
                Some(after) => Bound::Excluded((id, ordered(after), u64::MAX)),
                None => Bound::Included((id, 0, 0)),
            };
            let end = Bound::Excluded((id, ordered(NEVER), 0));
            if matches!((start, end), (Bound::Excluded(start), Bound::Excluded(end)) if start >= end) {
                return Ok(None);
            }
            let first = txn.open_table(DELAYED)?.range((start, end))?.next().transpose()?;
            Ok(first.map(|(key, _)| from_ordered(key.value().1)))
        })
    }

    /// How many delayed jobs `step` has. Takes no longer where they are many.
    pub fn delayed_count(&self, step: &Address) -> Result<u64, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(0) };
            count(&txn.open_table(DELAYED_COUNTS)?, id)
        })
    }
}

/// First those go that need not wait any more, then the new ones come. Answers with their keys.
pub(super) fn write(
    txn: &WriteTransaction,
    undelayed: &[DelayedKey],
    delayed: &[Delayed],
) -> Result<Vec<DelayedKey>, Cause> {
    if undelayed.is_empty() && delayed.is_empty() {
        return Ok(Vec::new());
    }
    let mut ids = Ids::default();
    let mut table = txn.open_table(DELAYED)?;
    let mut grown: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for key in undelayed {
        let id = ids.get(txn, &key.step)?;
        if table.remove((id, ordered(key.due), key.sequence))?.is_some() {
            grown.entry(id).or_default().1 += 1;
        }
    }
    let mut keys = Vec::with_capacity(delayed.len());
    let mut records = Vec::with_capacity(delayed.len());
    let mut sequence = last_sequence(&txn.open_table(META)?)?;
    for Delayed { step, due, job } in delayed {
        let id = ids.get(txn, step)?;
        sequence += 1;
        records.push(((id, ordered(*due), sequence), job));
        grown.entry(id).or_default().0 += 1;
        keys.push(DelayedKey { step: step.clone(), due: *due, sequence });
    }
    // Neighbours in the table are written together.
    records.sort_unstable_by_key(|&(key, _)| key);
    for (key, job) in records {
        table.insert(key, &*seal(key, job))?;
    }
    write_last_sequence(txn, sequence)?;
    let mut counts = txn.open_table(DELAYED_COUNTS)?;
    for (id, (more, less)) in grown {
        let left = (count(&counts, id)? + more).saturating_sub(less);
        counts.insert(id, &*seal_count(id, left))?;
    }
    Ok(keys)
}

/// Numbers of names, each looked up once.
#[derive(Default)]
struct Ids<'a>(BTreeMap<&'a Address, u32>);

impl<'a> Ids<'a> {
    fn get(&mut self, txn: &WriteTransaction, address: &'a Address) -> Result<u32, Cause> {
        if let Some(&id) = self.0.get(address) {
            return Ok(id);
        }
        let id = format::intern(txn, address)?;
        self.0.insert(address, id);
        Ok(id)
    }
}

/// How many delayed jobs the step with this number has.
pub(super) fn count(counts: &impl ReadableTable<u32, format::Bytes>, step: u32) -> Result<u64, Cause> {
    let stored = counts.get(step)?;
    let unseal = |stored: redb::AccessGuard<'_, format::Bytes>| {
        Place::DelayedCount(step).unseal_exact(stored.value()).map(u64::from_le_bytes)
    };
    stored.map_or(Ok(0), unseal)
}

pub(super) fn seal_count(step: u32, count: u64) -> Vec<u8> {
    Place::DelayedCount(step).seal(count.to_le_bytes().to_vec())
}

/// The last sequence that a job was given; 0 where none ever was.
pub(super) fn last_sequence(meta: &impl ReadableTable<&'static str, format::Bytes>) -> Result<u64, Cause> {
    let Some(stored) = meta.get(SEQUENCE_KEY)? else { return Ok(0) };
    Place::Meta(SEQUENCE_KEY).unseal_exact(stored.value()).map(u64::from_le_bytes)
}

pub(super) fn write_last_sequence(txn: &WriteTransaction, sequence: u64) -> Result<(), Cause> {
    let record = Place::Meta(SEQUENCE_KEY).seal(sequence.to_le_bytes().to_vec());
    txn.open_table(META)?.insert(SEQUENCE_KEY, &*record)?;
    Ok(())
}

pub(super) fn seal((step, due, sequence): (u32, u64, u64), job: &DelayedJob) -> Vec<u8> {
    let mut out = vec![match job.form {
        JobForm::Json => 0,
        JobForm::Text => 1,
        JobForm::Bytes => 2,
    }];
    put_varint(&mut out, job.attempt.into());
    put_varint(&mut out, job.inputs.len() as u64);
    for (name, index) in &job.inputs {
        put_bytes(&mut out, name.as_bytes());
        put_varint(&mut out, *index);
    }
    if let Some(first) = job.first_attempt {
        out[0] |= FLAG_FIRST_ATTEMPT;
        out.extend_from_slice(&first.0.to_le_bytes());
    }
    if let Some(error) = &job.last_error {
        out[0] |= FLAG_LAST_ERROR;
        put_bytes(&mut out, error.as_bytes());
    }
    if let Some((queue, index)) = &job.from_error {
        out[0] |= FLAG_FROM_ERROR;
        put_bytes(&mut out, queue.to_string().as_bytes());
        put_varint(&mut out, *index);
    }
    if let Some(carried) = &job.carried {
        out[0] |= FLAG_CARRIED;
        put_bytes(&mut out, carried.as_bytes());
    }
    if let Some(to) = &job.to {
        out[0] |= FLAG_TO;
        put_bytes(&mut out, to.as_bytes());
    }
    match &job.standing {
        Standing::Delayed => {}
        Standing::Started => {
            out[0] |= FLAG_STANDING;
            out.push(STARTED);
        }
        Standing::Pending { handle, since } => {
            out[0] |= FLAG_STANDING;
            out.push(PENDING);
            out.extend_from_slice(&since.0.to_le_bytes());
            put_bytes(&mut out, handle.as_bytes());
        }
        Standing::Told { handle, since, completion } => {
            out[0] |= FLAG_STANDING;
            out.push(TOLD);
            out.extend_from_slice(&since.0.to_le_bytes());
            put_bytes(&mut out, handle.as_bytes());
            completion.put(&mut out);
        }
    }
    out.extend_from_slice(&job.payload);
    Place::Delayed(step, due, sequence).seal(out)
}

pub(super) fn unseal((step, due, sequence): (u32, u64, u64), stored: &[u8]) -> Result<DelayedJob, Cause> {
    let record = Place::Delayed(step, due, sequence).unseal(stored)?;
    parse(record).map_err(|what| Cause::Damaged(format!("the delayed job {sequence} cannot be read: {what}")))
}

fn parse(record: &[u8]) -> Result<DelayedJob, Wrong> {
    let mut rest = Bytes(record);
    let flags = rest.u8()?;
    let has = |flag| flags & flag != 0;
    let form = match flags & 3 {
        0 => JobForm::Json,
        1 => JobForm::Text,
        2 => JobForm::Bytes,
        _ => return Err("its form is unknown"),
    };
    let attempt = u32::try_from(rest.varint()?).map_err(|_| "it has too many attempts")?;
    let mut inputs = Vec::new();
    for _ in 0..rest.varint()? {
        inputs.push((rest.text()?.to_owned(), rest.varint()?));
    }
    let first_attempt =
        has(FLAG_FIRST_ATTEMPT).then(|| rest.u64()).transpose()?.map(|time| Timestamp(time.cast_signed()));
    let last_error = has(FLAG_LAST_ERROR).then(|| rest.text()).transpose()?.map(str::to_owned);
    let from_error = if has(FLAG_FROM_ERROR) {
        let queue = Address::parse(rest.text()?).ok_or("the error queue in it has no name")?;
        Some((queue, rest.varint()?))
    } else {
        None
    };
    let carried = has(FLAG_CARRIED).then(|| rest.text()).transpose()?.map(str::to_owned);
    let to = has(FLAG_TO).then(|| rest.text()).transpose()?.map(str::to_owned);
    let standing = if has(FLAG_STANDING) { standing(&mut rest)? } else { Standing::Delayed };
    let payload = rest.0.to_vec();
    Ok(DelayedJob {
        inputs,
        attempt,
        first_attempt,
        last_error,
        from_error,
        to,
        standing,
        form,
        payload,
        carried,
    })
}

fn standing(rest: &mut Bytes<'_>) -> Result<Standing, Wrong> {
    match rest.u8()? {
        STARTED => Ok(Standing::Started),
        PENDING => {
            let since = Timestamp(rest.u64()?.cast_signed());
            Ok(Standing::Pending { handle: rest.text()?.to_owned(), since })
        }
        TOLD => {
            let since = Timestamp(rest.u64()?.cast_signed());
            let handle = rest.text()?.to_owned();
            Ok(Standing::Told { handle, since, completion: Completion::take(rest)? })
        }
        _ => Err("what it waits for is unknown"),
    }
}
