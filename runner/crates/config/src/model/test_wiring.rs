//! `for_test`: reduces a configuration to the parts that a test runs, without sources and sinks.
//!
//! A source becomes a queue with the jobs of the test, and a sink becomes a queue that keeps its jobs. So a test
//! opens no file, no port and no connection for them, and its results are all in one place.

use std::collections::BTreeMap;

use super::push_source::PushSource;
use super::test_case::TestCase;
use super::{
    BeginAt, Configuration, FormerNames, GateRef, Input, Meta, Queue, QueueRef, Retain, SinkRef, SourceRef,
    Step, Target,
};
use tidegate_model::{Address, Parts};

impl Configuration {
    /// The configuration of the runs of `test`: its steps, and queues that keep all their jobs.
    #[must_use]
    pub fn for_test(&self, test: &TestCase) -> Self {
        let mut queues = TestQueues::default();
        let mut steps: Vec<Step> = self.steps.iter().filter(|step| test.runs(step)).cloned().collect();
        for step in &mut steps {
            // The given jobs are there before the step begins.
            step.begin_at = BeginAt::Oldest;
            for input in &mut step.inputs {
                input.input = Input::Queue(match input.input {
                    Input::Queue(queue) => queues.keeping(&self.queues[queue.0], test),
                    Input::Source(SourceRef(source)) => queues.instead_of(&self.sources[source].address),
                });
            }
            for output in &mut step.outputs {
                output.target = Target::Queue(match output.target {
                    Target::Queue(queue) => queues.keeping(&self.queues[queue.0], test),
                    Target::Sink(SinkRef(sink)) => queues.instead_of(&self.sinks[sink].address),
                });
            }
            step.errors = step.errors.map(|queue| queues.keeping(&self.queues[queue.0], test));
            step.events = step.events.map(|queue| queues.keeping(&self.queues[queue.0], test));
        }
        for (_, table) in steps.iter().flat_map(|step| self.tables_of(step)) {
            // The queue of a table is part of the configuration that names it.
            if let Some(queue) = self.queues.iter().find(|queue| queue.address == table.queue) {
                queues.keeping(queue, test);
            }
        }
        let has_step = |gate: usize| steps.iter().any(|step| step.gate == Some(GateRef(gate)));
        let gates = self.gates.entries().filter(|(position, _)| has_step(*position));
        let mut configuration = Self {
            root: self.root.clone(),
            data: self.data.clone(),
            settings: self.settings.clone(),
            log: self.log.clone(),
            pipelines: self.pipelines.clone(),
            sources: Parts::default(),
            queues: queues.list.into_iter().collect(),
            sinks: Parts::default(),
            gates: Parts::at(gates.map(|(position, gate)| (position, gate.clone()))),
            steps: steps.into_iter().collect(),
            former: FormerNames::default(),
            readers: BTreeMap::new(),
            tests: Vec::new(),
            given: self.given.clone(),
            inserted: self.inserted.clone(),
        };
        configuration.derive();
        configuration
    }
}

/// The queues of a test, by the address of the queue, source or sink that each replaces.
#[derive(Default)]
struct TestQueues {
    list: Vec<Queue>,
    known: BTreeMap<Address, QueueRef>,
}

impl TestQueues {
    /// A queue that keeps all its jobs.
    fn keeping(&mut self, queue: &Queue, test: &TestCase) -> QueueRef {
        self.known(&queue.address).unwrap_or_else(|| {
            let source = queue.source.clone().filter(|source| ticks(source, test));
            self.add(Queue { retain: Retain::Forever, max_size: None, source, ..queue.clone() })
        })
    }

    /// A queue in the place of a source or a sink.
    fn instead_of(&mut self, address: &Address) -> QueueRef {
        self.known(address).unwrap_or_else(|| self.add(plain(address)))
    }

    fn known(&self, address: &Address) -> Option<QueueRef> {
        self.known.get(address).copied()
    }

    fn add(&mut self, queue: Queue) -> QueueRef {
        let made = QueueRef(self.list.len());
        self.known.insert(queue.address.clone(), made);
        self.list.push(queue);
        made
    }
}

/// A queue in the place of a source or sink.
fn plain(address: &Address) -> Queue {
    Queue {
        address: address.clone(),
        retain: Retain::Forever,
        max_size: None,
        meta: Meta::default(),
        dedupe: None,
        holds_errors: false,
        holds_events: false,
        source: None,
    }
}

impl TestCase {
    /// Whether the test runs this step.
    #[must_use]
    pub fn runs(&self, step: &Step) -> bool {
        match &self.step {
            // A join by key runs with the step that finds its tuples.
            Some(only) => {
                step.address == *only || step.joins.as_ref().is_some_and(|join| join.reader == *only)
            }
            None => step.address.pipeline == self.pipeline,
        }
    }
}

/// Whether a pushed source has jobs of its own in the test. Clients do not exist in a test.
fn ticks(source: &PushSource, test: &TestCase) -> bool {
    match source {
        PushSource::Schedule(_) => test.lasts.is_some(),
        PushSource::Http(_) | PushSource::Exec(_) => false,
    }
}
