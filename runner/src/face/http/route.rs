//! What a path asks for.

use super::answer::Refusal;
use crate::words::{Address, Name};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `/sources/PIPELINE/SOURCE`
    Source(Address),
    /// `/jobs/PIPELINE/SOURCE/INDEX`
    Job(Asked),
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
            ["jobs", pipeline, queue, index] => {
                let index = index.parse().ok();
                address(pipeline, queue).zip(index).map(|(queue, index)| Self::Job(Asked { queue, index }))
            }
            ["healthz"] => Some(Self::Health),
            _ => None,
        };
        found.ok_or_else(|| {
            let ways =
                "`POST /sources/PIPELINE/SOURCE`, `GET /jobs/PIPELINE/SOURCE/INDEX` and `GET /healthz`";
            Refusal::missing(format!("nothing is at this path; there are {ways}"))
        })
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
        assert_eq!(route("/jobs/p/q/7"), Some(Route::Job(Asked { queue: address, index: 7 })));
        assert_eq!(route("/healthz"), Some(Route::Health));
        for path in ["/", "", "/sources/p", "/sources/p/q/", "/sources/p/../q", "/jobs/p/q/x", "/jobs/p/q/-1"]
        {
            assert_eq!(route(path), None, "{path}");
        }
    }
}
