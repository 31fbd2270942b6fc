//! Joins simulation: runs one join by key with the same crashes as whole graphs. Its keys and limits change, and operators
//! move and cancel its jobs.
//!
//! Each job that the join has taken is parked, in one tuple, or on the error queue, after every commit. No job leaves
//! before its time. Jobs of one key are paired in the order of their indices.

use std::collections::{BTreeMap, BTreeSet};

use crossbeam_channel::{Receiver, TryRecvError};
use serde_json::{Map, Value, json};

use super::dice::Dice;
use super::history::{History, Row};
use super::outcome::Ended;
use super::tally::Tally;
use crate::operator::request::{PendingRequest, Request, RequestOutcome};
use tidegate_config::Configuration;
use tidegate_dispatch::RunOutcome;
use tidegate_model::{Address, Due, Timestamp};
use tidegate_store::{ParkedId, ReadError, Store};

const BINDINGS: [&str; 3] = ["a", "b", "c"];

/// Script of the step that reads the tuples. Some of its attempts fail.
const SCRIPT: &str = r#"
fn process(job, ctx) {
    if ctx.index % 3 == 0 && ctx.attempt == 1 { throw "not yet"; }
    job
}
"#;

/// A job of an input, and its index there.
type Place = (usize, u64);

/// The keys of a job by `id` and by `ref`.
type Keys = (Option<String>, Option<String>);

/// Simulated join, and all that was observed of it.
#[derive(Debug)]
pub(crate) struct Joins {
    sides: Vec<Side>,
    settings: Settings,
    /// Settings in force.
    in_force: Settings,
    /// Whether other settings than the first were ever in force.
    has_changed: bool,
    join: Address,
    /// Rows of the jobs without a partner at the last commit.
    rows: Vec<ParkedId>,
    /// Times at which jobs leave, as last observed.
    dues: BTreeMap<Place, Due>,
    asked: Vec<Receiver<Result<RequestOutcome, String>>>,
    has_cancelled: bool,
    tally: Tally,
}

#[derive(Clone, Debug)]
struct Side {
    lines: Vec<String>,
    /// Steps before the join, as TOML; without any, the join reads the source.
    before: Option<String>,
    /// Whether its jobs go on without partners.
    left: bool,
}

/// Settings that a reload may change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    on: &'static str,
    /// In seconds.
    within: Option<u64>,
    max_waiting: Option<u64>,
}

impl Joins {
    pub(crate) fn random(dice: &mut Dice) -> Self {
        let within = dice.chance(60).then(|| dice.between(1, 20));
        let side = |dice: &mut Dice, at: usize| {
            let lines = (0..dice.between(0, 15)).map(|n| line(dice, at, n)).collect();
            let queuers = [
                "",
                "queuer = { strategy = \"priority\", priority = \"n\" }\n",
                "queuer = { strategy = \"fifo\", max_processing = 3, rate = \"2/s\" }\n",
            ];
            let before = dice.chance(60).then(|| {
                format!("[step.first{at}]\nfrom = \"s{at}\"\nto = \"q{at}\"\n{}", dice.pick(&queuers))
            });
            Side { lines, before, left: within.is_some() && dice.chance(30) }
        };
        let sides = (0..2 + dice.below(2)).map(|at| side(dice, at)).collect();
        let max_waiting = dice.chance(30).then(|| dice.between(1, 4));
        let settings = Settings { on: "id", within, max_waiting };
        Self {
            sides,
            in_force: settings.clone(),
            settings,
            has_changed: false,
            join: Address::parse("p/match-join").unwrap(),
            rows: Vec::new(),
            dues: BTreeMap::new(),
            asked: Vec::new(),
            has_cancelled: false,
            tally: Tally::default(),
        }
    }

    pub(crate) fn sources(&self) -> BTreeMap<String, Vec<String>> {
        self.sides.iter().enumerate().map(|(at, side)| (format!("p/s{at}"), side.lines.clone())).collect()
    }

    pub(crate) fn files(&self) -> Vec<(&'static str, String)> {
        let mut toml =
            "[pipeline]\nname = \"p\"\nerrors = \"failed\"\n[queue_defaults]\nretain = \"forever\"\n"
                .to_owned();
        for (at, side) in self.sides.iter().enumerate() {
            toml.extend([format!(
                "[source.s{at}]\ntype = \"file\"\npath = \"s{at}.ndjson\"\nformat = \"ndjson\"\n"
            )]);
            toml.extend(side.before.as_deref());
        }
        let sides = self.sides.iter().enumerate();
        let inputs: Vec<String> =
            sides.clone().map(|(at, _)| format!("{} = \"{}\"", BINDINGS[at], self.input(at).name)).collect();
        let Settings { on, within, max_waiting } = &self.settings;
        toml.extend([format!("[step.match]\njoin = {{ {} }}\non = \"{on}\"\n", inputs.join(", "))]);
        if let Some(within) = within {
            toml.extend([format!("within = \"{within}s\"\n")]);
        }
        if let Some(max_waiting) = max_waiting {
            toml.extend([format!("max_waiting = {max_waiting}\n")]);
        }
        let left: Vec<&str> = sides.filter(|(_, side)| side.left).map(|(at, _)| BINDINGS[at]).collect();
        if !left.is_empty() {
            toml.extend([format!("left = {left:?}\n")]);
        }
        toml += "run = \"tuple.rhai\"\nto = \"out\"\nretry = { backoff = \"fixed\", initial = \"1s\" }\n";
        vec![("p.toml", toml), ("tuple.rhai", SCRIPT.to_owned())]
    }

    /// Changes the settings for a reload.
    pub(crate) fn change(&mut self, dice: &mut Dice) {
        let before = self.settings.clone();
        match dice.below(6) {
            0 => self.settings.on = if before.on == "id" { "ref" } else { "id" },
            1 if before.within.is_some() => self.settings.within = Some(dice.between(1, 20)),
            2 => self.settings.max_waiting = dice.chance(50).then(|| dice.between(1, 4)),
            _ => {}
        }
        self.has_changed |= before != self.settings;
    }

    /// Records the settings of a generation that is in force.
    pub(crate) fn is_in_force(&mut self, configuration: &Configuration) {
        let join = configuration.steps.iter().find_map(|step| step.joins.as_ref()).unwrap();
        let on = if join.sides[0].on.to_string() == "id" { "id" } else { "ref" };
        let max_waiting = Some(join.max_waiting).filter(|max| *max < 100);
        self.in_force = Settings { on, within: join.within.map(|within| within.as_secs()), max_waiting };
    }

    /// Creates a random request of an operator for jobs without a partner.
    pub(crate) fn think(&mut self, dice: &mut Dice) -> Option<PendingRequest> {
        let count = 1 + dice.below(3);
        let (step, mut rows) = (self.join.clone(), dice.several(&self.rows, count));
        if rows.is_empty() {
            return None;
        }
        rows.sort_unstable();
        let request = if dice.chance(50) {
            Request::MakeDue { step, rows }
        } else {
            self.has_cancelled = true;
            Request::Cancel { step, rows, jobs: Vec::new(), drop: false, pending: true }
        };
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.asked.push(answer);
        Some(PendingRequest::new(request, reply))
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self) {
        for answer in std::mem::take(&mut self.asked) {
            match answer.try_recv() {
                Ok(Ok(RequestOutcome::Hastened(moved) | RequestOutcome::Cancelled(moved))) => {
                    self.tally.request_outcome += 1;
                    self.tally.moved += moved.jobs;
                }
                Ok(Err(why)) if why.starts_with("the run ends") => {}
                Ok(odd) => panic!("{odd:?}"),
                Err(TryRecvError::Empty) => self.asked.push(answer),
                Err(TryRecvError::Disconnected) => {}
            }
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Compares the durable state with the guarantees. `ended` is the end of the last run, if it has ended in order.
    pub(crate) fn check(
        &mut self,
        history: &History,
        store: &Store,
        now: Timestamp,
        ended: Option<&Ended>,
    ) -> Result<(), ReadError> {
        let mut places: BTreeMap<Place, Vec<&str>> = BTreeMap::new();
        let mut parked: BTreeMap<String, Vec<BTreeSet<u64>>> = BTreeMap::new();
        self.rows.clear();
        let mut dues = BTreeMap::new();
        for (row, job) in store.due(&self.join, Due::Never, None, usize::MAX, usize::MAX)? {
            let place = side(&job.inputs)[0];
            self.rows.push(row.id);
            places.entry(place).or_default().push("parked");
            dues.insert(place, job.due);
            let key = key(&job_of(&job.payload, place.0), self.in_force.on).unwrap_or_default();
            let waiting = parked.entry(key).or_insert_with(|| vec![BTreeSet::new(); self.sides.len()]);
            waiting[place.0].insert(place.1);
        }
        let is_over = |place: &Place| self.dues.get(place).is_some_and(|due| due.is_by(now));
        let mut tuples: BTreeMap<String, Vec<Vec<Place>>> = BTreeMap::new();
        for row in rows(history, "p/match-joined") {
            let members = side(&row.origin.as_ref().unwrap().inputs);
            for place in &members {
                places.entry(*place).or_default().push("tuple");
            }
            self.check_tuple(history, row, &members);
            let (key, _) = self.keys(history, members[0]);
            tuples.entry(key.unwrap_or_default()).or_default().push(members.clone());
            if members.len() < self.sides.len() {
                let leaves = members.iter().any(|place| self.sides[place.0].left && is_over(place));
                assert!(leaves, "{members:?} left before its time: {:?}", self.dues);
            }
        }
        for row in rows(history, "p/failed") {
            let origin = row.origin.as_ref().unwrap();
            assert_eq!(origin.step, self.join, "only jobs without a partner fail");
            let place = side(&origin.inputs)[0];
            places.entry(place).or_default().push("failed");
            let record: Value = serde_json::from_slice(&row.payload).unwrap();
            let why = record["message"].as_str().unwrap();
            match () {
                () if why.starts_with("no partner within") => {
                    assert!(is_over(&place), "{place:?} failed before its time: {:?}, {why}", self.dues);
                    assert!(!self.sides[place.0].left, "{place:?} should go on alone");
                }
                () if why.starts_with("it has no key") || why.starts_with("its key") => {
                    let (by_id, by_ref) = self.keys(history, place);
                    assert!(by_id.is_none() || by_ref.is_none() && self.has_changed, "{place:?}: {why}");
                }
                () => assert!(self.has_cancelled && why.starts_with("cancelled"), "{why}"),
            }
        }
        self.dues.extend(dues);
        self.check_places(history, store, &places)?;
        if self.settings.within.is_none() && !self.has_changed && !self.has_cancelled {
            self.check_order(history, &tuples);
        }
        check_reader(history);
        if let Some(ended) = ended.filter(|ended| ended.end != RunOutcome::Stopped) {
            self.check_end(history, store, ended, &parked)?;
        }
        Ok(())
    }

    /// Checks that a tuple has jobs of one key, as their inputs have them.
    fn check_tuple(&self, history: &History, row: &Row, members: &[Place]) {
        let jobs: Map<String, Value> = members
            .iter()
            .map(|&(side, index)| (BINDINGS[side].to_owned(), self.job(history, (side, index))))
            .collect();
        let tuple: Value = serde_json::from_slice(&row.payload).unwrap();
        assert_eq!(tuple, Value::from(jobs));
        let keys: Vec<_> = members.iter().map(|place| self.keys(history, *place)).collect();
        let is_one = |of: fn(&Keys) -> &Option<String>| {
            of(&keys[0]).is_some() && keys.iter().all(|key| of(key) == of(&keys[0]))
        };
        let meets = is_one(|(by_id, _)| by_id) || self.has_changed && is_one(|(_, by_ref)| by_ref);
        assert!(meets, "{members:?} have several keys: {keys:?}");
    }

    /// Checks that each job that the join has taken is in one place.
    fn check_places(
        &self,
        history: &History,
        store: &Store,
        places: &BTreeMap<Place, Vec<&str>>,
    ) -> Result<(), ReadError> {
        for (at, binding) in BINDINGS.iter().enumerate().take(self.sides.len()) {
            let progress = store.progress(&self.join, &self.input(at))?.unwrap_or_default();
            for index in 1..=self.head(history, at) {
                let found = places.get(&(at, index)).map_or(0, Vec::len);
                let is_taken = progress.is_done(index);
                assert_eq!(
                    found,
                    usize::from(is_taken),
                    "{index} of {}: {:?}",
                    binding,
                    places.get(&(at, index))
                );
            }
        }
        Ok(())
    }

    /// Checks that jobs of one key are paired in order, if none leaves.
    fn check_order(&self, history: &History, tuples: &BTreeMap<String, Vec<Vec<Place>>>) {
        for (key, tuples) in tuples {
            for at in 0..self.sides.len() {
                let of_key = (1..=self.head(history, at))
                    .filter(|index| self.keys(history, (at, *index)).0.as_ref() == Some(key));
                let paired: Vec<u64> = tuples.iter().map(|members| members[at].1).collect();
                let first: Vec<u64> = of_key.take(paired.len()).collect();
                assert_eq!(paired, first, "jobs of {} with the key {key}", BINDINGS[at]);
            }
        }
    }

    /// Checks that nothing is left that could go on.
    fn check_end(
        &self,
        history: &History,
        store: &Store,
        ended: &Ended,
        parked: &BTreeMap<String, Vec<BTreeSet<u64>>>,
    ) -> Result<(), ReadError> {
        assert!(ended.halted.is_empty(), "{:?}", ended.halted);
        assert_eq!(rows(history, "p/out").count(), rows(history, "p/match-joined").count());
        for (key, waiting) in parked {
            assert!(waiting.iter().any(BTreeSet::is_empty), "a tuple of {key} is complete: {waiting:?}");
        }
        if self.in_force.within.is_some() {
            assert_eq!(self.rows, [], "jobs without a partner should leave");
        }
        for at in 0..self.sides.len() {
            let progress = store.progress(&self.join, &self.input(at))?.unwrap_or_default();
            let all_taken = progress.position() == self.sides[at].lines.len() as u64;
            let is_full = |max: u64| {
                self.in_force.within.is_none()
                    && parked.values().map(|waiting| waiting[at].len() as u64).sum::<u64>() >= max
            };
            assert!(
                all_taken || ended.asked || self.in_force.max_waiting.is_some_and(is_full),
                "{} is not read: {progress:?}, {parked:?}, {:?}",
                BINDINGS[at],
                self.in_force
            );
        }
        Ok(())
    }

    fn input(&self, at: usize) -> Address {
        let name = if self.sides[at].before.is_some() { "q" } else { "s" };
        Address::parse(&format!("p/{name}{at}")).unwrap()
    }

    /// Number of jobs that the input has.
    fn head(&self, history: &History, at: usize) -> u64 {
        match self.sides[at].before {
            Some(_) => history.head(&self.input(at)),
            None => self.sides[at].lines.len() as u64,
        }
    }

    fn job(&self, history: &History, (at, index): Place) -> Value {
        let side = &self.sides[at];
        let text = match side.before {
            Some(_) => history.row(&self.input(at), index).payload.clone(),
            None => side.lines[usize::try_from(index).unwrap() - 1].clone().into_bytes(),
        };
        serde_json::from_slice(&text).unwrap()
    }

    /// The keys of a job by `id` and by `ref`.
    fn keys(&self, history: &History, place: Place) -> Keys {
        let job = self.job(history, place);
        (key(&job, "id"), key(&job, "ref"))
    }
}

/// Checks that no tuple is delivered twice.
fn check_reader(history: &History) {
    let mut delivered = BTreeSet::new();
    for row in rows(history, "p/out") {
        let index = row.origin.as_ref().unwrap().inputs[0].1;
        assert!(delivered.insert(index), "tuple {index} is delivered twice");
    }
    assert!(delivered.len() <= rows(history, "p/match-joined").count());
}

fn line(dice: &mut Dice, at: usize, n: u64) -> String {
    let number = dice.between(1, 8);
    let id = match dice.below(12) {
        0 => Value::Null,
        1..=3 => number.to_string().into(),
        _ => number.into(),
    };
    let mut job = json!({ "side": at, "n": n, "id": id, "ref": dice.between(1, 8) });
    if dice.chance(5)
        && let Some(job) = job.as_object_mut()
    {
        job.remove("id");
    }
    job.to_string()
}

/// The key as text.
fn key(job: &Value, on: &str) -> Option<String> {
    match &job[on] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Job of a parked row, whose payload is a map of its binding.
fn job_of(payload: &[u8], side: usize) -> Value {
    let mut map: Value = serde_json::from_slice(payload).unwrap();
    map[BINDINGS[side]].take()
}

fn side(inputs: &[(String, u64)]) -> Vec<Place> {
    let place = |(name, index): &(String, u64)| {
        let side = BINDINGS.iter().position(|binding| binding == name).unwrap();
        (side, *index)
    };
    inputs.iter().map(place).collect()
}

fn rows<'h>(history: &'h History, queue: &str) -> impl Iterator<Item = &'h Row> + use<'h> {
    history.rows.get(&Address::parse(queue).unwrap()).into_iter().flatten().flatten()
}
