//! `Copy`: gives the system's loader a file that belongs to this process alone, with a unique path.
//!
//! The loader returns the loaded library if a path is opened again, even if the file was replaced. It also
//! maps the file, so that a write to it changes running code. A copy is therefore made in memory, without a
//! name that could remain. Its path is that of its descriptor, which stays open as long as the library, so
//! that no other library gets the number.
//!
//! A library that finds its dependencies beside itself (`$ORIGIN`) is copied beside the original, under a
//! hidden name that is removed after loading. A copy that a killed process left there is removed by the next
//! one. If that folder is not writable, the copy is in memory too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::image::Image;

/// Maximum length of the name of a file in memory, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// A file with the content of an image.
#[derive(Debug)]
pub(crate) struct LibraryCopy {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Without a name; removed when it is closed.
    Unnamed { _file: OwnedFd },
    /// Removed when it is dropped.
    Beside,
}

impl LibraryCopy {
    pub(crate) fn of(image: &Image) -> io::Result<Self> {
        if looks_beside_itself(image)
            && let Ok(copy) = Self::beside(image)
        {
            return Ok(copy);
        }
        let file = Self::in_memory(image).or_else(|_| Self::in_a_folder(image))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Self { path, kind: Kind::Unnamed { _file: file } })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The library is loaded, and the copy needs no name any more.
    pub(crate) fn opened(self) -> Self {
        self.remove();
        self
    }

    /// The name is for debuggers, which show it.
    fn in_memory(image: &Image) -> io::Result<OwnedFd> {
        let name = image.path().file_name().unwrap_or_default().to_string_lossy();
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.write_all(image.bytes())?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
        Ok(file.into())
    }

    /// For systems that do not run code from memory.
    fn in_a_folder(image: &Image) -> io::Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(std::env::temp_dir(), flags, Mode::RWXU)?);
        file.write_all(image.bytes())?;
        Ok(file.into())
    }

    fn beside(image: &Image) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let original = std::path::absolute(image.path())?;
        let (Some(folder), Some(name)) = (original.parent(), original.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let start = format!(".{}.tidegate-", name.to_string_lossy());
        remove_those_of_the_dead(folder, &start);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{start}{}-{number}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path) {
                Ok(mut file) => {
                    let copy = Self { path, kind: Kind::Beside };
                    file.write_all(image.bytes())?;
                    return Ok(copy);
                }
                // A process with this number, in another container, uses the folder too.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn remove(&self) {
        if matches!(self.kind, Kind::Beside) {
            let _ = fs::remove_file(&self.path); // it may be gone already
        }
    }
}

impl Drop for LibraryCopy {
    fn drop(&mut self) {
        self.remove();
    }
}

fn looks_beside_itself(image: &Image) -> bool {
    [&b"$ORIGIN"[..], b"${ORIGIN}"].iter().any(|word| memmem::find(image.bytes(), word).is_some())
}

/// Removes the copies in `folder` of processes that died while they loaded a library.
fn remove_those_of_the_dead(folder: &Path, start: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(start)?.split('-').next());
        let Some(process) = process.and_then(|process| process.parse::<u32>().ok()) else { continue };
        if matches!(Path::new(&format!("/proc/{process}")).try_exists(), Ok(false)) {
            let _ = fs::remove_file(entry.path()); // another process may have been quicker
        }
    }
}
