//! Disk-full handling: a commit waits until the disk has room, and no other work is done meanwhile.

use crossbeam_channel::RecvTimeoutError;

use super::Committer;
use crate::error::{Chain, EngineError};
use tidegate_config::SinkRef;
use tidegate_model::log_target;
use tidegate_model::{Address, Stamp};
use tidegate_store::{Changes, Committed, ParkedId, ParkedKey};

/// Result of a commit.
pub(crate) struct CommitOutcome {
    pub(crate) stamp: Stamp,
    /// Keys of the parked jobs, in the order of the changes.
    pub(crate) parked: Vec<ParkedKey>,
    /// Indices of the first job of each append, in the order of the changes.
    pub(crate) firsts: Vec<u64>,
    /// Numbers of the new late jobs, in the order of the changes.
    pub(crate) late: Vec<ParkedId>,
}

impl Committer {
    /// Commits `changes`. Returns `None` if the disk was full and may have room now.
    pub(crate) fn commit_changes(
        &mut self,
        changes: &Changes,
        logged: &mut bool,
    ) -> Result<Option<CommitOutcome>, EngineError> {
        let outcome = |Committed { transaction, parked, appended, late, .. }| {
            let stamp = Stamp { position: 0, time: changes.now, transaction };
            let firsts = appended.iter().map(|appended| appended.first).collect();
            CommitOutcome { stamp, parked, firsts, late: late.into_iter().map(|key| key.id).collect() }
        };
        match self.writer.commit(changes) {
            Ok(committed) => {
                if *logged {
                    self.stats.set_full(None);
                }
                Ok(Some(outcome(committed)))
            }
            Err(error) if error.is_full() => {
                let error = error.into();
                self.log_full(&error, logged);
                // The store is reopened first, so that it can be read during the wait.
                let Some(committed) = self.reopen(logged)? else {
                    self.wait_for_room(error, logged)?;
                    return Ok(None);
                };
                self.stats.set_full(None);
                Ok(Some(outcome(committed)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reopens the store after a commit on a full disk. Returns the result of the commit if it became durable
    /// all the same.
    fn reopen(&mut self, logged: &mut bool) -> Result<Option<Committed>, EngineError> {
        loop {
            match self.writer.reopen() {
                Ok(reopened) => return Ok(reopened.kept),
                Err(error) if error.is_full() => self.wait_for_room(error.into(), logged)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Logs once that the disk is full, and waits for a while.
    pub(crate) fn wait_for_room(&self, error: EngineError, logged: &mut bool) -> Result<(), EngineError> {
        self.log_full(&error, logged);
        self.wait_or(error)
    }

    /// Logs once that a sink lacks open files, and waits for a while.
    pub(crate) fn wait_for_files(
        &self,
        sink: SinkRef,
        error: EngineError,
        logged: &mut bool,
    ) -> Result<(), EngineError> {
        if !*logged {
            let sink = self.sinks.address(sink).map(Address::to_string).unwrap_or_default();
            let why = Chain(&error).to_string();
            tracing::warn!(target: log_target::ENGINE, %sink, error = %why, "the sink waits until fewer files are open");
            *logged = true;
        }
        self.wait_or(error)
    }

    /// Waits a while, unless the run ends with `error` meanwhile.
    fn wait_or(&self, error: EngineError) -> Result<(), EngineError> {
        match self.stop.recv_timeout(self.retry_after) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(error),
        }
    }

    fn log_full(&self, error: &EngineError, logged: &mut bool) {
        if !*logged {
            let why = Chain(error).to_string();
            tracing::error!(target: log_target::ENGINE, error = %why, "the disk is full; no job is lost, and the run resumes when the disk has room");
            self.stats.set_full(Some(why));
            *logged = true;
        }
    }
}
