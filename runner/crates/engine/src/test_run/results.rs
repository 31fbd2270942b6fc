//! Test results: the jobs, errors and numbers of a run, as its store has them at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::error::EngineError;
use crate::processor::mock::MockProblem;
use crate::report::Halt;
use tidegate_config::{Configuration, QueueRef, TestCase};
use tidegate_model::Address;
use tidegate_store::Store;

/// Results of a test run.
#[derive(Debug)]
pub(crate) struct TestResults {
    /// Jobs of the expected queues and sinks.
    pub(crate) jobs: BTreeMap<Address, Vec<Value>>,
    /// Records of the error queues of all steps.
    pub(crate) errors: BTreeMap<Address, Vec<Value>>,
    /// Queues of the events of all steps.
    pub(crate) events: BTreeSet<Address>,
    /// Number of attempts, by step.
    pub(crate) attempts: BTreeMap<Address, u64>,
    /// Time of the run's clock.
    pub(crate) elapsed: Duration,
    pub(crate) halts: Vec<Halt>,
    /// Number of jobs that are delayed or pending.
    pub(crate) waiting: u64,
    /// Number of failed jobs that are on no error queue.
    pub(crate) dropped: u64,
    pub(crate) ended: Ended,
    pub(crate) problems: Vec<MockProblem>,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All work is done, or the time of the test is over.
    Done,
    /// Jobs wait for an event that does not come in a test.
    Waiting,
    /// The clock ran longer than a test may last.
    TooLong,
    /// The run had more events than a test may have.
    TooMany,
}

/// Maximum number and bytes of jobs in one read.
const READ: (usize, usize) = (1024, 1 << 20);

impl TestResults {
    /// Reads the jobs and errors from the store.
    pub(crate) fn read(
        &mut self,
        configuration: &Configuration,
        store: &Store,
        test: &TestCase,
    ) -> Result<(), EngineError> {
        for expected in &test.expect.outputs {
            self.jobs.insert(expected.address.clone(), jobs(store, &expected.address)?);
        }
        for step in &configuration.steps {
            if let Some(QueueRef(queue)) = step.errors {
                let queue = &configuration.queues[queue].address;
                if !self.errors.contains_key(queue) {
                    self.errors.insert(queue.clone(), jobs(store, queue)?);
                }
            }
            let events = step.events.map(|QueueRef(queue)| configuration.queues[queue].address.clone());
            self.events.extend(events);
            self.waiting += store.parked_count(&step.address)?;
        }
        Ok(())
    }
}

/// Jobs of a queue. A job that is not JSON is a text.
fn jobs(store: &Store, queue: &Address) -> Result<Vec<Value>, EngineError> {
    let mut found = Vec::new();
    let Some(state) = store.queue(queue)? else { return Ok(found) };
    let mut next = state.first;
    while next <= state.head {
        let Some(batch) = store.read(queue, next, READ.0, READ.1)? else { break };
        let value = |job: &[u8]| {
            serde_json::from_slice(job)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(job).into_owned()))
        };
        found.extend(batch.payloads.iter().map(value));
        next = batch.end();
    }
    Ok(found)
}
