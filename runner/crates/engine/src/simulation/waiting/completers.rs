//! Completing systems: report the status of pending jobs on their own, in random order, repeatedly, and
//! sometimes with contradictions.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, TryRecvError};

use super::stored_states::{At, StoredStates, Way};
use crate::operator::request::{CompletionOutcome, PendingRequest, Request, RequestOutcome};
use crate::simulation::dice::Dice;
use tidegate_model::{Address, ExternalStatus};
use tidegate_store::CompletionRecord;

/// Channel of the answer to a completion.
type Answer = Receiver<Result<RequestOutcome, String>>;

#[derive(Debug, Default)]
pub(crate) struct Completers {
    asked: Vec<(u64, ExternalStatus, Answer)>,
    /// Last completion.
    last: Option<(u64, CompletionRecord)>,
    /// All reported statuses, by index.
    reported: BTreeMap<u64, Vec<ExternalStatus>>,
    /// Final status of a job, by index, once it was accepted.
    ends: BTreeMap<u64, ExternalStatus>,
    /// Number of accepted completions.
    pub(crate) taken: u64,
}

impl Completers {
    /// Creates a random completion.
    pub(crate) fn think(
        &mut self,
        dice: &mut Dice,
        step: &Address,
        stored: &StoredStates,
    ) -> Option<PendingRequest> {
        let again = self.last.clone().filter(|_| dice.chance(30));
        let (index, completion) = match again {
            Some((index, completion)) if dice.chance(60) => (index, completion),
            Some((index, _)) => (index, completion(dice, index)),
            None => {
                let is_pending = |(_, at): &(&u64, &At)| matches!(at, At::Pending { .. });
                let pending: Vec<u64> =
                    stored.jobs.iter().filter(is_pending).map(|(index, _)| *index).collect();
                if pending.is_empty() {
                    return None;
                }
                let index = *dice.pick(&pending);
                (index, completion(dice, index))
            }
        };
        self.last = Some((index, completion.clone()));
        self.reported.entry(index).or_default().push(completion.status);
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.asked.push((index, completion.status, answer));
        let (step, token) = (step.clone(), format!("token of {index}"));
        Some(PendingRequest::new(Request::Complete { step, index, token, completion, row: None }, reply))
    }

    /// Whether this status was ever reported for a job.
    pub(crate) fn has_reported(&self, index: u64, status: ExternalStatus) -> bool {
        self.reported.get(&index).is_some_and(|reported| reported.contains(&status))
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self) {
        for (index, status, answer) in std::mem::take(&mut self.asked) {
            match answer.try_recv() {
                Ok(Ok(RequestOutcome::Completed(completed))) => self.answered(index, status, completed),
                Ok(odd) => panic!("the completion of {index} as {status:?} was answered with {odd:?}"),
                Err(TryRecvError::Empty) => self.asked.push((index, status, answer)),
                Err(TryRecvError::Disconnected) => {}
            }
        }
    }

    fn answered(&mut self, index: u64, status: ExternalStatus, completed: CompletionOutcome) {
        let holds = match completed {
            CompletionOutcome::Taken => {
                let before = self.ends.get(&index);
                assert!(before.is_none(), "{index} is {before:?}, and {status:?} was accepted");
                self.taken += 1;
                status
            }
            // It may have been accepted just before the process died.
            CompletionOutcome::Duplicate => status,
            CompletionOutcome::Conflict { status } => status,
            CompletionOutcome::Refused { .. } | CompletionOutcome::NotPending => return,
        };
        if matches!(holds, ExternalStatus::Committed | ExternalStatus::Invalid) {
            let before = *self.ends.entry(index).or_insert(holds);
            assert_eq!(before, holds, "{index} ends in two ways");
        }
    }

    /// Checks accepted completions: the job waits for the delivery of that status, or has ended with it.
    pub(crate) fn check(&self, stored: &StoredStates, refused: Way) {
        for (index, end) in &self.ends {
            let way = if *end == ExternalStatus::Committed { Way::Output } else { refused };
            let at = &stored.jobs[index];
            let holds = matches!(at, At::Pending { .. }) || *at == At::Through(way);
            assert!(holds, "{index} is {at:?}, but was accepted as {end:?}: {self:?}");
        }
    }

    /// The process died or ended: no more answers come.
    pub(crate) fn hang_up(&mut self) {
        self.asked.clear();
    }
}

fn completion(dice: &mut Dice, index: u64) -> CompletionRecord {
    let all = [
        ExternalStatus::Pending,
        ExternalStatus::Valid,
        ExternalStatus::Committed,
        ExternalStatus::Committed,
        ExternalStatus::Invalid,
        ExternalStatus::Unknown,
    ];
    let status = *dice.pick(&all);
    let result = format!("{{\"out\":{{\"id\":{index},\"tx\":2}}}}");
    let result = (status == ExternalStatus::Committed && dice.chance(50)).then_some(result);
    let reason = (status == ExternalStatus::Invalid).then(|| "no".to_owned());
    CompletionRecord { status, result, reason }
}
