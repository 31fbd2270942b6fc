//! Record of a parked job: encodes and decodes its bytes.
//!
//! ```text
//! job    flags u8 | attempt varint | inputs varint | of each input: name, as text, and index varint
//!        | (where flag 4 is set) time of the first attempt i64
//!        | (where flag 8 is set) last error, as text
//!        | (where flag 16 is set) error queue, as text, and index varint
//!        | (where flag 32 is set) what it carries, as text
//!        | (where flag 64 is set) output, as text
//!        | (where flag 128 is set) reason u8: 1 started | 2 pending, then since when i64, handle as text
//!        | 3 completed, then as 2, and the completion, see [`crate::database::parked::completion`]
//!        | payload
//! ```
//!
//! The lowest two bits of the flags are the form: 0 JSON, 1 text, 2 bytes. A text is its length as varint and
//! its bytes.

use crate::api::completion::CompletionRecord;
use crate::api::parked_job::{JobForm, ParkReason, ParkedJob};
use crate::codec::bytes::{Bytes, Wrong, put_bytes, put_varint};
use crate::database::format::RecordKey;
use crate::error::StoreCause;
use tidegate_model::{Address, Timestamp};

const FLAG_FIRST_ATTEMPT: u8 = 4;
const FLAG_LAST_ERROR: u8 = 8;
const FLAG_FROM_ERROR: u8 = 16;
const FLAG_CARRIED: u8 = 32;
const FLAG_TO: u8 = 64;
const FLAG_STANDING: u8 = 128;

const STARTED: u8 = 1;
const PENDING: u8 = 2;
const TOLD: u8 = 3;

pub(crate) fn seal((step, due, sequence): (u32, u64, u64), job: &ParkedJob) -> Vec<u8> {
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
    match &job.reason {
        ParkReason::Due => {}
        ParkReason::Started => {
            out[0] |= FLAG_STANDING;
            out.push(STARTED);
        }
        ParkReason::Pending { handle, since } => {
            out[0] |= FLAG_STANDING;
            out.push(PENDING);
            out.extend_from_slice(&since.0.to_le_bytes());
            put_bytes(&mut out, handle.as_bytes());
        }
        ParkReason::Completed { handle, since, completion } => {
            out[0] |= FLAG_STANDING;
            out.push(TOLD);
            out.extend_from_slice(&since.0.to_le_bytes());
            put_bytes(&mut out, handle.as_bytes());
            completion.put(&mut out);
        }
    }
    out.extend_from_slice(&job.payload);
    RecordKey::Delayed(step, due, sequence).seal(out)
}

pub(crate) fn unseal(key: (u32, u64, u64), stored: &[u8]) -> Result<ParkedJob, StoreCause> {
    parse(record(key, stored)?)
        .map_err(|what| StoreCause::Damaged(format!("the delayed job {} cannot be read: {what}", key.2)))
}

pub(crate) fn record((step, due, sequence): (u32, u64, u64), stored: &[u8]) -> Result<&[u8], StoreCause> {
    RecordKey::Delayed(step, due, sequence).unseal(stored)
}

/// Whether one of the inputs is this one. An unreadable record is treated as no match.
pub(crate) fn is_of(record: &[u8], input: &str, index: u64) -> bool {
    let mut rest = Bytes(record);
    let mut look = || {
        rest.u8()?;
        rest.varint()?;
        for _ in 0..rest.varint()? {
            if (rest.text()?, rest.varint()?) == (input, index) {
                return Ok(true);
            }
        }
        Ok::<bool, Wrong>(false)
    };
    look().unwrap_or(false)
}

fn parse(record: &[u8]) -> Result<ParkedJob, Wrong> {
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
    let standing = if has(FLAG_STANDING) { standing(&mut rest)? } else { ParkReason::Due };
    let payload = rest.0.to_vec();
    Ok(ParkedJob {
        inputs,
        attempt,
        first_attempt,
        last_error,
        from_error,
        to,
        reason: standing,
        form,
        payload,
        carried,
    })
}

fn standing(rest: &mut Bytes<'_>) -> Result<ParkReason, Wrong> {
    match rest.u8()? {
        STARTED => Ok(ParkReason::Started),
        PENDING => {
            let since = Timestamp(rest.u64()?.cast_signed());
            Ok(ParkReason::Pending { handle: rest.text()?.to_owned(), since })
        }
        TOLD => {
            let since = Timestamp(rest.u64()?.cast_signed());
            let handle = rest.text()?.to_owned();
            Ok(ParkReason::Completed { handle, since, completion: CompletionRecord::take(rest)? })
        }
        _ => Err("the reason for its wait is unknown"),
    }
}
