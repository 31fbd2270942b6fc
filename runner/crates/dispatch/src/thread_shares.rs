//! Thread shares: decides which task a thread of a pool takes next, so that no step takes all threads.
//!
//! Quick tasks run on as many threads as there are processors. A task that runs long counts as held, and another
//! thread takes its place. Tasks of a step that was measured as slow start at once, each on a thread of its own. The
//! last threads are for the steps that have the fewest. Steps take turns.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most threads of a step, for each thread that is left to all steps.
const SHARE: usize = 8;

/// Waiting and running tasks of a pool, by step. Times count from any fixed moment.
#[derive(Debug)]
pub struct ThreadShares<T> {
    limits: ShareLimits,
    waiting: BTreeMap<usize, Waiting<T>>,
    running: BTreeMap<TaskTicket, Running>,
    /// Number of running tasks and average time of a task, by step.
    steps: BTreeMap<usize, Measured>,
    /// The step that took a thread last.
    last: usize,
    next_ticket: u64,
}

/// Limits of a pool.
#[derive(Clone, Copy, Debug)]
pub struct ShareLimits {
    /// Threads for quick tasks.
    pub processors: usize,
    /// Most threads, apart from one for each step.
    pub threads_max: usize,
    /// Time after which a running task no longer counts for its processor.
    pub held: Duration,
    /// Average time of a task from which on its step counts as slow; `None`: no step does.
    pub slow: Option<Duration>,
}

/// Number of a running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskTicket(u64);

/// Decision for a free thread.
#[derive(Debug, PartialEq, Eq)]
pub enum NextTask<T> {
    Run(TaskTicket, T),
    /// Nothing may run before this time. `None`: before another event.
    Wait(Option<Duration>),
}

#[derive(Debug)]
struct Waiting<T> {
    /// Tasks that were begun before. They go first, so that what is begun is finished.
    resumed: VecDeque<T>,
    fresh: VecDeque<T>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    step: usize,
    since: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    running: usize,
    nanos: Option<u64>,
}

impl<T> ThreadShares<T> {
    #[must_use]
    pub fn new(limits: ShareLimits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            steps: BTreeMap::new(),
            last: 0,
            next_ticket: 0,
        }
    }

    /// Adds a task of a step.
    pub fn add(&mut self, step: usize, task: T) {
        self.waiting_of(step).fresh.push_back(task);
    }

    /// Adds a task that was begun before.
    pub fn resume(&mut self, step: usize, task: T) {
        self.waiting_of(step).resumed.push_back(task);
    }

    /// Takes the next task for a free thread.
    pub fn next(&mut self, now: Duration) -> NextTask<T> {
        let (before, after) = (self.waiting.range(..=self.last), self.waiting.range(self.last + 1..));
        let step = after.chain(before).map(|(&step, _)| step).find(|&step| self.may_run(step, now));
        let Some(step) = step else { return NextTask::Wait(self.changes(now)) };
        let Some(task) = self.take(step) else { return NextTask::Wait(None) };
        let ticket = TaskTicket(self.next_ticket);
        self.next_ticket += 1;
        self.last = step;
        self.running.insert(ticket, Running { step, since: now });
        self.steps.entry(step).or_default().running += 1;
        NextTask::Run(ticket, task)
    }

    /// A task has ended, or waits without a thread.
    pub fn end(&mut self, ticket: TaskTicket, now: Duration) {
        let Some(Running { step, since }) = self.running.remove(&ticket) else { return };
        let measured = self.steps.entry(step).or_default();
        let nanos = u64::try_from(now.saturating_sub(since).as_nanos()).unwrap_or(u64::MAX);
        measured.running = measured.running.saturating_sub(1);
        measured.nanos = Some(match measured.nanos {
            None => nanos,
            Some(before) => before - before / 8 + nanos / 8,
        });
    }

    /// Whether a task may run now.
    #[must_use]
    pub fn has_next(&self, now: Duration) -> bool {
        self.waiting.keys().any(|&step| self.may_run(step, now))
    }

    /// Whether tasks wait.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Drops all tasks that wait.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    fn waiting_of(&mut self, step: usize) -> &mut Waiting<T> {
        let empty = || Waiting { resumed: VecDeque::new(), fresh: VecDeque::new() };
        self.waiting.entry(step).or_insert_with(empty)
    }

    fn take(&mut self, step: usize) -> Option<T> {
        let waiting = self.waiting.get_mut(&step)?;
        let task = waiting.resumed.pop_front().or_else(|| waiting.fresh.pop_front());
        if waiting.resumed.is_empty() && waiting.fresh.is_empty() {
            self.waiting.remove(&step);
        }
        task
    }

    fn may_run(&self, step: usize, now: Duration) -> bool {
        let own = self.steps.get(&step).map_or(0, |measured| measured.running);
        let left = self.limits.threads_max.saturating_sub(self.running.len());
        let has_share = own == 0 || own < left.saturating_mul(SHARE);
        has_share && (self.is_slow(step) || self.busy(now) < self.limits.processors.max(1))
    }

    fn is_slow(&self, step: usize) -> bool {
        let Some(slow) = self.limits.slow else { return false };
        self.steps
            .get(&step)
            .and_then(|measured| measured.nanos)
            .is_some_and(|nanos| Duration::from_nanos(nanos) >= slow)
    }

    /// Number of processors with a running task.
    fn busy(&self, now: Duration) -> usize {
        let is_busy =
            |running: &&Running| now < running.since + self.limits.held && !self.is_slow(running.step);
        self.running.values().filter(is_busy).count()
    }

    /// Time at which a running task counts as held, if tasks wait.
    fn changes(&self, now: Duration) -> Option<Duration> {
        let held_at =
            self.running.values().map(|running| running.since + self.limits.held).filter(|&at| at > now);
        held_at.min().filter(|_| self.has_waiting())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn shares(processors: usize, threads_max: usize) -> ThreadShares<&'static str> {
        ThreadShares::new(ShareLimits { processors, threads_max, held: ms(5), slow: Some(ms(4)) })
    }

    /// Takes all tasks that may run.
    fn take_all(shares: &mut ThreadShares<&'static str>, now: Duration) -> Vec<(TaskTicket, &'static str)> {
        std::iter::from_fn(|| match shares.next(now) {
            NextTask::Run(ticket, task) => Some((ticket, task)),
            NextTask::Wait(_) => None,
        })
        .collect()
    }

    /// Measures a step as slow.
    fn slow(shares: &mut ThreadShares<&'static str>, step: usize) {
        shares.add(step, "slow");
        let first = take_all(shares, ms(0));
        shares.end(first[0].0, ms(1000));
    }

    #[test]
    fn quick_tasks_run_on_as_many_threads_as_there_are_processors() {
        let mut shares = shares(2, 256);
        for _ in 0..10 {
            shares.add(0, "a");
        }
        let running = take_all(&mut shares, ms(0));
        assert_eq!(running.len(), 2);
        assert_eq!(shares.next(ms(1)), NextTask::Wait(Some(ms(5))));
        shares.end(running[0].0, ms(1));
        assert_eq!(take_all(&mut shares, ms(1)).len(), 1);
    }

    #[test]
    fn another_thread_takes_the_place_of_a_task_that_is_held() {
        let mut shares = shares(2, 256);
        for _ in 0..10 {
            shares.add(0, "a");
        }
        assert_eq!(take_all(&mut shares, ms(0)).len(), 2);
        assert_eq!(take_all(&mut shares, ms(4)).len(), 0);
        assert_eq!(take_all(&mut shares, ms(5)).len(), 2);
        assert!(shares.has_waiting() && !shares.has_next(ms(5)));
    }

    #[test]
    fn tasks_of_a_slow_step_start_at_once_and_leave_threads_to_other_steps() {
        let mut shares = shares(2, 256);
        slow(&mut shares, 0);
        for _ in 0..300 {
            shares.add(0, "slow");
        }
        let running = take_all(&mut shares, ms(0));
        assert!((200..256).contains(&running.len()), "{}", running.len());
        shares.add(1, "quick");
        shares.add(1, "quick");
        assert_eq!(take_all(&mut shares, ms(1)).len(), 2);
    }

    #[test]
    fn a_quick_step_is_never_behind_the_waiting_tasks_of_a_slow_one() {
        let mut shares = shares(1, 4);
        for step in 0..3 {
            slow(&mut shares, step);
        }
        for step in 0..3 {
            for _ in 0..10 {
                shares.add(step, "slow");
            }
        }
        assert_eq!(take_all(&mut shares, ms(0)).len(), 4);
        // All threads are taken, and each step has one beyond them.
        shares.add(3, "quick");
        assert_eq!(
            take_all(&mut shares, ms(0)).into_iter().map(|(_, task)| task).collect::<Vec<_>>(),
            ["quick"]
        );
    }

    #[test]
    fn steps_take_turns_and_tasks_that_were_begun_go_first() {
        let mut shares = shares(1, 256);
        for task in ["a1", "a2"] {
            shares.add(0, task);
        }
        shares.add(1, "b1");
        shares.resume(0, "a0");
        let mut order = Vec::new();
        while let NextTask::Run(ticket, task) = shares.next(ms(0)) {
            shares.end(ticket, ms(0));
            order.push(task);
        }
        assert_eq!(order, ["b1", "a0", "a1", "a2"]);
        assert!(!shares.has_waiting());
    }

    #[test]
    fn a_step_that_was_slow_counts_as_quick_after_some_quick_tasks() {
        let mut shares = shares(1, 256);
        slow(&mut shares, 0);
        assert!(shares.is_slow(0));
        for _ in 0..60 {
            shares.add(0, "a");
            let ran = take_all(&mut shares, ms(2000));
            shares.end(ran[0].0, ms(2000));
        }
        assert!(!shares.is_slow(0));
    }
}
