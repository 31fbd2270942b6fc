//! Tests of parked jobs: their order, their keys, and the limits of a read.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::verify;
use crate::{CompletionRecord, JobForm, NO_DUE_TIME, NewParkedJob, ParkReason, ParkedJob, ParkedKey};
use tidegate_model::ExternalStatus;

fn job(payload: &[u8]) -> ParkedJob {
    ParkedJob {
        inputs: vec![("a/in".into(), 3), ("other".into(), u64::MAX)],
        attempt: 2,
        first_attempt: None,
        last_error: None,
        from_error: None,
        form: JobForm::Bytes,
        payload: payload.to_vec(),
        carried: None,
        ..ParkedJob::default()
    }
}

fn delay(step: &str, due: i64, payload: &str) -> NewParkedJob {
    NewParkedJob { step: address(step), due: Timestamp(due), job: job(payload.as_bytes()) }
}

fn delays(delayed: Vec<NewParkedJob>) -> Changes {
    Changes { parked: delayed, ..Changes::default() }
}

fn texts(found: &[(ParkedKey, ParkedJob)]) -> Vec<&str> {
    found.iter().map(|(_, job)| std::str::from_utf8(&job.payload).unwrap()).collect()
}

#[test]
fn delayed_jobs_come_in_order_of_due_time_and_then_of_arrival() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let jobs = [(5, "five"), (-7, "before 1970"), (5, "five again"), (i64::MAX, "never"), (0, "zero")];
    let mut jobs: Vec<_> = jobs.into_iter().map(|(due, text)| delay("a/step", due, text)).collect();
    jobs.push(delay("a/other", 1, "of another step"));
    let committed = writer.commit(&delays(jobs)).unwrap();
    assert_eq!(committed.delayed.iter().map(|key| key.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let step = address("a/step");
    let due = |now, after: Option<&ParkedKey>, jobs, bytes| {
        store.due(&step, Timestamp(now), after, jobs, bytes).unwrap()
    };
    let all = due(i64::MAX, None, 99, 999);
    assert_eq!(texts(&all), ["before 1970", "zero", "five", "five again", "never"]);
    assert_eq!(texts(&due(4, None, 99, 999)), ["before 1970", "zero"]);
    assert_eq!(texts(&due(i64::MIN, None, 99, 999)), [""; 0]);
    assert_eq!(texts(&due(5, None, 2, 999)), ["before 1970", "zero"]);
    assert_eq!(texts(&due(5, None, 99, 15)), ["before 1970", "zero"]);
    assert_eq!(texts(&due(5, None, 0, 0)), ["before 1970"]);
    assert_eq!(texts(&due(5, Some(&all[2].0), 99, 999)), ["five again"]);
    assert_eq!(texts(&due(4, Some(&all[2].0), 99, 999)), [""; 0]);
    assert_eq!(store.next_due(&step, None).unwrap(), Some(Timestamp(-7)));
    assert_eq!(store.next_due(&step, Some(Timestamp(-7))).unwrap(), Some(Timestamp(0)));
    // A job without a due time is not due next.
    assert_eq!(store.next_due(&step, Some(Timestamp(5))).unwrap(), None);
    assert_eq!(store.next_due(&step, Some(NO_DUE_TIME)).unwrap(), None);
    assert_eq!(store.next_due(&address("a/none"), None).unwrap(), None);
    assert_eq!(store.delayed_count(&step).unwrap(), 5);
}

#[test]
fn a_sequence_is_never_given_twice() {
    let disk = FaultyDisk::new();
    let (_, mut writer) = open_on(&disk);
    let committed = writer.commit(&delays(vec![delay("a/step", 1, "1"), delay("a/step", 2, "2")])).unwrap();
    let undelayed = Changes { unparked: committed.delayed, ..Changes::default() };
    writer.commit(&undelayed).unwrap();
    drop(writer);
    let (store, mut writer) = open_on(&disk);
    assert_eq!(store.delayed_count(&address("a/step")).unwrap(), 0);
    let committed = writer.commit(&delays(vec![delay("a/step", 1, "3")])).unwrap();
    assert_eq!(committed.delayed[0].sequence, 3);
    // A second removal has no effect.
    writer.commit(&undelayed).unwrap();
    assert_eq!(store.delayed_count(&address("a/step")).unwrap(), 1);
}

fn any_job() -> impl Strategy<Value = ParkedJob> {
    let form = prop_oneof![Just(JobForm::Json), Just(JobForm::Text), Just(JobForm::Bytes)];
    let text = || prop::option::of(".{0,20}");
    let pending = (".{0,20}", any::<i64>());
    let pending = pending.prop_map(|(handle, since)| ParkReason::Pending { handle, since: Timestamp(since) });
    let status = (0..ExternalStatus::ALL.len()).prop_map(|at| ExternalStatus::ALL[at]);
    let told = (status, text(), text(), ".{0,20}", any::<i64>());
    let told = told.prop_map(|(status, result, reason, handle, since)| {
        let completion = CompletionRecord { status, result, reason };
        ParkReason::Completed { handle, since: Timestamp(since), completion }
    });
    let standing = prop_oneof![Just(ParkReason::Due), Just(ParkReason::Started), pending, told];
    let origin = (
        prop::collection::vec(("[a-z/]{0,9}", any::<u64>()), 0..3),
        any::<u32>(),
        prop::option::of(any::<i64>().prop_map(Timestamp)),
        prop::option::of(any::<u64>().prop_map(|index| (address("a/failed"), index))),
    );
    let kind = (text(), standing, form);
    (origin, text(), text(), kind, prop::collection::vec(any::<u8>(), 0..40)).prop_map(
        |(
            (inputs, attempt, first_attempt, from_error),
            last_error,
            carried,
            (to, standing, form),
            payload,
        )| ParkedJob {
            inputs,
            attempt,
            first_attempt,
            last_error,
            from_error,
            to,
            reason: standing,
            form,
            payload,
            carried,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_waits_is_what_was_delayed_and_not_taken_back(
        commits in prop::collection::vec((prop::collection::vec((0_usize..2, -5_i64..5, any_job()), 0..6), prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 1..12),
    ) {
        let steps = ["a/one", "b/two"].map(address);
        let (store, mut writer) = open_on(&FaultyDisk::new());
        let mut model: BTreeMap<ParkedKey, ParkedJob> = BTreeMap::new();
        for (new, gone) in commits {
            let waiting: Vec<_> = model.keys().cloned().collect();
            let undelayed: Vec<_> =
                gone.iter().filter(|_| !waiting.is_empty()).map(|at| at.get(&waiting).clone()).collect();
            let delayed: Vec<_> = new
                .into_iter()
                .map(|(step, due, job)| NewParkedJob { step: steps[step].clone(), due: Timestamp(due), job })
                .collect();
            for key in &undelayed {
                model.remove(key);
            }
            let committed =
                writer.commit(&Changes { unparked: undelayed, parked: delayed.clone(), ..Changes::default() }).unwrap();
            model.extend(committed.delayed.into_iter().zip(delayed.into_iter().map(|delayed| delayed.job)));
            for step in &steps {
                let expected: Vec<_> = model.iter().filter(|(key, _)| key.step == *step).collect();
                let mut found: Vec<(ParkedKey, ParkedJob)> = Vec::new();
                loop {
                    let after = found.last().map(|(key, _)| key.clone());
                    let more = store.due(step, Timestamp(9), after.as_ref(), 3, 50).unwrap();
                    if more.is_empty() {
                        break;
                    }
                    found.extend(more);
                }
                prop_assert!(found.iter().map(|(key, job)| (key, job)).eq(expected.iter().copied()));
                prop_assert_eq!(store.delayed_count(step).unwrap(), expected.len() as u64);
                let first = expected.first().map(|(key, _)| key.due);
                prop_assert_eq!(store.next_due(step, None).unwrap(), first);
            }
            prop_assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn a_walk_meets_each_delayed_job_once_however_many_there_are() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let step = address("a/step");
    assert!(store.all_delayed(&step).next().is_none());
    // More than one page of rows, and one row that fills a page by itself.
    let mut jobs: Vec<_> = (0..2_500).map(|due| delay("a/step", due % 7, "x")).collect();
    jobs.push(delay("a/step", 3, &"y".repeat(3 << 20)));
    jobs.extend((0..1_200).map(|_| delay("a/step", NO_DUE_TIME.0, "z")));
    jobs.push(delay("a/other", 3, "x"));
    writer.commit(&delays(jobs)).unwrap();
    let all: Vec<ParkedKey> = store.all_delayed(&step).map(|row| row.unwrap().0).collect();
    assert_eq!(all.len(), 3_701);
    assert!(all.is_sorted());
    let (behind, after) = (&all[2_000..], all[1_999].clone());
    assert!(store.parked_after(&step, after).map(|row| row.unwrap().0).eq(behind.iter().cloned()));
    assert!(store.delayed_by(&step, Timestamp(3)).all(|row| row.unwrap().0.due <= Timestamp(3)));
    assert_eq!(store.delayed_by(&step, Timestamp(3)).count(), 1_430);
    assert!(store.pending_jobs(&step).map(|row| row.unwrap().0).eq(all[2_501..].iter().cloned()));
    assert!(store.parked_after(&step, all[3_700].clone()).next().is_none());
}

#[test]
fn a_delayed_job_is_found_by_the_inputs_it_was_made_of() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let of = |step: &str, due, inputs: &[(&str, u64)]| {
        let inputs = inputs.iter().map(|&(input, index)| (input.to_owned(), index)).collect();
        let job = ParkedJob { inputs, last_error: Some("busy".into()), ..ParkedJob::default() };
        NewParkedJob { step: address(step), due: Timestamp(due), job }
    };
    let mut jobs: Vec<NewParkedJob> = (1..=3000).map(|index| of("a/step", 9, &[("a/in", index)])).collect();
    jobs.extend([of("a/join", 9, &[("left", 7), ("right", 8)]), of("a/step", 1, &[("a/in", 3000)])]);
    writer.commit(&delays(jobs)).unwrap();
    let find = |step: &str, input: &str, index| {
        let found = store.delayed_of(&address(step), (input, index)).unwrap();
        found.map(|(key, job)| (key.due.0, job.inputs))
    };
    let one = |due, index| Some((due, vec![("a/in".to_owned(), index)]));
    assert_eq!(find("a/step", "a/in", 2999), one(9, 2999));
    // The first due of two rows is found.
    assert_eq!(find("a/step", "a/in", 3000), one(1, 3000));
    assert_eq!(find("a/join", "right", 8), Some((9, vec![("left".into(), 7), ("right".into(), 8)])));
    for (step, input, index) in [("a/step", "a/in", 3001), ("a/join", "right", 7), ("a/other", "a/in", 1)] {
        assert_eq!(find(step, input, index), None);
    }
}
