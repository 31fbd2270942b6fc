//! `tidegate status`: prints the progress of each step, and the reason if it is held.

use std::path::Path;

use crate::cli::{Format, StatusCommand};
use crate::client::{ask, other_question, plain, print_json, print_painted};
use crate::output::console;
use crate::output::console::{Paint, painted};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::hint::{disk_full, resume};
use crate::output::lane_command::resume_lane;
use crate::output::table::{Column, columns, grouped, on_one_line, short};
use crate::output::terminal::{cut, indented, width};
use crate::output::times;
use crate::query::{
    Answer, BlockStatus, EarlierRollback, Halted, HeldBehind, HeldLaneStatus, LaneStatus, LingeringStatus,
    Oldest, ProbeStatus, Query, RefusedFiles, ReloadStatus, RetryStatus, RollbackStatus, SourceStatus,
    StepStatus, TableStatus,
};
use tidegate_config::Invocation;
use tidegate_model::{Clock as _, SystemClock, Timestamp, format_size, rfc3339};
use tidegate_store::Trigger;

/// The longest lane name that a terminal shows in full, in characters.
const LANE_MAX: usize = 40;

/// Counts jobs of a lane.
type Count = fn(&LaneStatus) -> u64;

pub(crate) fn status(command: &StatusCommand) -> Exit {
    let config: &Path = &command.look.config;
    if let (Some(_), Some(count)) =
        (command.lanes, config.to_str().filter(|text| text.parse::<u64>().is_ok()))
        && !config.exists()
    {
        return exit::misuse(format_args!("`{count}` is not a configuration: write `--lanes={count}`"));
    }
    let status = match ask(&command.look, Query::Status { lanes: command.lanes.unwrap_or(0) }) {
        Ok(Answer::Status(status)) => status,
        Ok(_) => return other_question(),
        Err(exit) => return exit,
    };
    if command.look.format == Format::Json {
        return print_json(&status, Exit::Done);
    }
    let (given, colours) = (command.look.given(), console::prints_colours());
    let mut text = describe(&status.steps, width(), (&given, SystemClock.now()), colours);
    let sources = status.sources.iter().filter_map(describe_source);
    text.extend(sources.map(|line| indented(&plain(&on_one_line(&line)), 0, width()) + "\n"));
    let tables = status.tables.iter().map(describe_table);
    text.extend(tables.map(|line| indented(&plain(&on_one_line(&line)), 0, width()) + "\n"));
    if let Some(reload) = &status.reload {
        text += &notes(reload, width());
    }
    let full = status.full.iter().map(|why| disk_full(why));
    text.extend(full.map(|line| indented(&plain(&on_one_line(&line)), 0, width()) + "\n"));
    print_painted(&text);
    Exit::Done
}

/// The state of a source as a sentence; `None` without a state and a cursor.
fn describe_source(source: &SourceStatus) -> Option<String> {
    let SourceStatus { source, sort, state, since, until, why, failures, cursor } = source;
    let since = since.as_deref().unwrap_or_default();
    let again = if *failures > 1 { format!(" ({failures} failures in a row)") } else { String::new() };
    let why = why.as_ref().map(|why| format!(": {why}{again}")).unwrap_or_default();
    let next = if sort == "exec" { "starts again" } else { "asks again" };
    let state = match state.as_deref() {
        Some("waiting") => Some(format!("{next} at {}{why}", until.as_deref().unwrap_or_default())),
        Some("stopped") => Some(format!("has stopped at {since}{why}")),
        Some("ended") => Some(format!("has ended at {since}")),
        Some(_) if sort != "exec" => None,
        Some(_) => Some(format!("runs since {since}{why}")),
        None => None,
    };
    let cursor = cursor.as_ref().map(|cursor| format!("its cursor is `{cursor}`"));
    let facts: Vec<String> = state.into_iter().chain(cursor).collect();
    (!facts.is_empty()).then(|| format!("source {source} ({sort}): {}", facts.join("; ")))
}

/// The rows of a lookup table as a sentence.
fn describe_table(table: &TableStatus) -> String {
    let TableStatus { table, queue, key, rows, bytes, max_size, ignored, full, steps: _ } = table;
    let limit = format_size(*max_size);
    let state = match (rows, full) {
        (_, true) => format!("it exceeds its `max_size` of {limit}, so attempts that read it fail"),
        (None, _) => "a runner builds it at its start".to_owned(),
        (Some(rows), _) => {
            let size = format_size(bytes.unwrap_or_default());
            let ignored = ignored.filter(|&jobs| jobs > 0);
            let ignored = ignored.map(|jobs| format!("; {} jobs without the key", grouped(jobs)));
            format!("{} rows, {size} of {limit}{}", grouped(*rows), ignored.unwrap_or_default())
        }
    };
    format!("table {table} ({queue} by `{key}`): {state}")
}

/// Notes about the last reload, if it is not over, was refused or was rolled back.
fn notes(reload: &ReloadStatus, width: Option<usize>) -> String {
    let ReloadStatus {
        generation,
        files_differ,
        refused,
        rolled_back,
        rolled_back_before,
        lingering,
        restart,
    } = reload;
    let mut notes = Vec::new();
    match (rolled_back, refused) {
        (Some(RollbackStatus { from, to, since, why, .. }), _) => notes.push(format!(
            "generation {from} was rolled back at {since}: {why}; the files differ from the configuration in force, \
             which is that of generation {to}, until they change again"
        )),
        (None, None) if *files_differ => {
            notes.push(format!("the files differ from generation {generation}, which is in force"));
        }
        _ => {}
    }
    match refused {
        Some(RefusedFiles { since, why, trigger: Trigger::WatchErrors, .. }) => {
            notes.push(format!("generation {generation} cannot be rolled back since {since}: {why}"));
        }
        Some(RefusedFiles { since, why, .. }) => notes.push(format!(
            "the changed files were refused at {since}, so generation {generation} stays in force: {why}"
        )),
        None => {}
    }
    if let Some(EarlierRollback { generation: earlier, why }) = rolled_back_before {
        notes.push(format!(
            "generation {earlier} of these files was rolled back: {why}; the last start brought them into force again"
        ));
    }
    for LingeringStatus { step, since, why } in lingering {
        notes.push(format!(
            "generation {generation} is in force, and step {step} does not follow it with all jobs yet, since {since}: {why}"
        ));
    }
    let waits = restart.iter().map(|setting| format!("`{setting}` takes effect when the runner restarts"));
    notes.extend(waits);
    let lines = notes.iter().map(|note| indented(&plain(&on_one_line(note)), 0, width) + "\n");
    lines.collect()
}

fn describe(
    steps: &[StepStatus],
    width: Option<usize>,
    (given, now): (&Invocation, Timestamp),
    colours: bool,
) -> String {
    // A stopped step must be the most visible row.
    let paint = |line: &str, step: &StepStatus| {
        let line = plain(line);
        if colours && step.halted.is_some() { painted(&line, Paint::Red) } else { line }
    };
    let mut lines = columns(&columns_of(steps), width).into_iter();
    let mut text = lines.next().unwrap_or_default() + "\n";
    for (at, (step, line)) in steps.iter().zip(lines).enumerate() {
        text.extend([&*paint(&line, step), "\n"]);
        let next = steps.get(at + 1);
        if next.is_none_or(|next| next.step != step.step || next.configured != step.configured) {
            // A removed step has a row of its own, with its own remarks.
            let same = |one: &&StepStatus| one.step == step.step && one.configured == step.configured;
            for one in steps.iter().filter(same) {
                for remark in remarks(one, given, now) {
                    let remark = indented(&on_one_line(&remark), 2, width);
                    text.extend(remark.lines().map(|line| paint(line, one) + "\n"));
                }
            }
        }
    }
    for step in steps {
        add_lanes(step, width, &mut text);
    }
    text
}

/// A column that is most often empty is shown only if it has a value.
fn columns_of(steps: &[StepStatus]) -> Vec<Column> {
    let count = |of: &dyn Fn(&StepStatus) -> u64| steps.iter().map(of).map(blank).collect();
    let any = |of: &dyn Fn(&StepStatus) -> bool| steps.iter().any(of);
    // A join reports once for all its inputs.
    let again: Vec<bool> = (0..steps.len())
        .map(|at| (steps[at].joins || steps[at].by_key) && at > 0 && steps[at - 1].step == steps[at].step)
        .collect();
    let once = |of: &dyn Fn(&StepStatus) -> u64| {
        let cell =
            |(step, again): (&StepStatus, &bool)| if *again { String::new() } else { grouped(of(step)) };
        steps.iter().zip(&again).map(cell).collect()
    };
    let texts = |of: &dyn Fn(&StepStatus) -> String| steps.iter().map(of).collect();
    let taken = steps.iter().zip(&again).map(|(step, again)| {
        if *again && step.by_key { String::new() } else { grouped(step.counters.taken) }
    });
    let shown = [
        (true, Column::left("step", texts(&|step| step.step.clone())).cuts_front(12)),
        (
            true,
            Column::left("reads", texts(&reads))
                .drops(if any(&|step| step.joins || step.by_key) { 7 } else { 2 })
                .cuts_front(8),
        ),
        (true, Column::right("waiting", texts(&waiting))),
        (
            any(&|step| step.running.is_some_and(|running| running > 0)),
            Column::right("running", count(&|step| step.running.unwrap_or(0))),
        ),
        (any(&|step| step.pending > 0), Column::right("pending", count(&|step| step.pending))),
        (any(&|step| step.delayed > 0), Column::right("delayed", count(&|step| step.delayed))),
        (any(&|step| step.unmatched > 0), Column::right("unmatched", count(&|step| step.unmatched))),
        (
            any(&|step| step.begun > 0 && step.running.is_none()),
            Column::right("begun", count(&|step| step.begun)),
        ),
        (
            any(&|step| step.oldest.is_some()),
            Column::right("oldest", texts(&|step| oldest(step.oldest.as_ref()))).drops(6),
        ),
        (any(&|step| step.rate.is_some()), Column::right("jobs/s", texts(&rate)).drops(5)),
        (true, Column::right("in", taken.collect()).drops(4)),
        (true, Column::right("out", once(&|step| step.counters.given)).drops(3)),
        (true, Column::right("filtered", once(&|step| step.counters.filtered)).drops(1)),
        (true, Column::right("failed", once(&|step| step.counters.failed))),
        (any(&|step| step.errors > 0), Column::right("errors", count(&|step| step.errors))),
        (any(&|step| step.counters.lost > 0), Column::right("lost", count(&|step| step.counters.lost))),
    ];
    shown.into_iter().filter(|(shown, _)| *shown).map(|(_, column)| column).collect()
}

/// A count that is most often zero.
fn blank(count: u64) -> String {
    if count == 0 { String::new() } else { grouped(count) }
}

/// The input of the step.
fn reads(step: &StepStatus) -> String {
    short(&step.input, &step.step).to_owned()
}

fn waiting(step: &StepStatus) -> String {
    match (step.waiting, step.read) {
        (Some(jobs), _) => grouped(jobs),
        // The source may hold more.
        (None, Some(read)) if read > 0 => format!("{}+", grouped(read)),
        (None, _) => "-".to_owned(),
    }
}

fn oldest(oldest: Option<&Oldest>) -> String {
    let age = |oldest: &Oldest| {
        let least = if oldest.at_least { "≥" } else { "" };
        format!("{least}{}", times::age(oldest.age_seconds))
    };
    oldest.map(age).unwrap_or_default()
}

fn rate(step: &StepStatus) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown")]
    match step.rate {
        None => String::new(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => grouped(rate.round() as u64),
    }
}

fn held_lane(step: &str, held: &HeldLaneStatus, given: &Invocation, now: Timestamp) -> String {
    let HeldLaneStatus { lane, since, halted } = held;
    let resume = given.command(&resume_lane(step, lane));
    let (lane, ago) = (on_one_line(lane), ago(since, now));
    match halted {
        Some(why) => {
            let why = on_one_line(why);
            format!("lane `{lane}` has halted {ago}: {why}; `{resume}` resumes it")
        }
        None => format!("lane `{lane}` is paused {ago}; `{resume}` resumes it"),
    }
}

/// The remarks about a step.
fn remarks(step: &StepStatus, given: &Invocation, now: Timestamp) -> Vec<String> {
    let mut remarks = Vec::new();
    if !step.configured {
        remarks.push(format!("not in the configuration; its progress on {} is kept", step.input));
    }
    remarks.extend(step.halted.as_ref().map(|halted| stopped(halted, now)));
    remarks.extend(
        step.paused
            .as_ref()
            .map(|since| format!("paused {}; {}", ago(since, now), resume(&step.step, given))),
    );
    remarks.extend(step.monitor_paused.as_ref().map(|since| {
        let resume = given.command(&format!("step resume {} --monitor", step.step));
        format!("monitor paused {}; `{resume}` resumes it", ago(since, now))
    }));
    remarks.extend(step.held_lanes.iter().map(|held| held_lane(&step.step, held, given, now)));
    if step.more_held_lanes > 0 {
        remarks.push(format!("{} more lanes are held", grouped(step.more_held_lanes)));
    }
    match (&step.held_behind, &step.retry) {
        (Some(first), Some(retry)) if retry.job.split(" + ").any(|job| job == first.job) => {
            let RetryStatus { attempts, why, .. } = retry;
            let (held, times) = (held_back(first, now), times_in_words(*attempts));
            remarks.push(format!("{held}; it failed {times}: {}", on_one_line(why)));
        }
        (first, retry) => {
            remarks.extend(first.as_ref().map(|first| held_back(first, now)));
            remarks.extend(retry.as_ref().map(|retry| tried_again(retry, now)));
        }
    }
    remarks.extend(step.closed.as_ref().map(|closed| held(closed, step.gate.as_ref(), now)));
    remarks.extend(step.gate.as_ref().and_then(|gate| silent(gate, now)));
    remarks.extend(step.monitor.as_ref().and_then(|monitor| silent(monitor, now)));
    if let Some(ProbeStatus { failing_since: Some(since), why: Some(why), .. }) = &step.monitor {
        let ago = ago(since, now);
        remarks.push(format!("monitor fails {ago}, so jobs stay pending: {}", on_one_line(why)));
    }
    if step.full {
        let (input, jobs) = (&step.input, grouped(step.unmatched));
        remarks.push(format!("{input} is not read: {jobs} of its jobs wait for a partner (`max_waiting`)"));
    }
    if step.dropped > 0 {
        remarks.push(format!("failed jobs dropped in this run: {}", grouped(step.dropped)));
    }
    if step.valid > 0 {
        let (valid, pending) = (grouped(step.valid), grouped(step.pending));
        remarks.push(format!("{valid} of the {pending} pending jobs are valid in the external system"));
    }
    remarks
}

fn stopped(halted: &Halted, now: Timestamp) -> String {
    let Halted { since, at, last_run, why } = halted;
    if !last_run {
        return format!("stopped {}: {why}", ago(since, now));
    }
    let at = at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
    let when = times::read(since).map(|since| times::since(since, now));
    let when = when.map_or_else(|| since.clone(), |ago| format!("{since}, {ago} ago"));
    format!("stopped{at} in the last run ({when}): {why}")
}

fn held_back(HeldBehind { job, until }: &HeldBehind, now: Timestamp) -> String {
    let due = times::read(until).map_or_else(|| until.clone(), |due| times::due(due, now));
    format!("jobs behind {job} wait for it; its next attempt is {due}")
}

fn tried_again(RetryStatus { job, due, attempts, why }: &RetryStatus, now: Timestamp) -> String {
    let again = match times::read(due) {
        Some(due) if due <= now => "is due for another attempt".to_owned(),
        Some(due) => format!("is tried again {}", times::due(due, now)),
        None => format!("is tried again at {due}"),
    };
    let times = times_in_words(*attempts);
    format!("{job} failed {times}, and {again}: {}", on_one_line(why))
}

fn times_in_words(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// A probe that has not answered for too long.
fn silent(asked: &ProbeStatus, now: Timestamp) -> Option<String> {
    let since = asked.asked_since.as_ref()?;
    times::read(since).filter(|&since| times::is_long(since, now))?;
    let whom = asked.name.as_ref().map_or_else(|| "monitor".to_owned(), |name| format!("gate `{name}`"));
    Some(format!("{whom} has not answered {}", ago(since, now)))
}

fn held(closed: &BlockStatus, gate: Option<&ProbeStatus>, now: Timestamp) -> String {
    let failing = gate.and_then(|gate| gate.failing_since.as_ref()).filter(|_| closed.by == "failure");
    let ago = ago(failing.unwrap_or(&closed.since), now);
    let why = if closed.why.is_empty() { String::new() } else { format!(": {}", on_one_line(&closed.why)) };
    match &*closed.by {
        "failure" => format!("gate cannot be probed, and counts as closed {ago}{why}"),
        "job" => format!("held by one of its jobs {ago}{why}"),
        "setup" => format!("cannot be set up {ago}; attempts continue{why}"),
        _ => format!("gate closed {ago}{why}"),
    }
}

/// `since 2026-01-31T12:00:00.123Z (5m12s)`
fn ago(since: &str, now: Timestamp) -> String {
    match times::read(since) {
        Some(time) => format!("since {} ({})", rfc3339(time), times::since(time, now)),
        None => format!("since {since}"),
    }
}

fn add_lanes(step: &StepStatus, width: Option<usize>, text: &mut String) {
    let Some(lanes) = step.lanes.as_ref().filter(|lanes| !lanes.top.is_empty()) else { return };
    let name = |lane: &LaneStatus| match &lane.lane {
        Some(name) if width.is_some() => format!("  {}", cut(&on_one_line(name), LANE_MAX)),
        Some(name) => format!("  {}", on_one_line(name)),
        None => "  (no lane)".to_owned(),
    };
    let waiting = lanes.top.iter().map(|lane| grouped(lane.waiting)).collect();
    let mut shown =
        vec![Column::left("  lane", lanes.top.iter().map(name).collect()), Column::right("waiting", waiting)];
    let counts: [(&'static str, Count); 3] = [
        ("running", |lane| lane.running.unwrap_or(0)),
        ("pending", |lane| lane.pending),
        ("delayed", |lane| lane.delayed),
    ];
    for (head, count) in counts {
        if lanes.top.iter().any(|lane| count(lane) > 0) {
            shown.push(Column::right(head, lanes.top.iter().map(count).map(blank).collect()));
        }
    }
    let ages: Vec<String> = lanes.top.iter().map(|lane| oldest(lane.oldest.as_ref())).collect();
    if ages.iter().any(|age| !age.is_empty()) {
        shown.push(Column::right("oldest", ages));
    }
    let all = if lanes.count == 1 { "1 lane".to_owned() } else { format!("{} lanes", grouped(lanes.count)) };
    text.extend(["\n", &step.step, ": ", &all, "\n"]);
    for line in columns(&shown, width) {
        text.extend([&line, "\n"]);
    }
    let more = lanes.count.saturating_sub(lanes.top.len() as u64);
    if more > 0 {
        text.extend(["  and ", &grouped(more), " more\n"]);
    }
    if lanes.cut {
        text.push_str("  more jobs wait than were scanned: a runner knows all of them\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::LanesStatus;
    use tidegate_model::Counters;

    fn step(step: &str, input: &str, waiting: Option<u64>, taken: u64) -> StepStatus {
        StepStatus {
            step: step.into(),
            input: input.into(),
            watermark: taken,
            waiting,
            read: None,
            running: Some(0),
            pending: 0,
            valid: 0,
            delayed: 0,
            unmatched: 0,
            full: false,
            begun: 0,
            errors: 0,
            dropped: 0,
            oldest: None,
            rate: Some(0.0),
            joins: false,
            by_key: false,
            closed: None,
            gate: None,
            monitor: None,
            paused: None,
            monitor_paused: None,
            held_lanes: Vec::new(),
            more_held_lanes: 0,
            held_behind: None,
            retry: None,
            halted: None,
            configured: true,
            counters: Counters { taken, given: taken, ..Counters::default() },
            lanes: None,
        }
    }

    fn given() -> Invocation {
        Invocation { config: "configs/withdrawals".into(), ..Invocation::default() }
    }

    fn waited(age_seconds: f64, at_least: bool) -> Oldest {
        Oldest { job: "w/requests/17".into(), since: String::new(), age_seconds, at_least }
    }

    fn lane(lane: Option<&str>, waiting: u32, pending: u64) -> LaneStatus {
        let (lane, oldest) = (lane.map(str::to_owned), Some(waited(f64::from(waiting), false)));
        LaneStatus { lane, waiting: waiting.into(), running: Some(0), pending, delayed: 0, oldest }
    }

    fn steps() -> Vec<StepStatus> {
        let since = "2026-01-31T12:00:00.123Z".to_owned();
        let closed =
            |by: &str| Some(BlockStatus { since: since.clone(), by: by.into(), why: "price 93 > 60".into() });
        let top = vec![lane(Some("eu"), 1200, 1), lane(Some("a\nb"), 3, 0), lane(None, 1, 0)];
        let gate = ProbeStatus {
            name: Some("gas".into()),
            asked_since: Some("2026-01-31T12:05:00.123Z".into()),
            failing_since: Some("2026-01-31T12:04:00.123Z".into()),
            why: Some("no price".into()),
        };
        let at = Some("job 8 (in.ndjson:9)".into());
        let last = Halted { since: since.clone(), at, last_run: true, why: "no such order".into() };
        let monitor = ProbeStatus { name: None, why: Some("no\nledger".into()), ..gate.clone() };
        vec![
            StepStatus {
                read: Some(5),
                held_behind: Some(HeldBehind {
                    job: "w/in/3".into(),
                    until: "2026-01-31T12:05:30.123Z".into(),
                }),
                retry: Some(RetryStatus {
                    job: "w/in/3".into(),
                    due: "2026-01-31T12:05:30.123Z".into(),
                    attempts: 1,
                    why: "exit code 3".into(),
                }),
                closed: closed("gate"),
                ..step("w/check", "w/in", None, 0)
            },
            StepStatus {
                running: Some(8),
                pending: 3,
                valid: 2,
                delayed: 12,
                errors: 7,
                retry: Some(RetryStatus {
                    job: "w/requests/5".into(),
                    due: "2026-01-31T12:05:15.123Z".into(),
                    attempts: 3,
                    why: "HTTP 503:\nbusy".into(),
                }),
                oldest: Some(waited(123.4, false)),
                rate: Some(310.4),
                paused: Some(since.clone()),
                closed: closed("failure"),
                gate: Some(gate),
                monitor: Some(monitor),
                lanes: Some(LanesStatus { count: 40, top, cut: true }),
                ..step("w/pay", "w/requests", Some(1204), 48_120)
            },
            StepStatus { joins: true, rate: Some(0.4), ..step("w/match", "w/orders", Some(2), 7) },
            StepStatus {
                joins: true,
                rate: None,
                running: None,
                oldest: Some(waited(0.5, true)),
                halted: Some(Halted { since, at: None, last_run: false, why: "job 3: no".into() }),
                ..step("w/match", "other/payments", Some(0), 7)
            },
            StepStatus { halted: Some(last), running: None, rate: None, ..step("w/late", "w/in", None, 7) },
            StepStatus { configured: false, ..step("w/gone", "w/in", None, 7) },
            StepStatus { configured: false, ..step("w/pay", "w/old", Some(1), 7) },
        ]
    }

    #[test]
    fn notes_are_below_their_step() {
        let now = times::read("2026-01-31T12:05:12.123Z").unwrap();
        insta::assert_snapshot!(describe(&steps(), None, (&given(), now), false));
    }

    #[test]
    fn a_step_that_stopped_is_red_on_a_terminal_that_wants_colours() {
        let now = times::read("2026-01-31T12:05:12.123Z").unwrap();
        let painted = describe(&steps(), None, (&given(), now), true);
        let red: Vec<&str> = painted.lines().filter(|line| line.starts_with("\u{1b}[31m")).collect();
        assert_eq!(red.len(), 4, "{painted}");
        assert!(red[0].contains("other/payments") && red[1].contains("stopped since"), "{painted}");
        assert!(red[2].contains("w/late") && red[3].contains("stopped at job 8"), "{painted}");
        let plain = painted.replace("\u{1b}[31m", "").replace("\u{1b}[0m", "");
        assert_eq!(plain, describe(&steps(), None, (&given(), now), false));
    }

    #[test]
    fn a_narrow_terminal_gets_what_matters() {
        let now = times::read("2026-01-31T12:05:12.123Z").unwrap();
        let text = describe(&steps()[1..3], Some(70), (&given(), now), false);
        insta::assert_snapshot!(text);
    }
}
