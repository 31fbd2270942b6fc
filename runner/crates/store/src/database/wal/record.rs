//! Record of a commit in the write-ahead log: encodes and decodes [`Changes`].
//!
//! ```text
//! changes  time of the commit i64 | names varint, each as text `pipeline/name`
//!          | the lists of [`Changes`], each with its length as varint
//! ```
//!
//! An address is the position of its name, as varint, from 0. A time is the zigzag varint of the milliseconds since the
//! time of the commit. A text is its length as varint and its bytes. An option is u8 0, or u8 1 and the value. The jobs
//! of an append are the sections of [`crate::codec::block`]. Parked jobs are the records of
//! [`crate::codec::parked_record`], with their length.
//!
//! Changes that are rare are not encoded. Their commit is a checkpoint.

mod decoder;
mod encoder;
pub(crate) mod packed;

use self::decoder::Decoder;
use self::encoder::Encoder;
use crate::codec::bytes::Wrong;
use crate::database::changes::Changes;

/// Maximum bytes of a record.
pub(crate) const RECORD_BYTES_MAX: usize = 256 << 10;

/// Maximum bytes of appended jobs in a record. More of them cost less in the store alone than in both files. Rows cost less
/// in both: a later commit before the checkpoint may remove them again.
pub(crate) const APPENDED_BYTES_MAX: usize = 64 << 10;

/// Estimated bytes of a parked job besides its payload, and of a key.
const ENTRY_BYTES: usize = 16;

/// Estimated bytes of the delivery of a job.
const DELIVERED_BYTES: usize = 6;

/// The record of a commit; `None` if it must be a checkpoint, since it is too large or has changes that are rare.
pub(crate) fn encode(changes: &Changes) -> Option<Vec<u8>> {
    let appended: usize = changes.appends.iter().map(|append| append.block.stored_len()).sum();
    if !is_ordinary(changes)
        || appended > APPENDED_BYTES_MAX
        || appended + estimate_rows(changes) > RECORD_BYTES_MAX
    {
        return None;
    }
    let mut encoder = Encoder::new(changes.now);
    encoder.changes(changes);
    let record = encoder.finish();
    (record.len() <= RECORD_BYTES_MAX).then_some(record)
}

/// Whether the record of a commit has all of its changes. Each field is named, so that a new one cannot be forgotten.
fn is_ordinary(changes: &Changes) -> bool {
    let Changes {
        now: _,
        appends: _,
        progress: _,
        handled_errors: _,
        sinks: _,
        marks: _,
        segments: _,
        delivered: _,
        dedupe_records: _,
        ingested: _,
        done_snapshots: _,
        snapshots: _,
        unparked: _,
        reparked: _,
        parked: _,
        late: _,
        bindings: _,
        schedule_positions: _,
        cursors: _,
        trims: _,
        pauses,
        monitor_pauses,
        lanes,
        begins_run,
        stops,
        token_key,
        generation,
        history,
        renamed,
        dropped_steps,
        heads,
    } = changes;
    pauses.is_empty()
        && monitor_pauses.is_empty()
        && lanes.is_empty()
        && !begins_run
        && stops.is_empty()
        && token_key.is_none()
        && generation.is_none()
        && history.is_empty()
        && renamed.parts.is_empty()
        && dropped_steps.is_empty()
        && heads.is_empty()
}

/// Estimated bytes of the record besides appended jobs, so that a large one is not encoded in vain.
fn estimate_rows(changes: &Changes) -> usize {
    let parked = changes.parked.iter().map(|new| &new.job);
    let parked: usize = parked
        .chain(changes.reparked.iter().map(|(_, job)| job))
        .map(|job| job.payload.len() + ENTRY_BYTES)
        .sum();
    let late = changes.late.new.iter().map(|new| &new.job);
    let late: usize =
        late.chain(changes.late.moved.iter().map(|(_, job)| job)).map(|job| job.payload.len()).sum();
    let delivered: usize = changes.delivered.iter().map(|delivered| delivered.jobs.len()).sum();
    let keys = changes.dedupe_records.len() + changes.ingested.len();
    parked + late + DELIVERED_BYTES * delivered + ENTRY_BYTES * keys
}

/// The inverse of [`encode`].
pub(crate) fn decode(record: &[u8]) -> Result<Changes, Wrong> {
    let mut decoder = Decoder::new(record)?;
    let changes = decoder.changes()?;
    if decoder.is_at_end() { Ok(changes) } else { Err("it is longer than its content") }
}

#[cfg(test)]
mod tests;
