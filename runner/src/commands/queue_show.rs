//! `tidegate queue show`: prints the jobs of a queue page by page, so that memory is bounded.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::cli::{Format, QueueShow};
use crate::client::where_filter::Where;
use crate::client::{AnsweredBy, CommandTarget, other_question, plain, plain_json, print};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table;
use crate::output::terminal::{cut, width};
use crate::query::{Answer, JOBS_MAX, Page, Query, QueueJob};

/// Number of jobs without an option.
const LIMIT_DEFAULT: u64 = 20;
/// The same, of each queue, with `--all`.
const LIMIT_ALL: u64 = 5;
/// Interval of the queries for new jobs.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of characters of a job that are shown at least, also in a narrow terminal.
const ROOM_MIN: usize = 20;
/// Width of a printed time, in characters.
const TIME_WIDTH: usize = 24;

pub(crate) fn show(command: &QueueShow) -> Exit {
    let Some(queue) = command.queue.as_deref().filter(|_| !command.all) else { return show_all(command) };
    let place = match CommandTarget::of(&command.look.config, command.look.data.clone()) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let mut chosen = match Where::new(command.filter.as_deref(), "job") {
        Ok(chosen) => chosen,
        Err(exit) => return exit,
    };
    let unlimited = command.follow || command.to.is_some() || command.filter.is_some();
    let limit = command.limit.unwrap_or(if unlimited { u64::MAX } else { LIMIT_DEFAULT });
    let mut printer = Printer::new(command);
    let exit = walk((command, queue), &place, limit, &mut |page| {
        for job in page.jobs {
            if printer.printed < limit
                && chosen.passes(&job.queue, job.index, job.job.get())
                && !printer.print(&job, page.head)
            {
                return None;
            }
        }
        Some(printer.printed)
    });
    printer.finish(exit == Exit::Done);
    chosen.warn_of_failures();
    exit
}

/// The last jobs of every queue that has some.
fn show_all(command: &QueueShow) -> Exit {
    // The only positional argument is the configuration.
    let config = command.queue.as_ref().map_or_else(|| command.look.config.to_path_buf(), PathBuf::from);
    every_queue(command, &config).unwrap_or_else(|exit| exit)
}

fn every_queue(command: &QueueShow, config: &Path) -> Result<Exit, Exit> {
    let place = CommandTarget::of(config, command.look.data.clone())?;
    let mut chosen = Where::new(command.filter.as_deref(), "job")?;
    let limit = command.limit.unwrap_or(LIMIT_ALL);
    let Answer::Queues(queues) = place.ask(Query::Queues)? else { return Err(other_question()) };
    let mut printer = Printer::new(command);
    for state in queues.iter().filter(|state| state.jobs > 0) {
        let from = Some(state.first.max((state.head + 1).saturating_sub(limit)));
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX).min(JOBS_MAX);
        let query = Query::Jobs { queue: state.queue.clone(), from, to: None, limit: wanted };
        let Answer::Jobs(page) = place.ask(query)? else { return Err(other_question()) };
        if command.look.format == Format::Text {
            let between = if printer.printed == 0 { "" } else { "\n" };
            print(&format!("{between}{}: {} kept\n", state.queue, table::jobs(state.jobs)));
        }
        printer.first_of_queue = true;
        for job in page.jobs {
            if chosen.passes(&job.queue, job.index, job.job.get()) && !printer.print(&job, page.head) {
                return Ok(Exit::Done);
            }
        }
    }
    printer.finish(true);
    chosen.warn_of_failures();
    Ok(Exit::Done)
}

/// Queries page after page. `print` returns the number of jobs printed so far; `None`: the reader of the
/// output is gone.
fn walk(
    (command, queue): (&QueueShow, &str),
    place: &CommandTarget,
    limit: u64,
    print: &mut dyn FnMut(Page) -> Option<u64>,
) -> Exit {
    let to = command.to;
    let mut from = match command.from {
        None if command.follow => match last_jobs(place, queue) {
            Ok(from) => from,
            Err(exit) => return exit,
        },
        from => from,
    };
    let mut printed = 0;
    loop {
        // With a filter the number of jobs to read is unknown.
        let wanted = if command.filter.is_some() { u64::MAX } else { limit - printed };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).min(JOBS_MAX);
        let query = Query::Jobs { queue: queue.to_owned(), from, to, limit: wanted };
        let (page, answered_by) = match place.ask_runner_or_store(query) {
            Ok((Answer::Jobs(page), answered_by)) => (page, answered_by),
            Ok((Answer::Missing(what), _)) => return exit::fail(what),
            Ok(_) => return other_question(),
            Err(exit) => return exit,
        };
        if let (Some(from), Some(first)) = (from, page.jobs.first().filter(|_| command.follow))
            && from < first.index
        {
            exit::warn(format_args!("jobs {from} to {} are no longer kept", first.index - 1));
        }
        let (next, more) = (page.next, page.more);
        from = Some(next);
        match print(page) {
            Some(count) => printed = count,
            None => return Exit::Done,
        }
        if printed >= limit || to.is_some_and(|to| next > to) {
            return Exit::Done;
        }
        if more {
            continue;
        }
        if !command.follow {
            return Exit::Done;
        }
        if answered_by == AnsweredBy::Store {
            exit::note("end of the queue: no runner is running");
            return Exit::Done;
        }
        thread::sleep(PAUSE);
    }
}

/// The index at which the last few jobs begin.
fn last_jobs(place: &CommandTarget, queue: &str) -> Result<Option<u64>, Exit> {
    let Answer::Queues(queues) = place.ask(Query::Queues)? else { return Err(other_question()) };
    let state = queues.into_iter().find(|state| state.queue == *queue);
    Ok(state.map(|state| state.first.max((state.head + 1).saturating_sub(LIMIT_DEFAULT))))
}

/// Prints jobs one by one, as they arrive.
struct Printer {
    format: Format,
    /// JSON, one job per line instead of one list.
    lines: bool,
    width: Option<usize>,
    printed: u64,
    /// The next job is the first one of its queue: a header precedes it.
    first_of_queue: bool,
}

impl Printer {
    fn new(command: &QueueShow) -> Self {
        Self {
            format: command.look.format,
            lines: command.follow,
            width: width(),
            printed: 0,
            first_of_queue: true,
        }
    }

    /// Returns whether the output is still read.
    fn print(&mut self, job: &QueueJob, head: u64) -> bool {
        let (first, heads) = (self.printed == 0, std::mem::take(&mut self.first_of_queue));
        self.printed += 1;
        match self.format {
            Format::Json if self.lines => {
                print(&(plain_json(&serde_json::to_string(job).unwrap_or_default()) + "\n"))
            }
            Format::Json => {
                let pretty = plain_json(&serde_json::to_string_pretty(job).unwrap_or_default());
                let before = if first { "[\n  " } else { ",\n  " };
                print(&format!("{before}{}", pretty.replace('\n', "\n  ")))
            }
            Format::Text => print(&self.line(job, head, heads)),
        }
    }

    fn line(&self, job: &QueueJob, head: u64, first: bool) -> String {
        let digits = head.to_string().len().max("index".len());
        let time = job.time.as_deref().unwrap_or_default();
        let mut line = format!("{:>digits$}  {time:<TIME_WIDTH$}  ", job.index);
        let text = plain(job.job.get());
        match self.width {
            Some(width) => line.push_str(&cut(&text, width.saturating_sub(line.len()).max(ROOM_MIN))),
            None => line.push_str(&text),
        }
        line.push('\n');
        if first {
            line.insert_str(0, &format!("{:>digits$}  {:<TIME_WIDTH$}  job\n", "index", "time"));
        }
        line
    }

    fn finish(&self, done: bool) {
        match (self.format, self.printed) {
            (Format::Json, _) if self.lines => {}
            (Format::Json, 0) if done => _ = print("[]\n"),
            (Format::Json, 0) => {}
            (Format::Json, _) => _ = print("\n]\n"),
            (Format::Text, 0) if done => _ = print("no jobs there\n"),
            (Format::Text, _) => {}
        }
    }
}
