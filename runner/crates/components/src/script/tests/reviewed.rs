//! Review of functions: every function of scripts is listed, and none runs a text as code.

use std::collections::BTreeSet;

use rhai::Engine;

use crate::script::attempt::ScriptAttempt;
use crate::script::compile;
use crate::script::compile::modules;
use tidegate_config::Limits;

/// An engine as in a step.
fn engine() -> Engine {
    let limits = Limits::default();
    let mut engine = compile::engine(&limits, &ScriptAttempt::new(&limits));
    modules::register_control(&mut engine);
    engine
}

#[test]
fn the_functions_of_a_script_are_those_that_were_reviewed() {
    let registered: BTreeSet<String> = engine()
        .collect_fn_metadata(
            None,
            |info| Some(format!("{}/{}", info.metadata.name, info.metadata.num_params)),
            true,
        )
        .into_iter()
        .collect();
    let reviewed: BTreeSet<String> = include_str!("reviewed.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect();
    let new: Vec<_> = registered.difference(&reviewed).collect();
    let gone: Vec<_> = reviewed.difference(&registered).collect();
    assert!(new.is_empty(), "review these, and add them to reviewed.txt with the reason: {new:?}");
    assert!(gone.is_empty(), "no script can call these: take them out of reviewed.txt: {gone:?}");
}
