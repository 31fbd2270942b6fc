//! Poller: polls the status of pending jobs, and applies answers and completions to them.
//!
//! A poll covers all pending jobs at a fixed interval, in batches, one batch after the other. Jobs of one
//! lane go together, and those with the oldest check go first. An answer changes the status of a job if the
//! table allows it ([`ExternalStatus::may_become`]). Other answers, and answers that were not requested, are rejected
//! without effect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::waiting_room::JobKey;
use tidegate_model::{ExternalStatus, NextPoll, Timestamp, millis};

/// Minimum time between polls that clients request, unless the configured interval is shorter.
const SOONEST: Duration = Duration::from_secs(1);

/// Fact about pending jobs.
#[derive(Clone, Copy, Debug)]
pub enum PollerEvent<'a> {
    /// A job is pending since this time.
    Pended { key: JobKey, lane: &'a [u8], since: Timestamp },
    /// A job is no longer pending.
    Left { key: JobKey },
    /// A poll batch was answered.
    Answered { ask: u64, answers: &'a [(JobKey, ExternalStatus)] },
    /// A poll batch failed.
    Failed { ask: u64 },
    /// An external system reported the status of a job on its own.
    Told { key: JobKey, status: ExternalStatus },
    /// A reported completion was not committed: the job is pending as before.
    Untold { key: JobKey },
    /// A client requested a poll at once.
    Poll,
    /// Time has passed.
    Tick,
}

/// Action that the engine must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollerCommand {
    /// Poll the status of these jobs. Answered by `Answered` or `Failed`; no other batch is polled until
    /// then.
    Ask { ask: u64, jobs: Vec<JobKey> },
    /// Deliver the job: it is completed or unknown. Followed by `Left` when that is durable.
    Settle { key: JobKey, status: ExternalStatus },
    /// Number of discarded answers, for jobs that were not polled.
    Discarded { answers: usize },
    /// The table does not allow the change of status.
    Refused { key: JobKey, from: ExternalStatus, to: ExternalStatus },
}

/// Pending jobs of one step: takes [`PollerEvent`]s and answers with [`PollerCommand`]s to carry out.
#[derive(Debug)]
pub struct Poller {
    batch: usize,
    every: Duration,
    /// Whether the step has a monitor.
    asks: bool,
    jobs: HashMap<JobKey, PolledJob>,
    /// Jobs that can be polled, by lane and turn; a smaller turn has the older check.
    lanes: BTreeMap<Arc<[u8]>, BTreeMap<u64, JobKey>>,
    /// Lanes, by the turn of their first job.
    order: BTreeMap<u64, Arc<[u8]>>,
    next_turn: u64,
    asked: Option<(u64, BTreeSet<JobKey>)>,
    next_ask: u64,
    /// The poll in progress covers all jobs with a smaller turn.
    up_to: Option<u64>,
    /// Start of the last poll.
    began: Option<Timestamp>,
    /// Time since which at least one job has been pending without interruption.
    first: Option<Timestamp>,
    wanted: bool,
    /// Number of jobs with the status `valid`.
    valid: usize,
}

#[derive(Debug)]
struct PolledJob {
    lane: Arc<[u8]>,
    turn: u64,
    status: ExternalStatus,
}

impl Poller {
    /// Creates a poller of about `batch` jobs a request and one poll each `every`.
    #[must_use]
    pub fn new(batch: usize, every: Duration) -> Self {
        Self {
            batch: batch.max(1),
            every,
            asks: true,
            jobs: HashMap::new(),
            lanes: BTreeMap::new(),
            order: BTreeMap::new(),
            next_turn: 0,
            asked: None,
            next_ask: 0,
            up_to: None,
            began: None,
            first: None,
            wanted: false,
            valid: 0,
        }
    }

    /// Creates the poller of a step without a monitor: external systems report completions on their own.
    #[must_use]
    pub fn disabled() -> Self {
        Self { asks: false, ..Self::new(1, Duration::ZERO) }
    }

    /// Handles one event and adds the commands that follow from it to `commands`.
    pub fn handle(&mut self, event: PollerEvent<'_>, now: Timestamp, commands: &mut Vec<PollerCommand>) {
        match event {
            PollerEvent::Pended { key, lane, since } => self.pended(key, lane, since),
            PollerEvent::Left { key } => self.left(key),
            PollerEvent::Answered { ask, answers } => self.answered(ask, answers, commands),
            PollerEvent::Failed { ask } => self.answered(ask, &[], commands),
            PollerEvent::Told { key, status } if self.jobs.contains_key(&key) => {
                self.apply(key, status, commands);
            }
            PollerEvent::Told { .. } => commands.push(PollerCommand::Discarded { answers: 1 }),
            PollerEvent::Untold { key } => self.revert(key),
            PollerEvent::Poll => self.wanted = true,
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
        if self.asked.is_some() || self.order.is_empty() || !self.asks {
            return None;
        }
        if self.up_to.is_some() {
            return Some(now);
        }
        let began = self.began.map(|began| began + self.rest());
        let first = self.first.filter(|_| !self.wanted).map(|first| first + self.every);
        began.max(first).max(Some(now))
    }

    /// Start of the poll that a client requests now.
    #[must_use]
    pub fn soon(&self, now: Timestamp) -> NextPoll {
        match self.wakes(now) {
            _ if !self.wanted => NextPoll::Now,
            _ if self.asked.is_some() => NextPoll::AfterThis,
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
        self.jobs.insert(key, PolledJob { lane, turn: 0, status: ExternalStatus::Pending });
        self.line_up(key);
    }

    fn left(&mut self, key: JobKey) {
        self.step_out(key);
        let left = self.jobs.remove(&key);
        self.valid -= usize::from(left.is_some_and(|left| left.status == ExternalStatus::Valid));
        if let Some((_, asked)) = &mut self.asked {
            asked.remove(&key);
        }
        if self.jobs.is_empty() {
            self.first = None;
        }
    }

    fn revert(&mut self, key: JobKey) {
        let Some(watched) = self.jobs.get_mut(&key).filter(|watched| !watched.status.waits()) else { return };
        watched.status = ExternalStatus::Pending;
        // A job in an open request is queued again when that is answered.
        if !self.asked.as_ref().is_some_and(|(_, asked)| asked.contains(&key)) {
            self.line_up(key);
        }
    }

    fn answered(
        &mut self,
        ask: u64,
        answers: &[(JobKey, ExternalStatus)],
        commands: &mut Vec<PollerCommand>,
    ) {
        let Some((_, mut open)) = self.asked.take_if(|(number, _)| *number == ask) else {
            if !answers.is_empty() {
                commands.push(PollerCommand::Discarded { answers: answers.len() });
            }
            return;
        };
        let (mut discarded, asked) = (0, open.clone());
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
        for key in asked {
            if self.jobs.get(&key).is_some_and(|watched| watched.status.waits()) {
                self.line_up(key);
            }
        }
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
        if !to.waits() {
            self.step_out(key);
            commands.push(PollerCommand::Settle { key, status: to });
        }
    }

    /// Requests the next batch of the poll in progress, or begins a poll.
    fn go_on(&mut self, now: Timestamp, commands: &mut Vec<PollerCommand>) {
        if self.asked.is_some() || !self.asks {
            return;
        }
        if self.up_to.is_none() && self.is_due(now) {
            self.up_to = Some(self.next_turn);
            (self.began, self.wanted) = (Some(now), false);
        }
        let Some(up_to) = self.up_to else { return };
        let jobs = self.next_batch(up_to);
        if jobs.is_empty() {
            self.up_to = None;
            return;
        }
        let ask = self.next_ask;
        self.next_ask += 1;
        self.asked = Some((ask, jobs.iter().copied().collect()));
        commands.push(PollerCommand::Ask { ask, jobs });
    }

    /// Minimum time between the starts of two polls.
    fn rest(&self) -> Duration {
        if self.wanted { self.every.min(SOONEST) } else { self.every }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back ends the wait.
        let over = |from: Option<Timestamp>, wait: Duration| {
            from.is_none_or(|from| !(from..from + wait).contains(&now))
        };
        let rested = over(self.began, self.rest());
        !self.order.is_empty() && rested && (self.wanted || over(self.first, self.every))
    }

    fn next_batch(&mut self, up_to: u64) -> Vec<JobKey> {
        let mut jobs = Vec::new();
        while jobs.len() < self.batch {
            let Some((_, lane)) = self.order.first_key_value().filter(|&(&turn, _)| turn < up_to) else {
                break;
            };
            let waiting = self.lanes.get(lane).into_iter().flatten();
            let from = jobs.len();
            jobs.extend(
                waiting.take_while(|&(&turn, _)| turn < up_to).map(|(_, &key)| key).take(self.batch - from),
            );
            for &key in &jobs[from..] {
                self.step_out(key);
            }
        }
        jobs
    }

    /// Queues a job behind all others.
    fn line_up(&mut self, key: JobKey) {
        let Some(watched) = self.jobs.get_mut(&key) else { return };
        watched.turn = self.next_turn;
        self.next_turn += 1;
        let line = self.lanes.entry(Arc::clone(&watched.lane)).or_default();
        if line.is_empty() {
            self.order.insert(watched.turn, Arc::clone(&watched.lane));
        }
        line.insert(watched.turn, key);
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
