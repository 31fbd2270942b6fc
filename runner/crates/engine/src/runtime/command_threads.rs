//! Command threads: run the commands of `exec` sources, one thread each, and hand their lines to the committer.
//!
//! A thread waits until its lines are durable before it reads on, so the pipe holds back a command that is faster
//! than the store. It also stops reading while `max_waiting` jobs wait for the slowest step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender};

use super::message::Message;
use crate::commit::inbox::Inbox;
use crate::commit::printed::PrintedCommit;
use crate::commit::request::CommitRequest;
use crate::coordinator::command_sources::{EndedCommand, StartCommand};
use tidegate_components::command_source::{
    CommandEnd, CommandFailure, CommandRead, CommandRun, CommandStart, CommandWaker, PrintedLines,
};
use tidegate_components::exec::RunningCommands;
use tidegate_config::{BadLines, QueueRef};
use tidegate_model::log_target;
use tidegate_store::{ReadError, Store};

/// Time between two checks of the number of waiting jobs, while they hold a command back.
const LOOKS: Duration = Duration::from_millis(100);

/// Resources that all command threads share.
#[derive(Clone, Debug)]
pub(crate) struct CommandContext {
    pub(crate) store: Store,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) orders: Sender<CommitRequest>,
    pub(crate) messages: Sender<Message>,
    pub(crate) running_commands: Arc<RunningCommands>,
    /// Time that a command has to end after it was asked to.
    pub(crate) grace: Duration,
    /// Whether the executable of this process can host commands.
    pub(crate) hosted: bool,
}

/// The commands that run.
#[derive(Debug)]
pub(crate) struct CommandThreads {
    context: CommandContext,
    threads: BTreeMap<QueueRef, CommandThread>,
    /// Threads of commands that were followed by others.
    former: Vec<CommandThread>,
}

#[derive(Debug)]
struct CommandThread {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

/// Requests to a thread.
#[derive(Debug)]
struct Signal {
    waker: Arc<CommandWaker>,
    ends: AtomicBool,
    /// Whether the command is killed at once.
    kills: AtomicBool,
}

impl Signal {
    fn end(&self, kills: bool) {
        self.kills.fetch_or(kills, Ordering::AcqRel);
        self.ends.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl CommandThreads {
    pub(crate) fn new(context: CommandContext) -> Self {
        Self { context, threads: BTreeMap::new(), former: Vec::new() }
    }

    pub(crate) fn start(&mut self, start: StartCommand) -> std::io::Result<()> {
        self.former.retain(|former| !former.thread.is_finished());
        let waker = Arc::new(CommandWaker::new()?);
        let (ends, kills) = (AtomicBool::new(false), AtomicBool::new(false));
        let signal = Arc::new(Signal { waker, ends, kills });
        let (queue, context, thread_signal) = (start.queue, self.context.clone(), Arc::clone(&signal));
        let name = format!("exec-{}", start.address.name);
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || CommandTask::run(start, &context, &thread_signal))?;
        self.former.extend(self.threads.insert(queue, CommandThread { signal, thread }));
        Ok(())
    }

    /// Asks the command of this queue to end.
    pub(crate) fn stop(&self, queue: QueueRef) {
        if let Some(command) = self.threads.get(&queue) {
            command.signal.end(false);
        }
    }

    /// Ends all commands and waits for their threads. `kills`: at once, and their last lines are lost.
    pub(crate) fn end(self, kills: bool) {
        let threads: Vec<CommandThread> = self.threads.into_values().chain(self.former).collect();
        for command in &threads {
            command.signal.end(kills);
        }
        for command in threads {
            // Each thread ends in time by itself.
            let _ = command.thread.join();
        }
    }
}

/// One process of a command.
struct CommandTask<'a> {
    start: StartCommand,
    context: &'a CommandContext,
    signal: &'a Signal,
    /// Whether a line or a cursor is durable.
    printed: bool,
    /// Number of dropped lines.
    dropped: u64,
    /// Time at which a command that was asked to end is killed.
    kill_at: Option<Instant>,
}

impl<'a> CommandTask<'a> {
    fn run(start: StartCommand, context: &'a CommandContext, signal: &'a Signal) {
        let mut task = Self { start, context, signal, printed: false, dropped: 0, kill_at: None };
        let end = task.attempt();
        if task.dropped > 1 {
            let (source, lines) = (&task.start.address, task.dropped);
            tracing::warn!(target: log_target::SOURCE, %source, "{lines} lines of the command were no jobs, and are dropped");
        }
        let Self { start: StartCommand { queue, epoch, .. }, printed, .. } = task;
        // A run that is over receives no messages.
        let _ = context.messages.send(Message::CommandEnded(EndedCommand { queue, epoch, printed, end }));
    }

    fn attempt(&mut self) -> Result<(), CommandFailure> {
        let failed = |why: String| CommandFailure { why, is_final: false };
        let cursor = self.cursor().map_err(|error| failed(format!("its cursor cannot be read: {error}")))?;
        let start = CommandStart {
            address: &self.start.address,
            source: &self.start.source,
            cursor: cursor.as_deref(),
            running_commands: &self.context.running_commands,
            hosted: self.context.hosted,
        };
        let mut run = CommandRun::start(&start, &self.signal.waker).map_err(failed)?;
        loop {
            self.heed(&mut run);
            let holds = self.kill_at.is_none() && self.is_held();
            let until = self.kill_at.map(|kill_at| kill_at.saturating_duration_since(Instant::now()));
            if until.is_some_and(|until| until.is_zero()) {
                run.kill();
                return Ok(());
            }
            match run.read(!holds, if holds { Some(LOOKS) } else { until }) {
                CommandRead::Woken => {}
                CommandRead::Lines(lines) => {
                    if !self.commit(lines) {
                        run.kill();
                        return Ok(());
                    }
                }
                CommandRead::Ended(CommandEnd::Done(lines)) => {
                    self.commit(lines);
                    return Ok(());
                }
                CommandRead::Ended(CommandEnd::Failed(lines, failure)) => {
                    self.commit(lines);
                    return Err(failure);
                }
            }
        }
    }

    /// The last durable cursor. The source may have another name by now.
    fn cursor(&self) -> Result<Option<String>, ReadError> {
        let StartCommand { address, generation, .. } = &self.start;
        loop {
            let read = || {
                let history = self.context.store.name_history()?;
                self.context.store.cursor(&history.since(*generation).endpoint(address))
            };
            match read() {
                // The committer reopens the store as soon as there is room, or ends the run.
                Err(ReadError::Interrupted) if !self.signal.ends.load(Ordering::Acquire) => {
                    thread::sleep(LOOKS);
                }
                read => return read,
            }
        }
    }

    /// Passes on the request for the end.
    fn heed(&mut self, run: &mut CommandRun) {
        if !self.signal.ends.load(Ordering::Acquire) {
            return;
        }
        if self.kill_at.is_none() {
            run.terminate();
            self.kill_at = Some(Instant::now() + self.context.grace);
        }
        if self.signal.kills.load(Ordering::Acquire) {
            self.kill_at = Some(Instant::now());
        }
    }

    /// Whether too many jobs wait.
    fn is_held(&self) -> bool {
        let waiting = || self.context.inbox.waiting(self.start.queue);
        self.start.source.max_waiting.is_some_and(|most| waiting() >= most)
    }

    /// Makes lines durable. Returns whether they are: a run that is over, or that has no such source any more, takes
    /// none.
    fn commit(&mut self, lines: PrintedLines) -> bool {
        if lines.is_empty() {
            return true;
        }
        let StartCommand { queue, epoch, address, source, .. } = &self.start;
        let errors = match &source.bad_lines {
            BadLines::Queue(errors) => Some(errors.clone()),
            BadLines::Drop | BadLines::Stop => {
                if let Some(first) = lines.bad.first().filter(|_| self.dropped == 0) {
                    let (line, why) = (first.line, &first.message);
                    tracing::warn!(target: log_target::SOURCE, source = %address, line, "a line of the command is no job, and is dropped: {why}");
                }
                self.dropped += lines.bad.len() as u64;
                None
            }
        };
        let (durable, answer) = crossbeam_channel::bounded(1);
        let (queue, epoch) = (*queue, *epoch);
        let commit = PrintedCommit { queue, lines, errors, epoch, durable };
        if self.context.orders.send(CommitRequest::Printed(commit)).is_err() {
            return false;
        }
        let mut patience: Option<Instant> = None;
        let is_durable = loop {
            match answer.recv_timeout(LOOKS) {
                Ok(is_durable) => break is_durable,
                Err(RecvTimeoutError::Disconnected) => break false,
                // A commit may wait for room on the disk, until the run ends.
                Err(RecvTimeoutError::Timeout) if !self.signal.ends.load(Ordering::Acquire) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let until = *patience.get_or_insert_with(|| Instant::now() + self.context.grace);
                    if self.signal.kills.load(Ordering::Acquire) || Instant::now() >= until {
                        break false;
                    }
                }
            }
        };
        self.printed |= is_durable;
        is_durable
    }
}
