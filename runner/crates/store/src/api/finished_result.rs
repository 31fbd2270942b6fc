//! `FinishedResult`: the result of a job that is finished, until the jobs before it are delivered.
//!
//! ```text
//! result    end u8: 0 delivered; 1 set aside, then the record as bytes; 2 dropped | outputs varint | of each: name, as
//!           text, flag u8, (where it is 1) due time i64, and payload as bytes | events varint | of each: bytes
//! ```

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::bytes::{Bytes, Wrong, put_bytes, put_varint};
use tidegate_model::Timestamp;

/// The result of a job whose attempt must not be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedResult {
    pub end: FinishedEnd,
    pub outputs: Vec<FinishedOutput>,
    /// Events of its attempt, if the step has a queue for them.
    pub events: Vec<Vec<u8>>,
}

/// The end of a finished job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FinishedEnd {
    #[default]
    Delivered,
    /// It failed, with this record for the error queue.
    SetAside { record: Vec<u8> },
    /// It failed without a record.
    Dropped,
}

/// An output of a finished job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedOutput {
    /// Name of the output of its step.
    pub to: String,
    /// `None`: it is delivered with the job.
    pub due: Option<Timestamp>,
    /// JSON; empty if the attempt has sent it to a service already.
    pub payload: Vec<u8>,
}

impl FinishedOutput {
    /// Whether the attempt has sent it to a service. It only counts then.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.payload.is_empty()
    }
}

impl FinishedResult {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match &self.end {
            FinishedEnd::Delivered => out.push(0),
            FinishedEnd::SetAside { record } => {
                out.push(1);
                put_bytes(out, record);
            }
            FinishedEnd::Dropped => out.push(2),
        }
        put_varint(out, self.outputs.len() as u64);
        for FinishedOutput { to, due, payload } in &self.outputs {
            put_bytes(out, to.as_bytes());
            out.push(u8::from(due.is_some()));
            if let Some(due) = due {
                out.extend_from_slice(&due.0.to_le_bytes());
            }
            put_bytes(out, payload);
        }
        put_varint(out, self.events.len() as u64);
        for event in &self.events {
            put_bytes(out, event);
        }
    }

    pub(crate) fn take(rest: &mut Bytes<'_>) -> Result<Self, Wrong> {
        let end = match rest.u8()? {
            0 => FinishedEnd::Delivered,
            1 => FinishedEnd::SetAside { record: rest.bytes()?.to_vec() },
            2 => FinishedEnd::Dropped,
            _ => return Err("the end of its attempt is unknown"),
        };
        let (mut outputs, mut events) = (Vec::new(), Vec::new());
        for _ in 0..rest.varint()? {
            let to = rest.text()?.to_owned();
            let due = match rest.u8()? {
                0 => None,
                _ => Some(Timestamp(rest.u64()?.cast_signed())),
            };
            outputs.push(FinishedOutput { to, due, payload: rest.bytes()?.to_vec() });
        }
        for _ in 0..rest.varint()? {
            events.push(rest.bytes()?.to_vec());
        }
        Ok(Self { end, outputs, events })
    }
}

/// In base64, since outputs may be any bytes.
impl Serialize for FinishedResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for FinishedResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom("the value is not base64");
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| wrong())?;
        Self::take(&mut Bytes(&bytes)).map_err(serde::de::Error::custom)
    }
}
