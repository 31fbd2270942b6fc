//! Tests of rotation: files are rotated faster than they are read, or unseen by the reader.

use std::cell::Cell;
use std::time::SystemTime;

use super::*;
use crate::source::files::settled;

/// `log.1` becomes `log.2`, and so on, and `log` becomes `log.1`.
fn shift(folder: &Path) {
    let numbered = |number: usize| folder.join(format!("log.{number}"));
    let last = (1..1000).take_while(|&number| numbered(number).exists()).count();
    for number in (1..=last).rev() {
        fs::rename(numbered(number), numbered(number + 1)).unwrap();
    }
    fs::rename(folder.join("log"), numbered(1)).unwrap();
}

#[test]
fn no_file_is_missed_while_names_shift() {
    const FILES: u64 = 150;
    let mut world = World::new("log").follow();
    world.put("log", "0\n");
    let source = world.open().unwrap();
    let mut reader = world.reader(&source, 1);
    let mut seen = world.drain(&mut reader).unwrap();
    let folder = world.folder.path().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=FILES {
                shift(&folder);
                fs::write(folder.join("log"), format!("{number}\n")).unwrap();
            }
        });
        while seen.len() as u64 <= FILES && seen.last().is_none_or(|job| job.text != FILES.to_string()) {
            seen.extend(world.drain(&mut reader).unwrap());
            std::thread::yield_now();
        }
    });
    assert_eq!(texts(&seen), (0..=FILES).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn readers_on_two_threads_agree_while_files_grow_and_are_rotated() {
    const LAST: u64 = 4000;
    let world = World::new("log").follow();
    world.put("log", "0\n");
    let source = world.open().unwrap();
    let mut readers = [world.reader(&source, 1), world.reader(&source, 1)];
    // Files that are rotated before the first read do not belong to the readers.
    for reader in &mut readers {
        assert!(matches!(reader.read(LIMIT).unwrap(), Read::Batch(_)));
    }
    let read_all = |mut reader: Reader| {
        let mut seen: Vec<Seen> = Vec::new();
        while seen.last().is_none_or(|job| job.text != LAST.to_string()) {
            match reader.read(BatchLimit { jobs: 7, bytes: 64 }).unwrap() {
                Read::Batch(read) => seen.extend(world.see(&read.batch)),
                Read::Idle | Read::Busy => std::thread::yield_now(),
                Read::End => panic!("a followed source has no end"),
            }
        }
        seen
    };
    let [one, two] = std::thread::scope(|scope| {
        let threads = readers.map(|reader| scope.spawn(|| read_all(reader)));
        for number in 1..=LAST {
            if number % 100 == 0 {
                shift(world.folder.path());
                world.put("log", "");
            }
            world.append("log", format!("{number}\n"));
        }
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(one, two);
    assert_eq!(texts(&one), (1..=LAST).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_folder_is_looked_at_until_its_names_stand_still() {
    let world = World::new("log");
    world.put("log", "").put("log.0", "");
    let renamed = Cell::new(0);
    // At each access, the file gets another name.
    let names = |limit: u32| {
        let files = settled(world.folder.path(), |name, _| {
            if name != b"log" && renamed.get() < limit {
                let (from, to) = (renamed.get(), renamed.get() + 1);
                world.rename(&format!("log.{from}"), &format!("log.{to}"));
                renamed.set(to);
            }
            true
        });
        files.map(|files| files.into_iter().map(|file| file.path).collect::<Vec<_>>())
    };
    assert_eq!(names(3), Some(vec![world.path("log"), world.path("log.3")]));
    assert_eq!(names(u32::MAX), None);
}

#[test]
fn of_files_written_in_one_tick_the_greater_number_comes_first() {
    let mut world = World::new("log").follow();
    world.put("log", "0\n");
    world.run(1);
    world.rename("log", "log.12");
    let now = SystemTime::now();
    for number in 1..12 {
        world.put(&format!("log.{number}"), format!("{}\n", 12 - number));
        let file = OpenOptions::new().append(true).open(world.path(&format!("log.{number}"))).unwrap();
        file.set_modified(now).unwrap();
    }
    world.put("log", "12\n");
    assert_eq!(texts(&world.run(2)).join(" "), "1 2 3 4 5 6 7 8 9 10 11 12");
}

#[test]
fn what_was_rotated_out_of_sight_is_told() {
    let mut world = World::new("log").follow();
    world.put("log.9", "old\n").put("log", numbers(1..=3));
    assert_eq!(world.run(1).len(), 3);
    world.append("log", "lost\n").put("log.2.gz", gzip(fs::read(world.path("log")).unwrap()));
    // An open file keeps its inode, which a new file could get otherwise.
    let _held = fs::File::open(world.path("log")).unwrap();
    fs::remove_file(world.path("log")).unwrap();
    world.put("log.1", "between\n").put("log", "5\n");
    insta::assert_snapshot!(world.warned_run(4));
    insta::assert_snapshot!(world.warned_run(10), @"");
}

#[test]
fn a_copy_that_was_cut_off_out_of_sight_is_told() {
    let mut world = World::new("log").follow();
    world.put("log", numbers(1..=3));
    assert_eq!(world.run(1).len(), 3);
    world.append("log", "lost\n");
    fs::copy(world.path("log"), world.path("log.1")).unwrap();
    world.put("log", "5\n");
    insta::assert_snapshot!(world.warned_run(4));
}

#[test]
fn a_cut_before_the_end_is_told_and_one_at_the_end_loses_nothing() {
    let mut world = World::new("log").follow();
    world.put("log", numbers(1..=9));
    let source = world.open().unwrap();
    let mut reader = world.reader(&source, 1);
    let folder = world.folder.path().to_owned();
    // A batch of two jobs, while a block of the file is already in memory.
    let Read::Batch(first) = reader.read(BatchLimit { jobs: 2, bytes: 100 }).unwrap() else { panic!() };
    assert_eq!(first.batch.len(), 2);
    let large = "x".repeat(1 << 20);
    world.append("log", format!("\"{large}\"\n\"{large}\"\n"));
    let Read::Batch(second) = reader.read(BatchLimit { jobs: 8, bytes: 1 << 30 }).unwrap() else { panic!() };
    assert_eq!(second.batch.len(), 8);
    world.put("log", "a\n");
    let (seen, warnings) = warned(&folder, || {
        // The truncation is noticed at the next read after the end.
        let seen = world.drain(&mut reader).unwrap();
        [seen, world.drain(&mut reader).unwrap()].concat()
    });
    assert_eq!(seen.last().unwrap().text, "a");
    insta::assert_snapshot!(warnings, @"
     WARN the file was truncated or overwritten while it was read: its bytes from 2097170 (line 11) to 2097176 are lost source=quakes/events path=log byte=2097170 line=11 index=12
     WARN the file became shorter: it is read from its beginning source=quakes/events path=log index=12
    ");
    world.put("log", "");
    let (seen, warnings) = warned(&folder, || {
        let seen = world.drain(&mut reader).unwrap();
        world.append("log", "b\n");
        [seen, world.drain(&mut reader).unwrap()].concat()
    });
    assert_eq!(texts(&seen), ["b"]);
    assert!(warnings.contains("became shorter") && !warnings.contains("lost"), "{warnings}");
}

#[test]
fn a_file_that_was_rewritten_behind_an_equal_beginning_begins_anew() {
    // A header of more bytes than the first fingerprint has.
    let file = |day: &str, lines: u64| {
        let lines: Vec<String> = (1..=lines).map(|line| format!("{day} {line}\n")).collect();
        format!("{}\n{}", "#".repeat(1100), lines.concat())
    };
    for (follows, replaces) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = World::new("log");
        if follows {
            world = world.follow();
        }
        world.put("log", file("monday", 50));
        let first = world.run(1).len() as u64;
        assert_eq!(first, 51);
        if replaces {
            world.put("new", file("tuesday", 80)).rename("new", "log");
        } else {
            world.put("log", file("tuesday", 80));
        }
        let folder = world.folder.path().to_owned();
        let (seen, warnings) = warned(&folder, || world.run(first + 1));
        let seen = texts(&seen);
        assert_eq!((seen.len(), seen[1], seen[80]), (81, "tuesday 1", "tuesday 80"), "{follows} {replaces}");
        assert!(warnings.contains("the file was replaced; starts it from the beginning"), "{warnings}");
        // It goes on where it was if only lines were added.
        world.append("log", "tuesday 81\n");
        assert_eq!(texts(&world.run(first + 82)), ["tuesday 81"]);
    }
}

#[test]
fn a_line_that_goes_on_after_it_was_taken_is_told() {
    let mut world = World::new("in");
    world.put("in", "{\"id\":1}\n{\"id\":2,\"na");
    assert_eq!(world.run(1).len(), 2);
    world.append("in", "me\":\"x\"}\n{\"id\":3}");
    insta::assert_snapshot!(world.warned_run(3), @r#"
    3 in:2 me":"x"}
    4 in:3 {"id":3}
     WARN continues a file after an unfinished line: line 2 was considered complete when the last run ended, and its later part is a job of its own source=quakes/events path=in line=2 byte=20 index=3
    "#);
    // A late newline is harmless.
    world.append("in", "\n{\"id\":4}");
    insta::assert_snapshot!(world.warned_run(5), @r#"5 in:4 {"id":4}"#);
    world.append("in", "\r\n{\"id\":5}\n");
    insta::assert_snapshot!(world.warned_run(6), @r#"6 in:5 {"id":5}"#);
}
