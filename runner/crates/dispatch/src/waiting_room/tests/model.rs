//! Naive model: implements the rules of DESIGN §4 literally, over a plain list of jobs, without regard to
//! cost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::*;

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a model has one flag for each rule")]
pub(crate) struct Job {
    pub(crate) key: u64,
    pub(crate) lane: u8,
    pub(crate) age: i64,
    pub(crate) id: JobId,
    pub(crate) priority: i64,
    pub(crate) since: i64,
    pub(crate) reads: Vec<u64>,
    pub(crate) writes: Vec<u64>,
    pub(crate) state: WaitingState,
    /// It has started before.
    pub(crate) old: bool,
    /// It was put back, or its delay is over in a strategy that then places it before waiting jobs.
    pub(crate) put_back: bool,
    pub(crate) due: bool,
    /// A limit of its lane blocked it when its round came.
    pub(crate) parked: bool,
    /// It has a place in this round.
    pub(crate) listed: bool,
    /// It is started, and its lane is free for others.
    pub(crate) freed: bool,
    /// It was unknown when it started.
    pub(crate) was_unknown: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) rules: QueuePolicy,
    pub(crate) jobs: Vec<Job>,
    /// Starts that count for `rate`, and starts that count for `lane_rate`.
    starts: [Vec<(Timestamp, u8)>; 2],
    /// Lanes that have a place in this round.
    lanes: BTreeSet<u8>,
    /// Lanes with a round of `rounds` in progress.
    open: BTreeSet<u8>,
    /// End of the last round of each lane.
    ended: BTreeMap<u8, Timestamp>,
}

impl Model {
    pub(crate) fn new(rules: QueuePolicy) -> Self {
        Self {
            rules,
            jobs: Vec::new(),
            starts: [Vec::new(), Vec::new()],
            lanes: BTreeSet::new(),
            open: BTreeSet::new(),
            ended: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, job: Job) {
        self.open.extend((job.state == WaitingState::Running).then_some(job.lane));
        self.jobs.push(job);
        let at = self.jobs.len() - 1;
        self.jobs[at].old = self.jobs[at].state != WaitingState::Waiting;
        self.settle(at);
    }

    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.jobs.iter().position(|job| job.key == key)
    }

    pub(crate) fn remove(&mut self, key: u64, now: Timestamp) {
        self.jobs.retain(|job| job.key != key);
        self.tidy();
        self.end(now);
    }

    pub(crate) fn change(&mut self, key: u64, state: WaitingState, now: Timestamp) {
        let at = self.find(key).unwrap();
        self.jobs[at].state = state;
        self.jobs[at].put_back = state == WaitingState::Waiting;
        self.jobs[at].freed = state == WaitingState::Finished;
        self.settle(at);
        if matches!(state, WaitingState::Delayed { .. } | WaitingState::Pending | WaitingState::Finished) {
            self.end(now);
        }
    }

    /// Frees the lane of a pending job.
    pub(crate) fn free(&mut self, key: u64) {
        let at = self.find(key).unwrap();
        self.jobs[at].freed = true;
        self.tidy();
    }

    pub(crate) fn start(&mut self, now: Timestamp, most: usize) -> Vec<u64> {
        self.pass(now);
        let mut started = Vec::new();
        while started.len() < most
            && let Some(at) = self.next(now)
        {
            let job = &mut self.jobs[at];
            job.was_unknown = job.state == WaitingState::Unknown;
            job.state = WaitingState::Running;
            (job.old, job.due, job.put_back, job.parked, job.listed) = (true, false, false, false, false);
            started.push(job.key);
            let lane = job.lane;
            self.starts.iter_mut().for_each(|starts| starts.push((now, lane)));
            self.lanes.remove(&self.jobs[at].lane);
            self.tidy();
        }
        started
    }

    /// Order of waiting jobs: unknown, put back, due, then by age and id.
    fn order(&self, at: usize) -> impl Ord {
        let job = &self.jobs[at];
        let class = match job {
            Job { state: WaitingState::Unknown, .. } => 0,
            Job { put_back: true, .. } => 1,
            Job { due: true, .. } => 2,
            _ => 3,
        };
        let rank = match self.rules.strategy {
            StartOrder::Priority { aging: None } => -i128::from(job.priority),
            StartOrder::Priority { aging: Some(aging) } => {
                // Priority, plus the time of waiting until a fixed later time, in units of the time that is
                // worth one priority.
                let gained = i128::from(1_000_000 - job.since);
                -(i128::from(job.priority) * i128::try_from(aging.as_millis()).unwrap() + gained)
            }
            _ => 0,
        };
        (class, rank, job.age, job.id.clone(), job.key)
    }

    fn is_waiting(&self, at: usize) -> bool {
        matches!(self.jobs[at].state, WaitingState::Waiting | WaitingState::Unknown)
    }

    /// Jobs that wait, unknown ones included.
    fn waiting(&self) -> impl Iterator<Item = usize> {
        (0..self.jobs.len()).filter(|&at| self.is_waiting(at))
    }

    fn count(&self, lane: Option<u8>, states: &[WaitingState]) -> usize {
        let counts = |job: &&Job| {
            states.contains(&job.state) && lane.is_none_or(|lane| job.lane == lane && !job.freed)
        };
        self.jobs.iter().filter(counts).count()
    }

    /// Number of jobs that run or are pending.
    fn held(&self, lane: Option<u8>) -> usize {
        self.count(lane, &[WaitingState::Running, WaitingState::Pending])
    }

    fn spent(&self, rate: Option<StartRate>, lane: Option<u8>) -> bool {
        let starts = &self.starts[usize::from(lane.is_some())];
        let count = starts.iter().filter(|(_, of)| lane.is_none_or(|lane| *of == lane)).count();
        rate.is_some_and(|rate| count >= rate.jobs.get() as usize)
    }

    fn allows(&self, lane: u8) -> bool {
        let full = self.rules.max_per_lane.is_some_and(|most| self.held(Some(lane)) >= most.get() as usize);
        !full && !self.spent(self.rules.lane_rate, Some(lane))
    }

    fn pass(&mut self, now: Timestamp) {
        for (starts, rate) in self.starts.iter_mut().zip([self.rules.rate, self.rules.lane_rate]) {
            for (at, _) in starts.iter_mut() {
                *at = (*at).min(now);
            }
            let per = rate.map_or(0, |rate| i64::try_from(rate.per.as_millis()).unwrap());
            starts.retain(|(at, _)| at.0 + per > now.0);
        }
        if let StartOrder::Rounds { pause } = self.rules.strategy {
            // A clock that was set back behind the end of a round ends the pause.
            let pause = i64::try_from(pause.as_millis()).unwrap();
            self.ended.retain(|_, ended| (ended.0..ended.0 + pause).contains(&now.0));
        }
        if !self.has_list() {
            for at in 0..self.jobs.len() {
                if matches!(self.jobs[at].state, WaitingState::Delayed { until } if until <= now) {
                    self.jobs[at].state = WaitingState::Waiting;
                    self.jobs[at].due = self.rules.strategy == StartOrder::Serial;
                    self.settle(at);
                }
            }
        }
        self.tidy();
    }

    fn next(&mut self, now: Timestamp) -> Option<usize> {
        let running = self.count(None, &[WaitingState::Running]);
        if self.rules.max_processing.is_some_and(|most| running >= most.get() as usize)
            || self.rules.max_pending.is_some_and(|most| self.held(None) >= most.get() as usize)
            || self.spent(self.rules.rate, None)
        {
            return None;
        }
        let allowed = |model: &Self, at: usize| model.allows(model.jobs[at].lane);
        match self.rules.strategy {
            StartOrder::Fifo | StartOrder::Priority { .. } => {
                self.waiting().filter(|&at| allowed(self, at)).min_by_key(|&at| self.order(at))
            }
            StartOrder::Serial => {
                let first = self.waiting().min_by_key(|&at| self.order(at));
                let alone = (0..self.jobs.len())
                    .all(|at| self.is_waiting(at) || self.jobs[at].state == WaitingState::Finished);
                first.filter(|&at| alone && allowed(self, at))
            }
            StartOrder::Rounds { .. } => {
                let waiting: BTreeSet<u8> = self.waiting().map(|at| self.jobs[at].lane).collect();
                let begins = |lane: &u8| !self.open.contains(lane) && !self.ended.contains_key(lane);
                let begin: Vec<u8> = waiting.into_iter().filter(begins).collect();
                for lane in begin {
                    self.open.insert(lane);
                    let mine = self.jobs.iter_mut().filter(|job| job.lane == lane);
                    mine.for_each(|job| job.listed = true);
                }
                let mine = |&at: &usize| {
                    self.open.contains(&self.jobs[at].lane) && self.jobs[at].listed && allowed(self, at)
                };
                self.waiting().filter(mine).min_by_key(|&at| self.order(at))
            }
            StartOrder::OneRoundSerial | StartOrder::OneRoundParallel => {
                if let Some(at) = self.next_of_list() {
                    return Some(at);
                }
                self.make_list(now);
                self.next_of_list()
            }
        }
    }

    fn next_of_list(&mut self) -> Option<usize> {
        // Rules (1) and (2); a job that a limit blocks becomes the next one of its lane.
        loop {
            let urgent = |&at: &usize| {
                let job = &self.jobs[at];
                job.listed && !job.parked && (job.state == WaitingState::Unknown || job.due)
            };
            let Some(at) = self.waiting().filter(urgent).min_by_key(|&at| self.order(at)) else { break };
            let lane = self.jobs[at].lane;
            // Jobs that began under earlier rules go one after the other.
            let serial = self.rules.strategy == StartOrder::OneRoundSerial;
            if self.allows(lane) && !(serial && self.held(Some(lane)) > 0) {
                // An unknown job goes before all others of its lane, even if a limit blocked it before.
                let unknown =
                    |&at: &usize| self.jobs[at].lane == lane && self.jobs[at].state == WaitingState::Unknown;
                let parked = |&at: &usize| unknown(&at) && self.jobs[at].parked;
                let next = self.waiting().filter(parked).min_by_key(|&at| self.order(at)).unwrap_or(at);
                // It has a place in the next round if it became unknown since this one began.
                if !serial || unknown(&next) || !self.waiting().any(|at| unknown(&at)) {
                    return Some(next);
                }
            }
            (self.jobs[at].listed, self.jobs[at].parked) = (false, true);
            self.tidy();
        }
        // Rule (3).
        if self.has_places() {
            let heads = self.lanes.iter().filter_map(|&lane| self.head(lane));
            heads.min_by_key(|&at| self.order(at))
        } else {
            self.waiting().filter(|&at| self.jobs[at].listed).min_by_key(|&at| self.order(at))
        }
    }

    fn make_list(&mut self, now: Timestamp) {
        let parallel = self.rules.strategy == StartOrder::OneRoundParallel;
        for at in 0..self.jobs.len() {
            let free = !self.is_held(at);
            let job = &mut self.jobs[at];
            match job.state {
                WaitingState::Unknown => job.listed = !parallel || free,
                WaitingState::Delayed { until } if until <= now => {
                    (job.state, job.due, job.listed) = (WaitingState::Waiting, true, !parallel || free);
                }
                WaitingState::Waiting if !job.parked => job.listed = free,
                _ => {}
            }
        }
        if self.has_places() {
            let lanes: BTreeSet<u8> = self.jobs.iter().map(|job| job.lane).collect();
            self.lanes = lanes.into_iter().filter(|&lane| self.is_free(lane)).collect();
        }
    }

    /// Whether the lane has a waiting job, and none that is running, pending, unknown or delayed.
    fn is_free(&self, lane: u8) -> bool {
        let serial = self.rules.strategy == StartOrder::OneRoundSerial;
        let mut mine = self.jobs.iter().filter(|job| job.lane == lane);
        self.head(lane).is_some() && self.allows(lane) && (!serial || mine.all(Self::leaves_lane_free))
    }

    fn head(&self, lane: u8) -> Option<usize> {
        let parallel = self.rules.strategy == StartOrder::OneRoundParallel;
        let mine = |&at: &usize| {
            let held = parallel && !self.jobs[at].parked && self.is_held(at);
            self.jobs[at].lane == lane && Self::leaves_lane_free(&self.jobs[at]) && !held
        };
        self.waiting().filter(mine).min_by_key(|&at| self.order(at))
    }

    fn leaves_lane_free(job: &Job) -> bool {
        match job.state {
            WaitingState::Unknown => job.parked,
            WaitingState::Waiting => !job.due || job.parked,
            _ => job.freed,
        }
    }

    /// Whether it has a conflict with an earlier unfinished job of its lane.
    pub(crate) fn is_held(&self, at: usize) -> bool {
        let mine = &self.jobs[at];
        let order = |job: &Job| {
            let held = matches!(job.state, WaitingState::Running | WaitingState::Pending);
            (Reverse(held), Reverse(job.old), job.age, job.id.clone(), job.key)
        };
        self.jobs.iter().any(|other| {
            let meets = |left: &[u64], right: &[u64]| left.iter().any(|key| right.contains(key));
            let conflict = meets(&mine.writes, &other.writes)
                || meets(&mine.writes, &other.reads)
                || meets(&mine.reads, &other.writes);
            other.lane == mine.lane && !other.freed && order(other) < order(mine) && conflict
        })
    }

    /// Decides whether a job has a place in the current round. A new job has none. A job that has started
    /// before has one, and so has an unknown job if later ones of its lane may have one.
    fn settle(&mut self, at: usize) {
        let again = self.jobs[at].state == WaitingState::Unknown || self.jobs[at].put_back;
        let unknown = self.jobs[at].state == WaitingState::Unknown;
        self.jobs[at].listed = match self.rules.strategy {
            StartOrder::Rounds { .. } => self.open.contains(&self.jobs[at].lane) && again,
            StartOrder::OneRoundParallel => unknown,
            _ => false,
        };
        self.tidy();
    }

    /// Removes the places of lanes and jobs that are blocked now.
    fn tidy(&mut self) {
        self.lanes = self.lanes.iter().copied().filter(|&lane| self.is_free(lane)).collect();
        if self.rules.strategy == StartOrder::OneRoundParallel {
            for at in 0..self.jobs.len() {
                let unknown = self.jobs[at].state == WaitingState::Unknown;
                if !self.is_held(at) {
                    self.jobs[at].listed |= unknown && !self.jobs[at].parked;
                    continue;
                }
                self.jobs[at].listed = false;
                if unknown || self.jobs[at].due {
                    self.jobs[at].parked = false;
                }
            }
        }
    }

    fn end(&mut self, now: Timestamp) {
        let left = |job: &Job| {
            job.state == WaitingState::Running
                || job.listed && matches!(job.state, WaitingState::Waiting | WaitingState::Unknown)
        };
        let busy: BTreeSet<u8> = self.jobs.iter().filter(|job| left(job)).map(|job| job.lane).collect();
        for lane in std::mem::take(&mut self.open) {
            if busy.contains(&lane) {
                self.open.insert(lane);
            } else {
                self.ended.insert(lane, now);
            }
        }
    }

    fn has_places(&self) -> bool {
        let bounds = self.rules.max_per_lane.is_some() || self.rules.lane_rate.is_some();
        self.has_list() && (bounds || self.rules.strategy == StartOrder::OneRoundSerial)
    }

    fn has_list(&self) -> bool {
        matches!(self.rules.strategy, StartOrder::OneRoundSerial | StartOrder::OneRoundParallel)
    }

    pub(crate) fn waiting_by_lane(&self) -> BTreeMap<u8, (usize, i64)> {
        let mut lanes = BTreeMap::new();
        for at in self.waiting() {
            let (count, oldest) = lanes.entry(self.jobs[at].lane).or_insert((0, i64::MAX));
            *count += 1;
            *oldest = self.jobs[at].age.min(*oldest);
        }
        lanes
    }
}
