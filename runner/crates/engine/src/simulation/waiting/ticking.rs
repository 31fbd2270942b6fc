//! Ticking: computes the expected ticks of a schedule, for any setting of the clock and any crash.

use std::collections::VecDeque;

use crate::simulation::history::History;
use tidegate_model::{Address, Missed};
use tidegate_store::{ReadError, Store};

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

#[derive(Debug)]
pub(crate) struct Ticking {
    every: i64,
    missed: Missed,
    /// Time up to which all ticks are handled in this run.
    handled: i64,
    /// Time up to which ticks came without a runner.
    began: i64,
    /// Taken ticks of this run that are not durable.
    takes: VecDeque<Take>,
    /// Expected due times of the recorded ticks.
    dues: Vec<i64>,
    durable: Option<i64>,
    /// Number of observed jobs of the queue.
    seen: usize,
}

#[derive(Debug)]
struct Take {
    dues: Vec<i64>,
    handled: i64,
}

impl Ticking {
    pub(crate) fn new(every: i64, missed: Missed) -> Self {
        let (takes, dues) = (VecDeque::new(), Vec::new());
        Self { every, missed, handled: 0, began: 0, takes, dues, durable: None, seen: 0 }
    }

    /// Begins a run.
    pub(crate) fn begin(&mut self, now: i64) {
        self.takes.clear();
        self.began = now;
        self.handled = self.durable.filter(|last| last - now <= DAY).unwrap_or(now);
        if self.durable != Some(self.handled) {
            self.takes.push_back(Take { dues: Vec::new(), handled: self.handled });
        }
    }

    /// Handles the time `now` in a running engine.
    pub(crate) fn pass(&mut self, now: i64) {
        let before = self.handled;
        if self.handled - now > DAY {
            (self.handled, self.began) = (now, self.began.min(now));
        }
        let first = (self.handled.div_euclid(self.every) + 1) * self.every;
        let mut dues = Vec::new();
        let mut due = first;
        while due <= now {
            dues.push(due);
            due += self.every;
        }
        if let Some(&last) = dues.last() {
            self.handled = last;
            if first <= self.began || now - first > MINUTE {
                match self.missed {
                    Missed::All => {}
                    Missed::Once => dues = vec![last],
                    Missed::Skip => dues.retain(|&due| due == last && now - last <= MINUTE),
                }
            }
        }
        if self.handled != before {
            self.takes.push_back(Take { dues, handled: self.handled });
        }
    }

    /// Number of recorded ticks.
    pub(crate) fn count(&self) -> u64 {
        self.seen as u64
    }

    /// Compares the recorded ticks with the taken ones.
    pub(crate) fn look(&mut self, store: &Store, history: &History) -> Result<(), ReadError> {
        let queue = source();
        let ticked = store.ticked(&queue)?.map(|ticked| ticked.0);
        let rows = history.rows.get(&queue).map(Vec::as_slice).unwrap_or_default();
        while (self.durable, self.dues.len()) != (ticked, rows.len()) {
            let Some(Take { dues, handled }) = self.takes.pop_front() else {
                panic!("{} ticks up to {ticked:?} are recorded without being due: {self:?}", rows.len())
            };
            self.dues.extend(dues);
            self.durable = Some(handled);
        }
        for (row, due) in rows.iter().zip(&self.dues).skip(self.seen) {
            let row = row.as_ref().unwrap();
            let job: serde_json::Value = serde_json::from_slice(&row.payload).unwrap();
            let recorded: jiff::Timestamp = job["due"].as_str().unwrap().parse().unwrap();
            assert_eq!(recorded.as_millisecond(), *due, "another tick is on record: {self:?}");
        }
        self.seen = rows.len();
        Ok(())
    }
}

/// Whether a step has read all ticks.
pub(crate) fn are_read(history: &History) -> bool {
    history.head(&Address::parse("p/ticked").unwrap()) == history.head(&source())
}

/// Address of the schedule source.
fn source() -> Address {
    Address::parse("p/tick").unwrap()
}
