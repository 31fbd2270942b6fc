//! `Status`: the state of a job in an external system, and the permitted changes of it.

use serde::{Deserialize, Serialize};

/// The state of a pending job in the external system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExternalStatus {
    Pending,
    /// It is valid, and not final.
    Valid,
    Committed,
    Invalid,
    /// The external system does not know it: it must be submitted again.
    Unknown,
}

/// The time of a requested poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NextPoll {
    Now,
    /// After this number of milliseconds, since the interval between polls is limited.
    In {
        ms: u64,
    },
    /// After the answer of the poll in progress.
    AfterThis,
    /// When a job is pending.
    WhenPending,
}

impl ExternalStatus {
    /// The status of this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    pub const ALL: [Self; 5] = [Self::Pending, Self::Valid, Self::Committed, Self::Invalid, Self::Unknown];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Valid => "valid",
            Self::Committed => "committed",
            Self::Invalid => "invalid",
            Self::Unknown => "unknown",
        }
    }

    /// Whether this status may change to `to`. A committed, invalid or unknown job is final, and no other
    /// status is accepted.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        match self {
            Self::Pending => true,
            Self::Valid => to != Self::Pending,
            Self::Committed | Self::Invalid | Self::Unknown => false,
        }
    }

    /// Whether the job stays pending.
    #[must_use]
    pub fn waits(self) -> bool {
        matches!(self, Self::Pending | Self::Valid)
    }
}
