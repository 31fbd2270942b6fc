//! Waiting room tests: check the rules as histories, against a naive model, and by memory use.

use std::num::NonZeroU32;
use std::time::Duration;

use super::*;

pub(crate) mod histories;
pub(crate) mod lines;
pub(crate) mod model;
pub(crate) mod play;
pub(crate) mod same;

fn rules(strategy: StartOrder) -> QueuePolicy {
    QueuePolicy {
        strategy,
        max_processing: None,
        max_pending: None,
        max_per_lane: None,
        rate: None,
        lane_rate: None,
        has_lanes: false,
    }
}

fn most(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

fn rate(jobs: u32, millis: u64) -> Option<StartRate> {
    Some(StartRate { jobs: most(jobs)?, per: Duration::from_millis(millis) })
}

const ROUNDS: StartOrder = StartOrder::Rounds { pause: Duration::from_secs(5) };
const PRIORITY: StartOrder = StartOrder::Priority { aging: None };
const AGING: StartOrder = StartOrder::Priority { aging: Some(Duration::from_secs(1)) };
