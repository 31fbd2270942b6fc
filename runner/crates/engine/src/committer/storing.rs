//! The committer's commits: on a full disk they wait until there is room, and nothing else is done meanwhile.

use crossbeam_channel::RecvTimeoutError;

use super::Committer;
use crate::error::{Chain, EngineError};
use tidegate_model::Stamp;
use tidegate_model::log_target;
use tidegate_store::{Changes, Committed, Delayed, DelayedKey};

/// What a commit came to.
pub(crate) struct Done {
    pub(crate) stamp: Stamp,
    /// What the delayed jobs are called, in the order of the changes.
    pub(crate) delayed: Vec<DelayedKey>,
}

impl Committer {
    /// Commits `changes`. `None`: for want of room they were not, and there may be some now.
    pub(crate) fn commit_changes(
        &mut self,
        changes: &Changes,
        told: &mut bool,
    ) -> Result<Option<Done>, EngineError> {
        let stamp = |transaction| Stamp { position: 0, time: changes.now, transaction };
        match self.writer.commit(changes) {
            Ok(Committed { transaction, delayed, .. }) => {
                if *told {
                    self.stats.set_full(None);
                }
                Ok(Some(Done { stamp: stamp(transaction), delayed }))
            }
            Err(error) if error.is_full() => {
                let error = error.into();
                self.say_full(&error, told);
                // First, so that the store can be read while it waits.
                let Some(transaction) = self.reopen(told)? else {
                    self.wait_for_room(error, told)?;
                    return Ok(None);
                };
                self.stats.set_full(None);
                let delayed = self.delayed_last(changes)?;
                Ok(Some(Done { stamp: stamp(transaction), delayed }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the delayed jobs of the last commit are called, where that is all that is known of it.
    fn delayed_last(&self, changes: &Changes) -> Result<Vec<DelayedKey>, EngineError> {
        let first = self.store.delayed_sequence()? + 1 - changes.delayed.len() as u64;
        let key = |(delayed, sequence): (&Delayed, u64)| {
            let (step, due) = (delayed.step.clone(), delayed.due);
            DelayedKey { step, due, sequence }
        };
        Ok(changes.delayed.iter().zip(first..).map(key).collect())
    }

    /// Opens the store again after a commit that failed for want of room. Answers its number where it
    /// became durable all the same.
    fn reopen(&mut self, told: &mut bool) -> Result<Option<u64>, EngineError> {
        loop {
            match self.writer.reopen() {
                Ok(reopened) => return Ok(reopened.kept.then_some(reopened.transaction)),
                Err(error) if error.is_full() => self.wait_for_room(error.into(), told)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Says once that the disk is full, and waits a while.
    pub(crate) fn wait_for_room(&self, error: EngineError, told: &mut bool) -> Result<(), EngineError> {
        self.say_full(&error, told);
        match self.stop.recv_timeout(self.retry_after) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(error),
        }
    }

    fn say_full(&self, error: &EngineError, told: &mut bool) {
        if !*told {
            let why = Chain(error).to_string();
            tracing::error!(target: log_target::ENGINE, error = %why, "the disk is full; nothing is lost, and the run goes on when there is room");
            self.stats.set_full(Some(why));
            *told = true;
        }
    }
}
