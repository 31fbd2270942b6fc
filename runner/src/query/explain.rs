//! `Case`: explains why a waiting job does not run, and when it may, in sentences.

use super::stopped;
use crate::output::lane_command::resume_lane;
use crate::output::table::{grouped, on_one_line};
use crate::output::times;
use tidegate_config::{Configuration, GateRef, Input, Step};
use tidegate_dispatch::{HeldLane, JobKey, WaitReason, WaitingState};
use tidegate_engine::{BlockCause, Handle, ProbeHealth, ProbeKind, QueueView, SCAN_MAX, StepBlock};
use tidegate_model::Timestamp;
use tidegate_store::{ParkReason, ParkedId, ParkedJob, ReadError, Store};

/// The jobs of a queued step, and what holds them.
pub(crate) struct WaitCase<'a> {
    pub(crate) store: &'a Store,
    pub(crate) step: &'a Step,
    pub(crate) view: Box<QueueView>,
    /// The view is that of a run.
    pub(crate) live: bool,
    /// Its gate has a name.
    gate: &'a str,
    /// No run is active, and the next run probes the gate before it starts anything.
    asks_gate: bool,
    /// Why the step starts nothing in the run.
    closed: Option<StepBlock>,
    /// The health of the gate's probe.
    gate_answers: ProbeHealth,
    monitor_answers: ProbeHealth,
    /// Why the step is stopped.
    stopped: Option<String>,
    pub(crate) now: Timestamp,
}

impl<'a> WaitCase<'a> {
    /// The step at this position as the run has it, or as the next run would find it; `None` for an ordered
    /// step.
    pub(crate) fn of(
        store: &'a Store,
        configuration: &'a Configuration,
        run: Option<&Handle>,
        (position, index): (usize, Option<u64>),
        now: Timestamp,
    ) -> Result<Option<Self>, ReadError> {
        let step = &configuration.steps[position];
        let from_queue = step.inputs.iter().all(|input| matches!(input.input, Input::Queue(_)));
        // A run does not read for a paused step; if it has no running jobs, the store knows more.
        let idle = |view: &QueueView| view.paused && from_queue && view.room.counts().running == 0;
        // A run that ends, or has not started, does not answer.
        let (view, live) = match run.and_then(|run| run.view(position)) {
            Some(view) if !idle(&view) => (Some(view), true),
            _ => (QueueView::from_store(store, configuration, step, now)?.map(Box::new), false),
        };
        let gate = step.gate.map_or("", |GateRef(gate)| configuration.gates[gate].name.as_str());
        let stats = run.map(|run| run.stats().step(position));
        let closed = stats.as_ref().and_then(|stats| stats.closed());
        let answers = |whom| stats.as_ref().map(|stats| stats.answering(whom)).unwrap_or_default();
        let (gate_answers, monitor_answers) = (answers(ProbeKind::Gate), answers(ProbeKind::Monitor));
        let stopped = stopped::sentence(store, run, (position, step), index)?;
        let asks_gate = run.is_none() && step.gate.is_some();
        Ok(view.map(|view| Self {
            store,
            step,
            view,
            live,
            gate,
            asks_gate,
            closed,
            gate_answers,
            monitor_answers,
            stopped,
            now,
        }))
    }

    /// Whether the run has the job at `index` of the input, or its row, in an attempt.
    pub(crate) fn runs(&self, index: u64, row: Option<ParkedId>) -> bool {
        let why = self.view.room.explain(self.key(index, row), self.now);
        matches!(why, Some(WaitReason::Running | WaitReason::Finished))
    }

    fn key(&self, index: u64, row: Option<ParkedId>) -> JobKey {
        let stored = || self.view.rows.iter().find(|(_, one)| Some(**one) == row).map(|(&key, _)| key);
        // Jobs that were started in this run keep the key of their place in the input.
        stored().unwrap_or(JobKey::fresh(index))
    }

    fn has_lanes(&self) -> bool {
        self.step.picks().is_some_and(|queuer| queuer.lane.is_some())
    }

    /// The reasons that hold the job at `index` of the input, or its row. The widest reason comes first.
    pub(crate) fn reasons(&self, index: u64, row: Option<ParkedId>) -> Result<Vec<String>, ReadError> {
        let (view, key) = (&self.view, self.key(index, row));
        let why = view.room.explain(key, self.now);
        // A reason that holds waiting jobs does not hold started ones.
        if let Some(why @ (WaitReason::Running | WaitReason::Pending | WaitReason::Finished)) = why {
            let mut reasons = vec![self.sentence(key, why)?];
            if why == WaitReason::Pending {
                reasons.extend(self.monitor()?);
            }
            return Ok(reasons);
        }
        let mut reasons = self.reasons_for_all();
        match why {
            // It is the job's turn, and the reasons for all jobs are listed.
            Some(WaitReason::Turn) if !reasons.is_empty() => {}
            Some(why) => reasons.push(self.sentence(key, why)?),
            None if row.is_none() && index > view.read => reasons.extend(self.unseen_at(index)),
            None => {}
        }
        Ok(reasons)
    }

    /// The reasons that hold all jobs of the step.
    pub(crate) fn reasons_for_all(&self) -> Vec<String> {
        let (view, mut reasons) = (&self.view, Vec::new());
        reasons.extend(self.stopped.clone());
        if view.paused {
            reasons.push(PAUSED.to_owned());
        }
        let closed = self.closed.as_ref();
        if let Some(again) = view.gate {
            let by_gate = |closed: &&StepBlock| matches!(closed.by, BlockCause::Gate | BlockCause::Failure);
            reasons.push(self.gate_closed(closed.filter(by_gate), again));
        }
        if let Some(since) = self.gate_answers.asked()
            && (view.gate.is_none() || times::is_long(since, self.now))
        {
            reasons.push(silent(&format!("the gate `{}`", self.gate), since, self.now));
        }
        if let Some(until) = view.held_until.filter(|&until| until > self.now) {
            let until = self.until(until);
            reasons.push(match closed.filter(|closed| matches!(closed.by, BlockCause::Setup { .. })) {
                Some(closed) => {
                    format!("the step cannot be set up{}; the next attempt is {until}", in_brackets(closed))
                }
                None => format!(
                    "a job has closed the gate{}: the step starts nothing until it opens again, {until}",
                    closed.filter(|closed| closed.by == BlockCause::Job).map(in_brackets).unwrap_or_default(),
                ),
            });
        }
        reasons
    }

    /// Why jobs behind the last scanned one cannot start.
    pub(crate) fn unseen(&self) -> String {
        match (self.view.ahead, self.view.truncated) {
            (_, true) => format!("only the first {} waiting jobs are scanned", grouped(SCAN_MAX)),
            (Some(ahead), _) if self.view.read >= ahead => {
                format!("past search-ahead: the step scans jobs up to {ahead} for now")
            }
            _ => format!("the step has read up to job {} so far", self.view.read),
        }
    }

    /// Why this job, which the step has not scanned, cannot start; `None` if it can be scanned.
    fn unseen_at(&self, index: u64) -> Option<String> {
        match self.view.ahead {
            Some(ahead) if index > ahead => {
                Some(format!("past search-ahead: the step scans jobs up to {ahead} for now"))
            }
            // A source is not read while no run is active.
            _ if self.view.read == 0 => None,
            _ => Some(self.unseen()),
        }
    }

    fn gate_closed(&self, closed: Option<&StepBlock>, again: Timestamp) -> String {
        let (gate, again) = (self.gate, self.until(again));
        let Some(closed) = closed else {
            return format!("the gate `{gate}` is closed; it is probed again {again}");
        };
        let why = in_brackets(closed);
        let trouble = self.gate_answers.trouble().map(|(since, _)| since);
        let since = times::since(trouble.unwrap_or(closed.since), self.now);
        match closed.by {
            BlockCause::Failure => format!(
                "the gate `{gate}` cannot be probed{why}, so it counts as closed since \
                 {since}; it is probed again {again}"
            ),
            BlockCause::Gate | BlockCause::Job | BlockCause::Setup { .. } => {
                format!("the gate `{gate}` is closed{why} since {since}; it is probed again {again}")
            }
        }
    }

    /// Why the completion of pending jobs may go unnoticed.
    fn monitor(&self) -> Result<Option<String>, ReadError> {
        if self.store.monitor_pauses()?.iter().any(|pause| pause.step == self.step.address) {
            let step = &self.step.address;
            return Ok(Some(format!("its monitor is paused until `tidegate step resume {step} --monitor`")));
        }
        let silent = |since| silent("the monitor", since, self.now);
        if let Some((since, why)) = self.monitor_answers.trouble() {
            let since = times::since(since, self.now);
            let why = on_one_line(why);
            return Ok(Some(format!("the monitor fails since {since}, so it stays pending: {why}")));
        }
        Ok(self.monitor_answers.asked().filter(|&since| times::is_long(since, self.now)).map(silent))
    }

    fn sentence(&self, key: JobKey, why: WaitReason) -> Result<String, ReadError> {
        Ok(match why {
            WaitReason::Running => "it runs now".to_owned(),
            WaitReason::Finished => match self.view.first_in_line.filter(|&first| first != key) {
                Some(first) => {
                    let state = self.view.room.state(first).unwrap_or(WaitingState::Waiting);
                    let first = self.other(first, state)?;
                    format!("it is finished, and delivered in the order of the input: after {first}")
                }
                None => "it is finished, and about to be delivered".to_owned(),
            },
            WaitReason::Pending => {
                let job = stored(self.store, self.step, &self.view, key)?;
                match job.as_ref().and_then(|job| job.reason.outside()) {
                    Some((.., Some(completion))) if !completion.status.waits() => {
                        "the external system has finished it; it is delivered when the step resumes"
                            .to_owned()
                    }
                    Some((handle, since, _)) => format!(
                        "it is pending in an external system since {} as `{}`",
                        times::since(since, self.now),
                        on_one_line(handle)
                    ),
                    None => "it is pending in an external system".to_owned(),
                }
            }
            WaitReason::Delayed { until } => format!("it is due {}", self.until(until)),
            WaitReason::Lane { job, state } => {
                let who = if self.has_lanes() { "its lane" } else { "it" };
                format!("{who} waits for {}", self.other(job, state)?)
            }
            WaitReason::Conflict { job, state } => {
                format!("it shares keys with {}, which goes first", self.other(job, state)?)
            }
            WaitReason::NextRound => {
                "it belongs to the next round, and this round is not finished".to_owned()
            }
            WaitReason::Pause { until } => format!("the next round begins {}", self.until(until)),
            WaitReason::Rate { until } => {
                format!("the `rate` of the step is used up; the next start is possible {}", self.until(until))
            }
            WaitReason::LaneRate { until } => {
                format!(
                    "the `lane_rate` of its lane is used up; the next start is possible {}",
                    self.until(until)
                )
            }
            WaitReason::MaxProcessing => "the limit `max_processing` of running jobs is reached".to_owned(),
            WaitReason::MaxPending => {
                let counts = self.view.room.counts();
                let most = self.step.picks().and_then(|queuer| queuer.max_pending);
                let held = counts.running + counts.pending;
                let most = most.map_or(held, |most| most.get() as usize);
                format!("{held} of {most} jobs run or are pending, as `max_pending` allows")
            }
            WaitReason::MaxPerLane => self.full_lane(key)?,
            WaitReason::LaneHeld(_) => self.held_lane(key)?,
            WaitReason::Turn if self.asks_gate => format!(
                "only the gate `{}`, which is probed first, holds it: it starts after the jobs before it",
                self.gate
            ),
            WaitReason::Turn => "nothing holds it: it starts after the jobs before it".to_owned(),
        })
    }

    /// Why its lane starts nothing. A lane that is resumed meanwhile has no reason any more.
    fn held_lane(&self, key: JobKey) -> Result<String, ReadError> {
        let lane = self.view.room.held_in_lane_of(key).map_or(&[][..], |held| held.lane);
        let lane = String::from_utf8_lossy(lane);
        let held = self.store.held_lanes(&self.step.address)?.into_iter().find(|(held, _)| **held == *lane);
        let resume = resume_lane(&self.step.address.to_string(), &lane);
        let lane = on_one_line(&lane);
        Ok(match held.and_then(|(_, hold)| hold.halted) {
            Some(why) => {
                format!(
                    "its lane `{lane}` has halted at an invalid job until `tidegate {resume}`: {}",
                    on_one_line(&why)
                )
            }
            None => format!("its lane `{lane}` is paused until `tidegate {resume}`"),
        })
    }

    /// ``lane `x`: 1 of 1 runs (job 1), as `max_per_lane` allows``
    fn full_lane(&self, key: JobKey) -> Result<String, ReadError> {
        let found = self.view.room.held_in_lane_of(key);
        let Some(HeldLane { lane, jobs, pending }) = found else { return Ok("its lane is full".to_owned()) };
        let lane = on_one_line(&String::from_utf8_lossy(lane));
        let mut indices = Vec::with_capacity(jobs.len());
        for key in jobs {
            indices.push(self.index(key)?);
        }
        indices.sort_unstable();
        let most = self.step.picks().and_then(|queuer| queuer.lane.as_ref()?.max_per_lane);
        let most = most.map_or(indices.len(), |most| most.get() as usize);
        let jobs = if indices.len() == 1 { "job" } else { "jobs" };
        let runs = match (indices.len() - pending, pending) {
            (1, 0) => "runs",
            (_, 0) => "run",
            (0, 1) => "is pending",
            (0, _) => "are pending",
            _ => "run or are pending",
        };
        let names: Vec<String> = indices.iter().map(u64::to_string).collect();
        Ok(format!(
            "lane `{lane}`: {} of {most} {runs} ({jobs} {}), as `max_per_lane` allows",
            indices.len(),
            names.join(", ")
        ))
    }

    /// The index in the input of a scanned job.
    fn index(&self, key: JobKey) -> Result<u64, ReadError> {
        let job = stored(self.store, self.step, &self.view, key)?;
        Ok(job.map_or(key.0, |job| job.inputs.first().map_or(0, |&(_, index)| index)))
    }

    /// `job 17 (pending since 3s)`
    fn other(&self, key: JobKey, state: WaitingState) -> Result<String, ReadError> {
        let job = stored(self.store, self.step, &self.view, key)?;
        let index = match &job {
            Some(job) => job.inputs.first().map_or(0, |&(_, index)| index),
            None => key.0,
        };
        let state_text = match (state, job.map(|job| job.reason)) {
            (
                WaitingState::Pending,
                Some(ParkReason::Pending { since, .. } | ParkReason::Completed { since, .. }),
            ) => {
                format!("pending since {}", times::since(since, self.now))
            }
            (WaitingState::Delayed { until }, _) => format!("due {}", self.until(until)),
            (WaitingState::Unknown, _) => "begun, to be tried first".to_owned(),
            (state, _) => state.word().to_owned(),
        };
        Ok(format!("job {index} ({state_text})"))
    }

    fn until(&self, time: Timestamp) -> String {
        times::due(time, self.now)
    }
}

/// The row of the job, if it is parked.
pub(crate) fn stored(
    store: &Store,
    step: &Step,
    view: &QueueView,
    key: JobKey,
) -> Result<Option<ParkedJob>, ReadError> {
    let Some(row) = view.rows.get(&key) else { return Ok(None) };
    Ok(store.parked(&[row.of(&step.address)])?.pop().flatten())
}

/// The sentence for a probe without an answer.
fn silent(whom: &str, since: Timestamp, now: Timestamp) -> String {
    format!("{whom} has not answered for {}", times::since(since, now))
}

/// ` (price 93 > 60)`; empty if no reason was given.
fn in_brackets(closed: &StepBlock) -> String {
    if closed.why.is_empty() { String::new() } else { format!(" ({})", on_one_line(&closed.why)) }
}

/// Why a paused step starts nothing. The command that resumes it is added when it is shown: the runner does
/// not know how the operator names the configuration.
pub(crate) const PAUSED: &str = "the step is paused";
