//! `tidegate job cancel`: cancels a job at all steps that read it and have not finished it, or at none.

use std::collections::BTreeMap;

use super::job_show::parse;
use crate::cli::{Format, JobCancel};
use crate::client::{CommandTarget, other_question, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::moves::{MoveAction, Outcomes};
use crate::output::table::{grouped, jobs};
use crate::output::terminal::confirm;
use crate::output::times;
use crate::query::late::LateAddress;
use crate::query::{Answer, DelayedStatus, JOBS_MAX, Query, ReportedState, StepOutcome, WaitsFor};
use tidegate_config::Step;
use tidegate_engine::{Request, may_cancel};
use tidegate_model::suggest::did_you_mean;
use tidegate_model::{Address, Clock as _, SystemClock, Timestamp, format_duration};
use tidegate_store::ParkedId;

/// Jobs of a range.
const RANGE_MAX: u64 = 100_000;
/// Number of jobs that one change may hold.
const AT_ONCE: usize = 1000;

/// The state of a job at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum JobState {
    Waits,
    Outside,
    /// An attempt with external effects was started.
    Begun,
    /// Its result waits for the delivery of the jobs before it.
    Finished,
    /// An external system has completed it.
    Completed,
    /// It is done or failed.
    Over,
}

/// A step at which the job is cancelled, and its rows.
struct Cut<'a> {
    step: &'a Step,
    state: JobState,
    /// The rows of the job at this step.
    rows: Vec<ParkedId>,
    /// Number of outputs that were made from it and are due later.
    outputs: u64,
    /// Start time of the running attempt.
    since: Option<Timestamp>,
    /// The job is only on the input so far.
    fresh: bool,
}

pub(crate) fn cancel(command: &JobCancel) -> Exit {
    take_out(command).unwrap_or_else(|exit| exit)
}

fn take_out(command: &JobCancel) -> Result<Exit, Exit> {
    if let Some(range) = range(&command.job)? {
        return take_out_range(command, range);
    }
    if let Some(late) = LateAddress::parse(&command.job) {
        return drop_late(command, &late);
    }
    let (queue, index) = parse(&command.job)?;
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let cuts = cuts(&place, command, (&queue, index))?;
    // The check precedes every change: the job is cancelled everywhere or nowhere.
    all_can(&cuts, command.drop)?;
    let names: Vec<String> = cuts.iter().map(|cut| cut.step.address.to_string()).collect();
    let end = if command.drop { "will be discarded" } else { "will go to the error queue" };
    let is_outside = cuts.iter().any(|cut| cut.state == JobState::Outside);
    let but = if is_outside { " An external system has it, and may finish it all the same." } else { "" };
    confirm(&format!("The job {} of {} {end}.{but}", command.job, names.join(", ")), command.yes)?;
    let mut outcomes = Outcomes::new(&place, MoveAction::Cancel { drop: command.drop, pending: true });
    for Cut { step, rows, fresh, outputs, .. } in cuts {
        outcomes.of(&step.address).outputs += outputs;
        let jobs = if fresh { vec![index] } else { Vec::new() };
        let (step, drop, pending) = (step.address.clone(), command.drop, true);
        outcomes.change(&step.clone(), Request::Cancel { step, rows, jobs, drop, pending })?;
    }
    let exit = outcomes.print(command.look.format);
    // The job was finished before it could be cancelled.
    Ok(if outcomes.all_gone() { Exit::Failed } else { exit })
}

/// A job that is not on its queue yet.
fn drop_late(command: &JobCancel, late: &LateAddress) -> Result<Exit, Exit> {
    if !command.drop {
        let why = "is on no queue yet, so that it cannot go to an error queue: discard it with `--drop`";
        return Err(exit::fail(format_args!("`{late}` {why}")));
    }
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    confirm(&format!("The job {late} will be discarded."), command.yes)?;
    let mut outcomes = Outcomes::new(&place, MoveAction::Cancel { drop: true, pending: true });
    let (queue, rows) = (late.queue.clone(), vec![late.id]);
    outcomes.change(&late.queue, Request::DropLate { queue, rows })?;
    let exit = outcomes.print(command.look.format);
    Ok(if outcomes.all_gone() { Exit::Failed } else { exit })
}

/// `PIPELINE/QUEUE/FROM-TO`
fn range(job: &str) -> Result<Option<(Address, u64, u64)>, Exit> {
    let parts = || {
        let (queue, range) = job.rsplit_once('/')?;
        let (from, to) = range.split_once('-')?;
        Some((Address::parse(queue)?, from.parse().ok()?, to.parse().ok()?))
    };
    match parts() {
        Some((queue, from, to)) if from == 0 || to == 0 => {
            Err(exit::misuse(format_args!("`{job}` does not name jobs: the first is `{queue}/1`")))
        }
        Some((queue, from, to)) if to < from => Err(exit::misuse(format_args!(
            "`{job}` does not name jobs: the range is reversed; write `{queue}/{to}-{from}`"
        ))),
        range => Ok(range),
    }
}

/// Cancels all jobs of a range that wait somewhere. The others are left alone.
fn take_out_range(command: &JobCancel, (queue, from, to): (Address, u64, u64)) -> Result<Exit, Exit> {
    if to - from >= RANGE_MAX {
        return Err(exit::misuse(format_args!("a range has at most {} jobs", grouped(RANGE_MAX))));
    }
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    if let Some(wanted) = &command.step {
        let reads = |step: &&Step| step.inputs.iter().any(|input| input.address == queue);
        let readers = place.configuration.steps.iter().filter(reads);
        let readers = readers.map(|step| (step.address.to_string(), JobState::Over)).collect();
        only(&place, wanted, &queue, readers)?;
    }
    let mut outcomes = Outcomes::new(&place, MoveAction::Cancel { drop: command.drop, pending: true });
    let (mut chosen, mut count) = (BTreeMap::<Address, (Vec<ParkedId>, Vec<u64>)>::new(), 0);
    let (mut exists, mut missing) = (false, None);
    for index in from..=to {
        let query = Query::Job { queue: queue.to_string(), index, why: false, whole: false };
        let status = match place.ask(query)? {
            Answer::Job(status) => status,
            Answer::Missing(what) => {
                missing.get_or_insert(what);
                continue;
            }
            _ => return Err(other_question()),
        };
        exists = true;
        let steps =
            status.steps.iter().filter(|one| command.step.as_ref().is_none_or(|step| one.step == *step));
        let mut waits = false;
        for outcome in steps.filter(|one| how(one) != JobState::Over) {
            let declared =
                place.configuration.steps.iter().find(|one| one.address.to_string() == outcome.step);
            let Some(step) = declared else { continue };
            may_cancel(step, false, command.drop).map_err(exit::fail)?;
            let (rows, fresh) = chosen.entry(step.address.clone()).or_default();
            let mut parked = self::rows(&place, step, &format!("{queue}/{index}"))?;
            match how(outcome) {
                JobState::Begun | JobState::Finished | JobState::Completed => {
                    outcomes.of(&step.address).busy += 1;
                }
                _ if parked.is_empty() => {
                    may_cancel(step, true, command.drop).map_err(exit::fail)?;
                    fresh.push(index);
                    waits = true;
                }
                _ => {
                    parked.retain(|row| command.drop || row.waits_for != WaitsFor::Output);
                    waits |= !parked.is_empty();
                    rows.extend(parked.into_iter().map(|row| row.row.id()));
                }
            }
        }
        count += u64::from(waits);
    }
    if let Some(what) = missing.filter(|_| !exists) {
        return Err(exit::fail(what));
    }
    if count == 0 && outcomes.is_empty() && command.look.format == Format::Text {
        print_text(&format!("no job of {} waits: nothing was cancelled", command.job));
    }
    if count > 0 {
        let end = if command.drop { "will be discarded" } else { "will go to the error queue" };
        let (jobs, steps) =
            (jobs(count), chosen.keys().map(Address::to_string).collect::<Vec<_>>().join(", "));
        confirm(&format!("{jobs} of {queue} {end}, at {steps}."), command.yes)?;
    }
    for (step, (rows, fresh)) in chosen {
        let drop = command.drop;
        let of_rows = rows.chunks(AT_ONCE).map(|rows| (rows.to_vec(), Vec::new()));
        let of_jobs = fresh.chunks(AT_ONCE).map(|jobs| (Vec::new(), jobs.to_vec()));
        for (rows, jobs) in of_rows.chain(of_jobs) {
            let request = Request::Cancel { step: step.clone(), rows, jobs, drop, pending: true };
            outcomes.change(&step, request)?;
        }
    }
    Ok(outcomes.print(command.look.format))
}

/// The steps that read the job and have not finished it; at least one.
fn cuts<'a>(
    place: &'a CommandTarget,
    command: &JobCancel,
    (queue, index): (&Address, u64),
) -> Result<Vec<Cut<'a>>, Exit> {
    let query = Query::Job { queue: queue.to_string(), index, why: false, whole: false };
    let is_source = place.configuration.sources.iter().any(|source| source.address == *queue);
    let mut state = match place.ask(query)? {
        Answer::Job(status) => status.steps.into_iter().map(|step| (step.step.clone(), how(&step))).collect(),
        // For a source that is never copied, only the rows in the store are known.
        Answer::Missing(what) => match by_itself(place, &command.job)? {
            steps if steps.is_empty() && !is_source => return Err(exit::fail(what)),
            steps => with_readers(place, queue, steps),
        },
        _ => return Err(other_question()),
    };
    let waits = |(_, state): &(String, JobState)| *state != JobState::Over;
    let somewhere = state.iter().any(waits);
    if let Some(wanted) = &command.step {
        state = vec![only(place, wanted, queue, state)?];
    }
    state.retain(waits);
    if state.is_empty() {
        return Err(nothing(place, command, somewhere, is_source));
    }
    let declared = |name: &str| place.configuration.steps.iter().find(|one| one.address.to_string() == name);
    let declared = state.iter().filter_map(|(name, state)| Some((declared(name)?, *state)));
    let cut = |(step, state): (&'a Step, JobState)| {
        let rows = rows(place, step, &command.job)?;
        let is_output = |row: &&DelayedStatus| row.waits_for == WaitsFor::Output;
        let begun = rows.iter().find(|row| row.waits_for == WaitsFor::Attempt);
        let finished = rows.iter().any(|row| row.waits_for == WaitsFor::Order);
        let (outputs, others): (Vec<_>, Vec<_>) = rows.iter().partition(is_output);
        let taken = if command.drop { rows.iter().collect() } else { others };
        Ok(Cut {
            step,
            state: if finished { JobState::Finished } else { state },
            fresh: rows.is_empty(),
            since: begun.and_then(|row| row.started),
            outputs: if command.drop { 0 } else { outputs.len() as u64 },
            rows: taken.into_iter().map(|row| row.row.id()).collect(),
        })
    };
    declared.map(cut).collect()
}

/// Adds the readers of a source that have no row in the store.
fn with_readers(
    place: &CommandTarget,
    source: &Address,
    mut state: Vec<(String, JobState)>,
) -> Vec<(String, JobState)> {
    for step in &place.configuration.steps {
        let name = step.address.to_string();
        let reads = step.inputs.iter().any(|input| input.address == *source);
        if reads && state.iter().all(|(known, _)| *known != name) {
            state.push((name, JobState::Over));
        }
    }
    state
}

/// Reports that nothing can be cancelled. It is no failure if only the named step has nothing of the job.
fn nothing(place: &CommandTarget, command: &JobCancel, somewhere: bool, is_source: bool) -> Exit {
    let job = &command.job;
    match &command.step {
        Some(step) if somewhere && command.look.format == Format::Text => {
            print_text(&format!("nothing of `{job}` waits at step `{step}`"));
            Exit::Done
        }
        Some(_) if somewhere => {
            Outcomes::new(place, MoveAction::Cancel { drop: command.drop, pending: true })
                .print(command.look.format)
        }
        _ => {
            let or = if is_source { ", or have not reached it" } else { "" };
            let show = place.configuration.command(&format!("job show {job}"));
            exit::fail(format_args!(
                "`{job}` waits nowhere: all steps that read it are done with it{or} (see `{show}`)"
            ))
        }
    }
}

fn how(step: &StepOutcome) -> JobState {
    match step.status {
        ReportedState::Waiting | ReportedState::Delayed => JobState::Waits,
        ReportedState::Begun => JobState::Begun,
        ReportedState::Pending if step.pending.external_status.is_some_and(|status| !status.waits()) => {
            JobState::Completed
        }
        ReportedState::Pending => JobState::Outside,
        ReportedState::Failed | ReportedState::Cancelled | ReportedState::Done | ReportedState::Before => {
            JobState::Over
        }
    }
}

/// The named step, out of the steps that read the job.
fn only(
    place: &CommandTarget,
    wanted: &str,
    queue: &Address,
    state: Vec<(String, JobState)>,
) -> Result<(String, JobState), Exit> {
    let names: Vec<String> = state.iter().map(|(name, _)| name.clone()).collect();
    if let Some(found) = state.into_iter().find(|(name, _)| name == wanted) {
        return Ok(found);
    }
    let is_there = place.configuration.steps.iter().any(|step| step.address.to_string() == wanted);
    let what = if is_there { "does not read" } else { "is unknown, so it cannot read" };
    let near = did_you_mean(wanted, names.iter().map(String::as_str));
    let hint = near.unwrap_or_else(|| match &*names {
        [] => "no step reads it".to_owned(),
        names => format!("it is read by {}", names.join(", ")),
    });
    Err(exit::fail(format_args!("step `{wanted}` {what} `{queue}`; {hint}")))
}

/// The steps with a row of the job in the store, each with its state.
fn by_itself(place: &CommandTarget, job: &str) -> Result<Vec<(String, JobState)>, Exit> {
    let job = Some(job.to_owned());
    let Answer::Delayed(page) = place.ask(Query::Delayed {
        step: None,
        job,
        lane: None,
        whole: false,
        after: None,
        limit: JOBS_MAX,
    })?
    else {
        return Ok(Vec::new());
    };
    let mut steps = BTreeMap::new();
    for job in page.jobs.into_iter().filter(|job| job.configured) {
        let state = match job.waits_for {
            WaitsFor::Time | WaitsFor::Partner | WaitsFor::Turn | WaitsFor::Output | WaitsFor::Arrival => {
                JobState::Waits
            }
            WaitsFor::Attempt => JobState::Begun,
            WaitsFor::Order => JobState::Finished,
            WaitsFor::Outside => JobState::Outside,
        };
        let worst = steps.entry(job.step).or_insert(state);
        *worst = state.max(*worst);
    }
    Ok(steps.into_iter().collect())
}

/// The rows of the job at a step.
fn rows(place: &CommandTarget, step: &Step, job: &str) -> Result<Vec<DelayedStatus>, Exit> {
    let (step, job) = (Some(step.address.to_string()), Some(job.to_owned()));
    match place.ask(Query::Delayed { step, job, lane: None, whole: false, after: None, limit: JOBS_MAX })? {
        Answer::Delayed(page) => Ok(page.jobs),
        Answer::Missing(what) => Err(exit::fail(what)),
        _ => Err(other_question()),
    }
}

/// The reason for a refusal while an attempt is running.
fn running(step: &Step, since: Option<Timestamp>) -> String {
    let since = since.map(|since| format!(" since {}", times::since(since, SystemClock.now())));
    let timeout = step.timeout.map(|timeout| format!(" (its `timeout` is {})", format_duration(timeout)));
    let (since, timeout) = (since.unwrap_or_default(), timeout.unwrap_or_default());
    format!(
        "an attempt of step `{}` at it is running{since}; wait for its end{timeout}, or stop the runner",
        step.address
    )
}

/// If one step cannot cancel the job, none does.
fn all_can(cuts: &[Cut<'_>], drop: bool) -> Result<(), Exit> {
    let mut able = Vec::new();
    let mut obstacles = Vec::new();
    for Cut { step, state, fresh, rows, outputs, since } in cuts {
        let name = step.address.to_string();
        if rows.is_empty() && *outputs > 0 {
            obstacles.push(format!(
                "step `{name}` has already made an output from it, which is due later; `--drop` discards it"
            ));
            continue;
        }
        match (may_cancel(step, *fresh, drop), state) {
            (Err(why), _) => obstacles.push(why),
            (Ok(()), JobState::Begun) => obstacles.push(running(step, *since)),
            (Ok(()), JobState::Finished) => obstacles.push(format!(
                "step `{name}` has finished it, and delivers its result after those of the jobs before it"
            )),
            (Ok(()), JobState::Completed) => {
                obstacles.push(format!(
                    "at step `{name}`, the external system has finished it, and its result is being delivered"
                ));
            }
            (Ok(()), _) => able.push(name),
        }
    }
    if obstacles.is_empty() {
        return Ok(());
    }
    for obstacle in &obstacles {
        exit::fail(obstacle);
    }
    let only: Vec<String> = able.iter().map(|name| format!("`--step {name}`")).collect();
    exit::note(format_args!(
        "nothing was changed{}",
        match &*only {
            [] => String::new(),
            only => format!("; {} cancels it there alone", only.join(" or ")),
        }
    ));
    Err(Exit::Failed)
}
