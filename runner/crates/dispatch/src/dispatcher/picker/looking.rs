//! What can be seen of a step that picks its jobs.

use std::collections::HashSet;

use super::gate::Gate;
use super::{Halting, Picker};
use crate::dispatcher::glance::{Glance, Picked, Waiting};
use crate::dispatcher::step::Look;
use crate::queuer::JobKey;
use tidegate_model::Timestamp;

impl Picker {
    /// The jobs that it may pick, and what holds them.
    pub(crate) fn seen(&self) -> Look<'_> {
        let read = self.input.next.saturating_sub(1);
        Look {
            room: &self.room,
            paused: false,
            gate: self.gate.as_ref().and_then(Gate::closed_until),
            held_until: self.held_until,
            ahead: self.ahead(),
            read: self.beyond.first().map_or(read, |first| first - 1),
            halted: self.end > Halting::No,
        }
    }

    /// How many jobs stand where, and up to so many of its lanes. What is due waits, though nothing may
    /// start and the room has not been told the time.
    pub(crate) fn counted(&self, heads: &[u64], lanes: usize, now: Timestamp) -> Glance {
        let counts = self.room.counts();
        let held: HashSet<JobKey> = self.unbegun().collect();
        let survey = self.room.survey(lanes, &held, now);
        let waiting = counts.waiting + survey.due + held.len() + self.beyond.len();
        let behind = self.input.behind(heads).map_or(0, |(_, head)| self.unread(head));
        Glance {
            inputs: vec![Waiting { jobs: waiting as u64 + behind, first: None }],
            running: (counts.running - held.len()) as u64,
            first_in_line: None,
            picked: Some(Picked {
                delayed: (counts.delayed - survey.due + self.late.len()) as u64,
                pending: counts.pending as u64,
                lanes: counts.lanes as u64,
                survey,
            }),
        }
    }

    /// Jobs of the queue, which ends at `head`, that were not read and are not through.
    fn unread(&self, head: u64) -> u64 {
        self.progress.open(self.input.next, head)
    }
}
