//! Tests of retention: the jobs that it deletes, and those that it keeps.

use super::*;
use crate::verify;
use crate::{Trim, TrimWhen};

/// Ten values of one job each, committed at the times 1 to 10. Returns the bytes of one.
fn ten_jobs(writer: &mut Writer, store: &Store) -> u64 {
    for now in 1..=10 {
        let appends = vec![append("a/q", ["0123456789"])];
        writer.commit(&Changes { now: Timestamp(now), appends, ..Changes::default() }).unwrap();
    }
    let bytes = store.queue(&address("a/q")).unwrap().unwrap().bytes;
    assert_eq!(bytes % 10, 0);
    bytes / 10
}

fn first_after(up_to: u64, when: TrimWhen, values_max: Option<u64>) -> u64 {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let size = ten_jobs(&mut writer, &store);
    let max_bytes = values_max.map(|values| values * size);
    let trim = Trim { queue: address("a/q"), up_to, when, max_bytes };
    let would_trim = store.would_trim(&trim).unwrap();
    let trims = vec![trim];
    let committed = writer.commit(&Changes { now: Timestamp(11), trims, ..Changes::default() }).unwrap();
    assert_eq!(would_trim, !committed.trimmed.is_empty());
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
    store.queue(&address("a/q")).unwrap().unwrap().first
}

#[test]
fn size_takes_what_age_would_keep() {
    let young = TrimWhen::OlderThan(Timestamp(3));
    let cases = [
        (first_after(10, young, None), 3),
        (first_after(10, young, Some(100)), 3),
        (first_after(10, young, Some(4)), 7),
        (first_after(10, TrimWhen::Never, None), 1),
        (first_after(10, TrimWhen::Never, Some(4)), 7),
        (first_after(10, TrimWhen::Never, Some(0)), 11),
        (first_after(10, TrimWhen::Always, Some(100)), 11),
    ];
    assert!(cases.iter().all(|(found, expected)| found == expected), "{cases:?}");
}

#[test]
fn a_queue_that_never_had_a_job_would_lose_none() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let trim = |queue| Trim { queue: address(queue), up_to: 9, when: TrimWhen::Always, max_bytes: None };
    assert!(!store.would_trim(&trim("a/q")).unwrap());
    ten_jobs(&mut writer, &store);
    assert!(store.would_trim(&trim("a/q")).unwrap());
    assert!(!store.would_trim(&trim("a/other")).unwrap());
}

#[test]
fn a_job_that_may_not_go_stays_however_large_the_queue_is() {
    assert_eq!(first_after(2, TrimWhen::Never, Some(0)), 3);
    assert_eq!(first_after(0, TrimWhen::Never, Some(0)), 1);
}

#[test]
fn a_queue_goes_on_behind_a_raised_head_and_keeps_no_job_before_it() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    ten_jobs(&mut writer, &store);
    let raise = |writer: &mut Writer, head, appends| {
        let heads = vec![(address("a/q"), head)];
        writer.commit(&Changes { now: Timestamp(11), heads, appends, ..Changes::default() }).unwrap()
    };
    raise(&mut writer, 10, Vec::new());
    assert_eq!(store.queue(&address("a/q")).unwrap().unwrap().jobs(), 10, "it is not further on");
    let committed = raise(&mut writer, 15, vec![append("a/q", ["next"])]);
    assert_eq!(committed.appended[0].first, 16);
    let state = store.queue(&address("a/q")).unwrap().unwrap();
    assert_eq!((state.first, state.head), (16, 16));
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
}
