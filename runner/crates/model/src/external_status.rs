//! The words of the outside about jobs that were handed to it, and what follows on what.

use serde::{Deserialize, Serialize};

/// What the outside says of a job that was handed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExternalStatus {
    Pending,
    /// It is in order, and not final.
    Valid,
    Committed,
    Invalid,
    /// The outside does not know it: it has to be handed there again.
    Unknown,
}

/// When a poll begins that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NextPoll {
    Now,
    /// In so many milliseconds, since polls do not begin more often.
    In {
        ms: u64,
    },
    /// When what is asked just now is answered.
    AfterThis,
    /// When there is a job to ask for.
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

    /// Whether a job that stands so may be said to stand like that. What was committed, invalid or
    /// forgotten is settled, and nothing more is believed of it.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        match self {
            Self::Pending => true,
            Self::Valid => to != Self::Pending,
            Self::Committed | Self::Invalid | Self::Unknown => false,
        }
    }

    /// Whether the job goes on to wait.
    #[must_use]
    pub fn waits(self) -> bool {
        matches!(self, Self::Pending | Self::Valid)
    }
}
