//! Job builder tests: check the inputs of attempts.

use super::*;
use tidegate_config::{LoadOptions, load};
use tidegate_model::Stamp;
use tidegate_store::{ParkedId, ParkedJob};

/// Step with the sources `a` and `b` as inputs, in the form `takes`.
fn configuration(takes: &str) -> Configuration {
    let folder = tempfile::tempdir().unwrap();
    let source = |name| format!("[source.{name}]\ntype = \"file\"\npath = \"{name}\"\nformat = \"ndjson\"\n");
    let step = format!("[step.match]\n{takes}\nrun = \"match.rhai\"\nto = \"out\"\n");
    std::fs::write(folder.path().join("p.toml"), [source("a"), source("b"), step].concat()).unwrap();
    std::fs::write(folder.path().join("match.rhai"), "fn process(job) { job }").unwrap();
    load(folder.path(), &LoadOptions::default()).finish().unwrap().0
}

fn portion(input: usize, payload: &str) -> BatchSlice {
    let batch = Batch { form: Form::Unchecked, ..Batch::json(1, [payload.as_bytes()].into_iter().collect()) };
    BatchSlice { input: Some(input), batch: Arc::new(batch), skip: 0, jobs: 1, returned: None }
}

/// Fault of the one job.
fn fault(configuration: &Configuration, portions: Vec<BatchSlice>) -> Option<String> {
    let mut gatherer = JobBuilder::new(configuration, &configuration.steps[0]);
    let work = BatchInput { jobs: 1, portions, ..BatchInput::default() };
    let mut walk = BatchCursor::new(&work);
    gatherer.next(&mut walk, false).unwrap().fault.map(Cow::into_owned)
}

#[test]
fn a_line_that_is_no_json_becomes_no_part_of_a_joined_job() {
    let configuration = configuration("join = { a = \"a\", b = \"b\" }");
    assert_eq!(fault(&configuration, vec![portion(0, "1"), portion(1, "{}")]), None);
    let found = fault(&configuration, vec![portion(0, "1,\"b\":2"), portion(1, "{}")]);
    insta::assert_snapshot!(found.unwrap(), @"the job of `a` is not JSON: the value is followed by more text, at column 2");
}

#[test]
fn a_line_that_is_no_json_becomes_no_second_alternative() {
    let configuration = configuration("alts = { a = \"a\", b = \"b\" }");
    assert_eq!(fault(&configuration, vec![portion(1, "[]")]), None);
    let found = fault(&configuration, vec![portion(1, "1,\"a\":2")]);
    insta::assert_snapshot!(found.unwrap(), @"the job of `b` is not JSON: the value is followed by more text, at column 2");
}

#[test]
fn what_was_no_json_is_none_when_it_comes_again() {
    let configuration = configuration("join = { a = \"a\", b = \"b\" }");
    let job = ParkedJob {
        inputs: vec![("a".into(), 1), ("b".into(), 1)],
        attempt: 1,
        first_attempt: None,
        last_error: None,
        from_error: None,
        form: JobForm::Text,
        payload: b"{\"a\":1,\"b\":2,\"b\":{}}".to_vec(),
        carried: None,
        ..ParkedJob::default()
    };
    let key = ParkedId(1).of(&configuration.steps[0].address);
    let batch = Arc::new(Batch::json(1, [&*job.payload].into_iter().collect()));
    let returned = Some([RedeliveredJob { key, job }].into_iter().collect());
    let again = BatchSlice { input: None, batch, skip: 0, jobs: 1, returned };
    assert_eq!(fault(&configuration, vec![again]).unwrap(), "the job is not JSON");
}

#[test]
fn a_parked_job_keeps_its_input_and_its_hash_when_the_step_reads_another_input() {
    let configuration = configuration("from = \"a\"");
    let job = ParkedJob { inputs: vec![("p/gone".into(), 7)], attempt: 1, ..ParkedJob::default() };
    let key = ParkedId(1).of(&configuration.steps[0].address);
    let batch = Arc::new(Batch::json(1, [b"{}".as_slice()].into_iter().collect()));
    let returned = Some([RedeliveredJob { key, job }].into_iter().collect());
    let again = BatchSlice { input: None, batch, skip: 0, jobs: 1, returned };
    let work = BatchInput { jobs: 1, portions: vec![again], ..BatchInput::default() };
    let mut gatherer = JobBuilder::new(&configuration, &configuration.steps[0]);
    let mut walk = BatchCursor::new(&work);
    let item = gatherer.next(&mut walk, false).unwrap();
    let given: Vec<_> = item.given().map(|given| (given.from(), given.index)).collect();
    assert_eq!(given, [("p/gone".to_owned(), 7)]);
    assert_eq!(item.hash, delivery_hash("p", "match", [("p/gone", [7].as_slice())]));
}

#[test]
fn a_tuple_is_created_with_its_youngest_job_of_which_the_time_is_known() {
    let configuration = configuration("join = { a = \"a\", b = \"b\" }");
    // `None`: a job of a file.
    let created = |times: [Option<i64>; 2]| {
        let portion = |(input, time): (usize, Option<i64>)| {
            let stamps = time.map(|time| Stamp { position: 0, time: Timestamp(time), transaction: 1 });
            let batch = Batch {
                stamps: stamps.into_iter().collect(),
                ..Batch::json(1, [&b"1"[..]].into_iter().collect())
            };
            BatchSlice { batch: Arc::new(batch), ..portion(input, "1") }
        };
        let portions = times.into_iter().enumerate().map(portion).collect();
        let work = BatchInput { jobs: 1, portions, ..BatchInput::default() };
        let mut gatherer = JobBuilder::new(&configuration, &configuration.steps[0]);
        let mut walk = BatchCursor::new(&work);
        let times = gatherer.next(&mut walk, false).unwrap().times(Some(Timestamp(9)));
        assert_eq!((times.attempts, times.first_attempt, times.submitted), (1, Some(Timestamp(9)), None));
        times.created.map(|time| time.0)
    };
    assert_eq!(created([Some(3), Some(5)]), Some(5));
    assert_eq!(created([Some(5), Some(3)]), Some(5));
    assert_eq!(created([None, Some(3)]), Some(3));
    assert_eq!(created([None, None]), None);
}
