//! Ticks: record the time up to which each schedule is handled.

use redb::WriteTransaction;

use super::format::{self, NAMES, RecordKey, TICKS};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

impl Store {
    /// The time up to which all ticks of the schedule `source` are handled; `None` if it never ran.
    pub fn ticked(&self, source: &Address) -> Result<Option<Timestamp>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, source)? else { return Ok(None) };
            let stored = txn.open_table(TICKS)?.get(id)?;
            stored.map(|stored| unseal(id, stored.value())).transpose()
        })
    }
}

pub(crate) fn write(txn: &WriteTransaction, ticked: &[(Address, Timestamp)]) -> Result<(), StoreCause> {
    for (source, time) in ticked {
        let id = format::intern(txn, source)?;
        txn.open_table(TICKS)?.insert(id, &*seal(id, *time))?;
    }
    Ok(())
}

pub(crate) fn seal(source: u32, time: Timestamp) -> Vec<u8> {
    RecordKey::Tick(source).seal(time.0.to_le_bytes().to_vec())
}

pub(crate) fn unseal(source: u32, stored: &[u8]) -> Result<Timestamp, StoreCause> {
    RecordKey::Tick(source).unseal_exact(stored).map(|bytes| Timestamp(i64::from_le_bytes(bytes)))
}
