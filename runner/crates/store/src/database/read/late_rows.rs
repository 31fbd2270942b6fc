//! Reads of late jobs: by due time and by number.

use redb::ReadTransaction;

use super::Store;
use super::parked_rows::{next_due, rows_due};
use crate::api::late_job::{LateJob, LateKey};
use crate::api::parked_job::ParkedPosition;
use crate::database::format::{LATE, NAMES, PARKED, PARKED_COUNTS, find_id};
use crate::database::parked::{totals, unseal};
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Due, NamedKind, Timestamp};

impl Store {
    /// The late jobs of `queue` that are due at `until` or before, after `after`, in order of due time. At most `jobs`
    /// of them, and at most `bytes` bytes, but at least one.
    pub fn late_due(
        &self,
        queue: &Address,
        until: Due,
        after: Option<ParkedPosition>,
        jobs: usize,
        bytes: usize,
    ) -> Result<Vec<(LateKey, LateJob)>, ReadError> {
        self.of_step(queue, |txn, number| {
            let rows = rows_due(txn, number | LATE, (until, after), jobs, bytes)?;
            Ok(rows.into_iter().map(|(id, row)| (LateKey { queue: queue.clone(), id }, row.into())).collect())
        })
    }

    /// The due time of the first late job of `queue`.
    pub fn next_late(&self, queue: &Address) -> Result<Option<Timestamp>, ReadError> {
        self.of_step(queue, |txn, number| next_due(txn, number | LATE, None))
    }

    /// The late jobs with these keys; `None` for missing ones. A queue may have had the name at the time.
    pub fn late(&self, keys: &[LateKey]) -> Result<Vec<Option<LateJob>>, ReadError> {
        self.view(|txn| {
            let find = |queue: &Address, key: &LateKey| row(txn, queue, key);
            let find_renamed = |key: &LateKey| match find(&key.queue, key)? {
                Some(job) => Ok(Some(job)),
                None => match self.present_name(NamedKind::Endpoint, &key.queue) {
                    Some(queue) => find(&queue, key),
                    None => Ok(None),
                },
            };
            keys.iter().map(find_renamed).collect()
        })
    }

    /// Number of late jobs of `queue`. The time does not depend on it.
    pub fn late_count(&self, queue: &Address) -> Result<u64, ReadError> {
        self.of_step(queue, |txn, number| Ok(totals(&txn.open_table(PARKED_COUNTS)?, number | LATE)?.all()))
    }
}

fn row(txn: &ReadTransaction, queue: &Address, key: &LateKey) -> Result<Option<LateJob>, StoreCause> {
    let Some(number) = find_id(&txn.open_table(NAMES)?, queue)? else { return Ok(None) };
    let (number, id) = (number | LATE, key.id);
    let stored = txn.open_table(PARKED)?.get((number, id.0))?;
    stored.map(|stored| unseal(number, id, stored.value()).map(LateJob::from)).transpose()
}
