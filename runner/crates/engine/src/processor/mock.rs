//! Mocks: answer in a test for plugins and built-ins.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_plugin::{Cause, Failure, Outputs};

use tidegate_components::outputs_from_json::outputs_from_json;
use tidegate_config::{Configuration, Mock, MockAnswer, MockAnswers, MockPlace, Processor, SinkKind};
use tidegate_model::Address;
use tidegate_model::sync::Mutex;

/// The mocks of one test, and the mistakes that its run has shown.
#[derive(Debug)]
pub(crate) struct Mocks {
    mocks: Vec<Arc<UsedMock>>,
    /// HTTP sinks of the configuration.
    http_sinks: BTreeSet<Address>,
    problems: Arc<Mutex<Vec<MockProblem>>>,
}

/// A mock with the number of its calls.
#[derive(Debug)]
struct UsedMock {
    mock: Mock,
    calls: Mutex<usize>,
}

/// A call without an answer, or answers without a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MockProblem {
    /// The line of the mock; `None` if there is no mock.
    pub(crate) line: Option<u64>,
    pub(crate) message: String,
}

/// A mock in the place of one processor.
#[derive(Debug)]
pub(crate) struct MockedProcessor {
    name: String,
    owner: String,
    mock: Option<Arc<UsedMock>>,
    problems: Arc<Mutex<Vec<MockProblem>>>,
}

impl Mocks {
    /// Mocks of a test of `configuration`.
    pub(crate) fn new(mocks: &[Mock], configuration: &Configuration) -> Self {
        let used = |mock: &Mock| Arc::new(UsedMock { mock: mock.clone(), calls: Mutex::default() });
        let http = configuration.sinks.iter().filter(|sink| matches!(sink.kind, SinkKind::Http(_)));
        Self {
            mocks: mocks.iter().map(used).collect(),
            http_sinks: http.map(|sink| sink.address.clone()).collect(),
            problems: Arc::default(),
        }
    }

    /// The replacement of an HTTP sink; `None` for other sinks and for queues.
    pub(crate) fn sink(&self, address: &Address) -> Option<MockedProcessor> {
        if !self.http_sinks.contains(address) {
            return None;
        }
        let is = |used: &&Arc<UsedMock>| matches!(&used.mock.place, MockPlace::Sink(sink) if sink == address);
        let (owner, mock) =
            (format!("a step with the sink `{}`", address.name), self.mocks.iter().find(is).cloned());
        let name = mock.as_ref().map_or_else(String::new, |used| used.mock.processor.clone());
        Some(MockedProcessor { name, owner, mock, problems: Arc::clone(&self.problems) })
    }

    /// The replacement of a processor; `None` for a script, and for a plugin without effects that has no mock.
    pub(crate) fn replace(&self, processor: &Processor, place: &MockPlace) -> Option<MockedProcessor> {
        let name = processor.mock_name();
        let at = |place: &MockPlace| {
            let is = |used: &&Arc<UsedMock>| {
                used.mock.place == *place && Some(&used.mock.processor) == name.as_ref()
            };
            self.mocks.iter().find(is).cloned()
        };
        let mock = at(place).or_else(|| at(&MockPlace::Anywhere));
        let runs = match processor {
            Processor::Script(_) => true,
            Processor::Plugin(plugin) => !plugin.has_effects,
            Processor::Http(_) | Processor::Exec(_) => false,
        };
        if mock.is_none() && runs {
            return None;
        }
        let owner = match place {
            MockPlace::Step(step) => format!("the step `{step}`"),
            MockPlace::Monitor(step) => format!("the monitor of the step `{step}`"),
            MockPlace::Gate(gate) => format!("the gate `{gate}`"),
            MockPlace::Anywhere | MockPlace::Sink(_) => "the test".to_owned(),
        };
        let name = name.unwrap_or_else(|| "a plugin".to_owned());
        Some(MockedProcessor { name, owner, mock, problems: Arc::clone(&self.problems) })
    }

    /// The mistakes of the run, with the answers that it has not used.
    pub(crate) fn problems(&self) -> Vec<MockProblem> {
        let mut problems = self.problems.lock().clone();
        for used in &self.mocks {
            let (mock, calls) = (&used.mock, *used.calls.lock());
            let MockAnswers::InOrder(answers) = &mock.answers else { continue };
            if calls < answers.len() {
                let (unused, name) = (answers.len() - calls, &mock.processor);
                let message = match (unused, answers.len()) {
                    (1, 1) => format!("the answer of the mock of `{name}` is not used"),
                    (1, all) => format!("1 of the {all} answers of the mock of `{name}` is not used"),
                    (_, all) => format!("{unused} of the {all} answers of the mock of `{name}` are not used"),
                };
                problems.push(MockProblem { line: Some(mock.line), message });
            }
        }
        problems
    }
}

impl MockedProcessor {
    /// Answers the next call.
    pub(crate) fn process(&self, outputs: &mut Outputs) -> Result<(), Failure> {
        let Some(used) = &self.mock else {
            let Self { name, owner, .. } = self;
            return Err(self.refuse(None, format!("{owner} calls `{name}`, which has no mock")));
        };
        let mut calls = used.calls.lock();
        *calls += 1;
        let answer = match &used.mock.answers {
            MockAnswers::Always(answer) => answer,
            MockAnswers::InOrder(answers) => match answers.get(*calls - 1) {
                Some(answer) => answer,
                None => {
                    let (name, owner) = (&self.name, &self.owner);
                    let message = match answers.len() {
                        0 => format!("{owner} calls `{name}`, whose mock has no answer"),
                        1 => format!("{owner} calls `{name}` more than once, but its mock has 1 answer"),
                        count => format!(
                            "{owner} calls `{name}` more than {count} times, but its mock has {count} answers"
                        ),
                    };
                    return Err(self.refuse(Some(used.mock.line), message));
                }
            },
        };
        give(answer, outputs)
    }

    /// Answers the next request to an HTTP sink. A sink without a mock accepts all of them.
    pub(crate) fn accept(&self) -> Result<(), Failure> {
        if self.mock.is_some() { self.process(&mut Outputs::default()) } else { Ok(()) }
    }

    /// Records a mistake of the test. The job is rejected.
    fn refuse(&self, line: Option<u64>, message: String) -> Failure {
        let problem = MockProblem { line, message: message.clone() };
        let mut problems = self.problems.lock();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        Failure::reject(message)
    }
}

fn give(answer: &MockAnswer, outputs: &mut Outputs) -> Result<(), Failure> {
    Err(match answer {
        MockAnswer::Outputs(values) => {
            let mut given = values.iter();
            return given.try_for_each(|value| {
                outputs_from_json(value.as_bytes(), outputs, "the output of the mock")
            });
        }
        MockAnswer::Error { message, cause } => {
            let failure = Failure::failed(message);
            match cause.as_deref().and_then(Cause::of_word) {
                Some(cause) => failure.because(cause),
                None => failure,
            }
        }
        MockAnswer::Retry { why, delay: None } => Failure::retry(why),
        MockAnswer::Retry { why, delay: Some(delay) } => Failure::retry_in(*delay, why),
        MockAnswer::Reject(why) => Failure::reject(why),
        MockAnswer::Halt(why) => Failure::halt(why),
        MockAnswer::Pending(handle) => Failure::pending(handle),
        MockAnswer::GateClosed(why) => Failure::gate_closed(why),
    })
}
