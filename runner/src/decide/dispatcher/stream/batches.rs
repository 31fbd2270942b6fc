//! The batches of a step that takes its jobs as they come, from being formed to being committed in order.

use super::{Rewinding, Stream};
use crate::decide::dispatcher::flow::{BatchId, Before, Command, Gather, Port, Redo};
use crate::decide::dispatcher::glance::Waiting;
use crate::decide::dispatcher::input::{Reading, Remnant};
use crate::decide::dispatcher::step::number;

/// How many batches may be begun and not yet run: what is begun has to be seen through.
const BEGUN_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct BatchState {
    id: BatchId,
    /// The input that its jobs are of; `None`: so many of each.
    input: Option<usize>,
    jobs: usize,
    bytes: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Formed,
    Beginning,
    /// What had to be durable is.
    Begun,
    Running,
    /// All its jobs, or the first `taken` of them where the next one halts the step.
    Finished {
        taken: usize,
        halts: bool,
    },
    Committing {
        halts: bool,
    },
}

impl Stream {
    /// Makes batches of what is there.
    pub(super) fn form(&mut self, next: &mut u64, commands: &mut Vec<Command>) {
        if self.halted || self.rewinding != Rewinding::No || !self.form_again(commands) {
            return;
        }
        let returned = self.inputs.len() - 1;
        let alone = match self.gather {
            Gather::Any => 0..returned + 1,
            Gather::Each => returned..returned + 1,
        };
        for input in alone {
            while self.inputs[input].ahead() > 0 {
                let jobs = self.inputs[input].in_one_piece();
                self.batch(number(next), &[input], jobs, Phase::Formed, commands);
            }
        }
        if self.gather == Gather::Each {
            let inputs: Vec<usize> = (0..returned).collect();
            loop {
                let jobs = inputs.iter().map(|&input| self.inputs[input].in_one_piece()).min().unwrap_or(0);
                if jobs == 0 {
                    break;
                }
                self.batch(number(next), &inputs, jobs, Phase::Formed, commands);
            }
        }
    }

    /// Makes batches again that were begun by an earlier run. Answers whether there is none left.
    fn form_again(&mut self, commands: &mut Vec<Command>) -> bool {
        while let Some(redo) = self.redo.front() {
            // The source lost them, or progress was put elsewhere: they are no more what they were.
            let gone = |&(input, first): &(usize, u64)| {
                let state = &self.inputs[input];
                state.reading == Reading::Ended && state.jobs() < redo.jobs
                    || state.first().is_some_and(|there| there != first)
            };
            let there = |&(input, _): &(usize, u64)| self.inputs[input].jobs() >= redo.jobs;
            let (gone, there) = (redo.inputs.iter().any(gone), redo.inputs.iter().all(there));
            if !gone && !there {
                return false;
            }
            if let Some(Redo { number, inputs, jobs }) = self.redo.pop_front().filter(|_| !gone) {
                let inputs: Vec<usize> = inputs.into_iter().map(|(input, _)| input).collect();
                self.batch(BatchId(number), &inputs, jobs, Phase::Begun, commands);
            }
        }
        true
    }

    fn batch(
        &mut self,
        id: BatchId,
        inputs: &[usize],
        jobs: usize,
        phase: Phase,
        commands: &mut Vec<Command>,
    ) {
        let mut bytes = 0;
        for &input in inputs {
            let mut left = jobs;
            while left > 0 {
                let Some((taken, used_up)) = self.inputs[input].take(left) else { break };
                let Remnant { read, skip, jobs, .. } = taken;
                let port = Port { step: self.position, input };
                commands.push(Command::Part { batch: id, port, read, skip, jobs });
                if used_up {
                    commands.push(Command::Forget { read });
                }
                left -= jobs;
                bytes += taken.bytes;
            }
        }
        let input = if let [input] = *inputs { Some(input) } else { None };
        self.batches.push_back(BatchState { id, input, jobs, bytes, phase });
    }

    /// Has batches begun that need it, few at a time.
    pub(super) fn begin(&mut self, commands: &mut Vec<Command>) {
        if self.before == Before::Nothing || self.halted || self.about_to_halt() {
            return;
        }
        let begun = |batch: &BatchState| matches!(batch.phase, Phase::Beginning | Phase::Begun);
        let mut count = self.batches.iter().filter(|batch| begun(batch)).count();
        for batch in &mut self.batches {
            if count >= BEGUN_MAX {
                return;
            }
            if batch.phase == Phase::Formed {
                batch.phase = Phase::Beginning;
                count += 1;
                let (step, before) = (self.position, self.before);
                commands.push(Command::Begin { step, batch: batch.id, before });
            }
        }
    }

    pub(super) fn begun(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.id == id) {
            debug_assert_eq!(batch.phase, Phase::Beginning);
            batch.phase = Phase::Begun;
        }
    }

    /// Gives batches to workers as long as there are free ones.
    pub(super) fn run_formed(&mut self, paused: bool, free_slots: &mut usize, commands: &mut Vec<Command>) {
        if self.halted || self.about_to_halt() {
            return;
        }
        let at_once = self.before == Before::Nothing && !paused;
        let first = if at_once { Phase::Formed } else { Phase::Begun };
        for batch in &mut self.batches {
            if *free_slots == 0 {
                return;
            }
            if batch.phase == first || batch.phase == Phase::Begun {
                batch.phase = Phase::Running;
                *free_slots -= 1;
                commands.push(Command::Run { step: self.position, batch: batch.id });
            }
        }
    }

    pub(super) fn ran(&mut self, id: BatchId, taken: usize, halts: bool, bytes: usize) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.id == id) {
            debug_assert!(
                taken <= batch.jobs && (halts || taken == batch.jobs),
                "a step takes what it is given"
            );
            batch.phase = Phase::Finished { taken, halts };
            batch.bytes += bytes;
            self.held += bytes;
        }
        if self.halted {
            // Nothing of a halted step is committed; its batches only had to come home.
            self.batches.retain(|batch| batch.phase == Phase::Running);
        }
    }

    /// Nothing of a batch has run.
    pub(super) fn put_back(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.id == id) {
            debug_assert_eq!((batch.phase, self.before), (Phase::Running, Before::Nothing));
            batch.phase = Phase::Formed;
        }
        if self.halted {
            self.batches.retain(|batch| batch.phase == Phase::Running);
        }
    }

    pub(super) fn commit_in_order(&mut self, commands: &mut Vec<Command>) {
        if self.halted {
            return;
        }
        for batch in &mut self.batches {
            match batch.phase {
                Phase::Committing { halts: false } => {}
                Phase::Finished { taken, halts } => {
                    batch.phase = Phase::Committing { halts };
                    commands.push(Command::Commit { step: self.position, batch: batch.id, taken });
                    if halts {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    pub(super) fn committed(&mut self, id: BatchId, commands: &mut Vec<Command>) {
        let Some(at) = self.batches.iter().position(|batch| batch.id == id) else { return };
        debug_assert_eq!(at, 0, "batches are committed in order");
        let Some(batch) = self.batches.remove(at) else { return };
        self.held -= batch.bytes;
        if batch.phase == (Phase::Committing { halts: true }) {
            self.halt(commands);
        }
    }

    /// Stops taking jobs. Batches that run are waited for, the others are given up.
    pub(super) fn halt(&mut self, commands: &mut Vec<Command>) {
        self.halted = true;
        for batch in &self.batches {
            if batch.phase != Phase::Running {
                commands.push(Command::Drop { batch: batch.id });
            }
        }
        self.batches.retain(|batch| batch.phase == Phase::Running);
        self.held = self.batches.iter().map(|batch| batch.bytes).sum();
        for input in &mut self.inputs {
            commands.extend(input.clear().into_iter().map(|(read, _)| Command::Forget { read }));
        }
    }

    /// Gives up what nobody has begun; it will be read again in the next run. Batches begin in order,
    /// so behind one that was not begun none was.
    pub(super) fn drop_waiting(&mut self, commands: &mut Vec<Command>) {
        while let Some(batch) = self.batches.pop_back_if(|batch| batch.phase == Phase::Formed) {
            self.held -= batch.bytes;
            commands.push(Command::Drop { batch: batch.id });
        }
        self.forget_reads(commands);
    }

    /// A job has halted the step, and what stands before it is still on its way.
    pub(super) fn about_to_halt(&self) -> bool {
        self.batches.iter().any(|batch| {
            matches!(batch.phase, Phase::Finished { halts: true, .. } | Phase::Committing { halts: true })
        })
    }

    /// Jobs of an input that nobody has begun.
    pub(super) fn waiting(&self, input: usize, heads: &[u64]) -> Waiting {
        let of_input = |batch: &&BatchState| batch.input.is_none_or(|one| one == input);
        let formed = self.batches.iter().filter(of_input).filter(|batch| batch.is_unbegun());
        let read = formed.map(|batch| batch.jobs).sum::<usize>() + self.inputs[input].jobs();
        let Some((behind, head)) = self.inputs[input].behind(heads) else {
            return Waiting { jobs: read as u64, first: None };
        };
        let jobs = read as u64 + behind;
        // They are taken in order: the last ones are those that wait.
        Waiting { jobs, first: (jobs > 0).then(|| (head + 1).saturating_sub(jobs)) }
    }

    /// How many jobs are begun and not delivered.
    pub(super) fn running(&self) -> u64 {
        self.batches.iter().filter(|batch| !batch.is_unbegun()).map(|batch| batch.jobs as u64).sum()
    }
}

impl BatchState {
    pub(super) fn is_unbegun(&self) -> bool {
        self.phase == Phase::Formed
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }
}
