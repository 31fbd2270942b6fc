//! Event writer: records the events of the jobs of a step, each as a JSON object, for the queue that `events` names.
//!
//! An event is in the commit that makes its fact durable. So a fact that a crash has undone has no event, and each
//! durable one has exactly one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_plugin::{Failure, Payloads};

use super::job_builder::JobInput;
use crate::step::job_attributes::{AttributeExtractor, LaneSource};
use tidegate_config::{InputMode, Step};
use tidegate_model::{Address, ExternalStatus, Timestamp, rfc3339};
use tidegate_store::{DeliveryOutcome, ParkedJob};

/// Maximum number of events of a job that waits in memory, with the attempts that it made there.
const HELD_MAX: usize = 1000;

/// Writer of the events of one step.
#[derive(Clone, Debug)]
pub(crate) struct EventWriter {
    step: Address,
    inputs: Vec<EventInput>,
    /// Whether an event names each input with its binding.
    has_bindings: bool,
    /// Extracts the lane of a job, if the step has lanes.
    lanes: Option<AttributeExtractor>,
}

#[derive(Clone, Debug)]
struct EventInput {
    /// Name in the delivery hash.
    name: String,
    binding: String,
    address: Address,
}

/// Job of an event.
#[derive(Clone, Debug)]
pub(crate) struct EventJob<'a> {
    /// Inputs that it was made from, by position, and their indices.
    given: Vec<(usize, u64)>,
    /// Number of the attempt; 0 if there was none.
    attempt: u32,
    payload: &'a [u8],
    handle: Option<&'a str>,
}

/// Fact about a job.
#[derive(Clone, Debug)]
pub(crate) enum JobEvent<'a> {
    /// An attempt may start: its beginning is recorded.
    Begun,
    /// An attempt failed.
    Failed(&'a Failure),
    /// The job waits for this time.
    Delayed { due: Timestamp, reason: Option<&'a str> },
    /// An external system has the job, under this handle.
    Pending { handle: &'a str },
    /// The external system has reported this status.
    Verdict { status: ExternalStatus, reason: Option<&'a str> },
    /// The job is finished.
    Done { end: JobEnd, reason: Option<&'a str> },
    /// An operator runs the job of an error record again.
    Retried,
}

/// End of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// It has this number of outputs.
    Delivered { outputs: u32 },
    /// It has no output.
    Consumed,
    /// It is on the error queue.
    SetAside,
    /// It failed, or was cancelled, without a record.
    Dropped,
}

#[derive(Serialize)]
struct EventRecord<'a> {
    /// Time in RFC 3339, UTC.
    time: String,
    pipeline: &'a str,
    step: &'a str,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs: Option<BTreeMap<&'a str, Given>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Given {
    from: String,
    index: u64,
}

impl EventWriter {
    /// Writer for `step`; `None` if it has no queue for events.
    pub(crate) fn new(step: &Step) -> Option<Self> {
        step.events?;
        let input = |input: &tidegate_config::InputRef| EventInput {
            name: input.hash_name(),
            binding: input.binding.clone(),
            address: input.address.clone(),
        };
        let queuer = step.queuer.as_ref().filter(|queuer| queuer.lane.is_some());
        Some(Self {
            step: step.address.clone(),
            inputs: step.inputs.iter().map(input).collect(),
            has_bindings: step.take != InputMode::From,
            lanes: queuer.map(AttributeExtractor::new),
        })
    }

    /// Job of a row in the store.
    pub(crate) fn of_row<'a>(&self, job: &'a ParkedJob) -> EventJob<'a> {
        let handle = job.reason.outside().map(|(handle, ..)| handle);
        EventJob { given: self.places(job), attempt: job.attempt, payload: &job.payload, handle }
    }

    /// Inputs of a row, by position.
    pub(crate) fn places(&self, job: &ParkedJob) -> Vec<(usize, u64)> {
        let place = |(name, index): &(String, u64)| {
            let input = self.inputs.iter().position(|input| input.name == *name)?;
            Some((input, *index))
        };
        job.inputs.iter().filter_map(place).collect()
    }

    /// Adds an event of a job to `events`.
    pub(crate) fn write(
        &self,
        job: &EventJob<'_>,
        event: &JobEvent<'_>,
        now: Timestamp,
        events: &mut Payloads,
    ) {
        let lane = self.lanes.as_ref().and_then(|lanes| match lanes.lane(job.payload) {
            LaneSource::Named(lane) => Some(lane),
            LaneSource::Shared | LaneSource::Missing => None,
        });
        let attempt = (job.attempt > 0).then_some(job.attempt);
        let record = EventRecord { attempt, lane, handle: job.handle, ..self.record(event.word(), now) };
        let record = match *event {
            JobEvent::Begun | JobEvent::Retried => record,
            JobEvent::Failed(failure) => {
                EventRecord { kind: Some(failure.word()), reason: Some(&failure.message), ..record }
            }
            JobEvent::Delayed { due, reason } => EventRecord { due: Some(rfc3339(due)), reason, ..record },
            JobEvent::Pending { handle } => EventRecord { handle: Some(handle), ..record },
            JobEvent::Verdict { status: _, reason } => EventRecord { reason, ..record },
            JobEvent::Done { end, reason } => {
                let outputs = if let JobEnd::Delivered { outputs } = end { Some(outputs) } else { None };
                EventRecord { outcome: Some(end.as_str()), outputs, reason, ..record }
            }
        };
        self.add(record, &job.given, events);
    }

    /// Adds an event for the inputs whose watermark has moved to these indices.
    pub(crate) fn write_watermark(&self, moved: &[(usize, u64)], now: Timestamp, events: &mut Payloads) {
        self.add(self.record("watermark", now), moved, events);
    }

    /// Adds an event for a stop of the step at the job with this index of its first input.
    pub(crate) fn write_halt(&self, at: Option<u64>, why: &str, now: Timestamp, events: &mut Payloads) {
        let given: Vec<(usize, u64)> = at.map(|index| (0, index)).into_iter().collect();
        self.add(EventRecord { reason: Some(why), ..self.record("halted", now) }, &given, events);
    }

    fn record(&self, event: &'static str, now: Timestamp) -> EventRecord<'_> {
        EventRecord {
            time: rfc3339(now),
            pipeline: self.step.pipeline.as_str(),
            step: self.step.name.as_str(),
            event,
            input: None,
            index: None,
            inputs: None,
            attempt: None,
            lane: None,
            handle: None,
            outcome: None,
            outputs: None,
            due: None,
            kind: None,
            reason: None,
        }
    }

    fn add<'r>(&'r self, mut record: EventRecord<'r>, given: &[(usize, u64)], events: &mut Payloads) {
        let named = |&(input, index): &(usize, u64)| {
            let input = self.inputs.get(input)?;
            Some((&*input.binding, Given { from: input.address.to_string(), index }))
        };
        let mut given = given.iter().filter_map(named);
        if self.has_bindings {
            record.inputs = Some(given.collect()).filter(|inputs: &BTreeMap<_, _>| !inputs.is_empty());
        } else if let Some((_, Given { from, index })) = given.next() {
            (record.input, record.index) = (Some(from), Some(index));
        }
        // Texts and numbers can always be serialized to memory.
        let _ = events.push_with(|buffer| serde_json::to_writer(buffer, &record));
    }
}

impl<'a> EventJob<'a> {
    pub(crate) fn of_item(item: &'a JobInput<'_>) -> Self {
        let given = item.indices.iter().enumerate().filter(|(_, index)| **index > 0);
        let given = given.map(|(input, index)| (input, *index)).collect();
        Self { given, attempt: item.attempt, payload: item.payload, handle: item.handle() }
    }
}

impl JobEvent<'_> {
    /// Event of a job whose attempt succeeded with this outcome.
    pub(crate) fn of_success(outcome: DeliveryOutcome) -> Self {
        let end = match outcome {
            DeliveryOutcome::Output { jobs } => JobEnd::Delivered { outputs: jobs },
            _ => JobEnd::Consumed,
        };
        Self::Done { end, reason: None }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Failed(_) => "failed",
            Self::Delayed { .. } => "delayed",
            Self::Pending { .. } => "pending",
            Self::Verdict { status, .. } => status.as_str(),
            Self::Done { .. } => "done",
            Self::Retried => "retried",
        }
    }
}

impl JobEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Delivered { .. } => "delivered",
            Self::Consumed => "consumed",
            Self::SetAside => "set-aside",
            Self::Dropped => "dropped",
        }
    }
}

/// Recorder of the events of one job at a time, while a batch runs. Without a writer it does nothing.
#[derive(Debug)]
pub(crate) struct EventRecorder<'w> {
    writer: Option<&'w EventWriter>,
    /// Events of the present job.
    own: Payloads,
}

impl<'w> EventRecorder<'w> {
    pub(crate) fn new(writer: Option<&'w EventWriter>) -> Self {
        Self { writer, own: Payloads::new() }
    }

    /// Whether the step has a queue for events.
    pub(crate) fn are_recorded(&self) -> bool {
        self.writer.is_some()
    }

    /// Begins with the next job. `earlier`: the events of its attempts that are not durable.
    pub(crate) fn begin(&mut self, earlier: Option<&Payloads>) {
        if self.writer.is_some() {
            self.own.clear();
            let earlier = earlier.into_iter().flat_map(Payloads::iter).take(HELD_MAX);
            earlier.for_each(|event| self.own.push(event));
        }
    }

    /// Adds an event of the job. A delayed output is not a job of the step.
    pub(crate) fn note(&mut self, item: &JobInput<'_>, event: &JobEvent<'_>, now: Timestamp) {
        if let Some(writer) = self.writer.filter(|_| item.to.is_none()) {
            writer.write(&EventJob::of_item(item), event, now, &mut self.own);
        }
    }

    /// Adds the event of a job that was delivered earlier to those of its batch.
    pub(crate) fn was_given_before(&mut self, item: &JobInput<'_>, now: Timestamp, events: &mut Payloads) {
        let reason = Some("its outputs were delivered before");
        self.note(item, &JobEvent::Done { end: JobEnd::Consumed, reason }, now);
        self.end(events);
    }

    /// Adds the events of the job to those of its batch.
    pub(crate) fn end(&self, events: &mut Payloads) {
        if self.writer.is_some() {
            events.append(&self.own);
        }
    }

    /// Events of the job, which is not delivered with its batch.
    pub(crate) fn take(&mut self) -> Payloads {
        std::mem::take(&mut self.own)
    }
}
