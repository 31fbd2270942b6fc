//! Graph for programs: lists each node as JSON, with its dependencies and dependents.

use serde::Serialize;

use super::topology::{EdgeKind, Topology};
use tidegate_config::OutputOrder;

#[derive(Debug, Serialize)]
pub(crate) struct Document {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

#[derive(Debug, Serialize)]
struct Node {
    /// `KIND:PIPELINE/NAME`, since a sink and its step may share a name.
    id: String,
    kind: &'static str,
    pipeline: String,
    name: String,
    /// The kind of a source or a sink.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    sort: Option<&'static str>,
    /// The input mode of a step: `from`, `join` or `alts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    take: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'static str>,
    /// The order of a step's outputs: `in order` or `as finished`.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'static str>,
    /// Whether a queue receives errors of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<bool>,
    /// Number of jobs that a queue holds, with `--live`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<u64>,
    /// All direct and indirect inputs.
    upstream: Vec<String>,
    /// All direct and indirect outputs.
    downstream: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Edge {
    from: String,
    to: String,
    /// `input`, `table`, `output`, `errors` or `events`.
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    binding: String,
    /// Number of jobs that wait for the step, with `--live`.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
}

pub(crate) fn document(topology: &Topology) -> Document {
    use super::topology::NodeKind;
    let downstream = topology.downstream();
    let id = |node: usize| topology.nodes[node].id();
    let nodes = topology.nodes.iter().enumerate().map(|(at, node)| {
        let is = |kind| node.kind == kind;
        let feeds = (0..topology.nodes.len()).filter(|&other| downstream[other].contains(&at));
        Node {
            id: node.id(),
            kind: node.kind.as_str(),
            pipeline: node.address.pipeline.to_string(),
            name: node.address.name.to_string(),
            sort: (is(NodeKind::Source) || is(NodeKind::Sink)).then_some(node.sort),
            take: is(NodeKind::Step).then_some(if node.sort.is_empty() { "from" } else { node.sort }),
            delivery: is(NodeKind::Step).then_some(node.delivery.unwrap_or("exactly-once")),
            order: node.order.map(OutputOrder::as_str),
            errors: is(NodeKind::Queue).then_some(node.sort == "errors"),
            kept: node.kept,
            upstream: feeds.map(id).collect(),
            downstream: downstream[at].iter().copied().map(id).collect(),
        }
    });
    let edges = topology.edges.iter().map(|edge| Edge {
        from: id(edge.from),
        to: id(edge.to),
        kind: match edge.kind {
            EdgeKind::Input => "input",
            EdgeKind::Table => "table",
            EdgeKind::Output => "output",
            EdgeKind::Errors => "errors",
            EdgeKind::Events => "events",
        },
        binding: edge.binding.clone(),
        waiting: edge.waiting,
    });
    Document { nodes: nodes.collect(), edges: edges.collect() }
}
