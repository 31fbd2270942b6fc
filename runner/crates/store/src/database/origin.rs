//! The place of a store: opens its database there, again after a failed commit, and tells what is no store from
//! what is a damaged one.

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use redb::{Database, ReadableDatabase as _};

use super::catch_panics::{close, guarded};
use super::disk::{FileDisk, Medium};
use super::migrate;
use super::overlay::Overlay;
use crate::error::{Cause, OpenError};
use tidegate_model::LockHolder;

/// What redb may keep in memory of the file, in bytes; up to half of it are writes of a commit.
const CACHE_BYTES: usize = 16 << 20;

/// What a file of redb starts with.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// Where a store can be opened again.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) medium: Medium,
    /// For messages.
    pub(crate) path: PathBuf,
}

pub(crate) struct Opened {
    pub(crate) database: Database,
    /// The number of the last commit.
    pub(crate) transaction: u64,
}

impl Origin {
    /// The store at `path`, whose own file is locked as long as the medium lives.
    pub(crate) fn of_file(path: PathBuf) -> Result<Self, OpenError> {
        let failed = |source| Cause::Io(source).at(path.clone());
        let file = File::options().read(true).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            // The file `lock` was free: it is not the one that the other process has.
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { holder: LockHolder::of(&file), path });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let disk = FileDisk::new(file, &path).map_err(failed)?;
        Ok(Self { medium: Medium::new(Box::new(disk)), path })
    }

    /// Opens the store and makes sure that it can be worked with, and that the commit with this
    /// number, which is durable, is in it.
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
            match migrate::check(&database.begin_read()?)?.number {
                found if found >= transaction => Ok(found),
                found => {
                    Err(Cause::Damaged(format!("commit {transaction} was durable, and the last is {found}")))
                }
            }
        });
        match checked {
            Ok(transaction) => Ok(Opened { database, transaction }),
            Err(cause) => {
                close(Some(database));
                Err(cause.at(self.path.clone()))
            }
        }
    }

    /// Opens the store for reading alone, where it cannot be written: the last commit that is on the disk is not
    /// older than the one with this number. `None` where it cannot be read either.
    pub(crate) fn open_to_read(&self, transaction: u64) -> Option<Database> {
        let database = guarded(|| {
            let overlay = Overlay::over(self.medium.clone())?;
            Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(overlay)?)
        });
        let database = database.ok()?;
        let found = guarded(|| Ok(migrate::check(&database.begin_read()?)?.number));
        if found.is_ok_and(|found| found >= transaction) {
            return Some(database);
        }
        close(Some(database));
        None
    }

    /// Tells what is no store from what is a damaged one. redb would make a store of an empty file.
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

pub(crate) fn open_database(medium: &Medium) -> Result<Database, Cause> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(medium.clone())?;
    Ok(database)
}
