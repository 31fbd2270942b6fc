//! Status of sources: reports commands with their cursors, and services.

use serde::{Deserialize, Serialize};

use super::rfc3339;
use tidegate_config::{Configuration, PushSource, QueueRef, SourceKind, SourceRef};
use tidegate_engine::{Handle, SourceHealth, SourceState};
use tidegate_model::{Address, shortened};
use tidegate_store::{ReadError, Store};

/// Maximum bytes of a cursor.
const CURSOR_MAX: usize = 200;

/// A source that runs, or that may fail.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SourceStatus {
    pub(crate) source: String,
    /// As in the configuration.
    #[serde(rename = "type")]
    pub(crate) sort: String,
    /// `running`, `waiting`, `ended` or `stopped`; `null` without a runner.
    pub(crate) state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// The time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
    /// The last failure, without progress since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Failures in a row.
    #[serde(default)]
    pub(crate) failures: u32,
    /// The beginning of the last durable cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
}

/// The sources of a configuration that have a status.
pub(crate) fn all(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
) -> Result<Vec<SourceStatus>, ReadError> {
    let mut sources = Vec::new();
    for (position, source) in configuration.sources.entries() {
        if !matches!(source.kind, SourceKind::Service(_)) {
            continue;
        }
        let health = run.and_then(|run| run.stats().service(SourceRef(position)).health());
        sources.extend(health.map(|health| of(&source.address, "http-pull", Some(health))));
    }
    for (position, queue) in configuration.queues.entries() {
        let Some(source @ PushSource::Exec(_)) = &queue.source else { continue };
        let cursor = store.cursor(&queue.address)?.map(|cursor| shortened(cursor, CURSOR_MAX));
        let health = run.and_then(|run| run.stats().source(QueueRef(position)).health());
        sources.push(SourceStatus { cursor, ..of(&queue.address, source.sort(), health) });
    }
    sources.sort_by(|one, other| one.source.cmp(&other.source));
    Ok(sources)
}

/// The status of a source without a cursor.
fn of(address: &Address, sort: &str, health: Option<SourceHealth>) -> SourceStatus {
    let state = health.as_ref().map(|health| match health.state {
        SourceState::Running => "running",
        SourceState::Waiting { .. } => "waiting",
        SourceState::Ended => "ended",
        SourceState::Stopped => "stopped",
    });
    let until = health.as_ref().and_then(|health| match health.state {
        SourceState::Waiting { until } => Some(rfc3339(until)),
        _ => None,
    });
    SourceStatus {
        source: address.to_string(),
        sort: sort.to_owned(),
        state: state.map(str::to_owned),
        since: health.as_ref().and_then(|health| health.since).map(rfc3339),
        until,
        failures: health.as_ref().map_or(0, |health| health.failures),
        why: health.and_then(|health| health.why),
        cursor: None,
    }
}
