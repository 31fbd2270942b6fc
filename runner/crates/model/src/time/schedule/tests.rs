//! Tests of `Schedule`: ticks in real time zones, through both changes of the clock.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn cron(text: &str, zone: &str) -> Schedule {
    let cron = Box::new(Cron::parse(text).unwrap());
    Schedule::Cron { cron, zone: TimeZone::get(zone).unwrap() }
}

fn at(text: &str) -> Timestamp {
    to_words(text.parse().unwrap())
}

fn shown(time: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(time.0).unwrap().to_string()
}

/// The next ticks, as moments and as local times.
fn ticks(text: &str, zone: &str, after: &str, count: usize) -> String {
    let schedule = cron(text, zone);
    let mut shown = format!("{text} in {zone}\n");
    let mut after = at(after);
    for _ in 0..count {
        after = schedule.next(after).unwrap();
        let moment = jiff::Timestamp::from_millisecond(after.0).unwrap();
        let wall = moment.to_zoned(TimeZone::get(zone).unwrap());
        let _ = writeln!(shown, "  {moment}  {}", wall.strftime("%a %F %T %:z")); // cannot fail
    }
    shown
}

#[test]
fn expressions_name_what_they_say() {
    let from = "2024-02-27T22:58:30Z";
    insta::assert_snapshot!(
        [
            ticks("*/15 * * * *", "UTC", from, 5),
            ticks("30 2 * * mon-fri", "UTC", from, 4),
            ticks("0 9-17/4 * * *", "UTC", from, 4),
            ticks("0 0 29 2 *", "UTC", from, 3),
            ticks("0 12 13 * FRI", "UTC", from, 6),
            ticks("0 0 1,15 jan,jul ?", "UTC", from, 5),
            ticks("0 0 * * 7", "UTC", from, 2),
            ticks("5/20 23 * * *", "UTC", from, 4),
            ticks("*/20 59 23 * * *", "UTC", from, 4),
            ticks("@monthly", "UTC", from, 2),
            ticks("0 8 * * *", "Asia/Kolkata", from, 2),
        ]
        .join("\n")
    );
}

#[test]
fn a_time_that_does_not_exist_ticks_when_the_gap_is_over() {
    // The clock goes from 02:00 to 03:00.
    let from = "2024-03-30T12:00:00Z";
    insta::assert_snapshot!(
        [
            ticks("30 2 * * *", "Europe/Berlin", from, 3),
            ticks("0,30 2 * * *", "Europe/Berlin", from, 4),
            ticks("30 2,3 * * *", "Europe/Berlin", "2024-03-31T00:00:00Z", 3),
            ticks("*/30 * * * *", "Europe/Berlin", "2024-03-31T00:15:00Z", 4),
            ticks("0 0 * * *", "America/Sao_Paulo", "2018-11-02T12:00:00Z", 3),
            ticks("15 2 * * *", "Australia/Lord_Howe", "2024-10-04T00:00:00Z", 3),
            // This zone skipped the whole 30th of December.
            ticks("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3),
        ]
        .join("\n")
    );
}

#[test]
fn a_time_that_comes_twice_ticks_once_unless_every_hour_does() {
    // The clock goes from 03:00 back to 02:00.
    let from = "2024-10-26T12:00:00Z";
    insta::assert_snapshot!(
        [
            ticks("30 2 * * *", "Europe/Berlin", from, 3),
            ticks("30 2 * * *", "Europe/Berlin", "2024-10-27T00:45:00Z", 1),
            ticks("*/30 * * * *", "Europe/Berlin", "2024-10-26T23:45:00Z", 6),
            ticks("*/30 * * * *", "Europe/Berlin", "2024-10-27T01:15:00Z", 2),
            ticks("*/10 2 * * *", "Europe/Berlin", "2024-10-27T00:35:00Z", 3),
            ticks("*/15 * * * *", "Australia/Lord_Howe", "2024-04-06T14:20:00Z", 6),
        ]
        .join("\n")
    );
}

#[test]
fn a_range_may_end_with_sunday() {
    let days = |text: &str| {
        let shown = ticks(&format!("0 0 * * {text}"), "UTC", "2024-02-27T22:58:30Z", 14);
        shown.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for (text, same) in [("mon-sun", "0-6"), ("fri-sun", "0,5,6"), ("5-0", "5-7"), ("sun-mon", "0-1")] {
        assert_eq!(days(text), days(same), "{text}");
    }
}

#[test]
fn what_is_no_expression_is_told_why() {
    let texts = [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "* * * foo *",
        "*/0 * * * *",
        "*/x * * * *",
        "5-1 * * * *",
        "1- * * * *",
        ", * * * *",
        "-1 * * * *",
        "1.5 * * * *",
        "* * * * mno",
        "0 0 31 feb *",
        "0 0 30 2 *",
        "@dayly",
        "@",
        "99999999999 * * * *",
        "*/99999999999999999999 * * * *",
        "*/70 * * * *",
        "* * * * */8",
        "* * * * sat-fri",
        "0 9 * * monday",
        "0 9 * * MON#2",
        "0 9 L * *",
        "0 9 * january *",
    ];
    let reasons: Vec<_> = texts.iter().map(|text| Cron::parse(text).unwrap_err()).collect();
    insta::assert_snapshot!(reasons.join("\n"));
}

#[test]
fn an_interval_ticks_by_the_clock_of_1970() {
    let schedule = Schedule::Every(Duration::from_mins(5));
    let next = |time| shown(schedule.next(at(time)).unwrap());
    assert_eq!(next("2024-01-01T00:00:00Z"), "2024-01-01T00:05:00Z");
    assert_eq!(next("2024-01-01T00:04:59.999Z"), "2024-01-01T00:05:00Z");
    assert_eq!(next("1969-12-31T23:59:00Z"), "1970-01-01T00:00:00Z");
    assert_eq!(schedule.next(Timestamp(i64::MAX)), None);
    assert_eq!(Schedule::Every(Duration::MAX).next(Timestamp(0)), None);
}

#[test]
fn missed_ticks_are_skipped_or_made_up_for() {
    let schedule = cron("0 * * * *", "UTC");
    let due = |now, missed| {
        let (ticks, handled) = schedule.due(at("2024-01-01T00:00:00Z"), at(now), missed, 100);
        let hours: Vec<_> = ticks.iter().map(|&tick| shown(tick)[11..13].to_owned()).collect();
        format!("{} | {}", hours.join(" "), &shown(handled)[11..16])
    };
    let late = "2024-01-01T04:30:00Z";
    assert_eq!(due(late, Missed::Skip), " | 04:00");
    assert_eq!(due(late, Missed::Once), "04 | 04:00");
    assert_eq!(due(late, Missed::All), "01 02 03 04 | 04:00");
    let on_time = "2024-01-01T04:00:30Z";
    assert_eq!(due(on_time, Missed::Skip), "04 | 04:00");
    assert_eq!(due(on_time, Missed::Once), "04 | 04:00");
    let early = "2024-01-01T00:59:59Z";
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        assert_eq!(due(early, missed), " | 00:00");
        assert_eq!(due("2024-01-01T01:00:00Z", missed), "01 | 01:00");
    }
}

#[test]
fn ticks_come_in_pieces_and_each_one_once() {
    let schedule = Schedule::Every(Duration::from_secs(1));
    let (now, mut handled) = (Timestamp(10_500), Timestamp(0));
    let mut all = Vec::new();
    loop {
        let (ticks, after) = schedule.due(handled, now, Missed::All, 4);
        if ticks.is_empty() {
            break;
        }
        handled = after;
        all.extend(ticks.iter().map(|tick| tick.0 / 1000));
    }
    assert_eq!(all, (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_clock_that_is_set_back_repeats_nothing_unless_it_was_far_off() {
    let schedule = Schedule::Every(Duration::from_secs(1));
    let (last, hour_before) = (at("2024-01-02T00:00:00Z"), at("2024-01-01T23:00:00Z"));
    assert_eq!(schedule.resume(Some(last), hour_before), last);
    assert_eq!(schedule.due(last, hour_before, Missed::All, 10), (vec![], last));
    let week_before = at("2023-12-26T00:00:00Z");
    assert_eq!(schedule.resume(Some(last), week_before), week_before);
    assert_eq!(schedule.resume(None, last), last);
}

#[test]
fn looking_back_over_years_is_quick() {
    let now = at("2024-01-01T00:00:00.500Z");
    for text in ["* * * * * *", "0 3 * * *", "0 0 29 2 *"] {
        let schedule = cron(text, "Europe/Berlin");
        let (ticks, handled) = schedule.due(at("1990-01-01T00:00:00Z"), now, Missed::Once, 10);
        assert_eq!(ticks, [handled]);
        assert!(schedule.next(handled).unwrap() > now, "{text}");
    }
}

/// Every minute whose local time matches the expression, one by one.
fn by_hand(cron: &Cron, zone: &TimeZone, after: jiff::Timestamp, minutes: i64) -> Vec<jiff::Timestamp> {
    let minute = |count| after.checked_add(jiff::SignedDuration::from_mins(count)).unwrap();
    let names = |time: &jiff::Timestamp| {
        let wall = zone.to_datetime(*time);
        cron.next(wall) == Some(wall)
    };
    (1..=minutes).map(minute).filter(names).collect()
}

proptest! {
    #[test]
    fn hourly_expressions_tick_whenever_the_wall_shows_them(
        minutes in prop_oneof![Just("*"), Just("*/7"), Just("0,59"), Just("30")],
        zone in prop_oneof![Just("Europe/Berlin"), Just("Australia/Lord_Howe"), Just("America/St_Johns")],
        start in 28_000_000_i64..29_000_000,
    ) {
        let (expression, zone) = (Cron::parse(&format!("{minutes} * * * *")).unwrap(), TimeZone::get(zone).unwrap());
        let after = jiff::Timestamp::from_second(start * 60).unwrap();
        let expected = by_hand(&expression, &zone, after, 400);
        let schedule = Schedule::Cron { cron: Box::new(expression), zone };
        let (ticks, _) = schedule.due(to_words(after), Timestamp((start + 400) * 60_000), Missed::All, 1000);
        prop_assert_eq!(ticks, expected.into_iter().map(to_words).collect::<Vec<_>>());
    }

    #[test]
    fn ticks_go_forward_and_none_is_left_out(
        text in prop_oneof![Just("15 2 * * *"), Just("*/20 1-3 * * *"), Just("0 0 * * sun"), Just("45 1 31 * *")],
        zone in prop_oneof![Just("Europe/Berlin"), Just("America/New_York"), Just("Australia/Lord_Howe")],
        start in 1_600_000_000_i64..1_800_000_000,
        ahead in 0_i64..200_000,
    ) {
        let schedule = cron(text, zone);
        let (one, two) = (Timestamp(start * 1000), Timestamp((start + ahead) * 1000));
        let (next, later) = (schedule.next(one).unwrap(), schedule.next(two).unwrap());
        prop_assert!(next > one && later >= next);
        // No tick of the later schedule lies between the two.
        prop_assert!(next <= two || later == next);
    }
}
