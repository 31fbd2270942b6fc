//! `CompletionRecord`: the outcome of a pending job, as an external system has sent it.
//!
//! ```text
//! completion    status u8, its place in [`ExternalStatus::ALL`] | flags u8 | (where flag 1 is set) result, as text
//!               | (where flag 2 is set) reason, as text
//! ```

use serde::{Deserialize, Serialize};

use crate::codec::bytes::{Bytes, Wrong, put_bytes};
use tidegate_model::{ExternalStatus, content_hash};

/// The state of the job in the external system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionRecord {
    pub status: ExternalStatus,
    /// The result, as JSON text; `None`: the job itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

const FLAG_RESULT: u8 = 1;
const FLAG_REASON: u8 = 2;

impl CompletionRecord {
    /// A hash that identifies a repeated completion.
    #[must_use]
    pub fn content(&self) -> u64 {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        content_hash(&bytes)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(code(self.status));
        let flag = |text: &Option<String>, flag| if text.is_some() { flag } else { 0 };
        out.push(flag(&self.result, FLAG_RESULT) | flag(&self.reason, FLAG_REASON));
        for text in self.result.iter().chain(&self.reason) {
            put_bytes(out, text.as_bytes());
        }
    }

    pub(crate) fn take(rest: &mut Bytes<'_>) -> Result<Self, Wrong> {
        let status = status(rest.u8()?).ok_or("its external status is unknown")?;
        let flags = rest.u8()?;
        let mut text = |flag| (flags & flag != 0).then(|| rest.text().map(str::to_owned)).transpose();
        let (result, reason) = (text(FLAG_RESULT)?, text(FLAG_REASON)?);
        Ok(Self { status, result, reason })
    }
}

/// The number under which a status is stored.
pub(crate) fn code(status: ExternalStatus) -> u8 {
    ExternalStatus::ALL.iter().zip(0..).find(|(one, _)| **one == status).map_or(u8::MAX, |(_, code)| code)
}

pub(crate) fn status(code: u8) -> Option<ExternalStatus> {
    ExternalStatus::ALL.get(usize::from(code)).copied()
}
