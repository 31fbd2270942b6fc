//! Order of the nodes in a drawing: puts producers above their consumers, and connected nodes close together.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::topology::{NodeKind, Topology};

/// Every node once. In a cycle one edge leads back up.
pub(crate) fn order(topology: &Topology) -> Vec<usize> {
    let count = topology.nodes.len();
    let mut before = vec![Vec::new(); count];
    let mut follows = vec![Vec::new(); count];
    for edge in &topology.edges {
        before[edge.to].push(edge.from);
        if !edge.kind.is_record() {
            follows[edge.from].push(edge.to);
        }
    }
    let ordering =
        Ordering { topology, before, follows, downstream: topology.downstream(), placed: vec![false; count] };
    ordering.run()
}

struct Ordering<'t> {
    topology: &'t Topology,
    before: Vec<Vec<usize>>,
    /// Successors, without error queues, which are drawn apart.
    follows: Vec<Vec<usize>>,
    downstream: Vec<BTreeSet<usize>>,
    placed: Vec<bool>,
}

impl Ordering<'_> {
    fn run(mut self) -> Vec<usize> {
        let mut order = Vec::new();
        while let Some(node) = self.after(&order).or_else(|| self.root()).or_else(|| self.entry()) {
            self.placed[node] = true;
            order.push(node);
        }
        order
    }

    /// The successor of the latest node that has one whose inputs are all drawn; short paths come first.
    fn after(&self, order: &[usize]) -> Option<usize> {
        order.iter().rev().find_map(|&node| {
            let ready = self.follows[node].iter().copied().filter(|&next| self.is_ready(next));
            ready.min_by_key(|&next| (self.downstream[next].len(), next))
        })
    }

    /// A node without undrawn inputs. The first choice is one that a drawn line waits for, then the node with
    /// the most successors; error queues are last.
    fn root(&self) -> Option<usize> {
        let drawn = self.follows.iter().zip(&self.placed).filter(|(_, placed)| **placed);
        let waits: BTreeSet<usize> =
            drawn.flat_map(|(next, _)| next).copied().filter(|&node| !self.placed[node]).collect();
        let roots = (0..self.placed.len()).filter(|&node| self.is_ready(node));
        roots.min_by_key(|&node| {
            let helps = !self.downstream[node].is_disjoint(&waits);
            let errors = self.topology.nodes[node].kind == NodeKind::Queue && !self.before[node].is_empty();
            (errors, !helps, Reverse(self.downstream[node].len()), node)
        })
    }

    /// The entry of a cycle: every undrawn node that feeds it comes after it.
    fn entry(&self) -> Option<usize> {
        let open = (0..self.placed.len()).filter(|&node| {
            let mut left = self.before[node].iter().filter(|&&feeds| !self.placed[feeds]);
            !self.placed[node] && left.all(|feeds| self.downstream[node].contains(feeds))
        });
        open.min_by_key(|&node| {
            let is_fed = self.before[node].iter().any(|&feeds| self.placed[feeds]);
            (!is_fed, self.topology.nodes[node].kind, node)
        })
    }

    fn is_ready(&self, node: usize) -> bool {
        !self.placed[node] && self.before[node].iter().all(|&feeds| self.placed[feeds])
    }
}
