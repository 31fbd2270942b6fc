//! Planned effects: compare the plan of a change with its effects.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Begun;
use tidegate_config::{
    Configuration, ConfigurationDigest, PartChange, PartKind, Plan, PlanState, SinkRef, StepAspect, Target,
};
use tidegate_model::{Address, Due, NamedKind, RenamedPart};
use tidegate_store::{ReadError, Store};

/// Effects of the changes that steps have not followed yet.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// Counts of jobs that were compared.
    pub(crate) counts: u64,
    /// Whether a step goes on at kept progress, by step, input and number of the generation.
    begins: BTreeMap<(Address, Address), BTreeMap<u64, bool>>,
    /// Steps that start anew from the store, with the number of the last generation that lets them.
    concerned: BTreeMap<Address, u64>,
}

impl Planned {
    /// Adds the plan of a change, before the change is requested.
    pub(crate) fn add(
        &mut self,
        old: &ConfigurationDigest,
        (number, next): (u64, &Configuration),
        renamed: &[RenamedPart],
        store: &Store,
    ) -> Result<(), ReadError> {
        let plan = Plan::between(old, &next.digest(), &state(store)?);
        self.count(&plan, renamed, store)?;
        // A changed script takes effect at the next batch.
        let is_in_place = |change: &PartChange| change.aspects == [StepAspect::Program.as_str()];
        let named = |kind: PartKind| -> BTreeSet<Address> {
            let changes = plan.changes.iter().filter(|change| change.kind == kind && !is_in_place(change));
            changes.filter_map(|change| Address::parse(&change.name)).collect()
        };
        let (steps, sinks) = (named(PartKind::Step), named(PartKind::Sink));
        let inputs: BTreeSet<Address> =
            named(PartKind::Source).union(&named(PartKind::Queue)).cloned().collect();
        for step in &next.steps {
            let reads = || step.inputs.iter().any(|input| inputs.contains(&input.address));
            let fills = || {
                step.outputs.iter().any(|output| match output.target {
                    Target::Sink(SinkRef(sink)) => sinks.contains(&next.sinks[sink].address),
                    Target::Queue(_) => false,
                })
            };
            if steps.contains(&step.address) || reads() || fills() {
                self.concerned.insert(step.address.clone(), number);
            }
        }
        for change in plan.changes.iter().filter(|change| change.kind == PartKind::Step) {
            let step = Address::parse(&change.name).unwrap();
            for effect in &change.effects {
                if let Some((input, goes_on)) = beginning(effect) {
                    self.begins.entry((step.clone(), input)).or_default().insert(number, goes_on);
                }
            }
        }
        Ok(())
    }

    /// Compares the counts of a plan with the jobs in the store.
    fn count(&mut self, plan: &Plan, renamed: &[RenamedPart], store: &Store) -> Result<(), ReadError> {
        for change in &plan.changes {
            let Some(name) = Address::parse(&change.name) else { continue };
            let was = renamed.iter().find(|part| part.to == name && kind_of(part) == change.kind);
            let stored = was.map_or(&name, |part| &part.from);
            for effect in &change.effects {
                let (jobs, number) = match change.kind {
                    PartKind::Queue => (jobs_on(stored, store)?, number_before(effect, &["job"])),
                    PartKind::Step => (
                        store.due(stored, Due::Never, None, usize::MAX, usize::MAX)?.len() as u64,
                        number_before(effect, &["delayed job", "parked job"]),
                    ),
                    _ => continue,
                };
                let Some(number) = number else { continue };
                assert_eq!(number, jobs, "{} {name}: {effect}", change.kind.as_str());
                self.counts += 1;
            }
        }
        Ok(())
    }

    /// All steps of a run have started.
    pub(crate) fn settle(&mut self) {
        *self = Self { counts: self.counts, ..Self::default() };
    }

    /// A step starts from the store for another reason than a change.
    pub(crate) fn expect(&mut self, step: &Address, generation: u64) {
        let last = self.concerned.entry(step.clone()).or_default();
        *last = generation.max(*last);
    }

    /// A step of a generation has started from the store on these inputs, which it did not read before.
    pub(crate) fn started(&mut self, step: &Address, generation: u64, begun: &[Begun]) {
        let last = self.concerned.get(step);
        let last = *last.unwrap_or_else(|| panic!("{step} started anew, and no plan named it"));
        if last <= generation {
            self.concerned.remove(step);
        }
        for Begun { input, goes_on } in begun {
            let plans = self.begins.get(&(step.clone(), input.clone()));
            if let Some((_, &planned)) = plans.and_then(|plans| plans.range(..=generation).next_back()) {
                let words = if planned { "goes on" } else { "begins anew" };
                assert_eq!(planned, *goes_on, "{step} {words} on {input} by the plan");
            }
        }
        // The step follows the plans up to this generation, also on inputs that it read before without a job.
        for (_, plans) in self.begins.iter_mut().filter(|((of, _), _)| of == step) {
            plans.retain(|&number, _| number > generation);
        }
    }
}

/// Kind of a renamed part that has jobs.
fn kind_of(renamed: &RenamedPart) -> PartKind {
    match renamed.kind {
        NamedKind::Step => PartKind::Step,
        NamedKind::Endpoint => PartKind::Queue,
    }
}

/// Number of jobs that can be read from a queue.
fn jobs_on(queue: &Address, store: &Store) -> Result<u64, ReadError> {
    let Some(state) = store.queue(queue)? else { return Ok(0) };
    let mut next = state.first;
    while let Some(batch) = store.read(queue, next, 100, 1 << 20)? {
        next += batch.len() as u64;
    }
    Ok(next - state.first)
}

/// The number that an effect has before one of these words.
fn number_before(effect: &str, words: &[&str]) -> Option<u64> {
    let at = words.iter().find_map(|word| effect.find(&format!(" {word}")))?;
    effect[..at].rsplit(' ').next()?.replace(',', "").parse().ok()
}

/// Input and kind of a beginning.
fn beginning(effect: &str) -> Option<(Address, bool)> {
    let goes_on = effect.strip_prefix("continues on `");
    let text = goes_on.or_else(|| effect.strip_prefix("begins at the oldest job of `"))?;
    Some((Address::parse(text.split('`').next()?)?, goes_on.is_some()))
}

/// State as the query of a plan reads it.
fn state(store: &Store) -> Result<PlanState, ReadError> {
    let mut state = PlanState { known: store.known_parts()?, ..PlanState::default() };
    for queue in store.queues()? {
        state.queues.insert(queue.address.clone(), queue.jobs());
    }
    for (step, input, _) in store.all_progress()? {
        let delayed = store.parked_count(&step)?;
        let remains = state.steps.entry(step).or_default();
        remains.inputs.insert(input, None);
        remains.delayed = delayed;
    }
    Ok(state)
}
