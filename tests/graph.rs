//! Tests of `tidegate graph`: it draws a configuration, and a state.

use crate::project::{Project, jobs};

const PIPELINE: &str = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
     [step.split]\nfrom = \"in\"\nrun = \"split.rhai\"\nto = { kept = \"kept\", stuck = \"stuck\" }\n\
     [step.stop]\nfrom = \"stuck\"\nrun = \"stop.rhai\"\n\
     [sink.out]\nfrom = \"kept\"\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn project() -> Project {
    Project::new()
        .file("p.toml", PIPELINE)
        .file("split.rhai", "fn process(job) { #{ kept: job, stuck: job } }")
        .file("stop.rhai", "fn process(job) { reject(\"no\") }")
        .file("in.ndjson", jobs(1..=8))
}

#[test]
fn a_graph_needs_no_state() {
    let project = project();
    insta::assert_snapshot!(project.tidegate(&["graph"]).done().stdout);
    for (format, start) in [("mermaid", "flowchart LR\n"), ("dot", "digraph tidegate {\n"), ("json", "{\n")] {
        let graph = project.tidegate(&["graph", "--format", format]).done().stdout;
        assert!(graph.starts_with(start), "{graph}");
    }
    project.tidegate(&["graph", "--live"]).failed(1).says("does not exist yet");
}

#[test]
fn a_live_graph_shows_what_waits() {
    let project = project();
    project.run().failed(1);
    insta::assert_snapshot!(project.tidegate(&["graph", "--live"]).done().stdout);
    let graph = project.tidegate(&["graph", "--live", "--format", "json"]).done().stdout;
    let graph: serde_json::Value = serde_json::from_str(&graph).expect("it is JSON");
    let edges = graph["edges"].as_array().expect("a list");
    let waiting = edges.iter().find(|edge| edge["to"] == "step:p/stop").map(|edge| &edge["waiting"]);
    assert_eq!(waiting, Some(&8.into()));
}

#[test]
fn a_configuration_with_mistakes_has_no_graph() {
    let project = project().file("p.toml", "[step.a]\njoin = { one = \"x\" }\n");
    let outcome = project.tidegate(&["graph"]).failed(78).says("`join` has only one binding");
    assert_eq!(outcome.stdout, "");
}
