//! What must come of a schedule, counted tick by tick, however the clock is set and whatever crashes.

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
    /// Up to here all ticks are handled, in this run.
    handled: i64,
    /// Ticks up to here came while nobody was there.
    began: i64,
    /// What was made of ticks in this run, and is not durable.
    takes: VecDeque<Take>,
    /// What must be on record.
    dues: Vec<i64>,
    durable: Option<i64>,
    /// So many jobs of the queue were looked at.
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

    /// A run begins.
    pub(crate) fn begin(&mut self, now: i64) {
        self.takes.clear();
        self.began = now;
        self.handled = self.durable.filter(|last| last - now <= DAY).unwrap_or(now);
        if self.durable != Some(self.handled) {
            self.takes.push_back(Take { dues: Vec::new(), handled: self.handled });
        }
    }

    /// It is `now`, and somebody who is there looks.
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

    /// How many ticks are on record.
    pub(crate) fn count(&self) -> u64 {
        self.seen as u64
    }

    /// Compares what is on record with what was made.
    pub(crate) fn look(&mut self, store: &Store, history: &History) -> Result<(), ReadError> {
        let queue = source();
        let ticked = store.ticked(&queue)?.map(|ticked| ticked.0);
        let rows = history.rows.get(&queue).map(Vec::as_slice).unwrap_or_default();
        while (self.durable, self.dues.len()) != (ticked, rows.len()) {
            let Some(Take { dues, handled }) = self.takes.pop_front() else {
                panic!("{} ticks up to {ticked:?} are on record, and nobody made them: {self:?}", rows.len())
            };
            self.dues.extend(dues);
            self.durable = Some(handled);
        }
        for (row, due) in rows.iter().zip(&self.dues).skip(self.seen) {
            let row = row.as_ref().unwrap();
            let job: serde_json::Value = serde_json::from_slice(&row.payload).unwrap();
            let told: jiff::Timestamp = job["due"].as_str().unwrap().parse().unwrap();
            assert_eq!(told.as_millisecond(), *due, "another tick is on record: {self:?}");
        }
        self.seen = rows.len();
        Ok(())
    }
}

/// Whether a step has read all ticks.
pub(crate) fn are_read(history: &History) -> bool {
    history.head(&Address::parse("p/ticked").unwrap()) == history.head(&source())
}

/// The schedule source.
fn source() -> Address {
    Address::parse("p/tick").unwrap()
}
