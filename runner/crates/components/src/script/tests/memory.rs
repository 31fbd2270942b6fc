//! Tests of the memory limit: it holds for the total of an attempt, before the memory is allocated.

use tidegate_plugin::{FailureKind, Outputs, Step as _};

use super::{Draft, body, job, script};
use crate::memory::{least_left, left};
use crate::script::{EntryPoint, Expression, check_script};

const LIMIT: u64 = 1 << 20;

/// A text of 256 KiB.
const LARGE: &str = "let s = \"a\"; while s.len < 262144 { s += s; } ";

/// Each creates, from few and small values, one that is many times larger than the limit.
const BOMBS: [&str; 32] = [
    "s.replace(\"a\", s); s",
    "s.replace('a', s); s",
    "s.split(\"\")",
    "s.split(\"\", 1000000)",
    "s.split('a')",
    "s.split_rev(\"a\")",
    "s.split_rev(\"\", 1000000)",
    "s.to_chars()",
    "s.pad(1000000000, \"ab\"); s",
    "s.pad(1000000000, 'x'); s",
    "let a = []; a.pad(100000000, 0); a",
    "let a = []; a.pad(1000, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66]); a",
    "let m = #{}; for i in 0..200 { m[\"k\" + i] = s + i; } m",
    "let a = []; for i in 0..200 { a.push(s + i); } a",
    "let a = []; for i in 0..200 { a += [s + i]; } a",
    "many(s).to_string()",
    "`${many(s)}`",
    "\"\" + many(s)",
    "let m = many(s); `${m}`",
    "let m = many(s); m.fill = []; m.fill.pad(25000, 0); `${m}`",
    "let m = many(s); m.fill = []; m.fill.pad(25000, 0); \"\" + m",
    "let m = many(s); m.fill = []; m.fill.pad(25000, 0); let t = \"\"; t += m; t",
    "many(s).to_json()",
    "to_debug(many(s))",
    "s += many(s); s",
    "parse_json(\"[\" + \"[],\".repeated(100000) + \"1]\")",
    "let f = 1; for i in 0..200 { let g = [f, s + i]; f = || g; } f",
    "let a = s + 1; let b = s + 2; let c = s + 3; let d = s + 4; let e = s + 5; let f = s + 6; 1",
    "fn_of(s, 0)",
    "blob(1000000000, 1)",
    "let a = [[1, 2, 3, 4]]; loop { a = [a, a]; }",
    "let b = blob(200000, 0); b.to_array()",
];

/// `many` is a map that holds a text many times, which takes little memory.
const FUNCTIONS: &str = "fn fn_of(s, n) { let t = s + n; fn_of(s, n + 1) + t }
fn many(s) { let m = #{}; for i in 0..1000 { m[\"k\" + i] = s; } m }
fn repeated(n) { let made = this; while made.len < n { made += made; } made }";

/// Runs code that must end at the limit, and asserts that it never held much more.
fn held_at_the_limit(text: &str, run: impl FnOnce() -> String) {
    let mut made = String::new();
    let least = least_left(|| made = run());
    let names_limit = made.contains("exceeds `limits.memory`") && made.contains("1.0 MiB");
    assert!(names_limit, "{text}: {made}");
    // A value of the script and its copy may exceed it.
    assert!(least > -3 * LIMIT.cast_signed(), "{text}: {least}");
}

fn limited(mut draft: Draft) -> Draft {
    draft.limits.memory = LIMIT;
    draft
}

#[test]
fn no_script_holds_much_more_than_the_limit() {
    for text in BOMBS {
        let draft = limited(script(&format!("{FUNCTIONS}\nfn process(job) {{ {LARGE} {text} }}")));
        held_at_the_limit(text, || draft.run("1"));
    }
}

/// Each creates the text of a value that holds a large text several times.
const TEXTS: [&str; 7] = [
    "`${m}`",
    "`a${m}${m}`",
    "\"\" + m",
    "m + \"\"",
    "let t = \"\"; t += m; t",
    "print(m); debug(m); m.to_string()",
    "let z = #{ n: [1, 2, 3, 4, 5, 6], s: m.a }; `${z}`",
];

/// A quarter of the texts in [`REPEATED`].
const SMALL_LIMIT: u64 = 32 << 10;

/// Sixteen texts of 8 KiB in a map, which share their memory.
const REPEATED: &str = "let s = \"\"; s.pad(8192, \"a\"); let m = #{ fill: [] }; m.fill.pad(312, 0); m.a = [s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s];";

#[test]
fn a_limit_of_operations_makes_no_text_of_a_value_whichever_operation_it_strikes_at() {
    for text in TEXTS {
        for operations in 30..70 {
            let mut draft = body(&format!("{REPEATED} {text}"));
            draft.limits.memory = SMALL_LIMIT;
            draft.limits.operations = operations;
            let mut made = String::new();
            let least = least_left(|| made = draft.run("1"));
            assert!(made.starts_with("nothing\nlimit: "), "{text}, {operations} operations: {made}");
            assert!(least > -2 * SMALL_LIMIT.cast_signed(), "{text}, {operations} operations: {least}");
        }
    }
}

#[test]
fn a_limit_of_memory_makes_no_text_of_a_value_wherever_it_strikes() {
    for text in TEXTS {
        for memory in (9 << 10..28 << 10).step_by(1280) {
            let mut draft = body(&format!("{REPEATED} {text}"));
            draft.limits.memory = memory;
            let mut made = String::new();
            let least = least_left(|| made = draft.run("1"));
            assert!(made.starts_with("nothing\nlimit: "), "{text}, {memory} bytes: {made}");
            assert!(least > -SMALL_LIMIT.cast_signed(), "{text}, {memory} bytes: {least}");
        }
    }
}

#[test]
fn no_gate_and_no_monitor_holds_much_more_than_the_limit() {
    for (entry, name) in [(EntryPoint::Open, "open"), (EntryPoint::Status, "status")] {
        for text in BOMBS {
            let mut draft = limited(script(&format!("{FUNCTIONS}\nfn {name}(job) {{ {LARGE} {text} }}")));
            draft.entry = entry;
            held_at_the_limit(text, || draft.run("[]"));
        }
    }
}

#[test]
fn no_import_holds_much_more_than_the_limit_when_it_is_read() {
    for text in BOMBS {
        let draft = limited(script("import \"bomb\" as bomb;\nfn process(job) { job }"))
            .beside("bomb.rhai", &format!("{FUNCTIONS}\n{LARGE}\nlet made = {{ {text} }};\n"));
        held_at_the_limit(text, || draft.run("1"));
        let checked = check_script(&draft.scripts[0], &draft.limits, EntryPoint::Process).unwrap_err();
        assert!(checked.message.contains("exceeds `limits.memory`"), "{text}: {checked:?}");
        assert!(checked.file.is_some_and(|file| file.ends_with("bomb.rhai")), "{text}");
    }
}

#[test]
fn no_when_holds_much_more_than_the_limit() {
    let expressions = [
        "job.s.replace(\"a\", job.s) != \"\"",
        "job.s.split(\"\").len > 0",
        "job.s.to_chars().len > 0",
        "[job.s, job.s, job.s, job.s].map(|s| s + 1).len > 0",
        "(job.s + 1 + job.s + 2 + job.s + 3 + job.s + 4).len > 0",
    ];
    let job = format!(r#"{{"s":"{}"}}"#, "a".repeat(200 << 10));
    for text in expressions {
        let draft = limited(body("job")).when(text);
        held_at_the_limit(text, || draft.run(&job));
    }
}

#[test]
fn a_job_whose_values_take_more_than_the_limit_is_told_so() {
    let payload = format!("[{}1]", "{\"a\":1},".repeat(20_000));
    assert!((payload.len() as u64) < LIMIT);
    let run = |payload: &str| {
        let mut made = String::new();
        let least = least_left(|| made = limited(body("job")).run(payload));
        assert_eq!(made, "nothing\nlimit: the values of the job exceed `limits.memory` of 1.0 MiB");
        assert!(least > -LIMIT.cast_signed(), "{least}");
    };
    run(&payload);
    // A number that is read by its digits.
    run(&format!("[100000000000000000000,{}", &payload[1..]));
}

#[test]
fn an_expression_of_a_command_has_the_limit_of_a_configuration_that_sets_none() {
    let job = format!(r#"{{"s":"{}"}}"#, "a".repeat(100 << 10));
    let mut expression = Expression::new("job.s.replace(\"a\", job.s) != \"\"", "job").unwrap();
    let message = expression.holds(job.as_bytes()).unwrap_err();
    assert!(message.contains("exceeds `limits.memory` of 64.0 MiB"), "{message}");
}

#[test]
fn a_limit_of_memory_is_told_with_what_would_be_held() {
    let run = |text: &str| limited(body(&format!("{LARGE}\n{text}"))).run("1");
    let texts = [
        "s.replace(\"a\", s);",
        "let m = #{};\nfor i in 0..200 {\n    m[`k${i}`] = s + i;\n}\nm",
        "try { s.split(\"\") } catch { 1 }",
        "let m = #{};\nfor i in 0..9 { m[`k${i}`] = s; }\nm.to_string()",
    ];
    let shown: Vec<String> = texts.iter().map(|text| format!("{text}\n    {}", run(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn what_one_output_repeats_is_written_no_further_than_the_limit() {
    let texts = ["many(s)", "[many(s)]", "emit(\"\", many(s)); ()", "emit_in(\"\", many(s), \"1s\"); ()"];
    for text in texts {
        let draft = limited(script(&format!("{FUNCTIONS}\nfn process(job) {{ {LARGE} {text} }}")));
        let mut step = draft.try_build().unwrap();
        let mut outputs = Outputs::new([""]);
        let before = left();
        let failure = step.process(&job(7, "1"), &mut outputs).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Limit, "{text}: {failure:?}");
        assert!(before - left() < 4 * LIMIT.cast_signed(), "{text}");
    }
}

#[test]
fn a_reason_that_repeats_a_text_is_no_larger_than_the_limit() {
    let texts = [
        "throw a",
        "reject(a)",
        "throw #{ message: \"x\", a: a }",
        "pending(a)",
        "log_info(a); 1",
        "print(a); 1",
        "retry(a)",
    ];
    for text in texts {
        let draft =
            limited(script(&format!("{FUNCTIONS}\nfn process(job) {{ {LARGE} let a = many(s); {text} }}")));
        let least = least_left(|| drop(draft.run("1")));
        assert!(least > -3 * LIMIT.cast_signed(), "{text}: {least}");
    }
}

/// The bytes that `jobs` jobs leave, after a warm-up.
fn kept(draft: &Draft, jobs: u64) -> i64 {
    let mut step = draft.try_build().unwrap();
    let mut outputs = Outputs::new([""]);
    let mut run = |from: u64, to: u64| {
        for index in from..to {
            outputs.clear();
            // Some of them fail intentionally.
            let _ = step.process(&job(index, &format!(r#"{{"id":{index}}}"#)), &mut outputs);
        }
    };
    run(0, 20);
    let before = left();
    run(20, 20 + jobs);
    before - left()
}

#[test]
fn a_job_leaves_nothing_behind() {
    let large = "let s = \"a\"; while s.len < 4096 { s += s; } ";
    let bodies = [
        "let m = #{ s: s }; let f = || m; m.f = f; 1",
        "let a = [s]; let f = || a.len; a.push(f); 1",
        "let a = [s]; let b = [s]; let f = || a; let g = || b; a.push(g); b.push(f); 1",
        "let m = #{ s: s }; m.f = |x| { m.x = x; m }; m.f.call(m.f); 1",
        "let f = (); let g = || f; f = g; 1",
        "let f = || s; let g = || f.call(); f = g; throw \"on purpose\"",
        "for i in 0..10 { let m = #{ s: s }; m.f = || m; } 1",
        "let m = #{ s: s }; let f = || m; m.f = f; loop { }",
        "let a = []; for i in 0..5 { let x = [s]; a.push(|| x); } a[0].call(); 1",
        "emit(\"\", s); throw \"on purpose\"",
        "global::DOUBLE.call(1)",
        "use_it(global::DOUBLE)",
    ];
    for text in bodies {
        let mut draft = script(&format!(
            "const DOUBLE = |x| x * 2;\nconst TABLE = #{{ a: [1, 2, 3], f: |x| x }};\nfn use_it(f) {{ f.call(1) }}\nfn process(job) {{ {large} {text} }}"
        ));
        draft.limits.operations = 3000;
        let kept = kept(&draft, 300);
        assert!(kept < 2048, "{text}: {kept} bytes");
    }
}
