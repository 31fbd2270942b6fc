//! Tests of `ctx`: the facts that a script has beside its job.

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
    insta::assert_snapshot!(made, @r#"
    -> 7
    -> "27e7f3996b83f25515ec789b4ffaa8a8"
    -> 8
    -> "dfe2af1842030ac04858d644329a6ec9"
    "#);
}

#[test]
fn ctx_has_the_inputs_and_outputs_of_the_step_and_the_provenance_of_the_job() {
    let mut draft = body("[ctx.inputs, ctx.outputs, ctx.meta, ctx.meta.keys().len]");
    assert_eq!(draft.run("{}"), "-> {\"shop/orders\":7}\n-> [\"\"]\n-> {}\n-> 0");
    draft = body("for name in ctx.outputs { emit(name, job); }");
    draft.outputs = vec!["large", "small"];
    assert_eq!(draft.run("1"), "-> large: 1\n-> small: 1");
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

#[test]
fn a_change_of_the_config_itself_is_an_error() {
    let texts = [
        "ctx.config.rate = 2",
        "ctx.config[\"rate\"] = 2",
        "ctx.config.rate += 1",
        "ctx.config.fresh = 1",
        "ctx.config.list[0] = 2",
        "ctx.config.list.push(2)",
        "ctx.config.table.remove(\"k7\")",
        "ctx.config.table.k7 = 2",
        "ctx.config = #{}",
        "let c = ctx; c.config.rate = 2",
    ];
    for text in texts {
        let made = configured(text).run("1");
        assert!(
            made.starts_with("nothing\nfailed: `ctx.config` is read-only; change a copy"),
            "{text}: {made}"
        );
    }
}

#[test]
fn what_reads_the_config_or_changes_a_copy_of_it_is_no_error() {
    let texts = [
        ("ctx.config.list.contains(2)", "true"),
        ("ctx.config.list.len()", "3"),
        ("ctx.config.table.keys().len()", "100"),
        ("ctx.config.table.k7.to_string() + ctx.config.none", "\"7\""),
        ("let config = ctx.config; config.rate = 2; config.rate + ctx.config.rate", "3.5"),
        ("let list = ctx.config.list; list.push(9); list.len() + ctx.config.list.len()", "7"),
    ];
    for (text, made) in texts {
        assert_eq!(configured(text).run("1"), format!("-> {made}"), "{text}");
    }
}

fn configured(text: &str) -> super::Draft {
    let mut draft = super::body(text);
    let table: serde_json::Map<_, _> = (0..100).map(|n| (format!("k{n}"), n.into())).collect();
    draft.config = serde_json::json!({ "rate": 1.5, "list": [1, 2, 3], "table": table, "none": null });
    draft
}
