//! `WalState`: the record of the write-ahead log in the store, which determines the log that belongs to it.

use std::hash::{BuildHasher as _, RandomState};

use redb::{ReadableTable, WriteTransaction};
use twox_hash::XxHash3_64;

use crate::database::format::{Bytes, META, RecordKey, u64_at};
use crate::error::StoreCause;

/// Its key in `meta`.
const KEY: &str = "wal";

/// The identity of a log. Every record of the log depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalId {
    /// A random number of the store.
    pub(crate) store: u64,
    /// The number of logs before it. Each checkpoint begins another log, whose records overwrite those of the log before.
    pub(crate) generation: u64,
    /// A random number of the opening, which distinguishes the logs of two copies of a store.
    pub(crate) salt: u64,
}

/// The log of a store since its last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalState {
    pub(crate) id: WalId,
    /// Commits may be in the log that are not in the store. If it is false, the store is whole without a log.
    pub(crate) is_open: bool,
}

impl WalId {
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (room, number) in bytes.chunks_exact_mut(8).zip([self.store, self.generation, self.salt]) {
            room.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// `bytes` are at least [`Self::BYTES`].
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let [store, generation, salt] = [0, 8, 16].map(|at| u64_at(bytes, at));
        Self { store, generation, salt }
    }

    /// The seed of all checksums in the log.
    pub(crate) fn seed(self) -> u64 {
        XxHash3_64::oneshot(&self.to_bytes())
    }
}

impl WalState {
    /// The state of a new store, which has no log.
    pub(crate) fn initial() -> Self {
        Self { id: WalId { store: random(), generation: 0, salt: 0 }, is_open: false }
    }

    /// The state after a checkpoint that begins another log.
    pub(crate) fn next(self, salt: u64) -> Self {
        Self { id: WalId { generation: self.id.generation + 1, salt, ..self.id }, is_open: true }
    }

    /// The state after a checkpoint behind which no log begins. Every earlier log is obsolete.
    pub(crate) fn closed(self) -> Self {
        Self { is_open: false, ..self.next(0) }
    }

    pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Self, StoreCause> {
        let missing = || StoreCause::Damaged("the record of its write-ahead log is missing".into());
        let stored = meta.get(KEY)?.ok_or_else(missing)?;
        let bytes: [u8; WalId::BYTES + 1] = RecordKey::Meta(KEY).unseal_exact(stored.value())?;
        Ok(Self { id: WalId::of_bytes(&bytes), is_open: bytes[WalId::BYTES] != 0 })
    }

    pub(crate) fn write(self, txn: &WriteTransaction) -> Result<(), StoreCause> {
        let mut record = self.id.to_bytes().to_vec();
        record.push(u8::from(self.is_open));
        txn.open_table(META)?.insert(KEY, &*RecordKey::Meta(KEY).seal(record))?;
        Ok(())
    }
}

/// Not the same number twice, as far as chance allows.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
