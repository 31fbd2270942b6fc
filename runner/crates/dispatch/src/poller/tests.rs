//! Poller tests: play histories of events and compare the commands.

use super::*;

struct Play {
    monitor: Poller,
    now: Timestamp,
}

impl Play {
    /// Creates a poller of two jobs a request, one request at a time, and five seconds a poll.
    fn new() -> Self {
        Self::of(1, false)
    }

    fn of(concurrency: usize, by_lane: bool) -> Self {
        let rules = PollRules { batch: 2, every: Duration::from_secs(5), concurrency, by_lane };
        Self { monitor: Poller::new(rules), now: Timestamp(0) }
    }

    fn on(&mut self, event: PollerEvent<'_>) -> String {
        let mut commands = Vec::new();
        self.monitor.handle(event, self.now, &mut commands);
        let texts: Vec<String> = commands.iter().map(text).collect();
        texts.join(", ")
    }

    fn pend(&mut self, key: u64, lane: &str) -> String {
        let since = self.now;
        self.on(PollerEvent::Pended { key: JobKey(key), lane: lane.as_bytes(), since })
    }

    fn answer(&mut self, ask: u64, answers: &[(u64, ExternalStatus)]) -> String {
        let answers: Vec<_> = answers.iter().map(|&(key, status)| (JobKey(key), status)).collect();
        self.on(PollerEvent::Answered { ask, answers: &answers, malformed: false })
    }

    fn at(&mut self, millis: i64) -> String {
        self.now = Timestamp(millis);
        self.on(PollerEvent::Tick)
    }

    fn wakes(&self) -> Option<i64> {
        self.monitor.wakes(self.now).map(|wakes| wakes.0)
    }
}

fn text(command: &PollerCommand) -> String {
    match command {
        PollerCommand::Ask { ask, jobs } => {
            let jobs: Vec<String> = jobs.iter().map(|key| key.0.to_string()).collect();
            format!("ask #{ask} {}", jobs.join("+"))
        }
        PollerCommand::Settle { key, status } => format!("{} {}", key.0, status.as_str()),
        PollerCommand::Valid { key } => format!("{} is valid", key.0),
        PollerCommand::Discarded { answers } => format!("discarded {answers}"),
        PollerCommand::Refused { key, from, to } => {
            format!("{} not {} from {}", key.0, to.as_str(), from.as_str())
        }
    }
}

#[test]
fn jobs_are_asked_for_lane_by_lane_and_the_longest_unasked_first() {
    let mut play = Play::new();
    for (key, lane) in [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a")] {
        assert_eq!(play.pend(key, lane), "");
    }
    assert_eq!(play.wakes(), Some(5000));
    assert_eq!(play.at(4999), "");
    assert_eq!(play.at(5000), "ask #0 1+3");
    assert_eq!(play.wakes(), None);
    // A job that comes during a poll waits for the next one.
    assert_eq!(play.pend(6, "b"), "");
    let pending = |keys: &[u64]| keys.iter().map(|&key| (key, ExternalStatus::Pending)).collect::<Vec<_>>();
    assert_eq!(play.answer(0, &pending(&[1, 3])), "ask #1 2+4");
    assert_eq!(play.answer(1, &pending(&[2, 4])), "ask #2 5");
    assert_eq!(play.answer(2, &pending(&[5])), "");
    assert_eq!(play.wakes(), Some(10_000));
    assert_eq!(play.at(10_000), "ask #3 6+2");
    assert_eq!(play.answer(3, &[]), "ask #4 1+3");
}

#[test]
fn an_answer_moves_a_job_as_the_table_says() {
    let mut play = Play::new();
    play.pend(1, "");
    play.pend(2, "");
    assert_eq!(play.at(5000), "ask #0 1+2");
    assert_eq!(
        play.answer(0, &[(1, ExternalStatus::Valid), (2, ExternalStatus::Invalid)]),
        "1 is valid, 2 invalid"
    );
    assert_eq!(play.monitor.status(JobKey(1)), Some(ExternalStatus::Valid));
    assert_eq!(play.at(10_000), "ask #1 1");
    assert_eq!(play.answer(1, &[(1, ExternalStatus::Pending)]), "1 not pending from valid");
    assert_eq!(play.at(15_000), "ask #2 1");
    assert_eq!(play.answer(2, &[(1, ExternalStatus::Committed)]), "1 committed");
    // A completed job is polled no more, and no answer changes it.
    assert_eq!(play.at(20_000), "");
    assert_eq!(play.wakes(), None);
    let event = PollerEvent::Reported { key: JobKey(1), status: ExternalStatus::Invalid };
    assert_eq!(play.on(event), "1 not invalid from committed");
    assert_eq!(play.on(PollerEvent::Left { key: JobKey(1) }), "");
    assert_eq!(play.monitor.len(), 1);
}

#[test]
fn no_transition_is_allowed_that_the_table_does_not_list() {
    let allowed = ExternalStatus::ALL.into_iter().flat_map(|from| {
        let to = ExternalStatus::ALL.into_iter().filter(move |&to| from.may_become(to));
        to.map(move |to| format!("{} {}", from.as_str(), to.as_str()))
    });
    let allowed: Vec<String> = allowed.collect();
    assert_eq!(
        allowed,
        [
            "pending pending",
            "pending valid",
            "pending committed",
            "pending invalid",
            "pending unknown",
            "valid valid",
            "valid committed",
            "valid invalid",
            "valid unknown",
        ]
    );
}

#[test]
fn a_job_that_was_forgotten_can_be_pending_again() {
    let mut play = Play::new();
    play.pend(1, "");
    assert_eq!(play.at(5000), "ask #0 1");
    assert_eq!(play.answer(0, &[(1, ExternalStatus::Unknown)]), "1 unknown");
    play.on(PollerEvent::Left { key: JobKey(1) });
    assert!(play.monitor.is_empty());
    play.now = Timestamp(7000);
    assert_eq!(play.pend(1, ""), "");
    assert_eq!(play.wakes(), Some(12_000));
    assert_eq!(play.at(12_000), "ask #1 1");
}

#[test]
fn what_was_not_asked_for_is_discarded() {
    let mut play = Play::new();
    for key in 1..=3 {
        play.pend(key, "");
    }
    assert_eq!(play.at(5000), "ask #0 1+2");
    let answers = [
        (3, ExternalStatus::Committed),
        (9, ExternalStatus::Committed),
        (1, ExternalStatus::Valid),
        (1, ExternalStatus::Committed),
    ];
    assert_eq!(play.answer(0, &answers), "1 is valid, discarded 3, ask #1 3");
    assert_eq!(play.monitor.status(JobKey(1)), Some(ExternalStatus::Valid));
    // Late answers are discarded.
    assert_eq!(play.answer(0, &[(2, ExternalStatus::Committed)]), "discarded 1");
    // So are late answers for a job that has left since.
    play.on(PollerEvent::Left { key: JobKey(3) });
    assert_eq!(play.answer(1, &[(3, ExternalStatus::Committed)]), "discarded 1");
}

#[test]
fn jobs_keep_their_status_where_a_poll_fails() {
    let mut play = Play::new();
    for key in 1..=3 {
        play.pend(key, "");
    }
    assert_eq!(play.at(5000), "ask #0 1+2");
    assert_eq!(play.on(PollerEvent::Failed { ask: 0 }), "ask #1 3");
    assert_eq!(play.on(PollerEvent::Failed { ask: 1 }), "");
    assert_eq!(play.at(10_000), "ask #2 1+2");
}

#[test]
fn requested_polls_come_at_most_once_a_second() {
    let mut play = Play::new();
    play.pend(1, "");
    assert_eq!(play.on(PollerEvent::Poll), "ask #0 1");
    assert_eq!(play.on(PollerEvent::Poll), "");
    assert_eq!(play.answer(0, &[(1, ExternalStatus::Pending)]), "");
    assert_eq!(play.wakes(), Some(1000));
    assert_eq!(play.at(999), "");
    assert_eq!(play.at(1000), "ask #1 1");
    // All requests in the meantime led to one poll.
    assert_eq!(play.answer(1, &[]), "");
    assert_eq!(play.wakes(), Some(6000));
}

#[test]
fn a_requested_poll_comes_no_later_than_the_next_regular_one() {
    let mut play = Play::new();
    play.monitor = Poller::new(PollRules { every: Duration::from_millis(20), ..play.monitor.rules });
    play.pend(1, "");
    assert_eq!(play.at(20), "ask #0 1");
    assert_eq!(play.on(PollerEvent::Poll), "");
    assert_eq!(play.answer(0, &[]), "");
    assert_eq!(play.wakes(), Some(40));
}

#[test]
fn a_request_to_poll_is_answered_with_the_time_of_that_poll() {
    let mut play = Play::new();
    play.on(PollerEvent::Poll);
    assert_eq!(play.monitor.soon(play.now), NextPoll::WhenPending);
    // A poll that was requested while no job was pending is not lost.
    play.pend(1, "");
    assert_eq!(play.wakes(), Some(0));
    assert_eq!(play.at(0), "ask #0 1");
    assert_eq!(play.monitor.soon(play.now), NextPoll::Now);
    play.on(PollerEvent::Poll);
    assert_eq!(play.monitor.soon(play.now), NextPoll::AfterThis);
    play.now = Timestamp(300);
    play.answer(0, &[]);
    assert_eq!(play.monitor.soon(play.now), NextPoll::In { ms: 700 });
    assert_eq!(play.at(1000), "ask #1 1");
}

#[test]
fn what_is_told_unasked_settles_a_job_once() {
    let mut play = Play::new();
    play.pend(1, "");
    let reported = |key, status| PollerEvent::Reported { key: JobKey(key), status };
    assert_eq!(play.on(reported(1, ExternalStatus::Committed)), "1 committed");
    // A repeated status changes nothing, and neither does one from the monitor.
    assert_eq!(play.on(reported(1, ExternalStatus::Committed)), "");
    assert_eq!(play.on(reported(1, ExternalStatus::Invalid)), "1 not invalid from committed");
    assert_eq!(play.on(reported(2, ExternalStatus::Committed)), "discarded 1");
    // The completion was not committed: the job is pending as before.
    play.on(PollerEvent::Reverted { key: JobKey(1) });
    assert_eq!(play.monitor.status(JobKey(1)), Some(ExternalStatus::Pending));
    assert_eq!(play.at(5000), "ask #0 1");
}

#[test]
fn what_is_told_while_it_is_asked_for_holds_against_the_answer() {
    let mut play = Play::new();
    play.pend(1, "");
    play.pend(2, "");
    assert_eq!(play.at(5000), "ask #0 1+2");
    let event = PollerEvent::Reported { key: JobKey(1), status: ExternalStatus::Committed };
    assert_eq!(play.on(event), "1 committed");
    assert_eq!(
        play.answer(0, &[(1, ExternalStatus::Invalid), (2, ExternalStatus::Pending)]),
        "1 not invalid from committed"
    );
    assert_eq!(play.at(10_000), "ask #1 2");
    // A job that is reset meanwhile is polled with the others again.
    assert_eq!(
        play.on(PollerEvent::Reported { key: JobKey(2), status: ExternalStatus::Unknown }),
        "2 unknown"
    );
    play.on(PollerEvent::Reverted { key: JobKey(2) });
    play.on(PollerEvent::Reverted { key: JobKey(1) });
    assert_eq!(play.answer(1, &[]), "");
    assert_eq!(play.at(15_000), "ask #2 1+2");
}

const PENDING: ExternalStatus = ExternalStatus::Pending;

#[test]
fn batches_are_open_side_by_side_up_to_the_concurrency() {
    let mut play = Play::of(2, false);
    for (key, lane) in [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a"), (6, "c")] {
        play.pend(key, lane);
    }
    assert_eq!(play.at(5000), "ask #0 1+3, ask #1 2+4");
    assert_eq!(play.wakes(), None);
    assert_eq!(play.answer(1, &[(2, PENDING), (4, ExternalStatus::Committed)]), "4 committed, ask #2 5+6");
    assert_eq!(play.answer(2, &[(5, PENDING), (6, PENDING)]), "");
    // The first batch has no answer yet: its jobs are in no other one, and the next poll has all others.
    assert_eq!(play.wakes(), Some(10_000));
    assert_eq!(play.at(10_000), "ask #3 2+5");
    assert_eq!(play.answer(3, &[]), "ask #4 6");
    assert_eq!(play.on(PollerEvent::Failed { ask: 0 }), "");
    assert_eq!(play.on(PollerEvent::Failed { ask: 4 }), "");
    assert_eq!(play.at(15_000), "ask #5 2+5, ask #6 1+3");
}

#[test]
fn a_lane_without_an_answer_holds_up_itself_alone() {
    let mut play = Play::of(2, true);
    for (key, lane) in [(1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "c")] {
        play.pend(key, lane);
    }
    // Batches are of one lane, and a lane has one open batch.
    assert_eq!(play.at(5000), "ask #0 1+3, ask #1 2");
    assert_eq!(play.answer(1, &[(2, PENDING)]), "ask #2 5");
    assert_eq!(play.answer(2, &[(5, PENDING)]), "");
    for (seconds, ask) in [(10, 3), (15, 5), (20, 7)] {
        assert_eq!(play.wakes(), Some(seconds * 1000));
        assert_eq!(play.at(seconds * 1000), format!("ask #{ask} 2, ask #{} 5", ask + 1));
        assert_eq!(play.answer(ask, &[(2, PENDING)]), "");
        assert_eq!(play.answer(ask + 1, &[(5, PENDING)]), "");
    }
    // Its second batch, which the polls cover too, follows its first one.
    assert_eq!(play.on(PollerEvent::Failed { ask: 0 }), "ask #9 4");
}

#[test]
fn any_number_of_lanes_without_an_answer_leave_the_others_alone() {
    let mut play = Play::of(2, true);
    for (key, lane) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")] {
        play.pend(key, lane);
    }
    assert_eq!(play.at(5000), "ask #0 1, ask #1 2");
    // Neither is answered: after two seconds they hang, and make room for two others.
    assert_eq!(play.wakes(), Some(7000));
    assert_eq!(play.at(6999), "");
    assert_eq!(play.at(7000), "ask #2 3, ask #3 4");
    assert_eq!(play.answer(2, &[(3, PENDING)]), "ask #4 5");
    // The next poll has every lane that is not asked for, though three hang.
    assert_eq!(play.wakes(), Some(10_000));
    assert_eq!(play.at(10_000), "ask #5 3");
    assert_eq!(play.answer(4, &[(5, PENDING)]), "");
    assert_eq!(play.on(PollerEvent::Failed { ask: 0 }), "");
    assert_eq!(play.at(15_000), "ask #6 5, ask #7 1");
}

#[test]
fn a_job_that_was_asked_for_too_early_is_asked_for_again() {
    let mut play = Play::of(2, true);
    play.pend(1, "a");
    play.pend(2, "b");
    assert_eq!(play.at(5000), "ask #0 1, ask #1 2");
    assert_eq!(play.answer(1, &[(2, PENDING)]), "");
    assert_eq!(play.on(PollerEvent::Poll), "");
    assert_eq!(play.monitor.soon(play.now), NextPoll::In { ms: 1000 });
    assert_eq!(play.at(6000), "ask #2 2");
    // The request came after the first batch, so its answer may be too old.
    assert_eq!(play.answer(0, &[(1, PENDING)]), "ask #3 1");
    assert_eq!(play.answer(3, &[(1, PENDING)]), "");
    assert_eq!(play.answer(2, &[(2, PENDING)]), "");
    assert_eq!(play.wakes(), Some(11_000));
    assert_eq!(play.at(11_000), "ask #4 1, ask #5 2");
}

#[test]
fn a_monitor_fails_until_all_jobs_of_failed_batches_are_answered_or_gone() {
    let mut play = Play::of(2, true);
    for (key, lane) in [(1, "a"), (2, "b"), (3, "c")] {
        play.pend(key, lane);
    }
    assert_eq!(play.at(5000), "ask #0 1, ask #1 2");
    assert_eq!(play.on(PollerEvent::Failed { ask: 0 }), "ask #2 3");
    let malformed = PollerEvent::Answered { ask: 1, answers: &[], malformed: true };
    assert_eq!(play.on(malformed), "");
    assert_eq!(play.answer(2, &[(3, PENDING)]), "");
    assert!(play.monitor.is_failing());
    assert_eq!(play.at(10_000), "ask #3 1, ask #4 2");
    assert_eq!(play.answer(4, &[]), "ask #5 3");
    assert!(play.monitor.is_failing());
    play.on(PollerEvent::Left { key: JobKey(1) });
    assert!(!play.monitor.is_failing());
    assert_eq!(play.on(PollerEvent::Failed { ask: 3 }), "");
    assert!(!play.monitor.is_failing());
}

#[test]
fn a_monitor_without_processors_asks_nothing() {
    let mut play = Play::new();
    play.monitor = Poller::disabled();
    play.pend(1, "");
    play.now = Timestamp(-1);
    assert_eq!(play.wakes(), None);
    assert_eq!(play.at(1_000_000), "");
    assert_eq!(
        play.on(PollerEvent::Reported { key: JobKey(1), status: ExternalStatus::Valid }),
        "1 is valid"
    );
    assert_eq!(play.monitor.valid(), 1);
}

#[test]
fn what_was_pending_before_the_start_is_asked_for_at_once() {
    let mut play = Play::new();
    play.now = Timestamp(60_000);
    for key in [JobKey(1), JobKey(2)] {
        let since = Timestamp(1000);
        assert_eq!(play.on(PollerEvent::Pended { key, lane: b"", since }), "");
    }
    assert_eq!(play.wakes(), Some(60_000));
    assert_eq!(play.on(PollerEvent::Tick), "ask #0 1+2");
}

#[test]
fn a_clock_that_is_set_back_makes_nobody_wait() {
    let mut play = Play::new();
    play.now = Timestamp(1_000_000);
    play.pend(1, "");
    assert_eq!(play.at(10), "ask #0 1");
}
