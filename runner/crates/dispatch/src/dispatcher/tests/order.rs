//! Commit order tests: commits follow the order of the inputs in every interleaving of events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

proptest! {
    /// For every order of answers from workers and readers, each job before the halting one is committed once
    /// and in order, and the run ends.
    #[test]
    fn every_job_is_committed_once_and_in_order(
        sizes in prop::collection::vec(1_usize..4, 0..12),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
        halt_at in prop::option::of(1_u64..30),
    ) {
        let mut dispatcher = Dispatcher::of(&[source()], &[], Bounds { slots: 3, beside: 3, batches: 5, jobs: 1000, bytes: 100 }, false);
        let mut commands = Vec::new();
        dispatcher.start(Timestamp(0), &mut commands);
        let (mut possible, mut committed, mut finished): (Vec<Event>, Vec<u64>, Option<RunOutcome>) = Default::default();
        let (mut reads, mut spans) = (Vec::new(), BTreeMap::new());
        let (mut sizes, mut choices) = (sizes.into_iter(), choices.into_iter());
        let total: u64 = sizes.clone().map(|size| size as u64).sum();
        loop {
            for command in commands.drain(..) {
                match command {
                    Command::Read { from, .. } => match sizes.next() {
                        Some(jobs) => {
                            let read = ReadId(reads.len() as u64);
                            reads.push(from);
                            possible.push(Event::Read { port: PORT, read, first: from, jobs, bytes: 9 });
                        }
                        None => possible.push(Event::Ended { port: PORT }),
                    },
                    Command::AddToBatch { batch, read, skip, jobs, .. } => {
                        let first: u64 = reads[usize::try_from(read.0).unwrap()];
                        spans.insert(batch, (first + skip as u64, jobs));
                    }
                    Command::Run { batch, .. } => {
                        let (first, jobs) = spans[&batch];
                        let halt = halt_at.filter(|at| (first..first + jobs as u64).contains(at));
                        let taken = halt.map_or(jobs, |at| usize::try_from(at - first).unwrap());
                        let ending = if halt.is_some() { BatchCut::Halts } else { BatchCut::Whole };
                        let ran = BatchEnd { ending, bytes: 9, ..BatchEnd::whole(taken) };
                        possible.push(Event::Ran { step: 0, batch, ran });
                    }
                    Command::Commit { batch, taken, .. } => {
                        let (first, _) = spans[&batch];
                        committed.extend(first..first + taken as u64);
                        possible.push(Event::Committed { step: 0, batch });
                    }
                    Command::Begin { .. }
                    | Command::Drained { .. }
                    | Command::GiveBack { .. }
                    | Command::Split { .. }
                    | Command::Return { .. }
                    | Command::FetchJobs { .. }
                    | Command::Keep { .. }
                    | Command::Deal { .. }
                    | Command::Unclaim { .. }
                    | Command::CheckGate { .. }
                    | Command::PositionAdvanced { .. } => unreachable!(),
                    Command::Drop { .. } | Command::ReleaseRead { .. } => {}
                    Command::Finish(end) => finished = Some(end),
                }
            }
            if possible.is_empty() {
                break;
            }
            let mut at = choices.next().map_or(0, |choice| choice.index(possible.len()));
            // The committer answers in order.
            if matches!(possible[at], Event::Committed { .. }) {
                at = possible.iter().position(|event| matches!(event, Event::Committed { .. })).unwrap();
            }
            let event = possible.remove(at);
            dispatcher.handle(event, Timestamp(0), &mut commands);
        }
        let last = halt_at.map_or(total, |at| total.min(at - 1));
        prop_assert_eq!(committed, (1..=last).collect::<Vec<_>>());
        let halted = halt_at.is_some_and(|at| at <= total);
        prop_assert_eq!(finished, Some(if halted { RunOutcome::Halted } else { RunOutcome::Drained }));
    }
}
