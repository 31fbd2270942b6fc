//! `PendingFields`: holds the fields of a pending job that `job show` and `delayed list` share.

use serde::{Deserialize, Serialize};

use super::rfc3339;
use tidegate_model::ExternalStatus;
use tidegate_store::ParkReason;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PendingFields {
    /// The handle in the external system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handle: Option<String>,
    /// The start of its wait there, or the start of the running attempt; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// The status that the external system has sent, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) external_status: Option<ExternalStatus>,
}

impl PendingFields {
    /// All fields are empty unless the job is pending.
    pub(crate) fn of(reason: &ParkReason) -> Self {
        let Some((handle, since, completion)) = reason.outside() else { return Self::default() };
        let external_status = completion.map(|completion| completion.status);
        Self { handle: Some(handle.to_owned()), since: Some(rfc3339(since)), external_status }
    }
}
