//! Tests of filters: `types`, `topics` and `when`.

use super::{Draft, body};
use tidegate_config::InputMode;

#[test]
fn types_and_topics_compare_with_the_fields_of_that_name() {
    let filtered = |types: &[&str], topics: &[&str], payload: &str| {
        let mut draft = Draft::new();
        draft.filter.types = types.iter().map(ToString::to_string).collect();
        draft.filter.topics = topics.iter().map(ToString::to_string).collect();
        draft.run(payload) != "nothing"
    };
    for (types, topics, payload, passes) in [
        (&["order", "refund"][..], &[][..], r#"{"type":"refund"}"#, true),
        (&["order"], &[], r#"{"type":"orders"}"#, false),
        (&["order"], &[], r#"{"type":["x","order"]}"#, true),
        (&["order"], &[], r#"{"type":5}"#, false),
        (&["order"], &[], r#"{"kind":"order"}"#, false),
        (&["order"], &[], r#""order""#, false),
        (&[], &["eu"], r#"{"topics":["us","eu"]}"#, true),
        (&[], &["eu"], r#"{"topics":[]}"#, false),
        (&[], &["eu"], r#"{"topic":"eu"}"#, true),
        (&[], &["eu"], r#"{"topics":{"us":true,"eu":{}}}"#, true),
        (&[], &["eu", "us"], r#"{"topics":{"eu":false,"us":null,"asia":true}}"#, false),
        (&[], &["eu"], r#"{"topics":{"eu":0}}"#, true),
        (&["order"], &["eu"], r#"{"type":"order","topic":"us"}"#, false),
        (&["order"], &["eu"], r#"{"type":"order","topic":"eu"}"#, true),
    ] {
        assert_eq!(filtered(types, topics, payload), passes, "{types:?} {topics:?} {payload}");
    }
}

#[test]
fn types_and_topics_of_a_join_compare_with_the_fields_of_each_input() {
    let mut draft = body("job.keys()");
    draft.take = InputMode::Join;
    draft.filter.types = vec!["order".to_owned()];
    draft.filter.topics = vec!["eu".to_owned()];
    for (payload, passes) in [
        (r#"{"a":{"type":"order"},"b":{"topic":"eu"}}"#, true),
        (r#"{"a":{"type":"order","topics":{"eu":true}},"b":{}}"#, true),
        (r#"{"a":{"type":"order"},"b":5}"#, false),
        (r#"{"type":"order","topic":"eu"}"#, false),
    ] {
        assert_eq!(draft.run(payload) != "nothing", passes, "{payload}");
    }
}

#[test]
fn when_passes_jobs_on_as_they_are() {
    let draft = Draft::new().when("job.mag >= 4.5 && job.type == \"earthquake\"");
    let made = draft.run_all(&[
        r#"{"mag": 5.0,  "type":"earthquake"}"#,
        r#"{"mag":4.4,"type":"earthquake"}"#,
        r#"{"mag":9,"type":"quarry blast"}"#,
        r#"{"type":"earthquake","mag":9}"#,
    ]);
    insta::assert_snapshot!(made, @r#"
    -> {"mag": 5.0,  "type":"earthquake"}
    -> {"type":"earthquake","mag":9}
    "#);
}

#[test]
fn when_goes_before_the_script() {
    let draft = body("job.n * 2").when("job.n > 1");
    assert_eq!(draft.run_all(&[r#"{"n":1}"#, r#"{"n":2}"#]), "-> 4");
}

#[test]
fn what_is_wrong_in_a_when_says_so() {
    let job = r#"{"mag":5,"place":"sea","note":null}"#;
    let outcomes: Vec<String> = [
        "job.mga > 4",
        "job.mag",
        "job.place",
        "job.mag > 4 && job.elephant",
        "job.place * 2 > 1",
        "job.mag / 0 > 1",
        "reject(\"no\")",
        "mag > 4",
        "job.mag >",
        "job.mag > 4;",
        "let x = 1; x > 0",
        "job.note > 1",
        "elephant(job)",
        "",
    ]
    .iter()
    .map(|expression| format!("{expression}\n    {}", Draft::new().when(expression).run(job)))
    .collect();
    insta::assert_snapshot!(outcomes.join("\n"));
}
