//! Watch: reloads when a file of the configuration changes.
//!
//! Events of the file system make it quick. A comparison of all files at an interval makes it certain: for network
//! file systems, folders that were replaced, and events that were lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use super::open_writes::OpenWrites;
use super::reload;
use tidegate_config::FileStamp;
use tidegate_engine::{Handle, NumberedGeneration};
use tidegate_model::log_target;
use tidegate_model::sync::Mutex;
use tidegate_store::Trigger;

/// Time without further events after which a change is complete. Editors write in several steps.
const SETTLED: Duration = Duration::from_millis(40);
/// Longest wait for that.
const SETTLED_MAX: Duration = Duration::from_millis(500);
/// Longest wait for programs that write files.
const WRITTEN_MAX: Duration = Duration::from_secs(10);
/// Interval of the comparison, unless `[reload] poll` sets it.
const POLL: Duration = Duration::from_secs(2);

/// Starts to watch the files of a run, on a thread that ends with the run. `sought`: the files that the start looked for.
pub(crate) fn start(run: Handle, sought: BTreeSet<PathBuf>) -> io::Result<()> {
    run.note_sought(sought);
    // The state before the thread starts, so that no change is missed.
    let mut seen = stamps(&run, &run.generation());
    if run.files_differ() {
        // A file has changed since the start read it: no stamp is that of its text.
        seen.clear();
    }
    thread::Builder::new().name("reload".into()).spawn(move || follow(&run, seen))?;
    Ok(())
}

fn follow(run: &Handle, mut seen: BTreeMap<PathBuf, Option<FileStamp>>) {
    let (changed, changes) = channel();
    let mut watch = FolderWatch::new(changed);
    let mut number = run.generation().number;
    let mut settled = false;
    while !run.is_over() {
        let generation = run.generation();
        if generation.number != number && run.rolled_back().is_some() {
            // The files differ from the earlier generation. Only those that have changed since count.
            let before = std::mem::take(&mut seen);
            let stamps = stamps(run, &generation).into_iter();
            seen =
                stamps.map(|(path, now)| (path.clone(), before.get(&path).copied().unwrap_or(now))).collect();
        }
        number = generation.number;
        let settings = &generation.configuration.settings.reload;
        watch.keep(&folders(run, &generation), names(run, &generation));
        let found = if settings.watch { stamps(run, &generation) } else { seen.clone() };
        if found != seen {
            seen = if std::mem::take(&mut settled) {
                found
            } else {
                // An editor may still write: the files are read when they rest.
                settle(&changes, &watch.writes);
                stamps(run, &generation)
            };
            reload(run, Trigger::Watch);
            // A file that was looked for now and not before may have changed since, and has no stamp: the files are
            // read once more.
            let next = watched(run, &run.generation());
            seen.retain(|path, _| next.contains(path));
            continue;
        }
        settled = false;
        match changes.recv_timeout(settings.poll.unwrap_or(POLL)) {
            Ok(()) => {
                settle(&changes, &watch.writes);
                settled = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Without events the comparison remains.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(settings.poll.unwrap_or(POLL)),
        }
    }
}

/// Waits until no more events come, and no program is writing a file.
fn settle(changes: &Receiver<()>, writes: &Mutex<OpenWrites>) {
    let begun = Instant::now();
    loop {
        let has_come = changes.recv_timeout(SETTLED).is_ok();
        let now = Instant::now();
        let is_written = writes.lock().are_open(now);
        if has_settled(now.saturating_duration_since(begun), has_come, is_written) {
            return;
        }
    }
}

/// Whether the files can be read after this time. `has_come`: an event has just come. `is_written`: a program is writing a
/// file; some files are written all the time.
fn has_settled(waited: Duration, has_come: bool, is_written: bool) -> bool {
    (!is_written || waited >= WRITTEN_MAX) && (!has_come || waited >= SETTLED_MAX)
}

/// Files whose changes count, apart from those that are listed: the files of the configuration in force, and those of
/// the last reading. A script that only a refused configuration names is mended without a change of any other file.
fn files(run: &Handle, generation: &NumberedGeneration) -> BTreeSet<PathBuf> {
    let mut files = run.sought_files();
    files.extend(generation.files.paths().map(Path::to_owned));
    files
}

/// Folders with files of a configuration.
fn folders(run: &Handle, generation: &NumberedGeneration) -> BTreeSet<PathBuf> {
    let configuration = &generation.configuration;
    let files = files(run, generation);
    let of_files = files.iter().filter_map(|file| file.parent()).map(Path::to_owned);
    let plugins = configuration.settings.plugins.iter().cloned();
    of_files.chain(plugins).chain([configuration.root.clone()]).collect()
}

/// Names of the files of a configuration: lookup tables and schemas have any.
fn names(run: &Handle, generation: &NumberedGeneration) -> BTreeSet<OsString> {
    let files = files(run, generation);
    files.iter().filter_map(|file| file.file_name()).map(OsStr::to_owned).collect()
}

/// Files of a configuration and their stamps.
fn stamps(run: &Handle, generation: &NumberedGeneration) -> BTreeMap<PathBuf, Option<FileStamp>> {
    let paths = watched(run, generation).into_iter();
    paths.map(|path| (FileStamp::of(&path), path)).map(|(stamp, path)| (path, stamp)).collect()
}

/// Files of a configuration that were read, and all others that a reload would read.
fn watched(run: &Handle, generation: &NumberedGeneration) -> BTreeSet<PathBuf> {
    let mut paths = files(run, generation);
    let configuration = &generation.configuration;
    if configuration.given.config.is_dir() {
        paths.extend(listed(&configuration.root, &["toml"]));
    } else {
        paths.insert(configuration.given.config.clone());
    }
    for folder in &configuration.settings.plugins {
        paths.extend(listed(folder, &["so", "dylib"]));
    }
    paths
}

fn listed(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| extensions.iter().any(|one| path.extension() == Some(OsStr::new(one)))).collect()
}

/// Watched folders, with their identities: a folder that was replaced is watched anew.
struct FolderWatch {
    /// `None` if the system has no watches left.
    watcher: Option<RecommendedWatcher>,
    folders: BTreeMap<PathBuf, (u64, u64)>,
    /// Names of files whose events count.
    names: Arc<Mutex<BTreeSet<OsString>>>,
    /// Files that programs are writing.
    writes: Arc<Mutex<OpenWrites>>,
    /// Keeps the channel open without a watcher.
    _changed: Sender<()>,
}

impl FolderWatch {
    fn new(changed: Sender<()>) -> Self {
        let (events, names) = (changed.clone(), Arc::<Mutex<BTreeSet<OsString>>>::default());
        let (known, writes) = (Arc::clone(&names), Arc::<Mutex<OpenWrites>>::default());
        let written = Arc::clone(&writes);
        let on_event = move |event: notify::Result<Event>| {
            let names = known.lock();
            let Some(event) = event.ok().filter(|event| is_relevant(event, &names)) else { return };
            let is_read = event.paths.iter().any(|path| is_read(path, &names));
            drop(names);
            let ends = is_read && written.lock().note(&event, Instant::now());
            if ends || !event.kind.is_access() {
                // The thread that follows the files may be over.
                let _ = events.send(());
            }
        };
        let watcher = notify::recommended_watcher(on_event);
        if let Err(error) = &watcher {
            tracing::warn!(target: log_target::RUNNER, %error, "changed files are noticed by comparison only");
        }
        Self { watcher: watcher.ok(), folders: BTreeMap::new(), names, writes, _changed: changed }
    }

    /// Watches these folders and no others, for files of these names.
    fn keep(&mut self, folders: &BTreeSet<PathBuf>, names: BTreeSet<OsString>) {
        *self.names.lock() = names;
        let Some(watcher) = &mut self.watcher else { return };
        let identity = |folder: &Path| fs::metadata(folder).ok().map(|found| (found.dev(), found.ino()));
        self.folders.retain(|folder, was| {
            let stays = folders.contains(folder) && identity(folder) == Some(*was);
            if !stays {
                // A folder that is gone is not watched any more.
                let _ = watcher.unwatch(folder);
            }
            stays
        });
        for folder in folders {
            if self.folders.contains_key(folder) {
                continue;
            }
            if let Some(found) = identity(folder)
                && watcher.watch(folder, RecursiveMode::NonRecursive).is_ok()
            {
                self.folders.insert(folder.clone(), found);
            }
        }
    }
}

/// Whether the event may be of a file of the configuration: outputs in the same folder change all the time.
/// Kubernetes replaces a link whose name begins with two dots.
fn is_relevant(event: &Event, names: &BTreeSet<OsString>) -> bool {
    let is_relevant = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        is_read(path, names) || path.extension().is_none() || name.starts_with("..")
    };
    event.need_rescan() || event.paths.iter().any(is_relevant)
}

/// Whether a reload may read a file of this name.
fn is_read(path: &Path, names: &BTreeSet<OsString>) -> bool {
    matches!(path.extension().and_then(OsStr::to_str), Some("toml" | "rhai" | "so" | "dylib"))
        || path.file_name().is_some_and(|name| names.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_change_or_are_written_all_the_time_are_read_all_the_same() {
        assert!(has_settled(SETTLED, false, false));
        assert!(!has_settled(SETTLED, true, false) && has_settled(SETTLED_MAX, true, false));
        assert!(!has_settled(SETTLED_MAX, true, true) && !has_settled(WRITTEN_MAX / 2, false, true));
        assert!(has_settled(WRITTEN_MAX, true, true));
    }
}
