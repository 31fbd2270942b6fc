//! `for_test`: reduces a configuration to the parts that a test runs, without sources and sinks.
//!
//! A source becomes a queue with the jobs of the test, and a sink becomes a queue that keeps its jobs. So a test
//! opens no file, no port and no connection for them, and its results are all in one place.

use std::collections::BTreeMap;

use super::push_source::PushSource;
use super::test_case::TestCase;
use super::{BeginAt, Configuration, Input, Meta, Queue, QueueRef, Retain, SinkRef, SourceRef, Step, Target};
use tidegate_model::{Address, Parts};

impl Configuration {
    /// The configuration of the runs of `test`: its steps, and queues that keep all their jobs.
    #[must_use]
    pub fn for_test(&self, test: &TestCase) -> Self {
        let mut queues = TestQueues::default();
        for (position, queue) in self.queues.entries() {
            let source = queue.source.clone().filter(|source| ticks(source, test));
            let kept = Queue { retain: Retain::Forever, max_size: None, source, ..queue.clone() };
            let made = queues.add(kept);
            queues.queues.insert(position, made);
        }
        for (position, source) in self.sources.entries() {
            let made = queues.add(plain(&source.address));
            queues.sources.insert(position, made);
        }
        for (position, sink) in self.sinks.entries() {
            let made = queues.add(plain(&sink.address));
            queues.sinks.insert(position, made);
        }
        let mut steps: Vec<Step> = self.steps.iter().filter(|step| test.runs(step)).cloned().collect();
        for step in &mut steps {
            // The given jobs are there before the step begins.
            step.begin_at = BeginAt::Oldest;
            for input in &mut step.inputs {
                input.input = Input::Queue(match input.input {
                    Input::Queue(QueueRef(queue)) => queues.queues[&queue],
                    Input::Source(SourceRef(source)) => queues.sources[&source],
                });
            }
            for output in &mut step.outputs {
                output.target = Target::Queue(match output.target {
                    Target::Queue(QueueRef(queue)) => queues.queues[&queue],
                    Target::Sink(SinkRef(sink)) => queues.sinks[&sink],
                });
            }
            step.errors = step.errors.map(|QueueRef(queue)| queues.queues[&queue]);
        }
        let mut configuration = Self {
            sources: Parts::default(),
            queues: queues.list.into_iter().collect(),
            sinks: Parts::default(),
            steps: steps.into_iter().collect(),
            readers: BTreeMap::new(),
            tests: Vec::new(),
            ..self.clone()
        };
        configuration.derive();
        configuration
    }
}

/// The queues of a test, each by the position of the queue, source or sink that it replaces.
#[derive(Default)]
struct TestQueues {
    list: Vec<Queue>,
    queues: BTreeMap<usize, QueueRef>,
    sources: BTreeMap<usize, QueueRef>,
    sinks: BTreeMap<usize, QueueRef>,
}

impl TestQueues {
    fn add(&mut self, queue: Queue) -> QueueRef {
        self.list.push(queue);
        QueueRef(self.list.len() - 1)
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
        source: None,
    }
}

impl TestCase {
    /// Whether the test runs this step.
    #[must_use]
    pub fn runs(&self, step: &Step) -> bool {
        match &self.step {
            Some(only) => step.address == *only,
            None => step.address.pipeline == self.pipeline,
        }
    }
}

/// Whether a pushed source has jobs of its own in the test. Clients do not exist in a test.
fn ticks(source: &PushSource, test: &TestCase) -> bool {
    match source {
        PushSource::Schedule(_) => test.lasts.is_some(),
        PushSource::Http(_) => false,
    }
}
