//! Pending index tests: add and remove pending jobs of a join.

use super::*;
use tidegate_config::{LoadOptions, load};
use tidegate_model::Timestamp;
use tidegate_store::testing::FaultyDisk;
use tidegate_store::{Changes, NewParkedJob, ParkReason, Writer, open_disk};

struct World {
    store: Store,
    writer: Writer,
    step: Step,
    pending_index: PendingIndex,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toml = "[step.match]\njoin = { a = \"as\", b = \"bs\" }\nto = \"out\"\n";
        std::fs::write(folder.path().join("p.toml"), toml).unwrap();
        let configuration = load(folder.path(), &LoadOptions::default()).finish().unwrap().0;
        let (store, writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let step = configuration.steps.iter().find(|step| step.inputs.len() == 2).unwrap().clone();
        Self { store, writer, step, pending_index: PendingIndex::default() }
    }

    /// Hands over jobs that are made of these pairs.
    fn hand_on(&mut self, pairs: impl IntoIterator<Item = (u64, u64)>) -> Vec<ParkedKey> {
        let standing = ParkReason::Pending { handle: "it".into(), since: Timestamp(0) };
        let delayed = pairs.into_iter().map(|(a, b)| NewParkedJob {
            step: self.step.address.clone(),
            due: NO_DUE_TIME,
            job: ParkedJob {
                inputs: vec![("a".into(), a), ("b".into(), b)],
                reason: standing.clone(),
                payload: b"{}".to_vec(),
                ..ParkedJob::default()
            },
        });
        let delayed = delayed.collect();
        self.writer.commit(&Changes { parked: delayed, ..Changes::default() }).unwrap().delayed
    }

    fn take(&mut self, undelayed: &[ParkedKey]) {
        let undelayed = undelayed.to_vec();
        self.writer.commit(&Changes { unparked: undelayed, ..Changes::default() }).unwrap();
    }

    fn find(&self, input: usize, index: u64) -> Option<u64> {
        let found = self.pending_index.find(&self.store, &self.step, (input, index), |_| true);
        found.unwrap().map(|row| row.sequence)
    }

    fn known(&self) -> (u64, usize) {
        let steps = self.pending_index.0.lock();
        steps.values().next().map_or((0, 0), |places| (places.last, places.rows.len()))
    }
}

#[test]
fn a_pending_job_is_found_by_each_of_its_parts_whenever_it_was_handed_on() {
    let mut world = World::new();
    assert_eq!(world.find(0, 1), None);
    let first = world.hand_on([(1, 7), (2, 8)]);
    assert_eq!((world.find(0, 1), world.find(1, 7)), (Some(first[0].sequence), Some(first[0].sequence)));
    let later = world.hand_on([(3, 9)]);
    assert_eq!((world.find(0, 2), world.find(1, 9)), (Some(first[1].sequence), Some(later[0].sequence)));
    assert_eq!((world.find(0, 7), world.find(1, 1), world.find(0, 4)), (None, None, None));
    world.take(&first[..1]);
    assert_eq!((world.find(0, 1), world.find(0, 2)), (None, Some(first[1].sequence)));
}

#[test]
fn of_two_that_were_made_of_one_job_the_one_is_found_that_is_meant() {
    let mut world = World::new();
    let rows = world.hand_on([(1, 7), (1, 8)]);
    let of = |b| {
        let is_it = |job: &ParkedJob| job.inputs[1].1 == b;
        world.pending_index.find(&world.store, &world.step, (0, 1), is_it).unwrap().map(|row| row.sequence)
    };
    assert_eq!((of(7), of(8), of(9)), (Some(rows[0].sequence), Some(rows[1].sequence), None));
}

#[test]
fn what_was_looked_at_is_not_looked_at_again() {
    let mut world = World::new();
    let rows = world.hand_on((1..=100).map(|index| (index, index)));
    for wrong in 1000..1100 {
        assert_eq!(world.find(0, wrong), None);
    }
    let last = rows.last().unwrap().sequence;
    assert_eq!(world.known(), (last, 200));
    // No further row is scanned behind it.
    let after = ParkedKey { sequence: last, ..rows[0].clone() };
    assert!(world.store.due(&world.step.address, NO_DUE_TIME, Some(&after), 1, 1).unwrap().is_empty());
}

#[test]
fn places_of_jobs_that_are_through_do_not_gather() {
    let mut world = World::new();
    for round in 0..40_u64 {
        let rows = world.hand_on((1..=100).map(|index| (round * 100 + index, round * 100 + index)));
        assert_eq!(world.find(0, round * 100 + 100), Some(rows[99].sequence));
        world.take(&rows);
    }
    assert!(world.known().1 <= COMPACT_MIN + 600, "{:?}", world.known());
}
