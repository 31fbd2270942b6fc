//! Record of a parked job: encodes and decodes its bytes.
//!
//! ```text
//! job    kind u8: reason, and due time times 8 | flags u8 | inputs varint | of each input: name, as text, and
//!        index varint | (due times 1 and 2) time i64 | attempt varint
//!        | (where flag 4 is set) time of the first attempt i64
//!        | (where flag 64 is set) time of creation i64 | (where flag 128 is set) time of the last submission i64
//!        | (where flag 8 is set) last error, as text
//!        | (where flag 16 is set) error queue, as text, and index varint
//!        | (where flag 32 is set) its provenance, as text
//!        | by reason: 0 delayed; 1 output, then its name as text; 2 started, then since when i64
//!        | 3 pending, then since when i64, handle as text; 4 completed, then as 3, and the completion, see
//!        | [`crate::api::completion`]; 5 finished, then the result, see [`crate::api::finished_result`]
//!        | payload
//! ```
//!
//! The due times are: 0 now, 1 hastened, 2 at a time, 3 never. The lowest two bits of the flags are the form:
//! 0 JSON, 1 text, 2 bytes. A text is its length as varint and its bytes.

use twox_hash::XxHash3_64;

use crate::api::completion::CompletionRecord;
use crate::api::finished_result::FinishedResult;
use crate::api::parked_job::{JobForm, ParkReason, ParkedJob};
use crate::codec::bytes::{Bytes, Wrong, put_bytes, put_varint};
use tidegate_model::{Address, Due, Timestamp};

/// The bits of the index in [`origin`].
const ORIGIN_INDEX_BITS: u32 = 40;

pub(crate) const FLAG_FIRST_ATTEMPT: u8 = 4;
pub(crate) const FLAG_LAST_ERROR: u8 = 8;
pub(crate) const FLAG_FROM_ERROR: u8 = 16;
pub(crate) const FLAG_CARRIED: u8 = 32;
const FLAG_CREATED: u8 = 64;
const FLAG_SUBMITTED: u8 = 128;

/// The reason of a parked job without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasonKind {
    Delayed,
    Output,
    Started,
    Pending,
    Completed,
    Finished,
}

/// The part of a record that its places in other tables depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParkedHeader {
    pub(crate) kind: ReasonKind,
    pub(crate) due: Due,
    /// See [`origin`]; one for each input.
    pub(crate) origins: Vec<u64>,
}

impl ReasonKind {
    const ALL: [Self; 6] =
        [Self::Delayed, Self::Output, Self::Started, Self::Pending, Self::Completed, Self::Finished];

    pub(crate) fn of(reason: &ParkReason) -> Self {
        match reason {
            ParkReason::Delayed => Self::Delayed,
            ParkReason::Output { .. } => Self::Output,
            ParkReason::Started { .. } => Self::Started,
            ParkReason::Pending { .. } => Self::Pending,
            ParkReason::Completed { .. } => Self::Completed,
            ParkReason::Finished { .. } => Self::Finished,
        }
    }
}

impl ParkedHeader {
    pub(crate) fn of(job: &ParkedJob) -> Self {
        let origins = job.inputs.iter().map(|(input, index)| origin(input, *index)).collect();
        Self { kind: ReasonKind::of(&job.reason), due: job.due, origins }
    }
}

/// The number by which a parked job is found under one of the jobs that it was made from: 24 bits of the input's hash and
/// 40 bits of the index, so that consecutive jobs are neighbours. Others may have the same number.
pub(crate) fn origin(input: &str, index: u64) -> u64 {
    XxHash3_64::oneshot(input.as_bytes()) << ORIGIN_INDEX_BITS | index & ((1 << ORIGIN_INDEX_BITS) - 1)
}

pub(crate) fn encode(job: &ParkedJob) -> Vec<u8> {
    // Space for the checksum, too.
    let mut out = Vec::with_capacity(64 + job.payload.len());
    let (due, time) = match job.due {
        Due::Now => (0, None),
        Due::Hastened(time) => (1, Some(time)),
        Due::At(time) => (2, Some(time)),
        Due::Never => (3, None),
    };
    let kind = ReasonKind::of(&job.reason);
    let form = match job.form {
        JobForm::Json => 0,
        JobForm::Text => 1,
        JobForm::Bytes => 2,
    };
    out.extend([kind as u8 | due << 3, form]);
    put_varint(&mut out, job.inputs.len() as u64);
    for (name, index) in &job.inputs {
        put_bytes(&mut out, name.as_bytes());
        put_varint(&mut out, *index);
    }
    if let Some(time) = time {
        out.extend_from_slice(&time.0.to_le_bytes());
    }
    put_varint(&mut out, job.attempt.into());
    for (flag, time) in [
        (FLAG_FIRST_ATTEMPT, job.first_attempt),
        (FLAG_CREATED, job.created),
        (FLAG_SUBMITTED, job.last_submitted),
    ] {
        if let Some(time) = time {
            out[1] |= flag;
            out.extend_from_slice(&time.0.to_le_bytes());
        }
    }
    if let Some(error) = &job.last_error {
        out[1] |= FLAG_LAST_ERROR;
        put_bytes(&mut out, error.as_bytes());
    }
    if let Some((queue, index)) = &job.from_error {
        out[1] |= FLAG_FROM_ERROR;
        put_bytes(&mut out, queue.to_string().as_bytes());
        put_varint(&mut out, *index);
    }
    if let Some(carried) = &job.carried {
        out[1] |= FLAG_CARRIED;
        put_bytes(&mut out, carried.as_bytes());
    }
    put_reason(&mut out, &job.reason);
    out.extend_from_slice(&job.payload);
    out
}

fn put_reason(out: &mut Vec<u8>, reason: &ParkReason) {
    match reason {
        ParkReason::Delayed => {}
        ParkReason::Output { to } => put_bytes(out, to.as_bytes()),
        ParkReason::Started { since } => out.extend_from_slice(&since.0.to_le_bytes()),
        ParkReason::Pending { handle, since } => {
            out.extend_from_slice(&since.0.to_le_bytes());
            put_bytes(out, handle.as_bytes());
        }
        ParkReason::Completed { handle, since, completion } => {
            out.extend_from_slice(&since.0.to_le_bytes());
            put_bytes(out, handle.as_bytes());
            completion.put(out);
        }
        ParkReason::Finished { result } => result.put(out),
    }
}

/// The header of a record.
pub(crate) fn header(record: &[u8]) -> Result<ParkedHeader, Wrong> {
    let (mut rest, mut origins) = (Bytes(record), Vec::new());
    let (kind, _, due) = start(&mut rest, |input, index| origins.push(origin(input, index)))?;
    Ok(ParkedHeader { kind, due, origins })
}

/// Indices in `input` of a job that is not finished; none for a delivered output, and for a job that was set aside
/// before.
pub(crate) fn unfinished(record: &[u8], input: &str) -> Result<Option<u64>, Wrong> {
    let mut first = None;
    let (kind, flags, _) = start(&mut Bytes(record), |name, at| {
        if name == input {
            first = first.into_iter().chain([at]).min();
        }
    })?;
    Ok(first.filter(|_| kind != ReasonKind::Output && flags & FLAG_FROM_ERROR == 0))
}

/// Index in `input` of the first job that it was made from; none for an output that is due later.
pub(crate) fn index_in(record: &[u8], input: &str) -> Result<Option<u64>, Wrong> {
    let mut found = None;
    let (kind, _, _) = start(&mut Bytes(record), |name, at| {
        if name == input {
            found = found.or(Some(at));
        }
    })?;
    Ok(found.filter(|_| kind != ReasonKind::Output))
}

/// Whether one of the inputs is this one. An unreadable record is treated as no match.
pub(crate) fn is_of(record: &[u8], input: &str, index: u64) -> bool {
    let mut found = false;
    let read = start(&mut Bytes(record), |name, at| found |= (name, at) == (input, index));
    read.is_ok() && found
}

pub(crate) fn decode(record: &[u8]) -> Result<ParkedJob, Wrong> {
    let (mut rest, mut inputs) = (Bytes(record), Vec::new());
    let (kind, flags, due) = start(&mut rest, |input, index| inputs.push((input.to_owned(), index)))?;
    let has = |flag| flags & flag != 0;
    let attempt = u32::try_from(rest.varint()?).map_err(|_| "it has too many attempts")?;
    let first_attempt = has(FLAG_FIRST_ATTEMPT).then(|| time(&mut rest)).transpose()?;
    let created = has(FLAG_CREATED).then(|| time(&mut rest)).transpose()?;
    let last_submitted = has(FLAG_SUBMITTED).then(|| time(&mut rest)).transpose()?;
    let last_error = has(FLAG_LAST_ERROR).then(|| rest.text()).transpose()?.map(str::to_owned);
    let from_error = has(FLAG_FROM_ERROR).then(|| error(&mut rest)).transpose()?;
    let carried = has(FLAG_CARRIED).then(|| rest.text()).transpose()?.map(str::to_owned);
    let reason = match kind {
        ReasonKind::Delayed => ParkReason::Delayed,
        ReasonKind::Output => ParkReason::Output { to: rest.text()?.to_owned() },
        ReasonKind::Started => ParkReason::Started { since: time(&mut rest)? },
        ReasonKind::Pending => {
            let since = time(&mut rest)?;
            ParkReason::Pending { handle: rest.text()?.to_owned(), since }
        }
        ReasonKind::Completed => {
            let since = time(&mut rest)?;
            let handle = rest.text()?.to_owned();
            ParkReason::Completed { handle, since, completion: CompletionRecord::take(&mut rest)? }
        }
        ReasonKind::Finished => ParkReason::Finished { result: FinishedResult::take(&mut rest)? },
    };
    let (form, payload) = (form(flags)?, rest.0.to_vec());
    Ok(ParkedJob {
        due,
        inputs,
        attempt,
        first_attempt,
        created,
        last_submitted,
        last_error,
        from_error,
        reason,
        form,
        payload,
        carried,
    })
}

/// Reads the reason, the flags and the due time; each input is passed to `input`.
fn start(rest: &mut Bytes<'_>, mut input: impl FnMut(&str, u64)) -> Result<(ReasonKind, u8, Due), Wrong> {
    let (first, flags) = (rest.u8()?, rest.u8()?);
    let kind = ReasonKind::ALL.get(usize::from(first & 7));
    let kind = *kind.ok_or("the reason for its wait is unknown")?;
    for _ in 0..rest.varint()? {
        let name = rest.text()?;
        input(name, rest.varint()?);
    }
    let due = match first >> 3 {
        0 => Due::Now,
        1 => Due::Hastened(time(rest)?),
        2 => Due::At(time(rest)?),
        3 => Due::Never,
        _ => return Err("its due time is unknown"),
    };
    Ok((kind, flags, due))
}

pub(crate) fn form(flags: u8) -> Result<JobForm, Wrong> {
    match flags & 3 {
        0 => Ok(JobForm::Json),
        1 => Ok(JobForm::Text),
        2 => Ok(JobForm::Bytes),
        _ => Err("its form is unknown"),
    }
}

pub(crate) fn time(rest: &mut Bytes<'_>) -> Result<Timestamp, Wrong> {
    Ok(Timestamp(rest.u64()?.cast_signed()))
}

/// The error queue that a job was retried from, and its index there.
pub(crate) fn error(rest: &mut Bytes<'_>) -> Result<(Address, u64), Wrong> {
    let queue = Address::parse(rest.text()?).ok_or("the error queue in it has no name")?;
    Ok((queue, rest.varint()?))
}
