//! Opens libraries. The one place of the runner that has to trust what it cannot check: the code of a
//! plugin runs in this process from here on, with everything that this process may do.
//!
//! The system's loader hands out what is loaded already where a path is opened again, even if another
//! file has taken its place. So each library is opened from a copy with a path of its own, which is
//! deleted right after (`/proc/self/maps` shows it as deleted). The copy also holds still while the
//! file that it was made from is written anew.

use std::error::Error as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::os::unix::{self, RTLD_LOCAL, RTLD_NOW};
use tidegate_plugin::abi::TidegateEntry;
use tidegate_plugin::host::{Keep, Plugin, Unusable};

use super::image::Image;

const ENTRY: &str = "tidegate_plugin";

#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error("no private copy of `{path}` can be made in `{folder}`; set TMPDIR to a folder that takes files")]
    Copy { path: PathBuf, folder: PathBuf, source: io::Error },
    #[error("`{path}` cannot be loaded: {reason}")]
    Open { path: PathBuf, reason: String },
    #[error("`{path}` is no plugin of Tidegate: it exports no function `tidegate_plugin`")]
    NoEntry { path: PathBuf },
    #[error("`{path}` cannot be used: {reason}")]
    Unusable { path: PathBuf, reason: Unusable },
}

/// Loads a library and reads what it offers. It is closed when the plugin and every instance of its
/// steps are gone.
pub fn open(image: &Image) -> Result<Plugin, LibraryError> {
    let path = || image.path().to_owned();
    let copy = Copy::of(image)?;
    // SAFETY: the image is whole and for this machine, and the copy is this process's alone. That its
    // constructors behave is the trust that a user puts into a plugin by naming it.
    let opened = unsafe { unix::Library::open(Some(&copy.path), RTLD_NOW | RTLD_LOCAL) };
    let library = opened.map_err(|error| {
        let named = copy.path.display().to_string();
        // The library's own words for it say nothing; the system's are the cause.
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let reason = reason.strip_prefix(&format!("{named}: ")).unwrap_or(&reason).replace(&named, "it");
        LibraryError::Open { path: path(), reason }
    })?;
    drop(copy);
    // SAFETY: the ABI says that what is exported under this name has this type. A library that means
    // something else by it cannot be told apart; the name is chosen to make that unlikely.
    let entry = unsafe { library.get::<TidegateEntry>(ENTRY) };
    let entry = *entry.map_err(|_| LibraryError::NoEntry { path: path() })?;
    let keep: Keep = Arc::new(library);
    // SAFETY: as the ABI asks; the library is loaded for as long as `keep` lives.
    let plugin = unsafe { Plugin::attach(entry(), &keep) };
    plugin.map_err(|reason| LibraryError::Unusable { path: path(), reason })
}

/// A file of our own with the content of an image; deleted when dropped.
struct Copy {
    path: PathBuf,
}

impl Copy {
    fn of(image: &Image) -> Result<Self, LibraryError> {
        let folder = std::env::temp_dir();
        Self::write(image, &folder).map_err(|source| LibraryError::Copy {
            path: image.path().to_owned(),
            folder,
            source,
        })
    }

    fn write(image: &Image, folder: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("tidegate-{}-{number}-{}.so", std::process::id(), &image.sha256()[..16]);
            let path = folder.join(name);
            match create(&path) {
                Ok(mut file) => {
                    let copy = Self { path };
                    file.write_all(image.bytes())?;
                    return Ok(copy);
                }
                // One that a killed process with our number left behind.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // a file too many is no reason to stop
    }
}

/// A new file that nobody else can write to.
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)
}
