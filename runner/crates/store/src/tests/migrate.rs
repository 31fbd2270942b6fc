//! Tests of migration: a store of each older version, written in its format, is opened.

use redb::{Database, TableDefinition};
use twox_hash::XxHash3_64;

use super::*;
use crate::database::delivered::DELIVERED;
use crate::database::format::RecordKey;
use crate::verify;
use crate::{
    CompletionRecord, DedupeOutcome, DedupeRecord, DeliveredJob, DeliveredJobs, DeliveryKey, DeliveryOutcome,
    DeliveryPlace, DeliveryRecord, DeliveryTimes, JobForm, NewParkedJob, ParkReason, ParkedId, ParkedJob,
    ParkedTotals,
};
use tidegate_model::{DeliveryHash, Due, ExternalStatus, Progress, Stamp};

type Records<K> = TableDefinition<'static, K, &'static [u8]>;

const META: Records<&str> = TableDefinition::new("meta");
const NAMES: Records<&str> = TableDefinition::new("names");
const QUEUES: Records<u32> = TableDefinition::new("queues");
const LOG: Records<(u32, u64)> = TableDefinition::new("log");
const PROGRESS: Records<(u32, u32)> = TableDefinition::new("progress");
const MARKS: Records<(u32, u64)> = TableDefinition::new("marks");
const SEGMENTS: Records<(u32, u32)> = TableDefinition::new("segments");
const SINKS: Records<u32> = TableDefinition::new("sinks");
const DELIVERIES: Records<u128> = TableDefinition::new("deliveries");
const PARKED_OF: TableDefinition<'_, (u32, u64, u64), ()> = TableDefinition::new("parked_of");
const TICKS: Records<u32> = TableDefinition::new("ticks");
const DELAYED: Records<(u32, u64, u64)> = TableDefinition::new("delayed");
const DELAYED_COUNTS: Records<u32> = TableDefinition::new("delayed_counts");

fn seed(table: u8, a: u64, b: u64) -> u64 {
    XxHash3_64::oneshot(&[&[table][..], &a.to_le_bytes(), &b.to_le_bytes()].concat())
}

fn text(key: &str) -> u64 {
    XxHash3_64::oneshot(key.as_bytes())
}

fn sealed(seed: u64, record: &[u8]) -> Vec<u8> {
    [record, &XxHash3_64::oneshot_with_seed(seed, record).to_le_bytes()].concat()
}

/// The three jobs `1`, `22` and an empty one, committed at the time 5.
fn value_of_version_1() -> Vec<u8> {
    let body = [&[1, 2, 0][..], b"122"].concat();
    let time = 5_i64.to_le_bytes();
    let checksum = XxHash3_64::oneshot(&body).to_le_bytes();
    let rest = [&[1][..], &time, &[3, 1], &[0, 3, 6, 6], &checksum].concat();
    let checksum = XxHash3_64::oneshot_with_seed(seed(3, 1, 1), &rest).to_le_bytes();
    [&checksum[..], &rest, &body].concat()
}

fn store_of_version_1(path: &std::path::Path) {
    let database = Database::create(path).unwrap();
    let txn = database.begin_write().unwrap();
    {
        let mut meta = txn.open_table(META).unwrap();
        meta.insert("format", &1_u32.to_le_bytes()[..]).unwrap();
        meta.insert("created", &*sealed(seed(0, text("created"), 0), &4_i64.to_le_bytes())).unwrap();
        let commit = [1_u64.to_le_bytes(), 5_i64.to_le_bytes()].concat();
        meta.insert("commit", &*sealed(seed(0, text("commit"), 0), &commit)).unwrap();
        let mut names = txn.open_table(NAMES).unwrap();
        for (name, id) in [("a/q", 1_u32), ("a/step", 2)] {
            names.insert(name, &*sealed(seed(1, text(name), 0), &id.to_le_bytes())).unwrap();
        }
        let value = value_of_version_1();
        let queue = [3, 1, value.len() as u64].map(u64::to_le_bytes).concat();
        txn.open_table(QUEUES).unwrap().insert(1, &*sealed(seed(2, 1, 0), &queue)).unwrap();
        txn.open_table(LOG).unwrap().insert((1, 1), &*value).unwrap();
        let progress =
            br#"{"watermark":2,"finished":[],"counters":{"taken":2,"given":0,"filtered":0,"failed":0}}"#;
        txn.open_table(PROGRESS).unwrap().insert((2, 1), &*sealed(seed(4, 2, 1), progress)).unwrap();
        let delivery = sealed(seed(8, 77, 0), &[0, 6, 0, 0, 0]);
        txn.open_table(DELIVERIES).unwrap().insert(77, &*delivery).unwrap();
        txn.open_table(MARKS).unwrap();
        txn.open_table(SEGMENTS).unwrap();
        txn.open_table(SINKS).unwrap();
    }
    txn.commit().unwrap();
}

fn bytes_of_version_1() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    store_of_version_1(&path);
    std::fs::read(path).unwrap()
}

fn assert_is_whole(store: &Store) {
    assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
    let batch = store.read(&address("a/q"), 1, 9, 99).unwrap().unwrap();
    assert!(batch.payloads.iter().take(3).eq([&b"1"[..], b"22", b""]));
    let stamp = Stamp { position: 0, time: Timestamp(5), transaction: 0 };
    assert_eq!(batch.stamps.first(), Some(&stamp));
    assert_eq!(store.progress(&address("a/step"), &address("a/q")).unwrap().unwrap().position(), 2);
    let outcome = DedupeOutcome::Output { jobs: 6 };
    assert_eq!(store.delivery(DeliveryHash(77)).unwrap(), Some(outcome));
}

fn error_of(hash: u128, times: Option<DeliveryTimes>, keep_until: Option<Timestamp>) -> DedupeRecord {
    DedupeRecord { hash: DeliveryHash(hash), outcome: DedupeOutcome::Error, times, keep_until }
}

#[test]
fn a_store_of_version_1_goes_on_as_one_of_this_version() {
    let disk = FaultyDisk::with(bytes_of_version_1());
    for round in 0..2 {
        let (store, mut writer) = open_on(&disk);
        assert_is_whole(&store);
        assert_eq!(store.transaction().unwrap(), 1 + round);
        let keep_until = Some(Timestamp(i64::MAX - 1));
        let deliveries = vec![error_of(78, None, keep_until)];
        let appends = vec![append("a/q", ["4"])];
        writer
            .commit(&Changes { now: Timestamp(9), appends, dedupe_records: deliveries, ..Changes::default() })
            .unwrap();
        let batch = store.read(&address("a/q"), 3, 9, 99).unwrap().unwrap();
        assert_eq!(batch.stamps[1], Stamp { position: 1, time: Timestamp(9), transaction: 2 });
    }
}

/// Due times that had a meaning of their own.
const NOW: i64 = 0;
const NEVER: i64 = i64::MAX;

/// Parked jobs of a store of version 2 to 5: the due time, the record without its checksum, and the job in this
/// version. The first record has all parts.
fn parked_jobs() -> Vec<(i64, Vec<u8>, ParkedJob)> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let since = 7_i64.to_le_bytes();
    let all = [
        &[0b0011_1101, 2, 2][..],
        &text("a/q"),
        &[200, 1],
        &text("b"),
        &[4],
        &since,
        &text("busy"),
        &text("a/failed"),
        &[9],
        &text("{}"),
        b"text",
    ];
    let whole = ParkedJob {
        due: Due::At(Timestamp(70)),
        inputs: vec![("a/q".into(), 200), ("b".into(), 4)],
        attempt: 2,
        first_attempt: Some(Timestamp(7)),
        created: None,
        last_submitted: None,
        last_error: Some("busy".into()),
        from_error: Some((address("a/failed"), 9)),
        reason: ParkReason::Delayed,
        form: JobForm::Text,
        payload: b"text".to_vec(),
        carried: Some("{}".into()),
    };
    let (to, handle) = (text("late"), text("h"));
    let small =
        |flags: u8, parts: &[&[u8]]| [&[flags, 0, 1][..], &text("a/q"), &[3], &parts.concat(), b"1"].concat();
    let job = |due, reason| {
        let inputs = vec![("a/q".to_owned(), 3)];
        ParkedJob { due, inputs, reason, payload: b"1".to_vec(), ..ParkedJob::default() }
    };
    let output = || ParkReason::Output { to: "late".into() };
    let pending = || ParkReason::Pending { handle: "h".into(), since: Timestamp(7) };
    let reported = |status| {
        let completion = CompletionRecord { status, result: None, reason: Some("h".into()) };
        ParkReason::Completed { handle: "h".into(), since: Timestamp(7), completion }
    };
    let completed = |status: u8| small(128, &[&[3], &since, &handle, &[status, 2], &handle]);
    let at = |time| Due::At(Timestamp(time));
    vec![
        (70, all.concat(), whole),
        (NOW, small(0, &[]), job(Due::Now, ParkReason::Delayed)),
        (60, small(64, &[&to]), job(at(60), output())),
        (5, small(128, &[&[1]]), job(Due::Now, ParkReason::Started { since: Timestamp(5) })),
        // An output that was being delivered.
        (5, small(64 | 128, &[&to, &[1]]), job(at(5), output())),
        (NEVER, small(128, &[&[2], &since, &handle]), job(Due::Never, pending())),
        (NEVER, completed(1), job(Due::Never, reported(ExternalStatus::Valid))),
        (NOW, completed(2), job(Due::Now, reported(ExternalStatus::Committed))),
    ]
}

/// Makes a store of this version one of `version`, with parked jobs of the step with this number.
fn make_older(database: &Database, version: u32, step: u32) {
    let txn = database.begin_write().unwrap();
    let mut meta = txn.open_table(META).unwrap();
    meta.insert("format", &version.to_le_bytes()[..]).unwrap();
    meta.remove("parked").unwrap();
    meta.insert("delayed", &*sealed(seed(0, text("delayed"), 0), &20_u64.to_le_bytes())).unwrap();
    drop(meta);
    if version < 4 {
        txn.delete_table(TICKS).unwrap();
    }
    let newer = ["parked_due", "parked_of", "parked", "parked_started", "parked_counts", "held_lanes"];
    for table in newer.into_iter().chain(["delivered", "delivery_series"]) {
        let found = txn.list_tables().unwrap().find(|one| redb::TableHandle::name(one) == table);
        txn.delete_table(found.unwrap()).unwrap();
    }
    let mut rows = txn.open_table(DELAYED).unwrap();
    for (id, (due, record, _)) in (1_u64..).zip(parked_jobs()) {
        let key = (step, due.cast_unsigned() ^ 1 << 63, id);
        let parts = [&u64::from(step).to_le_bytes()[..], &key.1.to_le_bytes(), &key.2.to_le_bytes()];
        let seed = XxHash3_64::oneshot(&[&[11][..], &parts.concat()].concat());
        rows.insert(key, &*sealed(seed, &record)).unwrap();
    }
    drop(rows);
    let count = sealed(0, &8_u64.to_le_bytes());
    txn.open_table(DELAYED_COUNTS).unwrap().insert(step, &*count).unwrap();
    txn.commit().unwrap();
}

#[test]
fn a_store_of_version_2_to_5_goes_on_as_one_of_this_version() {
    for version in 2..=5 {
        goes_on(version);
    }
}

fn goes_on(version: u32) {
    let folder = tempfile::tempdir().unwrap();
    {
        let (_store, mut writer) = crate::open(folder.path()).unwrap();
        let appends = vec![append("a/q", ["1", "2"])];
        let progress = vec![(address("a/step"), address("a/q"), Progress::default())];
        writer.commit(&Changes { now: Timestamp(5), appends, progress, ..Changes::default() }).unwrap();
    }
    let database = Database::open(folder.path().join("store.redb")).unwrap();
    make_older(&database, version, 2);
    drop(database);
    for round in 0..2 {
        let (store, mut writer) = crate::open(folder.path()).unwrap();
        assert_eq!(store.transaction().unwrap(), 1 + round);
        assert_eq!(store.queue(&address("a/q")).unwrap().unwrap().head, 2);
        assert_parked(&store, 20 + round);
        let outcome = DedupeOutcome::Ingested { first: 1, jobs: 2, content: u64::MAX };
        let keep_until = None;
        let deliveries = vec![DedupeRecord { hash: DeliveryHash(78), outcome, times: None, keep_until }];
        let ticked = vec![(address("a/tick"), Timestamp(8))];
        assert_eq!(store.ticked(&address("a/tick")).unwrap(), (round > 0).then_some(Timestamp(8)));
        let parked = vec![NewParkedJob { step: address("a/other"), job: ParkedJob::default() }];
        let committed = writer
            .commit(&Changes {
                now: Timestamp(9),
                dedupe_records: deliveries,
                schedule_positions: ticked,
                parked,
                ..Changes::default()
            })
            .unwrap();
        assert_eq!(committed.parked[0].id, ParkedId(21 + round));
        assert_eq!(store.delivery(DeliveryHash(78)).unwrap(), Some(outcome));
        assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
    }
}

/// The parked jobs have kept their numbers.
fn assert_parked(store: &Store, last: u64) {
    let step = address("a/step");
    let mut found: Vec<_> = store.all_parked(&step).map(|row| row.unwrap()).collect();
    found.sort_by_key(|(key, _)| key.id);
    let expected: Vec<_> =
        (1..).zip(parked_jobs()).map(|(id, (_, _, job))| (ParkedId(id).of(&step), job)).collect();
    assert_eq!(found, expected);
    assert_eq!(store.last_parked().unwrap(), ParkedId(last));
    let totals = ParkedTotals { delayed: 2, outputs: 2, started: 1, pending: 3 };
    assert_eq!(store.parked_totals(&step).unwrap(), totals);
}

#[test]
fn a_store_with_a_damaged_parked_job_is_not_migrated() {
    let folder = tempfile::tempdir().unwrap();
    drop(crate::open(folder.path()).unwrap());
    let path = folder.path().join("store.redb");
    let database = Database::open(&path).unwrap();
    make_older(&database, 5, 1);
    let txn = database.begin_write().unwrap();
    txn.open_table(DELAYED).unwrap().insert((1, 2, 3), &b"damaged"[..]).unwrap();
    txn.commit().unwrap();
    drop(database);
    for _ in 0..2 {
        let error = crate::open(folder.path()).unwrap_err();
        assert!(
            error.to_string().contains("the checksum of the record Delayed(1, 2, 3) is wrong"),
            "{error}"
        );
    }
}

/// Makes a store of this version one of version 8, whose index of parked jobs had hashes.
fn make_version_8(database: &Database) {
    let txn = database.begin_write().unwrap();
    txn.open_table(META).unwrap().insert("format", &8_u32.to_le_bytes()[..]).unwrap();
    for table in ["delivered", "delivery_series"] {
        let found = txn.list_tables().unwrap().find(|one| redb::TableHandle::name(one) == table);
        txn.delete_table(found.unwrap()).unwrap();
    }
    let mut index = txn.open_table(PARKED_OF).unwrap();
    while index.pop_first().unwrap().is_some() {}
    for (id, of) in (1_u64..).zip(["a/q", "a/q", "b"]) {
        index.insert((1, XxHash3_64::oneshot_with_seed(id, of.as_bytes()), id), ()).unwrap();
    }
    drop(index);
    txn.commit().unwrap();
}

fn bytes_of_version_8() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut writer) = crate::open(folder.path()).unwrap();
    let job = |input: &str, index| ParkedJob { inputs: vec![(input.into(), index)], ..ParkedJob::default() };
    let jobs = [job("a/q", 1), job("a/q", 2), job("b", 3)];
    let parked = jobs.map(|job| NewParkedJob { step: address("a/step"), job }).to_vec();
    writer.commit(&Changes { parked, ..Changes::default() }).unwrap();
    drop((store, writer));
    let path = folder.path().join("store.redb");
    make_version_8(&Database::open(&path).unwrap());
    std::fs::read(path).unwrap()
}

fn assert_parked_of(store: &Store) {
    let step = address("a/step");
    for (id, input) in [("a/q", 1), ("a/q", 2), ("b", 3)].into_iter().enumerate() {
        let found = store.parked_of(&step, input).unwrap();
        let ids: Vec<_> = found.iter().map(|(key, _)| key.id.0).collect();
        assert_eq!(ids, [id as u64 + 1], "{input:?}");
    }
    assert_eq!(store.parked_of(&step, ("b", 1)).unwrap(), []);
}

#[test]
fn parked_jobs_of_version_8_are_found_by_their_inputs() {
    let (store, mut writer) = open_on(&FaultyDisk::with(bytes_of_version_8()));
    assert_parked_of(&store);
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
    let unparked = (1..=3).map(|id| ParkedId(id).of(&address("a/step"))).collect();
    writer.commit(&Changes { unparked, ..Changes::default() }).unwrap();
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
}

/// A store of version 9, whose records of deliveries have no times: jobs 1 to 3 were delivered at the time 5.
fn bytes_of_version_9() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut writer) = crate::open(folder.path()).unwrap();
    let job =
        |index| DeliveredJob { index, outcome: DeliveryOutcome::Nothing, times: DeliveryTimes::default() };
    writer.commit(&Changes { delivered: vec![delivered((1..=3).map(job))], ..Changes::default() }).unwrap();
    drop((store, writer));
    let path = folder.path().join("store.redb");
    let database = Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(META).unwrap().insert("format", &9_u32.to_le_bytes()[..]).unwrap();
    let record = [&[1][..], &5_i64.to_le_bytes(), &i64::MAX.to_le_bytes(), &[1, 3]].concat();
    let record = RecordKey::Delivered(1, 3).seal(record);
    txn.open_table(DELIVERED).unwrap().insert((1, 3), &*record).unwrap();
    txn.commit().unwrap();
    drop(database);
    std::fs::read(path).unwrap()
}

fn delivered(jobs: impl IntoIterator<Item = DeliveredJob>) -> DeliveredJobs {
    let jobs = jobs.into_iter().collect();
    DeliveredJobs { step: address("a/step"), input: "a/q".into(), jobs, keep_until: None }
}

fn record_at(store: &Store, index: u64) -> Option<DeliveryRecord> {
    let step = address("a/step");
    store.delivery_record(DeliveryKey::Place(DeliveryPlace { step: &step, input: "a/q", index })).unwrap()
}

const WITHOUT_TIMES: DeliveryRecord =
    DeliveryRecord { outcome: DedupeOutcome::Nothing, ended: Some(Timestamp(5)), times: None };

fn assert_records(store: &Store) {
    let records = [0, 1, 2, 3, 4].map(|index| record_at(store, index));
    let old = Some(WITHOUT_TIMES);
    assert_eq!(records, [None, old, old, old, None]);
}

#[test]
fn deliveries_of_version_9_are_kept_without_times_beside_later_ones() {
    let (store, mut writer) = open_on(&FaultyDisk::with(bytes_of_version_9()));
    assert_records(&store);
    let times = DeliveryTimes { attempts: 2, created: Some(Timestamp(1)), ..DeliveryTimes::default() };
    let again = DeliveredJob { index: 2, outcome: DeliveryOutcome::Error, times };
    writer
        .commit(&Changes { now: Timestamp(9), delivered: vec![delivered([again])], ..Changes::default() })
        .unwrap();
    let later =
        DeliveryRecord { outcome: DedupeOutcome::Error, ended: Some(Timestamp(9)), times: Some(times) };
    let records = [1, 2, 3].map(|index| record_at(&store, index).unwrap());
    assert_eq!(records, [WITHOUT_TIMES, later, WITHOUT_TIMES]);
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
}

/// A store of version 10, whose records of deliveries by hash have no times: 77 was delivered at the time 5.
fn bytes_of_version_10() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut writer) = crate::open(folder.path()).unwrap();
    writer.commit(&Changes { dedupe_records: vec![error_of(77, None, None)], ..Changes::default() }).unwrap();
    drop((store, writer));
    let path = folder.path().join("store.redb");
    let database = Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(META).unwrap().insert("format", &10_u32.to_le_bytes()[..]).unwrap();
    let record = [&[1, 0, 0, 0, 0][..], &5_i64.to_le_bytes(), &i64::MAX.to_le_bytes()].concat();
    let record = RecordKey::Delivery(DeliveryHash(77)).seal(record);
    txn.open_table(DELIVERIES).unwrap().insert(77, &*record).unwrap();
    txn.commit().unwrap();
    drop(database);
    std::fs::read(path).unwrap()
}

fn hashed_at(store: &Store, hash: u128) -> Option<DeliveryRecord> {
    store.delivery_record(DeliveryKey::Hash(DeliveryHash(hash))).unwrap()
}

fn assert_hashed(store: &Store) {
    let old = DeliveryRecord { outcome: DedupeOutcome::Error, ended: Some(Timestamp(5)), times: None };
    assert_eq!(hashed_at(store, 77), Some(old));
    assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
}

#[test]
fn deliveries_by_hash_of_version_10_are_kept_without_times_until_they_are_made_again() {
    let (store, mut writer) = open_on(&FaultyDisk::with(bytes_of_version_10()));
    assert_hashed(&store);
    let times = DeliveryTimes { attempts: 2, created: Some(Timestamp(1)), ..DeliveryTimes::default() };
    let dedupe_records = vec![error_of(77, Some(times), None), error_of(78, Some(times), None)];
    writer.commit(&Changes { now: Timestamp(9), dedupe_records, ..Changes::default() }).unwrap();
    let later =
        DeliveryRecord { outcome: DedupeOutcome::Error, ended: Some(Timestamp(9)), times: Some(times) };
    assert_eq!([77, 78].map(|hash| hashed_at(&store, hash)), [Some(later); 2]);
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
}

/// A store of version 11, which has no write-ahead log.
fn bytes_of_version_11() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut writer) = crate::open(folder.path()).unwrap();
    writer.commit(&appends([append("a/q", ["1", "2"])])).unwrap();
    drop((store, writer));
    let path = folder.path().join("store.redb");
    let database = Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    {
        let mut meta = txn.open_table(META).unwrap();
        meta.insert("format", &11_u32.to_le_bytes()[..]).unwrap();
        meta.remove("wal").unwrap();
    }
    txn.commit().unwrap();
    drop(database);
    std::fs::read(path).unwrap()
}

fn assert_jobs(store: &Store) {
    assert_eq!(jobs(store, &address("a/q"))[..2], [b"1".to_vec(), b"2".to_vec()]);
}

#[test]
fn a_store_of_version_11_gets_a_log() {
    let disk = FaultyDisk::with(bytes_of_version_11());
    let (store, mut writer) = open_on(&disk);
    assert_jobs(&store);
    for _ in 0..4 {
        writer.commit(&appends([append("a/q", ["3"])])).unwrap();
    }
    let (store, _writer) = open_on(&FaultyDisk::with(disk.survivors(0)));
    assert_eq!(jobs(&store, &address("a/q")).len(), 6);
}

fn bytes_of_version_5() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut writer) = crate::open(folder.path()).unwrap();
    let progress = vec![(address("a/step"), address("a/q"), Progress::default())];
    writer.commit(&Changes { progress, ..Changes::default() }).unwrap();
    drop((store, writer));
    let path = folder.path().join("store.redb");
    make_older(&Database::open(&path).unwrap(), 5, 1);
    std::fs::read(path).unwrap()
}

#[test]
fn a_migration_that_is_cut_off_is_made_again() {
    cut_off(&bytes_of_version_1(), assert_is_whole);
    cut_off(&bytes_of_version_5(), |store| assert_parked(store, 20));
    cut_off(&bytes_of_version_8(), assert_parked_of);
    cut_off(&bytes_of_version_9(), assert_records);
    cut_off(&bytes_of_version_10(), assert_hashed);
    cut_off(&bytes_of_version_11(), assert_jobs);
}

/// Lets the disk fail at each operation of a migration.
fn cut_off(image: &[u8], check: impl Fn(&Store)) {
    for operation in 1.. {
        let disk = FaultyDisk::with(image.to_vec());
        disk.fail(crate::testing::DiskFailure::From(operation));
        let _ = open_disk(Box::new(disk.clone()));
        if !disk.struck() {
            break;
        }
        for left in [disk.bytes(), disk.survivors(0), disk.survivors(operation)] {
            let (store, _writer) = open_on(&FaultyDisk::with(left));
            check(&store);
            assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
        }
    }
}
