//! Queued step player: feeds events to a dispatcher with one queued step, and prints the commands as words.

use super::*;

/// Dispatcher under test, with its commands as words: `pick #0 1+2`, `begin #0`, `run #0`, `commit #0+2`.
pub(crate) struct Play {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) now: Timestamp,
    uses_pool: bool,
}

pub(crate) fn picking() -> QueuePlan {
    let rules = QueuePolicy {
        strategy: StartOrder::Fifo,
        max_processing: std::num::NonZeroU32::new(2),
        max_pending: None,
        max_per_lane: None,
        rate: None,
        lane_rate: None,
        has_lanes: false,
    };
    QueuePlan {
        rules,
        in_order: false,
        in_a_row: false,
        ordered: false,
        search_ahead: 0,
        batch: 1,
        ahead: 0,
        lot: 1,
        uses_pool: true,
        gate: None,
        progress: Progress::default(),
    }
}

impl Play {
    pub(crate) fn new(before: DurabilityBarrier, picking: QueuePlan) -> Self {
        Self::of(InputKind::Queue(0), before, picking)
    }

    pub(crate) fn of(feed: InputKind, before: DurabilityBarrier, picking: QueuePlan) -> Self {
        Self::with_head(9, feed, before, picking)
    }

    /// Creates a player with an empty queue at the start, so that the first round has whichever jobs come
    /// later.
    pub(crate) fn started(before: DurabilityBarrier, picking: QueuePlan) -> Self {
        let mut play = Self::with_head(0, InputKind::Queue(0), before, picking);
        play.dispatcher.expect(true);
        assert_eq!(play.start(), "");
        play.dispatcher.expect(false);
        assert_eq!(play.on(Event::Grew { queue: 0, head: 9 }), "read 1");
        play
    }

    /// Creates a player with `head` jobs in the queue at the start.
    pub(crate) fn with_head(
        head: u64,
        feed: InputKind,
        before: DurabilityBarrier,
        picking: QueuePlan,
    ) -> Self {
        let (next, uses_pool) = (picking.progress.position() + 1, picking.uses_pool);
        let flow = StepPlan {
            gather: BatchComposition::Merge,
            inputs: vec![InputPlan { feed, next, finished: Vec::new() }],
            due: None,
            before,
            picking: Some(picking),
            redo: Vec::new(),
            fills: Vec::new(),
        };
        let bounds = Bounds { slots: 2, beside: 2, batches: 4, jobs: 1000, bytes: 100 };
        Self { dispatcher: Dispatcher::of(&[flow], &[head], bounds, false), now: Timestamp(0), uses_pool }
    }

    pub(crate) fn on(&mut self, event: Event) -> String {
        let mut commands = Vec::new();
        self.dispatcher.handle(event, self.now, &mut commands);
        words_of(self.uses_pool, commands)
    }

    pub(crate) fn start(&mut self) -> String {
        let mut commands = Vec::new();
        self.dispatcher.start(self.now, &mut commands);
        words(commands)
    }

    /// Reports that `jobs` jobs from `first` on were read.
    pub(crate) fn read(&mut self, first: u64, jobs: u64) -> String {
        for index in first..first + jobs {
            let attributes = JobAttributes::new(JobKey::fresh(index), i64::try_from(index).unwrap());
            self.dispatcher.saw(0, &attributes, WaitingState::Waiting);
        }
        let (port, read) = (InputPort::of_input(0, 0), ReadId(first));
        self.on(Event::Read { port, read, first, jobs: usize::try_from(jobs).unwrap(), bytes: 60 })
    }

    pub(crate) fn picked(&mut self, batch: u64) -> String {
        self.on(Event::Picked { step: 0, batch: BatchId(batch), bytes: 5 })
    }

    pub(crate) fn ran(&mut self, batch: u64, ends: &[JobOutcome]) -> String {
        let batch = BatchId(batch);
        let ran = BatchEnd { bytes: 5, ..BatchEnd::picked(ends) };
        self.on(Event::Ran { step: 0, batch, ran })
    }

    /// Completes pending jobs.
    pub(crate) fn settle(&mut self, jobs: &[u64]) -> String {
        let mut commands = Vec::new();
        let job = |&index: &u64| SettledJob { key: JobKey::fresh(index), resubmits: false };
        let jobs: Vec<SettledJob> = jobs.iter().map(job).collect();
        self.dispatcher.settle(0, &jobs, self.now, &mut commands);
        words(commands)
    }

    pub(crate) fn halts(&mut self, batch: u64) -> String {
        let batch = BatchId(batch);
        let ran = BatchEnd { ending: BatchCut::Halts, bytes: 0, ..BatchEnd::whole(0) };
        self.on(Event::Ran { step: 0, batch, ran })
    }

    pub(crate) fn committed(&mut self, batch: u64) -> String {
        self.on(Event::Committed { step: 0, batch: BatchId(batch) })
    }

    /// Runs and commits a batch of one job that finishes.
    pub(crate) fn done(&mut self, batch: u64) -> String {
        let ran = self.ran(batch, &[JobOutcome::Finished]);
        assert_eq!(ran, format!("commit #{batch}+1"));
        self.committed(batch)
    }
}

/// Commands of a step that runs all its batches in a pool of threads.
pub(crate) fn words(commands: Vec<Command>) -> String {
    words_of(true, commands)
}

fn words_of(uses_pool: bool, commands: Vec<Command>) -> String {
    let words = commands.into_iter().map(|command| match command {
        Command::Read { from, .. } => format!("read {from}"),
        Command::FetchJobs { batch, jobs, .. } => {
            let keys: Vec<String> = jobs.iter().map(|key| key.0.to_string()).collect();
            format!("pick #{} {}", batch.0, keys.join("+"))
        }
        Command::ReleaseRead { read, .. } => format!("forget {}", read.0),
        Command::Begin { batch, .. } => format!("begin #{}", batch.0),
        Command::Run { batch, aside, .. } => {
            let aside = if aside && !uses_pool { " aside" } else { "" };
            format!("run #{}{aside}", batch.0)
        }
        Command::Commit { batch, taken, .. } => format!("commit #{}+{taken}", batch.0),
        Command::Drop { batch, .. } => format!("drop #{}", batch.0),
        Command::PositionAdvanced { position, .. } => format!("passed {position}"),
        Command::Deal { batch, first, lot: 1, .. } => format!("deal #{} from #{}", batch.0, first.0),
        Command::Deal { batch, first, lot, .. } => format!("deal #{} from #{} by {lot}", batch.0, first.0),
        Command::Unclaim { batch, .. } => format!("unclaim #{}", batch.0),
        Command::CheckGate { .. } => "look".to_owned(),
        Command::Keep { batch, .. } => format!("keep #{}", batch.0),
        Command::Split { batch, jobs, rest, .. } => format!("split #{} {jobs} #{}", batch.0, rest.0),
        Command::Finish(end) => format!("{end:?}"),
        Command::AddToBatch { .. }
        | Command::Drained { .. }
        | Command::GiveBack { .. }
        | Command::Return { .. } => unreachable!("a queued step has no such commands"),
    });
    words.collect::<Vec<_>>().join(", ")
}
