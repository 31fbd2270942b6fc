//! Poller: polls the status of pending jobs, and applies answers and completions to them.
//!
//! A poll covers all pending jobs at a fixed interval, in batches. Several batches are open at once, so a batch
//! without an answer delays no other one, and no later poll of other jobs. Jobs of one lane go together, and
//! those with the oldest check go first. An answer changes the status of a job if the table allows it
//! ([`ExternalStatus::may_become`]). Other answers, and answers that were not requested, are rejected without
//! effect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::waiting_room::JobKey;
use tidegate_model::{ExternalStatus, NextPoll, Timestamp, millis};

/// Minimum time between polls that clients request, unless the configured interval is shorter.
const SOONEST: Duration = Duration::from_secs(1);

/// Time after which a batch of one lane that is not answered makes room for a batch of another lane.
const HANGING: Duration = Duration::from_secs(2);

/// Maximum number of open batches, those that hang included.
const OPEN_MAX: usize = 256;

/// Fact about pending jobs.
#[derive(Clone, Copy, Debug)]
pub enum PollerEvent<'a> {
    /// A job is pending since this time.
    Pended { key: JobKey, lane: &'a [u8], since: Timestamp },
    /// A job is no longer pending.
    Left { key: JobKey },
    /// A poll batch was answered, perhaps in part malformed.
    Answered { ask: u64, answers: &'a [(JobKey, ExternalStatus)], malformed: bool },
    /// A poll batch failed.
    Failed { ask: u64 },
    /// An external system reported the status of a job on its own.
    Reported { key: JobKey, status: ExternalStatus },
    /// A reported completion was not committed: the job is pending as before.
    Reverted { key: JobKey },
    /// A client requested a poll at once.
    Poll,
    /// An operator paused or resumed the monitor. Open batches are still answered.
    Pause { paused: bool },
    /// Time has passed.
    Tick,
}

/// Action that the engine must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollerCommand {
    /// Poll the status of these jobs. Answered by `Answered` or `Failed`; these jobs are in no other batch
    /// until then.
    Ask { ask: u64, jobs: Vec<JobKey> },
    /// Deliver the job: it is completed or unknown. Followed by `Left` when that is durable.
    Settle { key: JobKey, status: ExternalStatus },
    /// The job has become valid, and stays pending.
    Valid { key: JobKey },
    /// Number of discarded answers, for jobs that were not polled.
    Discarded { answers: usize },
    /// The table does not allow the change of status.
    Refused { key: JobKey, from: ExternalStatus, to: ExternalStatus },
}

/// Rules of the polls of one step.
#[derive(Clone, Copy, Debug)]
pub struct PollRules {
    /// Approximate number of jobs of a batch.
    pub batch: usize,
    /// Time between the starts of two polls.
    pub every: Duration,
    /// Maximum number of open batches. If batches are of one lane, those that hang do not count, so that any number of
    /// hanging lanes leaves the others alone.
    pub concurrency: usize,
    /// Whether the jobs of a batch are of one lane. A lane has at most one open batch then.
    pub by_lane: bool,
}

/// Pending jobs of one step: takes [`PollerEvent`]s and answers with [`PollerCommand`]s to carry out.
#[derive(Debug)]
pub struct Poller {
    rules: PollRules,
    /// Whether the step has a monitor.
    asks: bool,
    /// Whether an operator has paused the monitor.
    paused: bool,
    jobs: HashMap<JobKey, PolledJob>,
    /// Jobs that can be polled, by lane and turn; a smaller turn has the older check.
    lanes: BTreeMap<Arc<[u8]>, BTreeMap<u64, JobKey>>,
    /// Lanes, by the turn of their first job.
    order: BTreeMap<u64, Arc<[u8]>>,
    next_turn: u64,
    open: BTreeMap<u64, OpenBatch>,
    /// Lanes with an open batch, if batches are of one lane.
    busy: BTreeSet<Arc<[u8]>>,
    next_ask: u64,
    /// The last poll covers all jobs with a smaller turn.
    up_to: u64,
    /// Start of the last poll.
    began: Option<Timestamp>,
    /// Time since which at least one job has been pending without interruption.
    first: Option<Timestamp>,
    wanted: bool,
    /// Number of jobs with the status `valid`.
    valid: usize,
    /// Number of jobs whose last batch failed.
    failing: usize,
}

#[derive(Debug)]
struct PolledJob {
    lane: Arc<[u8]>,
    turn: u64,
    status: ExternalStatus,
    is_open: bool,
    /// Whether its last batch failed.
    failed: bool,
}

/// Batch that is polled and not answered.
#[derive(Debug)]
struct OpenBatch {
    jobs: BTreeSet<JobKey>,
    lane: Option<Arc<[u8]>>,
    /// Time since which it is open.
    since: Timestamp,
    /// A client requested a poll meanwhile. It covers all jobs with a smaller turn, and these jobs too.
    again: Option<u64>,
}

impl Poller {
    /// Creates the poller of a step with a monitor.
    #[must_use]
    pub fn new(rules: PollRules) -> Self {
        let (batch, concurrency) = (rules.batch.max(1), rules.concurrency.max(1));
        Self {
            rules: PollRules { batch, concurrency, ..rules },
            asks: true,
            paused: false,
            jobs: HashMap::new(),
            lanes: BTreeMap::new(),
            order: BTreeMap::new(),
            next_turn: 0,
            open: BTreeMap::new(),
            busy: BTreeSet::new(),
            next_ask: 0,
            up_to: 0,
            began: None,
            first: None,
            wanted: false,
            valid: 0,
            failing: 0,
        }
    }

    /// Creates the poller of a step without a monitor: external systems report completions on their own.
    #[must_use]
    pub fn disabled() -> Self {
        let rules = PollRules { batch: 1, every: Duration::ZERO, concurrency: 1, by_lane: false };
        Self { asks: false, ..Self::new(rules) }
    }

    /// Handles one event and adds the commands that follow from it to `commands`.
    pub fn handle(&mut self, event: PollerEvent<'_>, now: Timestamp, commands: &mut Vec<PollerCommand>) {
        match event {
            PollerEvent::Pended { key, lane, since } => self.pended(key, lane, since),
            PollerEvent::Left { key } => self.left(key),
            PollerEvent::Answered { ask, answers, malformed } => {
                self.answered(ask, answers, malformed, commands);
            }
            PollerEvent::Failed { ask } => self.answered(ask, &[], true, commands),
            PollerEvent::Reported { key, status } if self.jobs.contains_key(&key) => {
                self.apply(key, status, commands);
            }
            PollerEvent::Reported { .. } => commands.push(PollerCommand::Discarded { answers: 1 }),
            PollerEvent::Reverted { key } => self.revert(key),
            PollerEvent::Poll => self.wanted = true,
            PollerEvent::Pause { paused } => self.paused = paused,
            PollerEvent::Tick => {}
        }
        // More jobs may come together with this one; they belong into the same poll.
        if !matches!(event, PollerEvent::Pended { .. }) {
            self.go_on(now, commands);
        }
    }

    /// Time at which it needs [`PollerEvent::Tick`].
    #[must_use]
    pub fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.asks || self.paused || self.next_lane(u64::MAX).is_none() {
            return None;
        }
        let room = self.room_from(now)?;
        if self.next_lane(self.up_to).is_some() {
            return Some(room);
        }
        let began = self.began.map(|began| began + self.rest());
        let first = self.first.filter(|_| !self.wanted).map(|first| first + self.rules.every);
        began.max(first).max(Some(room))
    }

    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Start of the poll that a client requests now.
    #[must_use]
    pub fn soon(&self, now: Timestamp) -> NextPoll {
        match self.wakes(now) {
            _ if !self.wanted => NextPoll::Now,
            None if !self.open.is_empty() => NextPoll::AfterThis,
            None => NextPoll::WhenPending,
            Some(wakes) => NextPoll::In { ms: millis(wakes.since(now)).unsigned_abs() },
        }
    }

    /// Status of a pending job.
    #[must_use]
    pub fn status(&self, key: JobKey) -> Option<ExternalStatus> {
        self.jobs.get(&key).map(|watched| watched.status)
    }

    /// Number of pending jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Number of jobs with the status `valid`.
    #[must_use]
    pub fn valid(&self) -> usize {
        self.valid
    }

    /// Whether the last batch of at least one pending job failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failing > 0
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn pended(&mut self, key: JobKey, lane: &[u8], since: Timestamp) {
        if self.jobs.contains_key(&key) {
            return;
        }
        if self.jobs.is_empty() {
            self.first = Some(since);
        }
        let lane = self.lanes.get_key_value(lane).map_or_else(|| lane.into(), |(lane, _)| Arc::clone(lane));
        let (turn, status) = (0, ExternalStatus::Pending);
        self.jobs.insert(key, PolledJob { lane, turn, status, is_open: false, failed: false });
        let turn = self.take_turn();
        self.line_up(key, turn);
    }

    fn left(&mut self, key: JobKey) {
        self.step_out(key);
        let Some(left) = self.jobs.remove(&key) else { return };
        self.valid -= usize::from(left.status == ExternalStatus::Valid);
        self.failing -= usize::from(left.failed);
        if left.is_open {
            for batch in self.open.values_mut() {
                batch.jobs.remove(&key);
            }
        }
        if self.jobs.is_empty() {
            self.first = None;
        }
    }

    fn revert(&mut self, key: JobKey) {
        let Some(watched) = self.jobs.get_mut(&key).filter(|watched| !watched.status.waits()) else { return };
        watched.status = ExternalStatus::Pending;
        // A job in an open batch is queued again when that is answered.
        if !watched.is_open {
            let turn = self.take_turn();
            self.line_up(key, turn);
        }
    }

    fn answered(
        &mut self,
        ask: u64,
        answers: &[(JobKey, ExternalStatus)],
        failed: bool,
        commands: &mut Vec<PollerCommand>,
    ) {
        let Some(OpenBatch { jobs, lane, again, .. }) = self.open.remove(&ask) else {
            if !answers.is_empty() {
                commands.push(PollerCommand::Discarded { answers: answers.len() });
            }
            return;
        };
        if let Some(lane) = lane {
            self.busy.remove(&lane);
        }
        let (mut discarded, mut open) = (0, jobs.clone());
        for &(key, status) in answers {
            // The first of two answers for one job counts.
            if open.remove(&key) {
                self.apply(key, status, commands);
            } else {
                discarded += 1;
            }
        }
        if discarded > 0 {
            commands.push(PollerCommand::Discarded { answers: discarded });
        }
        for key in jobs {
            let Some(watched) = self.jobs.get_mut(&key) else { continue };
            watched.is_open = false;
            self.failing -= usize::from(watched.failed);
            watched.failed = failed && watched.status.waits();
            self.failing += usize::from(watched.failed);
            let (waits, kept) = (watched.status.waits(), watched.turn);
            if waits {
                // The requested poll covers a job that keeps its turn.
                let turn = if again.is_some() { kept } else { self.take_turn() };
                self.line_up(key, turn);
            }
        }
        self.up_to = self.up_to.max(again.unwrap_or_default());
    }

    fn apply(&mut self, key: JobKey, to: ExternalStatus, commands: &mut Vec<PollerCommand>) {
        let Some(watched) = self.jobs.get_mut(&key) else { return };
        let from = watched.status;
        // A repeated status changes nothing.
        if from == to && !to.waits() {
            return;
        }
        if !from.may_become(to) {
            commands.push(PollerCommand::Refused { key, from, to });
            return;
        }
        watched.status = to;
        self.valid -= usize::from(from == ExternalStatus::Valid);
        self.valid += usize::from(to == ExternalStatus::Valid);
        if to == ExternalStatus::Valid && from != to {
            commands.push(PollerCommand::Valid { key });
        }
        if !to.waits() {
            self.step_out(key);
            commands.push(PollerCommand::Settle { key, status: to });
        }
    }

    /// Requests the next batches of the poll in progress, and begins a poll if one is due.
    fn go_on(&mut self, now: Timestamp, commands: &mut Vec<PollerCommand>) {
        while self.asks && !self.paused && self.room_from(now) == Some(now) {
            if self.next_lane(self.up_to).is_none() {
                if !self.is_due(now) {
                    return;
                }
                self.up_to = self.next_turn;
                // An open batch may have been sent before the reason for the request.
                for batch in self.open.values_mut().filter(|_| self.wanted) {
                    batch.again = Some(self.up_to);
                }
                (self.began, self.wanted) = (Some(now), false);
            }
            let (jobs, lane) = self.next_batch();
            let ask = self.next_ask;
            self.next_ask += 1;
            self.busy.extend(lane.clone());
            let open = OpenBatch { jobs: jobs.iter().copied().collect(), lane, since: now, again: None };
            self.open.insert(ask, open);
            commands.push(PollerCommand::Ask { ask, jobs });
        }
    }

    /// Time from which one more batch may be open, if no batch is answered until then.
    fn room_from(&self, now: Timestamp) -> Option<Timestamp> {
        if self.open.len() < self.rules.concurrency {
            return Some(now);
        }
        if !self.rules.by_lane || self.open.len() >= OPEN_MAX {
            return None;
        }
        // After a clock that was set back, a batch counts as hanging.
        let hangs_from = |batch: &OpenBatch| {
            let until = batch.since + HANGING;
            if (batch.since..until).contains(&now) { until } else { now }
        };
        let mut times: Vec<Timestamp> = self.open.values().map(hangs_from).collect();
        let (_, room, _) = times.select_nth_unstable(self.open.len() - self.rules.concurrency);
        Some(*room)
    }

    /// Minimum time between the starts of two polls.
    fn rest(&self) -> Duration {
        if self.wanted { self.rules.every.min(SOONEST) } else { self.rules.every }
    }

    /// Whether a poll is due, and there are jobs for it.
    fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back ends the wait.
        let over = |from: Option<Timestamp>, wait: Duration| {
            from.is_none_or(|from| !(from..from + wait).contains(&now))
        };
        let rested = over(self.began, self.rest());
        let any = self.next_lane(u64::MAX).is_some();
        any && rested && (self.wanted || over(self.first, self.rules.every))
    }

    /// The lane with the longest unchecked job, if that has a turn below `up_to`. Lanes with an open batch of
    /// their own are skipped.
    fn next_lane(&self, up_to: u64) -> Option<&Arc<[u8]>> {
        self.order.range(..up_to).map(|(_, lane)| lane).find(|lane| !self.busy.contains(*lane))
    }

    /// Jobs of the next batch, and their lane if batches are of one lane.
    fn next_batch(&mut self) -> (Vec<JobKey>, Option<Arc<[u8]>>) {
        let (mut jobs, up_to) = (Vec::new(), self.up_to);
        while let Some(lane) = self.next_lane(up_to).cloned() {
            let waiting = self.lanes.get(&lane).into_iter().flatten();
            let from = jobs.len();
            let room = self.rules.batch - from;
            jobs.extend(waiting.take_while(|&(&turn, _)| turn < up_to).map(|(_, &key)| key).take(room));
            for &key in &jobs[from..] {
                self.step_out(key);
                if let Some(watched) = self.jobs.get_mut(&key) {
                    watched.is_open = true;
                }
            }
            if self.rules.by_lane {
                return (jobs, Some(lane));
            }
            if jobs.len() >= self.rules.batch {
                break;
            }
        }
        (jobs, None)
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn - 1
    }

    /// Queues a job, behind all jobs with a smaller turn.
    fn line_up(&mut self, key: JobKey, turn: u64) {
        let Some(watched) = self.jobs.get_mut(&key) else { return };
        watched.turn = turn;
        let line = self.lanes.entry(Arc::clone(&watched.lane)).or_default();
        match line.keys().next() {
            Some(&first) if first < turn => {}
            first => {
                first.map(|first| self.order.remove(first));
                self.order.insert(turn, Arc::clone(&watched.lane));
            }
        }
        line.insert(turn, key);
    }

    /// Removes a job from the queue, if it is there.
    fn step_out(&mut self, key: JobKey) {
        let Some(watched) = self.jobs.get(&key) else { return };
        let Some(line) = self.lanes.get_mut(&watched.lane) else { return };
        if line.get(&watched.turn) != Some(&key) {
            return;
        }
        line.remove(&watched.turn);
        if let Some(lane) = self.order.remove(&watched.turn) {
            match line.keys().next() {
                Some(&first) => _ = self.order.insert(first, lane),
                None => _ = self.lanes.remove(&lane),
            }
        }
    }
}

#[cfg(test)]
mod tests;
