//! Stored results: a finished job whose result is delivered later gets a row with it, so that a crash cannot lose it.

use super::{Action, Coordinator};
use crate::batch::job_builder::BatchCursor;
use crate::batch::outcomes::DeliveryOutcomes;
use crate::batch::result::BatchResult;
use crate::batch::retry;
use crate::commit::request::{CommitRequest, Delivery, StepChange};
use crate::step::declared::DeclaredStep;
use crate::step::state::{QueuedJobs, StepState};
use tidegate_config::{SinkKind, SinkRef, Target};
use tidegate_dispatch::{BatchId, JobOutcome};
use tidegate_model::{Counters, Timestamp};
use tidegate_plugin::Payloads;
use tidegate_store::{FinishedEnd, FinishedOutput, FinishedResult, NewParkedJob};

impl Coordinator {
    /// Stores the result of a batch of one job.
    pub(crate) fn keep(&mut self, step: usize, batch: BatchId, now: Timestamp, actions: &mut Vec<Action>) {
        self.track_pending_commit(step, batch, false);
        let Some(StepState { declared, queued: Some(QueuedJobs { buffer, .. }), batches, .. }) =
            self.steps.get_mut(step)
        else {
            return;
        };
        let Some(held) = batches.get_mut(&batch) else { return };
        let Some(mut ran) = held.ran.take() else { return };
        let (settles, failed) = (std::mem::take(&mut ran.settles), std::mem::take(&mut ran.failed));
        let carries = buffer.gatherer.has_provenance(&held.work);
        let mut walk = BatchCursor::new(&held.work);
        let Some(item) = buffer.gatherer.next(&mut walk, carries) else { return };
        let began = ran.outcomes.first_attempt().unwrap_or(now);
        let row = retry::finished(&declared.address, &item, result(declared, *ran), began);
        (held.ends, held.failed) = (vec![JobOutcome::Kept], failed);
        let delivery = Delivery {
            step: declared.clone(),
            id: batch,
            jobs: held.jobs(1),
            outputs: Vec::new(),
            errors: None,
            delayed: vec![row],
            provisional: Vec::new(),
            keyed: Vec::new(),
            outcomes: DeliveryOutcomes::default(),
            halted_lanes: Vec::new(),
            events: Payloads::new(),
            settles,
            counters: Counters::default(),
            bytes: 0,
            places: held.take_places(Some(buffer)),
            rest: None,
        };
        actions.push(Action::Commit(CommitRequest::Enter(StepChange::Delivery(Box::new(delivery)))));
    }
}

/// The result of a batch of one finished job, as the store has it.
fn result(step: &DeclaredStep, ran: BatchResult) -> FinishedResult {
    let BatchResult { outputs, errors, delayed, events, counters, .. } = ran;
    let now = step.outputs.iter().zip(&outputs).flat_map(|(output, made)| {
        let sink = match output.target {
            Target::Sink(SinkRef(sink)) => step.configuration().sinks.get(sink),
            Target::Queue(_) => None,
        };
        let was_sent = sink.is_some_and(|sink| matches!(sink.kind, SinkKind::Http(_)));
        let payload = move |payload: &[u8]| FinishedOutput {
            to: output.binding.clone(),
            due: None,
            payload: if was_sent { Vec::new() } else { payload.to_vec() },
        };
        made.payloads.iter().map(payload)
    });
    let later = delayed.into_iter().filter_map(|NewParkedJob { job, .. }| {
        let (to, due) = (job.output()?.to_owned(), job.due.time());
        Some(FinishedOutput { to, due, payload: job.payload })
    });
    let record = errors.as_ref().and_then(|made| made.payloads.iter().next());
    let end = match record {
        Some(record) => FinishedEnd::SetAside { record: record.to_vec() },
        None if counters.failed > 0 => FinishedEnd::Dropped,
        None => FinishedEnd::Delivered,
    };
    let events = events.iter().map(<[u8]>::to_vec).collect();
    FinishedResult { end, outputs: now.chain(later).collect(), events }
}
