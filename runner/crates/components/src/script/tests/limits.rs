//! Tests of limits: each stops a script, with its message.

use std::time::Duration;

use super::{Draft, body, script};
use crate::script::STACK;

fn on_a_workers_stack(test: impl FnOnce() -> String + Send + 'static) -> String {
    std::thread::Builder::new().stack_size(STACK).spawn(test).unwrap().join().unwrap()
}

#[test]
fn a_loop_without_end_runs_out_of_operations() {
    let mut draft = script("fn process(job) {\n    let n = 0;\n    loop {\n        n += 1;\n    }\n}");
    draft.limits.operations = 10_000;
    insta::assert_snapshot!(draft.run("1"), @"
    nothing
    limit: the script exceeded `limits.operations` (10000): check for an endless loop, or raise the limit
      at process.rhai:4:9
    ");
}

#[test]
fn memory_is_limited_for_each_kind_of_value() {
    let run = |text: &str| {
        let mut draft = body(text);
        draft.limits.memory = 64 << 10;
        draft.run(r#"{"text":"abcdefgh"}"#)
    };
    let bodies = [
        "let s = job.text; loop { s += s; }",
        "let s = job.text; loop { s = s + s; }",
        "let s = job.text; loop { s = `${s}${s}`; }",
        "let s = job.text; s.pad(1000000, \"x\"); s",
        "let a = [1]; loop { a += a; }",
        "let a = []; loop { a.push(1); }",
        "let a = []; loop { a.push(\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"); }",
        "let a = []; a.pad(1000000, 0); a",
        "let m = #{}; for n in 0..10000 { let e = #{}; e[`k${n}`] = n; m += e; }",
        "let m = #{}; for n in 0..10000 { m.set(`k${n}`, n); }",
        "let b = blob(1000000, 0); b",
    ];
    let shown: Vec<String> = bodies.iter().map(|text| format!("{text}\n    {}", run(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn all_outputs_of_a_job_together_are_limited() {
    let run = |text: &str| {
        let mut draft = body(text);
        draft.limits.memory = 64 << 10;
        draft.run("1")
    };
    let bodies = [
        // Each job is small, but all together are too large. The text itself is shared until it is written.
        "let s = \"x\"; s.pad(1000, \"x\"); for i in 0..100 { emit(\"\", s); } ()",
        "for i in 0..10000 { emit(\"\", 1); } ()",
    ];
    let shown: Vec<String> = bodies.iter().map(|text| format!("{text}\n    {}", run(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn values_that_nest_without_end_end_the_script_and_not_the_process() {
    let bodies = [
        "let a = []; loop { a = [a]; }",
        "let a = #{}; loop { a = #{ a: a }; }",
        "let a = [[]]; loop { a.push([a.pop()]); }",
    ];
    for text in bodies {
        let made = on_a_workers_stack(move || {
            let mut draft = body(text);
            draft.timeout = Some(Duration::from_secs(1));
            draft.run("1")
        });
        assert!(made.starts_with("nothing\nlimit: "), "{text}: {made}");
    }
}

#[test]
fn closures_that_hold_each_other_without_end_end_the_script_and_not_the_process() {
    let loops = [
        ("", "let g = f; f = || g;"),
        ("", "const G = f; f = || G;"),
        ("", "let g = [f]; const H = #{ g: || g }; f = || H;"),
        ("fn holding(f) { || f }", "f = holding(f);"),
    ];
    for (functions, link) in loops {
        let endless = format!("{functions}\nfn process(job) {{ let f = 1; loop {{ {link} }} }}");
        let made = on_a_workers_stack(move || script(&endless).run("1"));
        assert!(made.contains("which exceeds `limits.memory` of 64.0 MiB"), "{link}: {made}");

        let long = format!("{functions}\nlet f = 1;\nfor n in 0..50000 {{ {link} }}\nexport f as chain;");
        let text = "import \"long\" as long;\nfn process(job) { type_of(long::chain) }";
        let made = on_a_workers_stack(move || script(text).beside("long.rhai", &long).run("1"));
        assert_eq!(made, "-> \"Fn\"", "{link}");
    }
}

#[test]
fn variables_that_closures_have_captured_are_free_when_the_script_gives_them_up() {
    let mut draft = body(
        "let found = 0; for n in 0..100 { let large = \"x\"; large.pad(100000, \"x\"); found += [n].filter(|n| large.len > n).len; } found",
    );
    draft.limits.memory = 1 << 20;
    assert_eq!(draft.run("1"), "-> 100");
}

#[test]
fn a_value_that_nests_too_deeply_is_no_output() {
    let made = on_a_workers_stack(|| body("let a = []; for n in 0..1000 { a = [a]; } a").run("1"));
    insta::assert_snapshot!(made, @"
    nothing
    output: the return value of the script is not JSON: values nest deeper than 120 levels
    ");
}

#[test]
fn a_limit_that_strikes_in_a_later_script_names_where_it_begins() {
    let mut draft = super::Draft::new()
        .then("first.rhai", "fn process(job) { job }")
        .then("second.rhai", "const X = 1;\n\nfn process(job) {\n    loop { }\n}");
    draft.limits.operations = 10_000;
    insta::assert_snapshot!(draft.run("1"), @"
    nothing
    limit: the script exceeded `limits.operations` (10000): check for an endless loop, or raise the limit
      at second.rhai:3:1
    ");
}

#[test]
fn a_limit_that_strikes_in_an_import_names_the_line_that_led_there() {
    let mut draft = script("import \"m\" as m;\nconst X = 1;\nfn process(job, ctx) {\n    let y = global::X + ctx.index;\n    m::endless()\n}")
        .beside("m.rhai", "fn endless() { loop { } }");
    draft.limits.operations = 10_000;
    insta::assert_snapshot!(draft.run("1"), @"
    nothing
    limit: the script exceeded `limits.operations` (10000): check for an endless loop, or raise the limit
      at process.rhai:5:8
    ");
}

#[test]
fn calls_are_limited_in_depth() {
    let text = "fn process(job) {\n    down(job)\n}\nfn down(n) {\n    down(n + 1)\n}";
    let made = on_a_workers_stack(move || script(text).run("1"));
    insta::assert_snapshot!(made, @"
    nothing
    limit: the calls of functions exceed `limits.depth` of 64 levels
      at process.rhai:2:5
    ");
}

/// A function with `count` branches before `last`.
fn branches(count: usize, last: &str) -> String {
    let branches: Vec<String> = (0..count).map(|n| format!("if n == {n} {{ {n} }} else ")).collect();
    format!("fn through(n) {{ {}{{ {last} }} }}\nfn process(job) {{ through(job) }}", branches.concat())
}

#[test]
fn a_long_else_if_is_no_mistake_until_it_nests_too_deeply() {
    let run = |count| on_a_workers_stack(move || script(&branches(count, "-1")).run("99"));
    assert_eq!([run(100), run(118)], ["-> 99", "-> 99"]);
    insta::assert_snapshot!(run(200), @r#"does not compile: CompileError { file: None, line: Some(1), column: Some(2861), message: "the code nests too deeply", help: Some("replace a long `else if` by a `switch`, or by several `if` with a `return`; move a part into a function of its own") }"#);
}

#[test]
fn what_nests_and_calls_itself_as_deeply_as_it_may_has_room_on_the_stack() {
    for (depth, count) in [(125, 118), (500, 22)] {
        let made = on_a_workers_stack(move || {
            let mut draft: Draft = script(&branches(count, "through(n + 1)"));
            draft.limits.depth = depth;
            draft.run("1000")
        });
        assert!(made.contains(&format!("exceed `limits.depth` of {depth} levels")), "{made}");
    }
}

#[test]
fn time_is_limited() {
    let mut draft = script("fn process(job) {\n    loop { }\n}");
    draft.limits.operations = u64::MAX;
    draft.timeout = Some(Duration::from_millis(200));
    // The search for the place has a few milliseconds, in which a busy machine may not run it.
    let mut outcome = draft.run("1");
    for _ in 0..2 {
        if !outcome.contains(":2:10") {
            outcome = draft.run("1");
        }
    }
    insta::assert_snapshot!(outcome, @"
    nothing
    limit: the script exceeded its `timeout` of 200ms
      at process.rhai:2:10
    ");
}

#[test]
fn limits_count_for_each_job_anew() {
    let mut draft = script("fn process(job) { let n = 0; for i in 0..500 { n += i; } n }");
    draft.limits.operations = 5000;
    assert_eq!(draft.run_all(&["1"; 20]), ["-> 124750"; 20].join("\n"));
}

#[test]
fn a_try_does_not_hold_a_limit_off() {
    let mut draft = script("fn process(job) {\n    loop { try { loop { } } catch { } }\n}");
    draft.limits.operations = 10_000;
    insta::assert_snapshot!(draft.run("1"), @"
    nothing
    limit: the script exceeded `limits.operations` (10000): check for an endless loop, or raise the limit
      at process.rhai:2:23
    ");
}
