//! Pass: a step reads its inputs once, in one wiring. A change of the wiring and a replay begin another one.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::{Configuration, QueueRef, SinkRef, Step, Target};
use tidegate_model::Address;

#[derive(Clone, Debug)]
pub(crate) struct Pass {
    /// Number in the order in which the passes of all steps began, except that a replay has the number of its pass.
    pub(crate) number: usize,
    /// Step of its time: delivery hashes, error records and origins have its names.
    pub(crate) step: Step,
    pub(crate) configuration: Arc<Configuration>,
    /// Present names of its inputs, and of the targets of its outputs.
    pub(crate) inputs: Vec<Address>,
    pub(crate) outputs: Vec<Address>,
    pub(crate) errors: Option<Address>,
    /// First index, by input.
    pub(crate) start: Vec<u64>,
    /// Index behind the last job that is accounted for, by input.
    pub(crate) next: Vec<u64>,
    /// Jobs that waited in the store when a replay began the pass, by input: they are delivered by the pass that has
    /// accounted for them.
    pub(crate) left: BTreeSet<(usize, u64)>,
    /// Jobs that an `at-most-once` step had accounted for and was attempting in a crash.
    pub(crate) lost: Lost,
    /// Jobs of earlier passes that waited for their next attempt when this one began.
    pub(crate) taken_over: Vec<TakenOver>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lost {
    /// Inputs and indices.
    pub(crate) fresh: BTreeSet<(usize, u64)>,
    /// Number of retried errors.
    pub(crate) returned: usize,
}

/// Job that an earlier pass has attempted, and a later one attempts again.
#[derive(Clone, Debug)]
pub(crate) struct TakenOver {
    /// Pass that has accounted for it, by position.
    pub(crate) pass: usize,
    pub(crate) indices: Vec<u64>,
    /// Inputs as the store named them then.
    pub(crate) inputs: Vec<(String, u64)>,
    /// Number of attempts before.
    pub(crate) attempt: u32,
}

impl Pass {
    pub(crate) fn new(
        step: &Step,
        configuration: &Arc<Configuration>,
        number: usize,
        start: Vec<u64>,
    ) -> Self {
        let queue = |QueueRef(queue): QueueRef| configuration.queues[queue].address.clone();
        let target = |target: Target| match target {
            Target::Queue(target) => queue(target),
            Target::Sink(SinkRef(sink)) => configuration.sinks[sink].address.clone(),
        };
        Self {
            number,
            inputs: step.inputs.iter().map(|input| input.address.clone()).collect(),
            outputs: step.outputs.iter().map(|output| target(output.target)).collect(),
            errors: step.errors.map(queue),
            step: step.clone(),
            configuration: Arc::clone(configuration),
            next: start.clone(),
            start,
            left: BTreeSet::new(),
            lost: Lost::default(),
            taken_over: Vec::new(),
        }
    }

    /// Pass of the same step from these positions on.
    pub(crate) fn again(&self, start: Vec<u64>) -> Self {
        let (lost, taken_over) = (Lost::default(), Vec::new());
        Self { next: start.clone(), start, lost, taken_over, ..self.clone() }
    }

    /// Indices of an input that the pass has accounted for.
    pub(crate) fn taken(&self, input: usize) -> impl Iterator<Item = u64> {
        (self.start[input]..self.next[input]).filter(move |index| !self.left.contains(&(input, *index)))
    }

    /// Pass of the same step that reads this input from `first` on, where its next job is.
    pub(crate) fn behind(&self, input: &Address, first: u64) -> Option<Self> {
        let inputs = self.inputs.iter().zip(&self.next);
        let start = inputs.map(|(one, &next)| if one == input { next.max(first) } else { next });
        let start: Vec<u64> = start.collect();
        (start != self.next).then(|| self.again(start))
    }

    /// Whether both have the same name, inputs and targets.
    pub(crate) fn is_wired_like(&self, other: &Self) -> bool {
        let bindings = |pass: &Self| {
            let inputs = pass.step.inputs.iter().map(|input| input.binding.clone());
            inputs.chain(pass.step.outputs.iter().map(|output| output.binding.clone())).collect::<Vec<_>>()
        };
        // The names of their times, which error records and hashes have.
        let addresses = |pass: &Self| {
            let inputs = pass.step.inputs.iter();
            inputs.map(|input| (input.hash_name(), input.address.clone())).collect::<Vec<_>>()
        };
        let files = |pass: &Self| {
            let sinks = pass.step.outputs.iter().filter_map(|output| match output.target {
                Target::Sink(SinkRef(sink)) => Some(format!("{:?}", pass.configuration.sinks[sink].kind)),
                Target::Queue(_) => None,
            });
            sinks.collect::<Vec<_>>()
        };
        self.step.address == other.step.address
            && (self.step.take, self.step.delivery) == (other.step.take, other.step.delivery)
            && (&self.inputs, &self.outputs, &self.errors) == (&other.inputs, &other.outputs, &other.errors)
            && addresses(self) == addresses(other)
            && bindings(self) == bindings(other)
            && files(self) == files(other)
    }

    /// Records the same wiring of a later configuration.
    pub(crate) fn declare(&mut self, step: &Step, configuration: &Arc<Configuration>) {
        (self.step, self.configuration) = (step.clone(), Arc::clone(configuration));
    }

    pub(crate) fn rename(&mut self, from: &Address, to: &Address) {
        let names = self.inputs.iter_mut().chain(&mut self.outputs).chain(&mut self.errors);
        names.filter(|name| *name == from).for_each(|name| *name = to.clone());
    }

    /// Targets of its jobs and of its errors.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Address> {
        self.outputs.iter().chain(&self.errors)
    }

    /// Names of the inputs in the store now. Parked jobs have these names.
    pub(crate) fn present_names(&self) -> impl Iterator<Item = String> {
        let inputs = self.step.inputs.iter().zip(&self.inputs);
        inputs.map(|(input, now)| {
            if input.is_moved {
                format!("{}={now}", input.binding)
            } else if input.binding.is_empty() {
                now.to_string()
            } else {
                input.binding.clone()
            }
        })
    }

    /// Indices by input of a job that the pass has accounted for.
    pub(crate) fn find(&self, inputs: &[(String, u64)]) -> Option<Vec<u64>> {
        let names: Vec<String> = self.present_names().collect();
        let is_own = |(name, index): &(String, u64)| {
            let at = names.iter().position(|one| one == name)?;
            let is_left = self.left.contains(&(at, *index));
            Some(self.start[at] <= *index && *index < self.next[at] && !is_left)
        };
        inputs.iter().all(|input| is_own(input) == Some(true)).then(|| {
            let of =
                |name: &String| inputs.iter().find(|(one, _)| one == name).map_or(0, |(_, index)| *index);
            names.iter().map(of).collect()
        })
    }

    /// Whether the pass has accounted for no job behind this one.
    pub(crate) fn is_last(&self, indices: &[u64]) -> bool {
        let given = indices.iter().zip(&self.next).enumerate().filter(|(_, (index, _))| **index > 0);
        let mut behind =
            given.flat_map(|(input, (index, next))| (index + 1..*next).map(move |at| (input, at)));
        behind.all(|job| self.left.contains(&job))
    }

    /// Inputs as origins name them.
    pub(crate) fn origin(&self, indices: &[u64]) -> Vec<(String, u64)> {
        let inputs = self.step.inputs.iter().zip(indices).filter(|(_, index)| **index > 0);
        let mut inputs: Vec<_> = inputs.map(|(input, index)| (input.hash_name(), *index)).collect();
        inputs.sort();
        inputs
    }
}
