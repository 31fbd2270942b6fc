//! Services: the outputs of a step that go to HTTP sinks, as requests of its attempts.

use tidegate_plugin::{Failure, FailureKind};

use super::mock::{MockedProcessor, Mocks};
use tidegate_components::http::HttpStep;
use tidegate_config::{Configuration, HttpRequest, QueueRef, SinkKind, SinkRef, Step, Target};

/// HTTP service that gets an output of a step.
#[derive(Debug)]
pub(crate) enum Service {
    Http(Box<HttpStep>),
    /// A queue of a test, in the place of an HTTP sink.
    Mocked(MockedProcessor),
}

/// The same as [`requests`], in a test: queues are in the place of the sinks.
pub(crate) fn mocked_requests<'c>(
    configuration: &'c Configuration,
    step: &'c Step,
    mocks: &'c Mocks,
) -> impl Iterator<Item = (usize, Service)> {
    step.outputs.iter().enumerate().filter_map(|(position, output)| match output.target {
        Target::Queue(QueueRef(queue)) => {
            let sink = mocks.sink(&configuration.queues[queue].address)?;
            Some((position, Service::Mocked(sink)))
        }
        Target::Sink(_) => None,
    })
}

/// Outputs of `step` that are HTTP services, by position.
pub(crate) fn requests<'c>(
    configuration: &'c Configuration,
    step: &'c Step,
) -> impl Iterator<Item = (usize, &'c HttpRequest)> {
    step.outputs.iter().enumerate().filter_map(|(position, output)| match output.target {
        Target::Sink(SinkRef(sink)) => match &configuration.sinks.get(sink)?.kind {
            SinkKind::Http(request) => Some((position, &**request)),
            _ => None,
        },
        Target::Queue(_) => None,
    })
}

/// Failure of an output that an earlier configuration of the step made.
pub(crate) fn late_output_gone(to: &str) -> Failure {
    let which = if to.is_empty() { "without a name".to_owned() } else { format!("`{to}`") };
    Failure::new(FailureKind::Output, format!("the step no longer has an output {which}"))
}

/// Failure of a delayed request: a request is sent within the attempt, under its hash.
pub(crate) fn late_request(output: &str) -> Failure {
    let which = if output.is_empty() { "an output".to_owned() } else { format!("the output `{output}`") };
    let why = format!("{which} cannot be delayed, because it goes to an HTTP sink: put a queue between them");
    Failure::new(FailureKind::Rejected, why)
}
