//! Play: runs one seed from its first run to its last, and checks the durable state between them.

use super::check;
use super::outcome::{Ended, Perils};
use super::stage;
use super::tally::Tally;
use super::world::World;
use tidegate_model::Clock as _;
use tidegate_store::testing::DiskFailure;
use tidegate_store::verify;
use tidegate_store::{Store, open_disk};

/// Runs the seed's graph and checks the guarantees.
pub(crate) fn play(seed: u64) -> Tally {
    play_in(World::new(seed))
}

/// Runs the seed's graph, whose wiring, names and sinks change.
pub(crate) fn play_changes(seed: u64) -> Tally {
    play_in(World::of_changes(seed))
}

/// Runs the seed's graph, whose sources change, too.
pub(crate) fn play_changing_sources(seed: u64) -> Tally {
    play_in(World::of_changing_sources(seed))
}

/// Runs the seed's graph, whose pipelines are removed and return, too.
pub(crate) fn play_changing_pipelines(seed: u64) -> Tally {
    play_in(World::of_changing_pipelines(seed))
}

/// Runs the seed's step that retries, delays and picks its jobs.
pub(crate) fn play_jobs(seed: u64) -> Tally {
    play_in(World::of_jobs(seed))
}

/// Runs the seed's step that waits.
pub(crate) fn play_waiting(seed: u64) -> Tally {
    play_in(World::of_waiting(seed))
}

/// Runs the seed's step that claims its jobs and runs them one after the other.
pub(crate) fn play_claims_in_turn(seed: u64) -> Tally {
    play_in(World::of_claims_in_turn(seed))
}

/// Runs the seed's step that waits, whose lanes halt and pause.
pub(crate) fn play_held_lanes(seed: u64) -> Tally {
    play_in(World::of_held_lanes(seed))
}

/// Runs the seed's step that waits, whose queuer, gate and monitor change.
pub(crate) fn play_changing_rules(seed: u64) -> Tally {
    play_in(World::of_changing_rules(seed))
}

/// Runs the seed's join by key.
pub(crate) fn play_joins(seed: u64) -> Tally {
    play_in(World::of_joins(seed))
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
        let requests = if last || !world.is_asked() { 0 } else { world.dice.below(4) };
        let Ok(calm) = stage::run(&mut world, Perils { requests, ..Perils::default() }) else {
            panic!("the run crashed without a failure")
        };
        if world.is_graph() {
            world.plan.mend();
            world.reload();
        }
        ended = Some(calm);
    }
    world.between(ended.as_ref());
    world.tally()
}

/// Crashes a run in the middle of recorded attempts, and then its recovery at each move. Returns the number
/// of moves, or `None` if the run recorded no attempt.
pub(crate) fn interrupt(seed: u64) -> Option<u64> {
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
        world.use_disk(world.disk.bytes());
        world.disk.fail(DiskFailure::From(step));
        let failing = world.disk.clone();
        // If no failure strikes, the process dies after the recovery.
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

/// Runs the seed's graph once for each disk operation of its reload, and crashes it there.
pub(crate) fn play_interrupted_reload(seed: u64) -> Tally {
    let operations = interrupt_reload(seed);
    let (reloads, crashes) = (u64::from(operations.is_some()), operations.unwrap_or(0));
    Tally { crashes, reloads, ..Tally::default() }
}

/// Crashes a run at each disk operation between the swap of a reload and the last step that follows it. Returns the number
/// of operations, or `None` if no reload took place.
pub(crate) fn interrupt_reload(seed: u64) -> Option<u64> {
    for operation in 1.. {
        let mut world = World::of_changes(seed);
        world.between(None);
        let failing = world.disk.clone();
        let perils = Perils { reload_fails_from: Some(operation), ..Perils::default() };
        if stage::run(&mut world, perils).is_ok() {
            return None;
        }
        world.between(None);
        let ended = stage::run(&mut world, Perils::default()).unwrap();
        world.between(Some(&ended));
        if !failing.struck() {
            return Some(operation);
        }
    }
    None
}

impl World {
    /// Checks the state between two runs and perhaps changes the configuration. `ended` is the end of the
    /// last run, unless it crashed.
    fn between(&mut self, ended: Option<&Ended>) {
        let (store, mut writer) = open_disk(Box::new(self.disk.clone())).unwrap();
        self.look(&store, ended);
        self.change();
        if self.changes.is_none() {
            self.history.begin(&self.configuration, &store).unwrap();
        }
        if self.is_graph() && self.changes.is_none() && self.dice.chance(15) {
            self.amend_at_rest(&store, &mut writer);
        }
        drop(writer);
        self.use_disk(self.disk.bytes());
    }

    /// Compares the state with the guarantees.
    fn look(&mut self, store: &Store, ended: Option<&Ended>) {
        self.settle_renames(store).unwrap();
        self.settle_swap(store).unwrap();
        self.history.observe(store).unwrap();
        self.requests.settle(&self.history, store);
        if let Some(power) = self.crashed {
            self.effects.crashed(&mut self.history, store);
            self.meddle_with_sinks(store, power);
        }
        self.history.compare(store);
        self.look_at_orphans(store).unwrap();
        assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
        if let Some(waiting) = &mut self.waiting {
            waiting.look(store, &self.history).unwrap();
            waiting.hang_up(store, self.crashed.is_none()).unwrap();
            if self.begun.is_none() {
                waiting.lose_record();
            }
            waiting.check(&self.history, ended.is_some());
        }
        if let Some(jobs) = &self.jobs {
            jobs.check(&self.history, store, ended);
        }
        if let Some(joins) = &mut self.joins {
            joins.check(&self.history, store, self.clock.now(), ended).unwrap();
        }
        if self.is_graph() {
            check::check(self, store, ended);
        }
    }
}
