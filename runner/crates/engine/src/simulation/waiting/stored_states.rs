//! Stored states: track the state of each job of the step, and check its changes in one commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::history::History;
use tidegate_config::Configuration;
use tidegate_dispatch::JobKey;
use tidegate_model::{Address, Due, ExternalStatus};
use tidegate_store::{FinishedEnd, ParkReason, ParkedKey, ReadError, Store};

/// Durable state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// No attempt was begun.
    Fresh,
    /// The attempt with this number was begun, and its result is unknown.
    Started(u32),
    /// This number of attempts counts.
    Delayed {
        attempts: u32,
        due: i64,
    },
    Pending {
        attempts: u32,
        handle: String,
    },
    /// The result of the attempt is durable, and is not delivered.
    Finished {
        attempts: u32,
        way: Way,
    },
    Through(Way),
}

/// Way in which a job is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Output,
    Error,
    Nothing,
}

/// Result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The gate was closed, so it was no attempt.
    Held,
    /// The next attempt starts at this time or later.
    Again {
        from: i64,
    },
    Refused,
    Pending(String),
    Done,
}

/// Attempt without a durable result.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) outcome: Outcome,
    /// Whether earlier attempts may have been made in memory.
    pub(crate) in_memory: bool,
}

/// Possible causes of a change of state.
#[derive(Clone, Debug)]
pub(crate) struct Causes {
    /// Whether attempts are begun durably.
    pub(crate) begins: bool,
    /// Whether its durable beginning counts as an attempt. A claim counts if the job may have been attempted since.
    pub(crate) counts: bool,
    pub(crate) attempt: Option<Attempt>,
    /// Statuses that the ledger reported: the last answer to the monitor, and all external completions.
    pub(crate) reported: Vec<ExternalStatus>,
    /// Whether the job was ever made due.
    pub(crate) hastened: bool,
    pub(crate) cancelled: Cancelled,
    /// End of a job that is rejected.
    pub(crate) refused: Way,
}

/// Cancellation of a job, as requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cancelled {
    #[default]
    No,
    /// Cancelled unless it is pending.
    Waiting,
    AlsoPending,
}

impl Causes {
    /// Whether a commit may change a job from `was` to `is`.
    pub(crate) fn explain(&self, was: &At, is: &At) -> bool {
        if was == is {
            return true;
        }
        if let (At::Pending { attempts, .. }, is) = (was, is) {
            return match is {
                At::Through(Way::Error | Way::Nothing) if self.cancelled == Cancelled::AlsoPending => true,
                At::Through(Way::Output) => self.reported.contains(&ExternalStatus::Committed),
                At::Through(way) if *way == self.refused => self.reported.contains(&ExternalStatus::Invalid),
                At::Started(number) => self.reported.contains(&ExternalStatus::Unknown) && number == attempts,
                _ => false,
            };
        }
        match (&self.attempt, was, is) {
            (_, At::Finished { way, .. }, At::Through(end)) => way == end,
            (_, At::Through(_) | At::Finished { .. }, _) => false,
            (Some(attempt), _, _) => attempt.explains(was, is, self),
            // A claim is given back.
            (None, At::Started(number), At::Delayed { attempts, .. }) => {
                !self.counts && attempts + 1 == *number
            }
            (None, _, At::Started(number)) => {
                let may_count = self.counts || !matches!(was, At::Started(_));
                self.begins && may_count && *number == was.attempts() + 1
            }
            (None, At::Delayed { attempts, .. }, At::Delayed { attempts: still, due: 0 }) => {
                self.hastened && attempts == still
            }
            (None, _, At::Through(Way::Error | Way::Nothing)) => self.cancelled != Cancelled::No,
            _ => false,
        }
    }
}

impl Attempt {
    fn explains(&self, was: &At, is: &At, causes: &Causes) -> bool {
        let &Causes { begins, refused, .. } = causes;
        let begun = *was == At::Started(self.number);
        let is_next = was.attempts() + 1 == self.number || self.in_memory && was.attempts() < self.number;
        if begun != begins || !begun && !is_next {
            return false;
        }
        match (&self.outcome, is) {
            (Outcome::Held, At::Delayed { attempts, .. }) => *attempts + 1 == self.number,
            (Outcome::Again { from }, At::Delayed { attempts, due }) => {
                *attempts == self.number && due >= from
            }
            (Outcome::Refused, At::Through(way)) => *way == refused,
            (Outcome::Refused, At::Finished { attempts, way }) => *attempts == self.number && *way == refused,
            (Outcome::Done, At::Finished { attempts, way: Way::Output }) => *attempts == self.number,
            (Outcome::Done, At::Through(Way::Output)) => true,
            (Outcome::Pending(handle), At::Pending { attempts, handle: known }) => {
                *attempts == self.number && handle == known
            }
            _ => false,
        }
    }
}

impl At {
    /// Number of attempts that count.
    pub(crate) fn attempts(&self) -> u32 {
        match self {
            Self::Fresh | Self::Through(_) => 0,
            Self::Started(attempts)
            | Self::Delayed { attempts, .. }
            | Self::Pending { attempts, .. }
            | Self::Finished { attempts, .. } => *attempts,
        }
    }
}

/// Stored states at the last observation.
#[derive(Debug, Default)]
pub(crate) struct StoredStates {
    /// States by index of the input, from 1 on.
    pub(crate) jobs: BTreeMap<u64, At>,
    /// Rows of parked jobs and of delayed outputs, each with its index.
    pub(crate) rows: BTreeMap<ParkedKey, (u64, bool)>,
    /// Indices of all rows that ever existed, by sequence.
    pub(crate) sequences: BTreeMap<u64, u64>,
    /// Jobs whose delayed output was delivered.
    pub(crate) late: BTreeSet<u64>,
    ended: BTreeMap<u64, Way>,
    /// Number of observed jobs of each queue.
    seen: [usize; 2],
}

impl StoredStates {
    /// Observes the store. Returns the old states of changed jobs.
    pub(crate) fn look(
        &mut self,
        store: &Store,
        history: &History,
        (step, input): (&Address, &Address),
        head: u64,
    ) -> Result<BTreeMap<u64, At>, ReadError> {
        self.look_at_ends(history);
        self.rows.clear();
        let mut parked = BTreeMap::new();
        for (key, job) in store.due(step, Due::Never, None, usize::MAX, usize::MAX)? {
            let index = job.inputs[0].1;
            self.sequences.insert(key.id.0, index);
            let is_late = job.output().is_some();
            let due = job.due.time().map_or(i64::MAX, |due| due.0);
            assert!(!self.rows.values().any(|row| *row == (index, is_late)), "{index} is in the store twice");
            self.rows.insert(key, (index, is_late));
            if is_late {
                assert!(!self.late.contains(&index), "the late output of {index} comes again");
                continue;
            }
            let at = match job.reason {
                ParkReason::Started { .. } => At::Started(job.attempt),
                ParkReason::Finished { result } => {
                    let way = match result.end {
                        FinishedEnd::Delivered => Way::Output,
                        FinishedEnd::SetAside { .. } => Way::Error,
                        FinishedEnd::Dropped => Way::Nothing,
                    };
                    At::Finished { attempts: job.attempt, way }
                }
                ParkReason::Delayed | ParkReason::Output { .. } => At::Delayed { attempts: job.attempt, due },
                ParkReason::Pending { handle, .. } | ParkReason::Completed { handle, .. } => {
                    At::Pending { attempts: job.attempt, handle }
                }
            };
            parked.insert(index, at);
        }
        let progress = store.progress(step, input)?.unwrap_or_default();
        let mut was = BTreeMap::new();
        for index in 1..=head {
            let ended = self.ended.get(&index).copied();
            let at = match (parked.remove(&index), ended, progress.is_done(index)) {
                (Some(at), None, true) => at,
                (None, Some(way), true) => At::Through(way),
                (None, None, true) => At::Through(Way::Nothing),
                (None, None, false) => At::Fresh,
                odd => {
                    panic!("{index} is in the store, finished, accounted for: {odd:?}; before that {self:#?}")
                }
            };
            let before = self.jobs.insert(index, at.clone()).unwrap_or(At::Fresh);
            if before != at {
                was.insert(index, before);
            }
        }
        assert!(parked.is_empty(), "these jobs have no origin: {parked:?}");
        Ok(was)
    }

    /// Observes all deliveries, and checks that each job has one.
    fn look_at_ends(&mut self, history: &History) {
        for (queue, way) in [("p/out", Way::Output), ("p/failed", Way::Error)] {
            let seen = &mut self.seen[usize::from(way == Way::Error)];
            let rows =
                history.rows.get(&Address::parse(queue).unwrap()).map(Vec::as_slice).unwrap_or_default();
            for row in rows[*seen..].iter().flatten() {
                let index = row.origin.as_ref().unwrap().inputs[0].1;
                if row.payload.starts_with(b"{\"late\"") {
                    assert!(self.late.insert(index), "the late output of {index} came twice");
                } else {
                    let before = self.ended.insert(index, way);
                    assert_eq!(before, None, "{index} ended twice, the second time on {queue}");
                }
            }
            *seen = rows.len();
        }
    }

    /// The first job that was delivered before an earlier one, with the earlier one. `skipped`: jobs that may have been
    /// cancelled.
    pub(crate) fn out_of_order(&self, skipped: impl Fn(u64) -> bool) -> Option<(u64, u64)> {
        let open = self.jobs.iter().find(|(_, at)| !matches!(at, At::Through(_)));
        let (&first, _) = open?;
        let mut behind = self.jobs.range(first + 1..);
        let early = behind.find(|&(&index, at)| matches!(at, At::Through(_)) && !skipped(index));
        early.map(|(&index, _)| (index, first))
    }

    /// Whether the delayed output of a job waits.
    pub(crate) fn has_late(&self, index: u64) -> bool {
        self.rows.values().any(|row| *row == (index, true))
    }

    /// All keys that a job may have in a queued step.
    pub(crate) fn keys(&self, index: u64) -> impl Iterator<Item = JobKey> {
        let stored = self.sequences.iter().filter(move |(_, of)| **of == index);
        std::iter::once(JobKey::fresh(index)).chain(stored.map(|(&sequence, _)| JobKey::stored(sequence)))
    }
}

/// Position of the step in the configuration.
pub(crate) fn position(configuration: &Configuration, step: &Address) -> usize {
    configuration.steps.position(|declared| declared.address == *step).unwrap()
}
