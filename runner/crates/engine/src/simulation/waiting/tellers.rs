//! Outside systems that say by themselves how pending jobs stand: in no order, again and again, and now and
//! then something else than before.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, TryRecvError};

use super::standing::{At, Standings, Way};
use crate::request::{Asked, Completed, Granted, Request};
use crate::simulation::dice::Dice;
use tidegate_model::{Address, Status};
use tidegate_store::Completion;

/// Where the answer to what was said comes.
type Answer = Receiver<Result<Granted, String>>;

#[derive(Debug, Default)]
pub(crate) struct Tellers {
    asked: Vec<(u64, Status, Answer)>,
    /// What was said last.
    last: Option<(u64, Completion)>,
    /// By index: all that was ever said.
    said: BTreeMap<u64, Vec<Status>>,
    /// By index: how the job ends, since that was taken.
    ends: BTreeMap<u64, Status>,
    /// How often something was taken.
    pub(crate) taken: u64,
}

impl Tellers {
    /// Thinks of something to say.
    pub(crate) fn think(&mut self, dice: &mut Dice, step: &Address, standings: &Standings) -> Option<Asked> {
        let again = self.last.clone().filter(|_| dice.chance(30));
        let (index, completion) = match again {
            Some((index, completion)) if dice.chance(60) => (index, completion),
            Some((index, _)) => (index, completion(dice, index)),
            None => {
                let is_pending = |(_, at): &(&u64, &At)| matches!(at, At::Pending { .. });
                let pending: Vec<u64> =
                    standings.jobs.iter().filter(is_pending).map(|(index, _)| *index).collect();
                if pending.is_empty() {
                    return None;
                }
                let index = *dice.pick(&pending);
                (index, completion(dice, index))
            }
        };
        self.last = Some((index, completion.clone()));
        self.said.entry(index).or_default().push(completion.status);
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.asked.push((index, completion.status, answer));
        let (step, token) = (step.clone(), format!("token of {index}"));
        Some(Asked::new(Request::Complete { step, index, token, completion, row: None }, reply))
    }

    /// Whether that was ever said of a job.
    pub(crate) fn has_said(&self, index: u64, status: Status) -> bool {
        self.said.get(&index).is_some_and(|said| said.contains(&status))
    }

    /// Takes in the answers that have come.
    pub(crate) fn listen(&mut self) {
        for (index, status, answer) in std::mem::take(&mut self.asked) {
            match answer.try_recv() {
                Ok(Ok(Granted::Completed(completed))) => self.answered(index, status, completed),
                Ok(odd) => panic!("of {index} was said that it is {status:?}: {odd:?}"),
                Err(TryRecvError::Empty) => self.asked.push((index, status, answer)),
                Err(TryRecvError::Disconnected) => {}
            }
        }
    }

    fn answered(&mut self, index: u64, status: Status, completed: Completed) {
        let holds = match completed {
            Completed::Taken => {
                let before = self.ends.get(&index);
                assert!(before.is_none(), "{index} is {before:?}, and {status:?} is taken");
                self.taken += 1;
                status
            }
            // It may have been taken just before the process died.
            Completed::Known => status,
            Completed::Otherwise { status } => status,
            Completed::Refused { .. } | Completed::NotPending => return,
        };
        if matches!(holds, Status::Committed | Status::Invalid) {
            let before = *self.ends.entry(index).or_insert(holds);
            assert_eq!(before, holds, "{index} ends in two ways");
        }
    }

    /// What was taken holds from then on: the job waits for that to be delivered, or has ended so.
    pub(crate) fn check(&self, standings: &Standings) {
        for (index, end) in &self.ends {
            let way = if *end == Status::Committed { Way::Output } else { Way::Error };
            let at = &standings.jobs[index];
            let holds = matches!(at, At::Pending { .. }) || *at == At::Through(way);
            assert!(holds, "{index} is {at:?}, and it was taken that it is {end:?}: {self:?}");
        }
    }

    /// The process has died, or is through: nobody answers any more.
    pub(crate) fn hang_up(&mut self) {
        self.asked.clear();
    }
}

fn completion(dice: &mut Dice, index: u64) -> Completion {
    let all = [
        Status::Pending,
        Status::Valid,
        Status::Committed,
        Status::Committed,
        Status::Invalid,
        Status::Unknown,
    ];
    let status = *dice.pick(&all);
    let result = format!("{{\"out\":{{\"id\":{index},\"tx\":2}}}}");
    let result = (status == Status::Committed && dice.chance(50)).then_some(result);
    let reason = (status == Status::Invalid).then(|| "no".to_owned());
    Completion { status, result, reason }
}
