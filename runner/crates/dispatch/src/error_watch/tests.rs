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
        assert_eq!(play.swap(1, false, &[]), None);
        play
    }

    fn swap(&mut self, generation: u64, watched: bool, changed: &[usize]) -> Option<RollBack> {
        let (limit, changed) = (Some(LIMIT), changed.to_vec());
        self.handle(ErrorWatchEvent::Swapped(Swap { generation, limit, watched, changed }))
    }

    fn reload(&mut self, generation: u64, changed: &[usize]) -> Option<RollBack> {
        self.swap(generation, true, changed)
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

/// The rollback as `generation to step failed/attempts before`.
fn shown(roll_back: Option<RollBack>) -> String {
    let share = |share: AttemptShare| format!("{}/{}", share.failed, share.attempts);
    roll_back.map_or("none".to_owned(), |RollBack { generation, to, step, after, before, .. }| {
        format!("{generation}→{to} {step} {} {}", share(after), share(before))
    })
}

#[test]
fn a_changed_step_that_fails_more_often_is_rolled_back_from_its_tenth_attempt_on() {
    let mut play = Play::new();
    play.attempt(0, 1, 1, 20);
    play.reload(2, &[0]);
    assert_eq!(play.attempt(0, 2, 9, 9), None);
    assert_eq!(shown(play.attempt(0, 2, 0, 1)), "2→1 0 9/10 1/20");
    // Once is enough.
    assert_eq!((play.attempt(0, 2, 9, 9), play.watch.wakes()), (None, None));
}

#[test]
fn neither_the_rate_nor_the_share_before_may_be_just_reached() {
    let mut play = Play::new();
    play.attempt(0, 1, 8, 10);
    play.reload(2, &[0, 1]);
    assert_eq!(play.attempt(0, 2, 16, 20), None);
    assert_eq!(play.attempt(1, 2, 10, 20), None);
    assert_eq!(shown(play.attempt(0, 2, 1, 1)), "2→1 0 17/21 8/10");
}

#[test]
fn other_steps_and_attempts_of_the_version_before_do_not_count() {
    let mut play = Play::new();
    play.reload(2, &[1]);
    assert_eq!(play.attempt(0, 1, 50, 50), None);
    assert_eq!(play.attempt(0, 2, 50, 50), None, "it has only started again");
    assert_eq!(play.attempt(1, 2, 0, 5), None);
    assert_eq!(play.attempt(1, 1, 50, 50), None);
    assert_eq!(play.attempt(1, 2, 4, 5), None);
    assert_eq!(play.after(30).tick(), None);
}

#[test]
fn few_attempts_are_judged_at_the_end_and_those_of_a_stopped_step_at_once() {
    let mut play = Play::new();
    play.reload(2, &[0]);
    assert_eq!(play.watch.wakes(), Some(Timestamp(30_000)));
    play.attempt(0, 2, 3, 3);
    assert_eq!(play.after(29).tick(), None);
    assert_eq!(shown(play.after(1).tick()), "2→1 0 3/3 0/0");
    play.swap(3, false, &[0]);
    play.reload(4, &[0]);
    play.attempt(0, 4, 2, 2);
    assert_eq!(play.after(30).tick(), None);
    play.reload(5, &[0, 2]);
    play.attempt(0, 5, 1, 1);
    assert_eq!(play.handle(ErrorWatchEvent::Stopped { step: 0, version: 4 }), None);
    assert_eq!(play.handle(ErrorWatchEvent::Stopped { step: 1, version: 5 }), None);
    assert_eq!(play.handle(ErrorWatchEvent::Stopped { step: 0, version: 5 }), None, "as before");
    play.attempt(2, 5, 1, 1);
    assert_eq!(shown(play.handle(ErrorWatchEvent::Stopped { step: 2, version: 5 })), "5→4 2 1/1 0/0");
}

#[test]
fn what_was_before_is_what_the_step_did_last() {
    let mut play = Play::new();
    play.attempt(0, 1, 0, 1000);
    play.after(60).attempt(0, 1, 8, 10);
    play.after(600).reload(2, &[0]);
    assert_eq!(play.attempt(0, 2, 7, 10), None);
    assert_eq!(shown(play.attempt(0, 2, 10, 10)), "2→1 0 17/20 8/10");
}

#[test]
fn a_rollback_and_the_removal_of_the_setting_end_the_watch() {
    let end: [fn(&mut Play) -> Option<RollBack>; 2] = [
        |play| play.swap(3, false, &[0]),
        |play| {
            let swap = Swap { generation: 3, watched: true, ..Swap::default() };
            play.handle(ErrorWatchEvent::Swapped(swap))
        },
    ];
    for end in end {
        let mut play = Play::new();
        play.reload(2, &[0]);
        assert_eq!(play.attempt(0, 2, 9, 9), None);
        // Even at the end of its time.
        play.after(30);
        assert_eq!(end(&mut play), None);
        assert_eq!(play.attempt(0, 3, 9, 9), None);
        assert_eq!(play.attempt(0, 2, 9, 9), None);
        assert_eq!(play.after(30).tick(), None);
    }
}

#[test]
fn a_second_broken_save_is_compared_with_the_last_good_version() {
    let mut play = Play::new();
    play.attempt(0, 1, 1, 20);
    play.reload(2, &[0]);
    assert_eq!(shown(play.attempt(0, 2, 10, 10)), "2→1 0 10/10 1/20");
    play.swap(3, false, &[0]);
    // A late attempt of the version that was rolled back.
    play.attempt(0, 2, 1, 1);
    play.reload(4, &[0]);
    assert_eq!(shown(play.attempt(0, 4, 12, 12)), "4→3 0 12/12 1/20");
    play.swap(5, false, &[0]);
    play.attempt(0, 5, 0, 3);
    play.reload(6, &[0]);
    assert_eq!(shown(play.attempt(0, 6, 10, 10)), "6→5 0 10/10 0/3");
}

#[test]
fn a_reload_during_the_watch_keeps_what_was_before_and_the_generation_to_go_back_to() {
    let mut play = Play::new();
    play.attempt(0, 1, 1, 20);
    play.reload(2, &[0]);
    play.attempt(0, 2, 9, 9);
    play.after(5).reload(3, &[0]);
    assert!(play.watch.keeps(1) && !play.watch.keeps(2) && play.watch.keeps(3));
    assert_eq!(play.attempt(0, 3, 9, 9), None);
    assert_eq!(shown(play.attempt(0, 3, 1, 1)), "3→1 0 10/10 1/20");
}

#[test]
fn a_reload_of_another_step_does_not_end_the_watch_and_does_not_prolong_it() {
    let mut play = Play::new();
    play.reload(2, &[0]);
    play.attempt(0, 2, 9, 9);
    play.after(29).reload(3, &[1]);
    let RollBack { generation, to, since, .. } = play.attempt(0, 2, 1, 1).unwrap();
    assert_eq!((generation, to, since), (3, 1, 2));

    let mut play = Play::new();
    play.reload(2, &[0]);
    play.attempt(0, 2, 9, 9);
    play.attempt(0, 2, 0, 9);
    play.after(29).reload(3, &[1]);
    assert_eq!(play.after(1).tick(), None);
    // Generation 2 is proven now, so a rollback of the other step goes back to it.
    assert!(!play.watch.keeps(1));
    assert_eq!(play.attempt(0, 2, 99, 99), None);
    assert_eq!(shown(play.attempt(1, 3, 10, 10)), "3→2 1 10/10 0/0");
}

#[test]
fn a_mended_or_removed_step_is_not_judged_by_its_failures_before() {
    let mut play = Play::new();
    play.reload(2, &[0, 1]);
    play.attempt(0, 2, 9, 9);
    play.attempt(1, 2, 9, 9);
    play.after(10).reload(3, &[0, 1]);
    assert_eq!(play.attempt(0, 2, 9, 9), None);
    assert_eq!(play.after(20).tick(), None);
    assert!(play.watch.keeps(1), "generation 2 is not proven");
    assert_eq!(play.after(10).tick(), None);
    assert!(!play.watch.keeps(1) && play.watch.keeps(3));
}

#[test]
fn frequent_reloads_of_a_step_that_works_do_not_keep_an_old_generation() {
    let mut play = Play::new();
    for generation in 2..40 {
        play.after(5).reload(generation, &[0]);
        play.attempt(0, generation, 1, 20);
        let kept: Vec<u64> = (1..=generation).filter(|&one| play.watch.keeps(one)).collect();
        assert!(kept.len() <= KEPT_MAX + 1 && kept[0] + 12 >= generation, "{kept:?} at {generation}");
    }
}

#[test]
fn a_reload_before_the_requested_rollback_causes_another_and_one_that_cannot_be_is_not_repeated() {
    let mut play = Play::new();
    play.reload(2, &[0]);
    assert_eq!(shown(play.attempt(0, 2, 10, 10)), "2→1 0 10/10 0/0");
    assert_eq!(shown(play.reload(3, &[1])), "3→1 0 10/10 0/0");
    // The answer to the first request.
    play.handle(ErrorWatchEvent::NotRolledBack { generation: 2 });
    assert_eq!(play.attempt(0, 2, 10, 10), None);
    play.handle(ErrorWatchEvent::NotRolledBack { generation: 3 });
    assert_eq!((play.attempt(0, 2, 10, 10), play.reload(4, &[1])), (None, None));
    assert_eq!(play.attempt(0, 2, 10, 10), None);
    // The version that stays is the measure of the next one, and its generation is the one to go back to.
    play.reload(5, &[0]);
    assert_eq!(play.attempt(0, 5, 40, 40), None, "as before");
    play.reload(6, &[1]);
    assert_eq!(shown(play.attempt(1, 6, 10, 10)), "6→3 1 10/10 0/0");
}

/// Random event: the kind, a step, a version, and numbers of attempts.
fn event() -> impl Strategy<Value = (u8, usize, u64, u64, u64, u64)> {
    (0..12_u8, 0..3_usize, 0..3_u64, 0..8_u64, 0..8_u64, 0..8_000_u64)
}

proptest! {
    /// A rollback names the current generation and an earlier one, once. Its step changed after that one, within the
    /// time, with the counted attempts, and exceeds both bounds. A step that exceeds them has been rolled back.
    #[test]
    fn rollbacks_agree_with_a_plain_count(events in proptest::collection::vec(event(), 1..120)) {
        let mut play = Play::new();
        let (mut generation, mut is_requested) = (1, false);
        // The version of each step, the end of its time, and all attempts of each version.
        let (mut since, mut until) = ([1_u64; 3], [None::<Timestamp>; 3]);
        let mut counted: BTreeMap<(usize, u64), AttemptShare> = BTreeMap::new();
        for (kind, step, back, failed, more, elapsed) in events {
            play.now = play.now + Duration::from_millis(elapsed);
            let now = play.now;
            let counted_before = counted.clone();
            let is_over = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
            let roll_back = match kind {
                0 | 1 => {
                    generation += 1;
                    is_requested = false;
                    since[step] = generation;
                    if kind == 1 {
                        until = [None; 3];
                    } else {
                        until[step] = Some(now + LIMIT.within);
                    }
                    play.swap(generation, kind == 0, &[step])
                }
                2 => {
                    if is_requested {
                        until = [None; 3];
                    }
                    play.handle(ErrorWatchEvent::NotRolledBack { generation })
                }
                3 => play.tick(),
                _ => {
                    let version = since[step].saturating_sub(back);
                    let share = AttemptShare { attempts: failed + more, failed };
                    if since[step] == version || since[step] == 1 {
                        counted.entry((step, since[step])).or_default().add(share);
                    }
                    play.attempt(step, version, failed, failed + more)
                }
            };
            let share = |counted: &BTreeMap<_, _>, step: usize| counted.get(&(step, since[step])).copied();
            let after = |step: usize| share(&counted, step).unwrap_or_default();
            if let Some(roll_back) = roll_back {
                prop_assert!(!is_requested && kind != 1 && kind != 2);
                prop_assert_eq!(roll_back.generation, generation);
                prop_assert_eq!(roll_back.since, since[roll_back.step]);
                prop_assert!(roll_back.to < roll_back.since && until[roll_back.step].is_some());
                // An attempt after the end does not count for it.
                let shares = [&counted_before, &counted].map(|counted| share(counted, roll_back.step));
                prop_assert!(shares.contains(&Some(roll_back.after)));
                prop_assert!(roll_back.after.exceeds_rate(LIMIT.rate) && roll_back.after.exceeds(roll_back.before));
                is_requested = true;
            } else if !is_requested && kind > 3 && until[step].is_some() && !is_over(until[step]) {
                let after = after(step);
                let is_bad = after.attempts >= ATTEMPTS_MIN && after.failed * 2 > after.attempts;
                // It was as bad before.
                let others = counted.iter().filter(|((other, version), _)| *other == step && *version < since[step]);
                prop_assert!(!is_bad || others.map(|(_, share)| share.failed).sum::<u64>() > 0, "step {} stays", step);
            }
            if !is_requested && kind != 2 {
                until = until.map(|until| until.filter(|until| *until > now));
            }
        }
    }
}
