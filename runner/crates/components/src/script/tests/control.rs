//! Tests of control functions: scripts decide on the outcome of their job.

use super::{Draft, EntryPoint, body, script, shown};

#[test]
fn an_attempt_is_ended_past_any_try() {
    let bodies = [
        "retry(\"busy\")",
        "retry()",
        "retry(#{ message: \"busy\", queue: 7 })",
        "try { retry(\"busy\") } catch { return job; }",
        "retry_in(\"1m30s\", \"busy\")",
        "retry_in(1500, \"busy\")",
        "retry_in(\"15s\")",
        "retry_in(0, \"at once\")",
        "try { halt(`the key ${job.price} is unknown`) } catch { return job; }",
        "halt()",
        "gate_closed(`gas is ${job.price}`)",
        "gate_closed()",
        "try { pending(\"tx-7\") } catch { return job; }",
        "pending(#{ tx: 7, chain: \"main\" })",
        "pending(job.price)",
    ];
    insta::assert_snapshot!(shown("{\"price\":93}", &bodies));
}

#[test]
fn what_a_function_cannot_do_is_told() {
    let bodies = [
        "retry_in(\"15\", \"busy\")",
        "retry_in(\"-1s\", \"busy\")",
        "retry_in(-1, \"busy\")",
        "retry_in(1.5, \"busy\")",
        "retry_in((), \"busy\")",
        "retry_in()",
        "retry_in(9223372036854775807, \"busy\")",
        "retry_in(9223372036854775807)",
        "retry_in(\"3000000d\")",
        "pending(())",
        "pending()",
        "pending(|x| x)",
        "let long = \"x\"; long.pad(70000, 'x'); pending(long)",
    ];
    insta::assert_snapshot!(shown("1", &bodies));
}

#[test]
fn outputs_can_be_delayed() {
    let fork = |text: &str| body(text).to(&["audit", "later"]).run("{\"id\":1}");
    let bodies = [
        "emit_in(\"later\", job, \"15s\"); ()",
        "emit_in(\"later\", job, 250); #{ audit: job }",
        "emit_in(\"later\", [1, 2], \"7d\"); ()",
        "emit_in(\"later\", (), \"15s\"); ()",
        "emit_at(\"later\", job, \"2030-01-01T00:00:00Z\"); ()",
        "emit_at(\"later\", job, \"2030-01-01T00:00:00+02:00\"); ()",
        "emit_at(\"later\", job, ctx.now + 1000); ()",
        "emit_in(\"later\", job, \"15s\"); throw \"afterwards\"",
        "emit_in(\"latre\", job, \"15s\"); ()",
        "emit_in(\"later\", |x| x, \"15s\"); ()",
        "emit_in(\"later\", job, \"soon\"); ()",
        "emit_in(\"later\", job, -5); ()",
        "emit_in(\"later\", job, #{}); ()",
        "emit_in(\"later\", job, 9223372036854775807); ()",
        "emit_in(\"later\", job, \"3000000d\"); ()",
        "emit_at(\"later\", job, -1); ()",
        "emit_at(\"later\", job, 9223372036854775807); ()",
        "emit_at(\"later\", job, 253402300800000); ()",
        "emit_at(\"later\", job, 253402300799999); ()",
        "emit_at(\"later\", job, \"9999-12-31T23:59:59Z\"); ()",
        "emit_at(\"later\", job, \"9999-12-31T23:59:59+02:00\"); ()",
        "emit_at(\"later\", job, \"9999-12-31T23:59:59-02:00\"); ()",
        "emit_at(\"later\", job, \"9999-12-31T23:59:59\"); ()",
        "emit_at(\"later\", job, \"tomorrow\"); ()",
        "emit_at(\"later\", job, \"2030-01-01T00:00:00\"); ()",
        "emit_at(\"later\", job, true); ()",
        "emit_in(job, \"15s\"); ()",
    ];
    let shown: Vec<String> = bodies.iter().map(|text| format!("{text}\n    {}", fork(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn an_output_without_a_name_can_be_delayed() {
    let shown = ["emit_in(\"\", job, \"15s\"); ()", "emit_at(\"\", [1, 2], ctx.now + 5); job"]
        .map(|text| body(text).run("1"));
    insta::assert_snapshot!(shown.join("\n"), @"
    ->  at 2018-01-31T01:50:14.65Z: 1
    -> 1
    ->  at 2018-01-31T01:49:59.655Z: 1
    ->  at 2018-01-31T01:49:59.655Z: 2
    ");
    let named = body("emit_in(\"later\", 1, 5); ()");
    insta::assert_snapshot!(named.run("1"), @r#"
    nothing
    output: the step has no output `later`; its only output has no name: write `""`
    "#);
    insta::assert_snapshot!(named.to(&[]).run("1"), @"
    nothing
    output: the step has no output `later`; it has no `to`
    ");
    insta::assert_snapshot!(body("emit_in(\"\", 1, 5); ()").to(&["audit", "later"]).run("1"), @"
    nothing
    output: the step has no output without a name; its outputs are `audit` and `later`
    ");
    let mut gate = script("fn open(answer) { emit_in(\"\", 1, 5); true }");
    gate.entry = EntryPoint::Open;
    insta::assert_snapshot!(gate.run("1"), @"
    nothing
    output: a job cannot wait between two processors: only the last script of a step can delay an output without a name
    ");
}

#[test]
fn what_a_failed_attempt_would_have_delayed_is_gone() {
    let text = "emit_in(\"later\", job, 0); if job == 1 { retry(\"one\") } ()";
    let made = body(text).to(&["audit", "later"]).run_all(&["1", "2"]);
    assert_eq!(made, "-> later at 2018-01-31T01:49:59.65Z: 2\nretry: one\n  at process.rhai:1:64");
}

#[test]
fn any_script_of_a_chain_can_delay() {
    let draft = Draft::new()
        .then("first.rhai", "fn process(job) { emit_in(\"later\", job, \"1s\"); job + 1 }")
        .then("second.rhai", "fn process(job) { #{ audit: job } }")
        .to(&["audit", "later"]);
    assert_eq!(draft.run("1"), "-> audit: 2\n-> later at 2018-01-31T01:50:00.65Z: 1");
}

#[test]
fn outputs_that_wait_count_for_the_memory_of_the_job() {
    let mut draft = body("for i in 0..40 { emit_in(\"later\", job, 5); } ()").to(&["audit", "later"]);
    draft.limits.memory = 4096;
    let job = format!("\"{}\"", "x".repeat(200));
    let made = draft.run(&job);
    assert!(made.contains("exceed `limits.memory` of 4.0 KiB"), "{made}");
}
