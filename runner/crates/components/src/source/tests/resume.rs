//! Tests of resuming: a later run continues after the last one, and readers agree.

use super::*;

#[test]
fn only_what_was_appended_is_read() {
    let mut world = World::new("in");
    world.put("in", "1\n\n2\n");
    assert_eq!(texts(&world.run(1)), ["1", "2"]);
    assert_eq!(world.run(3), []);
    world.append("in", "3\n");
    assert_eq!(table(&world.run(3)), "3 in:4 3\n");
}

#[test]
fn what_follows_an_unfinished_last_line_is_a_new_job() {
    let mut world = World::new("in");
    world.put("in", "1\n22");
    assert_eq!(texts(&world.run(1)), ["1", "22"]);
    assert_eq!(world.run(3), []);
    world.append("in", "33\n4\n");
    assert_eq!(table(&world.run(3)), "3 in:2 33\n4 in:3 4\n");
    // The same from the start, for another reader.
    assert_eq!(texts(&world.run(1)), ["1", "22", "33", "4"]);
    assert_eq!(world.run(5), []);
}

#[test]
fn a_file_saved_anew_with_more_lines_goes_on() {
    let mut world = World::new("in");
    world.put("in", "1\n2\n");
    assert_eq!(world.run(1).len(), 2);
    world.put("new", "1\n2\n3\n").rename("new", "in");
    assert_eq!(texts(&world.run(3)), ["3"]);
    world.append("in", "4\n");
    assert_eq!(texts(&world.run(4)), ["4"]);
}

#[test]
fn a_replaced_or_shortened_file_is_begun_anew() {
    for content in ["a\nb\n", "a\nb\nc\nd\n", "1\n"] {
        let mut world = World::new("in");
        world.put("in", "1\n2\n3\n");
        assert_eq!(world.run(1).len(), 3);
        world.put("in", content);
        let seen = world.run(4);
        assert_eq!(texts(&seen), content.lines().collect::<Vec<_>>(), "{content:?}");
        assert_eq!((seen[0].index, seen[0].place.as_str()), (4, "in:1"));
        assert_eq!(world.run(4 + seen.len() as u64), []);
    }
}

#[test]
fn what_a_reader_missed_of_a_replaced_file_becomes_faults() {
    let mut world = World::new("in");
    world.put("in", numbers(1..=5));
    world.run(1);
    world.put("in", "a\n");
    let source = world.open().unwrap();
    let mut slow = world.reader(&source, 3);
    let mut fast = world.reader(&source, 6);
    assert_eq!(table(&world.drain(&mut fast).unwrap()), "6 in:1 a\n");
    insta::assert_snapshot!(table(&world.drain(&mut slow).unwrap()), @r#"
    3  !the job was lost: `in` was cut short, overwritten or removed before it was read
    4  !the job was lost: `in` was cut short, overwritten or removed before it was read
    5  !the job was lost: `in` was cut short, overwritten or removed before it was read
    6 in:1 a
    "#);
    // The faults have the same indices after a restart.
    assert_eq!(texts(&world.run(5))[1..], ["a"]);
}

#[test]
fn a_reader_starts_at_the_last_mark() {
    let mut world = World::new("in");
    world.put("in", numbers(1..=100_000));
    assert_eq!(world.run(1).len(), 100_000);
    assert!(world.marks.len() > 40, "{}", world.marks.len());
    let mark = world.mark(90_000).unwrap();
    assert!(90_000 - mark.index <= 2048, "{mark:?}");
    // Content before the mark is not read again, so garbage there does not matter.
    let mut content = fs::read(world.path("in")).unwrap();
    let start = usize::try_from(mark.offset).unwrap();
    content[2000..start].fill(b'\n');
    fs::write(world.path("in"), content).unwrap();
    let seen = world.run(90_000);
    assert_eq!(seen.len(), 10_001);
    assert_eq!((seen[0].text.as_str(), seen[0].place.as_str()), ("90000", "in:90000"));
}

#[test]
fn a_batch_is_kept_within_its_limit() {
    let world = World::new("in");
    world.put("in", numbers(1..=100));
    let source = world.open().unwrap();
    let mut reader = world.reader(&source, 1);
    let mut lengths = Vec::new();
    for limit in [(7, 1000), (100, 10), (1, 1), (0, 0)] {
        let Read::Batch(read) = reader.read(BatchLimit { jobs: limit.0, bytes: limit.1 }).unwrap() else {
            panic!()
        };
        lengths.push(read.batch.len());
    }
    assert_eq!(lengths, [7, 6, 1, 1]);
}

#[test]
fn later_files_of_a_folder_come_after_those_that_are_known() {
    let mut world = World::new("in");
    world.put("in/b", "1\n").put("in/c", "2\n");
    assert_eq!(texts(&world.run(1)), ["1", "2"]);
    world.put("in/d", "4\n").put("in/a", "3\n");
    assert_eq!(table(&world.run(3)), "3 in/a:1 3\n4 in/d:1 4\n");
    fs::remove_file(world.path("in/d")).unwrap();
    assert_eq!(world.run(5), []);
    world.append("in/b", "5\n");
    assert_eq!(table(&world.run(5)), "5 in/b:2 5\n");
    assert_eq!(texts(&world.run(1))[..3], ["1", "2", "3"]);
}

#[test]
fn a_csv_reader_that_resumes_knows_the_header() {
    let mut world = World::new("in").format(DataFormat::Csv);
    world.put("in", format!("n\n{}", numbers(1..=5000)));
    world.run(1);
    let mark = world.mark(4000).unwrap();
    assert!(mark.index > 1000);
    assert_eq!(texts(&world.run(4999)), [r#"{"n":"4999"}"#, r#"{"n":"5000"}"#]);
    world.append("in", "6");
    assert_eq!(table(&world.run(5001)), "5001 in:5002 {\"n\":\"6\"}\n");
    world.append("in", "7\n");
    assert_eq!(table(&world.run(5002)), "5002 in:5002 {\"n\":\"7\"}\n");
}

#[test]
fn each_batch_carries_the_segments_it_stands_on() {
    let mut world = World::new("in");
    world.put("in/a", "1\n").put("in/b", "2\n").put("in/c", "3\n");
    let source = world.open().unwrap();
    let mut first = world.reader(&source, 1);
    let mut second = world.reader(&source, 1);
    // The first reader finds every segment, and none is committed.
    while let Read::Batch(_) = first.read(LIMIT).unwrap() {}
    let mut seen = Vec::new();
    while let Read::Batch(read) = second.read(LIMIT).unwrap() {
        world.commit(&read);
        seen.extend(world.see(&read.batch));
        // A crash here: the committed records suffice to continue.
        let stored: Vec<Segment> = world.segments.values().cloned().collect();
        let again = SourceLog::open(&Address::parse("a/b").unwrap(), &world.spec, stored).unwrap();
        let next = seen.len() as u64 + 1;
        let mut reader = again.reader(next, None);
        let mut rest = Vec::new();
        while let Read::Batch(read) = reader.read(LIMIT).unwrap() {
            rest.extend(world.see(&read.batch));
        }
        assert_eq!(texts(&rest), ["1", "2", "3"][seen.len()..]);
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn a_reader_that_begins_in_a_later_file_carries_the_earlier_ones_that_no_commit_has() {
    let mut world = World::new("in");
    world.put("in/a", "1\n").put("in/b", "2\n").put("in/c", "3\n");
    let source = world.open().unwrap();
    let mut stopped = world.reader(&source, 1);
    while let Read::Batch(_) = stopped.read(LIMIT).unwrap() {}
    let mut next = world.reader(&source, 3);
    while let Read::Batch(read) = next.read(LIMIT).unwrap() {
        world.commit(&read);
    }
    assert_eq!(world.segments.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    let again = world.open().unwrap();
    let mut reader = world.reader(&again, 4);
    assert!(!matches!(reader.read(LIMIT).unwrap(), Read::Batch(_)));
}

#[test]
fn one_job_can_be_looked_at() {
    let mut world = World::new("in");
    world.put("in/a", numbers(1..=3000)).put("in/b", "x\ny");
    world.run(1);
    let source = world.open().unwrap();
    let look = |index| {
        let batch = source.at(index, world.mark(index)).unwrap();
        batch.map(|batch| table(&world.see(&batch)))
    };
    assert_eq!(look(2500).unwrap(), "2500 in/a:2500 2500\n");
    assert_eq!(look(3002).unwrap(), "3002 in/b:2 y\n");
    assert_eq!(look(3003), None);
    let nothing_known = World::new("in");
    nothing_known.put("in", "1\n");
    assert!(nothing_known.open().unwrap().at(1, None).unwrap().is_none());
}

#[test]
fn a_source_whose_folder_was_moved_or_copied_goes_on() {
    for follow in [false, true] {
        let mut world = World::new("here/in");
        world.spec.follow = follow;
        world.put("here/in", "1\n2\n");
        assert_eq!(world.run(1).len(), 2);
        world.rename("here", "there").append("there/in", "3\n");
        world.spec.path = world.path("there/in");
        assert_eq!(table(&world.run(3)), "3 there/in:3 3\n");
        world.put("copy/in", "1\n2\n3\n4\n");
        fs::remove_dir_all(world.path("there")).unwrap();
        world.spec.path = world.path("copy/in");
        assert_eq!(table(&world.run(4)), "4 copy/in:4 4\n");
    }
}
