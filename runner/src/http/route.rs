//! `Route`: the resource that a path names.

use hyper::Method;

use super::response::HttpRefusal;
use crate::query::late::{DUE, LateAddress, job_number};
use tidegate_model::suggest::did_you_mean;
use tidegate_model::{Address, Name};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/sources/PIPELINE/SOURCE`
    Source(Address),
    /// `/jobs/PIPELINE/SOURCE`
    Jobs(Address),
    /// `/jobs/PIPELINE/SOURCE/INDEX`
    Job(JobAddress),
    /// `/jobs/PIPELINE/QUEUE/due/NUMBER`
    Late(LateAddress),
    /// `/jobs/PIPELINE/QUEUE/INDEX/complete`
    Complete(JobAddress),
    /// `/monitor/PIPELINE/STEP`
    Monitor(Address),
    /// `/steps/PIPELINE/STEP/pause`, or `…/resume`
    Pause { step: Address, paused: bool },
    /// `/reload`
    Reload,
    /// `/healthz`
    Health,
    /// `/ready`
    Ready,
}

/// The address of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobAddress {
    pub(crate) queue: Address,
    pub(crate) index: u64,
}

impl Route {
    pub(crate) fn of(path: &str) -> Result<Self, HttpRefusal> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let found = match parts[..] {
            ["sources", pipeline, source] => address(pipeline, source).map(Self::Source),
            ["jobs", pipeline, source] => address(pipeline, source).map(Self::Jobs),
            ["jobs", pipeline, queue, index] => JobAddress::of(pipeline, queue, index).map(Self::Job),
            ["jobs", pipeline, queue, DUE, number] => {
                LateAddress::of((pipeline, queue), number).map(Self::Late)
            }
            ["jobs", pipeline, queue, index, "complete"] => {
                JobAddress::of(pipeline, queue, index).map(Self::Complete)
            }
            ["monitor", pipeline, step] => address(pipeline, step).map(Self::Monitor),
            ["steps", pipeline, step, "pause"] => Self::pause((pipeline, step), true),
            ["steps", pipeline, step, "resume"] => Self::pause((pipeline, step), false),
            ["reload"] => Some(Self::Reload),
            ["healthz"] => Some(Self::Health),
            ["ready"] => Some(Self::Ready),
            _ => None,
        };
        found.ok_or_else(|| {
            let ways = "`POST /sources/PIPELINE/SOURCE`, `GET /jobs/PIPELINE/SOURCE`, \
                        `GET` and `DELETE /jobs/PIPELINE/SOURCE/INDEX` and `/jobs/PIPELINE/SOURCE/due/NUMBER`, \
                        `POST /jobs/PIPELINE/QUEUE/INDEX/complete`, `POST /monitor/PIPELINE/STEP`, \
                        `POST /steps/PIPELINE/STEP/pause` and `/resume`, \
                        `POST /reload`, `GET /healthz` and `GET /ready`";
            HttpRefusal::missing(format!("the path is unknown: use {ways}"))
        })
    }

    fn pause((pipeline, step): (&str, &str), paused: bool) -> Option<Self> {
        Some(Self::Pause { step: address(pipeline, step)?, paused })
    }
}

impl Route {
    /// Refuses parameters that have no effect here, since a client that sends one expects an effect.
    pub(crate) fn check(&self, method: &Method, query: Option<&str>) -> Result<(), HttpRefusal> {
        let known: &[&str] = match self {
            Self::Source(_) => &["due", "delay"],
            Self::Complete(_) => &["token"],
            Self::Pause { .. } => &["lane", "monitor"],
            Self::Jobs(_) => &["key", "handle", "status", "step", "lane", "payload", "after", "limit"],
            Self::Job(_) if *method == Method::DELETE => &["step", "drop"],
            _ => &[],
        };
        let names = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let names = names.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
        match names.into_iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(unknown) => {
                let near = did_you_mean(unknown, known.iter().copied());
                let near = near.map_or_else(String::new, |near| format!("; {near}"));
                Err(HttpRefusal::wrong(format!("parameter `{unknown}` is unknown{near}")).closing())
            }
        }
    }
}

impl JobAddress {
    /// `pipeline/queue/index`
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (pipeline, queue, index) = (parts.next()?, parts.next()?, parts.next()?);
        parts.next().is_none().then(|| Self::of(pipeline, queue, index)).flatten()
    }

    fn of(pipeline: &str, queue: &str, index: &str) -> Option<Self> {
        Some(Self { queue: address(pipeline, queue)?, index: job_number(index)? })
    }
}

/// Names consist of characters that need no escape in a path.
fn address(pipeline: &str, name: &str) -> Option<Address> {
    Some(Address::new(Name::new(pipeline)?, Name::new(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_store::ParkedId;

    #[test]
    fn paths_lead_somewhere_or_say_where_to_go() {
        let route = |path| Route::of(path).ok();
        let address = Address::parse("p/q").unwrap();
        assert_eq!(route("/sources/p/q"), Some(Route::Source(address.clone())));
        let job = JobAddress { queue: address.clone(), index: 7 };
        assert_eq!(route("/jobs/p/q"), Some(Route::Jobs(address.clone())));
        assert_eq!(route("/jobs/p/q/7"), Some(Route::Job(job.clone())));
        assert_eq!(route("/jobs/p/q/7/complete"), Some(Route::Complete(job)));
        let late = LateAddress { queue: address.clone(), id: ParkedId(7) };
        assert_eq!(LateAddress::parse(&late.to_string()), Some(late.clone()));
        assert_eq!(route("/jobs/p/q/due/7"), Some(Route::Late(late)));
        assert_eq!(route("/monitor/p/q"), Some(Route::Monitor(address.clone())));
        let step = address;
        assert_eq!(route("/steps/p/q/pause"), Some(Route::Pause { step: step.clone(), paused: true }));
        assert_eq!(route("/steps/p/q/resume"), Some(Route::Pause { step, paused: false }));
        assert_eq!(route("/reload"), Some(Route::Reload));
        assert_eq!(route("/healthz"), Some(Route::Health));
        assert_eq!(route("/ready"), Some(Route::Ready));
        for path in [
            "/",
            "",
            "/sources/p",
            "/sources/p/q/",
            "/sources/p/../q",
            "/jobs/p/q/x",
            "/jobs/p/q/-1",
            "/jobs/p/q/+1",
            "/jobs/p/q/01",
            "/jobs/p/q/+1/complete",
            "/jobs/p/q/99999999999999999999",
            "/jobs/p/q/7/x",
            "/jobs/p/q/due",
            "/jobs/p/q/due/07",
            "/jobs/p/q/due/x",
            "/monitor/p",
            "/steps/p/q",
            "/steps/p/q/stop",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }

    #[test]
    fn a_parameter_that_means_nothing_is_refused() {
        let check = |path: &str, query| {
            Route::of(path)
                .unwrap()
                .check(&Method::GET, query)
                .map_or_else(|refusal| refusal.to_string(), |()| "taken".into())
        };
        assert_eq!(check("/sources/p/q", None), "taken");
        assert_eq!(check("/sources/p/q", Some("")), "taken");
        assert_eq!(check("/jobs/p/q/7/complete", Some("token=abc")), "taken");
        assert_eq!(check("/sources/p/q", Some("delay=5s")), "taken");
        assert_eq!(check("/sources/p/q", Some("wait=5s")), "400 parameter `wait` is unknown");
        assert_eq!(check("/jobs/p/q/7", Some("why")), "400 parameter `why` is unknown");
        assert_eq!(check("/jobs/p/q/7", Some("drop=true")), "400 parameter `drop` is unknown");
        assert_eq!(check("/jobs/p/q", Some("status=waiting&limit=3")), "taken");
        assert_eq!(
            check("/jobs/p/q/7/complete", Some("token=abc&tokem=abc")),
            "400 parameter `tokem` is unknown; did you mean `token`?"
        );
    }
}
