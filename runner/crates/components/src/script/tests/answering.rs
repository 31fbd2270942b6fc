//! Tests of gate and monitor scripts: each receives one value, and returns one answer.

use super::{Draft, script};
use crate::script::EntryPoint;

fn answering(entry: EntryPoint, text: &str) -> Draft {
    Draft { entry, ..script(text) }
}

#[test]
fn whatever_is_answered_is_one_answer() {
    let answered =
        |body: &str| answering(EntryPoint::Status, &format!("fn status(jobs) {{ {body} }}")).run("[1,2]");
    assert_eq!(answered("jobs.map(|job| job + 1)"), "-> [2,3]");
    assert_eq!(answered("[]"), "-> []");
    assert_eq!(answered("()"), "-> null");
    assert_eq!(answered("#{ a: \"valid\" }"), "-> {\"a\":\"valid\"}");
}

#[test]
fn a_gate_is_asked_with_its_context() {
    let gate = |text: &str| answering(EntryPoint::Open, text).run("{\"price\":70}");
    assert_eq!(gate("fn open(answer) { answer.price <= 60 }"), "-> false");
    assert_eq!(gate("fn open(answer, ctx) { ctx.step == \"price\" }"), "-> true");
    let closed = gate("fn open(answer) { gate_closed(`price ${answer.price} > 60`) }");
    assert!(closed.contains("price 70 > 60"), "{closed}");
    // A limit has a position.
    let endless = gate("const X = 1;\nfn open(answer) {\n    loop { answer += 1; }\n}");
    assert!(endless.contains(":3"), "{endless}");
}

#[test]
fn only_the_last_script_of_a_chain_answers() {
    let chain = script("fn process(job) { job * 2 }").then("open.rhai", "fn open(answer) { answer == 8 }");
    assert_eq!(Draft { entry: EntryPoint::Open, ..chain }.run("4"), "-> true");
}

#[test]
fn a_script_that_cannot_answer_is_refused() {
    let refused = |entry, text: &str| answering(entry, text).try_build().unwrap_err();
    let errors = [
        refused(EntryPoint::Open, "fn process(job) { true }"),
        refused(EntryPoint::Open, "\nfn opn(answer) { true }"),
        refused(EntryPoint::Open, "fn open() { true }"),
        refused(EntryPoint::Status, "fn process(job) { [] }"),
    ];
    insta::assert_debug_snapshot!(errors);
}
