//! From a folder to the handles, or to what is wrong with the file in it.
//!
//! A new store appears under its name only when it is whole, so a file that is not a store was
//! never one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase as _};

use super::disk::{Disk, FileDisk, Medium};
use super::error::{Cause, OpenError};
use super::format;
use super::guard::{close, guarded};
use super::lock::{Holder, Lock};
use super::overlay::Overlay;
use super::private;
use super::read::{Shared, Store};
use super::write::Writer;
use crate::words::{Clock as _, SystemClock};

pub(super) const FILE: &str = "store.redb";
pub(super) const FILE_IN_THE_MAKING: &str = "store.redb.new";
const LOCK_FILE: &str = "lock";

/// What redb may keep in memory of the file, in bytes; up to half of it are writes of a commit.
const CACHE_BYTES: usize = 16 << 20;

/// What a file of redb starts with.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// Opens the store in `folder`, and creates what is missing of folder and store. Other users lose what
/// rights they had to them.
pub fn open(folder: &Path) -> Result<(Store, Writer), OpenError> {
    let at_folder = |source| OpenError::Folder { path: folder.to_path_buf(), source };
    private::make_folder(folder).map_err(at_folder)?;
    let path = folder.join(FILE);
    let lock = take_lock(folder, &path)?;
    if let Err(error) = private::tighten(folder) {
        tracing::warn!(folder = %folder.display(), %error, "other users may reach files of the store");
    }
    if !path.try_exists().map_err(at_folder)? {
        create(folder).map_err(|cause| cause.at(path.clone()))?;
    }
    start(Origin::of_file(path)?, Some(lock))
}

/// Opens the store in `folder` if there is one, and creates nothing.
pub fn open_existing(folder: &Path) -> Result<Option<(Store, Writer)>, OpenError> {
    let Some((origin, lock)) = find(folder)? else { return Ok(None) };
    start(origin, Some(lock)).map(Some)
}

/// Opens the store on `disk`, and creates it if the disk is empty. Nothing keeps others off.
pub fn open_disk(disk: Box<dyn Disk>) -> Result<(Store, Writer), OpenError> {
    let origin = Origin { medium: Medium::new(disk), path: PathBuf::from(FILE) };
    if origin.medium.disk().is_empty().map_err(|source| Cause::Io(source).at(origin.path.clone()))? {
        initialise(&origin.medium).map_err(|cause| cause.at(origin.path.clone()))?;
    }
    start(origin, None)
}

/// Where a store can be opened again.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) medium: Medium,
    /// For messages.
    pub(super) path: PathBuf,
}

pub(super) struct Opened {
    pub(super) database: Database,
    /// The number of the last commit.
    pub(super) transaction: u64,
}

impl Origin {
    /// The store at `path`, whose own file is locked as long as the medium lives.
    pub(super) fn of_file(path: PathBuf) -> Result<Self, OpenError> {
        let failed = |source| Cause::Io(source).at(path.clone());
        let file = File::options().read(true).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            // The file `lock` was free: it is not the one that the other process has.
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { holder: Holder::of(&file), path });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let disk = FileDisk::new(file, &path).map_err(failed)?;
        Ok(Self { medium: Medium::new(Box::new(disk)), path })
    }

    /// Opens the store and makes sure that it can be worked with, and that the commit with this
    /// number, which is durable, is in it.
    pub(super) fn open_at_least(&self, transaction: u64) -> Result<Opened, OpenError> {
        self.check_header()?;
        let database = guarded(|| {
            self.medium.enter_epoch()?;
            self.medium.settle()?;
            open_database(&self.medium)
        })
        .map_err(|cause| cause.at(self.path.clone()))?;
        let checked = guarded(|| {
            format::migrate(&database)?;
            match format::check(&database.begin_read()?)?.number {
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
    pub(super) fn open_to_read(&self, transaction: u64) -> Option<Database> {
        let database = guarded(|| {
            let overlay = Overlay::over(self.medium.clone())?;
            Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(overlay)?)
        });
        let database = database.ok()?;
        let found = guarded(|| Ok(format::check(&database.begin_read()?)?.number));
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

pub(super) fn take_lock(folder: &Path, store: &Path) -> Result<Lock, OpenError> {
    Lock::take(&folder.join(LOCK_FILE), store, SystemClock.now())
}

/// The store in `folder`, not opened yet, but taken; `None` where there is none.
pub(super) fn find(folder: &Path) -> Result<Option<(Origin, Lock)>, OpenError> {
    let path = folder.join(FILE);
    if !path.try_exists().map_err(|source| OpenError::Io { path: path.clone(), source })? {
        return Ok(None);
    }
    let lock = take_lock(folder, &path)?;
    Ok(Some((Origin::of_file(path)?, lock)))
}

fn start(origin: Origin, lock: Option<Lock>) -> Result<(Store, Writer), OpenError> {
    let Opened { database, transaction } = origin.open_at_least(0)?;
    let shared = Arc::new(Shared::new(database));
    Ok((Store::new(shared.clone()), Writer::new(shared, origin, transaction, lock)))
}

/// Makes a store under another name, and gives it its own when it is durable.
fn create(folder: &Path) -> Result<(), Cause> {
    let path = folder.join(FILE_IN_THE_MAKING);
    let medium = Medium::new(Box::new(FileDisk::new(private::create_private(&path)?, &path)?));
    initialise(&medium)?;
    fs::rename(&path, folder.join(FILE))?;
    sync_folder(folder)?;
    Ok(())
}

/// Makes a store on an empty medium.
fn initialise(medium: &Medium) -> Result<(), Cause> {
    let database = open_database(medium)?;
    let txn = database.begin_write()?;
    format::initialise(&txn, SystemClock.now())?;
    txn.commit()?;
    drop(database);
    medium.disk().sync()?;
    Ok(())
}

pub(super) fn open_database(medium: &Medium) -> Result<Database, Cause> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(medium.clone())?;
    Ok(database)
}

/// A new name is durable when its folder is. Elsewhere than on Unix a folder cannot be opened, and
/// need not.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
