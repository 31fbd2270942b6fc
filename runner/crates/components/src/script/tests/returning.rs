//! Tests of return values: each becomes outputs.

use super::{Draft, body, script, shown};

#[test]
fn one_output_takes_a_value_each_element_of_a_list_or_nothing() {
    let bodies = [
        "job",
        "[job, #{ id: 2 }]",
        "[]",
        "()",
        "[(), 1]",
        "job.id",
        "1.5",
        "true",
        "\"text\"",
        "'c'",
        "[[1, 2], [3]]",
        "let no_return = 1;",
        "return job.id; 5",
        "exit(job.id); 5",
        "#{ b: 1, a: (), c: [1, #{}] }",
        "job.added = job.id * 2; job",
        "1..3",
        "|x| x",
        "#{ rate: #{ now: 0.0 / 0.0 } }",
        "[1, 1.0 / 0.0]",
        "blob(3, 7)",
    ];
    insta::assert_snapshot!(shown(r#"{"id":1}"#, &bodies));
}

#[test]
fn a_fork_takes_a_map_of_bindings() {
    let fork = |text: &str| body(text).to(&["audit", "matched"]).run(r#"{"id":1}"#);
    let bodies = [
        "#{ matched: job, audit: 1 }",
        "#{ matched: [1, 2], audit: () }",
        "#{ matched: [] }",
        "#{}",
        "()",
        "#{ mathced: job }",
        "#{ elephant: job }",
        "job",
        "[job]",
        "5",
    ];
    let shown: Vec<String> = bodies.iter().map(|text| format!("{text}\n    {}", fork(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn without_an_output_everything_is_dropped() {
    for text in ["job", "[1, 2]", "()", "|x| x"] {
        assert_eq!(body(text).to(&[]).run("1"), "nothing", "{text}");
    }
}

#[test]
fn in_a_chain_a_list_fans_out_and_nothing_ends_it() {
    let chain = |first: &str| {
        Draft::new()
            .then("first.rhai", first)
            .then("second.rhai", "fn process(job) { [job, job * 10] }")
            .then("third.rhai", "fn process(job) { if job == 20 { () } else { job } }")
            .run("1")
    };
    assert_eq!(chain("fn process(job) { job }"), "-> 1\n-> 10");
    assert_eq!(chain("fn process(job) { [1, 2] }"), "-> 1\n-> 10\n-> 2");
    assert_eq!(chain("fn process(job) { [] }"), "nothing");
    assert_eq!(chain("fn process(job) { () }"), "nothing");
}

#[test]
fn a_failure_in_a_chain_names_its_script_and_leaves_nothing() {
    let draft = Draft::new()
        .then("first.rhai", "fn process(job) { [1, 2] }")
        .then("second.rhai", "fn process(job) {\n    if job == 2 { throw \"two\" }\n    job\n}");
    assert_eq!(draft.run("0"), "nothing\nfailed: two\n  at second.rhai:2:19");
}

#[test]
fn emit_adds_to_bindings_after_what_is_returned() {
    let fork = |text: &str| body(text).to(&["audit", "matched"]).run(r#"{"id":1}"#);
    let bodies = [
        "emit(\"audit\", 1); #{ audit: 2, matched: job }",
        "emit(\"audit\", 1); emit(\"matched\", 2); emit(\"audit\", 3); ()",
        "emit(\"audit\", [1, 2]); ()",
        "emit(\"audit\", ()); ()",
        "emit(\"audti\", 1); ()",
        "emit(\"elephant\", 1); ()",
        "emit(\"audit\", 1); throw \"afterwards\"",
        "emit(\"audit\", job); job.id = 2; emit(\"audit\", job); ()",
        "emit(\"audit\", |x| x); ()",
        "emit(5, 1); ()",
    ];
    let shown: Vec<String> = bodies.iter().map(|text| format!("{text}\n    {}", fork(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
    let unnamed = body("emit(\"audit\", 1); ()").run("1");
    insta::assert_snapshot!(unnamed, @r#"
    nothing
    output: the step has no output `audit`; its only output has no name: write `""`
    "#);
}

#[test]
fn what_a_failed_attempt_emitted_is_gone_with_the_next_one() {
    let text = "fn process(job) { emit(\"audit\", job); if job == 1 { throw \"one\" } () }";
    let made = script(text).to(&["audit", "matched"]).run_all(&["1", "2"]);
    assert_eq!(made, "-> audit: 2\nfailed: one\n  at process.rhai:1:53");
}

#[test]
fn a_script_may_return_out_of_a_chain_by_emitting() {
    let draft = Draft::new()
        .then("first.rhai", "fn process(job) { emit(\"audit\", job); job + 1 }")
        .then("second.rhai", "fn process(job) { #{ matched: job } }")
        .to(&["audit", "matched"]);
    assert_eq!(draft.run("1"), "-> audit: 1\n-> matched: 2");
}
