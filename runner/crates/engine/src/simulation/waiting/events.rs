//! Events: checks that the events of the step describe the durable state of each job, at every observation.

use std::collections::BTreeMap;

use serde_json::Value;

use super::stored_states::{At, StoredStates, Way};
use crate::simulation::history::History;
use tidegate_model::Address;

/// Events of the step, as far as they were observed.
#[derive(Debug, Default)]
pub(crate) struct Events {
    seen: usize,
    jobs: BTreeMap<u64, JobEvents>,
    watermark: u64,
}

#[derive(Debug, Default)]
struct JobEvents {
    last: Value,
    /// Number of recorded beginnings.
    begun: u32,
    ends: u32,
}

/// Record of the beginnings of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// Each job has a row.
    InRows,
    /// Batches of an ordered step have snapshots.
    InSnapshots,
    Never,
}

impl Events {
    /// Observes the events, and compares them with the jobs.
    pub(crate) fn look(&mut self, history: &History, stored: &StoredStates, begins: Begins) {
        let queue = Address::parse("p/events").unwrap();
        let rows = history.rows.get(&queue).map(Vec::as_slice).unwrap_or_default();
        for row in rows[self.seen..].iter().flatten() {
            self.add(serde_json::from_slice(&row.payload).unwrap());
        }
        self.seen = rows.len();
        for (index, at) in &stored.jobs {
            let none = JobEvents::default();
            let events = self.jobs.get(index).unwrap_or(&none);
            // A snapshot records the beginning of a batch, and no state of its jobs.
            let is_in_snapshot = begins == Begins::InSnapshots
                && matches!(at, At::Fresh | At::Delayed { .. })
                && events.last["event"] == "begun";
            let is_described = events.describe(at) || is_in_snapshot;
            assert!(is_described, "{index} is {at:?}, and its events are {events:?}");
            let begun = match begins {
                Begins::InRows => events.begun >= at.attempts(),
                Begins::InSnapshots => true,
                Begins::Never => events.begun == 0,
            };
            assert!(begun, "{index} is {at:?}, and was begun {} times", events.begun);
        }
        let finished = stored.jobs.values().take_while(|at| matches!(at, At::Through(_))).count();
        assert_eq!(self.watermark, finished as u64, "the watermark is another one: {stored:#?}");
    }

    fn add(&mut self, event: Value) {
        let index = event["index"].as_u64().unwrap();
        if event["event"] == "watermark" {
            assert!(index > self.watermark, "the watermark does not advance: {event}");
            self.watermark = index;
            return;
        }
        let job = self.jobs.entry(index).or_default();
        assert_eq!(job.ends, 0, "{event} comes after the end of the job, {}", job.last);
        job.begun += u32::from(event["event"] == "begun");
        job.ends += u32::from(event["event"] == "done");
        job.last = event;
    }
}

impl JobEvents {
    /// Whether the last event is that of a job in this state.
    fn describe(&self, at: &At) -> bool {
        let (word, outcome) = (self.last["event"].as_str(), self.last["outcome"].as_str());
        match at {
            At::Fresh => word.is_none(),
            // The commit that delivers a job has the event of its end.
            At::Finished { attempts: attempt, .. } | At::Started(attempt) => {
                matches!(word, Some("begun" | "unknown")) && self.last["attempt"] == *attempt
            }
            At::Delayed { .. } => word == Some("delayed"),
            At::Pending { handle, .. } => {
                matches!(word, Some("pending" | "valid")) && self.last["handle"] == **handle
            }
            At::Through(way) => {
                let expected = match way {
                    Way::Output => "delivered",
                    Way::Error => "set-aside",
                    Way::Nothing => "dropped",
                };
                word == Some("done") && outcome == Some(expected)
            }
        }
    }
}
