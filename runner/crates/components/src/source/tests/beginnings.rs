//! Tests of begin positions: readers start with a chosen job, which may not exist yet.

use proptest::prelude::*;

use super::*;

impl World {
    /// A run with one reader that begins with the job at `next`.
    fn begin(&mut self, next: u64) -> Vec<Seen> {
        let source = self.open().unwrap();
        let mut reader = source.beginner(next, self.mark(next));
        self.drain(&mut reader).unwrap()
    }

    /// The end of the source, which is committed.
    fn end(&mut self) -> u64 {
        let SourceEnd { last, mark, segments } = self.open().unwrap().end(self.mark(u64::MAX)).unwrap();
        self.marks.extend(mark.map(|mark| (mark.index, mark)));
        self.segments.extend(segments.into_iter().map(|segment| (segment.ordinal, segment)));
        last
    }
}

#[test]
fn jobs_before_the_first_one_are_passed_over() {
    for name in ["in", "in.gz"] {
        let mut world = World::new(name);
        let lines = numbers(1..=50_000);
        world.put(name, if name == "in" { lines.into_bytes() } else { gzip(lines) });
        assert_eq!(texts(&world.begin(49_999)), ["49999", "50000"]);
        assert_eq!(table(&world.run(50_000)), format!("50000 {name}:50000 50000\n"));
    }
}

#[test]
fn the_first_one_is_waited_for_over_runs_and_files() {
    for follow in [false, true] {
        let mut world = World::new("log*");
        world.spec.follow = follow;
        world.put("log1", "1\n2\n");
        assert_eq!(world.begin(6), []);
        world.append("log1", "3\n");
        assert_eq!(world.begin(6), []);
        world.put("log2", "4\n5\n6\n7\n");
        assert_eq!(table(&world.begin(6)), "6 log2:3 6\n7 log2:4 7\n");
        world.append("log2", "8\n");
        assert_eq!(table(&world.run(8)), "8 log2:5 8\n");
    }
}

#[test]
fn a_file_that_is_cut_off_before_the_first_one_loses_none_of_its_indices() {
    let mut world = World::new("log").follow();
    world.put("log", "1\n2\n3\n");
    let source = world.open().unwrap();
    let mut reader = source.beginner(5, None);
    assert_eq!(world.drain(&mut reader).unwrap(), []);
    world.put("log", "4\n");
    assert_eq!(world.drain(&mut reader).unwrap(), []);
    world.append("log", "5\n6\n");
    assert_eq!(table(&world.drain(&mut reader).unwrap()), "5 log:2 5\n6 log:3 6\n");
}

#[test]
fn readers_that_begin_elsewhere_agree_about_indices() {
    let mut world = World::new("in");
    world.put("in", numbers(1..=10));
    let source = world.open().unwrap();
    let (mut late, mut all) = (source.beginner(8, None), source.reader(1, None));
    assert_eq!(texts(&world.drain(&mut late).unwrap()), ["8", "9", "10"]);
    assert_eq!(world.drain(&mut all).unwrap().len(), 10);
    world.append("in", numbers(11..=11));
    assert_eq!(table(&world.run(11)), "11 in:11 11\n");
}

#[test]
fn what_comes_after_the_end_has_the_next_index() {
    for name in ["in", "in.gz"] {
        let mut world = World::new("in*");
        world.put(name, if name == "in" { numbers(1..=5000).into_bytes() } else { gzip(numbers(1..=5000)) });
        assert_eq!(world.end(), 5000);
        assert_eq!(world.begin(5001), []);
        world.put("more", "never read\n").put("in2", "5001\n5002\n");
        assert_eq!(table(&world.begin(5001)), "5001 in2:1 5001\n5002 in2:2 5002\n");
    }
}

#[test]
fn an_unfinished_line_comes_after_the_end_where_more_is_waited_for() {
    let mut world = World::new("log").follow();
    assert_eq!(world.end(), 0);
    world.put("log", "1\n2");
    assert_eq!(world.end(), 1);
    world.append("log", "2\n");
    assert_eq!(table(&world.begin(2)), "2 log:2 22\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn wherever_a_reader_begins_each_later_job_comes_once(
        pieces in prop::collection::vec(0_u64..40, 1..8),
        first in 1_u64..150,
        newest: bool,
        (jobs, bytes) in (1_usize..50, 1_usize..500),
        stops in 1_usize..6,
    ) {
        let mut world = World::new("in").follow();
        let (mut written, mut seen, mut next) = (0, Vec::new(), first);
        world.put("in", "");
        for (at, piece) in pieces.iter().enumerate() {
            world.append("in", numbers(written + 1..=written + piece));
            written += piece;
            if at == 0 && newest {
                prop_assert_eq!(world.end(), written);
                next = written + 1;
            }
            let begun = !seen.is_empty();
            let source = world.open().unwrap();
            let wanted = next + seen.len() as u64;
            let mark = world.mark(wanted);
            let mut reader = if begun { source.reader(wanted, mark) } else { source.beginner(wanted, mark) };
            for _ in 0..stops {
                let Read::Batch(read) = reader.read(BatchLimit { jobs, bytes }).unwrap() else { break };
                world.commit(&read);
                seen.extend(world.see(&read.batch));
            }
        }
        seen.extend(if seen.is_empty() { world.begin(next) } else { world.run(next + seen.len() as u64) });
        let expected: Vec<String> = (next..=written).map(|number| number.to_string()).collect();
        prop_assert_eq!(texts(&seen), expected);
        prop_assert!(seen.iter().zip(next..).all(|(job, index)| job.index == index));
    }
}
