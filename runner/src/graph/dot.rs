//! Graph in the language of Graphviz: draws nodes and edges as `dot` text.

use std::fmt::Write as _;

use super::topology::{Edge, EdgeKind, Node, NodeKind, Topology};

/// Every name is in quotes. A name has only ASCII letters, digits, `_` and `-`, so nothing in it needs an
/// escape.
pub(crate) fn draw(topology: &Topology) -> String {
    let mut text = String::from("digraph tidegate {\n    rankdir = LR;\n");
    let several = topology.several_pipelines;
    for pipeline in topology.pipelines() {
        let indent = if several { "        " } else { "    " };
        if several {
            let _ = writeln!(text, "    subgraph \"cluster_{pipeline}\" {{\n{indent}label = \"{pipeline}\";");
        }
        for node in topology.nodes.iter().filter(|node| node.address.pipeline.as_str() == pipeline) {
            let _ = writeln!(text, "{indent}\"{}\" [{}];", node.id(), looks(node));
        }
        if several {
            text.push_str("    }\n");
        }
    }
    for edge in &topology.edges {
        let (from, to) = (topology.nodes[edge.from].id(), topology.nodes[edge.to].id());
        let _ = writeln!(text, "    \"{from}\" -> \"{to}\"{};", line(edge));
    }
    text.push_str("}\n");
    text
}

fn looks(node: &Node) -> String {
    let mut label = node.address.name.to_string();
    if node.kind == NodeKind::Step && !node.sort.is_empty() {
        label = format!("{label}\\n{}", node.sort);
    }
    if let Some(kept) = node.kept {
        label = format!("{label}\\n{kept} kept");
    }
    let shape = match node.kind {
        NodeKind::Source => "invhouse",
        NodeKind::Queue => "cylinder",
        NodeKind::Step => "box",
        NodeKind::Sink => "house",
    };
    format!("label = \"{label}\", shape = {shape}")
}

fn line(edge: &Edge) -> String {
    let label = edge.label();
    match (edge.kind, label.is_empty()) {
        (EdgeKind::Table, _) => format!(" [label = \"table {label}\", style = dashed]"),
        (EdgeKind::Errors, _) => " [label = \"errors\", style = dotted]".into(),
        (EdgeKind::Events, _) => " [label = \"events\", style = dotted]".into(),
        (_, true) => String::new(),
        (_, false) => format!(" [label = \"{label}\"]"),
    }
}
