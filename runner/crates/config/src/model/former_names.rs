//! `FormerNames`: the `was` of steps, queues, sources and pipelines, and the renames that follow from them.
//!
//! The steps of a sink have no `was`. Their names depend on the number and the spelling of the names in `from`.
//! So they take over from the step of the same sink that read the same input.

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
    /// Steps that sinks with `from` imply.
    pub sink_steps: BTreeMap<Address, SinkStep>,
}

/// Step that passes the jobs of an input to a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkStep {
    pub sink: Address,
    pub input: Address,
}

impl SinkStep {
    /// The names that a step of the sink with this name has for an input: alone, beside others, and by its full address.
    #[must_use]
    pub fn names(sink: &Name, input: &Address) -> [Option<Name>; 3] {
        let Address { pipeline, name } = input;
        [
            Some(sink.clone()),
            Name::new(&format!("{sink}-{name}")),
            Name::new(&format!("{sink}-{pipeline}-{name}")),
        ]
    }
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

    /// Whether a part has a `was`.
    #[must_use]
    pub fn is_written(&self) -> bool {
        !(self.pipelines.is_empty() && self.steps.is_empty() && self.endpoints.is_empty())
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
            // After a rollback the files may be in force again, also without the `was` that they had once.
            let returned = known.returned.get(&(kind, to.clone())).cloned();
            let found = self.candidates(kind, to).chain(returned).find(fits);
            let found = found.or_else(|| {
                self.same_sink(kind, to)
                    .find(|(from, inputs)| {
                        let read = before.step_inputs.get(from).or_else(|| known.step_inputs.get(from));
                        fits(from) && read.is_some_and(|read| inputs.iter().any(|input| read.contains(input)))
                    })
                    .map(|(from, _)| from)
            });
            if let Some(from) = found {
                taken.insert((kind, from.clone()));
                renamed.push(RenamedPart { kind, from, to: to.clone() });
            }
        }
        renamed.extend(self.left_behind(next, known, &is_there, &mut taken));
        renamed
    }

    /// The addresses that a step of a sink may have had before, and the former addresses of its input.
    fn same_sink(&self, kind: NamedKind, step: &Address) -> impl Iterator<Item = (Address, Vec<Address>)> {
        let sink_step = if kind == NamedKind::Step { self.sink_steps.get(step) } else { None };
        sink_step.into_iter().flat_map(move |SinkStep { sink, input }| {
            let mut inputs = vec![input.clone()];
            inputs.extend(self.candidates(NamedKind::Endpoint, input));
            let was = self.pipelines.get(&sink.pipeline);
            let pipelines: Vec<&Name> = [&sink.pipeline].into_iter().chain(was).collect();
            let names: BTreeSet<Name> =
                inputs.iter().flat_map(|input| SinkStep::names(&sink.name, input)).flatten().collect();
            let under = |pipeline: &Name| {
                let addresses = names.iter().map(|name| Address::new(pipeline.clone(), name.clone()));
                addresses.map(|address| (address, inputs.clone())).collect::<Vec<_>>()
            };
            pipelines.into_iter().flat_map(under).collect::<Vec<_>>()
        })
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
            returned: BTreeMap::new(),
            step_inputs: (self.steps.iter())
                .map(|step| {
                    (step.address.clone(), step.inputs.iter().map(|input| input.address.clone()).collect())
                })
                .collect(),
        }
    }
}
