//! Pushing clients: push jobs, and repeat each push under the same keys until it is answered.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, TryRecvError};
use tidegate_plugin::Payloads;

use crate::commit::inbox::{IdempotencyKey, KeyConflict, Push, Pushed, PushedPlace};
use crate::simulation::dice::Dice;
use crate::simulation::history::History;
use tidegate_config::QueueRef;
use tidegate_model::{Address, content_hash, key_hash};

#[derive(Debug)]
pub(crate) struct Pushers {
    /// Whether each job has its own key; otherwise a push has one.
    keyed: bool,
    queued_pushes: Vec<Letter>,
    asked: Vec<Asked>,
}

/// Jobs that are pushed together.
#[derive(Debug)]
struct Letter {
    jobs: Vec<String>,
    /// Index of the first job, once the push is answered.
    first: Option<u64>,
    sent: bool,
}

#[derive(Debug)]
struct Asked {
    /// Positions of the letters, in order.
    queued_pushes: Vec<usize>,
    /// Whether the push has other content under a used key.
    forged: bool,
    answer: Receiver<Result<Pushed, KeyConflict>>,
}

impl Pushers {
    pub(crate) fn new(dice: &mut Dice, keyed: bool, jobs: Vec<String>) -> Self {
        let mut queued_pushes = Vec::new();
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let count = if keyed { 1 } else { 1 + dice.below(3) };
            queued_pushes.push(Letter {
                jobs: jobs.by_ref().take(count).collect(),
                first: None,
                sent: false,
            });
        }
        Self { keyed, queued_pushes, asked: Vec::new() }
    }

    /// Creates a push; with `needed` only of jobs without an answer. Returns `None` if none is left.
    pub(crate) fn think(&mut self, dice: &mut Dice, queue: QueueRef, needed: bool) -> Option<Push> {
        let waited_for = |at: usize| self.asked.iter().any(|asked| asked.queued_pushes.contains(&at));
        let open = |at: &usize| self.queued_pushes[*at].first.is_none() && !(needed && waited_for(*at));
        let open: Vec<usize> = (0..self.queued_pushes.len()).filter(open).collect();
        let count = if self.keyed { 1 + dice.below(3) } else { 1 };
        let mut queued_pushes: Vec<usize> = open.into_iter().take(count).collect();
        let sent: Vec<usize> =
            (0..self.queued_pushes.len()).filter(|&at| self.queued_pushes[at].sent).collect();
        if !needed && !sent.is_empty() && dice.chance(40) {
            let again = *dice.pick(&sent);
            if self.keyed { queued_pushes.push(again) } else { queued_pushes = vec![again] }
        }
        let (&first, known) = (queued_pushes.first()?, |at: &usize| self.queued_pushes[*at].first.is_some());
        let forged = !needed && queued_pushes.iter().all(known) && dice.chance(30);
        for &at in &queued_pushes {
            self.queued_pushes[at].sent = true;
        }
        let all = queued_pushes.iter().flat_map(|&at| &self.queued_pushes[at].jobs);
        let jobs: Vec<String> =
            all.map(|job| if forged { job.replace("\"id\"", "\"ID\"") } else { job.clone() }).collect();
        let contents = |text: &str| content_hash(text.as_bytes());
        let each: Vec<IdempotencyKey> = if self.keyed {
            queued_pushes
                .iter()
                .zip(&jobs)
                .map(|(at, job)| IdempotencyKey { hash: hash(*at), content: contents(job), verbatim: 0 })
                .collect()
        } else {
            Vec::new()
        };
        let whole = (!self.keyed).then(|| IdempotencyKey {
            hash: hash(first),
            content: contents(&jobs.join("\n")),
            verbatim: 0,
        });
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.asked.push(Asked { queued_pushes, forged, answer });
        let jobs: Payloads = jobs.iter().map(String::as_bytes).collect();
        let answer = Box::new(move |outcome| _ = reply.send(outcome));
        Some(Push { queue, jobs, whole, each, late: BTreeMap::new(), answer })
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self) {
        for Asked { queued_pushes, forged, answer } in std::mem::take(&mut self.asked) {
            match answer.try_recv() {
                Ok(outcome) => self.answered(&queued_pushes, forged, outcome),
                Err(TryRecvError::Empty) => self.asked.push(Asked { queued_pushes, forged, answer }),
                Err(TryRecvError::Disconnected) => {}
            }
        }
    }

    fn answered(&mut self, queued_pushes: &[usize], forged: bool, outcome: Result<Pushed, KeyConflict>) {
        let pushed = match (outcome, forged) {
            (Err(conflict), true) => {
                let first = self.queued_pushes[queued_pushes[conflict.position.unwrap_or(0)]].first;
                return assert_eq!(conflict.earlier, first.map(PushedPlace::Index), "the index differs");
            }
            (Ok(pushed), false) => pushed,
            (outcome, _) => panic!("{queued_pushes:?}, forged {forged}: {outcome:?}"),
        };
        let jobs: usize = queued_pushes.iter().map(|&at| self.queued_pushes[at].jobs.len()).sum();
        let (mut next, known) = match pushed {
            Pushed::Appended { first, jobs: new, known, late: _ } => {
                assert_eq!(new + known.len() as u64, jobs as u64);
                (first, known)
            }
            Pushed::Known { first, jobs: before, .. } => {
                assert_eq!(before, jobs as u64);
                (first, Vec::new())
            }
        };
        for (position, &at) in queued_pushes.iter().enumerate() {
            let before = known.iter().find(|(one, _)| *one == position).and_then(|(_, place)| match place {
                PushedPlace::Index(index) => Some(*index),
                PushedPlace::Late(_) => None,
            });
            let first = before.unwrap_or(next);
            next += if before.is_none() { self.queued_pushes[at].jobs.len() as u64 } else { 0 };
            let letter = &mut self.queued_pushes[at];
            assert!(letter.first.is_none_or(|one| one == first), "{letter:?} is answered for with {first}");
            letter.first = Some(first);
        }
    }

    /// The process died: no more answers come.
    pub(crate) fn hang_up(&mut self) {
        self.asked.clear();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.queued_pushes.iter().all(|letter| letter.first.is_some())
    }

    /// Checks that answered pushes are at their indices, and that no job is appended twice.
    pub(crate) fn check(&self, history: &History) {
        let queue = Address::parse("p/s0").unwrap();
        for letter in &self.queued_pushes {
            for (job, index) in letter.jobs.iter().zip(letter.first.into_iter().flat_map(|first| first..)) {
                assert!(index <= history.head(&queue), "{queue}/{index} was answered for, and is lost");
                assert_eq!(history.row(&queue, index).payload, job.as_bytes(), "{queue}/{index}");
            }
        }
        let rows = history.rows.get(&queue).map(Vec::as_slice).unwrap_or_default();
        let mut all: Vec<&[u8]> = rows.iter().flatten().map(|row| &*row.payload).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]), "a push was accepted twice");
        let known = |job: &[u8]| {
            self.queued_pushes.iter().any(|letter| letter.jobs.iter().any(|one| one.as_bytes() == job))
        };
        assert!(all.iter().all(|job| known(job)), "other content was accepted");
    }
}

fn hash(letter: usize) -> tidegate_model::DeliveryHash {
    key_hash("p", "s0", "id", letter.to_string().as_bytes())
}
