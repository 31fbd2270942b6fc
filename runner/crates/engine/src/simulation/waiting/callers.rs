//! Operators: move and cancel waiting jobs, and pause or resume the step.

use std::collections::{BTreeMap, BTreeSet};

use crossbeam_channel::{Receiver, TryRecvError};

use super::stored_states::{At, StoredStates, Way};
use crate::operator::request::{MoveSummary, PendingRequest, Request, RequestOutcome};
use crate::simulation::dice::Dice;
use tidegate_model::Address;
use tidegate_store::{ParkedId, ReadError, Store};

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent states of a step")]
pub(crate) struct Callers {
    asked: Vec<(Request, Receiver<Result<RequestOutcome, String>>)>,
    /// Rows of the last request.
    last: Vec<ParkedId>,
    /// Rows by sequence, and indices, that were ever requested.
    pub(crate) hastened: BTreeSet<u64>,
    pub(crate) cancelled_rows: BTreeSet<u64>,
    pub(crate) cancelled: BTreeSet<u64>,
    pub(crate) taken_back_jobs: BTreeSet<u64>,
    /// Cancelled rows, by sequence, that an external system may have.
    pub(crate) taken_back: BTreeSet<u64>,
    /// Whether the step is durably paused.
    pub(crate) paused: bool,
    /// Whether the outcome of the last pause request is unknown.
    in_doubt: bool,
    /// Whether cancelled jobs are dropped: the step has no error queue for them.
    drops: bool,
    /// Whether they pause and resume lanes.
    holds_lanes: bool,
    /// Held lanes in the store, and whether they have halted.
    pub(crate) held_lanes: BTreeMap<String, bool>,
    /// Whether the step has a monitor, and whether that is paused in the store.
    has_monitor: bool,
    pub(crate) monitor_paused: bool,
    /// Number of granted requests.
    pub(crate) request_outcome: u64,
    /// Number of moved or cancelled jobs.
    pub(crate) moved: u64,
}

impl Callers {
    /// `drops`: the step has no error queue for cancelled jobs.
    pub(crate) fn new(drops: bool, holds_lanes: bool, has_monitor: bool) -> Self {
        Self { drops, holds_lanes, has_monitor, ..Self::default() }
    }

    /// Observes the held lanes and the monitor.
    pub(crate) fn look_at_holds(&mut self, store: &Store, step: &Address) -> Result<(), ReadError> {
        let held = store.held_lanes(step)?;
        self.held_lanes = held.into_iter().map(|(lane, hold)| (lane, hold.halted.is_some())).collect();
        self.monitor_paused = !store.monitor_pauses()?.is_empty();
        Ok(())
    }

    /// Creates a random request.
    pub(crate) fn think(
        &mut self,
        dice: &mut Dice,
        step: &Address,
        stored: &StoredStates,
        may_take_fresh: bool,
    ) -> Option<PendingRequest> {
        let step = step.clone();
        if self.holds_lanes && self.has_monitor && dice.chance(10) {
            return Some(self.ask(Request::PauseMonitor { step, paused: dice.chance(50) }));
        }
        if self.holds_lanes && dice.chance(40) {
            let lane = format!("l{}", dice.below(4));
            return Some(self.ask(Request::PauseLane { step, lane, paused: dice.chance(40) }));
        }
        let request = match dice.below(6) {
            0 => Request::Pause { step, paused: true },
            1 | 2 => Request::Pause { step, paused: false },
            3 | 4 => Request::MakeDue { step, rows: self.rows(dice, stored)? },
            _ => {
                let rows = self.rows(dice, stored).unwrap_or_default();
                let (drop, pending) = (self.drops || dice.chance(40), dice.chance(50));
                let mut jobs = BTreeSet::new();
                for _ in 0..if may_take_fresh { dice.below(3) } else { 0 } {
                    jobs.insert(dice.between(1, stored.jobs.len() as u64 + 1));
                }
                Request::Cancel { step, rows, jobs: jobs.into_iter().collect(), drop, pending }
            }
        };
        match &request {
            Request::MakeDue { rows, .. } => self.hastened.extend(rows.iter().map(|row| row.0)),
            Request::Cancel { rows, jobs, pending, .. } => {
                let back = rows.iter().filter(|_| *pending);
                self.taken_back.extend(back.map(|row| row.0));
                self.cancelled_rows.extend(rows.iter().map(|row| row.0));
                self.cancelled.extend(jobs);
                // A claimed job has a row when the request is carried out, and may be pending by then.
                self.taken_back_jobs.extend(jobs.iter().filter(|_| *pending));
            }
            _ => {}
        }
        Some(self.ask(request))
    }

    /// Requests that a paused step resume, unless a pause request is open.
    pub(crate) fn go_on(&mut self, step: &Address) -> Option<PendingRequest> {
        let resumes = |request: &Request, held: &String| match request {
            Request::PauseLane { lane, .. } => lane == held,
            _ => false,
        };
        let is_open = |lane: &&String| self.asked.iter().any(|(request, _)| resumes(request, lane));
        if let Some(lane) = self.held_lanes.keys().find(|lane| !is_open(lane)) {
            let (step, lane) = (step.clone(), lane.clone());
            return Some(self.ask(Request::PauseLane { step, lane, paused: false }));
        }
        let is_of_monitor = |(request, _): &(Request, _)| matches!(request, Request::PauseMonitor { .. });
        if self.monitor_paused && !self.asked.iter().any(is_of_monitor) {
            return Some(self.ask(Request::PauseMonitor { step: step.clone(), paused: false }));
        }
        let is_about_that = |(request, _): &(Request, _)| matches!(request, Request::Pause { .. });
        let wanted = self.paused && !self.asked.iter().any(is_about_that);
        wanted.then(|| self.ask(Request::Pause { step: step.clone(), paused: false }))
    }

    fn ask(&mut self, request: Request) -> PendingRequest {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.asked.push((request.clone(), answer));
        PendingRequest::new(request, reply)
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self, stored: &StoredStates) {
        for (request, answer) in std::mem::take(&mut self.asked) {
            match answer.try_recv() {
                Ok(Ok(request_outcome)) => self.request_outcome(&request, &request_outcome, stored),
                Ok(Err(why)) => panic!("{request:?} was refused: {why}"),
                Err(TryRecvError::Empty) => self.asked.push((request, answer)),
                Err(TryRecvError::Disconnected) => {}
            }
        }
    }

    fn request_outcome(
        &mut self,
        request: &Request,
        request_outcome: &RequestOutcome,
        stored: &StoredStates,
    ) {
        self.request_outcome += 1;
        match (request, request_outcome) {
            (Request::Pause { paused, .. }, RequestOutcome::Paused { changed, .. }) => {
                assert!(
                    self.in_doubt || *changed == (self.paused != *paused),
                    "{request:?}: {request_outcome:?}"
                );
                (self.paused, self.in_doubt) = (*paused, false);
            }
            (Request::PauseLane { .. } | Request::PauseMonitor { .. }, RequestOutcome::Paused { .. }) => {
                self.moved += 1;
            }
            (Request::MakeDue { rows, .. }, RequestOutcome::Hastened(moved)) => {
                let MoveSummary { jobs, busy, gone } = *moved;
                self.moved += jobs;
                assert_eq!(jobs + busy + gone, rows.len() as u64, "{request:?}: {request_outcome:?}");
            }
            (Request::Cancel { rows, jobs, drop, .. }, RequestOutcome::Cancelled(moved)) => {
                let MoveSummary { jobs: taken, busy, gone } = *moved;
                self.moved += taken;
                assert_eq!(
                    taken + busy + gone,
                    (rows.len() + jobs.len()) as u64,
                    "{request:?}: {request_outcome:?}"
                );
                let way = if *drop { Way::Nothing } else { Way::Error };
                let out = |index: &u64| stored.jobs.get(index) == Some(&At::Through(way));
                let is_stored = |row: &&ParkedId| stored.rows.keys().any(|key| key.id == **row);
                let rows_out = rows.iter().filter(|row| !is_stored(row)).count();
                let jobs_out = jobs.iter().filter(|index| out(index)).count();
                assert!(
                    rows_out + jobs_out >= usize::try_from(taken).unwrap(),
                    "{request:?}: {request_outcome:?}"
                );
            }
            odd => panic!("{odd:?}"),
        }
    }

    /// The process died or ended: no more answers come.
    pub(crate) fn hang_up(&mut self, store: &Store) -> Result<(), ReadError> {
        let is_doubted = |(request, _): &(Request, _)| matches!(request, Request::Pause { .. });
        self.in_doubt |= self.asked.iter().any(is_doubted);
        self.asked.clear();
        let paused = !store.pauses()?.is_empty();
        assert!(self.in_doubt || paused == self.paused, "the step is paused: {paused}");
        (self.paused, self.in_doubt) = (paused, false);
        Ok(())
    }

    /// Some parked jobs, present or past, or those of another open request.
    fn rows(&mut self, dice: &mut Dice, stored: &StoredStates) -> Option<Vec<ParkedId>> {
        let all: Vec<ParkedId> = stored.rows.keys().map(|key| key.id).collect();
        let count = 1 + dice.below(3);
        let mut rows = if dice.chance(40) { self.last.clone() } else { dice.several(&all, count) };
        if dice.chance(10) {
            let sequences: Vec<u64> = stored.sequences.keys().copied().collect();
            if !sequences.is_empty() {
                rows.push(ParkedId(*dice.pick(&sequences)));
            }
        }
        rows.sort_unstable();
        rows.dedup();
        self.last.clone_from(&rows);
        (!rows.is_empty()).then_some(rows)
    }
}
