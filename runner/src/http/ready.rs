//! Readiness: whether the run has started, does not end, has room on its disk, and has no stopped step.

use hyper::StatusCode;
use serde::Serialize;

use super::response::{Response, json};
use crate::client::ipc::RunnerContext;
use crate::query::rfc3339;

/// The answer. It names stopped steps without their reasons, which may show parts of jobs.
#[derive(Serialize)]
struct Readiness {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StoppedStep>,
}

#[derive(Serialize)]
struct StoppedStep {
    step: String,
    /// RFC 3339.
    since: String,
}

pub(crate) fn ready(context: &RunnerContext) -> Response {
    let handle = &context.handle;
    let steps: Vec<StoppedStep> = handle
        .stats()
        .of(&context.configuration())
        .filter_map(|(step, stats)| {
            let (since, _) = stats.halted()?;
            Some(StoppedStep { step: step.address.to_string(), since: rfc3339(since) })
        })
        .collect();
    let status = if handle.is_over() {
        "ending"
    } else if !handle.has_started() {
        "starting"
    } else if !steps.is_empty() {
        "stopped"
    } else if handle.stats().full().is_some() {
        "full"
    } else {
        return json(StatusCode::OK, &Readiness { status: "ok", steps });
    };
    json(StatusCode::SERVICE_UNAVAILABLE, &Readiness { status, steps })
}
