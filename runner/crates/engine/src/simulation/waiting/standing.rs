//! What the store says of each job of the step, and the table of how that may change in one commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::history::History;
use tidegate_config::Configuration;
use tidegate_dispatch::JobKey;
use tidegate_model::{Address, Status};
use tidegate_store::{DelayedKey, NEVER, ReadError, Standing, Store};

/// Where a job stands, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Nothing was begun of it.
    Fresh,
    /// The attempt with this number was begun, and nothing is known of its end.
    Started(u32),
    /// So many attempts count.
    Delayed {
        attempts: u32,
        due: i64,
    },
    Pending {
        attempts: u32,
        handle: String,
    },
    Through(Way),
}

/// How a job is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Output,
    Error,
    Nothing,
}

/// What an attempt comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The gate was closed: it was none.
    Held,
    /// The next one is not before this.
    Again {
        from: i64,
    },
    Refused,
    Pending(String),
    Done,
}

/// An attempt that was made, and of which nothing is durable yet.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) outcome: Outcome,
    /// Those before it may have been made in memory.
    pub(crate) in_memory: bool,
}

/// Why a job may stand differently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    /// Attempts are begun durably.
    pub(crate) begins: bool,
    pub(crate) attempt: Option<Attempt>,
    /// What the outside has said of it: the monitor last, and by itself ever.
    pub(crate) told: Vec<Status>,
    /// Somebody has asked for that at some time.
    pub(crate) hastened: bool,
    pub(crate) cancelled: Cancelled,
}

/// Whether somebody wants a job to be taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cancelled {
    #[default]
    No,
    /// Unless it is pending.
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
                At::Through(Way::Output) => self.told.contains(&Status::Committed),
                At::Through(Way::Error) => self.told.contains(&Status::Invalid),
                At::Started(number) => self.told.contains(&Status::Unknown) && number == attempts,
                _ => false,
            };
        }
        match (&self.attempt, was, is) {
            (_, At::Through(_), _) => false,
            (Some(attempt), _, _) => attempt.explains(was, is, self.begins),
            (None, _, At::Started(number)) => self.begins && *number == was.attempts() + 1,
            (None, At::Delayed { attempts, .. }, At::Delayed { attempts: still, due: 0 }) => {
                self.hastened && attempts == still
            }
            (None, _, At::Through(Way::Error | Way::Nothing)) => self.cancelled != Cancelled::No,
            _ => false,
        }
    }
}

impl Attempt {
    fn explains(&self, was: &At, is: &At, begins: bool) -> bool {
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
            (Outcome::Refused, At::Through(Way::Error)) | (Outcome::Done, At::Through(Way::Output)) => true,
            (Outcome::Pending(handle), At::Pending { attempts, handle: known }) => {
                *attempts == self.number && handle == known
            }
            _ => false,
        }
    }
}

impl At {
    /// How many attempts count.
    pub(crate) fn attempts(&self) -> u32 {
        match self {
            Self::Fresh | Self::Through(_) => 0,
            Self::Started(attempts) | Self::Delayed { attempts, .. } | Self::Pending { attempts, .. } => {
                *attempts
            }
        }
    }
}

/// What the store says, as it was seen last.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    /// By index on the input, from 1 on.
    pub(crate) jobs: BTreeMap<u64, At>,
    /// The rows of those that stand in the store by themselves, and of late outputs: each with its
    /// index.
    pub(crate) rows: BTreeMap<DelayedKey, (u64, bool)>,
    /// What such a row was called in its time, by sequence.
    pub(crate) sequences: BTreeMap<u64, u64>,
    /// Jobs whose late output has come.
    pub(crate) late: BTreeSet<u64>,
    ended: BTreeMap<u64, Way>,
    /// How many jobs of each queue were looked at.
    seen: [usize; 2],
}

impl Standings {
    /// Looks again. Answers where each job stood that stands differently.
    pub(crate) fn look(
        &mut self,
        store: &Store,
        history: &History,
        (step, input): (&Address, &Address),
        head: u64,
    ) -> Result<BTreeMap<u64, At>, ReadError> {
        self.look_at_ends(history);
        self.rows.clear();
        let mut standing = BTreeMap::new();
        for (key, job) in store.due(step, NEVER, None, usize::MAX, usize::MAX)? {
            let index = job.inputs[0].1;
            self.sequences.insert(key.sequence, index);
            let is_late = job.to.is_some();
            let due = key.due.0;
            assert!(
                !self.rows.values().any(|row| *row == (index, is_late)),
                "{index} stands in the store twice"
            );
            self.rows.insert(key, (index, is_late));
            if is_late {
                assert!(!self.late.contains(&index), "the late output of {index} comes again");
                continue;
            }
            let at = match job.standing {
                Standing::Started => At::Started(job.attempt),
                Standing::Delayed => At::Delayed { attempts: job.attempt, due },
                Standing::Pending { handle, .. } | Standing::Told { handle, .. } => {
                    At::Pending { attempts: job.attempt, handle }
                }
            };
            standing.insert(index, at);
        }
        let progress = store.progress(step, input)?.unwrap_or_default();
        let mut was = BTreeMap::new();
        for index in 1..=head {
            let ended = self.ended.get(&index).copied();
            let at = match (standing.remove(&index), ended, progress.has(index)) {
                (Some(at), None, true) => at,
                (None, Some(way), true) => At::Through(way),
                (None, None, true) => At::Through(Way::Nothing),
                (None, None, false) => At::Fresh,
                odd => {
                    panic!("{index} is in the store, through, accounted for: {odd:?}; before that {self:#?}")
                }
            };
            let before = self.jobs.insert(index, at.clone()).unwrap_or(At::Fresh);
            if before != at {
                was.insert(index, before);
            }
        }
        assert!(standing.is_empty(), "nobody brought these: {standing:?}");
        Ok(was)
    }

    /// Everything that was delivered, each job once.
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

    /// Whether the late output of a job waits.
    pub(crate) fn has_late(&self, index: u64) -> bool {
        self.rows.values().any(|row| *row == (index, true))
    }

    /// All that a job may be called by a step that picks.
    pub(crate) fn keys(&self, index: u64) -> impl Iterator<Item = JobKey> {
        let stored = self.sequences.iter().filter(move |(_, of)| **of == index);
        std::iter::once(JobKey::fresh(index)).chain(stored.map(|(&sequence, _)| JobKey::stored(sequence)))
    }
}

/// The position of the step in the configuration.
pub(crate) fn position(configuration: &Configuration, step: &Address) -> usize {
    configuration.steps.iter().position(|declared| declared.address == *step).unwrap()
}
