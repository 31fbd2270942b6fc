//! `Disk`: the bytes under the store, as redb accesses them, without redb's types.
//!
//! Tests replace the file by a [`Disk`] that fails.

use std::fmt::Debug;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_model::sync::{Mutex, MutexGuard};

/// A file, or an object that behaves like one. One thread writes at a time, while others may read.
pub trait Disk: Debug + Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `out` from `offset` on; an error if the disk has fewer bytes.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Truncates the disk, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// On `Ok`, every earlier write survives a loss of power.
    fn sync(&self) -> io::Result<()>;

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Whether the file is still at its path. A file that was deleted, moved or replaced is not.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Whether the disk has a file. A file that does not exist is created by its first write.
    fn exists(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// The space for the write-ahead log of a store on this disk; `None`: the store has no log.
    fn wal_space(&self) -> Option<WalSpace> {
        None
    }
}

/// The name of the file of a write-ahead log, beside its store.
pub(crate) const WAL_FILE: &str = "store.wal";

/// The file of a write-ahead log, and its bounds.
#[derive(Debug)]
pub struct WalSpace {
    pub disk: Box<dyn Disk>,
    pub bounds: WalBounds,
    /// Bytes that the file has at least while a log is open. A shorter one was cut.
    pub bytes_min: u64,
}

/// The maximum length of a write-ahead log. A commit that does not fit is a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalBounds {
    pub bytes: u64,
    pub records: u64,
}

/// A file of the operating system.
#[derive(Debug)]
pub(crate) struct FileDisk {
    file: File,
    path: PathBuf,
    /// Device and inode of the file, which each commit compares with those at the path.
    identity: (u64, u64),
}

/// A disk that is opened repeatedly, with the writes since its last sync.
///
/// The header of redb is the *epoch* of the store: it changes with each checkpoint, and holds the number of the
/// transaction. This process remembers the last header that it read or wrote. Another header on the disk
/// proves another writer, also without a lock. Then nothing more is written: redb keeps the free pages in
/// memory, and would overwrite pages of the other process. A commit to the write-ahead log compares the header, too: a
/// process that opens a store with commits in its log makes a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Medium(Arc<MediumInner>);

#[derive(Debug)]
struct MediumInner {
    disk: Box<dyn Disk>,
    /// In the order of writing; neighbours are merged.
    unsynced: Mutex<Vec<Range<u64>>>,
    /// As this process last read or wrote it; `None` before the first.
    epoch: Mutex<Option<Epoch>>,
    /// Another process has written to the disk. Never becomes false again.
    taken: AtomicBool,
    /// A commit has compared the epoch, and is not over.
    is_checked: AtomicBool,
}

type Epoch = [u8; EPOCH_BYTES];

/// Length of the header of redb, in bytes.
const EPOCH_BYTES: usize = 320;

/// Another process has written to the disk.
#[derive(Debug, thiserror::Error)]
#[error("another process has written to the store")]
pub(crate) struct Taken;

/// Bytes that are copied at a time when writes are repeated.
const REPEAT_BYTES: u64 = 1 << 20;

impl Medium {
    pub(crate) fn new(disk: Box<dyn Disk>) -> Self {
        Self(Arc::new(MediumInner {
            disk,
            unsynced: Mutex::default(),
            epoch: Mutex::default(),
            taken: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
        }))
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.0.disk
    }

    /// Ensures that the bytes that can be read are durable.
    ///
    /// After a failed sync, an operating system may treat the lost pages as written: they can be read until
    /// the power fails, and later syncs succeed without them. So every write since the last good sync is
    /// repeated with the bytes as they read now, and synced.
    pub(crate) fn settle(&self) -> io::Result<()> {
        let ranges = std::mem::take(&mut *self.unsynced());
        let repeated = self.repeat(&ranges);
        if repeated.is_err() {
            self.unsynced().splice(..0, ranges);
        }
        repeated
    }

    fn repeat(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let len = self.disk().len()?;
        let mut buffer = Vec::new();
        for range in ranges {
            let mut offset = range.start;
            let end = range.end.min(len);
            while offset < end {
                let size = (end - offset).min(REPEAT_BYTES);
                // At most `REPEAT_BYTES`.
                buffer.resize(usize::try_from(size).unwrap_or(0), 0);
                self.disk().read(offset, &mut buffer)?;
                self.disk().write(offset, &buffer)?;
                offset += size;
            }
        }
        self.disk().sync()
    }

    /// Continues the epoch of the disk. Fails if another process has written to the disk since this one did.
    pub(crate) fn enter_epoch(&self) -> io::Result<()> {
        self.check_epoch()?;
        *self.epoch() = self.read_epoch()?;
        Ok(())
    }

    /// Fails if another process has written to the disk since this one did.
    pub(crate) fn check_epoch(&self) -> io::Result<()> {
        // Another thread may be about to change the epoch.
        self.compare(self.epoch().as_ref())
    }

    fn compare(&self, known: Option<&Epoch>) -> io::Result<()> {
        self.refuse_taken()?;
        if known.is_some() && self.read_epoch()?.as_ref() != known {
            self.0.taken.store(true, Ordering::Release);
        }
        self.refuse_taken()
    }

    /// Begins a commit: its writes do not compare the epoch again, except for those that change it.
    pub(crate) fn begin_commit(&self) -> io::Result<()> {
        self.check_epoch()?;
        self.0.is_checked.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a commit. Later writes, of a reader that makes room in the cache of redb or of the end of the process, compare
    /// the epoch each.
    pub(crate) fn end_commit(&self) {
        self.0.is_checked.store(false, Ordering::Release);
    }

    fn refuse_taken(&self) -> io::Result<()> {
        if self.0.taken.load(Ordering::Acquire) { Err(io::Error::other(Taken)) } else { Ok(()) }
    }

    /// `None` if the disk is too short for an epoch.
    fn read_epoch(&self) -> io::Result<Option<Epoch>> {
        let mut epoch = [0; EPOCH_BYTES];
        match self.disk().read(0, &mut epoch) {
            Ok(()) => Ok(Some(epoch)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn epoch(&self) -> MutexGuard<'_, Option<Epoch>> {
        self.0.epoch.lock()
    }

    fn unsynced(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.0.unsynced.lock()
    }

    fn note_unsynced(&self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut unsynced = self.unsynced();
        match unsynced.last_mut().filter(|last| last.end == offset) {
            Some(last) => last.end = end,
            None => unsynced.push(offset..end),
        }
    }
}

impl redb::StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        self.disk().len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_epoch()?;
        self.disk().set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let written = std::mem::take(&mut *self.unsynced());
        let synced = self.disk().sync();
        if synced.is_err() {
            self.unsynced().splice(..0, written);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset >= EPOCH_BYTES as u64 {
            if self.0.is_checked.load(Ordering::Acquire) {
                self.refuse_taken()?;
            } else {
                self.check_epoch()?;
            }
            self.note_unsynced(offset, data);
            return self.disk().write(offset, data);
        }
        // No other thread compares the epoch until this process knows the new one.
        let mut epoch = self.epoch();
        self.compare(epoch.as_ref())?;
        self.note_unsynced(offset, data);
        let written = self.disk().write(offset, data);
        let next = epoch.take().filter(|_| written.is_ok()).map(|epoch| overwritten(epoch, offset, data));
        // After half a write, the disk decides. An epoch that cannot be read is not checked.
        *epoch = next.or_else(|| self.read_epoch().ok().flatten());
        written
    }
}

/// `epoch` after a write of `data` at `offset`, which lies within it.
fn overwritten(mut epoch: Epoch, offset: u64, data: &[u8]) -> Epoch {
    let room = usize::try_from(offset).ok().and_then(|offset| epoch.get_mut(offset..)).unwrap_or_default();
    let len = room.len().min(data.len());
    room[..len].copy_from_slice(&data[..len]);
    epoch
}

impl FileDisk {
    /// `file` was opened at `path`.
    pub(crate) fn new(file: File, path: &Path) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        Ok(Self { file, path: std::path::absolute(path)?, identity })
    }
}

/// The lock must be released explicitly: a program that is being started holds a copy of the file handle, and
/// with it the lock, for a moment.
impl Drop for FileDisk {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Disk for FileDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn is_in_place(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) => identity(&found) == self.identity,
            Err(error) => !is_missing(&error),
        }
    }
}

/// A new name is durable when its folder is. On systems other than Unix a folder cannot be opened, and need
/// not be synced.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// A file or a folder of its path is missing.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use redb::StorageBackend as _;

    use super::*;
    use crate::testing::FaultyDisk;

    #[test]
    fn behind_a_write_of_another_process_no_page_is_written_between_two_commits_or_later() {
        let disk = FaultyDisk::new();
        let other = Medium::new(Box::new(disk.clone()));
        other.write(0, &[1; 4096]).unwrap();
        let medium = Medium::new(Box::new(disk.clone()));
        medium.enter_epoch().unwrap();
        medium.begin_commit().unwrap();
        // Pages that are not synced yet, as those of commits in the write-ahead log.
        medium.write(4096, &[2; 10]).unwrap();
        medium.end_commit();
        medium.write(8192, &[2; 10]).unwrap();
        other.write(0, &[3; 4096]).unwrap();
        let before = disk.bytes();
        for offset in [4096, 8192, 0] {
            assert!(medium.write(offset, &[4; 10]).is_err());
        }
        assert!(medium.begin_commit().is_err());
        assert!(medium.write(8192, &[4; 10]).is_err());
        assert_eq!(disk.bytes(), before);
    }
}
