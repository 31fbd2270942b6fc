//! Record of a parked job in versions 2 to 5 of the format, and in exports: decodes it for the migration.
//!
//! ```text
//! job    flags u8 | attempt varint | inputs varint | of each input: name, as text, and index varint
//!        | (where flag 4 is set) time of the first attempt i64
//!        | (where flag 8 is set) last error, as text
//!        | (where flag 16 is set) error queue, as text, and index varint
//!        | (where flag 32 is set) its provenance, as text
//!        | (where flag 64 is set) output, as text
//!        | (where flag 128 is set) reason u8: 1 started | 2 pending, then since when i64, handle as text
//!        | 3 completed, then as 2, and the completion, see [`crate::api::completion`]
//!        | payload
//! ```
//!
//! The due time was a part of the key: [`NOW`] and [`NEVER`] are times with a meaning of their own, and the
//! due time of a started attempt is its start.

use serde::{Deserialize, Serialize};

use crate::api::completion::CompletionRecord;
use crate::api::finished_result::FinishedResult;
use crate::api::parked_job::{ParkReason, ParkedJob};
use crate::codec::bytes::{Bytes, Wrong};
use crate::codec::parked_record::{
    FLAG_CARRIED, FLAG_FIRST_ATTEMPT, FLAG_FROM_ERROR, FLAG_LAST_ERROR, error, form, time,
};
use tidegate_model::{Due, Timestamp};

const FLAG_TO: u8 = 64;
const FLAG_REASON: u8 = 128;

/// The due time of a job that is due at once, even if the clock is set back.
const NOW: Timestamp = Timestamp(0);
/// The due time of a job that waits for an external system.
const NEVER: Timestamp = Timestamp(i64::MAX);

/// The reason for which a job waits, apart from its output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OldReason {
    #[default]
    Delayed,
    Started,
    Pending {
        handle: String,
        since: Timestamp,
    },
    #[serde(rename = "told")]
    Completed {
        handle: String,
        since: Timestamp,
        completion: CompletionRecord,
    },
    Finished {
        result: FinishedResult,
    },
}

impl OldReason {
    /// The reason, the output and the due time, as older versions have them.
    pub(crate) fn from_new(reason: ParkReason, due: Due) -> (Self, Option<String>, Timestamp) {
        let due = match due {
            Due::Now | Due::Hastened(_) => NOW,
            Due::At(time) => time,
            Due::Never => NEVER,
        };
        match reason {
            ParkReason::Delayed => (Self::Delayed, None, due),
            ParkReason::Output { to } => (Self::Delayed, Some(to), due),
            ParkReason::Started { since } => (Self::Started, None, since),
            ParkReason::Pending { handle, since } => (Self::Pending { handle, since }, None, due),
            ParkReason::Completed { handle, since, completion } => {
                (Self::Completed { handle, since, completion }, None, due)
            }
            ParkReason::Finished { result } => (Self::Finished { result }, None, due),
        }
    }

    /// The inverse of [`Self::from_new`]. `to`: the output; an output that was being delivered is delivered
    /// again.
    pub(crate) fn into_new(self, to: Option<String>, due: Timestamp) -> (ParkReason, Due) {
        let reason = match (self, to) {
            (Self::Started, None) => return (ParkReason::Started { since: due }, Due::Now),
            (Self::Delayed | Self::Started, Some(to)) => ParkReason::Output { to },
            (Self::Delayed, None) => ParkReason::Delayed,
            (Self::Pending { handle, since }, _) => ParkReason::Pending { handle, since },
            (Self::Completed { handle, since, completion }, _) => {
                ParkReason::Completed { handle, since, completion }
            }
            (Self::Finished { result }, _) => ParkReason::Finished { result },
        };
        let due = match due {
            NOW => Due::Now,
            NEVER => Due::Never,
            time => Due::At(time),
        };
        (reason, due)
    }
}

/// The job of a record whose key has this due time.
pub(crate) fn decode(record: &[u8], due: Timestamp) -> Result<ParkedJob, Wrong> {
    let mut rest = Bytes(record);
    let flags = rest.u8()?;
    let has = |flag| flags & flag != 0;
    let attempt = u32::try_from(rest.varint()?).map_err(|_| "it has too many attempts")?;
    let mut inputs = Vec::new();
    for _ in 0..rest.varint()? {
        inputs.push((rest.text()?.to_owned(), rest.varint()?));
    }
    let first_attempt = has(FLAG_FIRST_ATTEMPT).then(|| time(&mut rest)).transpose()?;
    let last_error = has(FLAG_LAST_ERROR).then(|| rest.text()).transpose()?.map(str::to_owned);
    let from_error = has(FLAG_FROM_ERROR).then(|| error(&mut rest)).transpose()?;
    let carried = has(FLAG_CARRIED).then(|| rest.text()).transpose()?.map(str::to_owned);
    let to = has(FLAG_TO).then(|| rest.text()).transpose()?.map(str::to_owned);
    let reason = if has(FLAG_REASON) { reason(&mut rest)? } else { OldReason::Delayed };
    let (reason, due) = reason.into_new(to, due);
    let (form, payload) = (form(flags)?, rest.0.to_vec());
    Ok(ParkedJob {
        due,
        inputs,
        attempt,
        first_attempt,
        created: None,
        last_submitted: None,
        last_error,
        from_error,
        reason,
        form,
        payload,
        carried,
    })
}

fn reason(rest: &mut Bytes<'_>) -> Result<OldReason, Wrong> {
    match rest.u8()? {
        1 => Ok(OldReason::Started),
        2 => {
            let since = time(rest)?;
            Ok(OldReason::Pending { handle: rest.text()?.to_owned(), since })
        }
        3 => {
            let since = time(rest)?;
            let handle = rest.text()?.to_owned();
            Ok(OldReason::Completed { handle, since, completion: CompletionRecord::take(rest)? })
        }
        _ => Err("the reason for its wait is unknown"),
    }
}
