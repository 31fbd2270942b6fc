//! Tests of memory at rest: thousands of steps may have a script each.

use super::{ScriptStep, body};
use crate::memory::left;

/// The bytes that each of many steps with a script like this one takes on a thread.
fn bytes_a_step(text: &str) -> i64 {
    const STEPS: i64 = 64;
    let mut draft = body(text).when("job.kind == \"order\" && job.n > 3");
    draft.config = serde_json::json!({ "threshold": 4.5, "hosts": ["a", "b"] });
    // The first step allocates the data that a thread shares.
    let _first = draft.try_build().unwrap();
    let before = left();
    let steps: Vec<ScriptStep> = (0..STEPS).map(|_| draft.try_build().unwrap()).collect();
    let taken = (before - left()) / STEPS;
    drop(steps);
    taken
}

#[test]
fn a_step_takes_little_beside_the_text_of_its_script() {
    let small = bytes_a_step("job.seen = ctx.index; job");
    assert!(small < 10 << 10, "{small}");
}
