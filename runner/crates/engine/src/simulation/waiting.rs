//! Waiting simulation: runs one step that waits for everything possible, with the same crashes as whole
//! graphs.
//!
//! The step has any strategy, a gate, and a ledger that finishes its jobs, with a monitor for it. Its jobs
//! come from a file or from pushing clients. Operators move and cancel jobs, and pause the step. External
//! systems complete jobs on their own. A schedule runs beside it, and the clock is set back and forward.
//!
//! Every job ends exactly once. No job is attempted before its time, behind a closed gate, while it is
//! pending, or before the jobs that block it. Answered requests and accepted completions are durable. Every
//! tick comes as its source requires. Once all external systems answer, everything drains.
//!
//! | module | content |
//! | --- | --- |
//! | `plan` | the simulated step |
//! | `stored_states` | stored state of each job, and its allowed changes |
//! | `picking` | conditions for a picked job |
//! | `outside` | the gate and the ledger |
//! | `events` | the events of the step, compared with its jobs |
//! | `pushers` | clients that push jobs |
//! | `callers` | operators that move jobs |
//! | `completers` | external systems that complete jobs on their own |
//! | `ticking` | expected ticks of the schedule |

pub(crate) mod callers;
pub(crate) mod completers;
pub(crate) mod events;
pub(crate) mod outside;
pub(crate) mod picking;
pub(crate) mod plan;
pub(crate) mod pushers;
pub(crate) mod stored_states;
pub(crate) mod ticking;

use std::collections::{BTreeMap, BTreeSet};

use self::callers::Callers;
use self::completers::Completers;
use self::events::{Begins, Events};
use self::outside::Outside;
use self::picking::Picking;
use self::plan::{Feed, Job, Order, Plan};
use self::pushers::Pushers;
use self::stored_states::{At, Attempt, Cancelled, Causes, Outcome, StoredStates, Way, position};
use self::ticking::Ticking;
use super::dice::Dice;
use super::history::History;
use super::tally::Tally;
use crate::batch::input::BatchInput;
use crate::batch::job_builder::{BatchCursor, JobBuilder};
use crate::commit::inbox::Push;
use crate::coordinator::BatchTask;
use crate::operator::request::PendingRequest;
use crate::processor::monitor_protocol::StatusQuery;
use crate::runtime::message::Message;
use crate::step::claims::claims_ahead;
use crate::step::declared::DeclaredStep;
use tidegate_config::{Configuration, QueueRef};
use tidegate_dispatch::BatchId;
use tidegate_model::{Address, ExternalStatus};
use tidegate_store::{ReadError, Store};

/// Simulated step, with all observations.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Plan that the step follows.
    plan: Plan,
    /// Plans of the files, if they change.
    rules: Option<Rules>,
    step: Address,
    input: Address,
    /// Jobs by index of the input.
    jobs: BTreeMap<u64, Job>,
    stored: StoredStates,
    /// Attempts without a durable result, by index.
    attempts: BTreeMap<u64, Attempt>,
    /// Indices of the attempts, by batch.
    batches: BTreeMap<BatchId, Vec<u64>>,
    /// Jobs whose last beginning may have been followed by an attempt.
    begun: BTreeSet<u64>,
    /// Whether the step claims its jobs ahead.
    claims: bool,
    /// Batches that run.
    running: BTreeSet<BatchId>,
    picking: Picking,
    outside: Outside,
    pushers: Option<Pushers>,
    callers: Callers,
    completers: Completers,
    ticking: Option<Ticking>,
    /// Events, if the step has a queue for them.
    events: Option<Events>,
    /// Whether all external systems answer in this run, or did in the last one.
    ran_calmly: bool,
    /// Number of jobs that found their gate closed, and of jobs that the ledger did not know.
    held: u64,
    forgotten: u64,
    /// Number of invalid jobs that halted their lanes.
    halted_lanes: u64,
}

/// Plans of a step whose queuer, gate and monitor change.
#[derive(Debug)]
struct Rules {
    /// Plan of the files now.
    next: Plan,
    /// Plans of the generations that were requested in this run, by number.
    requested: BTreeMap<u64, Plan>,
}

/// Event of an external party.
#[derive(Debug)]
pub(crate) enum Coming {
    Push(Push),
    Request(PendingRequest),
}

impl Waiting {
    pub(crate) fn random(dice: &mut Dice) -> Self {
        Self::of_plan(dice, Plan::random)
    }

    pub(crate) fn of_claims_in_turn(dice: &mut Dice) -> Self {
        Self::of_plan(dice, Plan::of_claims_in_turn)
    }

    pub(crate) fn of_held_lanes(dice: &mut Dice) -> Self {
        Self::of_plan(dice, Plan::of_held_lanes)
    }

    pub(crate) fn of_changing_rules(dice: &mut Dice) -> Self {
        let waiting = Self::of_plan(dice, Plan::of_changing_rules);
        Self { rules: Some(Rules { next: waiting.plan.clone(), requested: BTreeMap::new() }), ..waiting }
    }

    fn of_plan(dice: &mut Dice, plan: fn(&mut Dice) -> Plan) -> Self {
        let plan = plan(dice);
        let between = plan.files.iter().any(|(_, text)| text.contains("from = \"q0\""));
        let address = |text: &str| Address::parse(text).unwrap();
        Self {
            rules: None,
            step: address("p/t"),
            input: address(if between { "p/q0" } else { "p/s0" }),
            jobs: BTreeMap::new(),
            stored: StoredStates::default(),
            attempts: BTreeMap::new(),
            batches: BTreeMap::new(),
            begun: BTreeSet::new(),
            claims: false,
            running: BTreeSet::new(),
            picking: Picking::default(),
            outside: Outside::default(),
            pushers: plan
                .is_pushed()
                .then(|| Pushers::new(dice, plan.feed == Feed::Keyed, plan.jobs.clone())),
            callers: Callers::new(plan.refused() == Way::Nothing, plan.holds_lanes, plan.has_monitor()),
            completers: Completers::default(),
            events: plan.has_events().then(Events::default),
            ticking: plan.ticks.map(|(every, missed)| Ticking::new(every, missed)),
            ran_calmly: false,
            held: 0,
            forgotten: 0,
            halted_lanes: 0,
            plan,
        }
    }

    pub(crate) fn files(&self) -> Vec<(&'static str, String)> {
        self.rules.as_ref().map_or(&self.plan, |rules| &rules.next).files.clone()
    }

    /// Whether the rules of the step change.
    pub(crate) fn changes(&self) -> bool {
        self.rules.is_some()
    }

    /// Changes the rules in the files.
    pub(crate) fn change(&mut self, dice: &mut Dice) {
        if let Some(rules) = &mut self.rules {
            rules.next = rules.next.with_other_rules(dice);
        }
    }

    /// Records that the rules of the files belong to this generation.
    pub(crate) fn requested(&mut self, generation: u64) {
        if let Some(Rules { next, requested }) = &mut self.rules {
            requested.insert(generation, next.clone());
        }
    }

    /// Records that the step follows a generation, with nothing in flight.
    pub(crate) fn installed(&mut self, configuration: &Configuration, step: &Address, generation: u64) {
        let plan = self.rules.as_ref().and_then(|rules| rules.requested.get(&generation));
        if let Some(plan) = plan.filter(|_| *step == self.step) {
            self.plan = plan.clone();
            self.check_claims(configuration);
        }
    }

    /// Lines of the source, if it is a file.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.plan.is_pushed() { Vec::new() } else { self.plan.jobs.clone() }
    }

    /// Begins a run.
    pub(crate) fn begin(&mut self, now: i64) {
        self.ran_calmly = self.outside.calm;
        if let Some(Rules { next, requested }) = &mut self.rules {
            self.plan = next.clone();
            requested.clear();
        }
        self.picking = Picking::default();
        self.picking.begin(&self.callers, now);
        if let Some(ticking) = &mut self.ticking {
            ticking.begin(now);
        }
    }

    /// Sets whether all external systems answer, and no request comes, from now on.
    pub(crate) fn calm(&mut self, calm: bool) {
        self.outside.calm = calm;
    }

    /// Makes all external systems answer in the middle of a run.
    pub(crate) fn calm_down(&mut self) {
        (self.outside.calm, self.ran_calmly) = (true, true);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.outside.calm
    }

    /// Whether an hour of the step has many events, so that a large jump of the clock is slow to simulate.
    pub(crate) fn is_restless(&self) -> bool {
        self.plan.gate.is_some() || self.plan.ticks.is_some_and(|(every, _)| every < 600_000)
    }

    /// Counts of the events.
    pub(crate) fn tally(&self) -> Tally {
        let ticks = self.ticking.as_ref().map_or(0, Ticking::count);
        let (request_outcome, moved) = (self.callers.request_outcome, self.callers.moved);
        Tally {
            request_outcome,
            moved,
            ticks,
            held: self.held,
            completions: self.completers.taken,
            forgotten: self.forgotten,
            halted_lanes: self.halted_lanes,
            ..Tally::default()
        }
    }

    /// Records that a batch was given to a worker, which may begin it at any time.
    pub(crate) fn begins(&mut self, BatchTask { step, id, work, .. }: &BatchTask) {
        if step.address != self.step || work.claims.is_empty() {
            return;
        }
        self.running.insert(*id);
        let count = self.running.len();
        assert!(count <= self.plan.at_once, "{count} jobs run at once: {self:#?}");
    }

    /// Checks that each job whose claim is in the store may have been begun: the others were given back.
    pub(crate) fn check_claims(&mut self, configuration: &Configuration) {
        let step = &configuration.steps[position(configuration, &self.step)];
        let claimed_before = std::mem::replace(&mut self.claims, claims_ahead(step) > 0);
        if !claimed_before {
            // Under rules without claims each job of a record may have been begun.
            self.lose_record();
        }
        if !self.claims {
            return;
        }
        for (index, at) in &self.stored.jobs {
            let begun = !matches!(at, At::Started(_)) || self.begun.contains(index);
            assert!(begun, "{index} is {at:?} and was not begun: {self:#?}");
        }
    }

    /// Records that the machine has lost which claimed jobs were begun.
    pub(crate) fn lose_record(&mut self) {
        let started = self.stored.jobs.iter().filter(|(_, at)| matches!(at, At::Started(_)));
        self.begun.extend(started.map(|(index, _)| *index));
    }

    /// Checks an attempt before it is made.
    pub(crate) fn attempt(
        &mut self,
        dice: &mut Dice,
        (step, id, work): (&DeclaredStep, BatchId, &BatchInput),
        most: usize,
        now: i64,
    ) {
        if step.address != self.step || work.verdicts.is_some() || work.is_recalled() {
            return;
        }
        let mut gatherer = JobBuilder::new(step.configuration(), step);
        let (mut walk, mut indices, mut taken) = (BatchCursor::new(work), Vec::new(), 0);
        while let Some(mut item) = gatherer.next(&mut walk, false) {
            taken += 1;
            if item.to.is_some() {
                continue;
            }
            if let Some(before) = &work.before {
                item.goes_on_after(before);
            }
            let (index, number) = (item.index(), item.attempt);
            self.begun.insert(index);
            let (job, at) = (&self.jobs[&index], &self.stored.jobs[&index]);
            let outcome = self.plan.attempt(job, number, now);
            let is_next = match at {
                At::Started(begun) => self.plan.begins && *begun == number,
                At::Fresh | At::Delayed { .. } => !self.plan.begins && at.attempts() + 1 == number,
                At::Pending { .. } | At::Finished { .. } | At::Through(_) => false,
            };
            // A blocked job of an ordered step is retried in memory, and none of that is durable.
            let in_memory = self.plan.order == Order::Stream;
            assert!(
                is_next || in_memory && number > at.attempts(),
                "{index} is {at:?}, and this is attempt {number}: {self:#?}"
            );
            match &outcome {
                Outcome::Held => _ = self.picking.holds.insert(id, (now, now + self.plan.hold())),
                Outcome::Pending(_) => {
                    let forgotten = self.completers.has_reported(index, ExternalStatus::Unknown)
                        || self.plan.gives_up_as().any(|status| status == ExternalStatus::Unknown);
                    self.outside.submit(dice, job.id, forgotten);
                }
                _ => {}
            }
            // Jobs behind one that waits for its next attempt are not attempted in this batch.
            let ends_batch = in_memory || self.plan.ordered;
            let in_a_row = self.plan.runs_in_a_row();
            if in_a_row || self.plan.claims_in_turn() {
                self.attempted_in_a_row(index, &indices);
            }
            let is_over = matches!(outcome, Outcome::Done | Outcome::Refused);
            let waits = ends_batch && matches!(outcome, Outcome::Again { .. } | Outcome::Held)
                || in_a_row && !is_over;
            let before = self.attempts.insert(index, Attempt { number, outcome, in_memory });
            assert!(before.is_none() || self.plan.repeats(), "{index} is attempted twice at once: {self:#?}");
            indices.push(index);
            if taken >= most || waits {
                break;
            }
        }
        self.batches.insert(id, indices);
    }

    /// Observes the durable state.
    pub(crate) fn look(&mut self, store: &Store, history: &History) -> Result<(), ReadError> {
        self.see_jobs(history);
        let head = self.jobs.len() as u64;
        let places = (&self.step, &self.input);
        let lates: Vec<(u64, u64)> =
            self.stored.rows.iter().filter(|(_, row)| row.1).map(|(key, row)| (key.id.0, row.0)).collect();
        let changed = self.stored.look(store, history, places, head)?;
        self.callers.look_at_holds(store, &self.step)?;
        for (index, was) in changed {
            let is = &self.stored.jobs[&index];
            let causes = self.causes(index);
            self.halted_lanes += u64::from(self.has_halted(index, (&was, is), causes.cancelled));
            let is_forgotten = matches!((&was, is), (At::Pending { .. }, At::Started(_)));
            self.forgotten += u64::from(is_forgotten);
            self.held += u64::from(causes.attempt.as_ref().is_some_and(|one| one.outcome == Outcome::Held));
            // A cancelled job may have been attempted without a trace.
            let without = Causes { attempt: None, ..causes.clone() };
            let is_explained = causes.explain(&was, is) || self.plan.repeats() && without.explain(&was, is);
            assert!(is_explained, "{index} was {was:?} and is {is:?}; {causes:?}: {self:#?}");
            if self.plan.order == Order::Stream || self.plan.ordered && self.attempts.contains_key(&index) {
                self.attempts.remove(&index);
            }
            // The external system had the job once.
            if is_forgotten {
                self.begun.insert(index);
            } else {
                self.begun.remove(&index);
            }
        }
        if self.plan.ordered {
            let early = self.stored.out_of_order(|index| self.may_be_out(index));
            assert_eq!(early, None, "the first job is delivered before the second one: {self:#?}");
        }
        if let Some(events) = &mut self.events {
            let begins = match self.plan.order {
                Order::Stream if self.plan.is_shown() => Begins::InSnapshots,
                _ if self.plan.begins => Begins::InRows,
                _ => Begins::Never,
            };
            events.look(history, &self.stored, begins);
        }
        self.completers.check(&self.stored, self.plan.refused());
        for (sequence, index) in lates {
            let there = self.stored.has_late(index) || self.stored.late.contains(&index);
            let cancelled = self.callers.cancelled_rows.contains(&sequence);
            assert!(there || cancelled, "the late output of {index} is lost: {self:#?}");
        }
        match &mut self.ticking {
            Some(ticking) => ticking.look(store, history),
            None => Ok(()),
        }
    }

    /// Whether an invalid job has halted its lane. It must do so in the commit of its end.
    fn has_halted(&self, index: u64, (was, is): (&At, &At), cancelled: Cancelled) -> bool {
        let is_invalid = matches!(was, At::Pending { .. })
            && *is == At::Through(self.plan.refused())
            && cancelled != Cancelled::AlsoPending;
        let lane = &self.jobs[&index].lane;
        let has_halted = self.callers.held_lanes.get(lane) == Some(&true);
        let halts = is_invalid && self.plan.holds_lanes;
        assert!(!halts || has_halted, "{lane} goes on after {index}: {self:#?}");
        halts
    }

    /// Records that the commit of this batch was reported.
    pub(crate) fn delivered(&mut self, id: BatchId) {
        let indices = self.batches.remove(&id);
        // A batch of an ordered step may be split: its attempts are over when their results are durable.
        let whole = self.plan.order != Order::Stream && !self.plan.ordered;
        for index in indices.into_iter().flatten().filter(|_| whole) {
            self.attempts.remove(&index);
        }
    }

    /// Ends the run, in order or not.
    pub(crate) fn hang_up(&mut self, store: &Store, in_order: bool) -> Result<(), ReadError> {
        let seen_through = self.attempts.is_empty() || self.plan.repeats();
        assert!(!in_order || seen_through, "attempts were not finished: {self:#?}");
        self.attempts.clear();
        self.batches.clear();
        self.running.clear();
        if let Some(pushers) = &mut self.pushers {
            pushers.hang_up();
        }
        self.completers.hang_up();
        self.callers.hang_up(store)
    }

    fn see_jobs(&mut self, history: &History) {
        let parse = |text: &[u8]| serde_json::from_slice::<Job>(text).unwrap();
        if !self.plan.from_queue {
            if self.jobs.is_empty() {
                self.jobs = (1..).zip(self.plan.jobs.iter().map(|job| parse(job.as_bytes()))).collect();
            }
            return;
        }
        for index in self.jobs.len() as u64 + 1..=history.head(&self.input) {
            self.jobs.insert(index, parse(&history.row(&self.input, index).payload));
        }
    }

    fn causes(&self, index: u64) -> Causes {
        let of = |set: &std::collections::BTreeSet<u64>| {
            self.stored.sequences.iter().any(|(sequence, job)| *job == index && set.contains(sequence))
        };
        let cancelled = if of(&self.callers.taken_back) || self.callers.taken_back_jobs.contains(&index) {
            Cancelled::AlsoPending
        } else if of(&self.callers.cancelled_rows) || self.callers.cancelled.contains(&index) {
            Cancelled::Waiting
        } else {
            Cancelled::No
        };
        let all =
            ExternalStatus::ALL.into_iter().filter(|status| self.completers.has_reported(index, *status));
        let outside = all.chain(self.outside.last_status(self.jobs[&index].id));
        let reported = outside.chain(self.plan.gives_up_as()).collect();
        Causes {
            begins: self.plan.begins,
            counts: self.begun.contains(&index) || !self.claims,
            attempt: self.attempts.get(&index).cloned(),
            reported,
            hastened: of(&self.callers.hastened),
            cancelled,
            refused: self.plan.refused(),
        }
    }

    pub(crate) fn look_at_gate(&mut self, dice: &mut Dice, step: (usize, u64)) -> Message {
        self.outside.look_at_gate(dice, step)
    }

    pub(crate) fn answer(&mut self, dice: &mut Dice, store: &Store, asking: StatusQuery) -> Message {
        self.outside.answer(dice, store, asking)
    }

    /// Creates a random request; with `needed` only one that the run needs to drain.
    pub(crate) fn think(
        &mut self,
        dice: &mut Dice,
        configuration: &Configuration,
        needed: bool,
    ) -> Option<Coming> {
        let pushes = needed || dice.chance(60);
        if let Some(pushers) = self.pushers.as_mut().filter(|_| pushes) {
            let is_source = |queue: &tidegate_config::Queue| queue.address.name.as_str() == "s0";
            let queue = QueueRef(configuration.queues.position(is_source).unwrap());
            return pushers.think(dice, queue, needed).map(Coming::Push);
        }
        if needed || self.outside.calm {
            return None;
        }
        if dice.chance(30)
            && let Some(asked) = self.completers.think(dice, &self.step, &self.stored)
        {
            return Some(Coming::Request(asked));
        }
        let may_take_fresh = self.plan.from_queue && self.plan.order != Order::Stream;
        self.callers.think(dice, &self.step, &self.stored, may_take_fresh).map(Coming::Request)
    }

    /// Reads the answers.
    pub(crate) fn listen(&mut self) {
        if let Some(pushers) = &mut self.pushers {
            pushers.listen();
        }
        self.callers.listen(&self.stored);
        self.completers.listen();
        self.completers.check(&self.stored, self.plan.refused());
    }

    /// Requests that a paused step resume, unless that was requested already.
    pub(crate) fn go_on(&mut self) -> Option<PendingRequest> {
        self.callers.go_on(&self.step)
    }

    /// Whether no event is left except ticks.
    pub(crate) fn is_over(&self, history: &History) -> bool {
        self.is_through() && ticking::are_read(history)
    }

    fn is_through(&self) -> bool {
        let all_there = self.pushers.as_ref().is_none_or(Pushers::is_done)
            && self.jobs.len() == self.plan.jobs.len()
            && self.stored.jobs.len() == self.jobs.len();
        let through = |at: &At| matches!(at, At::Through(_));
        all_there
            && self.stored.jobs.values().all(through)
            && self.stored.rows.is_empty()
            && (self.attempts.is_empty() || self.plan.repeats())
    }

    /// Compares the recorded jobs with the answered requests, and at the end with the expected jobs.
    pub(crate) fn check(&self, history: &History, ended: bool) {
        if let Some(pushers) = &self.pushers {
            pushers.check(history);
        }
        if !ended || !self.ran_calmly {
            return;
        }
        assert!(self.is_through(), "something waits for ever: {self:#?}");
        for (index, job) in &self.jobs {
            let output = self.stored.jobs[index] == At::Through(Way::Output);
            let cancelled =
                self.callers.cancelled_rows.iter().any(|row| self.stored.sequences.get(row) == Some(index));
            let late = self.stored.late.contains(index);
            let gives = output && job.late && !self.outside.knows(job.id);
            assert!(late == gives || !late && cancelled, "the late output of {index}: {late}; {self:#?}");
        }
    }
}
