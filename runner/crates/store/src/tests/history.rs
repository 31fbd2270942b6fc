//! History for crash tests: fixed commits that touch every table, each of which changes the visible state.
//!
//! The first commit of an *era* has changes that are rare, and so is a checkpoint. The others may be in the write-ahead
//! log.

use std::sync::LazyLock;

use super::*;
use crate::verify;
use crate::{
    CompletionRecord, DedupeOutcome, DedupeRecord, DeliveredJob, DeliveredJobs, DeliveryKey, DeliveryOutcome,
    DeliveryPlace, DeliveryRecord, DeliveryTimes, FinishedResult, GenerationRecord, IngestedKey, JobForm,
    LaneChange, LaneHold, LateChanges, NewParkedJob, ParkReason, ParkedId, ParkedJob, ParkedKey,
    ParkedPosition, Snapshot, SnapshotInput, StepStop, Trim, TrimWhen,
};
use tidegate_model::{
    DeliveryHash, Due, ExternalStatus, Origins, Progress, Segment, SinkPosition, SourceOffset, TokenKey,
};

pub(crate) const COMMITS: u64 = 40;

/// The jobs that each commit appends to `a/in`, by its number.
fn jobs_in() -> &'static [Vec<Vec<u8>>] {
    static ALL: LazyLock<Vec<Vec<Vec<u8>>>> = LazyLock::new(|| (0..=COMMITS + 1).map(make_jobs).collect());
    &ALL
}

fn make_jobs(number: u64) -> Vec<Vec<u8>> {
    // Every eighth one needs many pages, so that the file grows within the history.
    let size = if number.is_multiple_of(8) { 40_000 } else { 30 };
    (0..=number % 3)
        .map(|position| {
            let start = format!("\"job {position} of commit {number} ");
            let noise = (0..size).map(|at| b'a' + u8::try_from((at * at + number) % 25).unwrap());
            start.into_bytes().into_iter().chain(noise).chain(*b"\"").collect()
        })
        .collect()
}

fn head_in(commits: u64) -> u64 {
    jobs_in().iter().skip(1).zip(0..commits).map(|(jobs, _)| jobs.len() as u64).sum()
}

/// The changes of commit `number`.
pub(crate) fn commit(number: u64) -> &'static Changes {
    static ALL: LazyLock<Vec<Changes>> = LazyLock::new(|| (1..=COMMITS + 1).map(changes).collect());
    &ALL[usize::try_from(number).unwrap() - 1]
}

fn changes(number: u64) -> Changes {
    let jobs = &jobs_in()[usize::try_from(number).unwrap()];
    let first = jobs.split_first().unwrap();
    let mut progress = Progress::default();
    progress.finish(1, number);
    let number32 = u32::try_from(number).unwrap();
    let step = address("a/step");
    Changes {
        now: Timestamp(i64::from(number32)),
        appends: vec![
            Append { queue: address("a/in"), block: block([&first.0[..]]) },
            out(number),
            Append { queue: address("a/in"), block: block(first.1.iter().map(|job| &job[..])) },
        ],
        progress: vec![(step.clone(), address("a/in"), progress)],
        handled_errors: Vec::new(),
        sinks: vec![(step.clone(), position(number))],
        marks: vec![(step.clone(), mark(number))],
        segments: vec![(step.clone(), segment(number32))],
        delivered: vec![placed(number)],
        dedupe_records: vec![delivered(number)],
        ingested: vec![ingested(number)],
        done_snapshots: vec![Snapshot { number: number.saturating_sub(2), ..snapshot(number) }.key()],
        snapshots: vec![snapshot(number)],
        unparked: vec![ParkedId(number / 2).of(&step)],
        // Row 1 is gone by then.
        reparked: vec![(ParkedId(number.saturating_sub(1)).of(&step), moved(number.saturating_sub(1)))],
        parked: vec![NewParkedJob { step: step.clone(), job: delayed(number) }],
        late: LateChanges::default(),
        bindings: vec![],
        schedule_positions: vec![(step.clone(), ticked(number))],
        cursors: vec![(step.clone(), number.to_string())],
        trims: vec![Trim {
            queue: address("a/in"),
            up_to: head_in(number / 2),
            when: TrimWhen::Always,
            max_bytes: None,
        }],
        ..rare_changes(number)
    }
}

const ERA_COMMITS: u64 = 8;

/// The number of the era that a commit belongs to; 0 before the first commit.
fn era(number: u64) -> u64 {
    number.div_ceil(ERA_COMMITS)
}

/// The changes that only the first commit of an era has.
fn rare_changes(number: u64) -> Changes {
    let (step, era) = (address("a/step"), era(number));
    if number % ERA_COMMITS != 1 {
        return Changes::default();
    }
    Changes {
        pauses: vec![(step.clone(), era % 2 == 1)],
        monitor_pauses: vec![(step, era % 2 == 1)],
        lanes: vec![lane(era)],
        begins_run: era.is_multiple_of(3),
        stops: vec![stop(era)],
        // The first one is kept.
        token_key: TokenKey::new(&[u8::try_from(era).unwrap(); 32]),
        generation: Some(generation(era)),
        ..Changes::default()
    }
}

/// The job of `a/out` that was made from the job of `a/in` with the same index.
fn out(number: u64) -> Append {
    let mut origins = Origins::new(address("a/step"), vec!["a/in".into()]);
    origins.push(&[number]);
    let carried = carried(number);
    let carried: Payloads = [carried.as_bytes()].into_iter().collect();
    let details = Details { origins: Some(&origins), carried: Some(&carried) };
    let payload = number.to_string();
    let payloads: Payloads = [payload.as_bytes()].into_iter().collect();
    Append { queue: address("a/out"), block: Block::encode(&payloads, details) }
}

fn lane(number: u64) -> LaneChange {
    let halted = (number % 4 == 1).then(|| format!("job a/in/{number} is invalid"));
    let hold = LaneHold { since: Timestamp(i64::try_from(number).unwrap()), halted };
    LaneChange { step: address("a/step"), lane: "eu".into(), hold: (number % 2 == 1).then_some(hold) }
}

fn stop(number: u64) -> StepStop {
    StepStop {
        step: address("a/step"),
        since: Timestamp(7),
        at: Some(format!("job {number}")),
        job: Some((address("a/in"), number)),
        why: "the step has stopped".into(),
    }
}

fn carried(number: u64) -> String {
    format!(r#"{{"a/in":{{"index":{number}}}}}"#)
}

/// Kept until the third commit after it.
fn delivered(number: u64) -> DedupeRecord {
    let now = i64::try_from(number).unwrap();
    let outcome = DedupeOutcome::Output { jobs: u32::try_from(number).unwrap() };
    let times = (!number.is_multiple_of(2)).then(|| times(number, number));
    DedupeRecord { hash: DeliveryHash(number.into()), outcome, times, keep_until: Some(Timestamp(now + 3)) }
}

/// The record of [`delivered`], while it is kept. Commit `number` is at that time.
pub(crate) fn hashed(number: u64) -> DeliveryRecord {
    let DedupeRecord { outcome, times, .. } = delivered(number);
    DeliveryRecord { outcome, ended: Some(Timestamp(number.cast_signed())), times }
}

/// Deliveries of four jobs, of which the next commit delivers two again. Kept as [`delivered`].
fn placed(number: u64) -> DeliveredJobs {
    let job = |index| DeliveredJob { index, outcome: outcome(number, index), times: times(number, index) };
    let jobs = (2 * number..2 * number + 4).map(job).collect();
    let DedupeRecord { keep_until, .. } = delivered(number);
    DeliveredJobs { step: address("a/step"), input: "a/in".into(), jobs, keep_until }
}

fn outcome(number: u64, index: u64) -> DeliveryOutcome {
    match index % 3 {
        0 => DeliveryOutcome::Output { jobs: u32::try_from(number).unwrap() },
        1 => DeliveryOutcome::Error,
        _ => DeliveryOutcome::Nothing,
    }
}

fn times(number: u64, index: u64) -> DeliveryTimes {
    let time = |less| Timestamp((100 * number).cast_signed() - less);
    DeliveryTimes {
        attempts: u32::try_from(index % 2 + 1).unwrap(),
        created: Some(time(50)),
        first_attempt: Some(time(9)),
        submitted: index.is_multiple_of(4).then(|| time(3)),
    }
}

/// The record at `index` after the first `commits` commits. Each of them is at its number.
pub(crate) fn placed_after(commits: u64, index: u64) -> Option<DeliveryRecord> {
    let number = commits.min(index / 2);
    let is_kept = number > 0 && index < 2 * number + 4 && number + 3 > commits;
    is_kept.then(|| DeliveryRecord {
        outcome: outcome(number, index).into(),
        ended: Some(Timestamp(number.cast_signed())),
        times: Some(times(number, index)),
    })
}

/// The key of the job of `a/out`.
fn ingested(number: u64) -> IngestedKey {
    let DedupeRecord { keep_until, .. } = delivered(number);
    let hash = DeliveryHash(u128::from(number) + 1000);
    IngestedKey { hash, append: 1, position: 0, jobs: 1, late_position: 0, late: 0, content: 7, keep_until }
}

pub(crate) fn snapshot(number: u64) -> Snapshot {
    let input = SnapshotInput { name: "in".into(), address: address("a/in"), first: number, jobs: 2 };
    Snapshot { step: address("a/step"), number, inputs: vec![input], jobs: 2, time: Timestamp(7) }
}

/// The parked job with this number: later ones are due earlier.
pub(crate) fn delayed(number: u64) -> ParkedJob {
    let due = Due::At(Timestamp(-i64::try_from(number).unwrap()));
    let (reason, due) = match number % 5 {
        0 => (ParkReason::Pending { handle: format!("handle {number}"), since: Timestamp(-3) }, Due::Never),
        1 => (ParkReason::Started { since: Timestamp(-4) }, Due::Now),
        2 => (ParkReason::Output { to: "late".into() }, due),
        3 => (ParkReason::Finished { result: FinishedResult::default() }, Due::Never),
        _ => (ParkReason::Delayed, due),
    };
    ParkedJob {
        due,
        inputs: vec![("a/in".into(), number), ("a/other".into(), 1)],
        attempt: u32::try_from(number).unwrap(),
        first_attempt: Some(Timestamp(-1)),
        created: Some(Timestamp(-2)),
        last_submitted: number.is_multiple_of(2).then_some(Timestamp(7)),
        last_error: Some("busy".into()),
        from_error: number.is_multiple_of(3).then(|| (address("a/failed"), number)),
        reason,
        form: JobForm::Text,
        payload: format!("delayed {number}").into_bytes(),
        carried: number.is_multiple_of(2).then(|| carried(number)),
    }
}

/// The same job after the next commit.
pub(crate) fn moved(number: u64) -> ParkedJob {
    let job = delayed(number);
    let reason = match job.reason {
        ParkReason::Pending { handle, since } => {
            let completion = CompletionRecord { status: ExternalStatus::Valid, result: None, reason: None };
            ParkReason::Completed { handle, since, completion }
        }
        ParkReason::Started { .. } => ParkReason::Delayed,
        ParkReason::Delayed if number.is_multiple_of(4) => ParkReason::Started { since: Timestamp(-5) },
        other => other,
    };
    ParkedJob { due: job.due.hastened(), reason, ..job }
}

/// The rows after the first `commits` commits, in their order.
fn parked_after(commits: u64) -> Vec<(ParkedKey, ParkedJob)> {
    let numbers = commits / 2 + 1..=commits;
    let content = |number| if number == commits { delayed(number) } else { moved(number) };
    let mut rows: Vec<_> = numbers.map(|number| (ParkedId(number), content(number))).collect();
    rows.sort_by_key(|(id, job)| ParkedPosition::of(*id, job));
    rows.into_iter().map(|(id, job)| (id.of(&address("a/step")), job)).collect()
}

pub(crate) fn generation(number: u64) -> GenerationRecord {
    GenerationRecord { number, fingerprint: number * 7, time: Timestamp(5) }
}

/// Some commits set the clock back.
fn ticked(number: u64) -> Timestamp {
    Timestamp(1_000 * i64::try_from(number % 7).unwrap())
}

fn position(number: u64) -> SinkPosition {
    SinkPosition {
        offset: number,
        tail_len: 1,
        tail_hash: 2,
        device: 3,
        inode: 4,
        path_hash: 5,
        path: None,
        open: true,
    }
}

fn mark(number: u64) -> SourceOffset {
    SourceOffset { index: number * 10, segment: 0, offset: number * 100, line: number }
}

fn segment(ordinal: u32) -> Segment {
    Segment {
        ordinal,
        first: u64::from(ordinal),
        path: format!("in/{ordinal}.ndjson").into(),
        device: 1,
        inode: 2,
        fingerprint: 3,
        offset: 0,
        line: 1,
        tail: None,
        siblings_known: true,
        end: None,
        fingerprint_len: 4,
    }
}

/// Asserts that the store equals the first `commits` commits, in every part.
pub(crate) fn assert_is_after(store: &Store, commits: u64) {
    assert_has_come_back(store, commits);
    // The last stop of a step is kept.
    let stopped = (commits > 0).then(|| stop(era(commits)));
    assert_eq!(store.stops().unwrap(), stopped.into_iter().collect::<Vec<_>>());
}

/// As [`assert_is_after`], for a store that may be imported: an export has no record of stopped steps.
pub(crate) fn assert_has_come_back(store: &Store, commits: u64) {
    assert_eq!(store.transaction().unwrap(), commits);
    assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
    let step = address("a/step");
    assert_eq!(store.delivery(DeliveryHash(u128::from(commits) + 1)).unwrap(), None);
    assert_details_are_after(store, commits);
    if commits == 0 {
        assert_eq!(store.queues().unwrap(), []);
        assert_eq!(store.segments(&step).unwrap(), []);
        return;
    }
    let kept = commits / 2 + 1..=commits;
    let all = jobs(store, &address("a/in"));
    assert!(all.iter().eq(kept.flat_map(|number| &jobs_in()[usize::try_from(number).unwrap()])));
    let out: Vec<_> = (1..=commits).map(|number| number.to_string().into_bytes()).collect();
    assert_eq!(jobs(store, &address("a/out")), out);
    let progress = store.progress(&step, &address("a/in")).unwrap().unwrap();
    assert_eq!((progress.position(), progress.finished()), (commits, &[][..]));
    assert_eq!(store.sink(&step).unwrap(), Some(position(commits)));
    assert_eq!(store.mark(&step, u64::MAX).unwrap(), Some(mark(commits)));
    let segments: Vec<_> = (1..=u32::try_from(commits).unwrap()).map(segment).collect();
    assert_eq!(store.segments(&step).unwrap(), segments);
    assert_eq!(store.index_at(&address("a/out"), Timestamp(i64::from(u32::MAX))).unwrap(), None);
    for index in 1..=commits {
        let time = Timestamp(i64::try_from(index).unwrap());
        assert_eq!(store.index_at(&address("a/out"), time).unwrap(), Some(index));
    }
}

fn assert_details_are_after(store: &Store, commits: u64) {
    let step = address("a/step");
    let numbers: Vec<_> = (1..=commits).collect();
    let by_hash = |hash| DeliveryKey::Hash(hash);
    let hashes: Vec<_> = numbers.iter().map(|&number| by_hash(DeliveryHash(number.into()))).collect();
    let kept = numbers.iter().map(|number| (number + 3 > commits).then(|| hashed(*number)));
    let outcomes = kept.clone().map(|kept| kept.map(|record| record.outcome));
    assert_eq!(store.deliveries(&hashes).unwrap(), outcomes.collect::<Vec<_>>());
    for (hash, kept) in hashes.into_iter().zip(kept) {
        assert_eq!(store.delivery_record(hash).unwrap(), kept);
    }
    let hashes: Vec<_> = numbers.iter().map(|&number| by_hash(ingested(number).hash)).collect();
    let kept = numbers.iter().map(|&first| {
        (first + 3 > commits).then_some(DedupeOutcome::Ingested { first, jobs: 1, content: 7 })
    });
    assert_eq!(store.deliveries(&hashes).unwrap(), kept.collect::<Vec<_>>());
    let place = |index| DeliveryKey::Place(DeliveryPlace { step: &step, input: "a/in", index });
    let indices = 0..2 * commits + 6;
    let places: Vec<_> = indices.clone().map(place).collect();
    let kept: Vec<_> = indices.map(|index| placed_after(commits, index)).collect();
    let outcomes: Vec<_> = kept.iter().map(|kept| kept.map(|record| record.outcome)).collect();
    assert_eq!(store.deliveries(&places).unwrap(), outcomes);
    for (index, record) in (0..).zip(kept) {
        assert_eq!(store.delivery_record(place(index)).unwrap(), record);
    }
    let open: Vec<_> = numbers.iter().rev().take(2).rev().map(|&number| snapshot(number)).collect();
    assert_eq!(store.snapshots(&step).unwrap(), open);
    assert_eq!(store.all_snapshots().unwrap(), open);
    let waiting = parked_after(commits);
    assert_eq!(store.due(&step, Due::Never, None, usize::MAX, usize::MAX).unwrap(), waiting);
    assert_eq!(store.parked_count(&step).unwrap(), waiting.len() as u64);
    if let Some((key, job)) = waiting.last() {
        let found = store.parked_of(&step, ("a/in", key.id.0)).unwrap();
        assert_eq!(found, [(key.clone(), job.clone())]);
    }
    assert_eq!(store.parked_of(&step, ("a/other", 1)).unwrap(), waiting);
    assert_eq!(store.last_parked().unwrap(), ParkedId(commits));
    assert_eq!(store.pauses().unwrap().len() as u64, era(commits) % 2);
    assert_eq!(store.monitor_pauses().unwrap().len() as u64, era(commits) % 2);
    let held = numbers.last().map(|&number| lane(era(number))).filter(|change| change.hold.is_some());
    let held: Vec<_> = held.into_iter().filter_map(|change| Some((change.lane, change.hold?))).collect();
    assert_eq!(store.held_lanes(&step).unwrap(), held);
    assert_eq!(store.generation().unwrap(), numbers.last().map(|&number| generation(era(number))));
    assert_eq!(store.ticked(&step).unwrap(), numbers.last().map(|&number| ticked(number)));
    assert_eq!(store.ticked(&address("a/in")).unwrap(), None);
    assert_eq!(store.cursor(&step).unwrap(), (commits > 0).then(|| commits.to_string()));
    let mut next = 1;
    while let Some((batch, origins)) = store.read_details(&address("a/out"), next, 9, 9_999).unwrap() {
        for (position, origin) in origins.iter().enumerate() {
            assert_eq!(origin.as_ref().unwrap().inputs, [("a/in".to_owned(), next)]);
            let text = batch.carried.as_ref().unwrap().get(position);
            assert_eq!(text, Some(carried(next).as_bytes()));
            let stamp = batch.stamp(position).unwrap();
            assert_eq!((stamp.time.0.cast_unsigned(), stamp.transaction), (next, next));
            next += 1;
        }
    }
    assert_eq!(next, commits + 1);
}

/// Makes the first `commits` commits, until one fails. Returns the number of the last one that succeeded.
pub(crate) fn run(writer: &mut Writer, commits: u64) -> u64 {
    for number in 1..=commits {
        match writer.commit(commit(number)) {
            Ok(committed) => assert_eq!(committed.transaction, number),
            Err(_) => return number - 1,
        }
    }
    commits
}

#[test]
fn after_each_commit_of_the_history_the_store_holds_what_was_committed() {
    let disk = FaultyDisk::new();
    let (store, mut writer) = open_on(&disk);
    for number in 0..=COMMITS {
        if number > 0 {
            writer.commit(commit(number)).unwrap();
        }
        assert_is_after(&store, number);
    }
    drop(writer);
    let (store, _writer) = open_on(&disk);
    assert_is_after(&store, COMMITS);
}
