//! The dispatcher's thread: takes in what the other threads tell, feeds the dispatcher with it, and
//! carries out what it says.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::committer::Committer;
use super::delivery::Delivery;
use super::error::{Chain, EngineError};
use super::ledger::Ledger;
use super::message::Message;
use super::readers::{QueueAsk, QueueThread, SourceThread};
use super::report::{Halt, Options, Report};
use super::sinks::Sinks;
use super::start::{self, Started};
use super::stats::Stats;
use super::tail::Tails;
use super::work::{Ran, Stumble};
use super::workers::{self, Task};
use crate::config::{Configuration, Input, QueueRef};
use crate::decide::{BatchId, Command, Dispatcher, End, Event, Room};
use crate::hands::source::BatchLimit;
use crate::store::{Store, Writer};
use crate::words::{Batch, Clock, Mark, Segment};

/// Bytes that one step may hold between reading and committing, inputs and outputs together.
const STEP_BYTES: usize = 8 << 20;

/// What a run is made of before its threads start.
pub(super) struct Parts {
    pub(super) configuration: Arc<Configuration>,
    pub(super) store: Store,
    pub(super) writer: Writer,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: Options,
    pub(super) stats: Arc<Stats>,
    pub(super) messages: (Sender<Message>, Receiver<Message>),
}

/// A batch between reading and committing.
#[derive(Debug)]
struct Held {
    batch: Arc<Batch>,
    mark: Option<Mark>,
    segments: Vec<Segment>,
    ran: Option<Box<Ran>>,
}

/// The dispatcher's thread and everything that it has to do with.
pub(super) struct Floor {
    configuration: Arc<Configuration>,
    options: Options,
    dispatcher: Dispatcher,
    held: HashMap<BatchId, Held>,
    next_batch: u64,
    /// By step: the first index that it has not read.
    read_up_to: Vec<u64>,
    tails: Arc<Tails>,
    coming: Arc<AtomicUsize>,
    messages: (Sender<Message>, Receiver<Message>),
    tasks: Sender<Task>,
    deliveries: Sender<Delivery>,
    queues: QueueThread,
    /// By step.
    sources: Vec<Option<SourceThread>>,
    /// Closed by a stop: room on a full disk is not waited for any more.
    stop_committer: Option<Sender<()>>,
    committer: JoinHandle<Option<Writer>>,
    workers: Vec<JoinHandle<()>>,
    halts: Vec<Halt>,
    /// When a stop gives up waiting.
    deadline: Option<Instant>,
}

impl Floor {
    /// Opens what the run needs and starts its threads.
    pub(super) fn start(parts: Parts) -> Result<Self, EngineError> {
        let Parts { configuration, store, writer, clock, options, stats, messages } = parts;
        let Started { progress, heads, flows, readers, sinks, marks, segments, halts } =
            start::start(&configuration, &store)?;
        let workers = match options.workers {
            0 => thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        };
        // Two batches a worker, so that none waits for the dispatcher; per step as many again for
        // those that are being committed.
        let room = Room { slots: 2 * workers, batches: 4 * workers + 4, bytes: STEP_BYTES };
        let read_up_to = flows.iter().map(|flow| flow.next).collect();
        let dispatcher = Dispatcher::new(flows, heads.clone(), room, options.until_idle);
        let tails = Arc::new(Tails::new(configuration.queues.len()));
        let coming = Arc::new(AtomicUsize::new(0));
        let (tasks, for_workers) = crossbeam_channel::unbounded();
        let (deliveries, for_committer) = crossbeam_channel::unbounded();
        let (stop_committer, stop) = crossbeam_channel::bounded(0);
        let committer = Committer {
            writer,
            ledger: Ledger { configuration: Arc::clone(&configuration), progress, heads, marks, segments },
            sinks: Sinks::new(Arc::clone(&configuration), sinks),
            broken_steps: BTreeSet::new(),
            tails: Arc::clone(&tails),
            stats,
            clock: Arc::clone(&clock),
            coming: Arc::clone(&coming),
            retry_after: options.retry_after,
            messages: messages.0.clone(),
            stop,
        };
        let committer = start_committer(committer, for_committer, messages.0.clone())?;
        let workers = workers::start(workers, &configuration, &clock, &for_workers, &messages.0)?;
        let queues = QueueThread::start(store, options.batch, messages.0.clone())?;
        let mut sources = Vec::with_capacity(readers.len());
        for (step, reader) in readers.into_iter().enumerate() {
            let start = |reader| SourceThread::start(step, reader, options.batch, messages.0.clone());
            sources.push(reader.map(start).transpose()?);
        }
        Ok(Self {
            configuration,
            options,
            dispatcher,
            held: HashMap::new(),
            next_batch: 0,
            read_up_to,
            tails,
            coming,
            messages,
            tasks,
            deliveries,
            queues,
            sources,
            stop_committer: Some(stop_committer),
            committer,
            workers,
            halts: Vec::new(),
            deadline: None,
        }
        .without(halts))
    }

    /// Takes out the steps that cannot begin.
    fn without(mut self, halts: Vec<(usize, String)>) -> Self {
        for (step, why) in halts {
            if !self.dispatcher.is_halted(step) {
                self.halt(step, why);
                self.dispatcher.exclude(step);
            }
        }
        self
    }

    /// Handles messages until the dispatcher says that it is over. `None`: the time for shutting
    /// down is over.
    pub(super) fn work(&mut self) -> Result<Option<End>, EngineError> {
        let mut commands = Vec::new();
        self.dispatcher.start(&mut commands);
        loop {
            for command in std::mem::take(&mut commands) {
                if let Command::Finish(end) = command {
                    return Ok(Some(end));
                }
                self.carry_out(command);
            }
            let message = match self.deadline {
                None => self.messages.1.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => self.messages.1.recv_deadline(deadline),
            };
            match message {
                Ok(message) => self.take_in(message, &mut commands)?,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Died),
            }
        }
    }

    fn take_in(&mut self, message: Message, commands: &mut Vec<Command>) -> Result<(), EngineError> {
        let event = match message {
            Message::Read { step, batch, mark, segments } => self.hold(step, batch, mark, segments),
            Message::Idle { step } => Event::Idle { step },
            Message::Ended { step } => Event::Ended { step },
            Message::Broken { step, error } => {
                self.halt(step, Chain(&error).to_string());
                Event::Broken { step }
            }
            Message::Ran { step, id, ran } => self.take_ran(step, id, ran),
            Message::Committed { batches, grown } => {
                for (queue, head) in grown {
                    self.dispatcher.handle(Event::Grew { queue, head }, commands);
                }
                for (step, batch) in batches {
                    self.dispatcher.handle(Event::Committed { step, batch }, commands);
                }
                return Ok(());
            }
            Message::Refused { step, error } => {
                self.halt(step, Chain(&*error).to_string());
                Event::Failed { step }
            }
            Message::CommitterFailed(error) => return Err(error),
            Message::Stop => {
                self.stop_committer = None;
                self.deadline.get_or_insert_with(|| Instant::now() + self.options.shutdown_timeout);
                Event::Stop
            }
        };
        self.dispatcher.handle(event, commands);
        Ok(())
    }

    fn hold(&mut self, step: usize, batch: Arc<Batch>, mark: Option<Mark>, segments: Vec<Segment>) -> Event {
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        self.coming.fetch_add(1, Ordering::AcqRel);
        self.read_up_to[step] = batch.end();
        let event = Event::Read {
            step,
            batch: id,
            first: batch.first,
            jobs: batch.len(),
            bytes: batch.payloads.byte_len(),
        };
        self.held.insert(id, Held { batch, mark, segments, ran: None });
        event
    }

    fn take_ran(&mut self, step: usize, id: BatchId, ran: Box<Ran>) -> Event {
        if let Some(stumble) = &ran.halt {
            self.halt(step, describe(stumble));
        }
        let event = Event::Ran {
            step,
            batch: id,
            taken: ran.taken,
            halts: ran.halt.is_some(),
            bytes: ran.byte_len(),
        };
        if let Some(held) = self.held.get_mut(&id) {
            held.ran = Some(ran);
        }
        event
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Read { step, from } => self.read(step, from),
            Command::Run { step, batch } => {
                if let Some(held) = self.held.get(&batch) {
                    // Workers live until `tasks` is closed.
                    let _ = self.tasks.send(Task { step, id: batch, batch: Arc::clone(&held.batch) });
                }
            }
            Command::Commit { step, batch, first, taken } => {
                let Some(Held { batch: jobs, mark, segments, ran: Some(ran) }) = self.held.remove(&batch)
                else {
                    return;
                };
                let Ran { outputs, errors, counters, .. } = *ran;
                let bytes = jobs.payloads.byte_len();
                let delivery = Delivery {
                    step,
                    id: batch,
                    first,
                    taken,
                    outputs,
                    errors,
                    counters,
                    bytes,
                    mark,
                    segments,
                };
                // Before it is sent: the committer waits for more as long as more is coming.
                self.coming.fetch_sub(1, Ordering::AcqRel);
                // A committer that has failed has said so, and the run is about to end.
                let _ = self.deliveries.send(delivery);
            }
            Command::Drop { batch } => {
                if self.held.remove(&batch).is_some() {
                    self.coming.fetch_sub(1, Ordering::AcqRel);
                }
            }
            // Ends the loop where it comes up.
            Command::Finish(_) => {}
        }
    }

    fn read(&mut self, step: usize, from: u64) {
        let queue = match self.configuration.steps[step].inputs[0].input {
            Input::Source(_) => {
                if let Some(source) = &self.sources[step] {
                    source.ask();
                }
                return;
            }
            Input::Queue(queue) => queue,
        };
        let BatchLimit { jobs, bytes } = self.options.batch;
        match self.tails.read(queue.0, from, jobs, bytes) {
            Some(batch) => {
                let end = batch.end();
                let message = Message::Read { step, batch, mark: None, segments: Vec::new() };
                // The receiver is here.
                let _ = self.messages.0.send(message);
                self.forget(queue, step, end);
            }
            None => {
                let queue = self.configuration.queues[queue.0].address.clone();
                self.queues.ask(QueueAsk { step, queue, from });
            }
        }
    }

    /// Lets go of the part of a tail that no reader will ask for again.
    fn forget(&self, queue: QueueRef, step: usize, end: u64) {
        let others = self.configuration.readers(Input::Queue(queue)).filter(|&(other, _)| other != step);
        let next = others.map(|(other, _)| self.read_up_to[other]).fold(end, u64::min);
        self.tails.forget(queue.0, next);
    }

    fn halt(&mut self, step: usize, why: String) {
        let step = self.configuration.steps[step].address.clone();
        tracing::error!(step = %step, "the step stops: {why}");
        self.halts.push(Halt { step, why });
    }

    /// Ends the threads, and then the store.
    pub(super) fn close(self, outcome: Result<Option<End>, EngineError>) -> Result<Report, EngineError> {
        let Self {
            tasks,
            deliveries,
            queues,
            sources,
            stop_committer,
            committer,
            workers,
            halts,
            messages,
            ..
        } = self;
        drop((tasks, stop_committer, deliveries));
        for source in sources.into_iter().flatten() {
            source.end();
        }
        queues.end();
        let writer = committer.join().map_err(|_| EngineError::Died);
        let end = outcome?;
        // Where the time for shutting down is over, a worker may still be busy; it ends with the process.
        if end.is_some() {
            for worker in workers {
                let _ = worker.join();
            }
        }
        if writer?.is_none() {
            let reason = messages.1.try_iter().find_map(|message| match message {
                Message::CommitterFailed(error) => Some(error),
                _ => None,
            });
            return Err(reason.unwrap_or(EngineError::Died));
        }
        Ok(Report { end: end.unwrap_or(End::Stopped), halts, abandoned: end.is_none() })
    }
}

fn start_committer(
    committer: Committer,
    deliveries: Receiver<Delivery>,
    messages: Sender<Message>,
) -> std::io::Result<JoinHandle<Option<Writer>>> {
    thread::Builder::new().name("committer".into()).spawn(move || match committer.run(&deliveries) {
        Ok(writer) => Some(writer),
        Err(error) => {
            // A run that is over finds it when it closes.
            let _ = messages.send(Message::CommitterFailed(error));
            None
        }
    })
}

/// Why a job halts its step, in one sentence fragment with everything that helps to find it.
fn describe(stumble: &Stumble) -> String {
    let Stumble { index, failure, file } = stumble;
    let place = |(path, line): &(Arc<Path>, u64)| format!(" ({}:{line})", path.display());
    let file = file.as_ref().map_or_else(String::new, place);
    format!(
        "job {index}{file}: {failure}; the step has no error queue to put it on, so progress stays before it \
         (name one with `errors = \"…\"`, or mend the job or the script, and run again)"
    )
}
