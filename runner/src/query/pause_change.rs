//! `PauseChange`: the part of a step that a pause or a resumption names, and what became of it.

use serde::Serialize;

use tidegate_engine::{Request, RequestOutcome};
use tidegate_model::Address;

/// The part of a step that is paused or resumed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PausedPart<'a> {
    Step,
    Lane(&'a str),
    Monitor,
}

/// An answer for programs.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of an answer")]
pub(crate) struct PauseChange<'a> {
    step: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    monitor: bool,
    paused: bool,
    /// Its state has changed.
    pub(crate) changed: bool,
    /// It had stopped, and starts again.
    pub(crate) restarted: bool,
    /// It starts again with a configuration from which the files differ.
    #[serde(skip)]
    pub(crate) behind: bool,
}

impl<'a> PausedPart<'a> {
    pub(crate) fn request(self, step: Address, paused: bool) -> Request {
        match self {
            Self::Step => Request::Pause { step, paused },
            Self::Lane(lane) => Request::PauseLane { step, lane: lane.to_owned(), paused },
            Self::Monitor => Request::PauseMonitor { step, paused },
        }
    }

    /// The change that the outcome of the request reports; `None` for the outcome of another request.
    pub(crate) fn change(
        self,
        step: &Address,
        paused: bool,
        outcome: &RequestOutcome,
    ) -> Option<PauseChange<'a>> {
        let RequestOutcome::Paused { changed, restarted, behind } = *outcome else { return None };
        let lane = if let Self::Lane(lane) = self { Some(lane) } else { None };
        let (step, monitor) = (step.to_string(), matches!(self, Self::Monitor));
        Some(PauseChange { step, lane, monitor, paused, changed, restarted, behind })
    }
}
