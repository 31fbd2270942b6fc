//! Operator requests: send random requests to a run, and record their outcomes as far as they are known.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, TryRecvError};
use serde_json::{Value, json};

use super::dice::Dice;
use super::history::History;
use crate::operator::request::{PendingRequest, Request, RequestOutcome};
use tidegate_config::{Configuration, Input, QueueRef, Retain, Step};
use tidegate_model::{Address, Origin};
use tidegate_store::Store;

#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) all: Vec<Wish>,
    pushed: u64,
}

#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) request: Request,
    /// Channel of the answer.
    reply: Option<Receiver<Result<RequestOutcome, String>>>,
    pub(crate) request_outcome: bool,
}

impl Requests {
    /// Creates a random request; `None` if there is none to make.
    pub(crate) fn think(
        &mut self,
        dice: &mut Dice,
        history: &History,
        configuration: &Configuration,
    ) -> Option<Request> {
        match dice.below(4) {
            0 => self.push(dice, configuration),
            1 | 2 => self.deal_with_errors(dice, history, configuration),
            _ => self.replay(dice, history, configuration),
        }
    }

    fn push(&mut self, dice: &mut Dice, configuration: &Configuration) -> Option<Request> {
        let plain: Vec<_> = configuration.queues.iter().filter(|queue| !queue.holds_errors).collect();
        if plain.is_empty() {
            return None;
        }
        let queue = dice.pick(&plain).address.clone();
        let mut jobs: Vec<String> = Vec::new();
        for _ in 0..dice.between(1, 3) {
            self.pushed += 1;
            let (id, n) = (format!("push{}", self.pushed), dice.between(0, 30));
            jobs.push(json!({ "id": id, "n": n, "type": "x", "topics": ["odd"] }).to_string());
        }
        if dice.chance(10) {
            jobs.push("{\"id\":".into());
        }
        Some(Request::Push { queue, jobs, due: None })
    }

    fn deal_with_errors(
        &mut self,
        dice: &mut Dice,
        history: &History,
        configuration: &Configuration,
    ) -> Option<Request> {
        let holds = |queue: &&tidegate_config::Queue| queue.holds_errors && history.head(&queue.address) > 0;
        let queues: Vec<_> = configuration.queues.iter().filter(holds).collect();
        if queues.is_empty() {
            return None;
        }
        let queue = dice.pick(&queues).address.clone();
        let mut errors: Vec<u64> = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let index = dice.between(1, history.head(&queue));
            let known = history.rows[&queue][usize::try_from(index).unwrap() - 1].as_ref();
            let origin = known.and_then(|row| row.origin.as_ref());
            let may = |origin: &Origin| self.may_retry(history, &origin.step);
            if origin.is_some_and(may) && !errors.contains(&index) && !self.is_asked(&queue, index) {
                errors.push(index);
            }
        }
        if errors.is_empty() {
            return None;
        }
        Some(if dice.chance(70) { Request::Retry { queue, errors } } else { Request::Drop { queue, errors } })
    }

    fn replay(
        &mut self,
        dice: &mut Dice,
        history: &History,
        configuration: &Configuration,
    ) -> Option<Request> {
        let steps: Vec<&Step> = configuration.steps.iter().collect();
        let step = *dice.pick(&steps);
        // Jobs that retention deletes meanwhile cannot run again.
        let stays = |input: &tidegate_config::InputRef| match input.input {
            Input::Source(_) => true,
            Input::Queue(QueueRef(queue)) => {
                let queue = &configuration.queues[queue];
                queue.retain == Retain::Forever && queue.max_size.is_none()
            }
        };
        let retried = || {
            self.all.iter().any(|wish| match &wish.request {
                Request::Retry { queue, errors } => errors.iter().any(|&index| {
                    history
                        .row(queue, index)
                        .origin
                        .as_ref()
                        .is_some_and(|origin| origin.step == step.address)
                }),
                _ => false,
            })
        };
        if !step.inputs.iter().all(stays) || configuration.dedupes(step) && retried() {
            return None;
        }
        let next = history.steps[&step.address].next();
        let mut from = Vec::new();
        for (input, &next) in step.inputs.iter().zip(next) {
            if from.is_empty() || dice.chance(50) {
                from.push((input.address.clone(), dice.between(1, next + 1)));
            }
        }
        Some(Request::Replay { step: step.address.clone(), from })
    }

    /// Whether an answer about the error is still open.
    fn is_asked(&self, queue: &Address, index: u64) -> bool {
        self.all.iter().filter(|wish| wish.reply.is_some()).any(|wish| wish.deals_with(queue, index))
    }

    /// Whether an error may be retried now. The order of a retry and a replay is unknown, and it matters for
    /// a step that makes no delivery twice.
    fn may_retry(&self, history: &History, step: &Address) -> bool {
        let known = &history.steps[step];
        let replayed = || {
            self.all
                .iter()
                .any(|wish| matches!(&wish.request, Request::Replay { step: one, .. } if one == step))
        };
        !known.last().configuration.dedupes(&known.last().step) || !replayed()
    }

    pub(crate) fn ask(&mut self, request: Request) -> PendingRequest {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.all.push(Wish { request: request.clone(), reply: Some(answer), request_outcome: false });
        PendingRequest::new(request, reply)
    }

    /// Records a request that was applied to a stopped store.
    pub(crate) fn done(&mut self, request: Request) {
        self.all.push(Wish { request, reply: None, request_outcome: true });
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self) {
        for wish in &mut self.all {
            match wish.reply.as_ref().map(Receiver::try_recv) {
                Some(Ok(answer)) => {
                    wish.request_outcome = answer.is_ok();
                    wish.reply = None;
                }
                None | Some(Err(TryRecvError::Empty | TryRecvError::Disconnected)) => {}
            }
        }
    }

    /// Determines the outcome of requests without an answer. An answer during a power failure does not count.
    pub(crate) fn settle(&mut self, history: &History, store: &Store) {
        for at in 0..self.all.len() {
            if self.all[at].reply.take().is_none() {
                continue;
            }
            let request_outcome = match &self.all[at].request {
                Request::Push { queue, jobs, .. } => history
                    .rows
                    .get(queue)
                    .is_some_and(|rows| rows.iter().flatten().any(|row| row.payload == jobs[0].as_bytes())),
                Request::Retry { queue, errors } | Request::Drop { queue, errors } => {
                    let handled = store.handled(queue).unwrap().unwrap_or_default();
                    let before = |index| {
                        self.all.iter().any(|wish| wish.request_outcome && wish.deals_with(queue, index))
                    };
                    errors.iter().all(|&index| handled.is_done(index) && !before(index))
                }
                // There are no other requests.
                _ => false,
            };
            self.all[at].request_outcome = request_outcome;
        }
        let mut times: BTreeMap<(&Address, u64), u32> = BTreeMap::new();
        for wish in self.all.iter().filter(|wish| wish.request_outcome) {
            if let Request::Retry { queue, errors } | Request::Drop { queue, errors } = &wish.request {
                for &index in errors {
                    *times.entry((queue, index)).or_default() += 1;
                }
            }
        }
        for ((queue, index), times) in times {
            assert_eq!(times, 1, "{queue}/{index} was handled twice");
            assert!(store.handled(queue).unwrap().unwrap().is_done(index), "{queue}/{index} was handled");
        }
    }

    /// Errors that were retried.
    pub(crate) fn retried(&self) -> Vec<(&Address, u64)> {
        let mut all = Vec::new();
        for wish in self.all.iter().filter(|wish| wish.request_outcome) {
            if let Request::Retry { queue, errors } = &wish.request {
                all.extend(errors.iter().map(|&index| (queue, index)));
            }
        }
        all
    }

    /// Compares the jobs without an origin with the pushed ones.
    pub(crate) fn check_pushes(&self, history: &History) {
        for (queue, rows) in &history.rows {
            let loose = rows.iter().flatten().filter(|row| row.origin.is_none());
            let found: Vec<Value> = loose.map(|row| serde_json::from_slice(&row.payload).unwrap()).collect();
            let mut wanted = Vec::new();
            for wish in self.all.iter().filter(|wish| wish.request_outcome) {
                match &wish.request {
                    Request::Push { queue: to, jobs, .. } if to == queue => {
                        wanted.extend(jobs.iter().map(|job| serde_json::from_str::<Value>(job).unwrap()));
                    }
                    _ => {}
                }
            }
            if rows.iter().all(Option::is_some) {
                assert_eq!(found, wanted, "{queue} has the pushed jobs in order");
            }
        }
    }
}

impl Wish {
    fn deals_with(&self, with: &Address, index: u64) -> bool {
        match &self.request {
            Request::Retry { queue, errors } | Request::Drop { queue, errors } => {
                queue == with && errors.contains(&index)
            }
            _ => false,
        }
    }
}
