//! Tests of timeouts: an attempt ends soon after its `timeout`, in any operation.

use std::time::Duration;

use super::{body, script};
use crate::script::attempt::looks::longest_between;

/// Two arrays of a million elements, and one that nests them.
const LARGE: &str = "let a = []; a.pad(1000000, 1); let b = a; let n = 0;";

/// Each of these would take many seconds, or for ever.
const LONG: [&str; 17] = [
    "loop { if a == b { n += 1; } }",
    "let x = [a]; let y = [b]; loop { if x == y { n += 1; } }",
    "let x = #{ a: a }; let y = #{ a: b }; loop { if x == y { n += 1; } }",
    "loop { n += a.index_of(2); }",
    "loop { if 2 in a { n += 1; } }",
    "loop { if a.contains(2) { n += 1; } }",
    "let x = [a, a]; loop { n += x.index_of([2]); x.dedup(); x.push(a); }",
    "for i in 0..1000 { a[i] = i; } a.dedup(|x, y| x > y); loop { a.dedup(|x, y| false); }",
    "for i in 0..a.len { a[i] = i * 7919 % 1000003; } loop { a.sort(); a.sort_desc(); }",
    "loop { a.sort(|x, y| y - x); }",
    "loop { n += a.filter(|x| x > 1).len; }",
    "loop { n += a.map(|x| x + 1).len; }",
    "loop { a.reverse(); }",
    "loop { a.remove(0); a.push(1); }",
    "let x = [a, a]; loop { let y = x; n += y.len; }",
    "for i in 0..1000 { a[i] = -i; } loop { n += a.order().len; }",
    "for i in 0..1000 { a[i] = -i; } loop { n += a.order(|x, y| x - y).len; }",
];

/// Maximum CPU time of the thread between two checks of the timeout.
const UNSEEN_MAX: Duration = Duration::from_millis(400);

fn ends_at_its_timeout(large: &str, text: &str) {
    let mut draft = body(&format!("{large} {text}"));
    draft.timeout = Some(Duration::from_millis(100));
    draft.limits.operations = u64::MAX;
    draft.limits.memory = 512 << 20;
    // A busy host may keep the machine from running, which counts as time of the thread. An operation without a check
    // takes too long in each run.
    let mut unseen = Duration::MAX;
    for _ in 0..3 {
        let mut made = String::new();
        unseen = unseen.min(longest_between(|| made = draft.run("1")));
        assert!(made.contains("exceeded its `timeout` of 100ms"), "{text}: {made}");
        if unseen < UNSEEN_MAX {
            return;
        }
    }
    panic!("{text}: {unseen:?}");
}

#[test]
fn an_attempt_ends_at_its_timeout_whatever_works() {
    for text in LONG {
        ends_at_its_timeout(LARGE, text);
    }
}

#[test]
fn an_attempt_on_a_long_text_ends_at_its_timeout() {
    let texts = [
        "loop { s.replace(\"a\", \"b\"); s.replace(\"b\", \"a\"); }",
        "loop { n += s.split(\"aaaaaaaa\").len; }",
        "loop { n += s.to_upper().len; }",
        "let t = s + \"Σ\"; loop { n += t.to_lower().len; }",
        "let t = \"A\" + s.to_upper(); loop { n += t.to_upper().len; }",
        "loop { if s[1000000] == 'b' { n += 1; } }",
        "loop { if s.contains(\"aaaab\") { n += 1; } }",
        "loop { for c in s { n += 1; } }",
        "let t = s + \"\"; loop { if s == t { n += 1; } }",
    ];
    for text in texts {
        ends_at_its_timeout("let n = 0; let s = \"a\"; while s.len < 4000000 { s += s; }", text);
    }
}

#[test]
fn operations_of_closures_that_a_function_calls_count() {
    let mut draft = script("fn process(job) { let a = []; a.pad(1000, 1); a.map(|x| x + 1).len }");
    draft.limits.operations = 1000;
    let made = draft.run("1");
    assert!(made.contains("exceeded `limits.operations` (1000)"), "{made}");
    draft.limits.operations = 20_000;
    assert_eq!(draft.run("1"), "-> 1000");
}
