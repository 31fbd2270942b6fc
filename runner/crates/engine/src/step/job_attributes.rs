//! Attribute extractor: reads lane, priority, age and content keys from a job for its queuer.

use std::borrow::Cow;

use tidegate_plugin::{Failure, FailureKind};
use twox_hash::XxHash3_64;

use tidegate_config::{KeysMissing, LaneMissing, Queuer, Strategy};
use tidegate_dispatch::{JobAttributes, JobId, JobKey, QueuePolicy};
use tidegate_model::{FieldPath, Timestamp, elements, scalar};

/// Extracts the attributes of the jobs of one step.
#[derive(Clone, Debug)]
pub(crate) struct AttributeExtractor {
    queuer: Queuer,
}

/// Lane of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LaneSource<'j> {
    /// The step has no lanes, or this lane is for all jobs without one.
    Shared,
    Named(Cow<'j, str>),
    /// The job must have a lane, and has none.
    Missing,
}

impl AttributeExtractor {
    pub(crate) fn new(queuer: &Queuer) -> Self {
        Self { queuer: queuer.clone() }
    }

    /// Rules of a step with this queuer.
    pub(crate) fn rules(&self) -> QueuePolicy {
        let rate =
            |rate: tidegate_model::Rate| tidegate_dispatch::StartRate { jobs: rate.count, per: rate.per };
        let lane = self.queuer.lane.as_ref();
        QueuePolicy {
            strategy: match &self.queuer.strategy {
                Strategy::Fifo => tidegate_dispatch::StartOrder::Fifo,
                Strategy::Serial => tidegate_dispatch::StartOrder::Serial,
                Strategy::OneRoundSerial { .. } => tidegate_dispatch::StartOrder::OneRoundSerial,
                Strategy::OneRoundParallel { .. } => tidegate_dispatch::StartOrder::OneRoundParallel,
                Strategy::Priority { aging, .. } => tidegate_dispatch::StartOrder::Priority { aging: *aging },
                Strategy::Rounds { pause } => tidegate_dispatch::StartOrder::Rounds { pause: *pause },
            },
            max_processing: self.queuer.max_processing,
            max_pending: self.queuer.max_pending,
            max_per_lane: lane.and_then(|lane| lane.max_per_lane),
            rate: self.queuer.rate.map(rate),
            lane_rate: lane.and_then(|lane| lane.rate).map(rate),
            has_lanes: lane.is_some(),
        }
    }

    /// Lane of a job.
    pub(crate) fn lane<'j>(&self, job: &'j [u8]) -> LaneSource<'j> {
        let Some(lane) = &self.queuer.lane else { return LaneSource::Shared };
        match (lane.path.find(job).and_then(scalar), lane.missing) {
            (Some(name), _) => LaneSource::Named(name),
            (None, LaneMissing::Default) => LaneSource::Shared,
            (None, LaneMissing::Error) => LaneSource::Missing,
        }
    }

    /// Name of the lane that a job halts if it is invalid.
    pub(crate) fn halted_lane(&self, job: &[u8]) -> Option<String> {
        match self.lane(job) {
            _ if !self.queuer.halts_lanes() => None,
            LaneSource::Shared => Some(String::new()),
            LaneSource::Named(lane) => Some(lane.into_owned()),
            // The job is in a lane of its own.
            LaneSource::Missing => None,
        }
    }

    /// Whether a job may lack an attribute that it must have.
    pub(crate) fn requires(&self) -> bool {
        self.queuer.lane.is_some() || matches!(self.queuer.strategy, Strategy::OneRoundParallel { .. })
    }

    /// Failure of a job without the keys that it must have.
    pub(crate) fn missing_keys_error(&self, job: &[u8]) -> Option<Failure> {
        let Strategy::OneRoundParallel { reads, writes, missing: KeysMissing::Error, .. } =
            &self.queuer.strategy
        else {
            return None;
        };
        let mut paths = reads.iter().chain(writes);
        let path = paths.find(|path| keys(path, job).is_none())?;
        let near = path.nearest(job).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let message = format!(
            "the job has no keys: it has no list or text `{path}`{near} (`keys_missing = \"none\"` lets such jobs \
             run beside all others)"
        );
        Some(Failure::new(FailureKind::Payload, message))
    }

    /// Failure of a job without a lane.
    pub(crate) fn missing_lane_error(&self, job: &[u8]) -> Failure {
        let path = self.queuer.lane.as_ref().map(|lane| &lane.path);
        let near = path.and_then(|path| path.nearest(job));
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let path = path.map(FieldPath::to_string).unwrap_or_default();
        let message = format!(
            "the job is in no lane: it has no text or number `{path}`{near} (`lane_missing = \"default\"` puts \
             such jobs into one of their own)"
        );
        Failure::new(FailureKind::Payload, message)
    }

    /// Passes the attributes of a job to `take`. `index` is its index in the input, `since` the time of its
    /// arrival.
    pub(crate) fn extract<T>(
        &self,
        key: JobKey,
        (index, since): (u64, Timestamp),
        job: &[u8],
        take: impl FnOnce(&JobAttributes<'_>) -> T,
    ) -> T {
        let own = key.0.to_le_bytes();
        let lane = self.lane(job);
        let lane = match &lane {
            // No name begins with this byte.
            LaneSource::Shared => &[][..],
            LaneSource::Named(name) => name.as_bytes(),
            // The job will fail, and must not block another.
            LaneSource::Missing => &own,
        };
        let number = |path: &FieldPath| path.find(job).and_then(whole);
        let age = self.queuer.age.as_ref().and_then(|path| path.find(job)).and_then(moment);
        let id = self.queuer.id.as_ref().and_then(|path| path.find(job)).and_then(identity);
        let (mut reads, mut writes, mut priority) = (Vec::new(), Vec::new(), 0);
        match &self.queuer.strategy {
            Strategy::OneRoundParallel { reads: reading, writes: writing, .. } => {
                // A job without keys fails, or has none.
                let keys = |path: &Option<FieldPath>| {
                    let values = path.as_ref().and_then(|path| keys(path, job)).unwrap_or_default();
                    values.into_iter().map(content).collect::<Vec<u64>>()
                };
                (reads, writes) = (keys(reading), keys(writing));
            }
            Strategy::Priority { priority: path, .. } => priority = number(path).unwrap_or(0),
            _ => {}
        }
        take(&JobAttributes {
            key,
            index: Some(index),
            lane,
            age: age.unwrap_or_else(|| i64::try_from(index).unwrap_or(i64::MAX)),
            id: id.unwrap_or(JobId::None),
            priority,
            since,
            reads: &reads,
            writes: &writes,
        })
    }
}

/// The elements of a list; or a text or number, as a list of one.
fn keys<'j>(path: &FieldPath, job: &'j [u8]) -> Option<Vec<&'j str>> {
    let written = path.find(job)?;
    match written.as_bytes().first()? {
        b'[' => Some(elements(written)),
        b'"' | b'-' | b'0'..=b'9' => Some(vec![written]),
        _ => None,
    }
}

/// The same content has the same hash in every JSON escape.
fn content(written: &str) -> u64 {
    match scalar(written) {
        Some(text) => XxHash3_64::oneshot(text.as_bytes()),
        None => XxHash3_64::oneshot(written.as_bytes()),
    }
}

/// A number, truncated to an integer.
#[expect(clippy::cast_possible_truncation, reason = "a cast from a float saturates")]
fn whole(written: &str) -> Option<i64> {
    written.parse().ok().or_else(|| written.parse::<f64>().ok().map(|number| number as i64))
}

/// A number, or a time in RFC 3339.
fn moment(written: &str) -> Option<i64> {
    whole(written).or_else(|| {
        let time: jiff::Timestamp = scalar(written)?.parse().ok()?;
        Some(time.as_millisecond())
    })
}

fn identity(written: &str) -> Option<JobId> {
    match written.parse() {
        Ok(number) => Some(JobId::Number(number)),
        Err(_) => scalar(written).map(|text| JobId::Text(text.into_owned().into_boxed_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    fn queuer(strategy: Strategy, missing: LaneMissing) -> Queuer {
        Queuer {
            ordered: false,
            strategy,
            lane: Some(tidegate_config::Lane {
                path: path("order.pool"),
                missing,
                frees_at: tidegate_config::FreesAt::End,
                after_invalid: tidegate_config::AfterInvalid::GoesOn,
                max_per_lane: None,
                rate: None,
            }),
            max_processing: None,
            max_pending: None,
            max_search_ahead: None,
            rate: None,
            age: Some(path("at")),
            id: Some(path("id")),
        }
    }

    fn rendered(queuer: &Queuer, job: &str) -> String {
        let attributes = AttributeExtractor::new(queuer);
        attributes.extract(JobKey::fresh(7), (7, Timestamp(5)), job.as_bytes(), |card| {
            let lane = String::from_utf8_lossy(card.lane).into_owned();
            format!(
                "{lane} {} {:?} {} {} {}",
                card.age,
                card.id,
                card.priority,
                card.reads.len(),
                card.writes.len()
            )
        })
    }

    #[test]
    fn a_card_has_what_the_strategy_looks_at() {
        let serial = queuer(Strategy::OneRoundSerial { delay_window: None }, LaneMissing::Default);
        assert_eq!(rendered(&serial, r#"{"order": {"pool": "a"}, "id": 3}"#), "a 7 Number(3) 0 0 0");
        assert_eq!(
            rendered(&serial, r#"{"order": {"pool": 12}, "at": 99, "id": "x"}"#),
            "12 99 Text(\"x\") 0 0 0"
        );
        assert_eq!(rendered(&serial, r#"{"at": "1970-01-01T00:00:01Z"}"#), " 1000 None 0 0 0");
        let priority = Strategy::Priority { priority: path("urgency"), aging: None };
        let priority = queuer(priority, LaneMissing::Default);
        assert_eq!(rendered(&priority, r#"{"urgency": 2.9}"#), " 7 None 2 0 0");
        let (reads, writes) = (Some(path("in")), Some(path("out")));
        let missing = KeysMissing::Error;
        let parallel = Strategy::OneRoundParallel { delay_window: None, reads, writes, missing };
        let parallel = queuer(parallel, LaneMissing::Default);
        assert_eq!(rendered(&parallel, r#"{"in": ["a", "b"], "out": ["a"]}"#), " 7 None 0 2 1");
        assert_eq!(rendered(&parallel, r#"{"in": "a", "out": 7}"#), " 7 None 0 1 1");
    }

    #[test]
    fn a_job_without_the_keys_that_the_queuer_names_is_an_error_unless_it_may_lack_them() {
        let extractor = |missing| {
            let (reads, writes) = (Some(path("in")), Some(path("to.keys")));
            let strategy = Strategy::OneRoundParallel { delay_window: None, reads, writes, missing };
            AttributeExtractor::new(&queuer(strategy, LaneMissing::Default))
        };
        let (strict, lenient) = (extractor(KeysMissing::Error), extractor(KeysMissing::None));
        let message = |job: &str| strict.missing_keys_error(job.as_bytes()).map(|failure| failure.message);
        for sound in [r#"{"in": [], "to": {"keys": ["a"]}}"#, r#"{"in": "a", "to": {"keys": 7}}"#] {
            assert_eq!(message(sound), None, "{sound}");
        }
        for job in [
            "{}",
            r#"{"in": []}"#,
            r#"{"in": null, "to": {"keys": []}}"#,
            r#"{"in": {"a": 1}, "to": {"keys": []}}"#,
            r#"{"in": [], "to": {"keys": true}}"#,
        ] {
            assert!(message(job).is_some_and(|why| why.contains("it has no list or text")), "{job}");
            assert_eq!(lenient.missing_keys_error(job.as_bytes()), None, "{job}");
        }
        let near = message(r#"{"in": [], "to": {"kes": []}}"#).unwrap();
        assert!(near.contains("`to.keys`; did you mean `to.kes`? (`keys_missing"), "{near}");
    }

    #[test]
    fn a_lane_can_be_an_element_of_a_list() {
        let mut first = queuer(Strategy::Fifo, LaneMissing::Error);
        first.lane.as_mut().unwrap().path = path("items.0");
        let lane = |job: &'static str| AttributeExtractor::new(&first).lane(job.as_bytes());
        assert_eq!(lane(r#"{"items": ["a", "b"]}"#), LaneSource::Named("a".into()));
        assert_eq!(lane(r#"{"items": []}"#), LaneSource::Missing);
    }

    #[test]
    fn a_job_without_a_lane_is_told_the_nearest_field() {
        let strict = queuer(Strategy::Fifo, LaneMissing::Error);
        let message = |job: &str| AttributeExtractor::new(&strict).missing_lane_error(job.as_bytes()).message;
        assert!(
            message(r#"{"order": {"pol": 1, "id": 2}}"#)
                .contains("`order.pool`; did you mean `order.pol`? (`lane")
        );
        for other in
            [r#"{"pol": 1}"#, "{}", "7", r#"{"order": {"elephant": 1}}"#, r#"{"order": {"pool": null}}"#]
        {
            assert!(message(other).contains("no text or number `order.pool` (`lane"), "{other}");
        }
    }

    #[test]
    fn a_job_without_a_lane_holds_up_nobody() {
        let strict = queuer(Strategy::Fifo, LaneMissing::Error);
        assert_eq!(AttributeExtractor::new(&strict).lane(b"{}"), LaneSource::Missing);
        assert_eq!(
            AttributeExtractor::new(&strict).lane(br#"{"order": {"pool": null}}"#),
            LaneSource::Missing
        );
        let lane = |key| {
            AttributeExtractor::new(&strict)
                .extract(JobKey::fresh(key), (key, Timestamp(0)), b"{}", |card| card.lane.to_vec())
        };
        assert_ne!(lane(1), lane(2));
    }
}
