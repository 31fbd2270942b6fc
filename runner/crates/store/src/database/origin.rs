//! `Origin`: the place of a store, which opens its database, reopens it after a failed commit, and
//! distinguishes foreign files from damaged stores.

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use redb::{Database, ReadableDatabase as _};

use super::catch_panics::{close, guarded};
use super::disk::{Disk, FileDisk, Medium, WAL_FILE, WalSpace};
use super::lazy_file::LazyFileDisk;
use super::migrate;
use super::overlay::Overlay;
use super::wal;
use super::wal::state::WalState;
use crate::error::{OpenError, StoreCause};
use tidegate_model::LockHolder;

/// The file of a store in its folder.
pub(crate) const FILE: &str = "store.redb";

/// Bytes of the file that redb may cache; up to half of them are writes of a commit.
const CACHE_BYTES: usize = 16 << 20;

/// From this file size on, in bytes, each checkpoint also records the free pages of the file.
///
/// Without that record, opening after a crash reads the whole file. Measured on 2 cores with the file in the
/// page cache: 165 ms instead of 1 ms for 5 million jobs in 560 MB, and 20 ms for 32 MB. A cold disk takes
/// many times that. The record costs a second sync: a commit of one job takes 0.45 ms instead of 0.27 ms. A
/// small file is better without it.
pub(crate) const QUICK_REPAIR_BYTES_MIN: u64 = 32 << 20;

/// The first bytes of a redb file.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// The place at which a store can be reopened.
#[derive(Debug)]
pub(crate) struct StoreLocation {
    pub(crate) medium: Medium,
    /// The write-ahead log; `None` if each commit is a checkpoint.
    pub(crate) wal: Option<WalSpace>,
    /// For messages.
    pub(crate) path: PathBuf,
}

pub(crate) struct Opened {
    pub(crate) database: Database,
    /// The number of the last commit.
    pub(crate) transaction: u64,
    pub(crate) wal: WalState,
}

impl StoreLocation {
    /// The store at `path`; its own file is locked while the medium lives.
    pub(crate) fn of_file(path: PathBuf) -> Result<Self, OpenError> {
        let failed = |source| StoreCause::Io(source).at(path.clone());
        let file = File::options().read(true).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            // The file `lock` was free, so it is not the one that the other process has locked.
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { holder: LockHolder::of(&file), path });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let disk = FileDisk::new(file, &path).map_err(failed)?;
        let wal = LazyFileDisk::new(std::path::absolute(&path).map_err(failed)?.with_file_name(WAL_FILE));
        let wal = Some(WalSpace { disk: Box::new(wal), bounds: wal::BOUNDS, bytes_min: wal::GROWTH_BYTES });
        Ok(Self { medium: Medium::new(Box::new(disk)), wal, path })
    }

    /// The store on `disk`, which has no path.
    pub(crate) fn of_disk(disk: Box<dyn Disk>) -> Self {
        let wal = disk.wal_space();
        Self { medium: Medium::new(disk), wal, path: PathBuf::from(FILE) }
    }

    /// The path of the write-ahead log, for messages.
    pub(crate) fn wal_path(&self) -> PathBuf {
        self.path.with_file_name(WAL_FILE)
    }

    /// Opens the store, and checks that it is usable and contains the durable commit with this number.
    pub(crate) fn open_at_least(&self, transaction: u64) -> Result<Opened, OpenError> {
        self.check_header()?;
        let database = guarded(|| {
            self.medium.enter_epoch()?;
            self.medium.settle()?;
            open_database(&self.medium)
        })
        .map_err(|cause| cause.at(self.path.clone()))?;
        let checked = guarded(|| {
            migrate::migrate(&database)?;
            migrate::check(&database.begin_read()?)?;
            let len = self.medium.disk().len()?;
            match wal::recover(&database, self.wal.as_ref(), len >= QUICK_REPAIR_BYTES_MIN)? {
                (found, wal) if found >= transaction => Ok((found, wal)),
                (found, _) => Err(StoreCause::Damaged(format!(
                    "commit {transaction} was durable, but the last commit is {found}"
                ))),
            }
        });
        match checked {
            Ok((transaction, wal)) => {
                if let Some(space) = self.wal.as_ref().filter(|space| space.disk.is_in_place()) {
                    wal::empty(space);
                }
                Ok(Opened { database, transaction, wal })
            }
            Err(cause) => {
                close(Some(database));
                Err(cause.at(self.path.clone()))
            }
        }
    }

    /// Opens the store for reading only, if it cannot be written. Its last commit is not older than the one
    /// with this number. `None` if it cannot be read either.
    pub(crate) fn open_to_read(&self, transaction: u64) -> Option<Database> {
        let database = guarded(|| {
            let overlay = Overlay::over(self.medium.clone())?;
            Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(overlay)?)
        });
        let database = database.ok()?;
        let found = guarded(|| {
            migrate::check(&database.begin_read()?)?;
            wal::recover(&database, self.wal.as_ref(), false)
        });
        if found.is_ok_and(|(found, _)| found >= transaction) {
            return Some(database);
        }
        close(Some(database));
        None
    }

    /// Distinguishes a foreign file from a damaged store. redb would create a store in an empty file.
    fn check_header(&self) -> Result<(), OpenError> {
        let path = || self.path.clone();
        let failed = |source| OpenError::Io { path: path(), source };
        let disk = self.medium.disk();
        let len = disk.len().map_err(failed)?;
        if len == 0 {
            return Err(OpenError::Empty { path: path() });
        }
        // At most the length of the array.
        let mut start = [0; 4096];
        let start = &mut start[..usize::try_from(len.min(4096)).unwrap_or(0)];
        disk.read(0, start).map_err(failed)?;
        if start.iter().all(|&byte| byte == 0) {
            return Err(OpenError::Zeros { path: path() });
        }
        if !start.starts_with(MAGIC) {
            return Err(OpenError::Foreign { path: path() });
        }
        Ok(())
    }
}

pub(crate) fn open_database(medium: &Medium) -> Result<Database, StoreCause> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(medium.clone())?;
    Ok(database)
}
