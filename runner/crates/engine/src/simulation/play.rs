//! A seed from its first run to its last: runs and crashes, and between them what is left is compared with what
//! was promised.

use super::check;
use super::outcome::{Ended, Perils};
use super::stage;
use super::tally::Tally;
use super::world::World;
use tidegate_store::testing::{Failure, FaultyDisk};
use tidegate_store::{Store, open_disk, verify};

/// Plays the history of a graph that the seed says, and asserts what was promised.
pub(crate) fn play(seed: u64) -> Tally {
    play_in(World::new(seed))
}

/// The same of a step that retries, delays and picks its jobs.
pub(crate) fn play_jobs(seed: u64) -> Tally {
    play_in(World::of_jobs(seed))
}

/// The same of a step that waits for everything there is to wait for.
pub(crate) fn play_waiting(seed: u64) -> Tally {
    play_in(World::of_waiting(seed))
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
        let requests = if last || !world.is_graph() { 0 } else { world.dice.below(4) };
        let Ok(calm) = stage::run(&mut world, Perils { requests, ..Perils::default() }) else {
            panic!("nothing failed, and it crashed")
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

/// Crashes a run that leaves attempts on record, and then the recovery at each step of it, one after the
/// other. Answers how many steps that were; `None` where the run left nothing on record.
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

impl World {
    /// Between two runs: looks at what is left, and then somebody may change something. `ended` is how
    /// the last run ended, where it did.
    fn between(&mut self, ended: Option<&Ended>) {
        let (store, mut writer) = open_disk(Box::new(self.disk.clone())).unwrap();
        self.look(&store, ended);
        self.change();
        self.history.begin(&self.configuration, &store).unwrap();
        if self.is_graph() && self.dice.chance(15) {
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
        if let Some(waiting) = &mut self.waiting {
            waiting.look(store, &self.history).unwrap();
            waiting.hang_up(store, self.crashed.is_none()).unwrap();
            waiting.check(&self.history, ended.is_some());
        }
        if let Some(jobs) = &self.jobs {
            jobs.check(&self.history, store, ended);
        }
        if self.is_graph() {
            check::check(self, store, ended);
        }
    }
}
