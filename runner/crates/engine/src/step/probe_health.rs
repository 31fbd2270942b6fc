//! Probe health: records the calls and failures of a step's gate and monitor.

use tidegate_model::Timestamp;

/// Kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    Gate,
    Monitor,
}

/// Health of a gate or a monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeHealth {
    /// Start of the open call.
    pub asked: Option<Timestamp>,
    /// Start of the failures since the last good answer, with the last error.
    pub trouble: Option<(Timestamp, String)>,
}

impl ProbeHealth {
    pub(crate) fn started(&mut self, now: Timestamp) {
        self.asked = Some(now);
    }

    /// Records the end of a call, with its error if it failed. Returns whether the error is new.
    pub(crate) fn finished(&mut self, trouble: Option<String>, now: Timestamp) -> bool {
        self.asked = None;
        let before = self.trouble.take();
        let Some(why) = trouble else { return false };
        let (since, news) = match before {
            Some((since, before)) => (since, before != why),
            None => (now, true),
        };
        self.trouble = Some((since, why));
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_lasts_until_an_answer_is_good() {
        let mut answering = ProbeHealth::default();
        answering.started(Timestamp(1));
        assert_eq!(answering.asked, Some(Timestamp(1)));
        let mut answered = |why: Option<&str>, now| {
            let news = answering.finished(why.map(str::to_owned), Timestamp(now));
            (news, answering.clone().trouble.map(|(since, why)| (since.0, why)))
        };
        assert_eq!(answered(Some("busy"), 2), (true, Some((2, "busy".into()))));
        assert_eq!(answered(Some("busy"), 3), (false, Some((2, "busy".into()))));
        assert_eq!(answered(Some("gone"), 4), (true, Some((2, "gone".into()))));
        assert_eq!(answered(None, 5), (false, None));
        assert_eq!(answered(Some("gone"), 6), (true, Some((6, "gone".into()))));
        assert_eq!(answering.asked, None);
    }
}
