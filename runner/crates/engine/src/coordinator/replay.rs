//! Replay requests: rewind a step once it has nothing in flight. Other requests go to the committer.

use std::sync::Arc;

use super::{Action, Coordinator};
use crate::commit::request::{CommitRequest, RewindTo};
use crate::operator::request::{PendingRequest, Request, RequestOutcome};
use tidegate_config::Input;
use tidegate_dispatch::{Command, Event, InputPort};
use tidegate_model::Timestamp;

impl Coordinator {
    pub(crate) fn asked(
        &mut self,
        asked: PendingRequest,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let Request::Replay { step: address, from } = &asked.request else {
            if let Some(asked) = self.lock_rows_for_request(asked, now, commands) {
                actions.push(Action::Commit(CommitRequest::Amend(asked)));
            }
            return;
        };
        let step = self.configuration.steps.position(|step| step.address == *address);
        let wanted = step.map(|step| {
            let at = |input: &tidegate_config::InputRef| {
                let found = from.iter().find(|(address, _)| *address == input.address);
                found.map_or(RewindTo::Stay, |&(_, index)| RewindTo::Index(index))
            };
            // Jobs in flight are not accounted for yet, so the positions of the other inputs are known later.
            let inputs = self.configuration.steps[step].inputs.iter();
            (step, inputs.map(at).collect())
        });
        match wanted {
            None => asked.answer(Err(format!("the runner has no step `{address}`"))),
            Some((step, _)) if self.buffers[step].is_some() => {
                asked.answer(Err(format!(
                    "step `{address}` has a queuer and cannot be replayed while a runner is running: stop the runner, replay, and start it again"
                )));
            }
            Some((step, _)) if self.rewinds.contains_key(&step) => {
                asked.answer(Err(format!("step `{address}` is already being replayed")));
            }
            Some((step, to)) => {
                self.rewinds.insert(step, (to, asked));
                self.dispatcher.handle(Event::Rewind { step }, now, commands);
            }
        }
    }

    pub(crate) fn rewound(
        &mut self,
        (step, next): (usize, &[u64]),
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        // The step has nothing in flight; its reads of redelivered jobs were dropped.
        self.returned[step].clear();
        let configuration = Arc::clone(&self.configuration);
        let inputs = &configuration.steps[step].inputs;
        for (input, (declared, &next)) in inputs.iter().zip(next).enumerate() {
            self.read_up_to[step][input] = next;
            if let Input::Source(_) = declared.input {
                let port = InputPort { step, input };
                self.readers[step][input] += 1;
                actions.push(Action::ReopenSource { port, reader: self.readers[step][input], next });
            }
        }
        if let Some((_, asked)) = self.rewinds.remove(&step) {
            let from = inputs.iter().zip(next).map(|(input, &next)| (input.address.clone(), next));
            asked.answer(Ok(RequestOutcome::Replayed { from: from.collect() }));
        }
        self.dispatcher.rewound(step, next, now, commands);
    }
}
