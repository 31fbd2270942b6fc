//! `Library`: opens libraries, and closes them when no thread can run their code any more. It is the one
//! place of the runner that must trust unverified code: from here on the code of a plugin runs in this
//! process, with all its rights.
//!
//! A library is opened from a copy of its own (see `copy`), so that the file may change meanwhile. It is
//! loaded on a thread that ends right after, so that later only threads with an instance of a step run its
//! code.
//!
//! Guarantee: a library is closed only after the last thread that ran its code has ended, destructors of its
//! thread-local values included. Closing removes that code, and a thread that ends later would jump into
//! unmapped memory. A library whose threads never end stays open until the process ends.

use std::collections::HashSet;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use libloading::os::unix::{self, RTLD_LOCAL, RTLD_NOW};
use rustix::process::Pid;
use rustix::thread::gettid;
use tidegate_plugin::abi::TidegateEntry;
use tidegate_plugin::host::{Keep, KeepsLoaded, Plugin, Unusable};

use super::copy::LibraryCopy;
use super::image::Image;
use super::inside::{Act, Label, enter};
use tidegate_config::shown;
use tidegate_model::sync::{Mutex, MutexGuard};

const ENTRY: &str = "tidegate_plugin";
/// The stack of constructors in a main thread.
const STACK: usize = 8 << 20;
/// `RTLD_NOLOAD` of Linux: returns an open library, and opens none.
const RTLD_NOLOAD: i32 = 4;

#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error("no private copy of `{}` can be made, neither in memory nor in `{folder}`", shown(path))]
    Copy { path: PathBuf, folder: PathBuf, source: io::Error },
    #[error("`{}` cannot be loaded: {reason}", shown(path))]
    Open { path: PathBuf, reason: String },
    #[error("`{}` is not a plugin of Tidegate: it exports no function `tidegate_plugin`", shown(path))]
    NoEntry { path: PathBuf },
    #[error("`{}` cannot be used: {reason}", shown(path))]
    Unusable { path: PathBuf, reason: Unusable },
}

impl LibraryError {
    /// The error, for a message that names the library.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Copy { source, .. } => format!("no private copy of it can be made: {source}"),
            Self::Open { reason, .. } => format!("it cannot be loaded: {reason}"),
            Self::NoEntry { .. } => "it exports no function `tidegate_plugin`".to_owned(),
            Self::Unusable { reason, .. } => reason.to_string(),
        }
    }
}

/// Loads a library and reads its description. It is closed when the plugin, every instance of its steps and
/// every thread that had one are gone.
pub fn open(image: &Image) -> Result<Plugin, LibraryError> {
    close_idle();
    let failed = |reason: String| LibraryError::Open { path: image.path().to_owned(), reason };
    thread::scope(|scope| {
        let loader = thread::Builder::new().name("plugin-loader".into()).stack_size(STACK);
        let loader = loader.spawn_scoped(scope, || load(image));
        let loader = loader.map_err(|error| failed(format!("no thread can be started: {error}")))?;
        loader.join().unwrap_or_else(|_| Err(failed("the loader panicked".to_owned())))
    })
}

fn load(image: &Image) -> Result<Plugin, LibraryError> {
    let path = || image.path().to_owned();
    let label = Label::of(&format!("library `{}`", shown(image.path())), None);
    let _stay = enter(label, Act::Load);
    let copy = LibraryCopy::of(image).map_err(|source| LibraryError::Copy {
        path: path(),
        folder: std::env::temp_dir(),
        source,
    })?;
    // SAFETY: the image is complete and for this machine, and the copy belongs to this process alone. A user
    // trusts the constructors of a plugin by naming it.
    let opened = unsafe { unix::Library::open(Some(copy.path()), RTLD_NOW | RTLD_LOCAL) };
    let opened = opened.map_err(|error| {
        let named = copy.path().display().to_string();
        // The library's own error text is empty of information; its source is the system's error.
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let reason = reason.strip_prefix(&format!("{named}: ")).unwrap_or(&reason).replace(&named, "it");
        LibraryError::Open { path: path(), reason }
    })?;
    let library = Library(Some(Open { library: opened, copy: copy.opened(), threads: Mutex::default() }));
    library.entered();
    let entry = library.entry().ok_or_else(|| LibraryError::NoEntry { path: path() })?;
    let keep: Keep = Arc::new(library);
    // SAFETY: as the ABI asks; the library is loaded for as long as `keep` lives.
    let plugin = unsafe { Plugin::attach(entry(), &keep) };
    plugin.map_err(|reason| LibraryError::Unusable { path: path(), reason })
}

/// A library that a plugin or an instance holds; `None` once it is dropped.
struct Library(Option<Open>);

/// An open library.
struct Open {
    library: unix::Library,
    copy: LibraryCopy,
    /// The threads that have run its code and may still exist.
    threads: Mutex<HashSet<Pid>>,
}

impl Library {
    fn entry(&self) -> Option<TidegateEntry> {
        let library = &self.0.as_ref()?.library;
        // SAFETY: the ABI defines the type of the function under this name. A foreign library that exports
        // another type under it cannot be detected; the name makes that unlikely.
        unsafe { library.get::<TidegateEntry>(ENTRY) }.ok().map(|entry| *entry)
    }
}

impl KeepsLoaded for Library {
    fn entered(&self) {
        if let Some(open) = &self.0 {
            open.threads().insert(gettid());
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        idle().extend(self.0.take());
        close_idle();
    }
}

/// Libraries without a plugin or an instance, while threads that ran their code may exist.
static IDLE: Mutex<Vec<Open>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<Open>> {
    IDLE.lock()
}

/// Closes the libraries whose code no thread can run any more.
fn close_idle() {
    let closed: Vec<Open> = idle().extract_if(.., |open| !open.has_threads()).collect();
    // Without the lock, since destructors of a library may do anything.
    closed.into_iter().for_each(Open::close);
}

impl Open {
    fn threads(&self) -> MutexGuard<'_, HashSet<Pid>> {
        self.threads.lock()
    }

    /// Whether one of its threads may exist. The system removes a thread from this list after all code at its
    /// end has run. A number that was reused by another thread only delays the closing.
    fn has_threads(&self) -> bool {
        let mut threads = self.threads();
        threads.retain(|thread| {
            let task = format!("/proc/self/task/{}", thread.as_raw_nonzero());
            !matches!(Path::new(&task).try_exists(), Ok(false))
        });
        !threads.is_empty()
    }

    fn close(self) {
        let Self { library, copy, .. } = self;
        let _ = library.close(); // if it fails, the library stays open
        // SAFETY: this loads nothing, so that no code runs.
        let left = unsafe { unix::Library::open(Some(copy.path()), RTLD_NOW | RTLD_NOLOAD) };
        if let Ok(left) = left {
            // It has asked the system to stay loaded, so its name must not be reused.
            let _ = left.close();
            std::mem::forget(copy);
        }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}
