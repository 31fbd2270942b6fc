//! `tidegate job`: shows the outcome of one job, or cancels it.

use serde_json::value::RawValue;

use crate::cli::{Format, JobShow};
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::hint::with_command;
use crate::output::table::{jobs, on_one_line};
use crate::output::terminal::{cut, indented, width};
use crate::query::late::{LateAddress, LateStatus};
use crate::query::{Answer, JobStatus, Query, ReportedState, StepOutcome};
use tidegate_config::Invocation;
use tidegate_model::Address;

/// Number of characters of a job that are shown at least, also in a narrow terminal.
const ROOM_MIN: usize = 20;

pub(crate) fn show(command: &JobShow) -> Exit {
    look(command).unwrap_or_else(|exit| exit)
}

fn look(command: &JobShow) -> Result<Exit, Exit> {
    let query = match LateAddress::parse(&command.job) {
        Some(late) => Query::Late { job: late.to_string() },
        None => {
            let (queue, index) = parse(&command.job)?;
            Query::Job { queue: queue.to_string(), index, why: true, whole: true }
        }
    };
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let (status, answered_by) = match place.ask_runner_or_store(query)? {
        (Answer::Job(status), answered_by) => (status, answered_by),
        (Answer::Late(status), _) if command.look.format == Format::Json => {
            return Ok(print_json(&status, Exit::Done));
        }
        (Answer::Late(status), _) => {
            print_text(&describe_late(&status, width()));
            return Ok(Exit::Done);
        }
        (Answer::Missing(what), _) => return Err(exit::fail(what)),
        _ => return Err(other_question()),
    };
    if command.look.format == Format::Json {
        return Ok(print_json(&status, Exit::Done));
    }
    print_text(&describe(&status, answered_by, &command.look.given(), width()));
    Ok(Exit::Done)
}

pub(crate) fn parse(job: &str) -> Result<(Address, u64), Exit> {
    let parts = job.rsplit_once('/');
    let parts = parts.and_then(|(queue, index)| Some((Address::parse(queue)?, index.parse().ok()?)));
    parts.ok_or_else(|| exit::misuse(format_args!("`{job}` does not name a job: write PIPELINE/QUEUE/INDEX")))
}

fn describe_late(status: &LateStatus, width: Option<usize>) -> String {
    let state = match (status.status, &status.until) {
        (ReportedState::Cancelled, _) => "cancelled".to_owned(),
        (_, Some(until)) => format!("appended to its queue at {until}"),
        (_, None) => "due, and not on its queue yet".to_owned(),
    };
    let payload = status.payload.as_ref().map(|payload| payload_line(payload, width));
    let first = indented(&format!("{}, {state}", status.job), 0, width);
    std::iter::once(first).chain(payload).collect::<Vec<_>>().join("\n")
}

fn payload_line(payload: &RawValue, width: Option<usize>) -> String {
    let room = width.map(|width| width.saturating_sub(2).max(ROOM_MIN));
    let payload = on_one_line(payload.get());
    format!("  {}", room.map_or_else(|| payload.clone(), |room| cut(&payload, room)))
}

fn describe(status: &JobStatus, answered_by: AnsweredBy, given: &Invocation, width: Option<usize>) -> String {
    let committed = status.time.as_ref().map(|time| format!("committed {time}"));
    let note = status.note.as_ref().map(|note| match &**note {
        "no longer kept (retain)" => "deleted by retention (see `retain` of its queue)".to_owned(),
        note => note.to_owned(),
    });
    let first = [Some(status.job.clone()), committed, note].into_iter().flatten();
    let mut lines = vec![indented(&first.collect::<Vec<_>>().join(", "), 0, width)];
    let payload = status.payload.as_ref().filter(|_| status.note.is_none());
    lines.extend(payload.map(|payload| payload_line(payload, width)));
    if status.steps.is_empty() {
        lines.push("  no step reads it".to_owned());
    }
    for step in &status.steps {
        lines.push(indented(&format!("{}: {}", step.step, headline(step)), 2, width));
        let reason = step.reason.as_ref().filter(|_| step.status != ReportedState::Cancelled);
        lines.extend(
            reason
                .map(|reason| format!("{}{}", which_failed(step), on_one_line(&reason.replace('\n', " "))))
                .map(|reason| indented(&reason, 4, width)),
        );
        if !step.joined_with.is_empty() {
            let will = if step.status == ReportedState::Waiting { "goes with" } else { "joined with" };
            lines.push(indented(&format!("{will} {}", step.joined_with.join(" and ")), 4, width));
        }
        // The reasons of a step that picks its jobs name it too.
        if let (ReportedState::Pending, true, Some(handle), Some(since)) =
            (step.status, step.why.is_empty(), &step.pending.handle, &step.pending.since)
        {
            lines.push(indented(&format!("since {since} as `{}`", on_one_line(handle)), 4, width));
        }
        let why = step.why.iter().map(|why| with_command(why, &step.step, given));
        lines.extend(why.map(|why| indented(&on_one_line(&why), 4, width)));
        lines.extend(step.outputs.iter().map(|output| format!("    made {}", output.job)));
        lines.extend(times(step).map(|times| indented(&times, 4, width)));
    }
    let is_over = |step: &StepOutcome| step.status.is_over();
    if answered_by == AnsweredBy::Store && !status.steps.iter().all(is_over) {
        lines.push(indented("no runner is running; this is the state in the store", 2, width));
    }
    lines.join("\n")
}

/// The reason of a restarted job is that of the attempt before. A job without attempts waits for a partner.
fn which_failed(step: &StepOutcome) -> &'static str {
    match step.status {
        ReportedState::Begun => "the attempt before failed: ",
        ReportedState::Delayed if step.attempts.is_none() => "",
        _ => "its last attempt failed: ",
    }
}

/// The known times of the job at the step.
fn times(step: &StepOutcome) -> Option<String> {
    let known = [
        ("tuple created", &step.created),
        ("first attempt", &step.first_attempt),
        ("submitted", &step.submitted),
        ("ended", &step.ended),
    ];
    let known = known.into_iter().filter_map(|(of, time)| Some(format!("{of} {}", time.as_ref()?)));
    let known = known.collect::<Vec<_>>().join(", ");
    (!known.is_empty()).then_some(known)
}

fn headline(step: &StepOutcome) -> String {
    let attempts = match step.attempts {
        None | Some(0) => String::new(),
        Some(1) => ", after 1 attempt".to_owned(),
        Some(more) => format!(", after {more} attempts"),
    };
    match step.status {
        ReportedState::Waiting => match step.before {
            None | Some(0) => "waiting, the first".to_owned(),
            Some(before) => format!("waiting, {} before it", jobs(before)),
        },
        ReportedState::Begun => format!("begun{attempts}"),
        ReportedState::Delayed => match (&step.until, step.attempts) {
            (Some(until), None) => format!("waits for a partner until {until}"),
            (None, None) => "waits for a partner".to_owned(),
            (Some(until), Some(_)) => format!("delayed until {until}{attempts}"),
            (None, Some(_)) => format!("due{attempts}"),
        },
        ReportedState::Pending => match step.pending.external_status {
            None => format!("pending in an external system{attempts}"),
            Some(external) if external.waits() => {
                format!("pending in an external system as `{}`{attempts}", external.as_str())
            }
            Some(external) => {
                format!("`{}` in the external system, and not delivered yet{attempts}", external.as_str())
            }
        },
        ReportedState::Failed => match &step.error {
            Some(error) => format!("failed{attempts}: {error}"),
            None => format!("failed{attempts}"),
        },
        ReportedState::Before => "skipped: the step began at a later job".to_owned(),
        ReportedState::Cancelled => {
            format!("cancelled{attempts}: {}", step.reason.as_deref().unwrap_or("it was dropped"))
        }
        ReportedState::Done => format!("done{attempts}"),
    }
}
