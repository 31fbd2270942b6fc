//! `tidegate graph`: draws the configuration as a graph, or lists it as JSON.

use crate::cli::{Format, GraphArguments, GraphFormat, QueryOptions};
use crate::client::{CommandTarget, ask, print_json, print_text};
use crate::graph::topology::{Depths, Topology};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::query::{Answer, Query};

pub(crate) fn graph(command: &GraphArguments) -> Exit {
    let configuration = match CommandTarget::to_look(&command.config, command.data.clone()) {
        Ok(target) => target.configuration,
        Err(exit) => return exit,
    };
    let depths = match command.live.then(|| depths(command)).transpose() {
        Ok(depths) => depths,
        Err(exit) => return exit,
    };
    let topology = Topology::of(&configuration, depths.as_ref());
    match command.format {
        GraphFormat::Text => print_text(&crate::graph::text::draw(&topology.without_implied_steps())),
        GraphFormat::Mermaid => print_text(&crate::graph::mermaid::draw(&topology.without_implied_steps())),
        GraphFormat::Dot => print_text(&crate::graph::dot::draw(&topology.without_implied_steps())),
        GraphFormat::Json => return print_json(&crate::graph::json::document(&topology), Exit::Done),
    }
    Exit::Done
}

/// The number of waiting jobs, from the runner, or from the store if no runner is running.
fn depths(command: &GraphArguments) -> Result<Depths, Exit> {
    let look =
        QueryOptions { config: command.config.clone(), data: command.data.clone(), format: Format::Text };
    match (ask(&look, Query::Status { lanes: 0 })?, ask(&look, Query::Queues)?) {
        (Answer::Status(status), Answer::Queues(queues)) => Ok(Depths::of(&status.steps, &queues)),
        _ => Err(exit::fail("the answer of the runner does not match the question: its version may differ")),
    }
}
