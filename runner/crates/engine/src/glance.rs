//! What a run knows of its steps at one moment.

use crate::request::Row;
use tidegate_dispatch::JobKey;
use tidegate_model::Timestamp;

/// What a run knows of one step.
#[derive(Clone, Debug)]
pub struct Glance {
    pub counts: tidegate_dispatch::Glance,
    /// So many of the jobs that stand in the store by themselves are on their way through the step, which
    /// takes its jobs as they come.
    pub returned: u64,
    /// Where the oldest waiting job stands, where it is picked; and those of the lanes that are told.
    pub spots: Vec<Spot>,
}

/// Where a waiting job stands.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub key: JobKey,
    /// It stands in the store by itself.
    pub row: Option<Row>,
    /// It came from a source, and was read then.
    pub read: Option<Timestamp>,
}

impl Glance {
    /// Where this job stands, if it is one of those that are told.
    #[must_use]
    pub fn spot(&self, key: JobKey) -> Option<&Spot> {
        self.spots.iter().find(|spot| spot.key == key)
    }
}
