//! `Line`: a line of an export, one JSON value per record.
//!
//! The first line is the header, the last one the end, which counts the lines between them. A queue is
//! followed by its jobs, in order; other lines have no fixed order. Bytes are JSON if they are valid JSON,
//! else text if they are UTF-8, else base64. Times are milliseconds since the Unix epoch.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::api::delivery::{DeliveryOutcome, DeliveryTimes};
use crate::api::parked_job::JobForm;
use crate::codec::old_parked_record::OldReason;
use crate::database::dedupe::DedupeOutcome;
use crate::database::held_lanes::LaneRecord;
use crate::database::name_history::RenameRecord;
use crate::database::pauses::Pause;
use crate::database::snapshots::SnapshotInput;
use tidegate_model::{Address, DeliveryHash, Progress, Segment, SinkPosition};

/// The version of this format.
pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ExportLine<'a> {
    Header(Header),
    Queue(QueueLine),
    #[serde(borrow)]
    Job(JobLine<'a>),
    Progress(ProgressLine),
    Handled(HandledLine),
    Mark(MarkLine),
    Segment(SegmentLine),
    Sink(SinkLine),
    Delivery(DeliveryLine),
    Delivered(DeliveredLine),
    Snapshot(SnapshotLine),
    #[serde(borrow)]
    Delayed(DelayedLine<'a>),
    #[serde(borrow)]
    Late(LateLine<'a>),
    Generation(GenerationLine),
    Ticked(TickedLine),
    Cursor(CursorLine),
    Pause(Pause),
    MonitorPause(Pause),
    HeldLane(LaneRecord),
    /// In the order of time.
    Rename(RenameRecord),
    /// The position in a file that a sink has left.
    SinkFile(SinkLine),
    /// The first input of a binding.
    Binding(BindingLine),
    TokenKey(TokenKeyLine<'a>),
    End(Inventory),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BindingLine {
    pub(crate) step: Address,
    pub(crate) binding: String,
    pub(crate) input: Address,
}

/// The key that signs tokens. A holder of the key can create them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenKeyLine<'a> {
    #[serde(serialize_with = "put_base64", deserialize_with = "take_base64")]
    pub(crate) bytes: Cow<'a, [u8]>,
}

/// The part of a header that every version must be able to read.
#[derive(Debug, Deserialize)]
pub(crate) struct Start {
    pub(crate) header: StartHeader,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StartHeader {
    pub(crate) version: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) version: u32,
    /// Creation time of the store.
    pub(crate) created: i64,
    /// The number and time of the last commit.
    pub(crate) transaction: u64,
    pub(crate) time: i64,
    /// The last number that a parked job received.
    pub(crate) sequence: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueLine {
    pub(crate) queue: Address,
    pub(crate) first: u64,
    pub(crate) head: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobLine<'a> {
    pub(crate) queue: Cow<'a, Address>,
    pub(crate) index: u64,
    /// The time and number of the commit.
    pub(crate) time: i64,
    pub(crate) transaction: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<OriginLine>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) carried: Option<Data<'a>>,
    #[serde(borrow)]
    pub(crate) payload: Data<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OriginLine {
    pub(crate) step: Address,
    /// In order of name.
    pub(crate) inputs: Vec<(String, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgressLine {
    pub(crate) step: Address,
    pub(crate) input: Address,
    pub(crate) progress: Progress,
}

/// The errors of a queue that an operator handled.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandledLine {
    pub(crate) queue: Address,
    pub(crate) progress: Progress,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MarkLine {
    pub(crate) source: Address,
    pub(crate) index: u64,
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) line: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentLine {
    pub(crate) source: Address,
    pub(crate) segment: Segment,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SinkLine {
    pub(crate) sink: Address,
    pub(crate) position: SinkPosition,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryLine {
    #[serde(serialize_with = "put_hash", deserialize_with = "take_hash")]
    pub(crate) hash: DeliveryHash,
    pub(crate) outcome: DedupeOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) times: Option<DeliveryTimes>,
    pub(crate) time: i64,
    /// `None`: for ever.
    pub(crate) keep_until: Option<i64>,
}

/// The deliveries of jobs with consecutive indices.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveredLine {
    /// Step and input as in the delivery hash.
    pub(crate) step: Address,
    pub(crate) input: String,
    pub(crate) first: u64,
    /// Runs of equal outcomes with their numbers of jobs.
    pub(crate) outcomes: Vec<(DeliveryOutcome, u64)>,
    /// Runs of equal times with their numbers of jobs; empty if an older version recorded the deliveries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) times: Vec<(DeliveryTimes, u64)>,
    pub(crate) time: i64,
    /// `None`: for ever.
    pub(crate) keep_until: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotLine {
    pub(crate) step: Address,
    pub(crate) number: u64,
    pub(crate) inputs: Vec<SnapshotInput>,
    pub(crate) jobs: u64,
    pub(crate) time: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelayedLine<'a> {
    pub(crate) step: Cow<'a, Address>,
    /// As in version 5 of the store: 0 is at once, and the largest number is never.
    pub(crate) due: i64,
    /// The time before an operator made it due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hastened_from: Option<i64>,
    pub(crate) sequence: u64,
    pub(crate) inputs: Vec<(String, u64)>,
    pub(crate) attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_attempt: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_submitted: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from_error: Option<(Address, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    #[serde(default, rename = "standing", skip_serializing_if = "is_delayed")]
    pub(crate) reason: OldReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) carried: Option<String>,
    pub(crate) form: JobForm,
    #[serde(borrow)]
    pub(crate) payload: Data<'a>,
}

/// A job that is appended to its queue later.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LateLine<'a> {
    pub(crate) queue: Cow<'a, Address>,
    /// Missing if it is due at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<i64>,
    pub(crate) sequence: u64,
    #[serde(borrow)]
    pub(crate) payload: Data<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerationLine {
    pub(crate) number: u64,
    pub(crate) fingerprint: u64,
    pub(crate) time: i64,
}

/// The time up to which the ticks of a schedule are handled.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TickedLine {
    pub(crate) source: Address,
    pub(crate) time: i64,
}

/// The cursor from which the command of a source continues.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CursorLine {
    pub(crate) source: Address,
    pub(crate) cursor: String,
}

/// Number of records of each kind in an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    pub queues: u64,
    pub jobs: u64,
    /// Records of steps, and of handled errors.
    pub progress: u64,
    pub marks: u64,
    pub segments: u64,
    pub sinks: u64,
    pub deliveries: u64,
    /// Ranges of deliveries that were made from one job each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delivered: u64,
    pub snapshots: u64,
    pub delayed: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u64,
    pub generations: u64,
    /// Missing in exports of older versions.
    #[serde(default)]
    pub schedules: u64,
    /// Cursors of commands.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cursors: u64,
    /// Number of paused steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pauses: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub monitor_pauses: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_lanes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renames: u64,
    /// Number of files that sinks have left.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sink_files: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bindings: u64,
    /// The key that signs tokens: 1 if it exists.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub token_keys: u64,
}

impl Inventory {
    /// Each kind, and its number.
    #[must_use]
    pub fn kinds(self) -> [(&'static str, u64); 21] {
        [
            ("queues", self.queues),
            ("jobs", self.jobs),
            ("progress", self.progress),
            ("marks", self.marks),
            ("segments", self.segments),
            ("sinks", self.sinks),
            ("deliveries", self.deliveries),
            ("ranges of deliveries", self.delivered),
            ("snapshots", self.snapshots),
            ("delayed jobs", self.delayed),
            ("late jobs", self.late),
            ("generations", self.generations),
            ("schedules", self.schedules),
            ("cursors", self.cursors),
            ("paused steps", self.pauses),
            ("paused monitors", self.monitor_pauses),
            ("held lanes", self.held_lanes),
            ("renames", self.renames),
            ("files that sinks have left", self.sink_files),
            ("bindings", self.bindings),
            ("token keys", self.token_keys),
        ]
    }

    /// Counts a line.
    pub(crate) fn count(&mut self, line: &ExportLine<'_>) {
        let count = match line {
            ExportLine::Header(_) | ExportLine::End(_) => return,
            ExportLine::Queue(_) => &mut self.queues,
            ExportLine::Job(_) => &mut self.jobs,
            ExportLine::Progress(_) | ExportLine::Handled(_) => &mut self.progress,
            ExportLine::Mark(_) => &mut self.marks,
            ExportLine::Segment(_) => &mut self.segments,
            ExportLine::Sink(_) => &mut self.sinks,
            ExportLine::Delivery(_) => &mut self.deliveries,
            ExportLine::Delivered(_) => &mut self.delivered,
            ExportLine::Snapshot(_) => &mut self.snapshots,
            ExportLine::Delayed(_) => &mut self.delayed,
            ExportLine::Late(_) => &mut self.late,
            ExportLine::Generation(_) => &mut self.generations,
            ExportLine::Ticked(_) => &mut self.schedules,
            ExportLine::Cursor(_) => &mut self.cursors,
            ExportLine::Pause(_) => &mut self.pauses,
            ExportLine::MonitorPause(_) => &mut self.monitor_pauses,
            ExportLine::HeldLane(_) => &mut self.held_lanes,
            ExportLine::Rename(_) => &mut self.renames,
            ExportLine::SinkFile(_) => &mut self.sink_files,
            ExportLine::Binding(_) => &mut self.bindings,
            ExportLine::TokenKey(_) => &mut self.token_keys,
        };
        *count += 1;
    }
}

/// Some bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Data<'a> {
    #[serde(borrow)]
    Json(&'a RawValue),
    Text(Cow<'a, str>),
    #[serde(serialize_with = "put_base64", deserialize_with = "take_base64")]
    Base64(Cow<'a, [u8]>),
}

impl<'a> Data<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else { return Self::Base64(bytes.into()) };
        // JSON with line breaks, or with blanks around it, would not be restored unchanged.
        match serde_json::from_str::<&RawValue>(text) {
            Ok(json) if json.get().len() == text.len() && !text.contains('\n') => Self::Json(json),
            _ => Self::Text(text.into()),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Json(json) => json.get().as_bytes(),
            Self::Text(text) => text.as_bytes(),
            Self::Base64(bytes) => bytes,
        }
    }
}

fn put_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
}

fn take_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, [u8]>, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    BASE64_STANDARD
        .decode(&*text)
        .map(Cow::Owned)
        .map_err(|_| serde::de::Error::custom("the value is not base64"))
}

fn put_hash<S: Serializer>(hash: &DeliveryHash, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(hash)
}

fn take_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeliveryHash, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    let digits =
        Some(&*text).filter(|text| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
    number.map(DeliveryHash).ok_or_else(|| serde::de::Error::custom("the value is not a delivery hash"))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_delayed(reason: &OldReason) -> bool {
    *reason == OldReason::Delayed
}
