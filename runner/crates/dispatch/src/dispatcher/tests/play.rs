//! Dispatcher player: feeds events to a dispatcher and prints the commands as words.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

pub(crate) const BOUNDS: Bounds = Bounds { slots: 2, beside: 2, batches: 4, jobs: 1000, bytes: 1000 };

impl Dispatcher {
    /// A dispatcher with these steps, in order, and queues.
    pub(crate) fn of(flows: &[StepPlan], heads: &[u64], room: Bounds, until_idle: bool) -> Self {
        let mut dispatcher = Self::new(room, until_idle);
        for (queue, &head) in heads.iter().enumerate() {
            dispatcher.set_head(queue, head);
        }
        for (step, flow) in flows.iter().enumerate() {
            dispatcher.install(step, flow.clone());
        }
        dispatcher
    }
}

/// Dispatcher under test, with its commands as words: `read 0@1`, `run 0#0`, `commit 0@1+3`, `drop #2`. A
/// batch with several parts is printed with them: `#1 = a1+2 b1+2`.
pub(crate) struct Play {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) now: Timestamp,
    pub(crate) commands: Vec<Command>,
    /// Index of the first job of each read.
    reads: Vec<u64>,
    /// Parts of each batch, in order: input, index of the first job, and number of jobs.
    pub(crate) batches: BTreeMap<BatchId, Vec<(PortInput, u64, usize)>>,
}

impl Play {
    pub(crate) fn new(flows: &[StepPlan], heads: &[u64]) -> Self {
        Self::with(flows, heads, BOUNDS, false)
    }

    pub(crate) fn with(flows: &[StepPlan], heads: &[u64], room: Bounds, until_idle: bool) -> Self {
        let dispatcher = Dispatcher::of(flows, heads, room, until_idle);
        let now = Timestamp(0);
        Self { dispatcher, now, commands: Vec::new(), reads: Vec::new(), batches: BTreeMap::new() }
    }

    pub(crate) fn start(&mut self) -> String {
        self.dispatcher.start(self.now, &mut self.commands);
        self.words()
    }

    pub(crate) fn on(&mut self, event: Event) -> String {
        self.dispatcher.handle(event, self.now, &mut self.commands);
        self.words()
    }

    pub(crate) fn install(&mut self, step: usize, flow: StepPlan) -> String {
        self.dispatcher.install(step, flow);
        self.on(Event::Tick)
    }

    pub(crate) fn read(&mut self, step: usize, first: u64, jobs: usize) -> String {
        self.read_from(step, 0, first, jobs)
    }

    pub(crate) fn read_from(&mut self, step: usize, input: usize, first: u64, jobs: usize) -> String {
        self.read_port(step, PortInput::Input(input), first, jobs)
    }

    pub(crate) fn read_port(&mut self, step: usize, input: PortInput, first: u64, jobs: usize) -> String {
        let read = ReadId(self.reads.len() as u64);
        self.reads.push(first);
        self.on(Event::Read { port: InputPort { step, input }, read, first, jobs, bytes: 10 })
    }

    pub(crate) fn ran(&mut self, step: usize, batch: u64, taken: usize) -> String {
        self.on(Event::Ran { step, batch: BatchId(batch), ran: BatchEnd::whole(taken) })
    }

    pub(crate) fn halts(&mut self, step: usize, batch: u64, taken: usize) -> String {
        self.on(Event::Ran {
            step,
            batch: BatchId(batch),
            ran: BatchEnd { ending: BatchCut::Halts, ..BatchEnd::whole(taken) },
        })
    }

    pub(crate) fn committed(&mut self, step: usize, batch: u64) -> String {
        self.on(Event::Committed { step, batch: BatchId(batch) })
    }

    pub(crate) fn begun(&mut self, step: usize, batch: u64) -> String {
        self.on(Event::Begun { step, batch: BatchId(batch) })
    }

    pub(crate) fn words(&mut self) -> String {
        let commands: Vec<Command> = self.commands.drain(..).collect();
        for command in &commands {
            if let &Command::AddToBatch { batch, port, read, skip, jobs } = command {
                let first = self.reads[usize::try_from(read.0).unwrap()] + skip as u64;
                self.batches.entry(batch).or_default().push((port.input, first, jobs));
            }
        }
        let mut shown = BTreeSet::new();
        let words = commands.into_iter().filter_map(|command| {
            Some(match command {
                Command::Read { port: InputPort { step, input }, from } => match input {
                    PortInput::Input(0) => format!("read {step}@{from}"),
                    PortInput::Input(input) => format!("read {step}.{input}@{from}"),
                    PortInput::Redelivery | PortInput::Turn => format!("read {step}.{}@{from}", name(input)),
                },
                Command::AddToBatch { batch, .. } => {
                    let parts = &self.batches[&batch];
                    if parts.len() == 1 && parts[0].0 == PortInput::Input(0) || !shown.insert(batch) {
                        return None;
                    }
                    let part = |&(input, first, jobs): &(PortInput, u64, usize)| {
                        format!("{}{first}+{jobs}", name(input))
                    };
                    format!("#{} = {}", batch.0, parts.iter().map(part).collect::<Vec<_>>().join(" "))
                }
                Command::ReleaseRead { .. } | Command::PositionAdvanced { .. } => return None,
                Command::Begin { step, batch, .. } => format!("begin {step}#{}", batch.0),
                Command::Run { step, batch, aside, .. } => {
                    format!("run {step}#{}{}", batch.0, if aside { " aside" } else { "" })
                }
                Command::Commit { step, batch, taken } => {
                    format!("commit {step}@{}+{taken}", self.batches[&batch][0].1)
                }
                Command::Split { batch, jobs, rest, .. } => {
                    let parts = self.batches.get_mut(&batch).unwrap();
                    let tails: Vec<_> = parts
                        .iter()
                        .map(|&(input, first, all)| (input, first + jobs as u64, all - jobs))
                        .collect();
                    for part in parts.iter_mut() {
                        part.2 = jobs;
                    }
                    self.batches.insert(rest, tails);
                    format!("split #{}+{jobs} #{}", batch.0, rest.0)
                }
                Command::Return { step, turn } => format!("return {step}@{}", turn.index),
                Command::GiveBack { step, batches } => {
                    let ids: Vec<String> = batches.iter().map(|batch| format!("#{}", batch.0)).collect();
                    format!("give back {step} {}", ids.join(" "))
                }
                Command::Drop { batch, .. } => format!("drop #{}", batch.0),
                Command::Drained { step } => format!("drained {step}"),
                Command::FetchJobs { step, batch, jobs } => {
                    let keys: Vec<String> = jobs.iter().map(|key| key.0.to_string()).collect();
                    format!("pick {step}#{} {}", batch.0, keys.join("+"))
                }
                Command::Keep { .. } => unreachable!("an ordered step has no such command"),
                Command::Deal { .. } | Command::Unclaim { .. } => unreachable!("no step claims ahead"),
                Command::CheckGate { step } => format!("look {step}"),
                Command::Finish(end) => format!("{end:?}"),
            })
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

pub(crate) fn flow(gather: BatchComposition, feeds: &[InputKind]) -> StepPlan {
    let inputs = feeds.iter().map(|&feed| InputPlan { feed, next: 1, finished: Vec::new() }).collect();
    StepPlan {
        gather,
        inputs,
        due: None,
        picking: None,
        before: DurabilityBarrier::Nothing,
        redo: Vec::new(),
        fills: Vec::new(),
    }
}

pub(crate) fn source() -> StepPlan {
    flow(BatchComposition::Merge, &[InputKind::Source])
}

pub(crate) fn queue() -> StepPlan {
    flow(BatchComposition::Merge, &[InputKind::Queue(0)])
}

pub(crate) fn join() -> StepPlan {
    flow(BatchComposition::Zip, &[InputKind::Queue(0), InputKind::Queue(1)])
}

pub(crate) const PORT: InputPort = InputPort { step: 0, input: PortInput::Input(0) };

/// The input as a letter: `a` is the first one.
fn name(input: PortInput) -> char {
    match input {
        PortInput::Input(input) => char::from(b'a' + u8::try_from(input).unwrap()),
        PortInput::Redelivery => 'r',
        PortInput::Turn => 't',
    }
}
