//! Parked turns: bring a job back when it is due, block the jobs behind it, and drop those jobs at the end of
//! the run.

use std::time::Duration;

use super::OrderedStep;
use super::batches::{BatchKind, OrderedBatch, Phase};
use crate::protocol::{BatchId, Command, DurabilityBarrier, InputPort, PortInput, Turn};
use tidegate_model::Timestamp;

/// Minimum jump of the clock, backwards, that makes waiting jobs due at once.
const SET_BACK_MIN: Duration = Duration::from_secs(1);

/// Job that waits in the store for its next attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    due: Timestamp,
    state: State,
    /// Whether its input will read it once more, because the step was rewound behind it.
    is_repeated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// Its read is requested.
    Asked,
    /// It is in a batch.
    Here,
}

impl OrderedStep {
    /// Adds a job that waits in the store, or changes its due time.
    pub(crate) fn park_turn(&mut self, turn: Turn, due: Timestamp) {
        let comes_again = self.inputs.get(turn.input).is_some_and(|input| input.next <= turn.index);
        let is_repeated = comes_again || self.parked.get(&turn).is_some_and(|before| before.is_repeated);
        self.parked.insert(turn, Parked { due, state: State::Waiting, is_repeated });
    }

    /// Whether an input reads a parked job once more. The two must not run together: the second one may be skipped as
    /// delivered only after the commit of the first.
    pub(crate) fn repeats_parked(&self) -> bool {
        self.parked.values().any(|parked| parked.is_repeated)
    }

    /// Sets the time. If the clock was set back, the jobs that wait in memory become due.
    pub(crate) fn set_time(&mut self, now: Timestamp) {
        if now + SET_BACK_MIN <= self.now {
            for batch in &mut self.batches {
                if let Phase::Waiting { due } = &mut batch.phase {
                    *due = now;
                }
            }
        }
        self.now = now;
    }

    /// Requests the first parked job when it is due.
    pub(crate) fn return_first(&mut self, commands: &mut Vec<Command>) {
        let closed = self.halted || self.held_back.is_some() || self.gives_back;
        let Some(mut first) = self.parked.first_entry().filter(|_| !closed) else { return };
        let turn = *first.key();
        let parked = first.get_mut();
        if parked.state == State::Waiting && parked.due <= self.now {
            parked.state = State::Asked;
            commands.push(Command::Return { step: self.position, turn });
        }
    }

    /// Forms a batch of the parked job that was read. It goes before all in-order batches.
    pub(crate) fn form_returned(&mut self, next: &mut u64, commands: &mut Vec<Command>) {
        let Some((read, bytes)) = self.came.take() else { return };
        let Some(mut first) = self.parked.first_entry().filter(|first| first.get().state == State::Asked)
        else {
            self.held = self.held.saturating_sub(bytes);
            return commands.push(Command::ReleaseRead { step: self.position, read });
        };
        first.get_mut().state = State::Here;
        let batch = OrderedBatch::of_turn(next, bytes);
        let port = InputPort { step: self.position, input: PortInput::Turn };
        commands.push(Command::AddToBatch { batch: batch.id, port, read, skip: 0, jobs: 1 });
        commands.push(Command::ReleaseRead { step: self.position, read });
        self.batches.push_front(batch);
    }

    /// Resets the first parked job after its read or batch was dropped: it will be read again.
    pub(crate) fn read_later(&mut self) {
        if let Some(mut first) = self.parked.first_entry() {
            first.get_mut().state = State::Waiting;
        }
    }

    /// Removes the first parked job after the commit of its batch. If it waits again, `Parked` came before.
    pub(crate) fn turn_is_over(&mut self) {
        if let Some(first) = self.parked.first_entry().filter(|first| first.get().state == State::Here) {
            first.remove();
        }
    }

    /// Job that blocks all jobs behind it, and its due time.
    pub(crate) fn first_in_line(&self) -> Option<(Turn, Timestamp)> {
        self.parked.first_key_value().map(|(turn, parked)| (*turn, parked.due))
    }

    /// Whether a parked job is being read.
    pub(crate) fn is_returning(&self) -> bool {
        self.came.is_some() || self.parked.values().any(|parked| parked.state == State::Asked)
    }

    /// Whether a job that is retried later blocks the jobs behind it.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.parked.is_empty()
            || self.batches.iter().any(|batch| matches!(batch.phase, Phase::Waiting { .. }))
    }

    /// Time of the next start of an in-order batch, if one waits for a time.
    pub(crate) fn wakes_line(&self) -> Option<Timestamp> {
        let parked = self.parked.values().next().filter(|first| first.state == State::Waiting);
        let waiting = self.batches.iter().filter_map(|batch| match batch.phase {
            Phase::Waiting { due } => Some(due),
            _ => None,
        });
        // A due job that does not start waits for another event.
        let first = parked.map(|first| first.due).into_iter().chain(waiting).filter(|due| *due > self.now);
        let held = self.held_back.map(|wait| wait.until);
        first.min().map_or(held, |first| Some(held.map_or(first, |held| held.max(first))))
    }

    /// Drops batches that are not begun, and batches that cannot be delivered because a job before them
    /// waits. They have no effects yet. They are read again in the next run, or when the step is installed again.
    pub(crate) fn drop_waiting(&mut self, commands: &mut Vec<Command>) {
        self.forget_reads(commands);
        let returns = |batch: &OrderedBatch| batch.kind == BatchKind::Turn && batch.phase != Phase::Formed;
        // Whether the next in-order batch can still be delivered.
        let mut open = self.parked.len() <= usize::from(self.batches.iter().any(returns));
        let (held, lasting) = (self.held_back.is_some(), self.before == DurabilityBarrier::Progress);
        let mut begun = Vec::new();
        for batch in &mut self.batches {
            if batch.kind == BatchKind::Beside {
                batch.dropped |= batch.phase == Phase::Formed;
                continue;
            }
            batch.dropped |= match batch.phase {
                Phase::Formed => true,
                Phase::Begun => held || !open,
                Phase::Committing { .. } => false,
                _ => !open && batch.kind == BatchKind::Line,
            };
            open &= !batch.dropped && !batch.ends_line();
            if batch.dropped && batch.phase == Phase::Begun {
                begun.push(batch.id);
            }
        }
        if lasting && !begun.is_empty() {
            return self.give_back(begun, commands);
        }
        self.drop_marked(commands);
    }

    /// Returns the jobs that an `at-most-once` step has begun and not attempted. Progress is put back before
    /// them once all jobs before them are delivered.
    fn give_back(&mut self, batches: Vec<BatchId>, commands: &mut Vec<Command>) {
        let rest =
            |batch: &OrderedBatch| batch.kind == BatchKind::Beside || batch.dropped && !batch.is_moving();
        if !self.gives_back && self.batches.iter().all(rest) {
            self.gives_back = true;
            commands.push(Command::GiveBack { step: self.position, batches });
            self.drop_marked(commands);
        }
    }

    fn drop_marked(&mut self, commands: &mut Vec<Command>) {
        let (mut freed, mut turn, mut beside) = (0, false, false);
        self.batches.retain(|batch| {
            // A running batch stays until its worker returns it.
            if !batch.dropped || batch.phase == Phase::Running || batch.phase == Phase::Beginning {
                return true;
            }
            freed += batch.bytes;
            turn |= batch.kind == BatchKind::Turn;
            beside |= batch.kind == BatchKind::Beside;
            commands.push(Command::Drop { step: self.position, batch: batch.id });
            false
        });
        self.held = self.held.saturating_sub(freed);
        if turn {
            self.read_later();
        }
        if beside {
            self.returned.look_again();
        }
    }
}
