//! Backpressure of joins by key: an input with too many jobs without a partner is not read.
//!
//! The other inputs are read on, because they have the partners.

use super::Coordinator;
use crate::step::state::StepState;
use tidegate_config::Input;
use tidegate_dispatch::{Command, Event, InputPort};
use tidegate_model::{Address, Timestamp};

impl Coordinator {
    /// Whether a read waits until fewer jobs of its input are without a partner.
    pub(crate) fn holds_read(&mut self, port: InputPort) -> bool {
        let Some(state) = self.steps.get_mut(port.step) else { return false };
        let holds = port.input.position().is_some_and(|input| is_full(state, input));
        if holds {
            state.held_reads.push(port);
        }
        holds
    }

    /// Reads the next due time of a join by key again when no job is without a partner. The due times of paired jobs are
    /// still in memory, and the run would wait for them. `waits`: a job was parked with a due time.
    pub(crate) fn note_matched(
        &mut self,
        step: usize,
        waits: bool,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let Some(state) = self.steps.get_mut(step).filter(|state| state.declared.joins.is_some()) else {
            return;
        };
        state.had_unmatched |= waits;
        if state.had_unmatched && state.stats.unmatched().iter().all(|jobs| *jobs == 0) {
            state.had_unmatched = false;
            self.dispatcher.apply(Event::Returned { step, due: now }, now, commands);
        }
    }

    /// Resumes the reads of a step that are held no longer.
    pub(crate) fn resume_reads(&mut self, step: usize, now: Timestamp, commands: &mut Vec<Command>) {
        let Some(state) = self.steps.get_mut(step).filter(|state| !state.held_reads.is_empty()) else {
            return;
        };
        for port in std::mem::take(&mut state.held_reads) {
            if port.input.position().is_some_and(|input| is_full(state, input)) {
                state.held_reads.push(port);
            } else {
                self.dispatcher.apply(Event::Full { port, full: false }, now, commands);
            }
        }
    }
}

/// The queues whose jobs a join by key takes before the time of a job without a partner is over. Full inputs do not
/// count: they go on when such jobs leave.
pub(crate) fn queues_to_catch_up(state: &StepState) -> Vec<Address> {
    if state.declared.joins.is_none() {
        return Vec::new();
    }
    let inputs = state.declared.inputs.iter().enumerate();
    let waits = inputs.filter(|(at, input)| matches!(input.input, Input::Queue(_)) && !is_full(state, *at));
    waits.map(|(_, input)| input.address.clone()).collect()
}

fn is_full(state: &StepState, input: usize) -> bool {
    let Some(join) = &state.declared.joins else { return false };
    state.stats.unmatched().get(input).is_some_and(|jobs| *jobs >= join.max_waiting)
}
