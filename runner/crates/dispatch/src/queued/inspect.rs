//! Inspection of a queued step: counts its jobs and exposes its waiting room.

use std::collections::HashSet;

use super::gate::GateState;
use super::{Halting, QueuedStep};
use crate::counts::{InputCounts, JobCounts, QueuedCounts};
use crate::step_machine::QueueSnapshot;
use crate::waiting_room::JobKey;
use tidegate_model::Timestamp;

impl QueuedStep {
    /// Snapshot of the waiting room, and of the conditions that block the whole step.
    pub(crate) fn seen(&self) -> QueueSnapshot<'_> {
        let read = self.input.next.saturating_sub(1);
        QueueSnapshot {
            room: &self.room,
            paused: false,
            gate: self.gate.as_ref().and_then(GateState::closed_until),
            held_until: self.held_until(),
            ahead: self.ahead(),
            read: self.beyond.first().map_or(read, |first| first - 1),
            halted: self.end > Halting::No,
            first_in_line: self.first_in_line(),
        }
    }

    /// Counts the jobs by state, and lists at most `lanes` lanes. A due job counts as waiting, even if
    /// nothing may start and the waiting room does not have the new time yet.
    pub(crate) fn counted(&self, heads: &[u64], lanes: usize, now: Timestamp) -> JobCounts {
        let counts = self.room.counts();
        let held: HashSet<JobKey> = self.unbegun().collect();
        let summary = self.room.summary(lanes, &held, now);
        // A finished job that is not delivered waits for its turn.
        let waiting = counts.waiting + summary.due + held.len() + self.beyond.len() + counts.finished;
        let behind = self.input.behind(heads).map_or(0, |(_, head)| self.unread(head));
        JobCounts {
            inputs: vec![InputCounts { jobs: waiting as u64 + behind, first: None }],
            running: (counts.running - held.len()) as u64,
            first_in_line: None,
            watermark: Some(self.watermark()),
            picked: Some(QueuedCounts {
                delayed: (counts.delayed - summary.due + self.late.len()) as u64,
                pending: counts.pending as u64,
                lanes: counts.lanes as u64,
                summary,
            }),
        }
    }

    /// Number of jobs of the queue, up to its last index `head`, that are neither read nor finished.
    fn unread(&self, head: u64) -> u64 {
        self.progress.count_open(self.input.next, head)
    }
}
