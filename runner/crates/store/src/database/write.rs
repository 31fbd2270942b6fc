//! `Writer`: the writing handle, with one transaction per commit, durable when it returns.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catch_panics::guarded;
use super::changes::{Changes, Committed, apply};
use super::lock::Lock;
use super::origin::{Opened, StoreLocation};
use super::read::SharedDatabase;
use crate::error::{CommitError, OpenError};

/// From this file size on, in bytes, each commit also records the free pages of the file.
///
/// Without that record, opening after a crash reads the whole file. Measured on 2 cores with the file in the
/// page cache: 165 ms instead of 1 ms for 5 million jobs in 560 MB, and 20 ms for 32 MB. A cold disk takes
/// many times that. The record costs a second sync: a commit of one job takes 0.45 ms instead of 0.27 ms. A
/// small file is better without it.
const QUICK_REPAIR_BYTES_MIN: u64 = 32 << 20;

/// Writes the store. One writer exists, and the thread that owns it writes. Dropping it closes the store, for
/// readers too.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<SharedDatabase>,
    origin: StoreLocation,
    /// The number of the last commit that is known to be durable.
    transaction: u64,
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
        transaction: u64,
        lock: Option<Lock>,
    ) -> Self {
        let quick_repair_bytes_min = QUICK_REPAIR_BYTES_MIN;
        Self {
            shared,
            origin,
            transaction,
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
        // A disk that cannot report its length fails the commit, too.
        let len = self.origin.medium.disk().len().unwrap_or(0);
        let quick_repair = len >= self.quick_repair_bytes_min;
        // If redb panics (see `guarded`), this stays set.
        self.in_doubt = true;
        // Reads under a former name come here only if that name has nothing any more.
        self.shared.rename(&changes.renamed.parts);
        let (result, sound_texts) = (&mut self.result_in_doubt, &mut self.sound_texts);
        *result = None;
        guarded(|| {
            self.shared.with(|database| {
                let mut txn = database.begin_write()?;
                txn.set_quick_repair(quick_repair);
                *result = Some(apply(&txn, changes, number, sound_texts)?);
                Ok(txn.commit()?)
            })
        })
        .map_err(|cause| cause.of_commit(path))?;
        if !self.origin.medium.disk().is_in_place() {
            return Err(CommitError::Missing { path: path.clone() });
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
        let mut full = None;
        self.shared.replace(|| match self.origin.open_at_least(self.transaction) {
            Ok(Opened { database, transaction }) => {
                found = transaction;
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
        self.in_doubt = false;
        Ok(Reopened { transaction: found, kept })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Closed here, and not when the last reader is dropped: closing writes, and must be over when the
        // lock is released.
        let _ = self.shared.replace(|| Ok::<_, std::convert::Infallible>(None));
    }
}
