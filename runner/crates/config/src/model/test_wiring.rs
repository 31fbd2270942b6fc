//! `for_test`: reduces a configuration to the parts that a test runs, without sources and sinks.
//!
//! A source becomes a queue with the jobs of the test, and a sink becomes a queue that keeps its jobs. So a test
//! opens no file, no port and no connection for them, and its results are all in one place.

use std::collections::BTreeMap;

use super::push_source::PushSource;
use super::test_case::TestCase;
use super::{BeginAt, Configuration, Input, Meta, Queue, QueueRef, Retain, SinkRef, SourceRef, Step, Target};
use tidegate_model::Address;

impl Configuration {
    /// The configuration of the runs of `test`: its steps, and queues that keep all their jobs.
    #[must_use]
    pub fn for_test(&self, test: &TestCase) -> Self {
        let keeps = |queue: &Queue| Queue {
            retain: Retain::Forever,
            max_size: None,
            source: queue.source.clone().filter(|source| ticks(source, test)),
            ..queue.clone()
        };
        let mut queues: Vec<Queue> = self.queues.iter().map(keeps).collect();
        let (sources, sinks) = (queues.len(), queues.len() + self.sources.len());
        queues.extend(self.sources.iter().map(|source| kept(&source.address)));
        queues.extend(self.sinks.iter().map(|sink| kept(&sink.address)));
        let mut steps: Vec<Step> = self.steps.iter().filter(|step| test.runs(step)).cloned().collect();
        for step in &mut steps {
            // The given jobs are there before the step begins.
            step.begin_at = BeginAt::Oldest;
            for input in &mut step.inputs {
                if let Input::Source(SourceRef(source)) = input.input {
                    input.input = Input::Queue(QueueRef(sources + source));
                }
            }
            for output in &mut step.outputs {
                if let Target::Sink(SinkRef(sink)) = output.target {
                    output.target = Target::Queue(QueueRef(sinks + sink));
                }
            }
        }
        let mut configuration = Self {
            sources: Vec::new(),
            queues,
            sinks: Vec::new(),
            steps,
            readers: BTreeMap::new(),
            tests: Vec::new(),
            ..self.clone()
        };
        configuration.derive();
        configuration
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

fn kept(address: &Address) -> Queue {
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
