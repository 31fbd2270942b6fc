//! Probe health: records the calls and failures of a step's gate and monitor.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_model::Timestamp;

/// Maximum number of different errors that are reported before the probe has recovered.
const ERRORS_MAX: usize = 16;

/// Kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    Gate,
    Monitor,
}

/// Health of a gate or a monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeHealth {
    /// Starts of the open calls, by their numbers.
    calls: BTreeMap<u64, Timestamp>,
    /// Start of the failures, with the last error.
    trouble: Option<(Timestamp, String)>,
    /// Errors that are reported.
    known: BTreeSet<String>,
}

impl ProbeHealth {
    /// Start of the oldest open call.
    #[must_use]
    pub fn asked(&self) -> Option<Timestamp> {
        self.calls.values().min().copied()
    }

    /// Start of the failures since the probe was healthy, with the last error.
    #[must_use]
    pub fn trouble(&self) -> Option<(Timestamp, &str)> {
        self.trouble.as_ref().map(|(since, why)| (*since, why.as_str()))
    }

    pub(crate) fn started(&mut self, call: u64, now: Timestamp) {
        self.calls.insert(call, now);
    }

    /// Records the end of a call, with its error if it failed. Returns whether the error is new.
    pub(crate) fn finished(&mut self, call: u64, trouble: Option<String>, now: Timestamp) -> bool {
        self.calls.remove(&call);
        let Some(why) = trouble else { return false };
        let news = self.known.len() < ERRORS_MAX && self.known.insert(why.clone());
        let since = self.trouble.as_ref().map_or(now, |(since, _)| *since);
        self.trouble = Some((since, why));
        news
    }

    /// Records that no call fails any more.
    pub(crate) fn recovered(&mut self) {
        self.trouble = None;
        self.known.clear();
    }

    /// Forgets the open calls, which will not end.
    pub(crate) fn restart(&mut self) {
        self.calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_lasts_until_no_call_fails() {
        let mut health = ProbeHealth::default();
        let trouble = |health: &ProbeHealth| health.trouble().map(|(since, why)| (since.0, why.to_owned()));
        let mut failed = |why: &str, now| {
            let news = health.finished(0, Some(why.to_owned()), Timestamp(now));
            (news, trouble(&health))
        };
        assert_eq!(failed("busy", 2), (true, Some((2, "busy".into()))));
        assert_eq!(failed("busy", 3), (false, Some((2, "busy".into()))));
        // Each of several servers has its error, which is reported once.
        assert_eq!(failed("gone", 4), (true, Some((2, "gone".into()))));
        assert_eq!(failed("busy", 5), (false, Some((2, "busy".into()))));
        assert!(!health.finished(0, None, Timestamp(6)));
        assert_eq!(trouble(&health), Some((2, "busy".into())));
        health.recovered();
        assert_eq!(trouble(&health), None);
        assert!(health.finished(0, Some("gone".into()), Timestamp(7)));
        assert_eq!(trouble(&health), Some((7, "gone".into())));
        for error in 0..100 {
            health.finished(0, Some(error.to_string()), Timestamp(8));
        }
        assert_eq!(health.known.len(), ERRORS_MAX);
    }

    #[test]
    fn the_oldest_open_call_counts() {
        let mut health = ProbeHealth::default();
        health.started(0, Timestamp(1));
        health.started(1, Timestamp(2));
        assert_eq!(health.asked(), Some(Timestamp(1)));
        health.finished(0, None, Timestamp(3));
        assert_eq!(health.asked(), Some(Timestamp(2)));
        health.restart();
        assert_eq!(health.asked(), None);
    }
}
