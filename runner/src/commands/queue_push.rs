//! `tidegate queue push`: appends jobs from standard input to a queue.
//!
//! Jobs are pushed in pieces, so that memory is bounded and slow input does not wait. Each piece is committed
//! as a whole or not at all.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::cli::{Format, QueuePush};
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::{grouped, jobs};
use tidegate_components::script::json;
use tidegate_engine::{Request, RequestOutcome, no_push};
use tidegate_model::suggest::nearest_address;
use tidegate_model::{Address, Timestamp, rfc3339};

/// A piece is pushed at this number of lines …
const LINES_MAX: usize = 1000;
/// … or of bytes …
const BYTES_MAX: usize = 1 << 20;
/// … or after this time without input.
const SILENCE: Duration = Duration::from_millis(200);
/// The longest line, in bytes. The local socket must accept it.
const LINE_MAX: u64 = 16 << 20;

pub(crate) fn push(command: &QueuePush) -> Exit {
    let place = match CommandTarget::of(&command.look.config, command.look.data.clone()) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let queue = match find(&place, &command.queue) {
        Ok(queue) => queue,
        Err(why) => return exit::fail(why),
    };
    if io::stdin().is_terminal() {
        exit::note("enter one JSON job per line; end with Ctrl-D");
    }
    let (sender, lines) = mpsc::sync_channel(16);
    if let Err(error) = thread::Builder::new().name("stdin".into()).spawn(move || read_lines(&sender)) {
        return exit::fail(format_args!("cannot start a thread: {error}"));
    }
    let due = command.due.or(command.delay);
    let mut pushing =
        Pushing { place, queue, due, pushed: 0, line: 0, committed_line: 0, piece: Vec::new(), bytes: 0 };
    let (exit, answered_by) = match pushing.push_all(&lines) {
        Ok(answered_by) => (Exit::Done, answered_by),
        Err(exit) => (exit, None),
    };
    print(command, &pushing, exit, answered_by)
}

fn print(command: &QueuePush, pushing: &Pushing, exit: Exit, answered_by: Option<AnsweredBy>) -> Exit {
    if command.look.format == Format::Json {
        #[derive(Serialize)]
        struct Pushed {
            pushed: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            due: Option<String>,
        }
        return print_json(&Pushed { pushed: pushing.pushed, due: pushing.due.map(rfc3339) }, exit);
    }
    if exit == Exit::Done {
        let later = if answered_by == Some(AnsweredBy::Store) {
            "; no runner is running, so they wait there"
        } else {
            ""
        };
        let due = pushing.due.map_or_else(String::new, |due| format!(", due at {}", rfc3339(due)));
        print_text(&format!("{} pushed to {}{due}{later}", jobs(pushing.pushed), pushing.queue));
    }
    exit
}

fn find(place: &CommandTarget, name: &str) -> Result<Address, String> {
    let queues = &place.configuration.queues;
    if let Some(queue) = queues.iter().find(|queue| queue.address.to_string() == name) {
        return no_push(queue).map_or_else(|| Ok(queue.address.clone()), Err);
    }
    if place.configuration.sinks.iter().any(|sink| sink.address.to_string() == name) {
        return Err(format!("`{name}` is a sink, which receives jobs from steps: push to a queue"));
    }
    if place.configuration.sources.iter().any(|source| source.address.to_string() == name) {
        return Err(format!("`{name}` is a source, which reads its own jobs: push to a queue"));
    }
    let names: Vec<String> = queues.iter().map(|queue| queue.address.to_string()).collect();
    Err(match nearest_address(name, names.iter().map(String::as_str)) {
        Some(near) => format!("the configuration has no queue `{name}`; did you mean `{near}`?"),
        None => format!("the configuration has no queue `{name}`"),
    })
}

/// Reads lines until the input ends or the receiver is gone.
fn read_lines(lines: &SyncSender<io::Result<Vec<u8>>>) {
    let mut input = io::BufReader::with_capacity(1 << 16, io::stdin());
    loop {
        let mut line = Vec::new();
        // One byte more shows that a line is too long.
        let read = input.by_ref().take(LINE_MAX + 1).read_until(b'\n', &mut line);
        let last = !matches!(read, Ok(bytes) if bytes > 0);
        let line = read.map(|_| line);
        if matches!(&line, Ok(line) if line.is_empty()) || lines.send(line).is_err() || last {
            return;
        }
    }
}

/// The state of a push.
struct Pushing {
    place: CommandTarget,
    queue: Address,
    /// The time at which the jobs are appended, unless it is now.
    due: Option<Timestamp>,
    /// Number of committed jobs.
    pushed: u64,
    /// The number of the last line that was read.
    line: u64,
    /// The number of the last line up to which all jobs are committed.
    committed_line: u64,
    /// The jobs of the next piece.
    piece: Vec<String>,
    bytes: usize,
}

impl Pushing {
    fn push_all(&mut self, lines: &Receiver<io::Result<Vec<u8>>>) -> Result<Option<AnsweredBy>, Exit> {
        let mut answered_by = None;
        loop {
            let line = if self.piece.is_empty() {
                lines.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                lines.recv_timeout(SILENCE)
            };
            match line {
                Ok(line) => {
                    self.take(line)?;
                    if self.piece.len() < LINES_MAX && self.bytes < BYTES_MAX {
                        continue;
                    }
                    answered_by = Some(self.push_piece()?);
                }
                Err(RecvTimeoutError::Timeout) => answered_by = Some(self.push_piece()?),
                Err(RecvTimeoutError::Disconnected) if self.piece.is_empty() => return Ok(answered_by),
                Err(RecvTimeoutError::Disconnected) => return self.push_piece().map(Some),
            }
        }
    }

    fn take(&mut self, line: io::Result<Vec<u8>>) -> Result<(), Exit> {
        let line = line.map_err(|error| self.refuse(&format!("standard input cannot be read: {error}")))?;
        self.line += 1;
        let number = self.line;
        if line.len() as u64 > LINE_MAX {
            return Err(self.refuse(&format!("line {number} exceeds {} MiB", LINE_MAX >> 20)));
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        json::check(line).map_err(|error| self.refuse(&format!("line {number} is not JSON: {error}")))?;
        let line = String::from_utf8(line.to_vec())
            .map_err(|_| self.refuse(&format!("line {number} is not JSON: it is not UTF-8")))?;
        self.bytes += line.len();
        self.piece.push(line);
        Ok(())
    }

    fn push_piece(&mut self) -> Result<AnsweredBy, Exit> {
        let jobs = std::mem::take(&mut self.piece);
        self.bytes = 0;
        let outcome = self.place.change(Request::Push { queue: self.queue.clone(), jobs, due: self.due });
        match outcome {
            Ok((Ok(RequestOutcome::Pushed { jobs }), answered_by)) => {
                self.pushed += jobs;
                self.committed_line = self.line;
                Ok(answered_by)
            }
            Ok((Ok(_), _)) => Err(other_question()),
            Ok((Err(why), _)) => Err(self.refuse(&why)),
            Err(exit) => {
                // The error is already reported, and whether these jobs may be there; the outcome of earlier lines is not.
                if self.committed_line > 0 {
                    exit::warn(self.so_far());
                }
                Err(exit)
            }
        }
    }

    fn refuse(&self, why: &str) -> Exit {
        exit::fail(format_args!("{why}; {}", self.so_far()))
    }

    fn so_far(&self) -> String {
        match self.committed_line {
            0 => "nothing was pushed".to_owned(),
            line => {
                let (jobs, line) = (jobs(self.pushed), grouped(line));
                format!("the queue has the jobs pushed before: {jobs}, up to line {line}")
            }
        }
    }
}
