//! Committer: makes deliveries durable on one thread, first in the sinks, then in one transaction of the
//! store.
//!
//! A delivery is committed whole or not at all. The deliveries of one step are committed in order. A full
//! disk only delays them.

pub(crate) mod completions;
pub(crate) mod disk_full;
pub(crate) mod group;
pub(crate) mod operator;
pub(crate) mod reload;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use tidegate_plugin::Payloads;

use super::committed_state::CommittedState;
use super::inbox::Inbox;
use super::ingest::IngestGroup;
use super::queue_cache::QueueCaches;
use super::queue_tables::QueueTables;
use super::request::{CommitRequest, RewindTo, StepChange};
use super::sinks::{FailedSink, Positions, Sinks};
use crate::error::EngineError;
use crate::recovery::sources::OpenSources;
use crate::recovery::start_position;
use crate::runtime::message::{CommitNotice, Message, ParkedRow};
use crate::step::declared::DeclaredStep;
use crate::step::stats::Stats;
use crate::step::turn;
use tidegate_config::{Input, QueueRef, Target};
use tidegate_dispatch::Hold;
use tidegate_model::log_target;
use tidegate_model::{Batch, Clock, Stamp, Timestamp};
use tidegate_store::{Block, Changes, CrashGuard, StepStop, Store, Writer};

use self::disk_full::CommitOutcome;
use self::group::{CommitGroup, GroupChanges, GroupPart, MoreRequests};

/// Maximum age of a group while workers still run: a few large commits cost less than many small ones.
const GROUP_AGE: Duration = Duration::from_millis(5);

/// State of the committer thread.
pub(crate) struct Committer {
    pub(crate) writer: Writer,
    pub(crate) store: Store,
    pub(crate) attempts: CrashGuard,
    /// Changes of the start of the run, committed before all others.
    pub(crate) opening: Option<Changes>,
    pub(crate) committed_state: CommittedState,
    pub(crate) sinks: Sinks,
    pub(crate) sources: OpenSources,
    /// Steps with a refused delivery: a later one would leave a gap.
    pub(crate) broken_steps: BTreeSet<usize>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) tails: Arc<QueueCaches>,
    pub(crate) tables: Arc<QueueTables>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Number of batches that will reach the committer without waiting for another batch.
    pub(crate) batches_awaiting_commit: Arc<AtomicUsize>,
    /// Time between two attempts to write to a full disk.
    pub(crate) retry_after: Duration,
    pub(crate) messages: Sender<Message>,
    /// Closed at the end of the run: the committer then waits no longer for room.
    pub(crate) stop: Receiver<()>,
    /// Set by a stop.
    pub(crate) ending: Arc<AtomicBool>,
}

/// Requests as other threads send them. The group waits briefly for a batch that is about to come, unless a
/// client waits for the group.
struct Sent<'a> {
    requests: &'a Receiver<CommitRequest>,
    coming: &'a AtomicUsize,
    /// End of the wait.
    close: Instant,
}

impl MoreRequests for Sent<'_> {
    fn next(&mut self, is_waited_for: bool) -> Option<CommitRequest> {
        match self.requests.try_recv() {
            Ok(more) => Some(more),
            Err(_) if is_waited_for || self.coming.load(Ordering::Acquire) == 0 => None,
            Err(_) => self.requests.recv_deadline(self.close).ok(),
        }
    }
}

impl Committer {
    /// Commits until `orders` is closed, then records that the sinks are closed in order.
    ///
    /// # Errors
    /// The store fails. No job is lost: the next run delivers all jobs that were not committed.
    pub(crate) fn run(mut self, orders: &Receiver<CommitRequest>) -> Result<Writer, EngineError> {
        self.open()?;
        let mut last_commit = Instant::now();
        while let Some(first) = self.next(orders) {
            let mut sent = Sent {
                requests: orders,
                coming: &self.batches_awaiting_commit,
                close: last_commit + GROUP_AGE,
            };
            let group = CommitGroup::collect(first, &self.inbox, &mut sent);
            for part in group.parts() {
                self.commit_part(part)?;
            }
            last_commit = Instant::now();
        }
        self.close()
    }

    /// Next request; `None` if no work is left. The last group may have left pushes in the inbox.
    fn next(&self, orders: &Receiver<CommitRequest>) -> Option<CommitRequest> {
        if !self.inbox.is_empty() {
            return Some(CommitRequest::InboxReady);
        }
        // The last pushes may have come without a message.
        orders.recv().ok().or_else(|| (!self.inbox.is_empty()).then_some(CommitRequest::InboxReady))
    }

    /// Commits the changes of the start of the run.
    pub(crate) fn open(&mut self) -> Result<(), EngineError> {
        self.publish_backlog();
        if let Some(opening) = self.opening.take() {
            let mut logged = false;
            while self.commit_changes(&opening, &mut logged)?.is_none() {}
            start_position::log_starts(&opening);
        }
        for step in self.committed_state.joins() {
            self.publish_unmatched(step);
        }
        Ok(())
    }

    /// Records that the sinks are closed in order.
    pub(crate) fn close(mut self) -> Result<Writer, EngineError> {
        self.close_sinks()?;
        Ok(self.writer)
    }

    /// Commits a part of a group, with as many attempts as it takes.
    pub(crate) fn commit_part(&mut self, part: GroupPart) -> Result<(), EngineError> {
        match part {
            GroupPart::Changes(changes) => self.commit(changes),
            GroupPart::Stops(stops) => self.note_stopped(stops),
            GroupPart::Retention => self.apply_retention(),
            GroupPart::Completions(completions) => self.complete(&completions),
            GroupPart::Operator(asked) => self.amend(&asked),
            GroupPart::Reload(change) => self.reload(change),
        }
    }

    /// Commits the changes of steps, pushed jobs, ticks and late jobs that are due in one transaction.
    pub(crate) fn commit(&mut self, changes: GroupChanges) -> Result<(), EngineError> {
        let GroupChanges { entries: mut group, pushes, ticked, printed, late } = changes;
        let (mut logged, mut short) = (false, false);
        self.pair_jobs(&mut group)?;
        let (state, store) = (&self.committed_state, &self.store);
        let ingest = IngestGroup::of(pushes, state, store, self.clock.now())?.with_ticks(ticked);
        let ingest = ingest.with_printed(printed, state, self.clock.now());
        let ingest = ingest.with_due(late, state, store, self.clock.now())?;
        loop {
            self.reject_broken_steps(&mut group);
            if group.is_empty() && ingest.is_empty() {
                let late = self.next_late(ingest.late_queues());
                if !late.is_empty() {
                    let _ = self
                        .messages
                        .send(Message::Committed(CommitNotice { late, ..CommitNotice::default() }));
                }
                ingest.answer();
                return Ok(());
            }
            self.cancel_rewinds_past_retention(&mut group)?;
            let positions = match self.write_sinks(&group)? {
                Ok(positions) => positions,
                Err((sink, error)) => {
                    self.sinks.roll_back();
                    if error.is_full() {
                        self.wait_for_room(error.into(), &mut logged)?;
                    } else if error.is_short_of_files() {
                        self.wait_for_files(sink, error.into(), &mut short)?;
                    } else {
                        self.sinks.give_up(sink, error);
                    }
                    continue;
                }
            };
            let mut page = self.committed_state.prepare(&group, &positions, self.clock.now());
            ingest.add_to(&self.committed_state, &mut page.changes);
            let Some(committed) = self.commit_changes(&page.changes, &mut logged)? else {
                self.sinks.roll_back();
                continue;
            };
            if logged {
                tracing::info!(target: log_target::ENGINE, "the disk has room again; the run resumes");
            }
            self.sinks.committed(&positions);
            let events = self.committed_state.apply(&group, page);
            self.notify_committed(group, ingest, events, committed);
            return Ok(());
        }
    }

    /// Deletes jobs that are older than their queues' limit. If there are none, nothing is written.
    pub(crate) fn apply_retention(&mut self) -> Result<(), EngineError> {
        let now = self.clock.now();
        let mut changes = Changes { now, ..Changes::default() };
        for trim in self.committed_state.trims_by_age(now) {
            if self.store.would_trim(&trim)? {
                changes.trims.push(trim);
            }
        }
        let mut logged = false;
        while !changes.trims.is_empty() && self.commit_changes(&changes, &mut logged)?.is_none() {}
        Ok(())
    }

    /// Records the stops of steps.
    pub(crate) fn note_stopped(&mut self, stops: Vec<StepStop>) -> Result<(), EngineError> {
        if stops.is_empty() {
            return Ok(());
        }
        let mut changes = Changes { now: self.clock.now(), stops, ..Changes::default() };
        let events = self.committed_state.add_halts(&mut changes);
        let mut logged = false;
        let committed = loop {
            if let Some(committed) = self.commit_changes(&changes, &mut logged)? {
                break committed;
            }
        };
        let mut durable = CommitNotice::default();
        for ((queue, events), first) in events.into_iter().zip(committed.firsts) {
            durable.grown.push(self.append_to_queue(queue, first, events, None, &committed.stamp));
        }
        if !durable.grown.is_empty() {
            let _ = self.messages.send(Message::Committed(durable));
        }
        Ok(())
    }

    /// Adds durable jobs to the memory of their queue, and returns the queue with its last index.
    pub(crate) fn append_to_queue(
        &mut self,
        queue: QueueRef,
        first: u64,
        payloads: Payloads,
        carried: Option<Payloads>,
        stamp: &Stamp,
    ) -> (usize, u64) {
        self.committed_state.extend_queue(queue, first, payloads.len());
        self.add_rows(queue, first, &payloads);
        self.keep_tail(queue, first, payloads, carried, stamp);
        (queue.0, self.committed_state.head(queue))
    }

    /// Rejects deliveries of steps with a broken sink.
    fn reject_broken_steps(&mut self, group: &mut Vec<StepChange>) {
        let Self { sinks, broken_steps, messages, .. } = self;
        group.retain(|entry| {
            let step = entry.step();
            if let Some(error) = sinks.refuses(step)
                && broken_steps.insert(step.position)
            {
                let (step, error) = (step.position, Arc::clone(error));
                // A run that is over receives no messages; the same holds for all messages.
                let _ = messages.send(Message::SinkBroken { step, error });
            }
            !broken_steps.contains(&step.position)
        });
    }

    /// Retention may have deleted jobs since their replay was requested: then the replay is cancelled.
    fn cancel_if_deleted(&self, step: &DeclaredStep, to: &mut [RewindTo]) -> Result<(), EngineError> {
        let mut gone = false;
        for (input, &to) in step.inputs.iter().zip(&*to) {
            if let (Input::Queue(_), RewindTo::Index(next)) = (input.input, to) {
                gone |= self.store.queue(&input.address)?.is_some_and(|queue| next < queue.first);
            }
        }
        if gone {
            to.fill(RewindTo::Stay);
        }
        Ok(())
    }

    fn cancel_rewinds_past_retention(&self, group: &mut [StepChange]) -> Result<(), EngineError> {
        for entry in group {
            let StepChange::Rewind(rewind) = entry else { continue };
            self.cancel_if_deleted(&rewind.step, &mut rewind.to)?;
        }
        Ok(())
    }

    /// Writes the outputs for sinks. A sink's first write of the run is preceded by a commit that records it
    /// as open.
    fn write_sinks(&mut self, group: &[StepChange]) -> Result<Result<Positions, FailedSink>, EngineError> {
        match self.sinks.open(group) {
            Ok(opened) => self.commit_positions(&opened)?,
            Err(trouble) => return Ok(Err(trouble)),
        }
        Ok(self.sinks.write(group))
    }

    /// Commits positions of sinks without a delivery.
    fn commit_positions(&mut self, positions: &Positions) -> Result<(), EngineError> {
        if positions.is_empty() {
            return Ok(());
        }
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        CommittedState::add_sinks(positions, &mut changes);
        let mut logged = false;
        while self.commit_changes(&changes, &mut logged)?.is_none() {}
        self.sinks.committed(positions);
        Ok(())
    }

    /// Notifies all parties that `group` is durable.
    fn notify_committed(
        &mut self,
        group: Vec<StepChange>,
        mut ingest: IngestGroup,
        events: Vec<(QueueRef, Payloads)>,
        committed: CommitOutcome,
    ) {
        // The rows and the appended jobs have the order of the entries.
        let (mut rows, mut firsts) = (committed.parked.into_iter(), committed.firsts.into_iter());
        let (mut durable, mut grown) = (CommitNotice::default(), BTreeSet::new());
        let mut read = BTreeSet::new();
        for entry in group {
            read.extend(entry.step().inputs.iter().filter_map(|input| match input.input {
                Input::Queue(queue) => Some(queue),
                Input::Source(_) => None,
            }));
            let delivery = match entry {
                StepChange::Begin(begin) => {
                    let begun: Vec<_> = rows.by_ref().take(begin.rows.len()).collect();
                    for (row, begun) in begin.rows.iter().zip(&begun) {
                        self.committed_state.note_row(begin.step.position, begun.id, &row.job);
                    }
                    durable.begun.push((begin.step.position, begin.id, begun));
                    continue;
                }
                StepChange::Rewind(rewind) => {
                    durable.given_back.push(rewind.step.position);
                    continue;
                }
                StepChange::Delivery(delivery) => delivery,
            };
            let stays: Vec<_> = delivery.delayed.iter().zip(rows.by_ref()).collect();
            let step = &delivery.step;
            self.committed_state.match_later(step.position, &delivery.provisional, &stays);
            self.publish_unmatched(step.position);
            let committed_state = &mut self.committed_state;
            let stays = stays.into_iter().map(|(delayed, row)| {
                committed_state.note_row(step.position, row.id, &delayed.job);
                let turn = turn::of(step, &delayed.job);
                ParkedRow { row, due: delayed.job.due, is_late: delayed.job.output().is_some(), turn }
            });
            durable.delivered.push((step.position, delivery.id, stays.collect()));
            let halted = |(lane, why)| (step.position, lane, Some((Hold::Halted, why)));
            durable.lanes.extend(delivery.halted_lanes.into_iter().map(halted));
            delivery.settles.iter().for_each(|span| self.attempts.settle(span));
            let now = committed.stamp.time;
            self.stats.step(step.position).add(&delivery.counters, delivery.bytes as u64, now);
            let targets = step.outputs.iter().map(|output| output.target);
            let errors = step.errors.map(Target::Queue).into_iter().zip(delivery.errors);
            for (target, made) in targets.zip(delivery.outputs).chain(errors) {
                let Target::Queue(queue) = target else { continue };
                if made.block.as_ref().is_none_or(Block::is_empty) {
                    continue;
                }
                let Some(first) = firsts.next() else { continue };
                self.committed_state.extend_queue(queue, first, made.payloads.len());
                grown.insert(queue.0);
                self.add_rows(queue, first, &made.payloads);
                self.keep_tail(queue, first, made.payloads, made.carried, &committed.stamp);
            }
        }
        let events: Vec<_> = events.into_iter().zip(firsts.by_ref()).collect();
        let events = events.into_iter().map(|((queue, events), first)| (queue, first, events));
        durable.ticked = ingest.ticked();
        durable.late = self.next_late(ingest.late_queues());
        ingest.committed(firsts, committed.late);
        for (queue, first, jobs) in events.chain(ingest.take_pieces()) {
            self.committed_state.extend_queue(queue, first, jobs.len());
            grown.insert(queue.0);
            self.add_rows(queue, first, &jobs);
            self.keep_tail(queue, first, jobs, None, &committed.stamp);
        }
        read.extend(grown.iter().copied().map(QueueRef));
        for queue in read {
            self.publish_backlog_of(queue);
        }
        let head = |queue| (queue, self.committed_state.head(QueueRef(queue)));
        durable.grown = grown.into_iter().map(head).collect();
        let _ = self.messages.send(Message::Committed(durable));
        ingest.answer();
    }

    /// Due time of the first late job of each of these queues.
    pub(crate) fn next_late(&self, queues: &BTreeSet<QueueRef>) -> Vec<(QueueRef, Option<Timestamp>)> {
        let declared = |queue: &QueueRef| self.committed_state.configuration().queues.get(queue.0);
        let next = |queue: &QueueRef| match declared(queue).map(|queue| self.store.next_late(&queue.address))
        {
            Some(Ok(next)) => (*queue, next),
            // The next commit of the queue reports the error.
            Some(Err(_)) => (*queue, Some(self.clock.now())),
            None => (*queue, None),
        };
        queues.iter().map(next).collect()
    }

    /// Publishes the backlog of each queue for the sources that push.
    pub(crate) fn publish_backlog(&self) {
        for &queue in self.committed_state.configuration().queues.order() {
            self.publish_backlog_of(QueueRef(queue));
        }
    }

    fn publish_backlog_of(&self, queue: QueueRef) {
        let settings = self.committed_state.configuration().queues.get(queue.0);
        if settings.is_some_and(|settings| settings.source.is_some()) {
            self.inbox.set_waiting(queue, self.committed_state.waiting(queue));
        }
    }

    /// Adds durable jobs to the lookup tables of their queue.
    fn add_rows(&self, queue: QueueRef, first: u64, payloads: &Payloads) {
        if self.tables.may_follow(queue)
            && let Some(declared) = self.committed_state.configuration().queues.get(queue.0)
        {
            self.tables.add((queue, &declared.address), (first, payloads), &self.store);
        }
    }

    /// Keeps jobs in memory for steps that read them soon.
    fn keep_tail(
        &self,
        queue: QueueRef,
        first: u64,
        payloads: Payloads,
        carried: Option<Payloads>,
        committed: &Stamp,
    ) {
        if !self.committed_state.readers(Input::Queue(queue)).is_empty() {
            let stamps = vec![*committed];
            self.tails.push(queue.0, Batch { stamps, carried, ..Batch::json(first, payloads) });
        }
    }

    /// Records that the files of the sinks are complete. All work is delivered by then, so this commit does
    /// not wait for room. Without it the next run treats the files as after a crash.
    fn close_sinks(&mut self) -> Result<(), EngineError> {
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        CommittedState::add_sinks(&self.sinks.closing(), &mut changes);
        if changes.sinks.is_empty() {
            return Ok(());
        }
        match self.writer.commit(&changes) {
            Err(error) if error.is_full() => {
                tracing::warn!(
                    target: log_target::ENGINE,
                    "the disk is full: all jobs are delivered, but the next run cuts off lines that are added to the \
                     files of sinks before it"
                );
                Ok(())
            }
            closed => Ok(closed.map(drop)?),
        }
    }
}
