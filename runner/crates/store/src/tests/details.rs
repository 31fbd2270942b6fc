//! Tests of details: origins and provenance are kept, across commits and steps.

use super::*;
use tidegate_model::{Origin, Origins, Stamp};

#[test]
fn jobs_of_several_steps_and_commits_are_told_apart() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let made = |step: &str, jobs: &[&str], rows: &[[u64; 2]], texts: &[&str]| {
        let mut origins = Origins::new(address(step), vec!["old".into(), "new".into()]);
        for row in rows {
            origins.push(row);
        }
        let carried: Payloads = texts.iter().map(|text| text.as_bytes()).collect();
        let details = Details { origins: Some(&origins), carried: Some(&carried) };
        let payloads: Payloads = jobs.iter().map(|job| job.as_bytes()).collect();
        Append { queue: address("a/q"), block: Block::encode(&payloads, details) }
    };
    let at = |now, appends| Changes { now: Timestamp(now), appends, ..Changes::default() };
    let first = vec![append("a/q", ["1"]), made("a/one", &["2", "3"], &[[0, 7], [5, 8]], &["", "{}"])];
    writer.commit(&at(10, first)).unwrap();
    writer.commit(&at(20, vec![made("b/two", &["4"], &[[9, 0]], &[""])])).unwrap();
    let origin = |step: &str, inputs: &[(&str, u64)]| {
        let inputs = inputs.iter().map(|&(name, index)| (name.to_owned(), index)).collect();
        Some(Origin::new(address(step), inputs))
    };

    let (batch, origins) = store.read_details(&address("a/q"), 1, 9, 99).unwrap().unwrap();
    let expected = [
        None,
        origin("a/one", &[("new", 7)]),
        origin("a/one", &[("old", 5), ("new", 8)]),
        origin("b/two", &[("old", 9)]),
    ];
    assert_eq!(origins, expected);
    let carried = batch.carried.unwrap();
    assert!(carried.iter().eq([&b""[..], b"", b"{}", b""]));
    let stamp = |position, time, transaction| Stamp { position, time: Timestamp(time), transaction };
    assert_eq!(batch.stamps, [stamp(0, 10, 1), stamp(3, 20, 2)]);

    let batch = store.read(&address("a/q"), 4, 9, 99).unwrap().unwrap();
    assert_eq!((batch.stamps, batch.carried), (vec![stamp(0, 20, 2)], None));
}

#[test]
fn a_place_is_found_by_time() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let queue = address("a/q");
    assert_eq!(store.index_at(&queue, Timestamp(0)).unwrap(), None);
    for (now, jobs) in [(10, 3), (20, 1), (20, 2), (40, 5)] {
        let appends = vec![append("a/q", std::iter::repeat_n("x", jobs))];
        writer.commit(&Changes { now: Timestamp(now), appends, ..Changes::default() }).unwrap();
    }
    let found: Vec<_> =
        [i64::MIN, 10, 11, 20, 21, 40, 41].map(|at| store.index_at(&queue, Timestamp(at)).unwrap()).into();
    assert_eq!(found, [Some(1), Some(1), Some(4), Some(4), Some(7), Some(7), None]);
}
