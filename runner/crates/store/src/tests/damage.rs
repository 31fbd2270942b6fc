//! Files with damage in random places: every read is right, or is refused.

use super::history::{COMMITS, commit, delayed, generation, hashed, moved, placed_after, run, snapshot};
use super::*;
use crate::testing::DiskBytes;
use crate::verify;
use crate::{DeliveryKey, DeliveryPlace};
use tidegate_model::{DeliveryHash, Due};

/// Pseudorandom numbers; the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }
}

/// The file after a clean end, and after a crash.
fn good_files() -> [DiskBytes; 2] {
    let disk = FaultyDisk::new();
    let (_, mut writer) = open_on(&disk);
    assert_eq!(run(&mut writer, COMMITS), COMMITS);
    let crashed = disk.bytes();
    drop(writer);
    [disk.bytes(), crashed]
}

fn damage(file: &mut Vec<u8>, random: &mut Random) {
    // Half of the damage is in the first 64 KiB, which most likely hold pages in use.
    let end = if random.below(2) == 0 { file.len() } else { file.len().min(64 << 10) };
    let at = random.below(end);
    match random.below(5) {
        0 => file[at] ^= 1 << random.below(8),
        1 => (0..16).for_each(|_| {
            let near = (at + random.below(512)).min(file.len() - 1);
            file[near] = u8::try_from(random.below(256)).unwrap();
        }),
        2 => {
            let end = (at + random.below(8192)).min(file.len());
            file[at..end].fill(0);
        }
        3 => {
            let (from, len) = (random.below(file.len()), random.below(4096));
            let len = len.min(file.len() - from).min(file.len() - at);
            file.copy_within(from..from + len, at);
        }
        _ => file.truncate(at),
    }
}

/// Reads everything; each value must be the one that was written.
fn assert_nothing_is_wrong(store: &Store, truth: &Store) {
    for name in ["a/in", "a/out"].map(address) {
        let Ok(Some(state)) = store.queue(&name) else { continue };
        assert!(state.head <= truth.queue(&name).unwrap().unwrap().head);
        let mut next = state.first;
        while let Ok(Some(batch)) = store.read(&name, next, 50, 1 << 20) {
            let Ok(Some(expected)) = truth.read(&name, next, batch.len(), usize::MAX) else { break };
            let len = expected.len().min(batch.len());
            assert!(batch.payloads.iter().take(len).eq(expected.payloads.iter().take(len)));
            next += len as u64;
        }
    }
    let step = address("a/step");
    let commits = store.transaction().unwrap_or(0);
    assert!(commits <= COMMITS);
    if let Ok(Some(progress)) = store.progress(&step, &address("a/in")) {
        assert!(progress.position() <= COMMITS);
    }
    if let Ok(Some(position)) = store.sink(&step) {
        assert!(position.offset <= COMMITS);
    }
    if let Ok(Some(cursor)) = store.cursor(&step) {
        assert!(cursor.parse::<u64>().is_ok_and(|number| number <= COMMITS));
    }
    for number in 1..=COMMITS {
        let hash = DeliveryKey::Hash(DeliveryHash(number.into()));
        if let Ok(Some(record)) = store.delivery_record(hash) {
            assert_eq!(record, hashed(number));
        }
        let place = DeliveryKey::Place(DeliveryPlace { step: &step, input: "a/in", index: number });
        if let Ok(Some(record)) = store.delivery_record(place) {
            assert!((1..=COMMITS).any(|commits| placed_after(commits, number) == Some(record)));
        }
        let _ = store.mark(&step, number * 10);
    }
    assert_details_are_right(store);
    let _ = (store.queues(), store.all_progress(), store.segments(&step), verify(store));
}

/// As [`assert_nothing_is_wrong`], for the records of a commit in the history.
fn assert_details_are_right(store: &Store) {
    let step = address("a/step");
    for found in store.snapshots(&step).unwrap_or_default() {
        assert_eq!(found, snapshot(found.number));
    }
    for (key, job) in store.due(&step, Due::Never, None, 100, 1 << 20).unwrap_or_default() {
        assert!(job == delayed(key.id.0) || job == moved(key.id.0), "{job:?}");
        for (found, _) in store.parked_of(&step, ("a/in", key.id.0)).unwrap_or_default() {
            assert_eq!(found, key);
        }
    }
    if let Ok(Some(found)) = store.generation() {
        assert_eq!(found, generation(found.number));
    }
    let _ =
        (store.all_snapshots(), store.generations(), store.next_due(&step, None), store.parked_count(&step));
    if let Ok(Some((batch, origins))) = store.read_details(&address("a/out"), 1, 50, 1 << 20) {
        for (index, origin) in (batch.first..).zip(origins) {
            assert_eq!(origin.unwrap().inputs, [("a/in".to_owned(), index)]);
        }
    }
}

#[test]
fn a_damaged_file_never_panics_and_never_lies() {
    let files = good_files();
    let truth_disk = FaultyDisk::with(files[0].clone());
    let (truth, _truth_writer) = open_on(&truth_disk);
    let mut opened = 0;
    for seed in 0..600 {
        let mut random = Random(seed);
        let mut file = files[random.below(2)].clone();
        for _ in 0..=random.below(3) {
            if !file.store.is_empty() {
                damage(&mut file.store, &mut random);
            }
        }
        let Ok((store, mut writer)) = open_disk(Box::new(FaultyDisk::with(file))) else { continue };
        opened += 1;
        assert_nothing_is_wrong(&store, &truth);
        let _ = writer.commit(commit(COMMITS + 1));
    }
    assert!(opened > 50, "{opened}");
}
