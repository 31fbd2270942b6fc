//! `Writer`: the writing handle, with one transaction per commit. It is durable when the commit returns: in the store, or in
//! the write-ahead log.

use std::collections::BTreeSet;
use std::sync::Arc;

use redb::Durability;

use super::catch_panics::guarded;
use super::changes::{Changes, Committed, apply};
use super::lock::Lock;
use super::origin::{Opened, QUICK_REPAIR_BYTES_MIN, StoreLocation};
use super::read::SharedDatabase;
use super::wal::state::WalState;
use super::wal::{self, CommitPlan, Wal};
use crate::error::{CommitError, OpenError, StoreCause};

/// Writes the store. One writer exists, and the thread that owns it writes. Dropping it closes the store, for
/// readers too.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<SharedDatabase>,
    origin: StoreLocation,
    /// The number of the last commit that is known to be durable.
    transaction: u64,
    wal: Wal,
    /// A commit failed, and its durability is unknown.
    in_doubt: bool,
    /// Texts of the history that need no check: see [`super::history::write`].
    sound_texts: BTreeSet<u128>,
    /// The result of that commit, unless it failed before it had one. It is not durable then.
    result_in_doubt: Option<Committed>,
    /// See [`QUICK_REPAIR_BYTES_MIN`].
    quick_repair_bytes_min: u64,
    /// Dropped last.
    _lock: Option<Lock>,
}

/// The result of [`Writer::reopen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reopened {
    /// The number of the last commit.
    pub transaction: u64,
    /// The result of the failed commit, if it is durable as a whole. Otherwise no part of it is.
    pub kept: Option<Committed>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<SharedDatabase>,
        origin: StoreLocation,
        (transaction, wal): (u64, WalState),
        lock: Option<Lock>,
    ) -> Self {
        let quick_repair_bytes_min = QUICK_REPAIR_BYTES_MIN;
        Self {
            shared,
            origin,
            transaction,
            wal: Wal::new(wal),
            in_doubt: false,
            sound_texts: BTreeSet::new(),
            result_in_doubt: None,
            quick_repair_bytes_min,
            _lock: lock,
        }
    }

    /// Lets tests exercise the commits of a large file on a small one.
    #[cfg(test)]
    pub(crate) fn commit_as_in_a_large_file(&mut self) {
        self.quick_repair_bytes_min = 0;
    }

    /// Makes all of the changes, or none; on `Ok` they are durable.
    ///
    /// # Errors
    /// After any error, [`Self::reopen`] determines whether the changes are durable. Until then further
    /// commits return [`CommitError::MustReopen`].
    pub fn commit(&mut self, changes: &Changes) -> Result<Committed, CommitError> {
        if self.in_doubt {
            return Err(CommitError::MustReopen);
        }
        let number = self.transaction + 1;
        let path = &self.origin.path;
        let medium = &self.origin.medium;
        let plan = self.wal.plan(self.origin.wal.as_ref(), number, changes);
        // If redb panics (see `guarded`), this stays set.
        self.in_doubt = true;
        // Reads under a former name come here only if that name has nothing any more.
        self.shared.rename(&changes.renamed.parts);
        let (result, sound_texts, wal) = (&mut self.result_in_doubt, &mut self.sound_texts, &mut self.wal);
        let quick_repair_bytes_min = self.quick_repair_bytes_min;
        *result = None;
        let committed = guarded(|| {
            self.shared.with(|database| {
                // Another process that opens the store reads the log.
                medium.begin_commit()?;
                let plan = wal.prepare(plan, || medium.disk().is_in_place())?;
                let mut txn = database.begin_write()?;
                match plan {
                    CommitPlan::Log { space, frame } => {
                        let set = txn.set_durability(Durability::None);
                        set.map_err(|error| StoreCause::Damaged(error.to_string()))?;
                        *result = Some(apply(&txn, changes, number, sound_texts)?);
                        medium.check_epoch()?;
                        wal.append(space, &frame)?;
                        medium.check_epoch()?;
                        Ok(txn.commit()?)
                    }
                    CommitPlan::Checkpoint { next, .. } => {
                        // A disk that cannot report its length fails the commit, too.
                        let len = medium.disk().len().unwrap_or(0);
                        txn.set_quick_repair(len >= quick_repair_bytes_min);
                        *result = Some(apply(&txn, changes, number, sound_texts)?);
                        if let Some(next) = next {
                            next.write(&txn)?;
                        }
                        txn.commit()?;
                        wal.checkpointed(next);
                        Ok(())
                    }
                }
            })
        })
        .map_err(|cause| cause.of_commit(path));
        medium.end_commit();
        committed?;
        if !medium.disk().is_in_place() {
            return Err(CommitError::Missing { path: path.clone() });
        }
        let space = self.origin.wal.as_ref().filter(|_| self.wal.is_open());
        if space.is_some_and(|space| !space.disk.is_in_place() || self.wal.is_cut(space)) {
            return Err(CommitError::WalMissing { path: self.origin.wal_path() });
        }
        self.in_doubt = false;
        self.transaction = number;
        if !changes.renamed.parts.is_empty() {
            self.shared.forget_names();
        }
        // It was set before the commit.
        self.result_in_doubt.take().ok_or(CommitError::MustReopen)
    }

    /// Closes the store and reopens it, which a failed commit makes necessary. Readers wait meanwhile.
    ///
    /// # Errors
    /// The errors of opening. It can be called again: on a full disk it succeeds when space is free, and
    /// until then the store can be read. After other errors it stays closed.
    pub fn reopen(&mut self) -> Result<Reopened, OpenError> {
        let mut found = self.transaction;
        self.in_doubt = true;
        // Unless the store is open for writing, the log stays as it is.
        self.wal = Wal::new(self.wal.closed());
        let mut wal = None;
        let mut full = None;
        self.shared.replace(|| match self.origin.open_at_least(self.transaction) {
            Ok(Opened { database, transaction, wal: state }) => {
                (found, wal) = (transaction, Some(Wal::new(state)));
                Ok(Some(database))
            }
            Err(error) if error.is_full() => {
                full = Some(error);
                Ok(self.origin.open_to_read(self.transaction))
            }
            Err(error) => Err(error),
        })?;
        if let Some(error) = full {
            return Err(error);
        }
        let kept = self.result_in_doubt.take().filter(|committed| committed.transaction == found);
        self.transaction = found;
        if let Some(wal) = wal {
            self.wal = wal;
        }
        self.in_doubt = false;
        Ok(Reopened { transaction: found, kept })
    }

    /// Makes all commits of the log durable in the store, which is whole without the log then. Returns whether that has
    /// succeeded. If it has not, the next opening reads the log.
    fn close_wal(&self) -> bool {
        let closed = guarded(|| {
            self.shared.with(|database| {
                let txn = database.begin_write()?;
                self.wal.closed().write(&txn)?;
                Ok(txn.commit()?)
            })
        });
        closed.is_ok()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let is_obsolete = self.wal.is_open() && self.close_wal();
        // Closed here, and not when the last reader is dropped: closing writes, and must be over when the
        // lock is released.
        let _ = self.shared.replace(|| Ok::<_, std::convert::Infallible>(None));
        let StoreLocation { medium, wal, .. } = &self.origin;
        let is_ours = || medium.disk().is_in_place() && medium.check_epoch().is_ok();
        if let Some(space) = wal.as_ref().filter(|space| is_obsolete && space.disk.is_in_place() && is_ours())
        {
            wal::empty(space);
        }
    }
}
