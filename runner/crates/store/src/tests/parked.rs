//! Tests of parked jobs: their order, their keys, and the limits of a read.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::verify;
use crate::{
    CompletionRecord, JobForm, NewParkedJob, ParkReason, ParkedId, ParkedJob, ParkedKey, ParkedPosition,
    ParkedTotals,
};
use tidegate_model::{Due, ExternalStatus};

fn job(due: Due, payload: &[u8]) -> ParkedJob {
    ParkedJob {
        due,
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

fn delay(step: &str, due: Due, payload: &str) -> NewParkedJob {
    NewParkedJob { step: address(step), job: job(due, payload.as_bytes()) }
}

fn at(time: i64) -> Due {
    Due::At(Timestamp(time))
}

fn started(step: &str, payload: &str) -> NewParkedJob {
    let reason = ParkReason::Started { since: Timestamp(3) };
    NewParkedJob { step: address(step), job: ParkedJob { reason, ..job(Due::Now, payload.as_bytes()) } }
}

fn position((key, job): &(ParkedKey, ParkedJob)) -> ParkedPosition {
    ParkedPosition::of(key.id, job)
}

fn delays(delayed: Vec<NewParkedJob>) -> Changes {
    Changes { parked: delayed, ..Changes::default() }
}

fn texts(found: &[(ParkedKey, ParkedJob)]) -> Vec<&str> {
    found.iter().map(|(_, job)| std::str::from_utf8(&job.payload).unwrap()).collect()
}

#[test]
fn parked_jobs_come_started_ones_first_then_in_order_of_due_time_and_then_of_arrival() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let hastened = Due::Hastened(Timestamp(99));
    let jobs = [(at(5), "five"), (at(-7), "before 1970"), (at(5), "five again"), (Due::Never, "never")];
    let jobs = jobs.into_iter().chain([(Due::Now, "now"), (hastened, "hastened"), (at(0), "zero")]);
    let mut jobs: Vec<_> = jobs.map(|(due, text)| delay("a/step", due, text)).collect();
    jobs.extend([started("a/step", "started"), delay("a/other", at(1), "of another step")]);
    let committed = writer.commit(&delays(jobs)).unwrap();
    assert!(committed.parked.iter().map(|key| key.id.0).eq(1..=9));
    let step = address("a/step");
    let due = |until, after, jobs, bytes| store.due(&step, until, after, jobs, bytes).unwrap();
    let all = due(Due::Never, None, 99, 999);
    let order = ["started", "now", "hastened", "before 1970", "zero", "five", "five again", "never"];
    assert_eq!(texts(&all), order);
    assert_eq!(texts(&due(at(4), None, 99, 999)), order[..5]);
    assert_eq!(texts(&due(at(i64::MIN), None, 99, 999)), order[..3]);
    assert_eq!(texts(&due(at(5), None, 2, 999)), order[..2]);
    assert_eq!(texts(&due(at(5), None, 99, 18)), order[..3]);
    assert_eq!(texts(&due(at(5), None, 0, 0)), ["started"]);
    for (passed, row) in (1..).zip(&all) {
        assert_eq!(texts(&due(Due::Never, Some(position(row)), 99, 999)), order[passed..]);
    }
    assert_eq!(texts(&due(at(5), Some(position(&all[5])), 99, 999)), ["five again"]);
    assert_eq!(texts(&due(at(4), Some(position(&all[5])), 99, 999)), [""; 0]);
    assert_eq!(store.parked_count(&step).unwrap(), 8);
}

#[test]
fn the_next_due_time_is_that_of_the_first_job_that_a_time_makes_due() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let next = |step: &str, after: Option<i64>| {
        store.next_due(&address(step), after.map(Timestamp)).unwrap().map(|time| time.0)
    };
    let jobs =
        [("timed", at(-7)), ("timed", at(5)), ("timed", Due::Never), ("now", at(1)), ("now", Due::Now)];
    let jobs = jobs.map(|(step, due)| delay(&format!("a/{step}"), due, "x"));
    writer.commit(&delays(jobs.into_iter().chain([started("a/started", "x")]).collect())).unwrap();
    assert_eq!(
        [None, Some(-7), Some(5), Some(i64::MAX)].map(|after| next("a/timed", after)),
        [Some(-7), Some(5), None, None]
    );
    assert_eq!([None, Some(0), Some(1)].map(|after| next("a/now", after)), [Some(0), Some(1), None]);
    assert_eq!([None, Some(0)].map(|after| next("a/started", after)), [Some(0), None]);
    assert_eq!(next("a/none", None), None);
}

#[test]
fn a_number_is_never_given_twice() {
    let disk = FaultyDisk::new();
    let (_, mut writer) = open_on(&disk);
    let committed =
        writer.commit(&delays(vec![delay("a/step", at(1), "1"), delay("a/step", at(2), "2")])).unwrap();
    let unparked = Changes { unparked: committed.parked, ..Changes::default() };
    writer.commit(&unparked).unwrap();
    drop(writer);
    let (store, mut writer) = open_on(&disk);
    assert_eq!(store.parked_count(&address("a/step")).unwrap(), 0);
    let committed = writer.commit(&delays(vec![delay("a/step", at(1), "3")])).unwrap();
    assert_eq!(committed.parked[0].id, ParkedId(3));
    // A second removal has no effect.
    writer.commit(&unparked).unwrap();
    assert_eq!(store.parked_count(&address("a/step")).unwrap(), 1);
}

#[test]
fn a_moved_job_keeps_its_number_and_one_that_is_gone_does_not_come_back() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let step = address("a/step");
    let jobs = vec![delay("a/step", at(7), "one"), delay("a/step", at(8), "two"), started("a/step", "three")];
    let keys = writer.commit(&delays(jobs)).unwrap().parked;
    let put = |writer: &mut Writer, unparked: &[usize], reparked: Vec<(usize, NewParkedJob)>| {
        let key = |at: usize| keys[at].clone();
        let unparked = unparked.iter().map(|&at| key(at)).collect();
        let reparked = reparked.into_iter().map(|(at, new)| (key(at), new.job)).collect();
        writer.commit(&Changes { unparked, reparked, ..Changes::default() }).unwrap();
        let all: Vec<_> = store.all_parked(&step).map(Result::unwrap).collect();
        assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
        all.iter().map(|(key, job)| (key.id.0, String::from_utf8_lossy(&job.payload).into_owned())).collect()
    };
    let rows = |rows: &[(u64, &str)]| -> Vec<(u64, String)> {
        rows.iter().map(|&(id, text)| (id, text.to_owned())).collect()
    };
    let moved = vec![(0, delay("a/step", at(9), "moved")), (2, delay("a/step", Due::Now, "waits"))];
    let found: Vec<(u64, String)> = put(&mut writer, &[], moved);
    assert_eq!(found, rows(&[(3, "waits"), (2, "two"), (1, "moved")]));
    let moved = vec![(1, started("a/step", "runs")), (0, delay("a/step", Due::Now, "back"))];
    let found: Vec<(u64, String)> = put(&mut writer, &[0], moved);
    assert_eq!(found, rows(&[(2, "runs"), (3, "waits")]));
}

fn any_job() -> impl Strategy<Value = ParkedJob> {
    let form = prop_oneof![Just(JobForm::Json), Just(JobForm::Text), Just(JobForm::Bytes)];
    let text = || prop::option::of(".{0,20}");
    let pending = (".{0,20}", any::<i64>());
    let pending = pending.prop_map(|(handle, since)| ParkReason::Pending { handle, since: Timestamp(since) });
    let status = (0..ExternalStatus::ALL.len()).prop_map(|at| ExternalStatus::ALL[at]);
    let completed = (status, text(), text(), ".{0,20}", any::<i64>());
    let completed = completed.prop_map(|(status, result, reason, handle, since)| {
        let completion = CompletionRecord { status, result, reason };
        ParkReason::Completed { handle, since: Timestamp(since), completion }
    });
    let since = any::<i64>().prop_map(|since| ParkReason::Started { since: Timestamp(since) });
    let output = ".{0,20}".prop_map(|to| ParkReason::Output { to });
    let reason = prop_oneof![Just(ParkReason::Delayed), output, since, pending, completed];
    let time = || (-5_i64..5).prop_map(Timestamp);
    let due = prop_oneof![
        Just(Due::Now),
        time().prop_map(Due::Hastened),
        time().prop_map(Due::At),
        Just(Due::Never)
    ];
    let origin = (
        prop::collection::vec(("[a-z/]{0,9}", any::<u64>()), 0..3),
        any::<u32>(),
        prop::array::uniform3(prop::option::of(any::<i64>().prop_map(Timestamp))),
        prop::option::of(any::<u64>().prop_map(|index| (address("a/failed"), index))),
    );
    let kind = (due, reason, form);
    (origin, text(), text(), kind, prop::collection::vec(any::<u8>(), 0..40)).prop_map(
        |(
            (inputs, attempt, [first_attempt, created, last_submitted], from_error),
            last_error,
            carried,
            (due, reason, form),
            payload,
        )| ParkedJob {
            due,
            inputs,
            attempt,
            first_attempt,
            created,
            last_submitted,
            last_error,
            from_error,
            reason,
            form,
            payload,
            carried,
        },
    )
}

/// New jobs with their step, removed jobs, and moved jobs with their new content.
type Commit = (Vec<(usize, ParkedJob)>, Vec<prop::sample::Index>, Vec<(prop::sample::Index, ParkedJob)>);

fn any_commit() -> impl Strategy<Value = Commit> {
    let index = any::<prop::sample::Index>;
    (
        prop::collection::vec((0_usize..2, any_job()), 0..6),
        prop::collection::vec(index(), 0..4),
        prop::collection::vec((index(), any_job()), 0..4),
    )
}

/// All rows of a step, a few at a time.
fn all_rows(store: &Store, step: &Address) -> Vec<(ParkedKey, ParkedJob)> {
    let mut found: Vec<(ParkedKey, ParkedJob)> = Vec::new();
    loop {
        let more = store.due(step, Due::Never, found.last().map(position), 3, 50).unwrap();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn assert_is_model(store: &Store, step: &Address, model: &BTreeMap<ParkedKey, ParkedJob>) {
    let of_step = model.iter().filter(|(key, _)| key.step == *step);
    let mut expected: Vec<_> = of_step.map(|(key, job)| (key.clone(), job.clone())).collect();
    expected.sort_by_key(position);
    assert_eq!(all_rows(store, step), expected);
    let mut totals = ParkedTotals::default();
    for (_, job) in &expected {
        match job.reason {
            ParkReason::Delayed => totals.delayed += 1,
            ParkReason::Output { .. } => totals.outputs += 1,
            ParkReason::Started { .. } | ParkReason::Finished { .. } => totals.started += 1,
            ParkReason::Pending { .. } | ParkReason::Completed { .. } => totals.pending += 1,
        }
    }
    assert_eq!(store.parked_totals(step).unwrap(), totals);
    for (input, index) in expected.iter().flat_map(|(_, job)| &job.inputs) {
        let is_of = |(_, job): &&(ParkedKey, ParkedJob)| job.inputs.contains(&(input.clone(), *index));
        let of_job: Vec<_> = expected.iter().filter(is_of).cloned().collect();
        assert_eq!(store.parked_of(step, (input, *index)).unwrap(), of_job);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_rows_are_those_of_a_map(commits in prop::collection::vec(any_commit(), 1..12)) {
        let steps = ["a/one", "b/two"].map(address);
        let (store, mut writer) = open_on(&FaultyDisk::new());
        let mut model: BTreeMap<ParkedKey, ParkedJob> = BTreeMap::new();
        for (new, gone, moved) in commits {
            let keys: Vec<_> = model.keys().cloned().collect();
            let pick = |at: &prop::sample::Index| (!keys.is_empty()).then(|| at.get(&keys).clone());
            let unparked: Vec<_> = gone.iter().filter_map(pick).collect();
            let reparked: Vec<_> =
                moved.into_iter().filter_map(|(at, job)| Some((pick(&at)?, job))).collect();
            let parked: Vec<_> =
                new.into_iter().map(|(step, job)| NewParkedJob { step: steps[step].clone(), job }).collect();
            for key in &unparked {
                model.remove(key);
            }
            for (key, job) in &reparked {
                model.entry(key.clone()).and_modify(|row| *row = job.clone());
            }
            let changes = Changes { unparked, reparked, parked: parked.clone(), ..Changes::default() };
            let committed = writer.commit(&changes).unwrap();
            model.extend(committed.parked.into_iter().zip(parked.into_iter().map(|new| new.job)));
            for step in &steps {
                assert_is_model(&store, step, &model);
            }
            prop_assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn a_walk_meets_each_delayed_job_once_however_many_there_are() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let step = address("a/step");
    assert!(store.all_parked(&step).next().is_none());
    // More than one page of rows, and one row that fills a page by itself.
    let mut jobs: Vec<_> = (0..2_500).map(|due| delay("a/step", at(due % 7), "x")).collect();
    jobs.push(delay("a/step", at(3), &"y".repeat(3 << 20)));
    jobs.extend((0..1_200).map(|_| delay("a/step", Due::Never, "z")));
    jobs.extend((0..1_100).map(|_| started("a/step", "s")));
    jobs.push(delay("a/other", at(3), "x"));
    writer.commit(&delays(jobs)).unwrap();
    let positions = |rows: crate::ParkedJobs<'_>| -> Vec<ParkedPosition> {
        rows.map(|row| position(&row.unwrap())).collect()
    };
    let all = positions(store.all_parked(&step));
    assert_eq!(all.len(), 4_801);
    assert!(all.is_sorted());
    for passed in [1_050, 2_000] {
        assert_eq!(positions(store.parked_after(&step, all[passed - 1])), all[passed..]);
    }
    assert!(store.parked_due_by(&step, Timestamp(3)).all(|row| row.unwrap().1.due.is_by(Timestamp(3))));
    assert_eq!(store.parked_due_by(&step, Timestamp(3)).count(), 2_530);
    assert_eq!(positions(store.pending_jobs(&step)), all[3_601..]);
    assert_eq!(positions(store.parked_after(&step, all[4_800])), []);
}

#[test]
fn a_delayed_job_is_found_by_the_inputs_it_was_made_of() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let of = |step: &str, due, inputs: &[(&str, u64)]| {
        let inputs = inputs.iter().map(|&(input, index)| (input.to_owned(), index)).collect();
        let job = ParkedJob { due: at(due), inputs, last_error: Some("busy".into()), ..ParkedJob::default() };
        NewParkedJob { step: address(step), job }
    };
    let mut jobs: Vec<NewParkedJob> = (1..=3000).map(|index| of("a/step", 9, &[("a/in", index)])).collect();
    jobs.extend([of("a/join", 9, &[("left", 7), ("right", 8)]), of("a/step", 1, &[("a/in", 3000)])]);
    writer.commit(&delays(jobs)).unwrap();
    let find = |step: &str, input: &str, index| {
        let found = store.first_parked_of(&address(step), (input, index)).unwrap();
        found.map(|(_, job)| (job.due, job.inputs))
    };
    let one = |due, index| Some((at(due), vec![("a/in".to_owned(), index)]));
    assert_eq!(find("a/step", "a/in", 2999), one(9, 2999));
    // The first due of two rows is found.
    assert_eq!(find("a/step", "a/in", 3000), one(1, 3000));
    assert_eq!(find("a/join", "right", 8), Some((at(9), vec![("left".into(), 7), ("right".into(), 8)])));
    for (step, input, index) in [("a/step", "a/in", 3001), ("a/join", "right", 7), ("a/other", "a/in", 1)] {
        assert_eq!(find(step, input, index), None);
    }
}
