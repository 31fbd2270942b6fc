//! `PartNames`: the parts of a configuration or of a store, and `RenamedPart`: one that has another name now.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::Address;

/// The kind of a part with a state. A step may have the name of a queue, source or sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamedKind {
    Step,
    /// A queue, source or sink.
    Endpoint,
}

/// A part under a new address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedPart {
    pub kind: NamedKind,
    pub from: Address,
    pub to: Address,
}

/// The parts of a configuration, or those that a store has something of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartNames {
    pub steps: BTreeSet<Address>,
    /// Pulled sources.
    pub sources: BTreeSet<Address>,
    /// Queues, also those of pushed sources.
    pub queues: BTreeSet<Address>,
    pub sinks: BTreeSet<Address>,
    /// Inputs on which steps have progress, of any kind.
    pub inputs: BTreeSet<Address>,
    /// The inputs of each step, or those on which it has progress.
    pub step_inputs: BTreeMap<Address, BTreeSet<Address>>,
    /// Parts that have an earlier name again, by the later name.
    pub returned: BTreeMap<(NamedKind, Address), Address>,
}

impl PartNames {
    #[must_use]
    pub fn has(&self, kind: NamedKind, address: &Address) -> bool {
        match kind {
            NamedKind::Step => self.steps.contains(address),
            NamedKind::Endpoint => self.endpoints().any(|names| names.contains(address)),
        }
    }

    /// All parts, some of them several times.
    pub fn all(&self) -> impl Iterator<Item = (NamedKind, &Address)> {
        let steps = self.steps.iter().map(|step| (NamedKind::Step, step));
        steps.chain(self.endpoints().flatten().map(|address| (NamedKind::Endpoint, address)))
    }

    fn endpoints(&self) -> impl Iterator<Item = &BTreeSet<Address>> {
        [&self.sources, &self.queues, &self.sinks, &self.inputs].into_iter()
    }
}
