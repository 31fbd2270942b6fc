//! Where a step puts what it makes: one list of payloads a binding.

use crate::Payloads;

/// The outputs of one or more jobs, by binding. A step with one output has one binding, and its
/// name does not matter.
#[derive(Debug, Default)]
pub struct Outputs {
    bindings: Vec<(Box<str>, Payloads)>,
}

/// A point to go back to, so that an attempt that fails half-way leaves no output behind.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    lengths: Vec<usize>,
}

impl Checkpoint {
    /// How many payloads each binding had.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }
}

impl Outputs {
    /// Empty outputs for the bindings of a step, in the order they are declared.
    #[must_use]
    pub fn new<'a>(bindings: impl IntoIterator<Item = &'a str>) -> Self {
        let bindings = bindings.into_iter().map(|binding| (Box::from(binding), Payloads::new())).collect();
        Self { bindings }
    }

    /// How many bindings there are.
    #[must_use]
    pub fn bindings(&self) -> usize {
        self.bindings.len()
    }

    /// The names of the bindings, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.bindings.iter().map(|(name, _)| &**name)
    }

    /// The position of the binding called `name`, if the step has it.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.bindings.iter().position(|(binding, _)| **binding == *name)
    }

    /// What stands at the binding at `position` so far.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<&Payloads> {
        self.bindings.get(position).map(|(_, payloads)| payloads)
    }

    /// The list to push to for the binding at `position`.
    pub fn get_mut(&mut self, position: usize) -> Option<&mut Payloads> {
        self.bindings.get_mut(position).map(|(_, payloads)| payloads)
    }

    /// How many payloads all bindings hold together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bindings.iter().map(|(_, payloads)| payloads.len()).sum()
    }

    /// Remembers how much there is now, reusing `checkpoint`'s memory.
    pub fn mark(&self, checkpoint: &mut Checkpoint) {
        checkpoint.lengths.clear();
        checkpoint.lengths.extend(self.bindings.iter().map(|(_, payloads)| payloads.len()));
    }

    /// Drops everything pushed since `checkpoint` was marked.
    pub fn roll_back(&mut self, checkpoint: &Checkpoint) {
        for ((_, payloads), &length) in self.bindings.iter_mut().zip(&checkpoint.lengths) {
            payloads.truncate(length);
        }
    }

    /// Drops every payload and keeps the memory.
    pub fn clear(&mut self) {
        self.bindings.iter_mut().for_each(|(_, payloads)| payloads.clear());
    }

    /// Takes out all payloads, in the order of the bindings.
    #[must_use]
    pub fn into_payloads(self) -> Vec<Payloads> {
        self.bindings.into_iter().map(|(_, payloads)| payloads).collect()
    }
}
