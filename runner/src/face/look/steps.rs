//! How far steps are, and what queues hold.

use super::jobs::open_ranges;
use super::{Answer, ClosedStatus, QueueStatus, ReaderStatus, StepStatus, rfc3339};
use crate::config::{Configuration, Input, Take};
use crate::decide::Progress;
use crate::engine::Stats;
use crate::store::{QueueState, ReadError, Store};
use crate::words::suggest::did_you_mean;

pub(super) fn status(store: &Store, configuration: &Configuration) -> Result<Answer, ReadError> {
    let mut known = store.all_progress()?;
    let pauses = store.pauses()?;
    let mut steps = Vec::new();
    for step in &configuration.steps {
        let begun = store.snapshots(&step.address)?.iter().map(|snapshot| snapshot.jobs).sum();
        let mut of_step = (store.delayed_count(&step.address)?, begun);
        for input in &step.inputs {
            let at = known.iter().position(|(name, from, _)| *name == step.address && *from == input.address);
            let progress = at.map(|at| known.remove(at).2).unwrap_or_default();
            let waiting = match input.input {
                Input::Source(_) => None,
                Input::Queue(_) => {
                    Some(store.queue(&input.address)?.map_or(0, |queue| waiting(&queue, &progress)))
                }
            };
            let (delayed, begun) = std::mem::take(&mut of_step);
            steps.push(StepStatus {
                step: step.address.to_string(),
                input: input.address.to_string(),
                watermark: progress.watermark(),
                waiting,
                delayed,
                begun,
                joins: step.take == Take::Join,
                pending: 0,
                valid: 0,
                closed: None,
                paused: pauses
                    .iter()
                    .find(|pause| pause.step == step.address)
                    .map(|pause| rfc3339(pause.since)),
                configured: true,
                counters: progress.counters,
            });
        }
    }
    // Progress that nothing in the configuration claims is kept, and shown.
    for (step, input, progress) in known {
        let waiting = store.queue(&input)?.map(|queue| waiting(&queue, &progress));
        steps.push(StepStatus {
            step: step.to_string(),
            input: input.to_string(),
            watermark: progress.watermark(),
            waiting,
            delayed: 0,
            begun: 0,
            joins: false,
            pending: 0,
            valid: 0,
            closed: None,
            paused: None,
            configured: false,
            counters: progress.counters,
        });
    }
    Ok(Answer::Status(steps))
}

/// Adds what only a run knows.
pub(super) fn note_run(statuses: &mut [StepStatus], configuration: &Configuration, stats: &Stats) {
    for (step, stats) in configuration.steps.iter().zip(&stats.steps) {
        let (closed, (pending, valid)) = (stats.closed(), stats.pending());
        let name = step.address.to_string();
        for status in statuses.iter_mut().filter(|status| status.step == name) {
            (status.pending, status.valid) = (pending, valid);
            let closed = closed.clone();
            status.closed =
                closed.map(|closed| ClosedStatus { since: rfc3339(closed.since), why: closed.why });
        }
    }
}

pub(super) fn queues(store: &Store, configuration: &Configuration) -> Result<Answer, ReadError> {
    let progress = store.all_progress()?;
    let mut queues = Vec::new();
    for queue in store.queues()? {
        let readers =
            progress.iter().filter(|(_, input, _)| *input == queue.address).map(|(step, _, progress)| {
                ReaderStatus {
                    step: step.to_string(),
                    waiting: queue.head.saturating_sub(progress.watermark()),
                }
            });
        let settings = configuration.queues.iter().find(|settings| settings.address == queue.address);
        let errors = settings.is_some_and(|settings| settings.holds_errors);
        let open = if errors { Some(open(store, &queue)?) } else { None };
        queues.push(QueueStatus {
            queue: queue.address.to_string(),
            first: queue.first,
            head: queue.head,
            jobs: queue.jobs(),
            bytes: queue.bytes,
            errors,
            open,
            readers: readers.collect(),
        });
    }
    Ok(Answer::Queues(queues))
}

/// There is no such step.
pub(super) fn missing(configuration: &Configuration, step: &str) -> Answer {
    let names: Vec<String> = configuration.steps.iter().map(|step| step.address.to_string()).collect();
    let hint = did_you_mean(step, names.iter().map(String::as_str)).map(|hint| format!("; {hint}"));
    Answer::Missing(format!("the configuration has no step `{step}`{}", hint.unwrap_or_default()))
}

/// The errors that nobody has dealt with and that are still kept.
fn open(store: &Store, queue: &QueueState) -> Result<u64, ReadError> {
    let handled = store.handled(&queue.address)?.unwrap_or_default();
    Ok(open_ranges(&handled, queue.first, queue.head).map(|(first, last)| last - first + 1).sum())
}

/// The jobs that a step has not accounted for and that are still kept.
fn waiting(queue: &QueueState, progress: &Progress) -> u64 {
    queue.head.saturating_sub(progress.watermark().max(queue.first - 1))
}
