//! Positions: give each part of a configuration the position that it had in earlier configurations of the process.

use std::collections::HashMap;
use std::hash::Hash;

use super::{Configuration, GateRef, Input, QueueRef, SinkRef, SourceRef, Target};
use tidegate_model::{Address, Name, NamedKind, Parts, RenamedPart};

/// Positions of all parts that any configuration of this process had. None is given twice.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    sources: Register<Address>,
    queues: Register<Address>,
    sinks: Register<Address>,
    gates: Register<(Option<Name>, Name)>,
    steps: Register<Address>,
}

/// Positions of the parts of one kind.
#[derive(Clone, Debug)]
struct Register<K> {
    positions: HashMap<K, usize>,
    next: usize,
}

impl<K> Default for Register<K> {
    fn default() -> Self {
        Self { positions: HashMap::new(), next: 0 }
    }
}

impl<K: Clone + Eq + Hash> Register<K> {
    /// Gives a part the position that it had under its former name.
    fn rename(&mut self, from: &K, to: &K) {
        if let Some(position) = self.positions.remove(from) {
            self.positions.insert(to.clone(), position);
        }
    }

    /// Moves the parts to their positions. Returns the new position of each old one.
    fn place<T>(&mut self, parts: &mut Parts<T>, key: impl Fn(&T) -> K) -> HashMap<usize, usize> {
        let mut moved = HashMap::new();
        let placed: Vec<(usize, T)> = std::mem::take(parts)
            .into_iter()
            .map(|(before, part)| {
                let position = *self.positions.entry(key(&part)).or_insert(self.next);
                self.next = self.next.max(position + 1);
                moved.insert(before, position);
                (position, part)
            })
            .collect();
        *parts = Parts::at(placed);
        moved
    }
}

impl Positions {
    /// The positions of the first configuration.
    #[must_use]
    pub fn of(configuration: &Configuration) -> Self {
        let mut positions = Self::default();
        configuration.clone().keep_positions(&mut positions);
        positions
    }

    /// Gives renamed parts the positions that they had before.
    pub fn rename(&mut self, renamed: &[RenamedPart]) {
        for RenamedPart { kind, from, to } in renamed {
            match kind {
                NamedKind::Step => self.steps.rename(from, to),
                NamedKind::Endpoint => {
                    self.sources.rename(from, to);
                    self.queues.rename(from, to);
                    self.sinks.rename(from, to);
                }
            }
        }
    }
}

impl Configuration {
    /// Moves all parts to the positions that they have in `positions`, and adds the parts that are new there.
    pub fn keep_positions(&mut self, positions: &mut Positions) {
        let sources = positions.sources.place(&mut self.sources, |source| source.address.clone());
        let queues = positions.queues.place(&mut self.queues, |queue| queue.address.clone());
        let sinks = positions.sinks.place(&mut self.sinks, |sink| sink.address.clone());
        let gates = positions.gates.place(&mut self.gates, |gate| (gate.pipeline.clone(), gate.name.clone()));
        positions.steps.place(&mut self.steps, |step| step.address.clone());
        for step in self.steps.iter_mut() {
            for input in &mut step.inputs {
                input.input = match input.input {
                    Input::Source(SourceRef(source)) => Input::Source(SourceRef(sources[&source])),
                    Input::Queue(QueueRef(queue)) => Input::Queue(QueueRef(queues[&queue])),
                };
            }
            for output in &mut step.outputs {
                output.target = match output.target {
                    Target::Queue(QueueRef(queue)) => Target::Queue(QueueRef(queues[&queue])),
                    Target::Sink(SinkRef(sink)) => Target::Sink(SinkRef(sinks[&sink])),
                };
            }
            step.errors = step.errors.map(|QueueRef(queue)| QueueRef(queues[&queue]));
            step.events = step.events.map(|QueueRef(queue)| QueueRef(queues[&queue]));
            step.gate = step.gate.map(|GateRef(gate)| GateRef(gates[&gate]));
        }
        self.derive();
    }
}
