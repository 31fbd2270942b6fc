//! `NameHistory`: the names that parts had in earlier generations.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::Address;
use crate::part_names::{NamedKind, RenamedPart};

/// All renames, each with the number of the generation that made it, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameHistory(Vec<(u64, RenamedPart)>);

/// Names as they were in one generation.
#[derive(Clone, Copy, Debug)]
pub struct NamesSince<'h> {
    history: &'h NameHistory,
    generation: u64,
}

impl NameHistory {
    pub fn add(&mut self, generation: u64, renamed: impl IntoIterator<Item = RenamedPart>) {
        self.0.extend(renamed.into_iter().map(|part| (generation, part)));
    }

    /// The renames of one generation.
    pub fn of(&self, generation: u64) -> impl Iterator<Item = &RenamedPart> {
        self.0.iter().filter(move |(made, _)| *made == generation).map(|(_, part)| part)
    }

    /// Parts that one of these rollbacks gave an earlier name back, by the later name that they had before.
    #[must_use]
    pub fn returned(&self, rollbacks: &BTreeSet<u64>) -> BTreeMap<(NamedKind, Address), Address> {
        let mut returned: BTreeMap<(NamedKind, Address), Address> = BTreeMap::new();
        for (generation, RenamedPart { kind, from, to }) in &self.0 {
            // A part of this name is there again.
            returned.remove(&(*kind, to.clone()));
            let moved = returned.iter_mut().filter(|((of, _), name)| of == kind && *name == from);
            moved.for_each(|(_, name)| name.clone_from(to));
            if rollbacks.contains(generation) {
                returned.insert((*kind, from.clone()), to.clone());
            }
        }
        returned
    }

    /// The present names of the parts of this generation.
    #[must_use]
    pub fn since(&self, generation: u64) -> NamesSince<'_> {
        NamesSince { history: self, generation }
    }

    /// The first name of the queue, source or sink that has this name now. The number distinguishes it from earlier ones
    /// of that name: the generation that renamed the last of them, or 0.
    #[must_use]
    pub fn first_name(&self, address: &Address) -> (Address, u64) {
        let (mut name, mut earlier) = (address.clone(), &self.0[..]);
        let is_endpoint = |part: &RenamedPart| part.kind == NamedKind::Endpoint;
        while let Some(at) =
            earlier.iter().rposition(|(_, part)| is_endpoint(part) && (part.to == name || part.from == name))
        {
            let (generation, part) = &earlier[at];
            if part.to != name {
                // An earlier one of this name became another one.
                return (name, *generation);
            }
            name = part.from.clone();
            earlier = &earlier[..at];
        }
        (name, 0)
    }

    /// The names that a step and one of its inputs had at the same time, the present ones first. `input`: as in delivery
    /// hashes.
    #[must_use]
    pub fn names_of(&self, step: &Address, input: &str) -> Vec<(Address, String)> {
        let mut names = vec![(step.clone(), input.to_owned())];
        let (mut step, mut input) = (step.clone(), input.to_owned());
        for of_generation in self.0.chunk_by(|(one, _), (other, _)| one == other).rev() {
            let (is_step, now) =
                (|part: &RenamedPart| part.kind == NamedKind::Step, (step.clone(), input.clone()));
            let mut before = now.clone();
            for (_, part) in of_generation {
                if is_step(part) && part.to == now.0 {
                    before.0 = part.from.clone();
                } else if !is_step(part) {
                    before.1 = renamed_input(&now.1, &part.to, &part.from).unwrap_or(before.1);
                }
            }
            let has_other = |(_, part): &(u64, RenamedPart)| is_step(part) && part.from == before.0;
            if before.0 == now.0 && of_generation.iter().any(has_other) {
                // An earlier step of this name became another one.
                break;
            }
            if before != now {
                names.push(before.clone());
            }
            (step, input) = before;
        }
        names
    }

    /// Whether the queue, source or sink of this name had the name `earlier` once.
    #[must_use]
    pub fn had_name(&self, address: &Address, earlier: &Address) -> bool {
        let mut name = address;
        for (_, part) in self.0.iter().rev().filter(|(_, part)| part.kind == NamedKind::Endpoint) {
            if part.to == *name {
                name = &part.from;
                if name == earlier {
                    return true;
                }
            } else if part.from == *name {
                // An earlier one of this name became another one.
                return false;
            }
        }
        false
    }
}

impl<'h> NamesSince<'h> {
    /// Whether no part was renamed.
    #[must_use]
    pub fn are_the_same(self) -> bool {
        self.later().next().is_none()
    }

    #[must_use]
    pub fn step(self, address: &Address) -> Address {
        self.now(NamedKind::Step, address)
    }

    /// The name of a queue, source or sink.
    #[must_use]
    pub fn endpoint(self, address: &Address) -> Address {
        self.now(NamedKind::Endpoint, address)
    }

    /// The name of an input in delivery hashes: that of a binding, the address of the input, or both.
    #[must_use]
    pub fn input(self, name: &str) -> String {
        let (binding, address) = parts_of_input(name);
        match Address::parse(address).filter(|_| !self.are_the_same()) {
            Some(address) => format!("{binding}{}", self.endpoint(&address)),
            None => name.to_owned(),
        }
    }

    /// The name of a part.
    #[must_use]
    pub fn now(self, kind: NamedKind, address: &Address) -> Address {
        let renamed = self.later().filter(|part| part.kind == kind);
        renamed.fold(address.clone(), |name, part| if part.from == name { part.to.clone() } else { name })
    }

    fn later(self) -> impl Iterator<Item = &'h RenamedPart> {
        self.history.0.iter().filter(move |(made, _)| *made > self.generation).map(|(_, part)| part)
    }
}

/// The name of an input in delivery hashes, as its binding with `=`, and its address. One of them may be empty.
fn parts_of_input(name: &str) -> (&str, &str) {
    name.split_at(name.find('=').map_or(0, |at| at + 1))
}

/// The name of an input when its address was `from` and not `to`; `None` if it has another address.
fn renamed_input(name: &str, to: &Address, from: &Address) -> Option<String> {
    let (binding, address) = parts_of_input(name);
    (address == to.to_string()).then(|| format!("{binding}{from}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Address {
        Address::parse(&format!("p/{name}")).unwrap()
    }

    #[test]
    fn a_part_that_a_rollback_renamed_has_its_later_name_again_wherever_it_went() {
        let part = |from, to| RenamedPart { kind: NamedKind::Step, from: address(from), to: address(to) };
        let mut history = NameHistory::default();
        history.add(2, [part("a", "b")]);
        let of = |history: &NameHistory, name: &str| {
            history.returned(&BTreeSet::from([3])).get(&(NamedKind::Step, address(name))).cloned()
        };
        assert_eq!(of(&history, "a"), None);
        history.add(3, [part("b", "a")]);
        assert_eq!((of(&history, "b"), of(&history, "a")), (Some(address("a")), None));
        history.add(4, [part("a", "c")]);
        assert_eq!(of(&history, "b"), Some(address("c")));
        history.add(5, [part("c", "b")]);
        assert_eq!(of(&history, "b"), None);
    }

    #[test]
    fn a_part_had_the_names_that_it_was_renamed_from_and_not_those_of_an_earlier_part() {
        let history = history();
        let had = |name: &str, earlier: &str| history.had_name(&address(name), &address(earlier));
        assert!(had("c", "b") && had("c", "a") && had("d", "a"));
        assert!(!had("a", "a") && !had("b", "a") && !had("d", "b") && !had("c", "d"));
        assert!(!NameHistory::default().had_name(&address("b"), &address("a")));
    }

    /// `a` became `b` in generation 2, and `b` became `c` in generation 4. Another `a` became `d` in generation 5.
    fn history() -> NameHistory {
        let mut history = NameHistory::default();
        for (generation, from, to) in [(2, "a", "b"), (4, "b", "c"), (5, "a", "d")] {
            let (from, to) = (address(from), address(to));
            history.add(generation, [RenamedPart { kind: NamedKind::Endpoint, from, to }]);
        }
        history
    }

    #[test]
    fn a_name_of_a_generation_has_a_present_one() {
        let history = history();
        let now = |generation, name| history.since(generation).endpoint(&address(name)).name.to_string();
        assert_eq!(
            [now(1, "a"), now(2, "b"), now(3, "b"), now(3, "a"), now(5, "a")],
            ["c", "c", "c", "d", "a"]
        );
        assert_eq!(history.since(1).step(&address("a")), address("a"));
        assert_eq!((history.since(1).input("p/a"), history.since(1).input("a")), ("p/c".into(), "a".into()));
        assert_eq!(history.since(1).input("b=p/a"), "b=p/c");
    }

    #[test]
    fn parts_that_had_the_same_name_one_after_the_other_are_distinguished() {
        let first = |name| history().first_name(&address(name));
        assert_eq!(first("c"), (address("a"), 0));
        assert_eq!(first("d"), (address("a"), 2));
        assert_eq!(first("a"), (address("a"), 5));
        assert_eq!(first("b"), (address("b"), 4));
        assert_eq!(first("x"), (address("x"), 0));
    }

    #[test]
    fn the_names_of_a_step_and_its_input_go_back_together_to_the_first_ones() {
        let part = |kind, from, to| RenamedPart { kind, from: address(from), to: address(to) };
        let (step, endpoint) = (NamedKind::Step, NamedKind::Endpoint);
        let mut history = NameHistory::default();
        // Another step had the name before.
        history.add(1, [part(step, "c", "other")]);
        history.add(2, [part(step, "a", "b"), part(endpoint, "in", "web")]);
        history.add(3, [part(endpoint, "web", "net"), part(endpoint, "else", "more")]);
        history.add(4, [part(step, "b", "c")]);
        let names = |input: &str| -> Vec<(String, String)> {
            let names = history.names_of(&address("c"), input).into_iter();
            names.map(|(step, input)| (step.name.to_string(), input)).collect()
        };
        let expected = |names: &[(&str, &str)]| -> Vec<(String, String)> {
            names.iter().map(|(step, input)| ((*step).to_owned(), (*input).to_owned())).collect()
        };
        let all = [("c", "p/net"), ("b", "p/net"), ("b", "p/web"), ("a", "p/in")];
        assert_eq!(names("p/net"), expected(&all));
        assert_eq!(names("x=p/net")[3], ("a".to_owned(), "x=p/in".to_owned()));
        assert_eq!(names("x"), expected(&[("c", "x"), ("b", "x"), ("a", "x")]));
    }
}
