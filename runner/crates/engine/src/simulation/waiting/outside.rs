//! External systems: simulate a gate, and a ledger that finishes jobs and reports their status, or fails to.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tidegate_plugin::{Failure, FailureKind};

use crate::processor::monitor_protocol;
use crate::processor::monitor_protocol::StatusQuery;
use crate::runtime::message::Message;
use crate::simulation::dice::Dice;
use tidegate_model::ExternalStatus;
use tidegate_store::{ParkedJob, Store};

#[derive(Debug, Default)]
pub(crate) struct Outside {
    gate_open: bool,
    /// Jobs by number.
    committed_state: BTreeMap<u64, Entry>,
    /// Whether all calls succeed and the gate is open.
    pub(crate) calm: bool,
}

/// Job in the ledger.
#[derive(Debug)]
struct Entry {
    /// Next statuses, in order.
    ahead: Vec<ExternalStatus>,
    status: ExternalStatus,
    reported: Option<ExternalStatus>,
    /// Whether it was ever reported as valid.
    was_valid: bool,
}

impl Outside {
    pub(crate) fn look_at_gate(&mut self, dice: &mut Dice, (step, epoch): (usize, u64)) -> Message {
        self.gate_open = self.calm || if dice.chance(40) { dice.chance(50) } else { self.gate_open };
        let closed = |kind, why| Err(Failure::new(kind, why));
        let seen = match dice.below(4) {
            0 if !self.gate_open => closed(FailureKind::GateClosed, "price 93 > 60"),
            1 if !self.calm && dice.chance(20) => closed(FailureKind::Limit, "it hung"),
            _ => Ok(self.gate_open),
        };
        Message::GateResult { step, epoch, seen }
    }

    /// Accepts a submitted job, perhaps not for the first time. `forgotten`: it was reported as unknown
    /// before.
    pub(crate) fn submit(&mut self, dice: &mut Dice, id: u64, forgotten: bool) {
        let last = self.last_status(id);
        assert!(
            forgotten || !matches!(last, Some(ExternalStatus::Committed | ExternalStatus::Invalid)),
            "job {id} is {last:?}, and is submitted again"
        );
        if self.committed_state.contains_key(&id) && last != Some(ExternalStatus::Unknown) {
            // The ledger knows the job by its key.
            return;
        }
        let mut ahead = Vec::new();
        ahead.resize(dice.below(3), ExternalStatus::Pending);
        ahead.resize(ahead.len() + dice.below(2), ExternalStatus::Valid);
        let end = [
            ExternalStatus::Committed,
            ExternalStatus::Committed,
            ExternalStatus::Committed,
            ExternalStatus::Invalid,
            ExternalStatus::Unknown,
        ];
        ahead.push(*dice.pick(&end));
        ahead.reverse();
        self.committed_state
            .insert(id, Entry { ahead, status: ExternalStatus::Pending, reported: None, was_valid: false });
    }

    /// Last well-formed status of a job.
    pub(crate) fn last_status(&self, id: u64) -> Option<ExternalStatus> {
        self.committed_state.get(&id)?.reported
    }

    /// Whether a job was reported as valid since it was submitted. A later status may not have arrived.
    pub(crate) fn was_valid(&self, id: u64) -> bool {
        self.committed_state.get(&id).is_some_and(|entry| entry.was_valid)
    }

    /// Whether a job was ever submitted.
    pub(crate) fn knows(&self, id: u64) -> bool {
        self.committed_state.contains_key(&id)
    }

    /// Answers a monitor like a worker, for a ledger that makes mistakes.
    pub(crate) fn answer(&mut self, dice: &mut Dice, store: &Store, asking: StatusQuery) -> Message {
        let StatusQuery { step, epoch, ask, jobs } = asking;
        let (keys, rows): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        let found = store.parked(&rows).unwrap();
        let waits = |job: &ParkedJob| job.reason.status().is_some_and(ExternalStatus::waits);
        let jobs = keys.into_iter().zip(found).filter_map(|(key, job)| Some((key, job.filter(waits)?)));
        let jobs: Vec<_> = jobs.collect();
        let asked: Vec<(u64, String)> = jobs.iter().map(|(_, job)| asked(job)).collect();
        let question = monitor_protocol::encode_query(&jobs).unwrap();
        let handles: Vec<Value> = serde_json::from_slice(&question).unwrap();
        assert_eq!(handles.len(), asked.len(), "only pending jobs are polled");
        let trouble = if self.calm { 9 } else { dice.below(10) };
        let seen = match trouble {
            0 => Err(Failure::new(FailureKind::Limit, "it hung")),
            1 => read(&json!(7), &jobs),
            2 => read(&json!(vec!["committed"; jobs.len() + 1]), &jobs),
            _ if dice.chance(50) => {
                let list: Vec<Value> = asked.iter().map(|(id, _)| self.report(dice, *id)).collect();
                read(&json!(list), &jobs)
            }
            _ => {
                let mut map: Map<String, Value> =
                    asked.iter().map(|(id, handle)| (handle.clone(), self.report(dice, *id))).collect();
                if !self.calm {
                    self.report_others(dice, &asked, &mut map);
                }
                read(&map.into(), &jobs)
            }
        };
        Message::StatusResult { step: step.position, epoch, ask, seen }
    }

    /// Adds answers for jobs that were not polled.
    fn report_others(&self, dice: &mut Dice, asked: &[(u64, String)], map: &mut Map<String, Value>) {
        let others = self.committed_state.keys().filter(|id| !asked.iter().any(|(one, _)| one == *id));
        for id in others {
            let word = *dice.pick(&["committed", "invalid", "unknown"]);
            map.insert(handle(*id, 1), word.into());
            map.insert(handle(*id, 2), word.into());
        }
    }

    fn report(&mut self, dice: &mut Dice, id: u64) -> Value {
        let entry = self.committed_state.get_mut(&id).unwrap_or_else(|| panic!("{id} was never handed over"));
        if !self.calm {
            match dice.below(12) {
                0 => return Value::Null,
                1 => return json!("vaild"),
                2 => return json!(["committed"]),
                // The table does not allow this change of a valid job.
                3 if entry.reported == Some(ExternalStatus::Valid) => return json!("pending"),
                _ => {}
            }
        }
        if (self.calm || dice.chance(60))
            && let Some(next) = entry.ahead.pop()
        {
            entry.status = next;
        }
        entry.reported = Some(entry.status);
        entry.was_valid |= entry.status == ExternalStatus::Valid;
        let word = entry.status.as_str();
        match entry.status {
            ExternalStatus::Committed if dice.chance(50) => {
                json!({ "status": word, "result": { "out": { "id": id, "tx": 1 } } })
            }
            ExternalStatus::Invalid => json!({ "status": word, "reason": "no" }),
            _ => json!(word),
        }
    }
}

/// Handle of an attempt.
pub(crate) fn handle(id: u64, attempt: u32) -> String {
    format!("h{id}.{attempt}")
}

fn asked(job: &ParkedJob) -> (u64, String) {
    let Some((handle, ..)) = job.reason.outside() else { panic!("{job:?} is not pending") };
    let id = handle[1..].split('.').next().unwrap().parse().unwrap();
    (id, handle.to_owned())
}

/// Decodes the answer like a worker.
fn read(
    answer: &Value,
    jobs: &[(tidegate_dispatch::JobKey, ParkedJob)],
) -> Result<monitor_protocol::StatusReport, Failure> {
    monitor_protocol::read(answer.to_string().as_bytes(), jobs)
        .map_err(|why| Failure::new(FailureKind::Output, why))
}
