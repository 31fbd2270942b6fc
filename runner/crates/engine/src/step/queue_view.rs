//! Queue view: shows the waiting jobs of a step, in a running engine or in a stopped store.

use std::collections::HashMap;

use super::counts::JobLocation;
use super::job_attributes::AttributeExtractor;
use crate::recovery::start_position;
use crate::step::held_lanes::held_lanes;
use tidegate_config::{Configuration, Input, Queuer, Step};
use tidegate_dispatch::{JobKey, QueueSnapshot, WaitingRoom, WaitingState};
use tidegate_model::{Address, ExternalStatus, Progress, Timestamp};
use tidegate_store::{ParkReason, ParkedId, ParkedJob, ReadError, Store};

/// Maximum number of jobs read together, and of their bytes.
const PAGE: usize = 4096;
const PAGE_BYTES: usize = 4 << 20;
/// Maximum number of jobs read from a stopped store.
pub const SCAN_MAX: u64 = 1_000_000;

/// Waiting jobs of a queued step, at one moment.
#[derive(Clone, Debug)]
pub struct QueueView {
    pub room: WaitingRoom,
    /// Rows of parked jobs.
    pub rows: HashMap<JobKey, ParkedId>,
    /// The step is paused by an operator.
    pub paused: bool,
    /// Time of the next check of its gate, which was closed at the last one.
    pub gate: Option<Timestamp>,
    /// Time before which nothing starts, because a job reported its gate closed.
    pub held_until: Option<Timestamp>,
    /// Last index that is considered, if search-ahead is limited.
    pub ahead: Option<u64>,
    /// Last index that was read.
    pub read: u64,
    /// A job halted the step.
    pub halted: bool,
    /// The first job that is not delivered, if the results of others wait for it.
    pub first_in_line: Option<JobKey>,
    /// Whether more jobs wait than were read.
    pub truncated: bool,
}

impl QueueView {
    pub(crate) fn new(look: &QueueSnapshot<'_>, rows: HashMap<JobKey, ParkedId>) -> Self {
        let QueueSnapshot { room, paused, gate, held_until, ahead, read, halted, first_in_line } = *look;
        let (room, truncated) = (room.clone(), false);
        Self { room, rows, paused, gate, held_until, ahead, read, halted, first_in_line, truncated }
    }

    /// View of a step as the next run would find it; `None` for an ordered step. Reads the jobs within
    /// search-ahead, at most [`SCAN_MAX`]. The jobs of a source are unknown before they are read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn from_store(
        store: &Store,
        configuration: &Configuration,
        step: &Step,
        now: Timestamp,
    ) -> Result<Option<Self>, ReadError> {
        let Some(queuer) = step.picks() else { return Ok(None) };
        let attributes = AttributeExtractor::new(queuer);
        let mut view = Self {
            room: WaitingRoom::new(attributes.rules()),
            rows: HashMap::new(),
            paused: store.pauses()?.iter().any(|pause| pause.step == step.address),
            gate: None,
            held_until: None,
            ahead: None,
            read: 0,
            halted: false,
            first_in_line: None,
            truncated: false,
        };
        for (lane, hold) in held_lanes(store, step)? {
            view.room.hold(lane.as_bytes(), Some(hold));
        }
        view.add_rows(store, step, &attributes, now)?;
        for input in &step.inputs {
            let progress = start_position::progress(store, step, input)?;
            let ahead = queuer.max_search_ahead.filter(|&ahead| ahead > 0);
            if let Some(ahead) = ahead {
                let watermark = start_position::watermark(store, step, input)?;
                view.ahead = Some(watermark.saturating_add(ahead));
            }
            let Input::Queue(queue) = input.input else { continue };
            if queuer.ordered {
                let first = start_position::watermark(store, step, input)? + 1;
                let row = store.first_parked_of(&step.address, (&input.hash_name(), first))?;
                let stored = row.map(|(key, _)| JobKey::stored(key.id.0));
                view.first_in_line = Some(stored.unwrap_or(JobKey::fresh(first)));
            }
            let queue = &configuration.queues[queue.0].address;
            view.add_jobs(store, queue, &attributes, &progress)?;
        }
        Ok(Some(view))
    }

    /// Location of a job.
    #[must_use]
    pub fn spot(&self, key: JobKey) -> JobLocation {
        JobLocation { key, row: self.rows.get(&key).copied(), read: None }
    }

    fn add_rows(
        &mut self,
        store: &Store,
        step: &Step,
        attributes: &AttributeExtractor,
        now: Timestamp,
    ) -> Result<(), ReadError> {
        for found in store.all_parked(&step.address) {
            if self.rows.len() as u64 >= SCAN_MAX {
                self.truncated = true;
                break;
            }
            let (row, job) = found?;
            let key = JobKey::stored(row.id.0);
            self.rows.insert(key, row.id);
            if job.output().is_none() {
                let place = (index(&job), job.first_attempt.unwrap_or(now));
                let state = state(&job);
                // Each job has its own number.
                let _ =
                    attributes.extract(key, place, &job.payload, |card| self.room.add(card.clone(), state));
                if has_freed_lane(&job, step) {
                    let _ = self.room.free_lane_of(key, now); // it is pending
                }
            }
        }
        Ok(())
    }

    fn add_jobs(
        &mut self,
        store: &Store,
        queue: &Address,
        attributes: &AttributeExtractor,
        progress: &Progress,
    ) -> Result<(), ReadError> {
        let Some(state) = store.queue(queue)? else { return Ok(()) };
        let first = state.first.max(progress.position() + 1);
        let in_reach = self.ahead.map_or(state.head, |ahead| state.head.min(ahead));
        let last = in_reach.min(first.saturating_add(SCAN_MAX - 1));
        self.truncated |= last < in_reach;
        let mut next = first;
        while next <= last {
            let Some(batch) = store.read(queue, next, PAGE, PAGE_BYTES)? else { break };
            for (position, payload) in batch.payloads.iter().enumerate() {
                let index = batch.first + position as u64;
                if progress.is_done(index) || index > last {
                    continue;
                }
                let since = batch.stamp(position).map_or(Timestamp(0), |stamp| stamp.time);
                let key = JobKey::fresh(index);
                // Each job has its own number.
                let _ = attributes.extract(key, (index, since), payload, |card| {
                    self.room.add(card.clone(), WaitingState::Waiting)
                });
            }
            next = batch.end();
        }
        self.read = last;
        Ok(())
    }
}

/// State of a parked job.
pub(crate) fn state(job: &ParkedJob) -> WaitingState {
    match job.reason {
        ParkReason::Delayed | ParkReason::Output { .. } => {
            WaitingState::Delayed { until: job.due.time().unwrap_or(Timestamp::LATEST) }
        }
        ParkReason::Started { .. } => WaitingState::Unknown,
        ParkReason::Pending { .. } | ParkReason::Completed { .. } => WaitingState::Pending,
        ParkReason::Finished { .. } => WaitingState::Finished,
    }
}

/// Whether a parked job of the step is pending, and its lane is free for the next jobs.
pub(crate) fn has_freed_lane(job: &ParkedJob, step: &Step) -> bool {
    job.reason.status() == Some(ExternalStatus::Valid)
        && step.picks().is_some_and(Queuer::frees_lane_when_valid)
}

/// Index of a parked job in the input.
pub(crate) fn index(job: &ParkedJob) -> u64 {
    job.inputs.first().map_or(0, |&(_, index)| index)
}
