//! Opening: turns a folder into the handles of its store, or into the error of its file.
//!
//! A new store gets its name only when it is complete, so an incomplete file was never a store.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::data_folder;
use super::disk::{Disk, FileDisk, Medium, WAL_FILE, sync_folder};
use super::lock::Lock;
use super::memory_disk::MemoryDisk;
use super::migrate;
use super::origin::{FILE, Opened, StoreLocation, open_database};
use super::read::{SharedDatabase, Store};
use super::write::Writer;
use crate::error::{OpenError, StoreCause};
use tidegate_model::log_target;
use tidegate_model::{Clock as _, SystemClock, create_private};

pub(crate) const FILE_IN_THE_MAKING: &str = "store.redb.new";
const LOCK_FILE: &str = "lock";

/// Opens the store in `folder`, and creates a missing folder or store. Removes the access rights of other
/// users.
pub fn open(folder: &Path) -> Result<(Store, Writer), OpenError> {
    let at_folder = |source| OpenError::Folder { path: folder.to_path_buf(), source };
    data_folder::make_folder(folder).map_err(at_folder)?;
    let path = folder.join(FILE);
    let lock = take_lock(folder, &path)?;
    if let Err(error) = data_folder::tighten(folder) {
        tracing::warn!(target: log_target::STORE, folder = %folder.display(), %error, "other users may reach files of the store");
    }
    if !path.try_exists().map_err(at_folder)? {
        refuse_wal_without_store(folder)?;
        create(folder).map_err(|cause| cause.at(path.clone()))?;
    }
    start(StoreLocation::of_file(path)?, Some(lock))
}

/// Opens the store in `folder` if it exists, and creates nothing.
pub fn open_existing(folder: &Path) -> Result<Option<(Store, Writer)>, OpenError> {
    let Some((origin, lock)) = find(folder)? else { return Ok(None) };
    start(origin, Some(lock)).map(Some)
}

/// Whether a folder has a store.
#[must_use]
pub fn exists(folder: &Path) -> bool {
    folder.join(FILE).exists()
}

/// Opens the store on `disk`, and creates it if the disk is empty. No lock is taken.
pub fn open_disk(disk: Box<dyn Disk>) -> Result<(Store, Writer), OpenError> {
    let origin = StoreLocation::of_disk(disk);
    if origin.medium.disk().is_empty().map_err(|source| StoreCause::Io(source).at(origin.path.clone()))? {
        initialise(&origin.medium).map_err(|cause| cause.at(origin.path.clone()))?;
    }
    start(origin, None)
}

/// Creates a store in memory. Nothing of it is left when its handles are dropped.
pub fn open_in_memory() -> Result<(Store, Writer), OpenError> {
    open_disk(Box::<MemoryDisk>::default())
}

pub(crate) fn take_lock(folder: &Path, store: &Path) -> Result<Lock, OpenError> {
    Lock::take(&folder.join(LOCK_FILE), store, SystemClock.now())
}

/// The store in `folder`, locked and not opened yet; `None` if none exists.
pub(crate) fn find(folder: &Path) -> Result<Option<(StoreLocation, Lock)>, OpenError> {
    let path = folder.join(FILE);
    if !path.try_exists().map_err(|source| OpenError::Io { path: path.clone(), source })? {
        return Ok(None);
    }
    let lock = take_lock(folder, &path)?;
    Ok(Some((StoreLocation::of_file(path)?, lock)))
}

/// A log that is left may be the only copy of commits of a store that was moved.
pub(crate) fn refuse_wal_without_store(folder: &Path) -> Result<(), OpenError> {
    let path = folder.join(WAL_FILE);
    if path.metadata().is_ok_and(|file| file.len() > 0) {
        let problem = "has no store beside it; restore the store, or move the log away, too".into();
        return Err(OpenError::Wal { path, problem });
    }
    Ok(())
}

fn start(origin: StoreLocation, lock: Option<Lock>) -> Result<(Store, Writer), OpenError> {
    let Opened { database, transaction, wal } = origin.open_at_least(0)?;
    let shared = Arc::new(SharedDatabase::new(database));
    Ok((Store::new(shared.clone()), Writer::new(shared, origin, (transaction, wal), lock)))
}

/// Creates a store under another name, and renames it when it is durable.
fn create(folder: &Path) -> Result<(), StoreCause> {
    let path = folder.join(FILE_IN_THE_MAKING);
    let medium = Medium::new(Box::new(FileDisk::new(create_private(&path)?, &path)?));
    initialise(&medium)?;
    fs::rename(&path, folder.join(FILE))?;
    sync_folder(folder)?;
    Ok(())
}

/// Creates a store on an empty medium.
fn initialise(medium: &Medium) -> Result<(), StoreCause> {
    let database = open_database(medium)?;
    let txn = database.begin_write()?;
    migrate::initialise(&txn, SystemClock.now())?;
    txn.commit()?;
    drop(database);
    medium.disk().sync()?;
    Ok(())
}
