//! `Watch`: wakes readers when files change. One watch serves all sources of a run, with one thread and one
//! handle of the system.
//!
//! Guarantee: a change of a watched file wakes its readers. A path that cannot be watched (a missing folder,
//! a link, a network file system) is [`Watched::Polled`]: its reader polls.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::files::{FileId, folder_of, glob_base};
use tidegate_model::log_target;
use tidegate_model::sync::Mutex;

/// Called when a reader may find more. Must return at once.
pub trait Wake: Send + Sync {
    fn wake(self: Arc<Self>);
}

/// Whether changes at a path are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// From now on: earlier changes may have been missed.
    Since,
    Already,
    /// Changes are not noticed: the reader must poll.
    Polled,
}

/// The watch of a run.
pub struct SourceWatch {
    interests: Arc<Mutex<Interests>>,
    /// `None` if the system has no watches left.
    watcher: Mutex<Option<RecommendedWatcher>>,
}

#[derive(Default)]
struct Interests {
    /// By the path of the one file that is read.
    files: HashMap<PathBuf, Vec<Weak<dyn Wake>>>,
    /// By the folder in which files are read.
    folders: HashMap<PathBuf, Vec<Weak<dyn Wake>>>,
    /// The watched folders, with their identities.
    watched: HashMap<PathBuf, FileId>,
}

/// The part of the file system that a source's path needs.
#[derive(Debug)]
struct Scope<'a> {
    /// The folder to watch.
    folder: &'a Path,
    /// Only this file of it matters.
    file: Option<&'a Path>,
    recursive: bool,
}

impl SourceWatch {
    #[must_use]
    pub fn new() -> Self {
        let interests = Arc::new(Mutex::new(Interests::default()));
        let of_events = Arc::clone(&interests);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| match event {
            // A read is an event too: a reader must not wake itself.
            Ok(Event { kind: EventKind::Access(_), .. }) => {}
            Ok(event) => of_events.lock().notice(&event),
            Err(error) => {
                tracing::debug!(target: log_target::SOURCE, %error, "an event was lost");
                of_events.lock().wake_all();
            }
        });
        let watcher = watcher.inspect_err(
            |error| tracing::debug!(target: log_target::SOURCE, %error, "cannot watch, will poll"),
        );
        Self { interests, watcher: Mutex::new(watcher.ok()) }
    }

    /// Calls `wake` when a file changes at `path`, while it lives and [`Self::look_out`] keeps the path
    /// watched.
    pub fn register(&self, path: &Path, wake: &Arc<dyn Wake>) {
        let scope = Scope::of(path);
        let mut interests = self.interests.lock();
        let wakes = match scope.file {
            Some(file) => interests.files.entry(file.to_owned()).or_default(),
            None => interests.folders.entry(scope.folder.to_owned()).or_default(),
        };
        wakes.retain(|wake| wake.strong_count() > 0);
        wakes.push(Arc::downgrade(wake));
    }

    /// Watches `path`, if possible and not done yet.
    pub fn look_out(&self, path: &Path) -> Watched {
        let scope = Scope::of(path);
        if scope.is_out_of_sight() {
            return Watched::Polled;
        }
        let Ok(metadata) = fs::metadata(scope.folder) else { return Watched::Polled };
        let id = FileId { device: metadata.dev(), inode: metadata.ino() };
        if self.interests.lock().watched.get(scope.folder) == Some(&id) {
            return Watched::Already;
        }
        let mut watcher = self.watcher.lock();
        let Some(watcher) = &mut *watcher else { return Watched::Polled };
        // Another folder may have been here, whose watch is gone with it.
        let _ = watcher.unwatch(scope.folder);
        let mode = if scope.recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        match watcher.watch(scope.folder, mode) {
            Ok(()) => {
                self.interests.lock().watched.insert(scope.folder.to_owned(), id);
                Watched::Since
            }
            Err(error) => {
                let path = path.display();
                tracing::debug!(target: log_target::SOURCE, %path, %error, "cannot watch, will poll");
                Watched::Polled
            }
        }
    }
}

impl Default for SourceWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SourceWatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Watch")
            .field("watched", &self.interests.lock().watched.len())
            .finish_non_exhaustive()
    }
}

impl Interests {
    fn notice(&mut self, event: &Event) {
        if event.need_rescan() {
            self.wake_all();
            return;
        }
        for path in &event.paths {
            if matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))) {
                // A removed folder is watched again when it returns.
                self.watched.remove(path);
            }
            wake(self.files.get(path));
            // A missing path counts as a file, and may become a folder.
            wake(path.parent().and_then(|folder| self.files.get(folder)));
            for folder in path.ancestors() {
                wake(self.folders.get(folder));
            }
        }
    }

    fn wake_all(&self) {
        self.files.values().chain(self.folders.values()).for_each(|wakes| wake(Some(wakes)));
    }
}

fn wake(wakes: Option<&Vec<Weak<dyn Wake>>>) {
    wakes.into_iter().flatten().filter_map(Weak::upgrade).for_each(Wake::wake);
}

impl<'a> Scope<'a> {
    fn of(path: &'a Path) -> Self {
        if path.is_dir() {
            return Self { folder: path, file: None, recursive: false };
        }
        if let Some(base) = glob_base(path).filter(|_| !path.exists()) {
            let folder = path.ancestors().find(|folder| **folder == *base).unwrap_or(path);
            let recursive = path.parent() != Some(folder);
            return Self { folder, file: None, recursive };
        }
        // The folder rather than the file, since the file may be renamed, or missing.
        Self { folder: folder_of(path), file: Some(path), recursive: false }
    }

    /// Changes here may cause no event: another machine makes them, or the file is in another folder.
    fn is_out_of_sight(&self) -> bool {
        let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        let linked = match self.file {
            Some(file) => is_link(file),
            None => {
                let mut entries = fs::read_dir(self.folder).into_iter().flatten().flatten();
                self.recursive || entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
            }
        };
        linked || is_remote(self.folder)
    }
}

/// Whether other machines or processes may change the file system without an event.
#[cfg(target_os = "linux")]
fn is_remote(folder: &Path) -> bool {
    /// NFS, SMB, CIFS, SMB2, FUSE, 9P, Ceph, AFS, as in Linux's `magic.h`.
    const REMOTE: [u64; 8] =
        [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x5346_414f];
    // The type is signed on some machines; only its lower 32 bits count.
    #[expect(clippy::cast_sign_loss, reason = "compared as 32 bits")]
    rustix::fs::statfs(folder).is_ok_and(|system| REMOTE.contains(&(system.f_type as u64 & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
fn is_remote(_: &Path) -> bool {
    false
}
