//! What outlives a crash: the disk, the files, the outside, and whoever remembers what was promised.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use super::blueprint::Blueprint;
use super::check;
use super::dice::Dice;
use super::drawing;
use super::effects::Effects;
use super::history::History;
use super::jobs::{self, JobsPlan};
use super::requests::Requests;
use super::stage::{self, Ended, Perils};
use crate::config::{Configuration, Promise, SinkKind};
use crate::engine::amend::amend;
use crate::engine::request::Request;
use crate::engine::work::Worker;
use crate::hands::plugin::Plugins;
use crate::store::testing::{Failure, FaultyDisk};
use crate::store::{Store, Writer, open_disk, verify};
use crate::words::{Address, Clock as _, ManualClock, TokenKey};

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) folder: TempDir,
    pub(super) plan: Blueprint,
    pub(super) configuration: Arc<Configuration>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) disk: FaultyDisk,
    pub(super) history: History,
    pub(super) requests: Requests,
    pub(super) effects: Effects,
    pub(super) workers: Workers,
    pub(super) tally: Tally,
    /// What is played where it is no graph.
    pub(super) jobs: Option<JobsPlan>,
    failure: Option<Failure>,
    /// The last run crashed, and whether the power went.
    crashed: Option<bool>,
}

/// Compiling scripts takes longer than all the rest, so what they are compiled to is kept as long as
/// nothing can tell.
#[derive(Debug, Default)]
pub(super) struct Workers(BTreeMap<Address, ((u64, u64), Worker)>);

impl Workers {
    pub(super) fn get(
        &mut self,
        configuration: &Configuration,
        step: usize,
        generation: u64,
        store: &Store,
    ) -> &mut Worker {
        let step = &configuration.steps[step];
        let version = (generation, configuration.fingerprint());
        if self.0.get(&step.address).is_none_or(|(made, _)| *made != version) {
            let worker =
                Worker::new(configuration, step, generation, store, (&Plugins::default(), &TokenKey::NONE))
                    .unwrap();
            self.0.insert(step.address.clone(), (version, worker));
        }
        &mut self.0.get_mut(&step.address).unwrap().1
    }

    /// Those that ask the store do so only as long as it is open.
    fn forget(&mut self, configuration: &Configuration) {
        let asks = |step: &crate::config::Step| configuration.dedupes(step);
        for step in configuration.steps.iter().filter(|step| asks(step)) {
            self.0.remove(&step.address);
        }
    }
}

/// What was played, so that it can be seen that something was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) runs: u64,
    pub(super) crashes: u64,
    /// Batches that were begun before a crash and formed again after it.
    pub(super) again: u64,
    /// Requests that were granted.
    pub(super) granted: u64,
    /// Jobs on queues.
    pub(super) jobs: u64,
    /// Jobs of those that were on their way in a crash at most once.
    pub(super) lost: u64,
}

impl Tally {
    pub(super) fn add(&mut self, more: &Self) {
        self.runs += more.runs;
        self.crashes += more.crashes;
        self.again += more.again;
        self.granted += more.granted;
        self.jobs += more.jobs;
        self.lost += more.lost;
    }
}

/// Plays the history of a graph that the seed says, and asserts what was promised.
pub(super) fn play(seed: u64) -> Tally {
    play_in(World::new(seed))
}

/// The same of a step that retries, delays and picks its jobs.
pub(super) fn play_jobs(seed: u64) -> Tally {
    play_in(World::of_jobs(seed))
}

fn play_in(mut world: World) -> Tally {
    let mut ended = None;
    for _ in 0..world.dice.between(1, 6) {
        world.between(ended.as_ref());
        let perils = world.perils();
        world.tally.runs += 1;
        ended = stage::run(&mut world, perils).ok();
    }
    world.calm();
    for last in [false, true, true] {
        world.between(ended.as_ref());
        let requests = if last || world.jobs.is_some() { 0 } else { world.dice.below(4) };
        let Ok(calm) = stage::run(&mut world, Perils { requests, ..Perils::default() }) else {
            panic!("nothing failed, and it crashed")
        };
        if world.jobs.is_none() {
            world.plan.mend();
            world.reload();
        }
        ended = Some(calm);
    }
    world.between(ended.as_ref());
    world.tally()
}

/// Crashes a run that leaves attempts on record, and then the recovery at each step of it, one after the
/// other. Answers how many steps that were; `None` where the run left nothing on record.
pub(super) fn interrupt(seed: u64) -> Option<u64> {
    let mut world = World::new(seed);
    world.between(None);
    if stage::run(&mut world, Perils { dies_after: Some(60), ..Perils::default() }).is_ok() {
        return None;
    }
    let (store, writer) = open_disk(Box::new(world.disk.clone())).unwrap();
    let nothing = store.all_snapshots().unwrap().is_empty();
    world.look(&store, None);
    drop(writer);
    if nothing {
        return None;
    }
    for step in 1.. {
        world.disk = FaultyDisk::with(world.disk.bytes());
        world.disk.fail(Failure::From(step));
        let failing = world.disk.clone();
        // Where nothing strikes, it dies with the recovery behind it.
        assert!(stage::run(&mut world, Perils { dies_after: Some(0), ..Perils::default() }).is_err());
        let (store, writer) = open_disk(Box::new(world.disk.clone())).unwrap();
        world.look(&store, None);
        drop(writer);
        if !failing.struck() {
            world.between(None);
            let ended = stage::run(&mut world, Perils::default()).unwrap();
            world.between(Some(&ended));
            return Some(step);
        }
    }
    None
}

/// An empty store, which takes a while to make.
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
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let plan = drawing::random(&mut dice);
        plan.write_sources(folder.path());
        Self::with(dice, folder, plan, None)
    }

    fn of_jobs(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let jobs = jobs::random(&mut dice);
        let sources = BTreeMap::from([("p/s0".to_owned(), jobs.lines.clone())]);
        let plan = Blueprint { sources, jobs: Some(jobs.toml.clone()), ..Blueprint::default() };
        plan.write_sources(folder.path());
        Self::with(dice, folder, plan, Some(jobs))
    }

    fn with(dice: Dice, folder: TempDir, plan: Blueprint, jobs: Option<JobsPlan>) -> Self {
        let configuration = Arc::new(plan.load(folder.path()));
        Self {
            jobs,
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
            crashed: None,
        }
    }

    fn tally(&self) -> Tally {
        let jobs = self.history.rows.values().map(|rows| rows.len() as u64).sum();
        let granted = self.requests.all.iter().filter(|wish| wish.granted).count() as u64;
        let lost = self.history.steps.values().map(|known| known.lost.fresh.len() as u64).sum();
        Tally { granted, jobs, lost, ..self.tally }
    }

    /// The run has ended in order.
    pub(super) fn rest(&mut self) {
        self.disk = FaultyDisk::with(self.disk.bytes());
        self.crashed = None;
        self.workers.forget(&self.configuration);
    }

    /// The process dies, or the power goes.
    pub(super) fn die(&mut self) {
        let power = match self.failure {
            Some(Failure::FreezeAt(_)) => true,
            Some(Failure::FullFrom(_)) => false,
            Some(Failure::From(_)) | None => self.dice.chance(50),
        };
        let survivors = self.dice.between(0, 5);
        let bytes = if power { self.disk.survivors(survivors) } else { self.disk.bytes() };
        self.disk = FaultyDisk::with(bytes);
        self.crashed = Some(power);
        self.tally.crashes += 1;
        self.workers.forget(&self.configuration);
    }

    /// From here on nothing fails.
    fn calm(&mut self) {
        self.failure = None;
        self.disk.heal();
    }

    /// What happens to the next run.
    fn perils(&mut self) -> Perils {
        let requests = if self.jobs.is_some() { 0 } else { self.dice.below(5) };
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
            9 => self.failure = Some(Failure::FullFrom(soon(&mut self.dice, 11))),
            10..=14 => self.failure = Some(Failure::From(soon(&mut self.dice, 11))),
            _ => self.failure = Some(Failure::FreezeAt(soon(&mut self.dice, 6))),
        }
        if let Some(failure) = self.failure {
            self.disk.fail(failure);
        }
        perils
    }

    /// Between two runs: looks at what is left, and then somebody may change something. `ended` is how
    /// the last run ended, where it did.
    fn between(&mut self, ended: Option<&Ended>) {
        let (store, mut writer) = open_disk(Box::new(self.disk.clone())).unwrap();
        self.look(&store, ended);
        self.change();
        self.history.begin(&self.configuration, &store).unwrap();
        if self.jobs.is_none() && self.dice.chance(15) {
            self.amend_at_rest(&store, &mut writer);
        }
        drop(writer);
        self.disk = FaultyDisk::with(self.disk.bytes());
    }

    /// Compares what is left with what was promised.
    fn look(&mut self, store: &Store, ended: Option<&Ended>) {
        self.history.observe(store).unwrap();
        self.requests.settle(&self.history, store);
        if let Some(power) = self.crashed {
            self.effects.crashed(&mut self.history, store);
            self.meddle_with_sinks(store, power);
        }
        self.history.compare(store);
        assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
        match &self.jobs {
            Some(jobs) => jobs.check(&self.history, store, ended),
            None => check::check(self, store, ended),
        }
    }

    /// Somebody asks for something while nothing runs.
    fn amend_at_rest(&mut self, store: &Store, writer: &mut Writer) {
        let World { dice, requests, history, configuration, clock, .. } = self;
        let Some(request) = requests.think(dice, history, configuration) else { return };
        let Ok(amendment) = amend(store, configuration, &request, clock.now()) else { return };
        writer.commit(&amendment.changes).unwrap();
        if let Request::Replay { step, .. } = &request {
            history.replayed.insert(step.clone());
            self.effects.forget(step);
        }
        requests.done(request);
        history.observe(store).unwrap();
    }

    /// Somebody edits the files.
    fn change(&mut self) {
        let number = self.plan.steps.len();
        let most = if self.jobs.is_some() { 5 } else { 20 };
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
                    None | Some(Promise::ExactlyOnce) => Some(Promise::AtLeastOnce),
                    Some(Promise::AtLeastOnce) => None,
                    Some(Promise::AtMostOnce) => return,
                };
                self.effects.forget(&step.address());
            }
            _ => return,
        }
        self.reload();
    }

    fn reload(&mut self) {
        self.configuration = Arc::new(self.plan.load(self.folder.path()));
    }

    /// A file that is written holds more than was committed when the process dies; of what was not
    /// synced some is lost when the power goes.
    fn meddle_with_sinks(&mut self, store: &Store, power: bool) {
        for (address, path) in self.files() {
            let position = store.sink(&address).unwrap();
            let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
            let len = file.metadata().unwrap().len();
            let committed = position.map_or(0, |position| position.offset);
            assert!(len >= committed, "{address} lost what was committed");
            if power {
                let open = position.is_some_and(|position| position.open);
                let left = if open { self.dice.between(committed, len) } else { committed };
                file.set_len(left).unwrap();
            }
            if position.is_some_and(|position| position.open) && self.dice.chance(30) {
                let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                file.write_all(b"{\"half\":").unwrap();
            }
        }
    }

    /// The files of sinks.
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
