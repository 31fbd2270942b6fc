//! Graph as a Mermaid flowchart: draws nodes and edges in the language that many sites and editors show.

use std::fmt::Write as _;

use super::topology::{Edge, EdgeKind, Node, NodeKind, Topology};

/// Nodes have numbers, since a name may be a keyword of Mermaid. A name has only ASCII letters, digits, `_`
/// and `-`, so quotes suffice.
pub(crate) fn draw(topology: &Topology) -> String {
    let mut text = String::from("flowchart LR\n");
    let several = topology.several_pipelines;
    for (number, pipeline) in topology.pipelines().into_iter().enumerate() {
        let indent = if several { "        " } else { "    " };
        if several {
            let _ = writeln!(text, "    subgraph p{number}[\"{pipeline}\"]");
        }
        let nodes = topology.nodes.iter().enumerate();
        for (at, node) in nodes.filter(|(_, node)| node.address.pipeline.as_str() == pipeline) {
            let _ = writeln!(text, "{indent}n{at}{}", shape(node));
        }
        if several {
            text.push_str("    end\n");
        }
    }
    for edge in &topology.edges {
        let _ = writeln!(text, "    n{} {} n{}", edge.from, arrow(edge), edge.to);
    }
    text
}

fn shape(node: &Node) -> String {
    let mut label = node.address.name.to_string();
    if node.kind == NodeKind::Step && !node.sort.is_empty() {
        label = format!("{label}<br/>{}", node.sort);
    }
    if let Some(kept) = node.kept {
        label = format!("{label}<br/>{kept} kept");
    }
    match node.kind {
        NodeKind::Source => format!("([\"{label}\"])"),
        NodeKind::Queue => format!("[(\"{label}\")]"),
        NodeKind::Step => format!("[\"{label}\"]"),
        NodeKind::Sink => format!("[[\"{label}\"]]"),
    }
}

fn arrow(edge: &Edge) -> String {
    let label = edge.label();
    match (edge.kind, label.is_empty()) {
        (EdgeKind::Table, _) => format!("-. \"table {label}\" .->"),
        (EdgeKind::Errors, _) => "-. \"errors\" .->".into(),
        (EdgeKind::Events, _) => "-. \"events\" .->".into(),
        (_, true) => "-->".into(),
        (_, false) => format!("-- \"{label}\" -->"),
    }
}
