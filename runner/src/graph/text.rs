//! Graph in a terminal: prints one line per node, producers above consumers, with lines beside them that fork
//! and join.

use std::fmt::Write as _;

use super::order::order;
use super::rails::{Rails, rails};
use super::topology::{EdgeKind, Node, NodeKind, Topology};
use crate::output::table::grouped;
use tidegate_config::OutputOrder;

/// Longest line in characters, unless one word is longer.
const WIDTH: usize = 100;

pub(crate) fn draw(topology: &Topology) -> String {
    let order = order(topology);
    let mut position = vec![0; order.len()];
    for (at, &node) in order.iter().enumerate() {
        position[node] = at;
    }
    let marks: Vec<char> = order.iter().map(|&node| mark(&topology.nodes[node])).collect();
    let mut next = vec![Vec::new(); order.len()];
    for edge in topology.edges.iter().filter(|edge| !edge.kind.is_record()) {
        let (from, to) = (position[edge.from], position[edge.to]);
        if from < to {
            next[from].push(to);
        }
    }
    let rails = rails(&marks, &next);
    let words: Vec<[String; 2]> =
        order.iter().map(|&node| [topology.name(node), what(&topology.nodes[node])]).collect();
    let layout = Layout {
        rails: rails.iter().map(|rails| rails.beside.chars().count()).max().unwrap_or(0),
        name: words.iter().map(|[name, _]| name.len()).max().unwrap_or(0),
        what: words.iter().map(|[_, what]| what.len()).max().unwrap_or(0),
    };
    let mut text = String::new();
    for ((&node, rails), words) in order.iter().zip(&rails).zip(&words) {
        layout.write(&mut text, rails, words, &notes(topology, node, &position));
    }
    text
}

/// Widths of columns.
struct Layout {
    rails: usize,
    name: usize,
    what: usize,
}

impl Layout {
    fn write(&self, text: &mut String, rails: &Rails, [name, what]: &[String; 2], notes: &[String]) {
        let start = self.rails + 2 + self.name + 2 + self.what + 2;
        let mut lines: Vec<String> = Vec::new();
        for word in notes.iter().flat_map(|note| note.split_inclusive(", ")) {
            match lines.last_mut() {
                Some(line) if start + (line.chars().count() + word.trim_end().chars().count()) <= WIDTH => {
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        if let Some(above) = &rails.above {
            text.push_str(above);
            text.push('\n');
        }
        let first = lines.first().map_or("", String::as_str);
        let line = format!(
            "{:<rails$}  {name:<names$}  {what:<whats$}  {first}",
            rails.beside,
            rails = self.rails,
            names = self.name,
            whats = self.what
        );
        text.push_str(line.trim_end());
        text.push('\n');
        for more in lines.iter().skip(1) {
            let indent = start - self.rails;
            let line = format!("{:<rails$}{:indent$}{more}", rails.below, "", rails = self.rails);
            let _ = writeln!(text, "{}", line.trim_end()); // writing to a String cannot fail
        }
    }
}

fn mark(node: &Node) -> char {
    match node.kind {
        NodeKind::Source => '▶',
        NodeKind::Queue if node.sort == "errors" => '◌',
        NodeKind::Queue => '○',
        NodeKind::Step => '◆',
        NodeKind::Sink => '■',
    }
}

/// The kind of a node, in one or two words.
fn what(node: &Node) -> String {
    match (node.kind, node.sort) {
        (NodeKind::Source | NodeKind::Sink, sort) => format!("{sort} {}", node.kind.as_str()),
        (NodeKind::Queue, "errors") => "error queue".into(),
        (kind, "") => kind.as_str().into(),
        (_, sort) => sort.into(),
    }
}

/// Facts that the lines do not show: bindings, errors, edges that lead back up, and the number of waiting
/// jobs.
fn notes(topology: &Topology, node: usize, position: &[usize]) -> Vec<String> {
    let mut notes = Vec::new();
    let bound = |binding: &str, other: usize, back: bool| {
        let name = topology.name(other);
        let turn = if back { " ↺" } else { "" };
        if binding.is_empty() || binding == name {
            format!("{name}{turn}")
        } else {
            format!("{binding}: {name}{turn}")
        }
    };
    let is_step = topology.nodes[node].kind == NodeKind::Step;
    let joins = is_step && !topology.nodes[node].sort.is_empty();
    let mut note = |arrow: &str, parts: Vec<String>| {
        if !parts.is_empty() {
            notes.push(format!("{arrow} {}", parts.join(", ")));
        }
    };
    let into = || topology.edges.iter().filter(move |edge| edge.to == node);
    let out = || topology.edges.iter().filter(move |edge| edge.from == node);
    let back = |from: usize, to: usize| position[from] >= position[to];
    let inputs = into().filter(|edge| edge.kind == EdgeKind::Input && (joins || back(edge.from, edge.to)));
    note("←", inputs.map(|edge| bound(&edge.binding, edge.from, back(edge.from, edge.to))).collect());
    let tables = into().filter(|edge| edge.kind == EdgeKind::Table);
    note("table ←", tables.map(|edge| bound(&edge.binding, edge.from, back(edge.from, edge.to))).collect());
    let outputs: Vec<_> = out().filter(|edge| edge.kind == EdgeKind::Output).collect();
    if outputs.len() > 1 || outputs.iter().any(|edge| back(edge.from, edge.to) || !edge.binding.is_empty()) {
        note(
            "→",
            outputs.iter().map(|edge| bound(&edge.binding, edge.to, back(edge.from, edge.to))).collect(),
        );
    }
    let errors = out().filter(|edge| edge.kind == EdgeKind::Errors);
    note("errors ┄▷", errors.map(|edge| topology.name(edge.to)).collect());
    let events = out().filter(|edge| edge.kind == EdgeKind::Events);
    note("events ┄▷", events.map(|edge| topology.name(edge.to)).collect());
    if topology.nodes[node].kind == NodeKind::Queue {
        let returns = into().filter(|edge| edge.kind == EdgeKind::Output && back(edge.from, edge.to));
        note("↺ from", returns.map(|edge| topology.name(edge.from)).collect());
        let failing = into().filter(|edge| edge.kind == EdgeKind::Errors);
        note("errors of", failing.map(|edge| topology.name(edge.from)).collect());
        let events = into().filter(|edge| edge.kind == EdgeKind::Events);
        note("events of", events.map(|edge| topology.name(edge.from)).collect());
    }
    notes.extend(topology.nodes[node].delivery.map(str::to_owned));
    let order = topology.nodes[node].order.filter(|order| *order != OutputOrder::AsInputs);
    notes.extend(order.map(|order| order.as_str().to_owned()));
    notes.extend(depth(topology, node));
    let last = notes.len().saturating_sub(1);
    // A note, and a part of one, may be on a line of its own.
    notes.iter_mut().take(last).for_each(|note| note.push_str("  "));
    notes
}

/// The number of jobs that wait on a queue, and the steps that they wait for.
fn depth(topology: &Topology, node: usize) -> Option<String> {
    let kept = topology.nodes[node].kept?;
    let reads = topology.edges.iter().filter(|edge| edge.from == node);
    let waiting: Vec<String> = reads
        .filter_map(|edge| Some(format!("{} for {}", grouped(edge.waiting?), topology.name(edge.to))))
        .collect();
    Some(if waiting.is_empty() {
        format!("{} kept", grouped(kept))
    } else {
        format!("waiting: {}", waiting.join(", "))
    })
}
