//! Error watch tests: play histories of attempts and reloads, and compare the rollbacks.

use proptest::prelude::*;

use super::*;

const LIMIT: ErrorLimit = ErrorLimit { rate: 0.5, within: Duration::from_secs(30) };

/// Watch with the clock of a test.
struct Play {
    watch: ErrorWatch,
    now: Timestamp,
}

impl Play {
    /// A run that counts attempts from its first generation on.
    fn new() -> Self {
        let mut play = Self { watch: ErrorWatch::default(), now: Timestamp(0) };
        assert_eq!(play.swap(1, false), None);
        play
    }

    fn swap(&mut self, generation: u64, watched: bool) -> Option<RollBack> {
        self.handle(ErrorWatchEvent::Swapped { generation, limit: Some(LIMIT), watched })
    }

    fn handle(&mut self, event: ErrorWatchEvent) -> Option<RollBack> {
        self.watch.handle(event, self.now)
    }

    fn attempt(&mut self, step: usize, version: u64, failed: u64, attempts: u64) -> Option<RollBack> {
        let share = AttemptShare { attempts, failed };
        self.handle(ErrorWatchEvent::Attempted { step, version, share })
    }

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    fn tick(&mut self) -> Option<RollBack> {
        self.handle(ErrorWatchEvent::Tick)
    }
}

/// The rollback as `generation step failed/attempts before`.
fn shown(roll_back: Option<RollBack>) -> String {
    let share = |share: AttemptShare| format!("{}/{}", share.failed, share.attempts);
    roll_back.map_or("none".to_owned(), |RollBack { generation, step, after, before }| {
        format!("{generation} {step} {} {}", share(after), share(before))
    })
}

#[test]
fn a_changed_step_that_fails_more_often_is_rolled_back_from_its_tenth_attempt_on() {
    let mut play = Play::new();
    play.attempt(0, 1, 1, 20);
    play.swap(2, true);
    assert_eq!(play.attempt(0, 2, 9, 9), None);
    assert_eq!(shown(play.attempt(0, 2, 0, 1)), "2 0 9/10 1/20");
    // Once is enough.
    assert_eq!((play.attempt(0, 2, 9, 9), play.watch.wakes()), (None, None));
}

#[test]
fn neither_the_rate_nor_the_share_before_may_be_just_reached() {
    let mut play = Play::new();
    play.attempt(0, 1, 8, 10);
    play.swap(2, true);
    assert_eq!(play.attempt(0, 2, 16, 20), None);
    assert_eq!(play.attempt(1, 2, 10, 20), None);
    assert_eq!(shown(play.attempt(0, 2, 1, 1)), "2 0 17/21 8/10");
}

#[test]
fn other_steps_and_attempts_of_the_version_before_do_not_count() {
    let mut play = Play::new();
    play.swap(2, true);
    assert_eq!(play.attempt(0, 1, 50, 50), None);
    assert_eq!(play.attempt(1, 2, 0, 5), None);
    assert_eq!(play.attempt(1, 1, 50, 50), None);
    assert_eq!(play.attempt(1, 2, 4, 5), None);
    assert_eq!(play.after(30).tick(), None);
}

#[test]
fn few_attempts_are_judged_at_the_end_and_those_of_a_stopped_step_at_once() {
    let mut play = Play::new();
    play.swap(2, true);
    assert_eq!(play.watch.wakes(), Some(Timestamp(30_000)));
    play.attempt(0, 2, 3, 3);
    assert_eq!(play.after(29).tick(), None);
    assert_eq!(shown(play.after(1).tick()), "2 0 3/3 0/0");
    play.swap(3, false);
    play.swap(4, true);
    play.attempt(0, 4, 2, 2);
    assert_eq!(play.after(30).tick(), None);
    play.swap(5, true);
    play.attempt(0, 5, 1, 1);
    assert_eq!(play.handle(ErrorWatchEvent::Stopped { step: 0, version: 4 }), None);
    assert_eq!(play.handle(ErrorWatchEvent::Stopped { step: 1, version: 5 }), None);
    assert_eq!(play.handle(ErrorWatchEvent::Stopped { step: 0, version: 5 }), None, "as before");
    play.attempt(2, 5, 1, 1);
    assert_eq!(shown(play.handle(ErrorWatchEvent::Stopped { step: 2, version: 5 })), "5 2 1/1 0/0");
}

#[test]
fn what_was_before_is_what_the_step_did_last() {
    let mut play = Play::new();
    play.attempt(0, 1, 0, 1000);
    play.after(60).attempt(0, 1, 8, 10);
    play.after(600).swap(2, true);
    assert_eq!(play.attempt(0, 2, 7, 10), None);
    assert_eq!(shown(play.attempt(0, 2, 10, 10)), "2 0 17/20 8/10");
}

#[test]
fn a_change_of_the_files_a_rollback_and_the_removal_of_the_setting_end_the_watch() {
    let end: [fn(&mut Play) -> Option<RollBack>; 4] = [
        |play| play.handle(ErrorWatchEvent::Refused),
        |play| play.swap(3, false),
        |play| play.swap(3, true),
        |play| play.handle(ErrorWatchEvent::Swapped { generation: 3, limit: None, watched: true }),
    ];
    for end in end {
        let mut play = Play::new();
        play.swap(2, true);
        assert_eq!(play.attempt(0, 2, 9, 9), None);
        // Even at the end of its time.
        play.after(30);
        assert_eq!(end(&mut play), None);
        assert_eq!(play.attempt(0, 2, 9, 9), None);
        assert_eq!(play.after(30).tick(), None);
    }
}

/// Random event: the kind, a step, a version, and numbers of attempts.
fn event() -> impl Strategy<Value = (u8, usize, u64, u64, u64, u64)> {
    (0..12_u8, 0..3_usize, 0..3_u64, 0..8_u64, 0..8_u64, 0..8_000_u64)
}

proptest! {
    /// A rollback names the newest generation that was watched, once and within its time. Its step is one of that
    /// version, with the counted attempts, and exceeds both bounds. A step that exceeds them has been rolled back.
    #[test]
    fn rollbacks_agree_with_a_plain_count(events in proptest::collection::vec(event(), 1..120)) {
        let mut play = Play::new();
        let (mut generation, mut until) = (1, None::<Timestamp>);
        // All attempts of each step and version.
        let mut counted: BTreeMap<(usize, u64), AttemptShare> = BTreeMap::new();
        for (kind, step, back, failed, more, elapsed) in events {
            play.now = play.now + Duration::from_millis(elapsed);
            let version = generation - back.min(generation - 1);
            let is_over = until.is_some_and(|until| until <= play.now);
            let attempts_min = if is_over { ATTEMPTS_MIN_AT_END } else { ATTEMPTS_MIN };
            let roll_back = match kind {
                0 | 1 => {
                    generation += 1;
                    let roll_back = play.swap(generation, kind == 0);
                    prop_assert_eq!(roll_back, None);
                    until = (kind == 0).then(|| play.now + LIMIT.within);
                    continue;
                }
                2 => {
                    until = None;
                    prop_assert_eq!(play.handle(ErrorWatchEvent::Refused), None);
                    continue;
                }
                3 => play.tick(),
                _ => {
                    let roll_back = play.attempt(step, version, failed, failed + more);
                    // Attempts after the end are not judged any more.
                    if !is_over || until.is_none() {
                        let share = AttemptShare { attempts: failed + more, failed };
                        counted.entry((step, version)).or_default().add(share);
                    }
                    roll_back
                }
            };
            let worse = |step: usize| {
                let after = counted.get(&(step, generation)).copied().unwrap_or_default();
                after.attempts >= attempts_min && after.failed * 2 > after.attempts
            };
            if let Some(RollBack { generation: rolled, step, after, before }) = roll_back {
                prop_assert_eq!(rolled, generation);
                prop_assert!(until.is_some());
                prop_assert_eq!(Some(&after), counted.get(&(step, generation)));
                prop_assert!(worse(step) && after.exceeds(before));
                until = None;
            } else if until.is_some() && (is_over || kind > 3) {
                let judged = if is_over { (0..3).collect() } else { vec![step] };
                let judged = judged.into_iter().filter(|&step| worse(step));
                for step in judged {
                    // It was as bad before, in the last time in which it made attempts.
                    let others = counted.iter().filter(|((other, version), _)| *other == step && *version < generation);
                    prop_assert!(others.map(|(_, share)| share.failed).sum::<u64>() > 0, "step {} stays", step);
                }
            }
            if is_over {
                until = None;
            }
        }
    }
}
