//! Simulated start: opens a run like the engine does, without threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{Crash, Stage};
use crate::commit::inbox::Inbox;
use crate::commit::sinks::Sinks;
use crate::commit::tuples;
use crate::error::EngineError;
use crate::generation::Generation;
use crate::generation::bindings;
use crate::generation::current::{CurrentGeneration, NumberedGeneration};
use crate::generation::renames;
use crate::recovery::claims;
use crate::recovery::open::{OpenRun, RunContext, open};
use crate::recovery::start;
use crate::simulation::effects::Printed;
use crate::simulation::world::World;
use crate::step::stats::Stats;
use tidegate_components::sink::{SinkWriter, StdoutWriter};
use tidegate_components::source::BatchLimit;
use tidegate_config::SinkKind;
use tidegate_model::Clock as _;
use tidegate_store::{CrashGuard, ReadError, Store, Writer, open_disk};

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
        let (store, mut writer) = match open_disk(Box::new(world.disk.clone())) {
            Ok(opened) => opened,
            Err(error) => return Err((world, error.into())),
        };
        let generation = if world.changes.is_some() {
            match world.read(None, &store) {
                Ok(read) => read,
                Err(error) => return Err((world, error.into())),
            }
        } else {
            Arc::clone(&world.configuration).into()
        };
        let configuration = match bindings::mark_bindings(&generation.configuration, &store) {
            Ok(configuration) => configuration,
            Err(error) => return Err((world, error.into())),
        };
        let number = match start::number(&configuration, &store) {
            Ok(number) => number,
            Err(error) => return Err((world, error)),
        };
        let Generation { plugins, files, .. } = generation;
        let generation = NumberedGeneration::new(number, Arc::clone(&configuration), plugins, files);
        if world.changes.is_some()
            && let Err(error) = world.prepare(&generation, &store, &mut writer)
        {
            return Err((world, error));
        }
        world.is_in_force(&generation);
        let current = CurrentGeneration::new(generation);
        let attempts = CrashGuard::remembering(world.begun.clone());
        if let Err(error) = claims::recover(&store, &mut writer, &attempts, world.clock.now()) {
            return Err((world, error));
        }
        if world.joins.is_some() {
            let now = world.clock.now();
            if let Err(error) = tuples::deliver_before_start(&current.get(), &store, &mut writer, now) {
                return Err((world, error));
            }
        }
        let (never, sinks) = (AtomicBool::new(false), world.sinks());
        if let Err(error) = current.tables.build(&configuration, &[], &store, &never) {
            return Err((world, error.into()));
        }
        let started = match start::start(&current.get(), sinks, &store, world.clock.now(), &never) {
            Ok(started) => started.unwrap(),
            Err(error) => return Err((world, error)),
        };
        for step in &started.steps {
            assert!(step.halts.is_empty(), "{:?}", step.halts);
            world.tally.again += step.plan.redo.len() as u64;
        }
        let batch = BatchLimit { jobs: 1 + world.dice.below(8), bytes: 1 + world.dice.below(2000) };
        let workers = 1 + world.dice.below(3);
        let (messages, received) = crossbeam_channel::unbounded();
        let context = RunContext {
            store: store.clone(),
            writer,
            // The suspects of the crash guard are tested with real processes.
            attempts: attempts.clone(),
            inbox: Arc::new(Inbox::default()),
            stats: Arc::new(Stats::new(world.clock.now())),
            tables: Arc::clone(&current.tables),
            clock: Arc::clone(&world.clock) as Arc<_>,
            workers,
            batch,
            until_idle: false,
            retry_after: Duration::ZERO,
            messages,
            // The disk stays full, so the run ends.
            stop: crossbeam_channel::bounded(0).1,
            ending: Arc::default(),
        };
        let OpenRun { coordinator, committer, actions, .. } = open(started, context);
        let mut stage = Self {
            readers: BTreeMap::new(),
            current,
            world,
            configuration,
            store,
            coordinator,
            committer,
            received,
            batch,
            workers,
            inbox: VecDeque::new(),
            source_asks: Vec::new(),
            store_asks: VecDeque::new(),
            tasks: VecDeque::new(),
            ran: Vec::new(),
            orders: VecDeque::new(),
            gates: Vec::new(),
            askings: Vec::new(),
            attempts,
            halted: BTreeMap::new(),
            stopped: false,
            answer: None,
            swap_fails_from: None,
            calm_moves: 0,
            end: None,
        };
        stage.carry_out(actions);
        Ok(stage)
    }
}

impl World {
    /// Renames parts before their state is read, as a run does.
    fn prepare(
        &mut self,
        generation: &NumberedGeneration,
        store: &Store,
        writer: &mut Writer,
    ) -> Result<(), EngineError> {
        let ran = self.ran.take().unwrap_or_default();
        let renamed = renames::of(&generation.configuration, None, store)?;
        self.planned.add(&ran, (generation.number, &generation.configuration), &renamed, store)?;
        self.ran = Some(ran);
        self.renaming = Some((generation.number, renamed));
        start::rename_all(generation, store, writer, self.clock.now())?;
        if self.disk.struck() {
            // The renames may not be durable.
            return Err(ReadError::Interrupted.into());
        }
        self.settle_renames(store)?;
        Ok(self.begin(generation, store)?)
    }

    /// Sinks that print into the memory of the world.
    fn sinks(&self) -> Sinks {
        let printed = Arc::clone(&self.effects.printed);
        Sinks::opened_with(Box::new(move |address, kind, position| {
            let SinkKind::Stdout(format) = kind else { return SinkWriter::open(address, kind, position) };
            let part = Printed::default();
            printed.lock().unwrap().entry(address.clone()).or_default().push(part.clone());
            Ok(SinkWriter::Stdout(StdoutWriter::new(Box::new(part), *format)))
        }))
    }
}
