//! Simulated start: opens a run like the engine does, without threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{Crash, Stage};
use crate::commit::inbox::Inbox;
use crate::error::EngineError;
use crate::recovery::open::{OpenRun, RunContext, open};
use crate::recovery::start;
use crate::recovery::start::RecoveredState;
use crate::simulation::world::World;
use crate::step::stats::Stats;
use tidegate_components::sink::{SinkWriter, StdoutWriter};
use tidegate_components::source::BatchLimit;
use tidegate_config::SinkKind;
use tidegate_model::Clock as _;
use tidegate_store::{CrashGuard, open_disk};

impl<'w> Stage<'w> {
    pub(crate) fn open(world: &'w mut World) -> Result<Self, Crash> {
        let opened = Self::try_open(world);
        opened.map_err(|(world, error)| {
            let crash = world.expected(&error);
            world.die();
            crash
        })
    }

    fn try_open(world: &'w mut World) -> Result<Self, (&'w mut World, EngineError)> {
        let configuration = Arc::clone(&world.configuration);
        let (store, writer) = match open_disk(Box::new(world.disk.clone())) {
            Ok(opened) => opened,
            Err(error) => return Err((world, error.into())),
        };
        let never = AtomicBool::new(false);
        let mut started = match start::start(&configuration, &store, world.clock.now(), &never) {
            Ok(started) => started.unwrap(),
            Err(error) => return Err((world, error)),
        };
        assert!(started.halts.is_empty(), "{:?}", started.halts);
        world.print_to(&mut started);
        world.tally.again += started.flows.iter().map(|flow| flow.redo.len() as u64).sum::<u64>();
        let batch = BatchLimit { jobs: 1 + world.dice.below(8), bytes: 1 + world.dice.below(2000) };
        let workers = 1 + world.dice.below(3);
        let (messages, told) = crossbeam_channel::unbounded();
        let context = RunContext {
            configuration: Arc::clone(&configuration),
            store: store.clone(),
            writer,
            // The crash guard is tested with real processes.
            attempts: CrashGuard::none(),
            inbox: Arc::new(Inbox::default()),
            stats: Arc::new(Stats::new(world.clock.now())),
            clock: Arc::clone(&world.clock) as Arc<_>,
            workers,
            batch,
            until_idle: false,
            retry_after: Duration::ZERO,
            messages,
            // The disk stays full, so the run ends.
            stop: crossbeam_channel::bounded(0).1,
        };
        let OpenRun { coordinator, committer, sources, readers, generation, .. } =
            match open(started, context) {
                Ok(opened) => opened,
                Err(error) => return Err((world, error)),
            };
        Ok(Self {
            readers: readers.into_iter().map(|(port, reader)| (port, (0, reader))).collect(),
            generation,
            world,
            configuration,
            store,
            coordinator,
            committer,
            told,
            batch,
            workers,
            sources,
            inbox: VecDeque::new(),
            source_asks: Vec::new(),
            store_asks: VecDeque::new(),
            tasks: VecDeque::new(),
            ran: Vec::new(),
            orders: VecDeque::new(),
            gates: Vec::new(),
            askings: Vec::new(),
            stopped: false,
            calm_moves: 0,
            end: None,
        })
    }
}

impl World {
    /// Redirects standard output.
    fn print_to(&mut self, started: &mut RecoveredState) {
        for (sink, declared) in started.sinks.iter_mut().zip(&self.configuration.sinks) {
            if let SinkKind::Stdout(format) = declared.kind {
                let printed = self.effects.printed.entry(declared.address.clone()).or_default();
                *sink = SinkWriter::Stdout(StdoutWriter::new(Box::new(printed.clone()), format));
            }
        }
    }
}
