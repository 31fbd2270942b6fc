//! `Topology`: a configuration as nodes and edges, with the number of waiting jobs if it is known.
//!
//! Every drawing starts from it, and none reads the configuration.

use std::collections::{BTreeMap, BTreeSet};

use crate::query::{QueueStatus, StepStatus};
use tidegate_config::{
    Configuration, DeliveryGuarantee, Input, InputMode, OutputOrder, SinkKind, SourceKind, Step, Target,
};
use tidegate_model::Address;

#[derive(Clone, Debug)]
pub(crate) struct Topology {
    /// Sources, queues, steps and sinks, each in the order of the configuration.
    pub(crate) nodes: Vec<Node>,
    /// In the order of the steps that they belong to.
    pub(crate) edges: Vec<Edge>,
    /// Names alone would be ambiguous.
    pub(crate) several_pipelines: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) address: Address,
    /// The kind of a node: `file`, `stdout`, `join`, `alts`, `errors`; empty if the node needs no word.
    pub(crate) sort: &'static str,
    /// The delivery guarantee of a step, if it is not exactly-once.
    pub(crate) delivery: Option<&'static str>,
    /// The order of a step's outputs.
    pub(crate) order: Option<OutputOrder>,
    /// Number of jobs that a queue holds, if it was requested.
    pub(crate) kept: Option<u64>,
    /// The sink whose `from` implies this step.
    implied_by: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeKind {
    Queue,
    Source,
    Step,
    Sink,
}

/// An edge along which jobs flow from one node to another. Nodes are positions in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: EdgeKind,
    /// The name of the edge in the step; empty if it has none.
    pub(crate) binding: String,
    /// Number of jobs that wait on the edge, if it was requested and is known.
    pub(crate) waiting: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    Input,
    /// Scripts look up the jobs of the queue in a table of this name.
    Table,
    Output,
    Errors,
    Events,
}

/// The numbers of waiting and kept jobs, by the names in answers.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    /// By step and input.
    pub(crate) waiting: BTreeMap<(String, String), u64>,
    /// By queue.
    pub(crate) kept: BTreeMap<String, u64>,
}

impl EdgeKind {
    /// Whether records flow along the edge, beside the jobs.
    pub(crate) fn is_record(self) -> bool {
        matches!(self, Self::Errors | Self::Events)
    }
}

impl NodeKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Queue => "queue",
            Self::Step => "step",
            Self::Sink => "sink",
        }
    }
}

impl Node {
    /// A unique name of the node.
    pub(crate) fn id(&self) -> String {
        format!("{}:{}", self.kind.as_str(), self.address)
    }
}

impl Edge {
    /// The text beside the edge: its binding, and the number of waiting jobs.
    pub(crate) fn label(&self) -> String {
        let waiting = self.waiting.map(|waiting| format!("{waiting} waiting"));
        let binding = (!self.binding.is_empty()).then(|| self.binding.clone());
        binding.into_iter().chain(waiting).collect::<Vec<_>>().join(", ")
    }
}

impl Depths {
    pub(crate) fn of(steps: &[StepStatus], queues: &[QueueStatus]) -> Self {
        let waiting = steps.iter().filter_map(|step| {
            step.waiting.map(|waiting| ((step.step.clone(), step.input.clone()), waiting))
        });
        let kept = queues.iter().map(|queue| (queue.queue.clone(), queue.jobs));
        Self { waiting: waiting.collect(), kept: kept.collect() }
    }
}

impl Topology {
    pub(crate) fn of(configuration: &Configuration, depths: Option<&Depths>) -> Self {
        let node = |kind, address: &Address, sort| Node {
            kind,
            address: address.clone(),
            sort,
            delivery: None,
            order: None,
            kept: None,
            implied_by: None,
        };
        let mut nodes = Vec::new();
        for source in &configuration.sources {
            let sort = match source.kind {
                SourceKind::File(_) => "file",
                SourceKind::Service(_) => "http-pull",
            };
            nodes.push(node(NodeKind::Source, &source.address, sort));
        }
        let queues = nodes.len();
        for queue in &configuration.queues {
            let sort = match (queue.holds_errors, queue.holds_events) {
                (true, _) => "errors",
                (false, true) => "events",
                (false, false) => "",
            };
            let kept = depths.map(|depths| depths.kept.get(&queue.address.to_string()).copied().unwrap_or(0));
            // A pushed source is its own queue.
            let node = match &queue.source {
                Some(source) => node(NodeKind::Source, &queue.address, source.sort()),
                None => node(NodeKind::Queue, &queue.address, sort),
            };
            nodes.push(Node { kept, ..node });
        }
        let steps = nodes.len();
        let sinks = steps + configuration.steps.len();
        for step in &configuration.steps {
            let implied_by = implied_by(step, configuration).map(|sink| sinks + sink);
            let delivery = promise(step.delivery);
            let sort = if step.joins.is_some() { "join" } else { take(step.take) };
            let order = Some(step.order());
            nodes.push(Node { delivery, order, implied_by, ..node(NodeKind::Step, &step.address, sort) });
        }
        for sink in &configuration.sinks {
            let sort = match sink.kind {
                SinkKind::File(_) => "file",
                SinkKind::Stdout(_) => "stdout",
                SinkKind::Http(_) => "http",
                SinkKind::Null => "null",
            };
            nodes.push(node(NodeKind::Sink, &sink.address, sort));
        }
        let mut edges = Vec::new();
        for (step, at) in configuration.steps.iter().zip(steps..) {
            for input in &step.inputs {
                let (from, waiting) = match input.input {
                    Input::Source(source) => (source.0, None),
                    Input::Queue(queue) => {
                        let key = (step.address.to_string(), input.address.to_string());
                        let waiting = depths.map(|depths| depths.waiting.get(&key).copied().unwrap_or(0));
                        (queues + queue.0, waiting)
                    }
                };
                let binding = input.binding.clone();
                edges.push(Edge { from, to: at, kind: EdgeKind::Input, binding, waiting });
            }
            for (name, table) in configuration.tables_of(step) {
                let queue = configuration.queues.position(|queue| queue.address == table.queue);
                let Some(from) = queue.map(|queue| queues + queue) else { continue };
                let (kind, binding) = (EdgeKind::Table, name.to_string());
                let edge = Edge { from, to: at, kind, binding, waiting: None };
                // The gate may read the same table.
                if !edges.contains(&edge) {
                    edges.push(edge);
                }
            }
            for output in &step.outputs {
                let to = match output.target {
                    Target::Queue(queue) => queues + queue.0,
                    Target::Sink(sink) => sinks + sink.0,
                };
                let binding = output.binding.clone();
                edges.push(Edge { from: at, to, kind: EdgeKind::Output, binding, waiting: None });
            }
            for (queue, kind) in [(step.errors, EdgeKind::Errors), (step.events, EdgeKind::Events)] {
                if let Some(queue) = queue {
                    let (to, binding) = (queues + queue.0, String::new());
                    edges.push(Edge { from: at, to, kind, binding, waiting: None });
                }
            }
        }
        Self { nodes, edges, several_pipelines: configuration.pipelines.len() > 1 }
    }

    /// Each sink takes the place of the steps that its `from` implies, as operators see it.
    pub(crate) fn without_implied_steps(&self) -> Self {
        let mut place = Vec::with_capacity(self.nodes.len());
        let mut nodes = Vec::new();
        for node in &self.nodes {
            place.push(nodes.len());
            if node.implied_by.is_none() {
                nodes.push(node.clone());
            }
        }
        let moved = |node: usize| place[self.nodes[node].implied_by.unwrap_or(node)];
        let mut edges: Vec<Edge> = Vec::new();
        for edge in &self.edges {
            let edge = Edge { from: moved(edge.from), to: moved(edge.to), ..edge.clone() };
            // Drops the edge of a sink to itself, and errors that several of its steps send to one queue.
            if edge.from != edge.to && !edges.contains(&edge) {
                edges.push(edge);
            }
        }
        for (node, at) in self.nodes.iter().zip(0..) {
            if node.implied_by.is_some() && node.delivery.is_some() {
                nodes[moved(at)].delivery = node.delivery;
            }
        }
        Self { nodes, edges, ..*self }
    }

    pub(crate) fn pipelines(&self) -> BTreeSet<&str> {
        self.nodes.iter().map(|node| node.address.pipeline.as_str()).collect()
    }

    /// The name for people, with its pipeline if there are several.
    pub(crate) fn name(&self, node: usize) -> String {
        let address = &self.nodes[node].address;
        if self.several_pipelines { address.to_string() } else { address.name.to_string() }
    }

    /// The direct successors of each node, each once.
    pub(crate) fn next(&self) -> Vec<Vec<usize>> {
        let mut next = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            if !next[edge.from].contains(&edge.to) {
                next[edge.from].push(edge.to);
            }
        }
        next
    }

    /// All nodes that jobs of each node may reach; itself too, in a cycle.
    pub(crate) fn downstream(&self) -> Vec<BTreeSet<usize>> {
        let next = self.next();
        let reach = |start: usize| {
            let mut found = BTreeSet::new();
            let mut waiting = vec![start];
            while let Some(node) = waiting.pop() {
                waiting.extend(next[node].iter().copied().filter(|&after| found.insert(after)));
            }
            found
        };
        (0..self.nodes.len()).map(reach).collect()
    }
}

/// The sink whose `from` implies this step, which only passes jobs to a sink of the same name.
fn implied_by(step: &Step, configuration: &Configuration) -> Option<usize> {
    let [output] = &step.outputs[..] else { return None };
    let Target::Sink(sink) = output.target else { return None };
    let address = &configuration.sinks[sink.0].address;
    let rest = step.address.name.as_str().strip_prefix(address.name.as_str())?;
    let filter = &step.filter;
    let is_plain = step.processors.is_empty()
        && step.take == InputMode::From
        && filter.types.is_empty()
        && filter.topics.is_empty()
        && filter.when.is_none();
    let is_named_so = rest.is_empty() || rest.starts_with('-');
    (is_plain && is_named_so && address.pipeline == step.address.pipeline && output.binding.is_empty())
        .then_some(sink.0)
}

fn take(take: InputMode) -> &'static str {
    match take {
        InputMode::From => "",
        InputMode::Join => "join",
        InputMode::Alts => "alts",
    }
}

fn promise(promise: DeliveryGuarantee) -> Option<&'static str> {
    match promise {
        DeliveryGuarantee::ExactlyOnce => None,
        DeliveryGuarantee::AtLeastOnce => Some("at-least-once"),
        DeliveryGuarantee::AtMostOnce => Some("at-most-once"),
    }
}
