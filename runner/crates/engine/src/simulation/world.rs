//! World: keeps all state that survives a crash: disk, files, external systems and the recorded promises.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use super::blueprint::{self, Blueprint};
use super::changes::Changes;
use super::dice::Dice;
use super::drawing;
use super::effects::Effects;
use super::history::History;
use super::jobs::{self, JobsPlan};
use super::joins::Joins;
use super::outcome::Perils;
use super::planned::Planned;
use super::requests::Requests;
use super::tally::Tally;
use super::waiting::Waiting;
use super::workers::Workers;
use crate::generation::Generation;
use crate::generation::current::NumberedGeneration;
use crate::generation::renames;
use crate::generation::source_files::SourceFiles;
use crate::operator::apply::apply;
use crate::operator::request::Request;
use tidegate_config::{Configuration, ConfigurationDigest, DeliveryGuarantee, LoadOptions, Sink, SinkKind};
use tidegate_model::{Address, Clock as _, ManualClock, NamedKind, RenamedPart, SinkPosition};
use tidegate_store::testing::{DiskBytes, DiskFailure, FaultyDisk};
use tidegate_store::{ParkedId, ReadError, Store, WalBounds, Writer, open_disk};

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) folder: TempDir,
    pub(crate) plan: Blueprint,
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) disk: FaultyDisk,
    /// Few commits, so that every run has checkpoints.
    wal: WalBounds,
    pub(crate) history: History,
    pub(crate) requests: Requests,
    pub(crate) effects: Effects,
    pub(crate) workers: Workers,
    pub(crate) tally: Tally,
    /// Simulated step, if the seed has no graph.
    pub(crate) jobs: Option<JobsPlan>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) joins: Option<Joins>,
    /// Changes of the graph, if the seed has any.
    pub(crate) changes: Option<Changes>,
    /// Effects of the changes that are under way.
    pub(crate) planned: Planned,
    /// Renames of a generation that may be durable, with its number.
    pub(crate) renaming: Option<(u64, Vec<RenamedPart>)>,
    /// Generation whose swap may be durable.
    pub(crate) swapping: Option<Arc<NumberedGeneration>>,
    /// Queues that no configuration has had since the last comparison, with the index of their first job.
    orphans: BTreeMap<Address, u64>,
    /// Files with committed lines.
    files: BTreeSet<PathBuf>,
    /// Configuration that ran last.
    pub(crate) ran: Option<ConfigurationDigest>,
    failure: Option<DiskFailure>,
    /// Claimed jobs that the last run has begun; `None` if that record is lost.
    pub(crate) begun: Option<HashSet<ParkedId>>,
    /// Whether the last run crashed, with or without a power failure.
    pub(crate) crashed: Option<bool>,
}

/// An empty store; it is created once, because that is slow.
fn empty_store() -> DiskBytes {
    static EMPTY: OnceLock<DiskBytes> = OnceLock::new();
    let make = || {
        let disk = FaultyDisk::new();
        drop(open_disk(Box::new(disk.clone())).unwrap());
        disk.bytes()
    };
    EMPTY.get_or_init(make).clone()
}

fn disk_of(bytes: DiskBytes, wal: WalBounds) -> FaultyDisk {
    FaultyDisk::with(bytes).bound_wal(wal)
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut plan = drawing::random(&mut dice);
        plan.look_up(&mut Dice::new(!seed));
        Self::of_graph(dice, plan)
    }

    fn of_graph(dice: Dice, plan: Blueprint) -> Self {
        let folder = tempfile::tempdir().unwrap();
        plan.write_sources(folder.path());
        Self::with(dice, folder, plan)
    }

    fn of_changing_graph(seed: u64, draw: fn(&mut Dice) -> Blueprint, changes: Changes) -> Self {
        let mut dice = Dice::new(seed);
        let plan = draw(&mut dice);
        Self { changes: Some(changes), ..Self::of_graph(dice, plan) }
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
        Self::of_waiting_step(seed, Waiting::random)
    }

    fn of_waiting_step(seed: u64, waiting: fn(&mut Dice) -> Waiting) -> Self {
        let mut dice = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let waiting = waiting(&mut dice);
        let sources = BTreeMap::from([("p/s0".to_owned(), waiting.lines())]);
        let plan = Blueprint { sources, files: waiting.files(), ..Blueprint::default() };
        plan.write_sources(folder.path());
        Self { waiting: Some(waiting), ..Self::with(dice, folder, plan) }
    }

    pub(crate) fn of_joins(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let joins = Joins::random(&mut dice);
        let plan = Blueprint { sources: joins.sources(), files: joins.files(), ..Blueprint::default() };
        plan.write_sources(folder.path());
        Self { joins: Some(joins), ..Self::with(dice, folder, plan) }
    }

    /// Step that claims its jobs and runs them one after the other.
    pub(crate) fn of_claims_in_turn(seed: u64) -> Self {
        Self::of_waiting_step(seed, Waiting::of_claims_in_turn)
    }

    /// Step whose lanes halt and pause.
    pub(crate) fn of_held_lanes(seed: u64) -> Self {
        Self::of_waiting_step(seed, Waiting::of_held_lanes)
    }

    /// Step that waits, whose queuer, gate and monitor change.
    pub(crate) fn of_changing_rules(seed: u64) -> Self {
        Self::of_waiting_step(seed, Waiting::of_changing_rules)
    }

    /// Graph that changes in every way, without requests of operators.
    pub(crate) fn of_changes(seed: u64) -> Self {
        Self::of_changing_graph(seed, drawing::random, Changes::default())
    }

    /// The same, whose sources change, too.
    pub(crate) fn of_changing_sources(seed: u64) -> Self {
        Self::of_changing_graph(seed, drawing::random, Changes::also_of_sources())
    }

    /// Graph of several pipelines, which are removed and return.
    pub(crate) fn of_changing_pipelines(seed: u64) -> Self {
        Self::of_changing_graph(seed, drawing::spread, Changes::also_of_pipelines())
    }

    /// Whether the seed has a whole graph.
    pub(crate) fn is_graph(&self) -> bool {
        self.jobs.is_none() && self.waiting.is_none() && self.joins.is_none()
    }

    /// Whether operators make requests to its runs.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_graph() && self.changes.is_none() || self.joins.is_some()
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self) {
        self.requests.listen();
        if let Some(waiting) = &mut self.waiting {
            waiting.listen();
        }
        if let Some(joins) = &mut self.joins {
            joins.listen();
        }
    }

    fn with(dice: Dice, folder: TempDir, plan: Blueprint) -> Self {
        let configuration = Arc::new(plan.load(folder.path()));
        let history = History { sources: plan.lines(folder.path()), ..History::default() };
        let wal = WalBounds { bytes: 16 << 10, records: dice.clone().between(0, 20) };
        Self {
            jobs: None,
            waiting: None,
            joins: None,
            changes: None,
            planned: Planned::default(),
            renaming: None,
            swapping: None,
            orphans: BTreeMap::new(),
            files: BTreeSet::new(),
            ran: None,
            dice,
            folder,
            plan,
            configuration,
            clock: Arc::new(ManualClock::at(1_700_000_000_000)),
            disk: disk_of(empty_store(), wal),
            wal,
            history,
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
        let passes = self.history.steps.values().flat_map(|known| &known.passes);
        let lost = passes.map(|pass| pass.lost.fresh.len() as u64).sum();
        let counts = self.planned.counts;
        let returned = self.changes.as_ref().map_or(0, |changes| changes.returned);
        let mut tally = Tally { request_outcome, jobs, lost, returned, counts, ..self.tally };
        if let Some(waiting) = &self.waiting {
            tally.add(&waiting.tally());
        }
        if let Some(joins) = &self.joins {
            tally.add(&joins.tally());
        }
        tally
    }

    /// The disk that the next process finds.
    pub(crate) fn use_disk(&mut self, bytes: DiskBytes) {
        self.disk = disk_of(bytes, self.wal);
    }

    /// The run has ended in order.
    pub(crate) fn rest(&mut self) {
        self.use_disk(self.disk.bytes());
        self.crashed = None;
        self.workers.forget();
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
        self.use_disk(bytes);
        // A process may also find no disk space for its record.
        if power || self.dice.chance(10) {
            self.begun = None;
        }
        self.crashed = Some(power);
        self.tally.crashes += 1;
        self.workers.forget();
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
        let requests = if self.is_asked() { self.dice.below(5) } else { 0 };
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

    /// Appends lines to the file of a source, which has several names.
    fn grow_source(&mut self) {
        let World { dice, history, .. } = self;
        let sources: BTreeSet<&str> = history.sources.keys().map(|path| blueprint::source_of(path)).collect();
        let sources: Vec<&str> = sources.into_iter().collect();
        let name = (*dice.pick(&sources)).to_owned();
        let number = dice.between(100, 1000);
        let lines: Vec<String> =
            (0..dice.between(1, 3)).map(|line| drawing::source_line(dice, number, line)).collect();
        let mut files: Vec<_> =
            history.sources.iter_mut().filter(|(path, _)| blueprint::source_of(path) == name).collect();
        let mut file = OpenOptions::new().append(true).open(files[0].0).unwrap();
        file.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        for (_, known) in &mut files {
            known.extend(lines.iter().cloned());
        }
    }

    /// Changes the configuration files.
    pub(crate) fn change(&mut self) {
        if let Some(changes) = &mut self.changes {
            if self.dice.chance(40) {
                changes.make(&mut self.plan, &mut self.dice);
            }
            if changes.of_sources && self.dice.chance(30) {
                self.grow_source();
            }
            return self.reload();
        }
        if self.joins.is_some() || self.waiting.as_ref().is_some_and(Waiting::changes) {
            if self.dice.chance(40) {
                self.edit();
            }
            return;
        }
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

    /// Changes the texts of the scripts, and perhaps the settings of a join or of a step that waits.
    pub(crate) fn edit(&mut self) {
        self.plan.version += 1;
        if let Some(joins) = &mut self.joins {
            joins.change(&mut self.dice);
            self.plan.files = joins.files();
        }
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.changes()) {
            waiting.change(&mut self.dice);
            self.plan.files = waiting.files();
        }
        self.reload();
    }

    pub(crate) fn reload(&mut self) {
        self.configuration = Arc::new(self.plan.load(self.folder.path()));
    }

    /// Reads the files of a graph that changes, with the texts that the history records. `before`: the configuration in
    /// force.
    pub(crate) fn read(
        &mut self,
        before: Option<&Configuration>,
        store: &Store,
    ) -> Result<Generation, ReadError> {
        self.plan.write(self.folder.path());
        let read = || blueprint::read(self.folder.path(), &LoadOptions::default());
        let (configuration, files) = read();
        let foreign = foreign_files(&configuration, before, store)?;
        let Some(changes) = self.changes.as_mut().filter(|_| !foreign.is_empty()) else {
            return Ok(Self::generation((configuration, files)));
        };
        for sink in self.plan.sinks.iter_mut().filter(|sink| foreign.contains(&sink.address)) {
            sink.file = changes.new_file();
        }
        self.plan.write(self.folder.path());
        Ok(Self::generation(read()))
    }

    pub(crate) fn generation((configuration, files): (Configuration, SourceFiles)) -> Generation {
        let mut generation = Generation::from(Arc::new(configuration));
        generation.files = Arc::new(files);
        generation
    }

    /// Records the steps of a run whose generation starts on the store.
    pub(crate) fn begin(&mut self, generation: &NumberedGeneration, store: &Store) -> Result<(), ReadError> {
        let configuration = Arc::clone(&generation.configuration);
        for (step, begun) in self.history.begin(&configuration, store)? {
            self.effects.forget(&step);
            self.planned.started(&step, generation.number, &begun);
        }
        self.planned.settle();
        Ok(())
    }

    /// Records that a generation is in force.
    pub(crate) fn is_in_force(&mut self, generation: &NumberedGeneration) {
        let recorded = generation.files.text("work.rhai").map(|text| {
            let number = text.split(['=', ';']).nth(1).unwrap();
            number.trim().parse().unwrap()
        });
        self.history.versions.push(recorded.unwrap_or(self.plan.version));
        self.has_run(&generation.digest);
        if let Some(joins) = &mut self.joins {
            joins.is_in_force(&generation.configuration);
        }
    }

    /// Records the generation of a swap that became durable in a crash: the next plan is a change of it.
    pub(crate) fn settle_swap(&mut self, store: &Store) -> Result<(), ReadError> {
        let Some(swapped) = self.swapping.take() else { return Ok(()) };
        if store.generation()?.is_some_and(|last| last.number >= swapped.number) {
            self.has_run(&swapped.digest);
        }
        Ok(())
    }

    fn has_run(&mut self, digest: &ConfigurationDigest) {
        self.orphans.retain(|queue, _| !digest.queues.contains_key(queue));
        self.ran = Some(digest.clone());
    }

    /// Checks that a queue that no configuration has keeps its jobs.
    pub(crate) fn look_at_orphans(&mut self, store: &Store) -> Result<(), ReadError> {
        let Some(ran) = &self.ran else { return Ok(()) };
        for queue in store.queues()?.into_iter().filter(|queue| !ran.queues.contains_key(&queue.address)) {
            let first = *self.orphans.entry(queue.address.clone()).or_insert(queue.first);
            assert_eq!(queue.first, first, "{} has lost jobs, and no configuration has it", queue.address);
            self.tally.orphaned += u64::from(queue.jobs() > 0);
        }
        Ok(())
    }

    /// Records the renames of a generation that are durable.
    pub(crate) fn settle_renames(&mut self, store: &Store) -> Result<(), ReadError> {
        let Some((generation, mut renamed)) = self.renaming.take() else { return Ok(()) };
        let history = store.name_history()?;
        let names = history.since(generation - 1);
        renamed.retain(|part| {
            let now = match part.kind {
                NamedKind::Step => names.step(&part.from),
                NamedKind::Endpoint => names.endpoint(&part.from),
            };
            now == part.to
        });
        let renamed = last_of_chains_first(renamed);
        self.orphans.retain(|queue, _| renamed.iter().all(|part| part.from != *queue && part.to != *queue));
        self.history.rename(&renamed, store)?;
        self.effects.rename(&renamed);
        Ok(())
    }

    /// Damages the files of sinks. A killed process leaves more lines than were committed, and a power
    /// failure removes some that were not synced.
    pub(crate) fn meddle_with_sinks(&mut self, store: &Store, power: bool) {
        for path in self.files_of_sinks() {
            let committed = self.committed_in(store, &path);
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let Some(Committed { offset, open }) = committed else {
                // The disk of the store may have failed before its sink returned to this file.
                let left = store.sink_files().unwrap().into_iter().map(|(_, left)| left);
                let mut left = left.filter(|left| left.path.as_deref() == path.to_str());
                if let (true, Some(left)) = (power, left.next()) {
                    file.set_len(left.offset.min(file.metadata().unwrap().len())).unwrap();
                }
                continue;
            };
            let len = file.metadata().unwrap().len();
            assert!(len >= offset, "{} lost committed lines", path.display());
            if power {
                let left = if open { self.dice.between(offset, len) } else { offset };
                file.set_len(left).unwrap();
            }
            if open && self.dice.chance(30) {
                let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                file.write_all(b"{\"half\":").unwrap();
            }
        }
    }

    /// Files that sinks have written.
    fn files_of_sinks(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "out")).collect();
        files.sort();
        files
    }

    /// Committed part of a file; `None` for the whole file of a sink that writes to another one now.
    pub(crate) fn committed_in(&self, store: &Store, path: &Path) -> Option<Committed> {
        let positions = store.all_sinks().unwrap();
        let is_own = |at: &SinkPosition| at.path.as_deref() == path.to_str();
        // A sink that has returned to an earlier file, and has committed nothing there yet.
        let returned = || {
            let is_its_file = |sink: &&Sink| matches!(&sink.kind, SinkKind::File(file) if file.path == path);
            let mut sinks = self.configuration.sinks.iter().filter(is_its_file);
            sinks.find_map(|sink| store.sink_in(&sink.address, path.to_str()).unwrap().filter(is_own))
        };
        // A sink that has another name may have opened the file before, and written nothing.
        let own = positions.into_iter().map(|(_, at)| at).filter(is_own).max_by_key(|at| at.offset);
        let position = own.or_else(returned);
        let position = position.map(|at| Committed { offset: at.offset, open: at.open });
        let is_left = position.is_none() && self.files.contains(path);
        (!is_left).then(|| position.unwrap_or_default())
    }

    /// Records the files that sinks write to.
    pub(crate) fn note_files(&mut self, store: &Store) -> Result<(), ReadError> {
        let paths = store.all_sinks()?.into_iter().filter_map(|(_, position)| position.path);
        self.files.extend(paths.map(PathBuf::from));
        Ok(())
    }
}

/// Sinks whose files have the lines of other sinks. An operator would give them other files.
fn foreign_files(
    next: &Configuration,
    before: Option<&Configuration>,
    store: &Store,
) -> Result<BTreeSet<String>, ReadError> {
    let renamed = renames::of(next, before, store)?;
    let mut foreign = BTreeSet::new();
    for sink in &next.sinks {
        let SinkKind::File(file) = &sink.kind else { continue };
        let is_empty = std::fs::metadata(&file.path).is_ok_and(|found| found.len() == 0);
        if is_empty || !file.path.exists() {
            continue;
        }
        let was = renamed.iter().find(|part| part.kind == NamedKind::Endpoint && part.to == sink.address);
        let stored = was.map_or(&sink.address, |part| &part.from);
        let position = store.sink_in(stored, file.path.to_str())?;
        if position.is_none_or(|position| position.path.as_deref() != file.path.to_str()) {
            foreign.insert(sink.address.to_string());
        }
    }
    Ok(foreign)
}

/// Committed part of a file.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    pub(crate) offset: u64,
    open: bool,
}

/// Orders renames so that a part may get the name that another one gives up.
fn last_of_chains_first(mut renamed: Vec<RenamedPart>) -> Vec<RenamedPart> {
    let mut ordered = Vec::new();
    while !renamed.is_empty() {
        let is_free = |part: &RenamedPart| {
            !renamed.iter().any(|other| other.kind == part.kind && other.from == part.to)
        };
        let next = renamed.iter().position(is_free).expect("no parts exchange their names");
        ordered.push(renamed.remove(next));
    }
    ordered
}
