//! What a path asks for.

use super::answer::Refusal;
use crate::words::{Address, Name};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `/sources/PIPELINE/SOURCE`
    Source(Address),
    /// `/jobs/PIPELINE/SOURCE/INDEX`
    Job(Asked),
    /// `/jobs/PIPELINE/QUEUE/INDEX/complete`
    Complete(Asked),
    /// `/monitor/PIPELINE/STEP`
    Monitor(Address),
    /// `/healthz`
    Health,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) queue: Address,
    pub(super) index: u64,
}

impl Route {
    pub(super) fn of(path: &str) -> Result<Self, Refusal> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let found = match parts[..] {
            ["sources", pipeline, source] => address(pipeline, source).map(Self::Source),
            ["jobs", pipeline, queue, index] => Asked::of(pipeline, queue, index).map(Self::Job),
            ["jobs", pipeline, queue, index, "complete"] => {
                Asked::of(pipeline, queue, index).map(Self::Complete)
            }
            ["monitor", pipeline, step] => address(pipeline, step).map(Self::Monitor),
            ["healthz"] => Some(Self::Health),
            _ => None,
        };
        found.ok_or_else(|| {
            let ways = "`POST /sources/PIPELINE/SOURCE`, `GET /jobs/PIPELINE/SOURCE/INDEX`, \
                        `POST /jobs/PIPELINE/QUEUE/INDEX/complete`, `POST /monitor/PIPELINE/STEP` and \
                        `GET /healthz`";
            Refusal::missing(format!("nothing is at this path; there are {ways}"))
        })
    }
}

impl Asked {
    fn of(pipeline: &str, queue: &str, index: &str) -> Option<Self> {
        Some(Self { queue: address(pipeline, queue)?, index: index.parse().ok()? })
    }
}

/// Names are made of letters that a path needs not write in another way.
fn address(pipeline: &str, name: &str) -> Option<Address> {
    Some(Address::new(Name::new(pipeline)?, Name::new(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_somewhere_or_say_where_to_go() {
        let route = |path| Route::of(path).ok();
        let address = Address::parse("p/q").unwrap();
        assert_eq!(route("/sources/p/q"), Some(Route::Source(address.clone())));
        let job = Asked { queue: address.clone(), index: 7 };
        assert_eq!(route("/jobs/p/q/7"), Some(Route::Job(job.clone())));
        assert_eq!(route("/jobs/p/q/7/complete"), Some(Route::Complete(job)));
        assert_eq!(route("/monitor/p/q"), Some(Route::Monitor(address)));
        assert_eq!(route("/healthz"), Some(Route::Health));
        for path in [
            "/",
            "",
            "/sources/p",
            "/sources/p/q/",
            "/sources/p/../q",
            "/jobs/p/q/x",
            "/jobs/p/q/-1",
            "/jobs/p/q/7/x",
            "/monitor/p",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }
}
