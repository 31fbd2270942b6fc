//! The backend on redb: one file with tables, transactions and recovery.

pub(crate) mod catch_panics;
pub(crate) mod compact;
pub(crate) mod data_folder;
pub(crate) mod dedupe;
pub(crate) mod disk;
pub(crate) mod format;
pub(crate) mod generations;
pub(crate) mod history;
pub(crate) mod lock;
pub(crate) mod memory_disk;
pub(crate) mod migrate;
pub(crate) mod open;
pub(crate) mod origin;
pub(crate) mod overlay;
pub(crate) mod parked;
pub(crate) mod pauses;
pub(crate) mod read;
pub(crate) mod renames;
pub(crate) mod retention;
pub(crate) mod scan;
pub(crate) mod schedules;
pub(crate) mod snapshots;
pub(crate) mod stops;
pub(crate) mod token_key;
pub(crate) mod verify;
pub(crate) mod write;
