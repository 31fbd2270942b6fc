//! `Outputs`: the outputs of a step, as one list of payloads per binding.

use crate::Payloads;

/// The outputs of one or more jobs, by binding. A step with one output has one binding, and its name does not
/// matter.
#[derive(Debug, Default)]
pub struct Outputs {
    bindings: Vec<(Box<str>, Payloads)>,
    delayed: Delayed,
}

/// Outputs that wait until they are due, in the order in which they were given. Takes no memory while it is
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delayed {
    /// The binding and the due time of each payload, in milliseconds since 1970.
    places: Vec<(usize, i64)>,
    payloads: Payloads,
}

/// A point to return to, so that a failed attempt leaves no output.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    lengths: Vec<usize>,
    delayed: usize,
}

impl Checkpoint {
    /// Number of payloads of each binding.
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
        Self { bindings, delayed: Delayed::default() }
    }

    /// Number of bindings.
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

    /// The payloads of the binding at `position` so far.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<&Payloads> {
        self.bindings.get(position).map(|(_, payloads)| payloads)
    }

    /// The list to push to for the binding at `position`.
    pub fn get_mut(&mut self, position: usize) -> Option<&mut Payloads> {
        self.bindings.get_mut(position).map(|(_, payloads)| payloads)
    }

    /// Adds a payload to every binding.
    pub fn push_to_all(&mut self, payload: &[u8]) {
        self.bindings.iter_mut().for_each(|(_, payloads)| payloads.push(payload));
    }

    /// The outputs that wait until they are due.
    #[must_use]
    pub fn delayed(&self) -> &Delayed {
        &self.delayed
    }

    /// The list for outputs that wait until they are due.
    pub fn delayed_mut(&mut self) -> &mut Delayed {
        &mut self.delayed
    }

    /// Appends the delayed outputs of `other`, each to the binding of the same name. Outputs without such a
    /// binding are left out.
    pub fn append_delayed(&mut self, other: &Outputs) {
        for (position, due_ms, payload) in other.delayed.iter() {
            let name = other.bindings.get(position).map(|(name, _)| &**name);
            if let Some(position) = name.and_then(|name| self.position(name)) {
                self.delayed.push(position, due_ms, payload);
            }
        }
    }

    /// Number of payloads of all bindings, without delayed ones.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bindings.iter().map(|(_, payloads)| payloads.len()).sum()
    }

    /// Records the present lengths, reusing `checkpoint`'s memory.
    pub fn mark(&self, checkpoint: &mut Checkpoint) {
        checkpoint.lengths.clear();
        checkpoint.lengths.extend(self.bindings.iter().map(|(_, payloads)| payloads.len()));
        checkpoint.delayed = self.delayed.len();
    }

    /// Drops everything pushed since `checkpoint` was marked.
    pub fn roll_back(&mut self, checkpoint: &Checkpoint) {
        for ((_, payloads), &length) in self.bindings.iter_mut().zip(&checkpoint.lengths) {
            payloads.truncate(length);
        }
        self.delayed.truncate(checkpoint.delayed);
    }

    /// Drops every payload and keeps the memory.
    pub fn clear(&mut self) {
        self.bindings.iter_mut().for_each(|(_, payloads)| payloads.clear());
        self.delayed.truncate(0);
    }

    /// Removes and returns all payloads, in the order of the bindings. Delayed outputs are lost, and must be
    /// taken first (see [`Self::into_parts`]).
    #[must_use]
    pub fn into_payloads(self) -> Vec<Payloads> {
        self.into_parts().0
    }

    /// Removes and returns all payloads, in the order of the bindings, and the delayed ones.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Payloads>, Delayed) {
        (self.bindings.into_iter().map(|(_, payloads)| payloads).collect(), self.delayed)
    }
}

impl Delayed {
    /// Number of payloads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The payloads alone.
    #[must_use]
    pub fn payloads(&self) -> &Payloads {
        &self.payloads
    }

    /// Each payload after the position of its binding, and its due time in milliseconds since 1970.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, i64, &[u8])> {
        self.places
            .iter()
            .zip(self.payloads.iter())
            .map(|(&(position, due_ms), payload)| (position, due_ms, payload))
    }

    /// Adds a payload for the binding at `position`, due at `due_ms`.
    pub fn push(&mut self, position: usize, due_ms: i64, payload: &[u8]) {
        self.payloads.push(payload);
        self.places.push((position, due_ms));
    }

    /// As [`Self::push`], with a payload that `write` appends to the buffer. If it fails, no part of it
    /// stays.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn push_with<E>(
        &mut self,
        position: usize,
        due_ms: i64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.payloads.push_with(write)?;
        self.places.push((position, due_ms));
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.places.truncate(len);
        self.payloads.truncate(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_delayed_goes_with_the_attempt() {
        let mut outputs = Outputs::new(["a", "b"]);
        let mut checkpoint = Checkpoint::default();
        outputs.delayed_mut().push(1, 500, b"kept");
        outputs.mark(&mut checkpoint);
        outputs.delayed_mut().push(0, 100, b"gone");
        let failed = outputs.delayed_mut().push_with(0, 200, |buffer| {
            buffer.extend_from_slice(b"half");
            Err("broken")
        });
        assert_eq!(failed, Err("broken"));
        outputs.roll_back(&checkpoint);
        assert_eq!(outputs.total(), 0);
        let (payloads, delayed) = outputs.into_parts();
        assert_eq!(payloads.len(), 2);
        assert_eq!(delayed.iter().collect::<Vec<_>>(), [(1, 500, &b"kept"[..])]);
    }

    #[test]
    fn what_is_delayed_finds_its_binding_by_name() {
        let mut from = Outputs::new(["", "b", "gone"]);
        for position in 0..3 {
            from.delayed_mut().push(position, 7, b"x");
        }
        let mut to = Outputs::new(["a", "b"]);
        to.append_delayed(&from);
        assert_eq!(to.delayed().iter().collect::<Vec<_>>(), [(1, 7, &b"x"[..])]);
        to.clear();
        assert!(to.delayed().is_empty());
    }
}
