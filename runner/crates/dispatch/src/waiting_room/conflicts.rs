//! Conflict index: finds the jobs of a lane that block each other by the keys they read and write.
//!
//! For every content key of a lane, the unfinished jobs that use it are kept in order. The reads before the
//! first write are free at the key; without such reads, the first write is free. A job that is free at all of
//! its keys is not blocked.

use std::collections::{BTreeMap, HashMap};

use super::policy::JobId;
use super::slab::{JobState, Slab};

#[derive(Clone, Debug, Default)]
pub(crate) struct Conflicts(HashMap<(u32, u64), Touches>);

/// Unfinished jobs that use one content key of a lane.
#[derive(Clone, Debug, Default)]
struct Touches {
    reads: BTreeMap<Touch, u32>,
    writes: BTreeMap<Touch, u32>,
}

/// Order of the jobs at a key: jobs that run or are pending, jobs that have started before, then the others; by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Touch {
    rank: Rank,
    age: i64,
    id: JobId,
    key: u64,
}

/// Several jobs in conflict may have started under earlier rules, so that an older one has to wait for a younger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Held,
    Started,
    Fresh,
}

impl Rank {
    /// `None` if a job of this state blocks no other.
    pub(crate) fn of(job_state: JobState) -> Option<Self> {
        match job_state {
            JobState::Running | JobState::Pending => Some(Self::Held),
            JobState::Unknown | JobState::PutBack | JobState::Due | JobState::Delayed => Some(Self::Started),
            JobState::Waiting => Some(Self::Fresh),
            JobState::Valid | JobState::Finished | JobState::Free => None,
        }
    }
}

/// Jobs that are blocked, or no longer blocked, at one more of their keys.
#[derive(Debug, Default)]
pub(crate) struct BlockChanges {
    pub(crate) held: Vec<u32>,
    pub(crate) freed: Vec<u32>,
}

impl Conflicts {
    /// Adds a job, if its state blocks others.
    pub(crate) fn enter(&mut self, slot: u32, jobs: &Slab) -> BlockChanges {
        let mut changes = BlockChanges::default();
        let Some(touch) = touch(slot, jobs) else { return changes };
        for (key, write) in keys(slot, jobs) {
            let touches = self.0.entry((jobs.lane(slot), key)).or_default();
            touches.enter(touch.clone(), slot, write, &mut changes);
        }
        changes
    }

    /// Removes a job, whose state has not changed since it entered. It is no longer blocked itself.
    pub(crate) fn leave(&mut self, slot: u32, jobs: &Slab) -> BlockChanges {
        let mut changes = BlockChanges::default();
        let Some(touch) = touch(slot, jobs) else { return changes };
        for (key, write) in keys(slot, jobs) {
            let place = (jobs.lane(slot), key);
            if let Some(touches) = self.0.get_mut(&place) {
                touches.leave(&touch, write, &mut changes);
                if touches.reads.is_empty() && touches.writes.is_empty() {
                    self.0.remove(&place);
                }
            }
        }
        changes
    }

    /// Records the start of a waiting job that is not blocked. The start blocks and frees no other job.
    pub(crate) fn starts(&mut self, slot: u32, jobs: &Slab) {
        let Some(before) = touch(slot, jobs) else { return };
        let after = Touch { rank: Rank::Held, ..before.clone() };
        for (key, write) in keys(slot, jobs) {
            if let Some(touches) = self.0.get_mut(&(jobs.lane(slot), key)) {
                let side = if write { &mut touches.writes } else { &mut touches.reads };
                side.remove(&before);
                side.insert(after.clone(), slot);
            }
        }
    }

    /// An earlier job that blocks this one.
    pub(crate) fn holder(&self, slot: u32, jobs: &Slab) -> Option<u32> {
        let touch = touch(slot, jobs)?;
        keys(slot, jobs).find_map(|(key, write)| {
            let touches = self.0.get(&(jobs.lane(slot), key))?;
            let first = |side: &BTreeMap<Touch, u32>| side.range(..&touch).next().map(|(_, &slot)| slot);
            first(&touches.writes).or_else(|| first(&touches.reads).filter(|_| write))
        })
    }
}

impl Touches {
    fn enter(&mut self, touch: Touch, slot: u32, write: bool, changes: &mut BlockChanges) {
        let frontier = self.writes.first_key_value();
        let behind = frontier.is_some_and(|(first, _)| *first < touch);
        if !write {
            if behind {
                changes.held.push(slot);
            } else {
                changes.held.extend(self.free_write());
            }
            self.reads.insert(touch, slot);
            return;
        }
        if behind || self.reads.first_key_value().is_some_and(|(first, _)| *first < touch) {
            changes.held.push(slot);
        }
        if !behind {
            changes.held.extend(self.free_write());
            changes.held.extend(self.reads_from(&touch));
        }
        self.writes.insert(touch, slot);
    }

    fn leave(&mut self, touch: &Touch, write: bool, changes: &mut BlockChanges) {
        let frontier = self.writes.first_key_value().map(|(first, _)| first.clone());
        if !write {
            self.reads.remove(touch);
            // It blocked the first write if it was before the write and no other read is.
            if frontier.is_some_and(|first| *touch < first) {
                changes.freed.extend(self.free_write());
            }
            return;
        }
        self.writes.remove(touch);
        if frontier.as_ref() == Some(touch) {
            changes.freed.extend(self.reads_from(touch));
            changes.freed.extend(self.free_write());
        }
    }

    /// First write, if no read is before it.
    fn free_write(&self) -> Option<u32> {
        let (write, &slot) = self.writes.first_key_value()?;
        let read = self.reads.first_key_value();
        read.is_none_or(|(read, _)| write < read).then_some(slot)
    }

    /// Reads after `touch` and before the first write.
    fn reads_from(&self, touch: &Touch) -> impl Iterator<Item = u32> {
        let frontier = self.writes.first_key_value().map(|(write, _)| write);
        let free = move |(read, _): &(&Touch, &u32)| frontier.is_none_or(|first| *read < first);
        self.reads.range(touch..).take_while(free).map(|(_, &slot)| slot)
    }
}

fn touch(slot: u32, jobs: &Slab) -> Option<Touch> {
    let rank = Rank::of(jobs.job_state(slot))?;
    let id = jobs.extra(slot).map_or(JobId::None, |extra| extra.id.clone());
    Some(Touch { rank, age: jobs.age(slot), id, key: jobs.key(slot).0 })
}

/// Content keys of a job, each once, with whether the job writes the key.
fn keys(slot: u32, jobs: &Slab) -> impl Iterator<Item = (u64, bool)> {
    let extra = jobs.extra(slot);
    let reads = extra.into_iter().flat_map(|extra| extra.reads.iter().map(|&key| (key, false)));
    let writes = extra.into_iter().flat_map(|extra| extra.writes.iter().map(|&key| (key, true)));
    reads.chain(writes)
}
