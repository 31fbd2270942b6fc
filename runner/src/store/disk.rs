//! The bytes under the store: what redb asks of them, without naming redb.
//!
//! A [`Disk`] can be put in the place of the file, so that tests can let it fail.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use redb::StorageBackend as _;

/// A file, or what behaves like one. Only one thread writes at a time; others may read meanwhile.
pub trait Disk: Debug + Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `out` from `offset` on; an error where there are not enough bytes.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Cuts the end off, or adds zeros to it.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// When it answers `Ok`, everything written before survives a loss of power.
    fn sync(&self) -> io::Result<()>;

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
}

/// A file of the operating system.
#[derive(Debug)]
pub(super) struct FileDisk(redb::backends::FileBackend);

/// A disk that is opened one time after the other, and what was written to it since it last
/// synced.
#[derive(Clone, Debug)]
pub(super) struct Medium(Arc<MediumInner>);

#[derive(Debug)]
struct MediumInner {
    disk: Box<dyn Disk>,
    /// In the order of writing; neighbours are merged.
    unsynced: Mutex<Vec<Range<u64>>>,
}

/// How much is copied at a time when writes are repeated, in bytes.
const REPEAT_BYTES: u64 = 1 << 20;

impl Medium {
    pub(super) fn new(disk: Box<dyn Disk>) -> Self {
        Self(Arc::new(MediumInner { disk, unsynced: Mutex::default() }))
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.0.disk
    }

    /// Makes sure that what the disk shows is what the disk holds.
    ///
    /// After a sync that failed, an operating system may take the lost pages for written: they can
    /// be read until the power goes, and later syncs succeed without them. So everything since the
    /// last good sync is written once more, as it reads now, and synced.
    pub(super) fn settle(&self) -> io::Result<()> {
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

    fn unsynced(&self) -> std::sync::MutexGuard<'_, Vec<Range<u64>>> {
        // The list is whole between any two operations on it.
        self.0.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
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
        let end = offset + data.len() as u64;
        {
            let mut unsynced = self.unsynced();
            match unsynced.last_mut().filter(|last| last.end == offset) {
                Some(last) => last.end = end,
                None => unsynced.push(offset..end),
            }
        }
        self.disk().write(offset, data)
    }
}

impl FileDisk {
    pub(super) fn new(file: File) -> Result<Self, super::error::Cause> {
        Ok(Self(redb::backends::FileBackend::new(file)?))
    }
}

impl Disk for FileDisk {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
