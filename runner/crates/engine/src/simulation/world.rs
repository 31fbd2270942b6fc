//! World: keeps all state that survives a crash: disk, files, external systems and the recorded promises.

use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use super::blueprint::Blueprint;
use super::dice::Dice;
use super::drawing;
use super::effects::Effects;
use super::history::History;
use super::jobs::{self, JobsPlan};
use super::outcome::Perils;
use super::requests::Requests;
use super::tally::Tally;
use super::waiting::Waiting;
use super::workers::Workers;
use crate::operator::apply::apply;
use crate::operator::request::Request;
use tidegate_config::{Configuration, DeliveryGuarantee, SinkKind};
use tidegate_model::{Address, Clock as _, ManualClock};
use tidegate_store::testing::{DiskFailure, FaultyDisk};
use tidegate_store::{ParkedId, Store, Writer, open_disk};

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) folder: TempDir,
    pub(crate) plan: Blueprint,
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) disk: FaultyDisk,
    pub(crate) history: History,
    pub(crate) requests: Requests,
    pub(crate) effects: Effects,
    pub(crate) workers: Workers,
    pub(crate) tally: Tally,
    /// Simulated step, if the seed has no graph.
    pub(crate) jobs: Option<JobsPlan>,
    pub(crate) waiting: Option<Waiting>,
    failure: Option<DiskFailure>,
    /// Claimed jobs that the last run has begun; `None` if that record is lost.
    pub(crate) begun: Option<HashSet<ParkedId>>,
    /// Whether the last run crashed, with or without a power failure.
    pub(crate) crashed: Option<bool>,
}

/// An empty store; it is created once, because that is slow.
fn empty_store() -> Vec<u8> {
    static EMPTY: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let disk = FaultyDisk::new();
        drop(open_disk(Box::new(disk.clone())).unwrap());
        disk.bytes()
    };
    EMPTY.get_or_init(make).clone()
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let plan = drawing::random(&mut dice);
        plan.write_sources(folder.path());
        Self::with(dice, folder, plan)
    }

    pub(crate) fn of_jobs(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let jobs = jobs::random(&mut dice);
        let sources = BTreeMap::from([("p/s0".to_owned(), jobs.lines.clone())]);
        let plan = Blueprint { sources, files: jobs.files(), ..Blueprint::default() };
        plan.write_sources(folder.path());
        Self { jobs: Some(jobs), ..Self::with(dice, folder, plan) }
    }

    pub(crate) fn of_waiting(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let waiting = Waiting::random(&mut dice);
        let sources = BTreeMap::from([("p/s0".to_owned(), waiting.lines())]);
        let plan = Blueprint { sources, files: waiting.files(), ..Blueprint::default() };
        plan.write_sources(folder.path());
        Self { waiting: Some(waiting), ..Self::with(dice, folder, plan) }
    }

    /// Whether the seed has a whole graph.
    pub(crate) fn is_graph(&self) -> bool {
        self.jobs.is_none() && self.waiting.is_none()
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self) {
        self.requests.listen();
        if let Some(waiting) = &mut self.waiting {
            waiting.listen();
        }
    }

    fn with(dice: Dice, folder: TempDir, plan: Blueprint) -> Self {
        let configuration = Arc::new(plan.load(folder.path()));
        Self {
            jobs: None,
            waiting: None,
            dice,
            folder,
            plan,
            configuration,
            clock: Arc::new(ManualClock::at(1_700_000_000_000)),
            disk: FaultyDisk::with(empty_store()),
            history: History::default(),
            requests: Requests::default(),
            effects: Effects::default(),
            workers: Workers::default(),
            tally: Tally::default(),
            failure: None,
            begun: Some(HashSet::new()),
            crashed: None,
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        let jobs = self.history.rows.values().map(|rows| rows.len() as u64).sum();
        let request_outcome = self.requests.all.iter().filter(|wish| wish.request_outcome).count() as u64;
        let lost = self.history.steps.values().map(|known| known.lost.fresh.len() as u64).sum();
        let mut tally = Tally { request_outcome, jobs, lost, ..self.tally };
        if let Some(waiting) = &self.waiting {
            tally.add(&waiting.tally());
        }
        tally
    }

    /// The run has ended in order.
    pub(crate) fn rest(&mut self) {
        self.disk = FaultyDisk::with(self.disk.bytes());
        self.crashed = None;
        self.workers.forget(&self.configuration);
    }

    /// The process dies, with or without a power failure.
    pub(crate) fn die(&mut self) {
        let power = match self.failure {
            Some(DiskFailure::FreezeAt(_)) => true,
            Some(DiskFailure::FullFrom(_)) => false,
            Some(DiskFailure::From(_)) | None => self.dice.chance(50),
        };
        let survivors = self.dice.between(0, 5);
        let bytes = if power { self.disk.survivors(survivors) } else { self.disk.bytes() };
        self.disk = FaultyDisk::with(bytes);
        // A process may also find no disk space for its record.
        if power || self.dice.chance(10) {
            self.begun = None;
        }
        self.crashed = Some(power);
        self.tally.crashes += 1;
        self.workers.forget(&self.configuration);
    }

    /// From now on no failure occurs.
    pub(crate) fn calm(&mut self) {
        self.failure = None;
        self.disk.heal();
        if let Some(waiting) = &mut self.waiting {
            waiting.calm(true);
        }
    }

    /// Perils of the next run.
    pub(crate) fn perils(&mut self) -> Perils {
        let requests = if self.is_graph() { self.dice.below(5) } else { 0 };
        let mut perils = Perils { requests, ..Perils::default() };
        let soon = |dice: &mut Dice, most: u64| {
            let exponent = dice.between(0, most);
            dice.between(1, 1 << exponent)
        };
        self.failure = None;
        match self.dice.below(20) {
            0..=2 => {}
            3..=7 => perils.dies_after = Some(soon(&mut self.dice, 9)),
            8 => perils.stops_after = Some(soon(&mut self.dice, 8)),
            9 => self.failure = Some(DiskFailure::FullFrom(soon(&mut self.dice, 11))),
            10..=14 => self.failure = Some(DiskFailure::From(soon(&mut self.dice, 11))),
            _ => self.failure = Some(DiskFailure::FreezeAt(soon(&mut self.dice, 6))),
        }
        if let Some(failure) = self.failure {
            self.disk.fail(failure);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.calm(false);
            // The run may not end on its own.
            let after = Some(self.dice.between(1, 700));
            let lasts = perils.stops_after.is_none() && self.dice.chance(60);
            *(if lasts { &mut perils.calms_after } else { &mut perils.stops_after }) = after;
        }
        perils
    }

    /// Applies a request while no run is active.
    pub(crate) fn amend_at_rest(&mut self, store: &Store, writer: &mut Writer) {
        let World { dice, requests, history, configuration, clock, .. } = self;
        let Some(request) = requests.think(dice, history, configuration) else { return };
        let Ok(effect) = apply(store, configuration, &request, clock.now()) else { return };
        writer.commit(&effect.changes).unwrap();
        if let Request::Replay { step, .. } = &request {
            history.replayed.insert(step.clone());
            self.effects.forget(step);
        }
        requests.done(request);
        history.observe(store).unwrap();
    }

    /// Changes the configuration files.
    pub(crate) fn change(&mut self) {
        let number = self.plan.steps.len();
        let most = if self.is_graph() { 20 } else { 5 };
        match self.dice.below(most) {
            0..=3 => self.plan.version += 1,
            4 if number > 1 => {
                let at = self.dice.below(number);
                let Some(gone) = self.plan.remove(at) else { return };
                self.effects.forget(&gone.address());
            }
            5 if number > 0 => {
                let at = self.dice.below(number);
                let step = &mut self.plan.steps[at];
                self.effects.forget(&step.address());
                step.name += "x";
            }
            6 if number > 0 => {
                let at = self.dice.below(number);
                let step = &mut self.plan.steps[at];
                step.delivery = match step.delivery {
                    None | Some(DeliveryGuarantee::ExactlyOnce) => Some(DeliveryGuarantee::AtLeastOnce),
                    Some(DeliveryGuarantee::AtLeastOnce) => None,
                    Some(DeliveryGuarantee::AtMostOnce) => return,
                };
                self.effects.forget(&step.address());
            }
            _ => return,
        }
        self.reload();
    }

    pub(crate) fn reload(&mut self) {
        self.configuration = Arc::new(self.plan.load(self.folder.path()));
    }

    /// Damages the files of sinks. A killed process leaves more lines than were committed, and a power
    /// failure removes some that were not synced.
    pub(crate) fn meddle_with_sinks(&mut self, store: &Store, power: bool) {
        for (address, path) in self.files() {
            let position = store.sink(&address).unwrap();
            let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
            let len = file.metadata().unwrap().len();
            let committed = position.as_ref().map_or(0, |position| position.offset);
            assert!(len >= committed, "{address} lost committed lines");
            if power {
                let open = position.as_ref().is_some_and(|position| position.open);
                let left = if open { self.dice.between(committed, len) } else { committed };
                file.set_len(left).unwrap();
            }
            if position.as_ref().is_some_and(|position| position.open) && self.dice.chance(30) {
                let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                file.write_all(b"{\"half\":").unwrap();
            }
        }
    }

    /// Files of the sinks.
    fn files(&self) -> Vec<(Address, PathBuf)> {
        let sinks = self.configuration.sinks.iter();
        sinks
            .filter_map(|sink| match &sink.kind {
                SinkKind::File(file) => Some((sink.address.clone(), file.path.clone())),
                SinkKind::Stdout(_) | SinkKind::Http(_) | SinkKind::Null => None,
            })
            .collect()
    }
}
