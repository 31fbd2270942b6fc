//! Status of steps and queues: reports the progress of steps and the content of queues.

use std::collections::{BTreeMap, BTreeSet};

use super::age;
use super::age::Oldest;
use super::parked_counts::ParkedCounts;
use super::queue_jobs::{RecordGeneration, error_queues, holds_records, open_ranges};
use super::retry_status;
use super::source_status;
use super::table_status;
use super::{
    Answer, BlockStatus, Halted, HeldBehind, HeldLaneStatus, LaneStatus, LanesStatus, ProbeStatus,
    QueueStatus, ReaderStatus, RunnerStatus, StepStatus, rfc3339, stopped,
};
use tidegate_config::{Configuration, GateRef, Input, InputMode, InputRef, Step};
use tidegate_dispatch::{JobKey, LaneCounts, LaneSummary, Turn};
use tidegate_engine::{BlockCause, Handle, ProbeKind, QueueView, StepCounts, StepStats, holds_lanes};
use tidegate_model::suggest::did_you_mean_address;
use tidegate_model::{Address, Clock as _, Counters, Progress, SystemClock, Timestamp};
use tidegate_store::{Pause, QueueState, ReadError, Store};

/// Maximum bytes of errors that are read at a time to be counted.
const ERRORS_PAGE_BYTES: usize = 4 << 20;

/// The progress of each step, from the run or the store. `lanes`: the number of the fullest lanes per step;
/// in a stopped store, this scans all waiting jobs.
pub(crate) fn status(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    lanes: usize,
) -> Result<Answer, ReadError> {
    let mut steps = statuses(store, configuration, run, lanes)?;
    let errors = open_by_step(store, configuration)?;
    for at in 0..steps.len() {
        // A step is counted once, with its first input.
        let is_again = steps[..at].iter().any(|before| before.step == steps[at].step);
        let open = errors.iter().find(|(step, _)| step.to_string() == steps[at].step && !is_again);
        steps[at].errors = open.map_or(0, |(_, open)| *open);
    }
    let sources = source_status::all(store, configuration, run)?;
    let tables = table_status::all(configuration, run);
    Ok(Answer::Status(Box::new(RunnerStatus { reload: None, full: None, steps, sources, tables })))
}

/// As [`status`], without the errors, which must be read from their queues.
pub(crate) fn statuses(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    lanes: usize,
) -> Result<Vec<StepStatus>, ReadError> {
    let mut all_counts = run.and_then(|run| run.all_counts(lanes)).unwrap_or_default();
    let (known, pauses, now) = (store.all_progress()?, store.pauses()?, SystemClock.now());
    // The run's state is newer.
    let stops = if run.is_some() { Vec::new() } else { store.stops()? };
    let mut steps = Vec::new();
    for (position, step) in configuration.steps.entries() {
        // The dispatcher does not count the jobs that an ordered step had in memory when it stopped.
        let has_stopped = run.is_some_and(|run| run.stats().step(position).halted().is_some());
        let counts = all_counts.remove(&position);
        let running = counts.as_ref().map(|counts| counts.counts.running);
        let step_counts = counts.filter(|_| !has_stopped || step.picks().is_some());
        let look = StatusQuery { store, configuration, step, step_counts, lanes, now };
        let first = steps.len();
        for (at, input) in step.inputs.iter().enumerate() {
            let progress =
                known.iter().find(|(name, from, _)| *name == step.address && *from == input.address);
            let progress = match progress {
                Some((_, _, progress)) => progress.clone(),
                None => tidegate_engine::progress(store, step, input)?,
            };
            steps.push(look.input(at, input, &progress, &pauses)?);
        }
        let unmatched = unmatched(store, step, run, configuration)?;
        for (status, jobs) in steps[first..].iter_mut().zip(&unmatched) {
            status.unmatched = *jobs;
            status.full = step.joins.as_ref().is_some_and(|join| *jobs >= join.max_waiting);
        }
        if step.joins.is_some() {
            count_with_first(&mut steps[first..]);
        }
        if let Some(status) = steps.get_mut(first) {
            look.add_counts(status)?;
            // Attempts that ran when it stopped may go on.
            status.running = running.or(status.running);
            look.add_held_lanes(status)?;
            // Jobs of a join by key have not failed: they wait for their partners.
            if step.joins.is_none() && store.parked_totals(&step.address)?.delayed > 0 {
                status.retry = retry_status::next_retry(store, step)?;
            }
            status.delayed = status.delayed.saturating_sub(unmatched.iter().sum());
            status.halted = stopped::in_last_run(store, step, &stops)?.map(|stop| Halted {
                since: rfc3339(stop.since),
                at: stop.at.clone(),
                last_run: true,
                why: stop.why.clone(),
            });
            if let Some(run) = run {
                let gate = step.gate.map(|GateRef(gate)| configuration.gates[gate].name.to_string());
                note_run(status, run, (position, gate), now);
            }
        }
    }
    // Progress of removed steps is kept, and shown.
    for (step, input, progress) in known {
        let claims = |one: &Step| one.address == step && one.inputs.iter().any(|one| one.address == input);
        if !configuration.steps.iter().any(claims) {
            let waiting = store.queue(&input)?.map(|queue| waiting(&queue, &progress));
            let position = progress.position();
            let watermark = tidegate_engine::watermark_below(store, &step, &input.to_string(), position)?;
            let status = StepStatus::new(&step, &input, watermark, &progress);
            let mut status = StepStatus { waiting, configured: false, ..status };
            let is_first = steps.iter().all(|before| before.step != status.step);
            if is_first {
                // A configured step has counted them.
                let rows = ParkedCounts::count(store, &step, now)?;
                (status.pending, status.delayed) = (rows.pending, rows.delayed);
                (status.begun, status.waiting) = (rows.begun, waiting.map(|waiting| waiting + rows.waiting));
            }
            steps.push(status);
        }
    }
    Ok(steps)
}

/// Counts the jobs of a join by key with its first input. They are recorded with the input whose job came last, or whose
/// time was over.
fn count_with_first(inputs: &mut [StepStatus]) {
    let mut all = Counters::default();
    for status in &mut *inputs {
        status.by_key = true;
        all.add(&std::mem::take(&mut status.counters));
    }
    if let Some(first) = inputs.first_mut() {
        first.counters = all;
    }
}

/// Number of jobs of a join by key that wait for their partners, by input; empty for other steps.
fn unmatched(
    store: &Store,
    step: &Step,
    run: Option<&Handle>,
    configuration: &Configuration,
) -> Result<Vec<u64>, ReadError> {
    let Some(join) = &step.joins else { return Ok(Vec::new()) };
    let position = configuration.steps.position(|one| one.address == step.address);
    if let (Some(run), Some(position)) = (run, position) {
        return Ok(run.stats().step(position).unmatched());
    }
    let mut counts = vec![0; join.sides.len()];
    for row in store.all_parked(&step.address) {
        let (_, job) = row?;
        let input = |(name, _): &(String, u64)| step.inputs.iter().position(|input| input.binding == *name);
        // A job that was put back by an operator has not arrived yet.
        if let (Some(at), true) =
            (job.inputs.first().and_then(input), job.attempt > 0 && job.from_error.is_none())
        {
            counts[at] += 1;
        }
    }
    Ok(counts)
}

/// Adds the values that only a run knows.
fn note_run(
    status: &mut StepStatus,
    run: &Handle,
    (position, gate): (usize, Option<String>),
    now: Timestamp,
) {
    let stats = run.stats().step(position);
    status.rate = Some((stats.rate(run.stats().started, now) * 10.0).round() / 10.0);
    status.valid = stats.pending().1;
    status.dropped = stats.dropped();
    status.closed = closed(&stats);
    status.gate = ProbeStatus::of(&stats.answering(ProbeKind::Gate), gate);
    status.monitor = ProbeStatus::of(&stats.answering(ProbeKind::Monitor), None);
    let halted = |(since, why)| Halted { since: rfc3339(since), at: None, last_run: false, why };
    status.halted = stats.halted().map(halted);
}

/// Why a step starts nothing.
pub(crate) fn closed(stats: &StepStats) -> Option<BlockStatus> {
    stats.closed().map(|closed| {
        let by = match closed.by {
            BlockCause::Gate => "gate",
            BlockCause::Failure => "failure",
            BlockCause::Job => "job",
            BlockCause::Setup { .. } => "setup",
        };
        BlockStatus { since: rfc3339(closed.since), by: by.to_owned(), why: closed.why }
    })
}

/// Maximum number of held lanes that are listed.
pub(crate) const HELD_LANES_MAX: usize = 10;

/// One step, and its state in the run.
struct StatusQuery<'a> {
    store: &'a Store,
    configuration: &'a Configuration,
    step: &'a Step,
    step_counts: Option<StepCounts>,
    lanes: usize,
    now: Timestamp,
}

impl StatusQuery<'_> {
    fn input(
        &self,
        at: usize,
        input: &InputRef,
        progress: &Progress,
        pauses: &[Pause],
    ) -> Result<StepStatus, ReadError> {
        let running = self.step_counts.as_ref().and_then(|step_counts| step_counts.counts.watermark);
        let watermark = match running {
            Some(watermark) => watermark,
            None => tidegate_engine::watermark(self.store, self.step, input)?,
        };
        let mut status = StepStatus::new(&self.step.address, &input.address, watermark, progress);
        status.joins = self.step.take == InputMode::Join;
        let paused = pauses.iter().find(|pause| pause.step == self.step.address);
        status.paused = paused.map(|pause| rfc3339(pause.since));
        let known = self.step_counts.as_ref().and_then(|step_counts| step_counts.counts.inputs.get(at));
        let queue = match input.input {
            Input::Source(_) => {
                status.read = known.map(|known| known.jobs);
                return Ok(status);
            }
            Input::Queue(_) => self.store.queue(&input.address)?,
        };
        let stored = || queue.as_ref().map_or(0, |queue| waiting(queue, progress));
        status.waiting = Some(known.map_or_else(stored, |known| known.jobs));
        let is_picked =
            self.step_counts.as_ref().is_some_and(|step_counts| step_counts.counts.picked.is_some());
        let first = match known {
            Some(known) => known.first,
            None => queue.as_ref().and_then(|queue| first_waiting(queue, progress)),
        };
        if let (Some(index), false) = (first, is_picked) {
            status.oldest = age::of_queue(self.store, &input.address, index, self.now)?;
        }
        Ok(status)
    }

    /// Adds what operators and invalid jobs hold within the step.
    fn add_held_lanes(&self, status: &mut StepStatus) -> Result<(), ReadError> {
        let monitors = self.store.monitor_pauses()?;
        let paused = monitors.iter().find(|pause| pause.step == self.step.address);
        status.monitor_paused = paused.map(|pause| rfc3339(pause.since));
        if !holds_lanes(self.step) {
            // The queuer has changed since, and holds none of them.
            return Ok(());
        }
        let held = self.store.held_lanes(&self.step.address)?;
        status.more_held_lanes = held.len().saturating_sub(HELD_LANES_MAX) as u64;
        let shown = held.into_iter().take(HELD_LANES_MAX).map(|(lane, hold)| HeldLaneStatus {
            lane,
            since: rfc3339(hold.since),
            halted: hold.halted,
        });
        status.held_lanes = shown.collect();
        Ok(())
    }

    /// Adds the values of the whole step, once for all inputs.
    fn add_counts(&self, status: &mut StepStatus) -> Result<(), ReadError> {
        let address = &self.step.address;
        let snapshots = self.store.snapshots(address)?;
        status.begun = snapshots.iter().map(|snapshot| snapshot.jobs).sum();
        let Some(step_counts) = &self.step_counts else {
            let rows = ParkedCounts::count(self.store, address, self.now)?;
            status.begun += rows.begun;
            let first = tidegate_engine::first_in_line(self.store, self.step)?;
            status.held_behind = first.map(|first| self.held_behind(first));
            self.add_rows(status, &rows, 0)?;
            return self.add_stored_lanes(status);
        };
        status.running = Some(step_counts.counts.running);
        status.held_behind = step_counts.counts.first_in_line.map(|first| self.held_behind(first));
        let Some(picked) = &step_counts.counts.picked else {
            let rows = ParkedCounts::count(self.store, address, self.now)?;
            return self.add_rows(status, &rows, step_counts.returned);
        };
        (status.delayed, status.pending) = (picked.delayed, picked.pending);
        let oldest = |key: Option<JobKey>| match key.and_then(|key| step_counts.spot(key)) {
            Some(spot) => age::of_spot(self.store, self.step, spot, self.now),
            None => Ok(None),
        };
        status.oldest = oldest(picked.summary.oldest)?;
        if self.has_lanes() {
            status.lanes = Some(lanes(&picked.summary, picked.lanes, true, oldest)?);
        }
        Ok(())
    }

    /// Adds the parked jobs; `coming` of them are being committed.
    fn add_rows(&self, status: &mut StepStatus, rows: &ParkedCounts, coming: u64) -> Result<(), ReadError> {
        let waiting = rows.waiting.saturating_sub(coming);
        let outputs = coming.saturating_sub(rows.waiting);
        (status.pending, status.delayed) = (rows.pending, rows.delayed.saturating_sub(outputs));
        let Some(first) = rows.first.filter(|_| waiting > 0) else { return Ok(()) };
        match &mut status.waiting {
            Some(others) => *others += waiting,
            None => *status.read.get_or_insert(0) += waiting,
        }
        let age = |oldest: &Oldest| oldest.age_seconds;
        let put_back = age::of_spot(self.store, self.step, &first, self.now)?;
        // It was the first of the jobs that were put back together.
        if put_back.as_ref().map(age) >= status.oldest.as_ref().map(age) {
            status.oldest = put_back;
        }
        Ok(())
    }

    fn held_behind(&self, (Turn { index, input }, due): (Turn, Timestamp)) -> HeldBehind {
        HeldBehind { job: format!("{}/{index}", self.step.inputs[input].address), until: rfc3339(due) }
    }

    fn has_lanes(&self) -> bool {
        self.lanes > 0 && self.step.picks().is_some_and(|queuer| queuer.lane.is_some())
    }

    /// The lanes as the next run would find them.
    fn add_stored_lanes(&self, status: &mut StepStatus) -> Result<(), ReadError> {
        if !self.has_lanes() {
            return Ok(());
        }
        let Some(view) = QueueView::from_store(self.store, self.configuration, self.step, self.now)? else {
            return Ok(());
        };
        let summary = view.room.summary(self.lanes, &std::collections::HashSet::new(), self.now);
        let oldest = |key: Option<JobKey>| match key {
            Some(key) => age::of_spot(self.store, self.step, &view.spot(key), self.now),
            None => Ok(None),
        };
        let count = view.room.counts().lanes as u64;
        status.lanes = Some(LanesStatus { cut: view.truncated, ..lanes(&summary, count, false, oldest)? });
        Ok(())
    }
}

/// The content of queues, and their readers. The number of jobs that wait for a step is that of [`status`].
pub(crate) fn queues(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
) -> Result<Answer, ReadError> {
    let steps = statuses(store, configuration, run, 0)?;
    let mut queues = Vec::new();
    let mut states = store.queues()?;
    // A queue with late jobs may have had no job before.
    for declared in &configuration.queues {
        let is_new = states.iter().all(|state| state.address != declared.address);
        if is_new && store.late_count(&declared.address)? > 0 {
            let address = declared.address.clone();
            states.push(QueueState { address, head: 0, first: 1, bytes: 0 });
        }
    }
    for queue in states {
        let name = queue.address.to_string();
        let readers = steps
            .iter()
            .filter(|step| step.input == name)
            .map(|step| ReaderStatus { step: step.step.clone(), waiting: step.waiting.unwrap_or(0) });
        let settings = configuration.queues.iter().find(|settings| settings.address == queue.address);
        // A removed queue without jobs only keeps its indices.
        if settings.is_none() && queue.jobs() == 0 {
            continue;
        }
        let errors = match settings {
            Some(settings) => settings.holds_errors,
            None => holds_records(store, &queue),
        };
        let open = if errors { Some(open(store, &queue)?) } else { None };
        queues.push(QueueStatus {
            queue: name.clone(),
            first: queue.first,
            head: queue.head,
            jobs: queue.jobs(),
            bytes: queue.bytes,
            errors,
            open,
            late: store.late_count(&queue.address)?,
            tables: tables_of(configuration, &queue.address),
            readers: readers.collect(),
        });
    }
    Ok(Answer::Queues(queues))
}

/// The names of the lookup tables that have the jobs of the queue as rows.
fn tables_of(configuration: &Configuration, queue: &Address) -> Vec<String> {
    let of_queue = configuration.queue_tables().filter(|(_, table)| table.queue == *queue);
    let names: BTreeSet<String> = of_queue.map(|(name, _)| name.to_string()).collect();
    names.into_iter().collect()
}

/// The answer for an unknown step.
pub(crate) fn missing(configuration: &Configuration, step: &str) -> Answer {
    let names: Vec<String> = configuration.steps.iter().map(|step| step.address.to_string()).collect();
    let hint = did_you_mean_address(step, names.iter().map(String::as_str)).map(|hint| format!("; {hint}"));
    Answer::Missing(format!("the configuration has no step `{step}`{}", hint.unwrap_or_default()))
}

/// The open and kept errors by the present name of their step, over all error queues.
fn open_by_step(store: &Store, configuration: &Configuration) -> Result<BTreeMap<Address, u64>, ReadError> {
    let mut by_step = BTreeMap::new();
    let names = store.name_history()?;
    let present = |step: Address, record: &[u8]| {
        if names.since(0).step(&step) == step {
            return step;
        }
        // Another step may have had this name before or since.
        let record: Option<RecordGeneration> = serde_json::from_slice(record).ok();
        names.since(record.map_or(0, |record| record.generation)).step(&step)
    };
    for state in error_queues(store, configuration)? {
        let queue = &state.address;
        let handled = store.handled(queue)?.unwrap_or_default();
        for (mut from, to) in open_ranges(&handled, state.first, state.head) {
            while from <= to {
                let jobs = usize::try_from(to - from + 1).unwrap_or(usize::MAX);
                let page = match store.read_details(queue, from, jobs, ERRORS_PAGE_BYTES) {
                    // Retention has just deleted the others.
                    Err(ReadError::Gone { first, .. }) if first > from => {
                        from = first;
                        continue;
                    }
                    page => page?,
                };
                let Some((batch, origins)) = page else { break };
                for (at, origin) in origins.into_iter().enumerate() {
                    let Some(origin) = origin else { continue };
                    let step = present(origin.step, batch.payloads.get(at).unwrap_or_default());
                    *by_step.entry(step).or_insert(0) += 1;
                }
                from = batch.end();
            }
        }
    }
    Ok(by_step)
}

/// The open errors that are still kept.
fn open(store: &Store, queue: &QueueState) -> Result<u64, ReadError> {
    open_from(store, queue, queue.first)
}

/// As [`open`], of the errors from `first` on.
fn open_from(store: &Store, queue: &QueueState, first: u64) -> Result<u64, ReadError> {
    let handled = store.handled(&queue.address)?.unwrap_or_default();
    let open = open_ranges(&handled, queue.first.max(first), queue.head);
    Ok(open.map(|(first, last)| last - first + 1).sum())
}

/// The errors that are open among the last `count` of an error queue.
pub(crate) fn open_of_last(store: &Store, queue: &Address, count: u64) -> Result<u64, ReadError> {
    let Some(queue) = store.queue(queue)? else { return Ok(0) };
    open_from(store, &queue, queue.head.saturating_sub(count) + 1)
}

fn lanes(
    summary: &LaneSummary,
    count: u64,
    runs: bool,
    oldest: impl Fn(Option<JobKey>) -> Result<Option<Oldest>, ReadError>,
) -> Result<LanesStatus, ReadError> {
    let mut top = Vec::with_capacity(summary.lanes.len());
    for lane in &summary.lanes {
        top.push(LaneStatus {
            lane: name(lane),
            waiting: lane.waiting as u64,
            running: runs.then_some(lane.running as u64),
            pending: lane.pending as u64,
            delayed: lane.delayed as u64,
            oldest: oldest(lane.oldest)?,
        });
    }
    Ok(LanesStatus { count, top, cut: false })
}

/// `None` if the jobs are in no lane, or their lane is missing.
fn name(lane: &LaneCounts) -> Option<String> {
    let own = lane.some.0.to_le_bytes();
    (!lane.lane.is_empty() && *lane.lane != own).then(|| String::from_utf8_lossy(&lane.lane).into_owned())
}

/// The kept jobs that a step has not accounted for.
fn waiting(queue: &QueueState, progress: &Progress) -> u64 {
    progress.count_open(queue.first, queue.head)
}

/// The first of them.
fn first_waiting(queue: &QueueState, progress: &Progress) -> Option<u64> {
    let mut first = progress.position().max(queue.first - 1) + 1;
    for &(from, last) in progress.finished() {
        if (from..=last).contains(&first) {
            first = last + 1;
        }
    }
    (first <= queue.head).then_some(first)
}
