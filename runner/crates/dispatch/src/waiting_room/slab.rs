//! Job slab: keeps each job of the waiting room in a numbered slot of 36 bytes, plus extra data for a few
//! jobs.

use std::cmp::Ordering;

use super::chunked_vec::ChunkedVec;
use super::heap::Ranking;
use super::key_index::{KeyIndex, mix};
use super::policy::{JobId, JobKey, WaitingState};
use tidegate_model::Timestamp;

/// Marks a missing slot, lane, list or position.
pub(crate) const NONE: u32 = u32::MAX;

/// Maximum number of jobs.
const MOST: u32 = u32::MAX - 1;

/// State of a job, in the order in which jobs of one lane start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobState {
    Unknown,
    PutBack,
    /// Its delay is over: a round or its lane takes it before waiting jobs.
    Due,
    Waiting,
    Delayed,
    Running,
    Pending,
    /// It is pending, and its lane is free.
    Valid,
    /// It is finished, and delivered after jobs that came before it.
    Finished,
    /// The slot has no job.
    Free,
}

impl JobState {
    /// Whether the step or an external system has the job.
    pub(crate) fn is_held(self) -> bool {
        matches!(self, Self::Running | Self::Pending)
    }

    /// Whether its lane is free for other jobs.
    pub(crate) fn frees_lane(self) -> bool {
        matches!(self, Self::Valid | Self::Finished)
    }
}

/// Kind of the list that a job is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Nowhere,
    /// A list of its lane, or of all lanes if they share one.
    Lane,
    /// The list of jobs that a round takes before those of the lanes.
    Urgent,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    job_state: JobState,
    list: ListKind,
    /// Parity of the list.
    turn: bool,
    /// Whether it came out of order and is in the heap of its list.
    stray: bool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    key: u64,
    age: i64,
    /// Depending on its state: its neighbours in the list, its position in the heap, the end of its delay, or the state
    /// from which it started. In a free slot, the next free one.
    place: u64,
    lane: u32,
    extra: u32,
}

/// Data that most jobs do not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    /// Rank before age: priority and aging in one number, smaller first.
    pub(crate) rank: i128,
    pub(crate) id: JobId,
    pub(crate) reads: Box<[u64]>,
    pub(crate) writes: Box<[u64]>,
    /// Number of its content keys that block it.
    pub(crate) blocked: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Slab {
    jobs: ChunkedVec<Job>,
    marks: ChunkedVec<Mark>,
    index: KeyIndex,
    extras: Vec<Extra>,
    free_extras: Vec<u32>,
    free: u32,
    len: usize,
    /// Whether rank goes before age.
    ranked: bool,
}

impl Slab {
    pub(crate) fn new(ranked: bool) -> Self {
        Self {
            jobs: ChunkedVec::default(),
            marks: ChunkedVec::default(),
            index: KeyIndex::default(),
            extras: Vec::new(),
            free_extras: Vec::new(),
            free: NONE,
            len: 0,
            ranked,
        }
    }

    pub(crate) fn find(&self, key: JobKey) -> Option<u32> {
        self.index.find(mix(key.0), |slot| self.jobs[slot].key == key.0)
    }

    /// Adds a job that is not in the waiting room and returns its slot; `None` if all slots are in use.
    pub(crate) fn insert(&mut self, key: JobKey, age: i64, lane: u32, extra: Option<Extra>) -> Option<u32> {
        let extra = extra.map_or(NONE, |extra| self.keep(extra));
        let job = Job { key: key.0, age, place: 0, lane, extra };
        let mark = Mark { job_state: JobState::Waiting, list: ListKind::Nowhere, turn: false, stray: false };
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.jobs.len()).ok().filter(|&slot| slot < MOST)?;
            self.jobs.push(job);
            self.marks.push(mark);
            slot
        } else {
            let slot = self.free;
            self.free = self.links(slot).1;
            self.jobs[slot] = job;
            self.marks[slot] = mark;
            slot
        };
        self.len += 1;
        let jobs = &self.jobs;
        self.index.insert(mix(key.0), slot, |slot| mix(jobs[slot].key));
        Some(slot)
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let Job { key, extra, .. } = self.jobs[slot];
        self.index.remove(mix(key), slot);
        if extra != NONE {
            self.extras[extra as usize] = Extra::default();
            self.free_extras.push(extra);
        }
        self.len -= 1;
        if self.len == 0 {
            *self = Self::new(self.ranked);
            return;
        }
        self.marks[slot].job_state = JobState::Free;
        self.set_links(slot, NONE, self.free);
        self.free = slot;
    }

    /// Slots that have a job.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        let taken = |&(_, mark): &(u32, &Mark)| mark.job_state != JobState::Free;
        (0..).zip(self.marks.iter()).filter(taken).map(|(slot, _)| slot)
    }

    pub(crate) fn key(&self, slot: u32) -> JobKey {
        JobKey(self.jobs[slot].key)
    }

    pub(crate) fn age(&self, slot: u32) -> i64 {
        self.jobs[slot].age
    }

    pub(crate) fn lane(&self, slot: u32) -> u32 {
        self.jobs[slot].lane
    }

    pub(crate) fn job_state(&self, slot: u32) -> JobState {
        self.marks[slot].job_state
    }

    pub(crate) fn set_job_state(&mut self, slot: u32, job_state: JobState) {
        self.marks[slot].job_state = job_state;
    }

    pub(crate) fn list(&self, slot: u32) -> (ListKind, bool) {
        let mark = self.marks[slot];
        (mark.list, mark.turn)
    }

    pub(crate) fn set_hall(&mut self, slot: u32, list: ListKind, turn: bool) {
        let mark = &mut self.marks[slot];
        (mark.list, mark.turn) = (list, turn);
    }

    pub(crate) fn is_stray(&self, slot: u32) -> bool {
        self.marks[slot].stray
    }

    pub(crate) fn set_stray(&mut self, slot: u32, stray: bool) {
        self.marks[slot].stray = stray;
    }

    /// Jobs before and after it in its list.
    pub(crate) fn links(&self, slot: u32) -> (u32, u32) {
        let place = self.jobs[slot].place;
        #[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
        (place as u32, (place >> 32) as u32)
    }

    pub(crate) fn set_links(&mut self, slot: u32, before: u32, after: u32) {
        self.jobs[slot].place = u64::from(before) | u64::from(after) << 32;
    }

    /// Its position in the heap of its list.
    pub(crate) fn place(&self, slot: u32) -> u32 {
        self.links(slot).0
    }

    pub(crate) fn until(&self, slot: u32) -> Timestamp {
        Timestamp(self.jobs[slot].place.cast_signed())
    }

    pub(crate) fn set_until(&mut self, slot: u32, until: Timestamp) {
        self.jobs[slot].place = until.0.cast_unsigned();
    }

    /// State from which a running job started; `None` if it was running when it came.
    pub(crate) fn started_from(&self, slot: u32) -> Option<JobState> {
        const ALL: [JobState; 4] = [JobState::Unknown, JobState::PutBack, JobState::Due, JobState::Waiting];
        ALL.into_iter().find(|&state| self.jobs[slot].place == state as u64 + 1)
    }

    pub(crate) fn set_started_from(&mut self, slot: u32, state: JobState) {
        // 0 is the place of a job that came as running.
        self.jobs[slot].place = state as u64 + 1;
    }

    pub(crate) fn state(&self, slot: u32) -> WaitingState {
        match self.job_state(slot) {
            JobState::Unknown => WaitingState::Unknown,
            JobState::PutBack | JobState::Due | JobState::Waiting | JobState::Free => WaitingState::Waiting,
            JobState::Delayed => WaitingState::Delayed { until: self.until(slot) },
            JobState::Running => WaitingState::Running,
            JobState::Pending | JobState::Valid => WaitingState::Pending,
            JobState::Finished => WaitingState::Finished,
        }
    }

    pub(crate) fn extra(&self, slot: u32) -> Option<&Extra> {
        self.extras.get(self.jobs[slot].extra as usize)
    }

    pub(crate) fn extra_mut(&mut self, slot: u32) -> Option<&mut Extra> {
        self.extras.get_mut(self.jobs[slot].extra as usize)
    }

    /// Whether a conflict blocks it.
    pub(crate) fn is_blocked(&self, slot: u32) -> bool {
        self.extra(slot).is_some_and(|extra| extra.blocked > 0)
    }

    /// Order of two jobs. No two jobs are equal.
    pub(crate) fn compare(&self, a: u32, b: u32) -> Ordering {
        let (left, right) = (&self.jobs[a], &self.jobs[b]);
        let by_stand = self.job_state(a).cmp(&self.job_state(b));
        if left.extra == NONE && right.extra == NONE {
            return by_stand.then(left.age.cmp(&right.age)).then(left.key.cmp(&right.key));
        }
        let extra = |slot| self.extra(slot).map_or((0, &JobId::None), |extra| (extra.rank, &extra.id));
        let ((left_rank, left_id), (right_rank, right_id)) = (extra(a), extra(b));
        by_stand
            .then(left_rank.cmp(&right_rank))
            .then(left.age.cmp(&right.age))
            .then(left_id.cmp(right_id))
            .then(left.key.cmp(&right.key))
    }

    /// Hint of a job: the job with the smaller hint goes first.
    pub(crate) fn hint(&self, slot: u32) -> (JobState, i64) {
        let Job { age, extra, .. } = self.jobs[slot];
        let rank = self.extras.get(extra as usize).map_or(0, |extra| extra.rank);
        let hint = match rank {
            0 if !self.ranked => age,
            rank => rank.clamp(i64::MIN.into(), i64::MAX.into()).try_into().unwrap_or(i64::MAX),
        };
        (self.job_state(slot), hint)
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let extras = self.extras.capacity() * size_of::<Extra>();
        self.jobs.bytes() + self.marks.bytes() + extras + self.index.bytes()
    }

    fn keep(&mut self, extra: Extra) -> u32 {
        if let Some(free) = self.free_extras.pop() {
            self.extras[free as usize] = extra;
            return free;
        }
        self.extras.push(extra);
        // There are no more of them than jobs.
        u32::try_from(self.extras.len() - 1).unwrap_or(NONE)
    }
}

impl Ranking for Slab {
    // A list may have as many stray jobs as there are jobs, so an entry must be one number.
    type Hint = ();

    fn hint(&self, _: u32) {}

    fn before(&self, a: u32, b: u32) -> bool {
        self.compare(a, b) == Ordering::Less
    }

    fn placed(&mut self, item: u32, at: u32) {
        self.set_links(item, at, NONE);
    }
}
