//! Tests of `compare`: expected jobs match by meaning, and error records by their expected fields.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::compare::differences;
use super::results::{Ended, TestResults};
use super::{Difference, run_tests};
use crate::generation::Generation;
use tidegate_config::{LoadOptions, TestCase};
use tidegate_model::Address;

/// A configuration with one step, and these tests.
fn generation(tests: &str) -> Generation {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = "[step.s]\nfrom = \"in\"\nto = \"out\"\nerrors = \"failed\"\n";
    std::fs::write(folder.path().join("p.toml"), format!("{pipeline}{tests}")).unwrap();
    Generation::load(folder.path(), &LoadOptions::default()).unwrap()
}

fn test(expect: &str) -> TestCase {
    let text = format!("[[test]]\nname = \"t\"\nstep = \"s\"\nexpect = {expect}\n");
    generation(&text).configuration.tests[0].clone()
}

fn results(out: &[Value], failed: &[Value]) -> TestResults {
    let queue = |name: &str, jobs: &[Value]| (Address::parse(name).unwrap(), jobs.to_vec());
    TestResults {
        jobs: BTreeMap::from([queue("p/out", out), queue("p/failed", failed)]),
        errors: BTreeMap::from([queue("p/failed", failed)]),
        events: BTreeSet::new(),
        attempts: BTreeMap::new(),
        elapsed: Duration::ZERO,
        halts: Vec::new(),
        waiting: 0,
        dropped: 0,
        ended: Ended::Done,
        problems: Vec::new(),
    }
}

/// The actual jobs of the only difference, as they are shown.
fn shown(expect: &str, out: &[Value], failed: &[Value]) -> Option<Vec<Value>> {
    match &differences(&test(expect), &results(out, failed))[..] {
        [] => None,
        [Difference::Jobs { actual, .. }] => Some(actual.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_field_that_is_null_may_be_missing_and_numbers_are_equal_by_value() {
    let job = json!({ "a": null, "b": { "c": null, "d": 2.0 }, "e": [1, { "f": null }] });
    let same = "{ out = [{ b = { d = 2 }, e = [1.0, {}] }] }";
    assert_eq!(shown(same, std::slice::from_ref(&job), &[]), None);
    let differs = shown("{ out = [{ b = { d = 3 } }] }", &[job], &[]);
    assert_eq!(differs, Some(vec![json!({ "b": { "d": 2.0 }, "e": [1, {}] })]));
}

#[test]
fn jobs_differ_if_one_is_missing_or_in_another_place() {
    assert_eq!(shown("{ out = [1, 2] }", &[json!(2), json!(1)], &[]), Some(vec![json!(2), json!(1)]));
    assert_eq!(shown("{ out = [1] }", &[], &[]), Some(vec![]));
    assert_eq!(shown("{ out = [] }", &[json!("x")], &[]), Some(vec![json!("x")]));
    assert_eq!(shown("{ out = [\"1\"] }", &[json!(1)], &[]), Some(vec![json!(1)]));
}

#[test]
fn an_error_is_compared_by_a_part_of_its_message_or_by_the_expected_fields() {
    let record =
        [json!({ "message": "no such account (3 attempts)", "attempt": 3, "job": { "id": 1 }, "hash": "x" })];
    for same in ["[\"account\"]", "[{ attempt = 3, message = \"no such\" }]", "[{ job = { id = 1 } }]"] {
        assert_eq!(shown(&format!("{{ failed = {same} }}"), &[], &record), None);
        assert_eq!(shown(&format!("{{ errors = {same} }}"), &[], &record), None);
    }
    let other = shown("{ failed = [{ attempt = 2, kind = \"x\" }] }", &[], &record);
    assert_eq!(other, Some(vec![json!({ "attempt": 3 })]));
    let other = shown("{ errors = [\"busy\"] }", &[], &record);
    assert_eq!(other, Some(vec![json!("no such account (3 attempts)")]));
}

#[test]
fn outcomes_are_reported_in_the_order_of_the_tests() {
    let case = |number: usize| {
        format!(
            "[[test]]\nname = \"{number}\"\ngiven = {{ in = [{number}] }}\nexpect = {{ out = [{}] }}\n",
            number % 2
        )
    };
    let generation = generation(&(0..6).map(case).collect::<String>());
    let tests: Vec<&TestCase> = generation.configuration.tests.iter().collect();
    let mut passed = Vec::new();
    run_tests(&generation, &tests, |position, outcome| {
        passed.push((position, outcome.differences.is_empty()));
    })
    .unwrap();
    assert_eq!(passed, [(0, true), (1, true), (2, false), (3, false), (4, false), (5, false)]);
}
