//! The one thread that makes deliveries durable: sinks first, then the store, in one transaction for
//! everything that has come in meanwhile.
//!
//! It guarantees that a delivery is committed whole or not at all, that those of one step are
//! committed in order, and that a full disk only delays them.

mod completing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use tidegate_plugin::Payloads;

pub(crate) use completing::Completions;

use super::arrivals::Arrivals;
use super::begin;
use super::delivery::{Entry, Order};
use super::error::EngineError;
use super::ledger::{Ledger, trims_by_age};
use super::message::{Durable, Message, Stays};
use super::push::{Inbox, Push};
use super::request::Asked;
use super::sinks::{Positions, Sinks, Trouble};
use super::stats::Stats;
use super::tail::Tails;
use super::ticks::Ticked;
use super::turn;
use tidegate_config::{Input, QueueRef, Target};
use tidegate_model::log_target;
use tidegate_model::{Batch, Clock, Stamp};
use tidegate_store::{Attempts, Changes, Stop, Store, Writer};

mod storing;

mod amending;

use storing::Done;

/// A group is closed when it has this many bytes …
const GROUP_BYTES: usize = 4 << 20;
/// … or is this old, while workers still run: fewer, larger commits cost less than many small ones.
const GROUP_AGE: Duration = Duration::from_millis(5);

/// What the thread works with.
pub(crate) struct Committer {
    pub(crate) writer: Writer,
    pub(crate) store: Store,
    pub(crate) attempts: Attempts,
    /// What the start of the run has to say, before anything else.
    pub(crate) opening: Option<Changes>,
    pub(crate) ledger: Ledger,
    pub(crate) sinks: Sinks,
    /// Steps of which a delivery was refused: a later one would leave a gap.
    pub(crate) broken_steps: BTreeSet<usize>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) tails: Arc<Tails>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How many batches are read and will still come here.
    pub(crate) coming: Arc<AtomicUsize>,
    /// How long to wait for room on a full disk before the next try.
    pub(crate) retry_after: Duration,
    pub(crate) messages: Sender<Message>,
    /// Closed when the run shall end: room is then not waited for.
    pub(crate) stop: Receiver<()>,
}

/// What is committed together.
#[derive(Default)]
struct Group {
    entries: Vec<Entry>,
    pushes: Vec<Push>,
    ticked: Vec<Ticked>,
    /// Jobs that are too old go after that.
    lets_go: bool,
    stopped: Vec<Stop>,
    /// What was said of pending jobs, in a commit after that: it has nothing to do with what is on its way.
    told: Completions,
    /// Comes after them, on its own.
    asked: Option<Asked>,
}

impl Group {
    /// Somebody waits for what has come from outside.
    fn is_waited_for(&self) -> bool {
        !self.pushes.is_empty() || !self.ticked.is_empty() || !self.told.is_empty()
    }
}

impl Committer {
    /// Commits until `orders` is closed; then marks the sinks as left in order.
    ///
    /// # Errors
    /// When the store fails. Nothing is lost: what was not committed is delivered in the next run.
    pub(crate) fn run(mut self, orders: &Receiver<Order>) -> Result<Writer, EngineError> {
        self.open()?;
        let mut last_commit = Instant::now();
        while let Some(first) = self.next(orders) {
            let Group { entries, pushes, ticked, lets_go, stopped, told, asked } =
                self.collect(first, orders, last_commit);
            self.commit(entries, pushes, ticked)?;
            self.note_stopped(stopped)?;
            if lets_go {
                self.let_go()?;
            }
            self.complete(&told)?;
            if let Some(asked) = asked {
                self.amend(&asked)?;
            }
            last_commit = Instant::now();
        }
        self.close()
    }

    /// The next order; `None` when there is nothing left to do. Pushes may be left from before.
    fn next(&self, orders: &Receiver<Order>) -> Option<Order> {
        if !self.inbox.is_empty() {
            return Some(Order::Arrived);
        }
        // The last ones may have come without being announced.
        orders.recv().ok().or_else(|| (!self.inbox.is_empty()).then_some(Order::Arrived))
    }

    /// Commits what the start of the run has to say.
    pub(crate) fn open(&mut self) -> Result<(), EngineError> {
        self.say_what_waits();
        let Some(opening) = self.opening.take() else { return Ok(()) };
        let mut told = false;
        while self.commit_changes(&opening, &mut told)?.is_none() {}
        begin::say(&opening);
        Ok(())
    }

    /// Marks the sinks as left in order.
    pub(crate) fn close(mut self) -> Result<Writer, EngineError> {
        self.close_sinks()?;
        Ok(self.writer)
    }

    /// Takes what is there, and waits a little for more where more is certain to come and nobody
    /// outside waits. What somebody asks for closes the group, but for what is said of pending jobs.
    fn collect(&self, first: Order, orders: &Receiver<Order>, last_commit: Instant) -> Group {
        let close = last_commit + GROUP_AGE;
        let (mut group, mut bytes, mut next) = (Group::default(), 0, first);
        loop {
            match next {
                Order::Amend(asked) => {
                    bytes += asked.byte_len();
                    if let Some(asked) = group.told.add(asked) {
                        group.asked = Some(asked);
                        return group;
                    }
                }
                Order::Arrived => {
                    let pushes = self.inbox.take(GROUP_BYTES.saturating_sub(bytes));
                    bytes += pushes.iter().map(Push::byte_len).sum::<usize>();
                    group.pushes.extend(pushes);
                }
                Order::Ticked(ticked) => {
                    bytes += ticked.jobs.byte_len();
                    group.ticked.push(ticked);
                }
                Order::LetGo => group.lets_go = true,
                Order::Stopped(stop) => group.stopped.push(stop),
                Order::Enter(entry) => {
                    bytes += entry.byte_len();
                    group.entries.push(entry);
                }
            }
            if bytes >= GROUP_BYTES {
                return group;
            }
            next = match orders.try_recv() {
                Ok(more) => more,
                Err(_) if self.coming.load(Ordering::Acquire) == 0 || group.is_waited_for() => {
                    return group;
                }
                Err(_) => match orders.recv_deadline(close) {
                    Ok(more) => more,
                    Err(_) => return group,
                },
            };
        }
    }

    /// Commits a group, however often it has to be tried.
    pub(crate) fn commit(
        &mut self,
        mut group: Vec<Entry>,
        pushes: Vec<Push>,
        ticked: Vec<Ticked>,
    ) -> Result<(), EngineError> {
        let mut told = false;
        let arrivals = Arrivals::of(pushes, &self.ledger, &self.store)?.with_ticks(ticked);
        loop {
            self.refuse_broken(&mut group);
            if group.is_empty() && arrivals.is_empty() {
                arrivals.answer();
                return Ok(());
            }
            self.keep_within_what_is_kept(&mut group)?;
            let positions = match self.write_sinks(&group)? {
                Ok(positions) => positions,
                Err((sink, error)) => {
                    self.sinks.roll_back();
                    if error.is_full() {
                        self.wait_for_room(error.into(), &mut told)?;
                    } else {
                        self.sinks.give_up(sink, error);
                    }
                    continue;
                }
            };
            let mut page = self.ledger.enter(&group, &positions, self.clock.now());
            arrivals.add_to(&self.ledger, &mut page.changes);
            let Some(committed) = self.commit_changes(&page.changes, &mut told)? else {
                self.sinks.roll_back();
                continue;
            };
            if told {
                tracing::info!(target: log_target::ENGINE, "there is room again; going on");
            }
            self.sinks.committed(&positions);
            self.ledger.settle(&group, page);
            self.tell(group, arrivals, committed);
            return Ok(());
        }
    }

    /// Lets go of jobs that have become older than their queues keep them. Where there are none, nothing
    /// is written.
    pub(crate) fn let_go(&mut self) -> Result<(), EngineError> {
        let now = self.clock.now();
        let mut changes = Changes { now, ..Changes::default() };
        for trim in trims_by_age(&self.ledger.configuration, &self.ledger.progress, now) {
            if self.store.would_trim(&trim)? {
                changes.trims.push(trim);
            }
        }
        let mut told = false;
        while !changes.trims.is_empty() && self.commit_changes(&changes, &mut told)?.is_none() {}
        Ok(())
    }

    /// Writes down which steps have stopped.
    pub(crate) fn note_stopped(&mut self, stops: Vec<Stop>) -> Result<(), EngineError> {
        if stops.is_empty() {
            return Ok(());
        }
        let changes = Changes { now: self.clock.now(), stops, ..Changes::default() };
        let mut told = false;
        while self.commit_changes(&changes, &mut told)?.is_none() {}
        Ok(())
    }

    /// Answers deliveries that cannot be made because something they need is broken.
    fn refuse_broken(&mut self, group: &mut Vec<Entry>) {
        let Self { sinks, broken_steps, messages, .. } = self;
        group.retain(|entry| {
            let step = entry.step();
            if let Some(error) = sinks.refuses(step)
                && broken_steps.insert(step)
            {
                // A run that is over does not listen any more; the same goes for all messages.
                let _ = messages.send(Message::Refused { step, error: Arc::clone(error) });
            }
            !broken_steps.contains(&step)
        });
    }

    /// Jobs may have been let go of since somebody asked for them to run again: then none are.
    fn keep_within_what_is_kept(&self, group: &mut [Entry]) -> Result<(), EngineError> {
        for entry in group {
            let Entry::Rewind(rewind) = entry else { continue };
            let inputs = &self.ledger.configuration.steps[rewind.step].inputs;
            let mut gone = false;
            for (input, &next) in inputs.iter().zip(&rewind.next) {
                if let Input::Queue(_) = input.input {
                    gone |= self.store.queue(&input.address)?.is_some_and(|queue| next < queue.first);
                }
            }
            if gone {
                rewind.next.fill(u64::MAX);
            }
        }
        Ok(())
    }

    /// Writes what goes to sinks; those that this run has not written to yet are recorded as open
    /// first.
    fn write_sinks(&mut self, group: &[Entry]) -> Result<Result<Positions, Trouble>, EngineError> {
        match self.sinks.open(group) {
            Ok(opened) => self.commit_positions(&opened)?,
            Err(trouble) => return Ok(Err(trouble)),
        }
        Ok(self.sinks.write(group))
    }

    /// Commits positions of sinks that belong to no delivery.
    fn commit_positions(&mut self, positions: &Positions) -> Result<(), EngineError> {
        if positions.is_empty() {
            return Ok(());
        }
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        self.ledger.add_sinks(positions, &mut changes);
        let mut told = false;
        while self.commit_changes(&changes, &mut told)?.is_none() {}
        self.sinks.committed(positions);
        Ok(())
    }

    /// Tells everybody whom it concerns that `group` is durable.
    fn tell(&mut self, group: Vec<Entry>, mut arrivals: Arrivals, committed: Done) {
        let configuration = Arc::clone(&self.ledger.configuration);
        // In the order of the entries, as their changes were.
        let mut rows = committed.delayed.into_iter();
        let (mut durable, mut grown) = (Durable::default(), BTreeSet::new());
        for entry in group {
            let delivery = match entry {
                Entry::Begin(begin) => {
                    let begun = rows.by_ref().take(begin.rows.len()).collect();
                    durable.begun.push((begin.step, begin.id, begun));
                    continue;
                }
                Entry::Rewind(rewind) => {
                    durable.rewound.push((rewind.step, self.ledger.next(rewind.step)));
                    continue;
                }
                Entry::Delivery(delivery) => delivery,
            };
            let stays = delivery.delayed.iter().zip(rows.by_ref());
            let declared = &configuration.steps[delivery.step];
            let stays = stays.map(|(delayed, row)| {
                let turn = turn::of(declared, &delayed.job);
                Stays { row, is_late: delayed.job.to.is_some(), turn }
            });
            durable.delivered.push((delivery.step, delivery.id, stays.collect()));
            delivery.settles.iter().for_each(|span| self.attempts.settle(span));
            let now = committed.stamp.time;
            self.stats.steps[delivery.step].add(&delivery.counters, delivery.bytes as u64, now);
            let step = &configuration.steps[delivery.step];
            let targets = step.outputs.iter().map(|output| output.target);
            let errors = step.errors.map(Target::Queue).into_iter().zip(delivery.errors);
            for (target, made) in targets.zip(delivery.outputs).chain(errors) {
                let Target::Queue(queue) = target else { continue };
                if made.payloads.is_empty() {
                    continue;
                }
                let first = self.ledger.grow(queue, made.payloads.len());
                grown.insert(queue.0);
                self.keep_tail(queue, first, made.payloads, made.carried, &committed.stamp);
            }
        }
        durable.ticked = arrivals.ticked();
        for (queue, jobs) in arrivals.take_pieces() {
            let first = self.ledger.grow(queue, jobs.len());
            grown.insert(queue.0);
            self.keep_tail(queue, first, jobs, None, &committed.stamp);
        }
        self.say_what_waits();
        durable.grown = grown.into_iter().map(|queue| (queue, self.ledger.heads[queue])).collect();
        let _ = self.messages.send(Message::Committed(durable));
        arrivals.answer();
    }

    /// Lets those know who push.
    pub(crate) fn say_what_waits(&self) {
        let queues = self.ledger.configuration.queues.iter().enumerate();
        for (queue, _) in queues.filter(|(_, queue)| queue.source.is_some()) {
            self.inbox.set_waiting(QueueRef(queue), self.ledger.waiting(QueueRef(queue)));
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
        if self.ledger.configuration.readers(Input::Queue(queue)).next().is_some() {
            let stamps = vec![*committed];
            self.tails.push(queue.0, Batch { stamps, carried, ..Batch::json(first, payloads) });
        }
    }

    /// Records that the files of the sinks are as this run left them. Everything is delivered by
    /// then, so for this alone room is not waited for: the next run takes the files as after a crash.
    fn close_sinks(&mut self) -> Result<(), EngineError> {
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        self.ledger.add_sinks(&self.sinks.closing(), &mut changes);
        if changes.sinks.is_empty() {
            return Ok(());
        }
        match self.writer.commit(&changes) {
            Err(error) if error.is_full() => {
                tracing::warn!(
                    target: log_target::ENGINE,
                    "the disk is full: everything is delivered, but what somebody adds to the files of sinks \
                     before the next run will be cut off by it"
                );
                Ok(())
            }
            closed => Ok(closed.map(drop)?),
        }
    }
}
