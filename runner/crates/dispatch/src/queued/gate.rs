//! Gate of a queued step: tracks its checks, and blocks the step while it is closed.

use std::time::Duration;

use super::QueuedStep;
use crate::protocol::Command;
use tidegate_model::Timestamp;

#[derive(Debug)]
pub(crate) struct GateState {
    every: Duration,
    open: bool,
    asked: bool,
    /// Time of the last check.
    looked: Option<Timestamp>,
}

impl QueuedStep {
    /// Whether the gate is open. Requests a check if the answer is too old and a job waits.
    pub(crate) fn passes_gate(&mut self, now: Timestamp, commands: &mut Vec<Command>) -> bool {
        let Some(gate) = &mut self.gate else { return true };
        if gate.is_fresh(now) {
            return gate.open;
        }
        let counts = self.room.counts();
        let waits = counts.waiting > 0 || self.room.next_wake(now).is_some_and(|wake| wake <= now);
        if waits && !gate.asked {
            gate.asked = true;
            commands.push(Command::CheckGate { step: self.position });
        }
        false
    }

    pub(crate) fn held_until(&self) -> Option<Timestamp> {
        self.held_back.map(|wait| wait.until)
    }

    /// Time of the next possible start of a job in the waiting room.
    pub(crate) fn room_wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let room = self.room.next_wake(now);
        let Some(gate) = &self.gate else { return room.max(self.held_until()) };
        if gate.asked {
            return None;
        }
        if gate.open && gate.is_fresh(now) {
            return room.max(self.held_until());
        }
        let waits = if self.room.counts().waiting > 0 { Some(now) } else { room };
        let looks = gate.looked.map_or(now, |looked| looked + gate.every);
        waits.map(|waits| waits.max(looks)).max(self.held_until())
    }
}

impl GateState {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, open: false, asked: false, looked: None }
    }

    pub(crate) fn answered(&mut self, open: bool, now: Timestamp) {
        (self.open, self.asked, self.looked) = (open, false, Some(now));
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Time of the next check, if the last one found the gate closed.
    pub(crate) fn closed_until(&self) -> Option<Timestamp> {
        let looked = self.looked.filter(|_| !self.open)?;
        Some(looked + self.every)
    }

    /// Whether the last answer still counts. A clock that was set back makes it too old.
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.looked.is_some_and(|looked| (looked..looked + self.every).contains(&now))
    }
}
