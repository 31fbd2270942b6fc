//! `LazyFileDisk`: a file that need not exist before its first write.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, FileDisk, sync_folder};
use tidegate_model::open_or_create_private;
use tidegate_model::sync::Mutex;

/// A file of the operating system that is created by its first write. Its name is durable before that write.
#[derive(Debug)]
pub(crate) struct LazyFileDisk {
    path: PathBuf,
    disk: Mutex<Option<Arc<FileDisk>>>,
}

impl LazyFileDisk {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, disk: Mutex::default() }
    }

    /// `None` if the file does not exist.
    fn found(&self) -> io::Result<Option<Arc<FileDisk>>> {
        let mut disk = self.disk.lock();
        if disk.is_none() && self.path.try_exists()? {
            *disk = Some(Arc::new(FileDisk::new(open_or_create_private(&self.path)?, &self.path)?));
        }
        Ok(disk.clone())
    }

    fn made(&self) -> io::Result<Arc<FileDisk>> {
        if let Some(disk) = self.found()? {
            return Ok(disk);
        }
        let disk = Arc::new(FileDisk::new(open_or_create_private(&self.path)?, &self.path)?);
        sync_folder(self.path.parent().unwrap_or(Path::new(".")))?;
        *self.disk.lock() = Some(Arc::clone(&disk));
        Ok(disk)
    }
}

impl Disk for LazyFileDisk {
    fn len(&self) -> io::Result<u64> {
        self.found()?.map_or(Ok(0), |disk| disk.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.found()? {
            Some(disk) => disk.read(offset, out),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A file that is no longer at its path is created again.
    fn set_len(&self, len: u64) -> io::Result<()> {
        if !self.is_in_place() {
            *self.disk.lock() = None;
        }
        let disk = self.made()?;
        // An earlier process may have created it, and died before its name was durable.
        sync_folder(self.path.parent().unwrap_or(Path::new(".")))?;
        disk.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.made()?.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.made()?.write(offset, data)
    }

    fn is_in_place(&self) -> bool {
        self.disk.lock().as_ref().is_none_or(|disk| disk.is_in_place())
    }

    fn exists(&self) -> io::Result<bool> {
        Ok(self.found()?.is_some())
    }
}
