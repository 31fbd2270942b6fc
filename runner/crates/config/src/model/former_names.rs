//! `FormerNames`: the `was` of steps, queues, sources and pipelines, and the renames that follow from them.

use std::collections::{BTreeMap, BTreeSet};

use super::Configuration;
use tidegate_model::{Address, Name, NamedKind, PartNames, RenamedPart};

/// All `was` of a configuration, by the name that the part has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormerNames {
    pub pipelines: BTreeMap<Name, Name>,
    pub steps: BTreeMap<Address, Address>,
    /// Queues and sources.
    pub endpoints: BTreeMap<Address, Address>,
}

impl FormerNames {
    fn of_kind(&self, kind: NamedKind) -> &BTreeMap<Address, Address> {
        match kind {
            NamedKind::Step => &self.steps,
            NamedKind::Endpoint => &self.endpoints,
        }
    }

    /// Sets the former address of a part.
    pub fn set(&mut self, kind: NamedKind, address: Address, was: Address) {
        match kind {
            NamedKind::Step => self.steps.insert(address, was),
            NamedKind::Endpoint => self.endpoints.insert(address, was),
        };
    }

    /// The addresses that a part may have had before, the likeliest one first. Both the part and its pipeline may have
    /// other names now.
    pub fn candidates(&self, kind: NamedKind, address: &Address) -> impl Iterator<Item = Address> {
        let was = self.of_kind(kind).get(address);
        let pipeline = self.pipelines.get(&address.pipeline);
        let under = |name: &Name| Some(Address::new(pipeline?.clone(), name.clone()));
        let both = was.and_then(|was| under(&was.name));
        [was.cloned(), both, under(&address.name)].into_iter().flatten()
    }

    /// The renames that a takeover carries out, from the parts of the configuration `before` and those that the store
    /// knows. A part that was there under its name keeps what it has, and takes over nothing.
    #[must_use]
    pub fn renames(&self, next: &PartNames, before: &PartNames, known: &PartNames) -> Vec<RenamedPart> {
        let is_there =
            |kind: NamedKind, address: &Address| before.has(kind, address) || known.has(kind, address);
        let (mut renamed, mut taken) = (Vec::new(), BTreeSet::new());
        let parts: BTreeSet<(NamedKind, &Address)> = next.all().collect();
        for (kind, to) in parts {
            if is_there(kind, to) {
                continue;
            }
            let fits = |from: &Address| {
                is_there(kind, from)
                    && !next.has(kind, from)
                    && !taken.contains(&(kind, from.clone()))
                    && is_alike((to, next), from, before)
                    && is_alike((to, next), from, known)
            };
            let found = self.candidates(kind, to).find(fits);
            if let Some(from) = found {
                taken.insert((kind, from.clone()));
                renamed.push(RenamedPart { kind, from, to: to.clone() });
            }
        }
        renamed.extend(self.left_behind(next, known, &is_there, &mut taken));
        renamed
    }

    /// State of a renamed pipeline whose part is in no configuration: it follows its pipeline.
    fn left_behind(
        &self,
        next: &PartNames,
        known: &PartNames,
        is_there: &impl Fn(NamedKind, &Address) -> bool,
        taken: &mut BTreeSet<(NamedKind, Address)>,
    ) -> Vec<RenamedPart> {
        let mut renamed = Vec::new();
        for (pipeline, was) in &self.pipelines {
            for (kind, from) in known.all().filter(|(_, from)| from.pipeline == *was) {
                let to = Address::new(pipeline.clone(), from.name.clone());
                let is_free = !next.has(kind, from) && !next.has(kind, &to) && !is_there(kind, &to);
                if is_free && taken.insert((kind, from.clone())) {
                    renamed.push(RenamedPart { kind, from: from.clone(), to });
                }
            }
        }
        renamed
    }
}

/// Whether `from` is nothing else than what `to` is: the indices of a file are not those of a queue.
fn is_alike((to, next): (&Address, &PartNames), from: &Address, others: &PartNames) -> bool {
    let differs =
        |here: &BTreeSet<Address>, there: &BTreeSet<Address>| here.contains(to) && there.contains(from);
    !(differs(&next.sources, &others.queues)
        || differs(&next.sources, &others.sinks)
        || differs(&next.queues, &others.sources)
        || differs(&next.queues, &others.sinks)
        || differs(&next.sinks, &others.sources)
        || differs(&next.sinks, &others.queues))
}

impl Configuration {
    /// The names of all parts.
    #[must_use]
    pub fn part_names(&self) -> PartNames {
        PartNames {
            steps: self.steps.iter().map(|step| step.address.clone()).collect(),
            sources: self.sources.iter().map(|source| source.address.clone()).collect(),
            queues: self.queues.iter().map(|queue| queue.address.clone()).collect(),
            sinks: self.sinks.iter().map(|sink| sink.address.clone()).collect(),
            inputs: BTreeSet::new(),
        }
    }
}
