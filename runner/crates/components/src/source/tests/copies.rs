//! Tests of copies: rotation copies and compresses read files; no job is repeated or missed.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;

/// Lines that are long enough to recognize a file by the first of them.
fn lines(range: std::ops::RangeInclusive<u64>) -> String {
    range.map(line).collect()
}

fn line(number: u64) -> String {
    format!("{{\"i\":{number},\"pad\":\"{}\"}}\n", "x".repeat(60))
}

/// The numbers of the jobs, in order.
fn seen_numbers(seen: &[Seen]) -> Vec<u64> {
    let number = |job: &Seen| job.text.strip_prefix("{\"i\":")?.split(',').next()?.parse().ok();
    seen.iter().map(|job| number(job).unwrap_or_else(|| panic!("{job:?}"))).collect()
}

impl World {
    fn compress(&self, name: &str) -> &Self {
        self.put(&format!("{name}.gz"), gzip(fs::read(self.path(name)).unwrap()));
        fs::remove_file(self.path(name)).unwrap();
        self
    }

    fn copy(&self, from: &str, to: &str) -> &Self {
        fs::copy(self.path(from), self.path(to)).unwrap();
        self
    }
}

#[test]
fn a_rotated_file_that_is_compressed_is_not_read_again() {
    for name in ["log*", "log"] {
        let mut world = World::new(name).follow();
        world.put("log", lines(1..=10));
        assert_eq!(seen_numbers(&world.run(1)), (1..=10).collect::<Vec<_>>());
        world.rename("log", "log.1").put("log", lines(11..=20));
        assert_eq!(seen_numbers(&world.run(11)), (11..=20).collect::<Vec<_>>());
        world.compress("log.1");
        assert_eq!(world.warned_run(21), "", "{name}");
        world
            .rename("log.1.gz", "log.2.gz")
            .rename("log", "log.1")
            .compress("log.1")
            .put("log", lines(21..=21));
        assert_eq!(seen_numbers(&world.run(21)), [21], "{name}");
    }
}

#[test]
fn a_copy_of_a_truncated_file_is_not_read_again_and_gives_what_was_missed() {
    let mut world = World::new("log*").follow();
    world.put("log", lines(1..=10));
    assert_eq!(world.run(1).len(), 10);
    // The copy is complete before the original is truncated.
    world.copy("log", "log.1");
    assert_eq!(world.warned_run(11), "");
    world.put("log", "");
    assert_eq!(world.run(11), []);
    world.append("log", lines(11..=12));
    assert_eq!(seen_numbers(&world.run(11)), [11, 12]);
    world.append("log", line(13)).rename("log.1", "log.2").copy("log", "log.1").put("log", line(14));
    let seen = world.run(13);
    assert_eq!(seen_numbers(&seen), [13, 14]);
    assert_eq!((seen[0].place.as_str(), seen[1].place.as_str()), ("log.1:3", "log:1"));
    assert_eq!(world.warned_run(15), "");
}

#[test]
fn the_rest_of_a_file_is_read_from_its_compressed_copy() {
    for name in ["log*", "log"] {
        let mut world = World::new(name).follow();
        world.put("log", lines(1..=10));
        assert_eq!(world.run(1).len(), 10);
        world.append("log", lines(11..=12)).rename("log", "log.1").compress("log.1").put("log", line(13));
        let folder = world.folder.path().to_owned();
        let (seen, warnings) = warned(&folder, || world.run(11));
        assert_eq!(seen_numbers(&seen), [11, 12, 13], "{name}");
        assert_eq!(seen[0].place, "log.1.gz:11");
        assert_eq!(warnings, "");
        assert_eq!(world.warned_run(14), "");
    }
}

#[test]
fn logs_that_begin_with_the_same_banner_are_told_apart_further_on() {
    let banner = "#".repeat(2000) + "\n";
    let mut world = World::new("log*").format(DataFormat::Lines).follow();
    world.put("log", banner.clone() + "a\n");
    assert_eq!(world.run(1).len(), 2);
    // Two rotations while no runner is active: the second file was never read.
    world.rename("log", "log.2").compress("log.2").put("log.1", banner.clone() + "b\n").compress("log.1");
    world.put("log", banner + "c\n");
    let seen = world.run(3);
    let places: Vec<_> = seen.iter().map(|job| job.place.as_str()).collect();
    assert_eq!(places, ["log.1.gz:1", "log.1.gz:2", "log:1", "log:2"]);
}

#[test]
fn a_copy_that_is_too_short_to_be_recognized_is_read_with_a_warning() {
    let mut world = World::new("log*").follow();
    world.put("log", numbers(1..=3));
    assert_eq!(world.run(1).len(), 3);
    // In this order no file gets the identity of another one.
    world.rename("log", "log.1").put("log", "4\n").compress("log.1");
    insta::assert_snapshot!(world.warned_run(4));
}

#[test]
fn files_with_the_same_content_and_names_of_their_own_are_each_read() {
    let mut world = World::new("*.ndjson");
    world.put("day-2026-11-21.ndjson", lines(1..=30)).put("day-2026-11-22.ndjson", lines(1..=30));
    world.put("part-1.ndjson", lines(1..=30)).put("part-2.ndjson", lines(1..=30));
    assert_eq!(world.run(1).len(), 120);
}

#[test]
fn gzip_that_has_not_finished_is_waited_for() {
    let mut world = World::new("log*").follow();
    world.put("log", lines(1..=1000));
    assert_eq!(world.run(1).len(), 1000);
    let packed = gzip(fs::read(world.path("log")).unwrap());
    world.rename("log", "log.1").put("log", line(1001));
    assert_eq!(seen_numbers(&world.run(1001)), [1001]);
    for part in [1, packed.len() / 2, packed.len() - 1] {
        world.put("log.1.gz", &packed[..part]);
        assert_eq!(world.warned_run(1002), "", "{part} bytes");
    }
    world.put("log.1.gz", &packed);
    fs::remove_file(world.path("log.1")).unwrap();
    assert_eq!(world.warned_run(1002), "");
}

/// Sets the modification time of a file.
fn set_modified(world: &World, name: &str, seconds: u64) {
    let file = OpenOptions::new().append(true).open(world.path(name)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn rotation_does_not_depend_on_file_times() {
    // Names that count up, and names that shift.
    for (first, second) in [("log.1", "log.2"), ("log.2", "log.1"), ("log-2026-11-21", "log-2026-11-22")] {
        for down in [false, true] {
            let mut world = World::new("log").follow();
            world.put("log.9", lines(900..=901)).put("log", lines(1..=5));
            set_modified(&world, "log", 2_000_000_000);
            let source = world.open().unwrap();
            let mut reader = world.reader(&source, 1);
            assert_eq!(world.drain(&mut reader).unwrap().len(), 5);
            world.rename("log", first).put(second, lines(6..=10)).put("log", line(11));
            set_modified(&world, second, 1_000_000_000);
            set_modified(&world, "log", 500_000_000);
            let seen = if down { world.run(6) } else { world.drain(&mut reader).unwrap() };
            assert_eq!(seen_numbers(&seen), (6..=11).collect::<Vec<_>>(), "{first} {second} {down}");
            assert_eq!(world.warned_run(12), "");
        }
    }
}

#[test]
fn rotated_files_that_were_compressed_unread_are_read() {
    let mut world = World::new("log").follow();
    world.put("log.1.gz", gzip(lines(900..=901))).put("log", lines(1..=5));
    assert_eq!(world.run(1).len(), 5);
    world.rename("log.1.gz", "log.3.gz").rename("log", "log.2").compress("log.2");
    world.put("log.1", lines(6..=8)).compress("log.1").put("log", line(9));
    assert_eq!(seen_numbers(&world.run(6)), [6, 7, 8, 9]);
    assert_eq!(world.warned_run(10), "");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u64),
    Rename,
    CopyTruncate,
    Compress,
    Read,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..30_u64).prop_map(Step::Append),
        1 => Just(Step::Rename),
        1 => Just(Step::CopyTruncate),
        1 => Just(Step::Compress),
        2 => Just(Step::Read),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

/// Plays the steps, and returns the numbers of all jobs in order of number, and of the last line.
fn play(steps: &[Step], glob: bool) -> (Vec<u64>, u64) {
    let mut world = World::new(if glob { "log*" } else { "log" }).follow();
    let (mut last, mut rotated) = (1, 0_u32);
    let mut seen: Vec<u64> = Vec::new();
    world.put("log", line(1));
    let source = world.open().unwrap();
    let mut reader = world.reader(&source, 1);
    seen.extend(seen_numbers(&world.drain(&mut reader).unwrap()));
    let shift = |world: &World, rotated: &mut u32| {
        for number in (1..=*rotated).rev() {
            for end in ["", ".gz"] {
                let from = format!("log.{number}{end}");
                if world.path(&from).exists() {
                    world.rename(&from, &format!("log.{}{end}", number + 1));
                }
            }
        }
        *rotated += 1;
    };
    for &step in steps {
        match step {
            Step::Append(count) => {
                world.append("log", lines(last + 1..=last + count));
                last += count;
            }
            // Logrotate does not rotate empty logs.
            Step::Rename | Step::CopyTruncate if fs::read(world.path("log")).unwrap().is_empty() => {}
            Step::Rename => {
                shift(&world, &mut rotated);
                world.rename("log", "log.1").put("log", "");
            }
            // For a single path, only content that was read before the truncation is safe.
            Step::CopyTruncate if glob => {
                shift(&world, &mut rotated);
                world.copy("log", "log.1").put("log", "");
            }
            Step::CopyTruncate => {}
            Step::Compress => {
                if let Some(name) =
                    (1..=rotated).map(|number| format!("log.{number}")).find(|name| world.path(name).exists())
                {
                    world.compress(&name);
                }
            }
            Step::Read => seen.extend(seen_numbers(&world.drain(&mut reader).unwrap())),
            Step::Restart => {
                let source = world.open().unwrap();
                reader = world.reader(&source, seen.len() as u64 + 1);
            }
        }
    }
    seen.extend(seen_numbers(&world.drain(&mut reader).unwrap()));
    seen.sort_unstable();
    (seen, last)
}

proptest! {
    #[test]
    fn each_line_comes_once_however_files_are_rotated(steps in steps(), glob in any::<bool>()) {
        let (seen, last) = play(&steps, glob);
        prop_assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    }
}

/// The file system may give the identity of a removed file to the next one.
#[test]
fn a_file_with_the_identity_of_one_that_was_empty_is_judged_by_its_content() {
    use Step::{Append, Compress, CopyTruncate, Read, Rename};
    let emptied = [Append(1), CopyTruncate, Read, Append(1)];
    let copied = [Rename, Compress, Append(1), Read, CopyTruncate, Append(1), Read, Append(1)];
    let compressed = [CopyTruncate, Append(1), Rename, Compress, Compress];
    for rest in [&copied[..], &compressed[..]] {
        let (seen, last) = play(&[&emptied[..], rest].concat(), true);
        assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    }
}
