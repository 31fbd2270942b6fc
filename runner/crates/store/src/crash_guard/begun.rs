//! Begun claims: records which claimed jobs were begun, in the file `begun` beside the store.
//!
//! A step claims jobs durably before they have a place to run. The record of a claim is the same before and after the
//! attempt has begun. This file has the difference, and it survives the death of the process: each attempt is one write into the page
//! cache before it starts. A loss of power takes the file's last writes. So the file counts only until the machine
//! starts again; after that every claimed job may have been begun.
//!
//! The file begins with the start of the machine, followed by one slot a job. A slot is used again when its job has
//! left the store.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::api::parked_job::ParkedId;
use crate::database::disk::{Disk, FileDisk};
use tidegate_model::log_target;
use tidegate_model::sync::Mutex;
use tidegate_model::{create_private, read_at_most};

const FILE: &str = "begun";
const FILE_IN_THE_MAKING: &str = "begun.new";
/// Longer than any file that this version writes.
const FILE_BYTES_MAX: u64 = 64 << 20;
const MAGIC: &[u8; 8] = b"begun 1\n";
/// Length of the beginning of the file.
const HEAD_BYTES: usize = 64;
const SLOT_BYTES: usize = 8;
/// Number of slots allocated at the start, so that a full disk does not matter. The file grows for more.
const SLOTS_READY: usize = 2048;

/// Identity of the machine's present start; `None` if the system has none.
fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty() && id.len() <= HEAD_BYTES - MAGIC.len())
}

/// The claimed jobs that were begun, in this run and in the last one.
#[derive(Debug, Default)]
pub(crate) struct BegunJobs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    folder: Option<PathBuf>,
    /// `None`: nothing is recorded.
    disk: Option<Box<dyn Disk>>,
    /// Jobs that were begun before this run; `None`: each claimed job may have been.
    before: Option<HashSet<ParkedId>>,
    /// The slot of each job that was begun in this run.
    slots: HashMap<ParkedId, u64>,
    free: Vec<u64>,
    next: u64,
}

impl BegunJobs {
    /// Reads the record of the last run.
    pub(crate) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let bytes = read_at_most(&path, FILE_BYTES_MAX).unwrap_or_else(|error| {
            warn(&path, &error);
            Vec::new()
        });
        let before = boot().and_then(|boot| decode(&bytes, &boot));
        Self(Mutex::new(State { folder: Some(folder.to_owned()), before, ..State::default() }))
    }

    /// A record in memory, with the jobs that were begun before; `None` if that is unknown.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn in_memory(before: Option<HashSet<ParkedId>>) -> Self {
        Self(Mutex::new(State { before, ..State::default() }))
    }

    /// Starts the record of this run. `claimed`: all claimed jobs in the store.
    pub(crate) fn start(&self, claimed: &[ParkedId]) {
        let mut state = self.0.lock();
        let was_begun = |id: &&ParkedId| state.before.as_ref().is_none_or(|before| before.contains(id));
        let begun: HashSet<ParkedId> = claimed.iter().filter(was_begun).copied().collect();
        state.next = begun.len() as u64;
        if let Some(folder) = state.folder.clone() {
            let made = boot().ok_or_else(|| io::ErrorKind::Unsupported.into());
            match made.and_then(|boot| make(&folder, &boot, &begun)) {
                Ok(disk) => state.disk = Some(Box::new(disk)),
                Err(error) => state.give_up(&error),
            }
        }
        state.before = Some(begun);
    }

    /// Records that these jobs begin now.
    pub(crate) fn begin(&self, jobs: &[ParkedId]) {
        let mut state = self.0.lock();
        for &id in jobs {
            let slot = state.free.pop().unwrap_or(state.next);
            state.next = state.next.max(slot + 1);
            state.slots.insert(id, slot);
            state.write(slot, id);
        }
    }

    /// Releases jobs that have left the store.
    pub(crate) fn end(&self, jobs: &[ParkedId]) {
        let mut state = self.0.lock();
        for id in jobs {
            // The slot keeps its number until it is used again: the job with that number is gone.
            let slot = state.slots.remove(id);
            state.free.extend(slot);
        }
    }

    /// Whether a claimed job was begun.
    pub(crate) fn has(&self, id: ParkedId) -> bool {
        let state = self.0.lock();
        state.slots.contains_key(&id) || state.before.as_ref().is_none_or(|before| before.contains(&id))
    }

    /// All jobs that were begun and have not ended.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn all(&self) -> HashSet<ParkedId> {
        let state = self.0.lock();
        state.before.iter().flatten().chain(state.slots.keys()).copied().collect()
    }
}

impl State {
    fn write(&mut self, slot: u64, ParkedId(id): ParkedId) {
        let Some(disk) = &self.disk else { return };
        let offset = HEAD_BYTES as u64 + slot * SLOT_BYTES as u64;
        if let Err(error) = disk.write(offset, &id.to_le_bytes()) {
            self.give_up(&error);
        }
    }

    /// Without a complete record, the next run must take each claimed job as begun.
    fn give_up(&mut self, error: &io::Error) {
        self.disk = None;
        let Some(path) = self.folder.as_ref().map(|folder| folder.join(FILE)) else { return };
        warn(&path, error);
        let _ = fs::remove_file(path);
    }
}

fn warn(path: &Path, error: &io::Error) {
    tracing::warn!(
        target: log_target::STORE,
        %error,
        file = %path.display(),
        "the beginnings of attempts cannot be recorded: after a crash, jobs that were not begun count one attempt \
         more"
    );
}

/// The jobs in a file that was written since the machine has started.
fn decode(bytes: &[u8], boot: &str) -> Option<HashSet<ParkedId>> {
    let (head, slots) = bytes.split_at_checked(HEAD_BYTES)?;
    if head != head_of(boot) {
        return None;
    }
    let ids = slots.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    Some(ids.filter(|id| *id != 0).map(ParkedId).collect())
}

fn head_of(boot: &str) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    for (byte, &of) in head.iter_mut().zip(MAGIC.iter().chain(boot.as_bytes())) {
        *byte = of;
    }
    head
}

/// Creates the file again. It replaces the old one when it is complete.
fn make(folder: &Path, boot: &str, begun: &HashSet<ParkedId>) -> io::Result<FileDisk> {
    let (path, new) = (folder.join(FILE), folder.join(FILE_IN_THE_MAKING));
    let mut bytes = head_of(boot).to_vec();
    bytes.extend(begun.iter().flat_map(|id| id.0.to_le_bytes()));
    let ready = HEAD_BYTES + SLOTS_READY * SLOT_BYTES;
    bytes.resize(bytes.len().max(ready), 0);
    let mut file = create_private(&new)?;
    file.write_all(&bytes)?;
    fs::rename(&new, &path)?;
    FileDisk::new(file, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: impl IntoIterator<Item = u64>) -> Vec<ParkedId> {
        ids.into_iter().map(ParkedId).collect()
    }

    /// The record of the next run, and which of the jobs it has.
    fn next(folder: &Path, claimed: &[ParkedId]) -> Vec<u64> {
        let begun = BegunJobs::open(folder);
        begun.start(claimed);
        claimed.iter().filter(|id| begun.has(**id)).map(|id| id.0).collect()
    }

    #[test]
    fn only_begun_jobs_are_found_after_the_death_of_the_process_and_after_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let begun = BegunJobs::open(folder.path());
        begun.start(&[]);
        begun.begin(&ids([3, 9]));
        begun.begin(&ids(10..5000));
        begun.end(&ids(10..5000));
        begun.begin(&ids([5001]));
        let claimed = ids([3, 4, 9, 5001, 5002]);
        for _ in 0..2 {
            assert_eq!(next(folder.path(), &claimed), [3, 9, 5001]);
        }
        // A later run need not know jobs that are gone.
        assert_eq!(next(folder.path(), &ids([4, 9])), [9]);
        assert_eq!(next(folder.path(), &ids([3, 4, 9])), [9]);
    }

    #[test]
    fn every_claimed_job_may_have_been_begun_without_a_file_and_after_a_start_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(next(folder.path(), &ids([1, 2])), [1, 2]);
        let path = folder.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes[MAGIC.len()] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(next(folder.path(), &ids([2, 3])), [2, 3]);
        fs::write(&path, b"begun").unwrap();
        assert_eq!(next(folder.path(), &ids([7])), [7]);
    }

    #[test]
    fn a_record_that_cannot_be_written_is_removed() {
        #[derive(Debug)]
        struct Full;
        impl Disk for Full {
            fn len(&self) -> io::Result<u64> {
                Ok(0)
            }
            fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Ok(())
            }
            fn set_len(&self, _: u64) -> io::Result<()> {
                Ok(())
            }
            fn sync(&self) -> io::Result<()> {
                Ok(())
            }
            fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let begun = BegunJobs::open(folder.path());
        begun.start(&[]);
        begun.0.lock().disk = Some(Box::new(Full));
        begun.begin(&ids([1]));
        assert!(begun.has(ParkedId(1)));
        assert_eq!(next(folder.path(), &ids([1, 2])), [1, 2]);
    }
}
