//! Model of the store: a simple state in memory that every read is compared with.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::verify;
use crate::{ReadError, Trim, TrimWhen};
use tidegate_model::Progress;

#[derive(Clone, Debug)]
enum Operation {
    Commit { appends: Vec<(usize, Vec<Vec<u8>>)>, finished: Option<(usize, u64)>, trim: Option<WantedTrim> },
    Reopen,
    Restart,
}

/// Queue, last index, whether by time, and the maximum of bytes.
type WantedTrim = (usize, u64, Option<bool>, Option<u64>);

/// One queue: every job that it ever had, the time of its commit, and the number of deleted jobs.
#[derive(Default)]
struct ModelQueue {
    jobs: Vec<(Vec<u8>, i64)>,
    gone: usize,
}

fn operation() -> impl Strategy<Value = Operation> {
    let job = prop_oneof![
        9 => prop::collection::vec(any::<u8>(), 0..60),
        1 => (any::<u8>(), 1_000_usize..100_000).prop_map(|(byte, len)| vec![byte; len]),
    ];
    let jobs = prop::collection::vec(job, 0..12);
    let commit = (
        prop::collection::vec((0_usize..3, jobs), 0..4),
        prop::option::of((0_usize..3, 1_u64..50)),
        prop::option::of((0_usize..3, 0_u64..80, any::<Option<bool>>(), prop::option::of(0_u64..3_000))),
    );
    prop_oneof![
        12 => commit.prop_map(|(appends, finished, trim)| Operation::Commit { appends, finished, trim }),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::Restart),
    ]
}

fn queue(number: usize) -> Address {
    address(["a/one", "a/two", "b/one"][number])
}

fn changes(operation: &Operation, now: i64, progress: &BTreeMap<usize, Progress>) -> Changes {
    let Operation::Commit { appends, finished, trim } = operation else { return Changes::default() };
    let trims = trim.map(|(number, up_to, by_time, max_bytes)| {
        let when = match by_time {
            None => TrimWhen::Never,
            Some(true) => TrimWhen::OlderThan(Timestamp(now - 3)),
            Some(false) => TrimWhen::Always,
        };
        Trim { queue: queue(number), up_to, when, max_bytes }
    });
    let append = |(number, jobs): &(usize, Vec<Vec<u8>>)| Append {
        queue: queue(*number),
        block: block(jobs.iter().map(|job| &job[..])),
    };
    let finished = finished.map(|(number, _)| (address("a/step"), queue(number), progress[&number].clone()));
    Changes {
        now: Timestamp(now),
        appends: appends.iter().map(append).collect(),
        progress: finished.into_iter().collect(),
        trims: trims.into_iter().collect(),
        ..Changes::default()
    }
}

fn assert_same(store: &Store, model: &[ModelQueue; 3], progress: &BTreeMap<usize, Progress>) {
    for (number, model) in model.iter().enumerate() {
        let kept: Vec<_> = model.jobs[model.gone..].iter().map(|(job, _)| job.clone()).collect();
        assert_eq!(jobs(store, &queue(number)), kept);
        assert_times(store, number, model);
        let head = model.jobs.len() as u64;
        if let Some(state) = store.queue(&queue(number)).unwrap() {
            assert_eq!(
                (state.head, state.first, state.jobs()),
                (head, model.gone as u64 + 1, kept.len() as u64)
            );
        }
        assert!(store.read(&queue(number), head + 1, 9, 9).unwrap().is_none());
        if model.gone > 0 {
            let gone = store.read(&queue(number), model.gone as u64, 9, 9);
            assert!(matches!(gone, Err(ReadError::Gone { .. })), "{gone:?}");
        }
        let found = store.progress(&address("a/step"), &queue(number)).unwrap();
        assert_eq!(found.as_ref(), progress.get(&number));
    }
    let problems = verify(store).unwrap().problems;
    // Progress in this history is independent of the jobs of queues.
    assert!(problems.iter().all(|problem| problem.contains("accounted for")), "{problems:?}");
}

/// Every job has its commit, and can be found by its time.
fn assert_times(store: &Store, number: usize, model: &ModelQueue) {
    let first = model.gone as u64 + 1;
    let Some(batch) = store.read(&queue(number), first, usize::MAX, usize::MAX).ok().flatten() else {
        return;
    };
    let mut last = None;
    for (position, (_, time)) in model.jobs[model.gone..].iter().enumerate().take(batch.len()) {
        assert_eq!(batch.stamp(position).unwrap().time.0, *time);
        if last.replace(time) != Some(time) {
            let found = store.index_at(&queue(number), Timestamp(*time)).unwrap();
            assert_eq!(found, Some(first + position as u64));
        }
    }
}

/// A queue above its limit must have a job that may not be deleted.
fn assert_is_small_enough(store: &Store, trim: Option<&WantedTrim>) {
    let Some(&(number, up_to, _, Some(max_bytes))) = trim else { return };
    let Some(state) = store.queue(&queue(number)).unwrap() else { return };
    if state.bytes > max_bytes {
        let batch = store.read(&queue(number), state.first, usize::MAX, usize::MAX).unwrap().unwrap();
        let first_value =
            batch.stamps.get(1).map_or(batch.end(), |stamp| batch.first + stamp.position as u64);
        assert!(first_value > up_to + 1, "{state:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_store_does_what_the_model_does(operations in prop::collection::vec(operation(), 1..40)) {
        let disk = FaultyDisk::new();
        let (mut store, mut writer) = open_on(&disk);
        let mut model: [ModelQueue; 3] = Default::default();
        let mut progress = BTreeMap::<usize, Progress>::new();
        for (now, operation) in (0..).zip(&operations) {
            match operation {
                Operation::Reopen => prop_assert!(writer.reopen().unwrap().kept.is_none()),
                Operation::Restart => {
                    drop((store, writer));
                    (store, writer) = open_on(&disk);
                }
                Operation::Commit { appends, finished, trim } => {
                    if let Some((number, job)) = finished {
                        progress.entry(*number).or_default().finish(*job, job + 2);
                    }
                    let committed = writer.commit(&changes(operation, now, &progress)).unwrap();
                    for ((number, jobs), appended) in appends.iter().zip(&committed.appended) {
                        prop_assert_eq!(appended.first, model[*number].jobs.len() as u64 + 1);
                        prop_assert_eq!(appended.jobs, jobs.len());
                        model[*number].jobs.extend(jobs.iter().map(|job| (job.clone(), now)));
                    }
                    assert_is_small_enough(&store, trim.as_ref());
                    for trimmed in &committed.trimmed {
                        let (number, up_to, by_time, max_bytes) = trim.unwrap();
                        prop_assert_eq!(&trimmed.queue, &queue(number));
                        let model = &mut model[number];
                        let gone = usize::try_from(trimmed.first).unwrap() - 1;
                        prop_assert_eq!(trimmed.jobs, (gone - model.gone) as u64);
                        prop_assert!(trimmed.first - 1 <= up_to);
                        let goes = |(_, time): &(Vec<u8>, i64)| match by_time {
                            None => false,
                            Some(true) => *time < now - 3,
                            Some(false) => true,
                        };
                        prop_assert!(max_bytes.is_some() || model.jobs[..gone].iter().all(goes));
                        model.gone = gone;
                    }
                }
            }
            assert_same(&store, &model, &progress);
        }
    }
}

#[test]
fn a_trim_takes_whole_values_and_heads_survive_it() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    for jobs in [&["1", "2", "3"][..], &["4", "5"], &["6"]] {
        writer.commit(&appends([append("a/q", jobs.iter().copied())])).unwrap();
    }
    let mut trim = |up_to| {
        let trims = vec![Trim { queue: address("a/q"), up_to, when: TrimWhen::Always, max_bytes: None }];
        let trimmed = writer.commit(&Changes { trims, ..Changes::default() }).unwrap().trimmed;
        trimmed.first().map(|trimmed| (trimmed.first, trimmed.jobs))
    };
    let history: Vec<_> = [2, 3, 4, 5, 99, 99].map(&mut trim).into_iter().collect();
    assert_eq!(history, [None, Some((4, 3)), None, Some((6, 2)), Some((7, 1)), None]);
    writer.commit(&appends([append("a/q", ["7"])])).unwrap();
    assert_eq!(jobs(&store, &address("a/q")), [b"7"]);
    assert_eq!(store.queue(&address("a/q")).unwrap().unwrap().head, 7);
}

#[test]
fn the_small_blocks_of_a_commit_share_a_value() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let many: Vec<_> = (0..1000).map(|number| append("a/q", [&*format!("{number:0>100}")])).collect();
    writer.commit(&appends(many)).unwrap();
    assert_eq!(verify(&store).unwrap().values, 1);
    let more: Vec<_> = (0..5000).map(|number| append("a/q", [&*format!("{number:0>100}")])).collect();
    writer.commit(&appends(more)).unwrap();
    let report = verify(&store).unwrap();
    assert_eq!((report.jobs, report.values), (6000, 3));
}

#[test]
fn one_job_may_be_very_large() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let chunk: Vec<u8> =
        (0..131_072_u64).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).collect();
    let noise = chunk.repeat(65);
    writer.commit(&appends([Append { queue: address("a/q"), block: block([&noise[..], b"1"]) }])).unwrap();
    let batch = store.read(&address("a/q"), 1, 10, 10).unwrap().unwrap();
    assert_eq!(batch.payloads.get(0), Some(&noise[..]));
    assert_eq!(batch.len(), 1);
    assert_eq!(store.read(&address("a/q"), 2, 10, 10).unwrap().unwrap().payloads.get(0), Some(&b"1"[..]));
}

#[test]
fn marks_are_found_at_or_before_an_index() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let source = address("a/events");
    let mark = |index| tidegate_model::SourceOffset { index, segment: 1, offset: index * 7, line: index + 1 };
    let marks = [1, 100, 200].map(|index| (source.clone(), mark(index))).to_vec();
    writer.commit(&Changes { marks, ..Changes::default() }).unwrap();
    let found: Vec<_> =
        [0, 1, 99, 100, 150, 200, u64::MAX].iter().map(|&at| store.mark(&source, at).unwrap()).collect();
    let expected =
        [None, Some(1), Some(1), Some(100), Some(100), Some(200), Some(200)].map(|it| it.map(mark));
    assert_eq!(found, expected);
    assert_eq!(store.mark(&address("a/other"), 5).unwrap(), None);
}

#[test]
fn a_read_after_the_writer_is_gone_says_so() {
    let (store, writer) = open_on(&FaultyDisk::new());
    drop(writer);
    assert!(matches!(store.transaction(), Err(ReadError::Interrupted)));
}

#[test]
fn readers_on_other_threads_see_whole_commits() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let (first, second) = (address("a/first"), address("a/second"));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < 200 {
                        let heads: Vec<_> = store.queues().unwrap().iter().map(|queue| queue.head).collect();
                        assert!(heads.windows(2).all(|pair| pair[0] == pair[1]), "{heads:?}");
                        seen = heads.first().copied().unwrap_or(0);
                        if seen > 0 {
                            assert!(store.read(&first, seen, 1, 1).unwrap().is_some());
                            assert!(store.read(&second, 1, 9, 999).unwrap().is_some());
                        }
                    }
                })
            })
            .collect();
        for number in 0..100 {
            let two = |queue| append(queue, ["1", "2"]);
            writer.commit(&appends([two("a/first"), two("a/second")])).unwrap();
            // Readers continue across it.
            if number % 10 == 0 {
                writer.reopen().unwrap();
            }
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}
