//! Jobs simulation: runs one step that retries, delays and picks its jobs, with the same crashes as whole
//! graphs.
//!
//! Every job ends exactly once. No job is attempted before its time. First attempts and commits have the
//! order of the strategy.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::dice::Dice;
use super::history::History;
use super::outcome::Ended;
use crate::batch::input::BatchInput;
use crate::batch::job_builder::{BatchCursor, JobBuilder};
use tidegate_config::{Configuration, Step};
use tidegate_dispatch::RunOutcome;
use tidegate_model::{Address, Timestamp};
use tidegate_store::Store;

/// Simulated step.
#[derive(Clone, Debug)]
pub(crate) struct JobsPlan {
    toml: String,
    pub(crate) lines: Vec<String>,
    jobs: Vec<JobPlan>,
    order: Order,
    /// Whether attempts are begun durably, so that a crash counts as one.
    charged: bool,
    /// Attempted jobs, in the order of first attempts.
    attempted: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct JobPlan {
    lane: u64,
    /// Number of attempts that fail.
    fails: u32,
    /// Whether it has a second output, which is delayed.
    late: bool,
}

/// Order that the jobs keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    None,
    OfLane,
    OfAll,
    /// Order of deliveries, for attempts in any order.
    OfDeliveries,
}

pub(crate) const ATTEMPTS_MAX: u32 = 4;

/// Script of the step.
const SCRIPT: &str = r#"
fn process(job, ctx) {
    if job.fails >= ctx.attempt {
        if job.fails % 2 == 0 { retry_in("3s", "busy"); }
        throw "not yet";
    }
    if job.late { emit_in("out", #{ late: job.id }, "5s"); }
    #{ out: job, shown: job.id }
}
"#;

/// Configuration of the step. `queuer`: its queuer, if it has one; `shown`: whether one of its outputs is
/// visible to external systems.
pub(crate) fn step_toml(from: &str, queuer: &str, shown: bool) -> String {
    let shown = if shown { "stdout" } else { "null" };
    let queuer = if queuer.is_empty() { String::new() } else { format!("queuer = {{ {queuer} }}\n") };
    format!(
        "[sink.shown]\ntype = \"{shown}\"\n[step.t]\nfrom = \"{from}\"\nrun = \"job.rhai\"\n\
         to = {{ out = \"out\", shown = \"shown\" }}\nerrors = \"failed\"\ncrash_limit = 1000000\n\
         retry = {{ backoff = \"exponential\", initial = \"1s\", max_attempts = {ATTEMPTS_MAX} }}\n{queuer}"
    )
}

pub(crate) fn random(dice: &mut Dice) -> JobsPlan {
    let jobs: Vec<JobPlan> = (0..dice.between(1, 30))
        .map(|_| JobPlan {
            lane: dice.between(0, 3),
            fails: [0, 0, 0, 0, 1, 2, 3, 9][dice.below(8)],
            late: dice.chance(10),
        })
        .collect();
    let strategies: [(&str, Order); 11] = [
        ("", Order::OfDeliveries),
        ("strategy = \"fifo\", max_processing = 3", Order::None),
        ("strategy = \"fifo\", max_search_ahead = 4, rate = \"2/s\"", Order::None),
        ("strategy = \"fifo\", max_processing = 3, ordered = true", Order::OfDeliveries),
        ("strategy = \"fifo\", max_search_ahead = 6, ordered = true", Order::OfDeliveries),
        ("strategy = \"one-round-serial\", lane = \"lane\", ordered = true", Order::OfDeliveries),
        ("strategy = \"serial\"", Order::OfAll),
        ("strategy = \"one-round-serial\", lane = \"lane\", delay_window = \"1s\"", Order::OfLane),
        ("strategy = \"one-round-parallel\", lane = \"lane\", writes = \"all\"", Order::OfLane),
        ("strategy = \"rounds\", pause = \"2s\", lane = \"lane\", max_per_lane = 1", Order::None),
        ("strategy = \"priority\", priority = \"urgency\", aging = \"1s\"", Order::None),
    ];
    let (queuer, order) = *dice.pick(&strategies);
    let charged = dice.chance(50);
    let mut toml = "[pipeline]\nname = \"p\"\n[source.s0]\ntype = \"file\"\npath = \"s0.ndjson\"\n\
                    format = \"ndjson\"\n[queue.out]\nretain = \"forever\"\n[queue.failed]\nretain = \"forever\"\n"
        .to_owned();
    let from = match dice.below(4) {
        0 | 1 => "s0",
        2 => {
            toml += "[step.first]\nfrom = \"s0\"\nto = \"q0\"\n";
            "q0"
        }
        // A queued step without processors; if order matters, it runs one job at a time.
        _ => {
            let picks = if order == Order::None { "rounds" } else { "serial" };
            toml += "[step.first]\nfrom = \"s0\"\nto = \"q1\"\n[step.pass]\nfrom = \"q1\"\nto = \"q0\"\n";
            toml.extend(["queuer = { strategy = \"", picks, "\" }\n"]);
            "q0"
        }
    };
    toml += &step_toml(from, queuer, charged);
    let line = |(id, job): (usize, &JobPlan)| {
        let JobPlan { lane, fails, late } = job;
        let urgency = id % 3;
        format!(
            "{{\"id\":{},\"lane\":\"l{lane}\",\"fails\":{fails},\"late\":{late},\"all\":[\"x\"],\"urgency\":{urgency}}}",
            id + 1
        )
    };
    let lines = jobs.iter().enumerate().map(line).collect();
    JobsPlan { toml, lines, jobs, order, charged, attempted: Vec::new() }
}

impl JobsPlan {
    pub(crate) fn files(&self) -> Vec<(&'static str, String)> {
        vec![("p.toml", self.toml.clone()), ("job.rhai", SCRIPT.to_owned())]
    }

    /// Checks an attempt before it is made.
    pub(crate) fn attempt(
        &mut self,
        configuration: &Configuration,
        step: &Step,
        work: &BatchInput,
        now: Timestamp,
    ) {
        if step.address.name.as_str() != "t" {
            return;
        }
        for portion in &work.portions {
            let rows = portion.returned.iter().flat_map(|all| &all[portion.skip..][..portion.jobs]);
            for row in rows {
                assert!(row.job.due.is_by(now), "{:?} is tried before its time", row.key);
            }
        }
        let mut gatherer = JobBuilder::new(configuration, step);
        let mut walk = BatchCursor::new(work);
        while let Some(item) = gatherer.next(&mut walk, false) {
            if item.to.is_none() && !self.attempted.contains(&item.index()) {
                self.attempted.push(item.index());
            }
        }
        if self.order != Order::OfDeliveries {
            self.assert_in_order("attempted", &self.attempted);
        }
    }

    fn assert_in_order(&self, what: &str, indices: &[u64]) {
        let lane = |index: u64| match self.order {
            Order::OfLane => self.job(index).lane,
            Order::OfAll | Order::OfDeliveries | Order::None => 0,
        };
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for &index in indices.iter().filter(|_| self.order != Order::None) {
            let before = last.insert(lane(index), index).unwrap_or(0);
            assert!(before < index, "{what}: {index} comes after {before} in {indices:?}\n{}", self.toml);
        }
    }

    fn job(&self, index: u64) -> JobPlan {
        self.jobs[usize::try_from(index - 1).unwrap()]
    }

    /// Compares the jobs on the queues with the guarantees.
    pub(crate) fn check(&self, history: &History, store: &Store, ended: Option<&Ended>) {
        let (done, late) = read(history, "p/out");
        let (failed, none) = read(history, "p/failed");
        assert!(none.is_empty());
        self.assert_in_order("delivered", &done);
        self.assert_in_order("failed", &failed);
        let ends: Vec<u64> = done.iter().chain(&failed).copied().collect();
        let once: BTreeSet<u64> = ends.iter().copied().collect();
        assert_eq!(once.len(), ends.len(), "a job ended twice: {done:?}, {failed:?}\n{}", self.toml);
        if self.order == Order::OfDeliveries {
            // No job has ended before the ones in front of it.
            assert!(once.iter().copied().eq(1..=once.len() as u64), "{once:?} has a gap\n{}", self.toml);
        }
        for &index in &done {
            let fails = self.job(index).fails;
            assert!(fails < ATTEMPTS_MAX, "{index} cannot have finished: {done:?}\n{}", self.toml);
        }
        for &index in &failed {
            let fails = self.job(index).fails;
            assert!(fails >= ATTEMPTS_MAX || self.charged && fails > 0, "{index} had attempts left");
        }
        let late_once: BTreeSet<u64> = late.iter().copied().collect();
        assert_eq!(late_once.len(), late.len(), "a late output came twice: {late:?}");
        assert!(late_once.iter().all(|index| done.contains(index)), "{late:?} of {done:?}");
        let Some(ended) = ended.filter(|ended| ended.end != RunOutcome::Stopped) else { return };
        assert!(ended.halted.is_empty(), "{:?}", ended.halted);
        assert_eq!(once.len(), self.jobs.len(), "not every job has ended: {once:?}\n{}", self.toml);
        let wanted: BTreeSet<u64> = done.iter().copied().filter(|&index| self.job(index).late).collect();
        assert_eq!(late_once, wanted, "late outputs are missing");
        let step = Address::parse("p/t").unwrap();
        assert_eq!(store.parked_count(&step).unwrap(), 0);
    }
}

/// Numbers of the jobs of a queue, and of those that came as delayed outputs.
fn read(history: &History, queue: &str) -> (Vec<u64>, Vec<u64>) {
    let rows = history.rows.get(&Address::parse(queue).unwrap()).map(Vec::as_slice).unwrap_or_default();
    let (mut jobs, mut late) = (Vec::new(), Vec::new());
    for row in rows.iter().flatten() {
        let value: Value = serde_json::from_slice(&row.payload).unwrap();
        let id = |value: &Value| value["id"].as_u64();
        match value["late"].as_u64() {
            Some(of) => late.push(of),
            None => jobs.push(id(&value).or_else(|| id(&value["job"])).unwrap()),
        }
    }
    (jobs, late)
}
