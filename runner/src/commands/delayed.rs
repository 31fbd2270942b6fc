//! `tidegate delayed`: lists the jobs that wait in the store, makes them due, or cancels them.

use std::collections::{BTreeMap, BTreeSet};

use crate::cli::{Cancel, DelayedChoice, DelayedList, Format};
use crate::client::where_filter::Where;
use crate::client::{CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::moves::{MoveAction, Outcomes};
use crate::output::table::{Column, columns, grouped, jobs, on_one_line};
use crate::output::terminal::{confirm, cut, width};
use crate::query::late::LateAddress;
use crate::query::{Answer, DelayedPage, DelayedStatus, JOBS_MAX, Query, WaitsFor};
use tidegate_engine::Request;
use tidegate_model::suggest::did_you_mean;
use tidegate_model::{Address, ExternalStatus};
use tidegate_store::{ParkedId, ParkedPosition};

/// Number of jobs that one change may hold.
const AT_ONCE: usize = 1000;
/// Jobs of a page with payloads.
const PAGE: usize = 1000;
/// Longest handle in a list on a terminal, in characters.
const HANDLE_MAX: usize = 24;

pub(crate) fn list(command: &DelayedList) -> Exit {
    let page = match found(command) {
        Ok(page) => page,
        Err(exit) => return exit,
    };
    if command.look.format == Format::Json {
        return print_json(&for_programs(&page), Exit::Done);
    }
    if page.jobs.is_empty() {
        print_text("no delayed jobs");
        return Exit::Done;
    }
    let mut text = columns(&columns_of(&page.jobs, width()), width()).join("\n") + "\n";
    let more = page.total.saturating_sub(page.jobs.len() as u64);
    if more > 0 {
        text.extend(["and ", &grouped(more), " more: --limit, --step\n"]);
    }
    let gone = page.jobs.iter().filter(|job| !job.configured).map(|job| &*job.step);
    for step in gone.collect::<BTreeSet<_>>() {
        text.extend([&*is_gone(step), "\n"]);
    }
    print_text(&text);
    Exit::Done
}

/// The jobs to list.
fn found(command: &DelayedList) -> Result<DelayedPage, Exit> {
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let (step, lane, limit) = (command.step.clone(), command.lane.clone(), command.limit);
    if lane.is_none() && command.filter.is_none() {
        let query = Query::Delayed { step, job: None, lane, whole: false, after: None, limit };
        return page(&place, query);
    }
    let mut filter = Where::new(command.filter.as_deref(), "job")?;
    let all = place.configuration.steps.iter().map(|step| step.address.to_string());
    let queues = place.configuration.queues.iter().map(|queue| queue.address.to_string());
    let steps: BTreeSet<String> =
        step.map_or_else(|| all.chain(queues).collect(), |step| BTreeSet::from([step]));
    let mut jobs = Vec::new();
    // Rows of several steps have no common order, so that each step has its own pages.
    for step in steps {
        let (mut of_step, mut after) = (0, None);
        loop {
            let (step, lane) = (Some(step.clone()), command.lane.clone());
            let whole = command.filter.is_some();
            let query = Query::Delayed { step, job: None, lane, whole, after, limit: PAGE };
            let page = page(&place, query)?;
            let full = page.jobs.len() == PAGE;
            after = page.jobs.last().map(|job| job.row);
            let chosen = page.jobs.into_iter().filter(|job| passes(&mut filter, job));
            let before = jobs.len();
            jobs.extend(chosen.take(limit - of_step));
            of_step += jobs.len() - before;
            if !full || of_step >= limit {
                break;
            }
        }
    }
    filter.warn_of_failures();
    jobs.sort_by(|one, other| one.due.cmp(&other.due));
    jobs.truncate(limit);
    let total = jobs.len() as u64;
    Ok(DelayedPage { jobs, total })
}

fn page(place: &CommandTarget, query: Query) -> Result<DelayedPage, Exit> {
    match place.ask(query)? {
        Answer::Delayed(page) => Ok(page),
        Answer::Missing(what) => Err(exit::fail(what)),
        _ => Err(other_question()),
    }
}

/// Whether the expression holds for the payload of the job.
fn passes(filter: &mut Where, job: &DelayedStatus) -> bool {
    let Some(payload) = &job.payload else { return true };
    let name = job.jobs.first().and_then(|job| job.rsplit_once('/'));
    let (queue, index) = name.unwrap_or((&job.step, ""));
    filter.passes(queue, index.parse().unwrap_or_default(), payload)
}

fn is_gone(step: &str) -> String {
    format!(
        "`{step}` is not in the configuration: its jobs are kept, and continue when it is configured again"
    )
}

/// The page for programs, without the store's positions of the jobs, which have no meaning elsewhere.
fn for_programs(page: &DelayedPage) -> serde_json::Value {
    let mut page = serde_json::to_value(page).unwrap_or_default();
    let jobs = page.get_mut("jobs").and_then(serde_json::Value::as_array_mut);
    for job in jobs.into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
        job.remove("row");
        job.remove("started");
        job.remove("payload");
    }
    page
}

fn columns_of(jobs: &[DelayedStatus], width: Option<usize>) -> [Column; 5] {
    let cells = |of: &dyn Fn(&DelayedStatus) -> String| jobs.iter().map(of).collect();
    let due = |job: &DelayedStatus| due(job, width.map(|_| HANDLE_MAX));
    let error =
        |job: &DelayedStatus| on_one_line(&job.last_error.as_deref().unwrap_or_default().replace('\n', " "));
    [
        Column::left("due", cells(&due)).cuts(20),
        Column::left("step", cells(&|job| job.step.clone())).cuts_front(12).drops(2),
        Column::left("job", cells(&|job| job.jobs.join(" + "))).cuts_front(16),
        Column::right("attempts", cells(&|job| job.attempts.to_string())).drops(1),
        Column::left("last error", cells(&error)).cuts(12),
    ]
}

/// The due time, or the event that the job waits for.
fn due(job: &DelayedStatus, handle_max: Option<usize>) -> String {
    match (job.waits_for, &job.due, &job.pending.handle, &job.output) {
        (WaitsFor::Outside, _, Some(handle), _) => {
            let status = job.pending.external_status.unwrap_or(ExternalStatus::Pending).as_str();
            let handle = on_one_line(handle);
            let handle = handle_max.map_or_else(|| handle.clone(), |most| cut(&handle, most));
            format!("{status} as `{handle}`")
        }
        (WaitsFor::Outside, ..) => "pending".to_owned(),
        (WaitsFor::Attempt, ..) => "begun".to_owned(),
        (WaitsFor::Order, ..) => "finished".to_owned(),
        (WaitsFor::Turn, ..) => "waiting".to_owned(),
        (WaitsFor::Partner, Some(due), ..) => format!("a partner, until {due}"),
        (WaitsFor::Partner, None, ..) => "a partner".to_owned(),
        (WaitsFor::Output, Some(due), _, Some(to)) if !to.is_empty() => format!("{due}, for `{to}`"),
        (WaitsFor::Output, Some(due), ..) => format!("{due}, an output"),
        (WaitsFor::Time | WaitsFor::Arrival, Some(due), ..) => due.clone(),
        (_, None, ..) => "now".to_owned(),
    }
}

pub(crate) fn now(command: &DelayedChoice) -> Exit {
    deal(command, MoveAction::Now).unwrap_or_else(|exit| exit)
}

pub(crate) fn cancel(command: &Cancel) -> Exit {
    deal(&command.choice, MoveAction::Cancel { drop: command.drop, pending: command.pending })
        .unwrap_or_else(|exit| exit)
}

/// The chosen rows by step, and by queue for jobs that are not on it yet.
type Chosen = BTreeMap<(Address, RowOwner), BTreeSet<ParkedPosition>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RowOwner {
    Step,
    Queue,
}

fn deal(command: &DelayedChoice, how: MoveAction) -> Result<Exit, Exit> {
    let place = CommandTarget::of(&command.config, command.data.clone())?;
    let (mut chosen, mut outcomes) = (Chosen::new(), Outcomes::new(&place, how));
    outcomes.filtered = command.filter.is_some() || command.lane.is_some();
    let mut filter = Where::new(command.filter.as_deref(), "job")?;
    for text in &command.jobs {
        choose(&place, command, (text, &mut filter), how, (&mut chosen, &mut outcomes))?;
    }
    filter.warn_of_failures();
    let count: u64 = chosen.values().map(|rows| rows.len() as u64).sum();
    if count > 0 {
        let steps: Vec<String> = chosen.keys().map(|(step, _)| step.to_string()).collect();
        let (jobs, steps) = (jobs(count), steps.join(", "));
        let question = match how {
            MoveAction::Now => format!("{jobs} of {steps} will be due at once."),
            MoveAction::Cancel { drop: false, .. } => {
                format!("{jobs} of {steps} will go to the error queue.")
            }
            MoveAction::Cancel { drop: true, .. } => format!("{jobs} of {steps} will be discarded."),
        };
        confirm(&question, command.yes)?;
    }
    for ((step, owner), rows) in chosen {
        let rows: Vec<ParkedId> = rows.into_iter().map(ParkedPosition::id).collect();
        for some in rows.chunks(AT_ONCE) {
            let (step, rows) = (step.clone(), some.to_vec());
            let request = match (how, owner) {
                (MoveAction::Now, RowOwner::Queue) => Request::MakeLateDue { queue: step.clone(), rows },
                (MoveAction::Cancel { .. }, RowOwner::Queue) => {
                    Request::DropLate { queue: step.clone(), rows }
                }
                (MoveAction::Now, RowOwner::Step) => Request::MakeDue { step: step.clone(), rows },
                (MoveAction::Cancel { drop, pending }, RowOwner::Step) => {
                    Request::Cancel { step: step.clone(), rows, jobs: Vec::new(), drop, pending }
                }
            };
            outcomes.change(&step, request)?;
        }
    }
    Ok(outcomes.print(command.format))
}

/// Adds the jobs that `text` names, if the change applies to them.
fn choose(
    place: &CommandTarget,
    command: &DelayedChoice,
    (text, filter): (&str, &mut Where),
    how: MoveAction,
    (chosen, outcomes): (&mut Chosen, &mut Outcomes<'_>),
) -> Result<(), Exit> {
    let (step, job) = match text.matches('/').count() {
        1 => (Some(text.to_owned()), None),
        2 => (None, Some(text.to_owned())),
        _ if LateAddress::parse(text).is_some() => (None, Some(text.to_owned())),
        _ => {
            return Err(exit::misuse(format_args!(
                "`{text}` does not name delayed jobs: write PIPELINE/STEP for all of a step, \
                 PIPELINE/QUEUE/INDEX or PIPELINE/QUEUE/due/NUMBER for one"
            )));
        }
    };
    let (by_name, mut after, mut found, mut gone) = (job.is_some(), None, 0, None);
    let whole = command.filter.is_some();
    let limit = if whole { PAGE } else { JOBS_MAX };
    if let Some(step) = step.as_deref().and_then(Address::parse) {
        // Reports the step also if it has no such jobs.
        outcomes.of(&step);
    }
    loop {
        let (step, job, lane) = (step.clone(), job.clone(), command.lane.clone());
        let page = page(place, Query::Delayed { step, job, lane, whole, after, limit })?;
        let full = page.jobs.len() == limit;
        for one in &page.jobs {
            after = Some(one.row);
            let Some(address) = Address::parse(&one.step) else { continue };
            if !one.configured {
                gone = Some(one.step.clone());
                continue;
            }
            found += 1;
            if !passes(filter, one) {
                continue;
            }
            let outcome = outcomes.of(&address);
            match (how, one.waits_for) {
                (MoveAction::Now, _) if one.due.is_some() => {}
                (MoveAction::Now | MoveAction::Cancel { pending: false, .. }, WaitsFor::Outside) => {
                    outcome.outside += 1;
                    continue;
                }
                (MoveAction::Now, WaitsFor::Partner) => {
                    outcome.unmatched += 1;
                    continue;
                }
                (MoveAction::Now, _) => {
                    outcome.due += 1;
                    continue;
                }
                (MoveAction::Cancel { drop: false, .. }, WaitsFor::Output) => {
                    outcome.outputs += 1;
                    continue;
                }
                (MoveAction::Cancel { drop: false, .. }, WaitsFor::Arrival) => {
                    outcome.late += 1;
                    continue;
                }
                (MoveAction::Cancel { .. }, _) => {}
            }
            let owner = if one.waits_for == WaitsFor::Arrival { RowOwner::Queue } else { RowOwner::Step };
            chosen.entry((address, owner)).or_default().insert(one.row);
        }
        // One job has few rows, and rows of several steps have no common order.
        if !full || by_name {
            break;
        }
    }
    if let (0, Some(step)) = (found, gone) {
        return Err(exit::fail(is_gone(&step)));
    }
    if found == 0 && by_name {
        return Err(nothing_of(place, text));
    }
    Ok(())
}

/// No waiting row was made from the job; its queue may be mistyped.
fn nothing_of(place: &CommandTarget, job: &str) -> Exit {
    if LateAddress::parse(job).is_some() {
        let show = place.configuration.command(&format!("job show {job}"));
        return exit::fail(format_args!("no job `{job}` waits to be appended; `{show}` shows its outcome"));
    }
    let queue = job.rsplit_once('/').map_or(job, |(queue, _)| queue);
    let inputs = place.configuration.steps.iter().flat_map(|step| &step.inputs);
    let names: Vec<String> = inputs.map(|input| input.address.to_string()).collect();
    if !names.iter().any(|name| name == queue) {
        let hint = did_you_mean(queue, names.iter().map(String::as_str));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        return exit::fail(format_args!("no step reads `{queue}`{hint}"));
    }
    let show = place.configuration.command(&format!("job show {job}"));
    exit::fail(format_args!("no delayed job was made from `{job}`; `{show}` shows its outcome"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::pending_fields::PendingFields;
    use tidegate_store::ParkedJob;

    fn delayed(waits_for: WaitsFor, due: Option<&str>) -> DelayedStatus {
        DelayedStatus {
            configured: true,
            step: "withdrawals/submit".into(),
            jobs: vec!["withdrawals/requests/1234".into()],
            waits_for,
            due: due.map(str::to_owned),
            attempts: 3,
            last_error: Some("http 503: the ledger\nis busy".into()),
            pending: PendingFields::default(),
            output: None,
            lane: None,
            payload: None,
            started: None,
            row: ParkedPosition::of(ParkedId(1), &ParkedJob::default()),
        }
    }

    #[test]
    fn a_narrow_terminal_gets_what_fits() {
        let jobs = [
            delayed(WaitsFor::Time, Some("2026-01-31T12:00:00.123Z")),
            delayed(WaitsFor::Turn, None),
            DelayedStatus {
                pending: PendingFields { handle: Some("0xfeed".into()), ..PendingFields::default() },
                ..delayed(WaitsFor::Outside, None)
            },
        ];
        let text = |width: usize| {
            let lines = columns(&columns_of(&jobs, Some(width)), Some(width));
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            lines.join("\n")
        };
        insta::assert_snapshot!(format!("{}\n\n{}\n\n{}", text(200), text(80), text(60)));
    }
}
