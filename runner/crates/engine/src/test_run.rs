//! Test run: runs a `[[test]]` of a pipeline, and compares its results with the expected ones.
//!
//! The run has the real coordinator, committer, queuers, scripts and store, on one thread and in memory. Its clock
//! moves to the next due time when no work is left, so hours take milliseconds. Sources and sinks are queues.
//! Plugins with effects and built-ins have mocks. The run opens no file, no connection and no port.
//!
//! | module | content |
//! | --- | --- |
//! | `bed` | the run itself |
//! | `results` | the results of a run, read from its store |
//! | `compare` | the comparison with the expected results |

mod bed;
mod compare;
mod results;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use serde_json::Value;

use crate::error::Chain;
use crate::generation::Generation;
use tidegate_components::script::STACK;
use tidegate_config::TestCase;

/// Outcome of a test.
#[derive(Debug)]
pub struct TestOutcome {
    /// Differences from the expected results; empty if the test has passed.
    pub differences: Vec<Difference>,
    /// Time that the run took.
    pub took: Duration,
}

/// Difference from an expected result.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// The jobs of a queue or sink. Jobs that match are equal in both lists.
    Jobs { name: String, line: u64, expected: Vec<Value>, actual: Vec<Value> },
    /// A number, a duration or a text.
    Value { name: String, line: u64, expected: String, actual: String },
    /// An event that the test does not expect, as a sentence fragment. It has a line if it belongs to one.
    Unexpected { line: Option<u64>, message: String },
}

/// Runs one test on this thread, whose stack must have the size of a worker's.
#[must_use]
pub fn run_test(generation: &Generation, test: &TestCase) -> TestOutcome {
    let started = Instant::now();
    let unexpected = |message: String| vec![Difference::Unexpected { line: None, message }];
    // A panic is a bug of Tidegate or of a plugin. The other tests run on.
    let ran = catch_unwind(AssertUnwindSafe(|| bed::run(generation, test)));
    let differences = match ran {
        Ok(Ok(results)) => compare::differences(test, &results),
        Ok(Err(error)) => unexpected(format!("the test cannot run: {}", Chain(&error))),
        Err(_) => unexpected("the test panicked: please report this bug of Tidegate".to_owned()),
    };
    TestOutcome { differences, took: started.elapsed() }
}

/// Runs tests side by side on all cores. `done` gets each outcome with the position of its test, in the order of
/// the tests.
///
/// # Errors
/// No thread can be started.
pub fn run_tests(
    generation: &Generation,
    tests: &[&TestCase],
    mut done: impl FnMut(usize, TestOutcome),
) -> std::io::Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (next, (ran, outcomes)) = (AtomicUsize::new(0), crossbeam_channel::unbounded());
    let work = |ran: Sender<(usize, TestOutcome)>| {
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(test) = tests.get(position) else { return };
            // The receiver lives as long as the scope.
            let _ = ran.send((position, run_test(generation, test)));
        }
    };
    thread::scope(|scope| {
        for number in 0..cores.min(tests.len()) {
            let (work, ran) = (&work, ran.clone());
            let thread = thread::Builder::new().name(format!("test-{number}")).stack_size(STACK);
            thread.spawn_scoped(scope, move || work(ran))?;
        }
        drop(ran);
        let mut waiting = std::collections::BTreeMap::new();
        let mut following = 0;
        for (position, outcome) in outcomes {
            waiting.insert(position, outcome);
            while let Some(outcome) = waiting.remove(&following) {
                done(following, outcome);
                following += 1;
            }
        }
        Ok(())
    })
}
