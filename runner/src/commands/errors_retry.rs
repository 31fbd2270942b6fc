//! `tidegate errors retry` and `drop`: retry or discard errors, each once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Serialize;

use crate::cli::{ErrorsChoice, ErrorsRetry, Format};
use crate::client::where_filter::Where;
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use crate::output::error_record::ErrorRecordView;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::grouped;
use crate::output::terminal::confirm;
use crate::query::{Answer, Query, QueueJob};
use tidegate_components::script::json;
use tidegate_engine::{Request, RequestOutcome};
use tidegate_model::Address;
use tidegate_model::suggest::{did_you_mean, listed};

/// Number of errors that one change may hold.
const AT_ONCE: usize = 1000;
/// Number of refused errors that are reported one by one.
const REFUSALS_MAX: usize = 10;
/// The longest replacement payload, in bytes. The local socket must accept it.
const PAYLOAD_MAX: u64 = 16 << 20;

/// The change to the errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorAction {
    Retry,
    Drop,
}

/// The chosen indices by error queue.
type Chosen = BTreeMap<Address, BTreeSet<u64>>;

pub(crate) fn retry(command: &ErrorsRetry) -> Exit {
    match &command.payload {
        None => handle(&command.choice, ErrorAction::Retry),
        Some(file) => replace(&command.choice, file).unwrap_or_else(|exit| exit),
    }
}

/// Retries one error with another payload.
fn replace(command: &ErrorsChoice, file: &Path) -> Result<Exit, Exit> {
    let selectors = selectors(command)?;
    let [Selector { queue, which: Which::One(index) }] = &selectors[..] else {
        return Err(exit::misuse("`--payload` applies to one error only: name it as PIPELINE/QUEUE/INDEX"));
    };
    let payload = read_payload(file)?;
    let place = CommandTarget::of(&command.config, command.data.clone())?;
    let filter = Where::new(command.filter.as_deref(), "error")?;
    let (mut choice, mut chosen) = (Choice::new(command, filter, &place), Chosen::new());
    choice.add_one(queue, *index, &mut chosen)?;
    must_run_what_is_on_disk(&place, choice.steps)?;
    confirm(&format!("{queue}/{index} will run again with another payload."), command.yes)?;
    let request = Request::Replace { queue: queue.clone(), error: *index, payload };
    let (outcome, answered_by) = place.change(request)?;
    match outcome {
        Ok(RequestOutcome::Retried { jobs }) => {
            let done = Done { errors: jobs, handled_meanwhile: 0, refused: Vec::new() };
            Ok(print(command, ErrorAction::Retry, &done, Some(answered_by)))
        }
        Ok(_) => Err(other_question()),
        Err(why) => Err(exit::fail(why)),
    }
}

fn read_payload(file: &Path) -> Result<String, Exit> {
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { format!("`{}`", file.display()) };
    let mut bytes = Vec::new();
    // One byte more shows that the payload is too long.
    let read = if is_stdin {
        io::stdin().take(PAYLOAD_MAX + 1).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|file| file.take(PAYLOAD_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| exit::fail(format_args!("{name} cannot be read: {error}")))?;
    if bytes.len() as u64 > PAYLOAD_MAX {
        return Err(exit::fail(format_args!("{name} exceeds {} MiB", PAYLOAD_MAX >> 20)));
    }
    json::check(&bytes).map_err(|error| exit::fail(format_args!("{name} is not JSON: {error}")))?;
    String::from_utf8(bytes).map_err(|_| exit::fail(format_args!("{name} is not JSON: it is not UTF-8")))
}

pub(crate) fn handle(command: &ErrorsChoice, how: ErrorAction) -> Exit {
    match deal(command, how) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn deal(command: &ErrorsChoice, how: ErrorAction) -> Result<Exit, Exit> {
    let selectors = selectors(command)?;
    let place = CommandTarget::of(&command.config, command.data.clone())?;
    let filter = Where::new(command.filter.as_deref(), "error")?;
    let mut choice = Choice::new(command, filter, &place);
    let chosen = choice.errors(&selectors)?;
    choice.filter.warn_of_failures();
    let count: u64 = chosen.values().map(|indices| indices.len() as u64).sum();
    if count == 0 {
        choice.must_know_step()?;
        if command.format == Format::Text {
            print_text(&choice.none());
            return Ok(Exit::Done);
        }
    }
    if how == ErrorAction::Retry {
        must_run_what_is_on_disk(&place, choice.steps)?;
    }
    let mut done = Done { errors: 0, handled_meanwhile: 0, refused: Vec::new() };
    if count > 0 {
        let queues: Vec<String> = chosen.keys().map(Address::to_string).collect();
        let question = match how {
            ErrorAction::Retry => format!("{} of {} will run again.", errors(count), queues.join(", ")),
            ErrorAction::Drop => {
                format!("{} will be removed from {} for good.", errors(count), queues.join(", "))
            }
        };
        confirm(&question, command.yes)?;
    }
    let mut answered_by = None;
    for (queue, indices) in chosen {
        let indices: Vec<u64> = indices.into_iter().collect();
        for some in indices.chunks(AT_ONCE) {
            answered_by = Some(change(&place, how, &queue, some, &mut done)?);
        }
    }
    Ok(print(command, how, &done, answered_by))
}

/// A runner uses the files that it has read, so a script that changed since then would not run.
fn must_run_what_is_on_disk(place: &CommandTarget, steps: BTreeSet<Address>) -> Result<(), Exit> {
    let query = Query::Changed { steps: steps.into_iter().collect() };
    let Answer::Changed(changed) = place.ask(query)? else { return Err(other_question()) };
    if changed.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = changed.iter().map(|path| path.display().to_string()).collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    let names = listed(names.iter().map(String::as_str), "and");
    let reload = place.configuration.command("reload");
    Err(exit::fail(format_args!(
        "{names} {have} changed since the runner read the configuration: run `{reload}` first"
    )))
}

/// Retries or drops some errors. If one of them is refused, the others are handled all the same.
fn change(
    place: &CommandTarget,
    how: ErrorAction,
    queue: &Address,
    some: &[u64],
    done: &mut Done,
) -> Result<AnsweredBy, Exit> {
    let (queue, indices) = (queue.clone(), some.to_vec());
    let request = match how {
        ErrorAction::Retry => Request::Retry { queue: queue.clone(), errors: indices },
        ErrorAction::Drop => Request::Drop { queue: queue.clone(), errors: indices },
    };
    let (outcome, answered_by) = place.change(request)?;
    match (outcome, some) {
        (Ok(RequestOutcome::Retried { jobs } | RequestOutcome::Dropped { jobs }), _) => done.errors += jobs,
        (Ok(_), _) => return Err(other_question()),
        (Err(why), [index]) => match place.ask(Query::Error { queue: queue.to_string(), index: *index })? {
            Answer::Errors { errors, .. } if errors.iter().all(|error| !error.handled) => {
                done.refused.push(Refused { error: format!("{queue}/{index}"), why });
            }
            // Another operator was quicker.
            _ => done.handled_meanwhile += 1,
        },
        (Err(_), some) => {
            let (some, others) = some.split_at(some.len() / 2);
            change(place, how, &queue, some, done)?;
            return change(place, how, &queue, others, done);
        }
    }
    Ok(answered_by)
}

/// The outcome of the errors that were chosen.
#[derive(Serialize)]
struct Done {
    /// Retried or dropped.
    errors: u64,
    /// Retried or dropped by another operator in the meantime.
    handled_meanwhile: u64,
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    error: String,
    why: String,
}

fn print(command: &ErrorsChoice, how: ErrorAction, done: &Done, answered_by: Option<AnsweredBy>) -> Exit {
    let exit = if done.refused.is_empty() { Exit::Done } else { Exit::Failed };
    if command.format == Format::Json {
        return print_json(done, exit);
    }
    if done.errors > 0 {
        let count = errors(done.errors);
        print_text(&match (how, answered_by) {
            (ErrorAction::Retry, Some(AnsweredBy::Runner)) => {
                format!("{count} retried: the jobs run again now")
            }
            (ErrorAction::Retry, _) => {
                format!("{count} retried: the jobs run again with the next `tidegate run`")
            }
            (ErrorAction::Drop, _) => format!("{count} dropped"),
        });
    }
    if done.handled_meanwhile > 0 {
        print_text(&format!("{} already handled by another command", errors(done.handled_meanwhile)));
    }
    for refused in done.refused.iter().take(REFUSALS_MAX) {
        exit::fail(&refused.why);
    }
    if let Some(more) = done.refused.len().checked_sub(REFUSALS_MAX).filter(|&more| more > 0) {
        exit::fail(format_args!("and {more} more like these (`--format json` lists all)"));
    }
    exit
}

/// `1 error`, `1,234 errors`.
fn errors(number: u64) -> String {
    format!("{} {}", grouped(number), if number == 1 { "error" } else { "errors" })
}

/// Errors as the operator named them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selector {
    queue: Address,
    which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    One(u64),
    /// Both included; `None`: up to the last.
    Range(u64, Option<u64>),
}

impl Selector {
    fn parse(text: &str) -> Option<Self> {
        let Some((queue, which)) = text.rsplit_once('/').filter(|(queue, _)| queue.contains('/')) else {
            return Some(Self { queue: Address::parse(text)?, which: Which::All });
        };
        let which = match which.split_once('-') {
            None => Which::One(which.parse().ok()?),
            Some((first, "")) => Which::Range(first.parse().ok()?, None),
            Some((first, last)) => Which::Range(first.parse().ok()?, Some(last.parse().ok()?)),
        };
        Some(Self { queue: Address::parse(queue)?, which })
    }
}

fn selectors(command: &ErrorsChoice) -> Result<Vec<Selector>, Exit> {
    let filtered = command.filter.is_some() || command.step.is_some() || command.kind.is_some();
    if command.errors.is_empty() && !filtered {
        return Err(exit::misuse(
            "name the errors: PIPELINE/QUEUE for all of a queue, PIPELINE/QUEUE/INDEX for one, or --where, --step or --kind",
        ));
    }
    let parse = |text: &String| {
        let selector = Selector::parse(text).ok_or_else(|| {
            let forms = "write PIPELINE/QUEUE, PIPELINE/QUEUE/INDEX or PIPELINE/QUEUE/FROM-TO";
            let is_path = Path::new(text).exists();
            let config = if is_path {
                format!("; a configuration is named by `--config={text}`")
            } else {
                String::new()
            };
            exit::misuse(format_args!("`{text}` does not name errors: {forms}{config}"))
        })?;
        let queue = &selector.queue;
        match selector.which {
            Which::One(0) | Which::Range(0, _) | Which::Range(_, Some(0)) => {
                Err(exit::misuse(format_args!("`{text}` does not name errors: the first is `{queue}/1`")))
            }
            Which::Range(from, Some(to)) if to < from => Err(exit::misuse(format_args!(
                "`{text}` does not name errors: the range is reversed; write `{queue}/{to}-{from}`"
            ))),
            _ => Ok(selector),
        }
    };
    command.errors.iter().map(parse).collect()
}

/// Finds the chosen errors.
struct Choice<'a> {
    command: &'a ErrorsChoice,
    filter: Where,
    place: &'a CommandTarget,
    /// The steps of the chosen errors.
    steps: BTreeSet<Address>,
    /// The kinds of all open errors that were seen.
    kinds: BTreeSet<String>,
}

impl<'a> Choice<'a> {
    fn new(command: &'a ErrorsChoice, filter: Where, place: &'a CommandTarget) -> Self {
        Self { command, filter, place, steps: BTreeSet::new(), kinds: BTreeSet::new() }
    }

    /// Reports that no error was chosen. If others are open, a kind may be mistyped.
    fn none(&self) -> String {
        match &self.command.kind {
            Some(kind) if !self.kinds.is_empty() && !self.kinds.contains(kind) => {
                let kinds = listed(self.kinds.iter().map(String::as_str), "and");
                format!("no open errors of the kind `{kind}`: the open ones are {kinds}")
            }
            _ if self.kinds.is_empty() => "no open errors".to_owned(),
            _ => "no open errors match".to_owned(),
        }
    }

    fn errors(&mut self, selectors: &[Selector]) -> Result<Chosen, Exit> {
        let mut chosen = Chosen::new();
        if selectors.is_empty() {
            for queue in self.error_queues()? {
                self.add_range(&queue, (1, None), &mut chosen)?;
            }
        }
        for Selector { queue, which } in selectors {
            match *which {
                Which::All => self.add_range(queue, (1, None), &mut chosen)?,
                Which::Range(first, last) => self.add_range(queue, (first, last), &mut chosen)?,
                Which::One(index) => self.add_one(queue, index, &mut chosen)?,
            }
        }
        chosen.retain(|_, indices| !indices.is_empty());
        Ok(chosen)
    }

    fn error_queues(&self) -> Result<Vec<Address>, Exit> {
        let Answer::Queues(queues) = self.place.ask(Query::Queues)? else { return Err(other_question()) };
        let holding = queues.iter().filter(|queue| queue.errors && queue.jobs > 0);
        Ok(holding.filter_map(|queue| Address::parse(&queue.queue)).collect())
    }

    /// An error that is named by its index must exist.
    fn add_one(&mut self, queue: &Address, index: u64, chosen: &mut Chosen) -> Result<(), Exit> {
        self.must_hold_errors(queue)?;
        match self.place.ask(Query::Error { queue: queue.to_string(), index })? {
            Answer::Errors { errors, .. } => {
                if errors.iter().any(|error| error.handled) {
                    return Err(exit::fail(format_args!("{queue}/{index} is already retried or dropped")));
                }
                self.add(queue, &errors, chosen);
                Ok(())
            }
            Answer::Missing(what) => Err(exit::fail(what)),
            _ => Err(other_question()),
        }
    }

    fn add_range(
        &mut self,
        queue: &Address,
        (mut from, to): (u64, Option<u64>),
        chosen: &mut Chosen,
    ) -> Result<(), Exit> {
        self.must_hold_errors(queue)?;
        loop {
            match self.place.ask(Query::OpenErrors { queue: queue.to_string(), from, to })? {
                Answer::Jobs(page) => {
                    self.add(queue, &page.jobs, chosen);
                    if !page.more {
                        return Ok(());
                    }
                    from = page.next;
                }
                Answer::Missing(what) => return Err(exit::fail(what)),
                _ => return Err(other_question()),
            }
        }
    }

    fn add(&mut self, queue: &Address, errors: &[QueueJob], chosen: &mut Chosen) {
        let chosen = chosen.entry(queue.clone()).or_default();
        for error in errors.iter().filter(|error| self.passes(error)).collect::<Vec<_>>() {
            chosen.insert(error.index);
            let of_record = || {
                ErrorRecordView::of(error).ok().map(|record| format!("{}/{}", record.pipeline, record.step))
            };
            let step = error.present_step.clone().or_else(of_record);
            self.steps.extend(step.and_then(|step| Address::parse(&step)));
        }
    }

    fn passes(&mut self, error: &QueueJob) -> bool {
        let ErrorsChoice { step, kind, filter, .. } = self.command;
        let record = ErrorRecordView::of(error);
        if step.is_some() || kind.is_some() || filter.is_some() {
            self.kinds.extend(record.as_ref().ok().map(|record| record.kind.clone()));
        }
        if step.is_some() || kind.is_some() {
            let Ok(record) = record else { return false };
            let present = error.present_step.as_deref().and_then(Address::parse);
            let is_present = |name: &String| {
                present.as_ref().is_some_and(|step| *name == step.to_string() || name == step.name.as_str())
            };
            let is_step = |name: &String| {
                *name == record.step
                    || *name == format!("{}/{}", record.pipeline, record.step)
                    || is_present(name)
            };
            if !step.as_ref().is_none_or(is_step) || kind.as_ref().is_some_and(|kind| *kind != record.kind) {
                return false;
            }
        }
        self.filter.passes(&error.queue, error.index, error.job.get())
    }

    /// A removed step may have left errors. If none exist, its name is a typing error.
    fn must_know_step(&self) -> Result<(), Exit> {
        let Some(wanted) = &self.command.step else { return Ok(()) };
        let steps = &self.place.configuration.steps;
        if steps
            .iter()
            .any(|step| step.address.to_string() == *wanted || step.address.name.as_str() == wanted)
        {
            return Ok(());
        }
        let names: Vec<String> = steps
            .iter()
            .flat_map(|step| [step.address.to_string(), step.address.name.as_str().to_owned()])
            .collect();
        let hint = did_you_mean(wanted, names.iter().map(String::as_str));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        Err(exit::fail(format_args!("step `{wanted}` is unknown and has no errors{hint}")))
    }

    fn must_hold_errors(&self, queue: &Address) -> Result<(), Exit> {
        let mut queues = self.place.configuration.queues.iter();
        if queues.any(|declared| declared.address == *queue && !declared.holds_errors) {
            return Err(exit::fail(format_args!("`{queue}` is not an error queue")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_named_by_queue_index_or_range() {
        let which = |text| Selector::parse(text).map(|selector| (selector.queue.to_string(), selector.which));
        let queue = "p/failed-1".to_owned();
        assert_eq!(which("p/failed-1"), Some((queue.clone(), Which::All)));
        assert_eq!(which("p/failed-1/3"), Some((queue.clone(), Which::One(3))));
        assert_eq!(which("p/failed-1/3-7"), Some((queue.clone(), Which::Range(3, Some(7)))));
        assert_eq!(which("p/failed-1/3-"), Some((queue, Which::Range(3, None))));
        for none in ["failed", "p/failed/", "p/failed/x", "p/failed/-3", "p/failed/1-2-3", "p/a/b/3"] {
            assert_eq!(which(none), None, "{none}");
        }
    }
}
