//! What a script knows beside its job.

use super::{body, script, shown};

#[test]
fn ctx_says_which_job_it_is() {
    let bodies = [
        "[ctx.index, ctx.attempt, ctx.now, ctx.pipeline, ctx.step]",
        "[ctx.hash, ctx.hash.len]",
        "[ctx.lane == (), type_of(ctx.lane)]",
        "ctx.config",
        "type_of(ctx)",
        "ctx.hsah",
        "ctx.index = 5",
        "ctx",
    ];
    insta::assert_snapshot!(shown("{}", &bodies));
}

#[test]
fn ctx_moves_on_with_the_jobs() {
    let made = script("fn process(job, ctx) { [ctx.index, ctx.hash] }").run_all(&["1", "1"]);
    insta::assert_snapshot!(made);
}

#[test]
fn the_config_of_the_step_is_seen() {
    let mut draft = body("if ctx.config.currency == \"EUR\" { ctx.config.rates.usd * job } else { () }");
    draft.config = serde_json::json!({ "currency": "EUR", "rates": { "usd": 1.5 } });
    assert_eq!(draft.run("2"), "-> 3.0");
}

#[test]
fn what_a_script_does_to_the_config_is_not_seen_by_the_next_job() {
    let mut draft = body("let config = ctx.config; config.n += 1; config.n");
    draft.config = serde_json::json!({ "n": 1 });
    assert_eq!(draft.run_all(&["0", "0"]), "-> 2\n-> 2");
}

#[test]
fn a_script_reaches_nothing_else_of_the_world() {
    let bodies =
        ["sleep(1)", "sleep(1.5)", "timestamp()", "eval(\"1\")", "open_file(\"/etc/passwd\")", "rand()"];
    insta::assert_snapshot!(shown("{}", &bodies));
}

#[test]
fn nothing_stays_from_job_to_job() {
    let made =
        script("let seen = 0;\nfn process(job) { let seen = 1; seen += job; seen }").run_all(&["1", "1"]);
    assert_eq!(made, "-> 2\n-> 2");
}
