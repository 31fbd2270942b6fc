//! A step that picks its jobs by the rules of a queuer: the room where they wait, and its batches between
//! being picked and being committed.

use std::collections::{BTreeMap, BTreeSet};

use super::flow::{BatchId, Before, Command, Feed, Flow, JobEnd, Picking, Port, ReadId};
use super::glance::Glance;
use super::input::{InputState, Reading};
use super::step::{Around, Look, Machine, Mode, StepEvent};
use super::stream::number;
use crate::decide::Progress;
use crate::decide::queuer::{Card, JobKey, State, WaitingRoom};
use crate::words::Timestamp;

mod beyond;

mod looking;

use beyond::Beyond;

/// So many outputs that were made already are handed on in one batch.
const LATE_BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct Picker {
    position: usize,
    before: Before,
    input: InputState,
    feed: Option<Feed>,
    room: WaitingRoom,
    /// Jobs of the input that somebody takes out, until it is known what became of them.
    withheld: BTreeSet<u64>,
    /// Outputs that were made already, by when they are due.
    late: BTreeSet<(Timestamp, JobKey)>,
    /// Jobs that were pending, and of which is known what became of them.
    settling: Vec<JobKey>,
    search_ahead: u64,
    /// Jobs that were read and are past it.
    beyond: Beyond,
    /// The last index of the queue when the step first could start anything.
    first_head: Option<u64>,
    batch: usize,
    aside: bool,
    gate: Option<Gate>,
    /// Nothing starts before this: a job has said so.
    held_until: Option<Timestamp>,
    /// When that was heard.
    held_since: Timestamp,
    progress: Progress,
    batches: BTreeMap<BatchId, BatchState>,
    /// Of a source, which cannot be asked for single jobs: what was read and is not through.
    reads: BTreeMap<u64, ReadState>,
    /// Bytes of those, and of the outputs of batches.
    held: usize,
    end: Halting,
    broken: bool,
    /// Jobs that were picked; kept to spare allocations.
    picked: Vec<JobKey>,
}

/// How far a step is that stops at a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Halting {
    No,
    /// What runs comes home, and is delivered.
    Delivering,
    /// What runs comes home, and nothing of it can be delivered.
    Failed,
    Halted,
}

#[derive(Debug)]
struct Gate {
    every: i64,
    open: bool,
    asked: bool,
    /// When it was looked at last.
    looked: Option<Timestamp>,
}

#[derive(Debug)]
struct BatchState {
    jobs: Vec<JobKey>,
    ends: Vec<JobEnd>,
    bytes: usize,
    phase: Phase,
    /// Nothing of it is attempted: it tells what became of jobs that were pending.
    settles: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its jobs are fetched.
    Picked,
    Ready,
    Beginning,
    Begun,
    Running,
    Committing {
        halts: bool,
    },
}

#[derive(Debug)]
struct ReadState {
    read: ReadId,
    bytes: usize,
    /// The index after its last job.
    end: u64,
    /// How many of its jobs are not through.
    left: usize,
}

impl Picker {
    pub(super) fn new(position: usize, flow: &Flow, picking: Picking) -> Self {
        let Picking { rules, search_ahead, batch, aside, gate, progress } = picking;
        let every = |every: std::time::Duration| i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
        let gate = gate.map(|time| Gate { every: every(time), open: false, asked: false, looked: None });
        let feed = flow.inputs.first().map(|input| input.feed);
        let next = flow.inputs.first().map_or(1, |input| input.next);
        Self {
            position,
            before: flow.before,
            input: InputState::new(feed.unwrap_or(Feed::Source), next),
            feed,
            room: WaitingRoom::new(rules),
            withheld: BTreeSet::new(),
            late: BTreeSet::new(),
            settling: Vec::new(),
            search_ahead,
            beyond: Beyond::default(),
            first_head: None,
            batch,
            aside,
            gate,
            held_until: None,
            held_since: Timestamp(0),
            progress,
            batches: BTreeMap::new(),
            reads: BTreeMap::new(),
            held: 0,
            end: if feed.is_none() { Halting::Halted } else { Halting::No },
            broken: false,
            picked: Vec::new(),
        }
    }

    fn took(&mut self, read: ReadId, first: u64, jobs: usize, bytes: usize, commands: &mut Vec<Command>) {
        self.input.skip_to(first + jobs as u64);
        if self.feed == Some(Feed::Source) && self.end < Halting::Halted {
            let end = first + jobs as u64;
            let through = (first..end).filter(|&index| self.progress.has(index)).count();
            if through < jobs {
                self.held += bytes;
                self.reads.insert(first, ReadState { read, bytes, end, left: jobs - through });
                return;
            }
        }
        commands.push(Command::Forget { read });
    }

    fn read(&mut self, around: &Around<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        // What was finished by earlier runs need not be seen, and may be kept no longer.
        if self.input.reading == Reading::Ready && self.input.next <= self.progress.watermark() {
            self.input.skip_to(self.progress.watermark() + 1);
        }
        let ahead = self.ahead().is_none_or(|ahead| self.input.next <= ahead);
        let fits = self.held < around.bounds.bytes || self.reads.is_empty();
        if ahead && fits && self.input.may_read(around.heads, now) {
            self.input.ask();
            let port = Port { step: self.position, input: 0 };
            commands.push(Command::Read { port, from: self.input.next });
        }
    }

    /// The last index that is looked at, where there is a bound.
    fn ahead(&self) -> Option<u64> {
        (self.search_ahead > 0).then(|| self.progress.watermark().saturating_add(self.search_ahead))
    }

    /// Whether it still reads what waited before it could start anything, and might choose of that.
    fn catches_up(&mut self, heads: &[u64]) -> bool {
        let Some((_, head)) = self.input.behind(heads).filter(|_| self.room.chooses_among_all()) else {
            return false;
        };
        let first_head = *self.first_head.get_or_insert(head);
        let reads_on = matches!(self.input.reading, Reading::Ready | Reading::Asked);
        reads_on && self.input.next <= first_head.min(self.ahead().unwrap_or(u64::MAX))
    }

    /// Lets in what search-ahead has come to.
    fn admit(&mut self) {
        let ahead = self.ahead().unwrap_or(u64::MAX);
        while let Some(kept) = self.beyond.pop(ahead) {
            self.let_in(&kept.card(), State::Waiting);
        }
    }

    fn let_in(&mut self, card: &Card<'_>, state: State) {
        let index = card.key.0;
        if !(card.key.is_fresh() && (self.progress.has(index) || self.withheld.contains(&index))) {
            // A job that is there already stays as it is.
            let _ = self.room.add(card.clone(), state);
        }
    }

    /// Hands on outputs that are due; no gate and no rule holds them.
    fn pick_late(&mut self, around: &mut Around<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        let later = self.late.split_off(&(Timestamp(now.0.saturating_add(1)), JobKey(0)));
        let due = std::mem::replace(&mut self.late, later);
        let due: Vec<JobKey> = due.into_iter().map(|(_, key)| key).collect();
        for jobs in due.chunks(LATE_BATCH) {
            self.add_batch(jobs.to_vec(), false, around, commands);
        }
    }

    /// Delivers what became of jobs that were pending; no gate and no rule holds that.
    fn settle_pending(&mut self, around: &mut Around<'_>, commands: &mut Vec<Command>) {
        let jobs = std::mem::take(&mut self.settling);
        for jobs in jobs.chunks(LATE_BATCH) {
            self.add_batch(jobs.to_vec(), true, around, commands);
        }
    }

    fn add_batch(
        &mut self,
        jobs: Vec<JobKey>,
        settles: bool,
        around: &mut Around<'_>,
        commands: &mut Vec<Command>,
    ) {
        let (step, batch) = (self.position, number(around.next_batch));
        let state =
            BatchState { jobs: jobs.clone(), ends: Vec::new(), bytes: 0, phase: Phase::Picked, settles };
        self.batches.insert(batch, state);
        commands.push(Command::Pick { step, batch, jobs });
    }

    /// Picks what may start.
    fn pick(&mut self, around: &mut Around<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        // A clock that was set back makes nothing wait for long.
        if self.held_until.is_some_and(|until| until <= now) || now < self.held_since {
            self.held_until = None;
        }
        if self.held_until.is_some() || self.catches_up(around.heads) || !self.passes_gate(now, commands) {
            return;
        }
        while self.aside || self.batches.len() < around.bounds.batches {
            self.room.start(now, self.batch, &mut self.picked);
            if self.picked.is_empty() {
                return;
            }
            let jobs = std::mem::take(&mut self.picked);
            self.add_batch(jobs, false, around, commands);
        }
    }

    /// Whether the gate is open; where that is not known, it is asked for if anything waits.
    fn passes_gate(&mut self, now: Timestamp, commands: &mut Vec<Command>) -> bool {
        let Some(gate) = &mut self.gate else { return true };
        if gate.is_fresh(now) {
            return gate.open;
        }
        let counts = self.room.counts();
        let waits = counts.waiting > 0 || self.room.next_wake(now).is_some_and(|wake| wake <= now);
        if waits && !gate.asked {
            gate.asked = true;
            commands.push(Command::LookAtGate { step: self.position });
        }
        false
    }

    /// Has batches begun that need it.
    fn begin(&mut self, commands: &mut Vec<Command>) {
        if self.before == Before::Nothing {
            return;
        }
        for (&batch, state) in &mut self.batches {
            if state.phase == Phase::Ready && !state.settles {
                state.phase = Phase::Beginning;
                commands.push(Command::Begin { step: self.position, batch, before: self.before });
            }
        }
    }

    fn ran(
        &mut self,
        id: BatchId,
        (taken, halts): (usize, bool),
        bytes: usize,
        ends: Vec<JobEnd>,
        commands: &mut Vec<Command>,
    ) {
        // Whoever tells it again, or unasked, tells nothing.
        let Some(batch) = self.batches.get_mut(&id).filter(|batch| batch.phase == Phase::Running) else {
            return;
        };
        if self.end == Halting::Failed {
            // Nothing of it is delivered any more; it only had to come home.
            self.batches.remove(&id);
            commands.push(Command::Drop { batch: id });
            return self.settle_halt();
        }
        debug_assert!(
            taken == ends.len() && taken <= batch.jobs.len() && (halts || taken == batch.jobs.len())
        );
        batch.ends = ends;
        batch.bytes += bytes;
        batch.phase = Phase::Committing { halts };
        self.held += bytes;
        if halts {
            self.end = self.end.max(Halting::Delivering);
        }
        commands.push(Command::Commit { step: self.position, batch: id, taken });
    }

    fn committed(&mut self, id: BatchId, now: Timestamp, commands: &mut Vec<Command>) {
        let Some(batch) = self.batches.remove(&id) else { return };
        self.held = self.held.saturating_sub(batch.bytes);
        let watermark = self.progress.watermark();
        let mut through = Vec::with_capacity(batch.jobs.len());
        for (&key, &end) in batch.jobs.iter().zip(&batch.ends) {
            // The room knows all that it has given, so that nothing is refused.
            let _ = match end {
                JobEnd::Finished => self.room.finished(key, now),
                JobEnd::Delayed(until) => self.room.delay(key, until, now),
                JobEnd::Pending => self.room.pend(key, now),
                JobEnd::Forgotten => self.room.forgot(key),
                JobEnd::Held(until) => {
                    (self.held_until, self.held_since) = (self.held_until.max(Some(until)), now);
                    self.room.put_back(key)
                }
            };
            // What is not finished stands in the store by itself, and is read no more.
            if key.is_fresh() && !self.progress.has(key.0) {
                through.push((key.0, key.0));
                self.let_go(key.0, commands);
            }
        }
        self.progress.finish_all(&mut through);
        if self.progress.watermark() > watermark {
            let (step, watermark) = (self.position, self.progress.watermark());
            commands.push(Command::Passed { step, watermark });
        }
        for &key in &batch.jobs[batch.ends.len()..] {
            let _ = self.room.put_back(key); // as above
        }
        self.settle_halt();
    }

    /// A job of a source is through.
    fn let_go(&mut self, index: u64, commands: &mut Vec<Command>) {
        let Some((&first, state)) = self.reads.range_mut(..=index).next_back() else { return };
        if index >= state.end {
            return;
        }
        state.left = state.left.saturating_sub(1);
        if state.left == 0 {
            self.held = self.held.saturating_sub(state.bytes);
            commands.push(Command::Forget { read: state.read });
            self.reads.remove(&first);
        }
    }

    fn settle_halt(&mut self) {
        if self.end > Halting::No && self.batches.is_empty() {
            self.end = Halting::Halted;
        }
    }

    /// Gives up what nobody has begun.
    fn drop_unbegun(&mut self, commands: &mut Vec<Command>) {
        let unbegun = |state: &BatchState| matches!(state.phase, Phase::Picked | Phase::Ready);
        let room = &mut self.room;
        self.batches.retain(|&batch, state| {
            if !unbegun(state) {
                return true;
            }
            for &key in &state.jobs {
                let _ = room.put_back(key); // it was given by the room
            }
            commands.push(Command::Drop { batch });
            false
        });
    }

    /// When something may start that waits in the room.
    fn room_wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let room = self.room.next_wake(now);
        let Some(gate) = &self.gate else { return room.max(self.held_until) };
        if gate.asked {
            return None;
        }
        if gate.open && gate.is_fresh(now) {
            return room.max(self.held_until);
        }
        let waits = if self.room.counts().waiting > 0 { Some(now) } else { room };
        let looks = gate.looked.map_or(now, |looked| Timestamp(looked.0.saturating_add(gate.every)));
        waits.map(|waits| waits.max(looks)).max(self.held_until)
    }
}

impl Machine for Picker {
    fn handle(&mut self, event: StepEvent, now: Timestamp, commands: &mut Vec<Command>) {
        match event {
            StepEvent::Read { read, first, jobs, bytes, .. } => self.took(read, first, jobs, bytes, commands),
            StepEvent::Idle { .. } => self.input.idle(),
            StepEvent::Ended { .. } => self.input.reading = Reading::Ended,
            StepEvent::Broken { .. } => {
                self.input.reading = Reading::Ended;
                self.broken = true;
            }
            StepEvent::Picked { batch, bytes } => {
                if let Some(state) = self.batches.get_mut(&batch) {
                    state.phase = Phase::Ready;
                    state.bytes += bytes;
                    self.held += bytes;
                }
            }
            StepEvent::Begun { batch } => {
                if let Some(state) = self.batches.get_mut(&batch) {
                    state.phase = Phase::Begun;
                }
            }
            StepEvent::Ran { batch, taken, halts, bytes, ends } => {
                self.ran(batch, (taken, halts), bytes, ends, commands);
            }
            StepEvent::Committed { batch } => self.committed(batch, now, commands),
            StepEvent::Gate { open } => {
                if let Some(gate) = &mut self.gate {
                    (gate.open, gate.asked, gate.looked) = (open, false, Some(now));
                }
            }
            StepEvent::Failed => {
                self.end = self.end.max(Halting::Failed);
                self.batches.retain(|&batch, state| {
                    let runs = state.phase == Phase::Running;
                    if !runs {
                        commands.push(Command::Drop { batch });
                    }
                    runs
                });
                self.settle_halt();
            }
            // What comes again is told job by job; progress is put back by the next run only.
            StepEvent::Returned { .. } | StepEvent::NoneDue { .. } | StepEvent::Rewind => {}
        }
    }

    fn saw(&mut self, card: &Card<'_>, state: State) {
        if card.key.is_fresh() && self.ahead().is_some_and(|ahead| card.key.0 > ahead) {
            self.beyond.push(card);
        } else {
            self.let_in(card, state);
        }
    }

    fn saw_late(&mut self, key: JobKey, due: Timestamp) {
        self.late.insert((due, key));
    }

    fn settle(&mut self, mut jobs: Vec<JobKey>) {
        self.settling.append(&mut jobs);
    }

    fn state(&self, key: JobKey) -> Option<State> {
        let late = || self.late.iter().find(|&&(_, late)| late == key);
        let room = self.room.state(key).or_else(|| self.beyond.has(key).then_some(State::Waiting));
        room.or_else(|| late().map(|&(until, _)| State::Delayed { until }))
    }

    fn reschedule(&mut self, key: JobKey, due: Timestamp) {
        if let Some(&late) = self.late.iter().find(|&&(_, late)| late == key) {
            self.late.remove(&late);
            self.late.insert((due, key));
        } else {
            // One that is not delayed is due, and stays so.
            let _ = self.room.reschedule(key, due);
        }
    }

    fn cancel(&mut self, key: JobKey, now: Timestamp) {
        self.late.retain(|&(_, late)| late != key);
        if key.is_fresh() && !self.progress.has(key.0) {
            self.withheld.insert(key.0);
        }
        self.beyond.remove(key);
        // One that runs was not taken out, and stays.
        let _ = self.room.cancel(key, now);
    }

    fn withholds(&self, index: u64) -> bool {
        self.withheld.contains(&index)
    }

    fn release(&mut self, index: u64) {
        self.withheld.remove(&index);
    }

    fn account(&mut self, index: u64, commands: &mut Vec<Command>) {
        self.withheld.remove(&index);
        self.progress.finish(index, index);
        self.let_go(index, commands);
        let (step, watermark) = (self.position, self.progress.watermark());
        commands.push(Command::Passed { step, watermark });
    }

    fn look(&self) -> Option<Look<'_>> {
        Some(self.seen())
    }

    fn glance(&self, heads: &[u64], lanes: usize, now: Timestamp) -> Glance {
        self.counted(heads, lanes, now)
    }

    fn advance(&mut self, around: &mut Around<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        if self.end == Halting::Halted {
            return;
        }
        match around.mode {
            Mode::Paused => {}
            _ if self.end > Halting::No => {
                self.drop_unbegun(commands);
                self.settle_halt();
            }
            Mode::Stopping => self.drop_unbegun(commands),
            Mode::Open => {
                self.admit();
                self.pick_late(around, now, commands);
                self.settle_pending(around, commands);
                self.pick(around, now, commands);
                self.begin(commands);
                self.read(around, now, commands);
            }
        }
    }

    fn run(&mut self, paused: bool, free_slots: &mut usize, commands: &mut Vec<Command>) {
        for (&batch, state) in &mut self.batches {
            let at_once = (self.before == Before::Nothing || state.settles) && !paused;
            let first = if at_once { Phase::Ready } else { Phase::Begun };
            if *free_slots == 0 && !self.aside {
                return;
            }
            if state.phase == first && self.end < Halting::Halted {
                state.phase = Phase::Running;
                *free_slots -= usize::from(!self.aside);
                commands.push(Command::Run { step: self.position, batch });
            }
        }
    }

    fn is_aside(&self) -> bool {
        self.aside
    }

    fn exclude(&mut self) {
        self.end = Halting::Halted;
    }

    fn is_halted(&self) -> bool {
        self.end > Halting::No
    }

    fn is_stuck(&self) -> bool {
        self.end > Halting::No || self.broken
    }

    fn rewound(&mut self, _next: &[u64]) {}

    fn is_busy(&self, stopping: bool) -> bool {
        let looking = self.gate.as_ref().is_some_and(|gate| gate.asked);
        !self.batches.is_empty()
            || self.end < Halting::Halted && !stopping && (self.input.reading == Reading::Asked || looking)
    }

    fn is_at_work(&self) -> bool {
        self.batches.values().any(|state| !matches!(state.phase, Phase::Picked | Phase::Ready))
    }

    fn is_exhausted(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool {
        let counts = self.room.counts();
        let waits = counts.waiting + counts.running + counts.delayed + counts.pending > 0;
        let empty = !waits && self.late.is_empty() && self.beyond.len() == 0;
        // Whatever could start has been picked by now.
        self.end == Halting::Halted || self.input.is_dry(heads, until_idle, now) && (empty || until_idle)
    }

    fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        if self.end > Halting::No {
            return None;
        }
        let late = self.late.first().map(|&(due, _)| due);
        late.into_iter().chain(self.room_wakes(now)).min()
    }
}

impl Gate {
    /// Whether what was seen last still counts. A clock that was set back makes nothing fresh for long.
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.looked.is_some_and(|looked| (0..self.every).contains(&now.0.saturating_sub(looked.0)))
    }
}

#[cfg(test)]
mod tests;
