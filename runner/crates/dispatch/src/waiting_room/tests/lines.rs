//! Bounds: test the memory of a waiting job, and that no lane or job waits for ever.

use std::collections::BTreeMap;

use proptest::prelude::{prop, prop_assert, proptest};

use super::*;

fn fill(room: &mut WaitingRoom, key: u64, lane: u32) {
    let name = format!("lane-{lane:06}");
    let age = i64::try_from(key).unwrap();
    room.add(
        JobAttributes { lane: name.as_bytes(), ..JobAttributes::new(JobKey(key), age) },
        WaitingState::Waiting,
    )
    .unwrap();
}

fn start(room: &mut WaitingRoom, most: usize) -> Vec<JobKey> {
    let mut started = Vec::new();
    room.start(Timestamp(0), most, &mut started);
    started
}

#[test]
fn a_waiting_job_of_a_hundred_thousand_lanes_costs_64_bytes_at_most() {
    let mut room = WaitingRoom::new(rules(StartOrder::OneRoundSerial));
    for key in 0..100_000 {
        fill(&mut room, key, u32::try_from(key % 10_000).unwrap());
    }
    let bytes = room.bytes() / 100_000;
    assert!((40..=64).contains(&bytes), "{bytes} bytes a job");
}

#[test]
fn a_lane_with_many_jobs_takes_one_place_beside_those_with_one() {
    let mut room = WaitingRoom::new(rules(StartOrder::OneRoundSerial));
    for key in 0..50_000 {
        fill(&mut room, key, 0);
    }
    for lane in 1..1000 {
        fill(&mut room, 50_000 + u64::from(lane), lane);
    }
    let first = start(&mut room, 1000);
    assert_eq!(first[0], JobKey(0));
    assert_eq!(first[1..], (50_001..51_000).map(JobKey).collect::<Vec<_>>());
    let (rounds, _) = room.preview(Timestamp(0), PreviewHorizon { rounds: 1, listed: 1000, jobs: 1000 });
    assert_eq!(rounds[0].jobs.len(), 1);
}

#[test]
fn a_room_that_was_full_keeps_no_memory_of_jobs_that_left() {
    let mut room =
        WaitingRoom::new(QueuePolicy { lane_rate: rate(1, 10), ..rules(StartOrder::OneRoundSerial) });
    for key in 0..1000 {
        fill(&mut room, key, u32::try_from(key).unwrap());
    }
    for key in start(&mut room, 1000) {
        room.finished(key, Timestamp(0)).unwrap();
    }
    // The starts count until the rate lets the lanes start again.
    assert_eq!(room.lanes.all().iter().filter(|lane| !lane.name.is_empty()).count(), 1000);
    room.start(Timestamp(10), 1, &mut Vec::new());
    assert!(room.lanes.all().iter().all(|lane| lane.name.is_empty()));
    assert_eq!(room.counts(), StateCounts::default());
}

proptest! {
    /// Between two starts of a lane, no other lane that could start does so twice, in every interleaving.
    #[test]
    fn under_one_round_serial_no_lane_overtakes_another_twice(
        steps in prop::collection::vec((0_u32..6, 0_usize..4, 0_usize..6), 1..200),
    ) {
        let mut room = WaitingRoom::new(rules(StartOrder::OneRoundSerial));
        let mut running: Vec<JobKey> = Vec::new();
        let mut waiting: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        // Number of starts of other lanes since a lane could start.
        let mut overtaken: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let lane_of = |key: JobKey| u32::try_from(key.0 >> 32).unwrap();
        for (number, (lane, most, which)) in (0..).zip(steps) {
            let key = u64::from(lane) << 32 | number;
            fill(&mut room, key, lane);
            waiting.entry(lane).or_default().push(key);
            for key in start(&mut room, most) {
                let started = lane_of(key);
                running.push(key);
                waiting.get_mut(&started).unwrap().retain(|&other| other != key.0);
                overtaken.retain(|&(slow, _), _| slow != started);
                let busy = |lane: u32| running.iter().any(|&key| lane_of(key) == lane);
                for (&slow, _) in waiting.iter().filter(|(lane, jobs)| !jobs.is_empty() && !busy(**lane)) {
                    let count = overtaken.entry((slow, started)).or_default();
                    *count += 1;
                    prop_assert!(*count <= 2, "lane {slow} waits while lane {started} starts again");
                }
            }
            if which < running.len() {
                room.finished(running.swap_remove(which), Timestamp(0)).unwrap();
            }
        }
    }

    /// With aging, a job that comes after another's priority is used up starts after it.
    #[test]
    fn aging_bounds_how_long_a_job_can_be_overtaken(priorities in prop::collection::vec(0_i64..10, 1..100)) {
        let mut room = WaitingRoom::new(rules(AGING));
        let mut started = Vec::new();
        for (second, priority) in (0_i64..).zip(priorities) {
            for key in [2 * second, 2 * second + 1] {
                let since = Timestamp(second * 1000);
                let key = JobKey(u64::try_from(key).unwrap());
                room.add(JobAttributes { priority, since, ..JobAttributes::new(key, 0) }, WaitingState::Waiting).unwrap();
            }
            room.start(Timestamp(second * 1000), 1, &mut started);
        }
        room.start(Timestamp(0), usize::MAX, &mut started);
        for (at, key) in started.iter().enumerate() {
            let later = started[..at].iter().filter(|other| other.0 / 2 > key.0 / 2 + 10).count();
            prop_assert!(later == 0, "job {key:?} was overtaken by a job that came ten seconds later");
        }
    }
}
