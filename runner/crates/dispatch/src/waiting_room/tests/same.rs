//! Comparison: gives the waiting room and the naive model the same input, and requires the same output.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::{Just, ProptestConfig, prop, prop_oneof, proptest};
use proptest::strategy::Strategy as Any;

use super::model::{Job, Model};
use super::*;

#[derive(Clone, Debug)]
enum Deed {
    Add {
        job: Job,
        state: u8,
        until: i64,
    },
    Start {
        most: usize,
    },
    Finish {
        which: usize,
    },
    PutBack {
        which: usize,
    },
    Delay {
        which: usize,
        by: i64,
    },
    Pend {
        which: usize,
    },
    /// The job is finished, and waits for its delivery.
    Hold {
        which: usize,
    },
    /// The pending job frees its lane.
    Free {
        which: usize,
    },
    Forget {
        which: usize,
    },
    Cancel {
        which: usize,
    },
    Reschedule {
        which: usize,
        by: i64,
    },
    Pass {
        by: i64,
    },
}

fn id() -> impl Any<Value = JobId> {
    prop_oneof![
        4 => Just(JobId::None),
        1 => (0_i128..3).prop_map(JobId::Number),
        1 => "[ab]".prop_map(|text| JobId::Text(text.into())),
    ]
}

fn job() -> impl Any<Value = Job> {
    let keys = || prop::collection::vec(0_u64..3, 0..3);
    let plain = (0_u8..4, prop_oneof![2 => Just(None), 1 => (0_i64..20).prop_map(Some)], id());
    (plain, -3_i64..3, 0_i64..5000, keys(), keys()).prop_map(
        |((lane, age, id), priority, since, reads, writes)| {
            let age = age.unwrap_or(i64::MAX);
            let state = WaitingState::Waiting;
            let (old, put_back, due, parked, listed, freed) = (false, false, false, false, false, false);
            let was_unknown = false;
            Job {
                key: 0,
                lane,
                age,
                id,
                priority,
                since,
                reads,
                writes,
                state,
                old,
                put_back,
                due,
                parked,
                listed,
                freed,
                was_unknown,
            }
        },
    )
}

fn deed() -> impl Any<Value = Deed> {
    let which = || 0_usize..1000;
    let by = || prop_oneof![-3000_i64..0, 0_i64..20_000];
    prop_oneof![
        8 => (job(), 0_u8..20, 0_i64..20_000).prop_map(|(job, state, until)| Deed::Add { job, state, until }),
        6 => prop_oneof![3 => 0_usize..4, 1 => Just(1000)].prop_map(|most| Deed::Start { most }),
        6 => which().prop_map(|which| Deed::Finish { which }),
        2 => which().prop_map(|which| Deed::PutBack { which }),
        2 => (which(), by()).prop_map(|(which, by)| Deed::Delay { which, by }),
        2 => which().prop_map(|which| Deed::Pend { which }),
        2 => which().prop_map(|which| Deed::Hold { which }),
        2 => which().prop_map(|which| Deed::Free { which }),
        2 => which().prop_map(|which| Deed::Forget { which }),
        1 => which().prop_map(|which| Deed::Cancel { which }),
        1 => (which(), by()).prop_map(|(which, by)| Deed::Reschedule { which, by }),
        3 => prop_oneof![4 => 0_i64..3000, 1 => -5000_i64..0, 1 => 0_i64..20_000].prop_map(|by| Deed::Pass { by }),
    ]
}

fn any_rules() -> impl Any<Value = QueuePolicy> {
    let strategies = [
        StartOrder::Fifo,
        StartOrder::Serial,
        StartOrder::OneRoundSerial,
        StartOrder::OneRoundParallel,
        PRIORITY,
        AGING,
        ROUNDS,
    ];
    let seldom = |most: u32| prop_oneof![3 => Just(None), 1 => (1..=most).prop_map(NonZeroU32::new)];
    let rates =
        || prop_oneof![4 => Just(None), 1 => (1_u32..4, 1_u64..4000).prop_map(|(jobs, per)| rate(jobs, per))];
    (prop::sample::select(strategies.to_vec()), seldom(4), seldom(5), seldom(2), rates(), rates()).prop_map(
        |(strategy, max_processing, max_pending, max_per_lane, rate, lane_rate)| QueuePolicy {
            strategy,
            max_processing,
            max_pending,
            max_per_lane,
            rate,
            lane_rate,
            has_lanes: false,
        },
    )
}

struct Both {
    room: WaitingRoom,
    model: Model,
    now: Timestamp,
    next: u64,
}

impl Both {
    fn carry_out(&mut self, deed: Deed) {
        let now = self.now;
        match deed {
            Deed::Pass { by } => self.now.0 += by,
            Deed::Add { job, state, until } => self.add(job, state, until),
            Deed::Start { most } => self.start(most),
            Deed::Finish { which } => self.apply(
                which,
                |room, key| room.finished(key, now),
                |model, key| {
                    let allowed = matches!(
                        state(model, key)?,
                        WaitingState::Running | WaitingState::Pending | WaitingState::Finished
                    );
                    allowed.then(|| model.remove(key, now))
                },
            ),
            Deed::Cancel { which } => self.apply(
                which,
                |room, key| room.cancel(key, now),
                |model, key| {
                    let held = [WaitingState::Running, WaitingState::Finished];
                    let allowed = !held.contains(&state(model, key)?);
                    allowed.then(|| model.remove(key, now))
                },
            ),
            Deed::PutBack { which } => self.apply(which, WaitingRoom::put_back, |model, key| {
                let job = model.jobs.iter().find(|job| job.key == key)?;
                let back = if job.was_unknown { WaitingState::Unknown } else { WaitingState::Waiting };
                let allowed = job.state == WaitingState::Running;
                allowed.then(|| model.change(key, back, now))
            }),
            Deed::Delay { which, by } => {
                let until = Timestamp(now.0 + by);
                self.apply(
                    which,
                    |room, key| room.delay(key, until, now),
                    |model, key| {
                        let allowed =
                            matches!(state(model, key)?, WaitingState::Running | WaitingState::Pending);
                        allowed.then(|| model.change(key, WaitingState::Delayed { until }, now))
                    },
                );
            }
            Deed::Reschedule { which, by } => {
                let until = Timestamp(now.0 + by);
                self.apply(
                    which,
                    |room, key| room.reschedule(key, until),
                    |model, key| {
                        let allowed = matches!(state(model, key)?, WaitingState::Delayed { .. });
                        allowed.then(|| model.change(key, WaitingState::Delayed { until }, now))
                    },
                );
            }
            Deed::Pend { which } => self.apply(
                which,
                |room, key| room.set_pending(key, now),
                |model, key| {
                    let allowed = state(model, key)? == WaitingState::Running;
                    allowed.then(|| model.change(key, WaitingState::Pending, now))
                },
            ),
            Deed::Hold { which } => self.apply(
                which,
                |room, key| room.set_finished(key, now),
                |model, key| {
                    let allowed = matches!(state(model, key)?, WaitingState::Running | WaitingState::Pending);
                    allowed.then(|| model.change(key, WaitingState::Finished, now))
                },
            ),
            Deed::Free { which } => self.apply(
                which,
                |room, key| room.free_lane_of(key, now),
                |model, key| {
                    let at = model.find(key)?;
                    let allowed = model.jobs[at].state == WaitingState::Pending && !model.jobs[at].freed;
                    allowed.then(|| model.free(key))
                },
            ),
            Deed::Forget { which } => self.apply(which, WaitingRoom::set_unknown, |model, key| {
                let allowed = matches!(state(model, key)?, WaitingState::Running | WaitingState::Pending);
                allowed.then(|| model.change(key, WaitingState::Unknown, now))
            }),
        }
    }

    fn add(&mut self, mut job: Job, state: u8, until: i64) {
        job.key = self.next;
        job.age = if job.age == i64::MAX { i64::try_from(self.next).unwrap() } else { job.age };
        job.state = match state {
            0 => WaitingState::Unknown,
            1 => WaitingState::Pending,
            2 => WaitingState::Running,
            3 | 4 => WaitingState::Delayed { until: Timestamp(self.now.0 + until) },
            _ => WaitingState::Waiting,
        };
        self.next += 1;
        let attributes = JobAttributes {
            key: JobKey(job.key),
            index: None,
            lane: &[job.lane],
            age: job.age,
            id: job.id.clone(),
            priority: job.priority,
            since: Timestamp(job.since),
            reads: &job.reads,
            writes: &job.writes,
        };
        self.room.add(attributes.clone(), job.state).unwrap();
        assert_eq!(self.room.add(attributes, job.state), Err(InvalidTransition::Present(JobKey(job.key))));
        self.model.add(job);
    }

    fn start(&mut self, most: usize) {
        let idle = self.room.clone();
        let mut started = Vec::new();
        self.room.start(self.now, most, &mut started);
        for key in &started {
            assert_eq!(self.room.explain(*key, self.now), Some(WaitReason::Running));
            assert_eq!(
                idle.explain(*key, self.now).map(excludes_start),
                Some(false),
                "{key:?} {:?}",
                idle.explain(*key, self.now)
            );
        }
        let keys: Vec<u64> = started.iter().map(|key| key.0).collect();
        assert_eq!(keys, self.model.start(self.now, most));
        if most == 1000 {
            self.nothing_starts_before_the_wake();
        }
    }

    /// Once all possible jobs have started, no other starts before the time that `next_wake` returns.
    fn nothing_starts_before_the_wake(&self) {
        let wake = self.room.next_wake(self.now);
        assert!(wake.is_none_or(|wake| wake > self.now), "{wake:?} {:?}", self.now);
        let before = wake.map_or(i64::MAX / 4, |wake| wake.0 - 1);
        let mut room = self.room.clone();
        let mut started = Vec::new();
        room.start(Timestamp(before), 1000, &mut started);
        assert_eq!(started, []);
    }

    fn apply(
        &mut self,
        which: usize,
        room: impl FnOnce(&mut WaitingRoom, JobKey) -> Result<(), InvalidTransition>,
        model: impl FnOnce(&mut Model, u64) -> Option<()>,
    ) {
        // Jobs that are in the model, one that has left, and one that never came.
        let key = match self.model.jobs.len() {
            0 => self.next,
            there => self.model.jobs.get(which % (there + 1)).map_or(0, |job| job.key),
        };
        let room = room(&mut self.room, JobKey(key));
        assert_eq!(room.is_ok(), model(&mut self.model, key).is_some(), "job {key}: {room:?}");
    }

    fn same(&self) {
        for job in &self.model.jobs {
            assert_eq!(self.room.state(JobKey(job.key)), Some(job.state), "job {}", job.key);
            assert!(self.room.explain(JobKey(job.key), self.now).is_some());
        }
        let count =
            |is: fn(&WaitingState) -> bool| self.model.jobs.iter().filter(|job| is(&job.state)).count();
        let counts = self.room.counts();
        assert_eq!(counts.running, count(|state| *state == WaitingState::Running));
        assert_eq!(counts.pending, count(|state| *state == WaitingState::Pending));
        assert_eq!(counts.delayed, count(|state| matches!(state, WaitingState::Delayed { .. })));
        assert_eq!(
            counts.waiting,
            count(|state| matches!(state, WaitingState::Waiting | WaitingState::Unknown))
        );
        let mut lanes: Vec<u8> = self.model.jobs.iter().map(|job| job.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        assert_eq!(counts.lanes, lanes.len());
        let summary = self.room.summary(10, &HashSet::new(), Timestamp(i64::MIN));
        let sum = |of: fn(&LaneCounts) -> usize| summary.lanes.iter().map(of).sum::<usize>();
        let sums = StateCounts {
            waiting: sum(|lane| lane.waiting),
            running: sum(|lane| lane.running),
            delayed: sum(|lane| lane.delayed),
            pending: sum(|lane| lane.pending),
            finished: counts.finished,
            lanes: summary.lanes.len(),
        };
        assert_eq!(sums, counts);
        let age = |key: JobKey| self.model.jobs[self.model.find(key.0).unwrap()].age;
        let of_lane = |lane: &LaneCounts| Some((lane.lane[0], (lane.waiting, age(lane.oldest?))));
        let top: BTreeMap<_, _> = summary.lanes.iter().filter_map(of_lane).collect();
        assert_eq!(top, self.model.waiting_by_lane());
        assert_eq!(summary.oldest.map(age), top.values().map(|&(_, oldest)| oldest).min());
    }
}

fn state(model: &Model, key: u64) -> Option<WaitingState> {
    model.find(key).map(|at| model.jobs[at].state)
}

/// Whether the reason excludes that the job could have started.
fn excludes_start(why: WaitReason) -> bool {
    matches!(
        why,
        WaitReason::Running
            | WaitReason::Pending
            | WaitReason::Finished
            | WaitReason::Delayed { .. }
            | WaitReason::Pause { .. }
            | WaitReason::Rate { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_waiting_room_does_what_a_plain_model_of_its_rules_does(rules in any_rules(), deeds in prop::collection::vec(deed(), 0..80)) {
        let room = WaitingRoom::new(rules.clone());
        let mut both = Both { room, model: Model::new(rules), now: Timestamp(10_000), next: 1 };
        for deed in deeds {
            both.carry_out(deed);
            both.same();
        }
        both.start(1000);
        both.same();
    }
}
