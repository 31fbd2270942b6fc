//! `Setups`: records the setups of unverified code (loading it, creating instances, ending them) in the file
//! `setups` beside the store. The file survives the death of the process. So the next run can name the cause,
//! and does not retry for ever.
//!
//! A thread writes a record before it starts, and clears it at the end, into the page cache, which survives
//! the process. Nothing is synced, since no code causes a loss of power. If the file cannot be written, the
//! run continues without records.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use tidegate_model::log_target;
use tidegate_model::sync::{Mutex, MutexGuard};
use tidegate_model::{create_private, read_at_most};

const FILE: &str = "setups";

/// ```text
/// slot  checksum u64 | deaths u32 | length u16 | text | zeros
/// ```
///
/// Numbers are little-endian; the checksum is XXH3-64 over what follows it, seeded with the version.
const SLOT_BYTES: usize = 512;
const HEADER: usize = 8 + 4 + 2;
const VERSION: u64 = 1;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The setups of a process, and those during which the last one died. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Setups(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// `None`: nothing is recorded.
    file: Option<File>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The setups in progress, by slot.
    slots: Vec<Option<String>>,
    /// The setups during which the last process died.
    found: Vec<Died>,
    /// No more setups are recorded.
    closed: bool,
}

/// A setup during which a process died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Died {
    /// A sentence fragment: ``plugin `geo` was being loaded``.
    pub at: String,
    /// Number of processes in a row.
    pub times: u32,
}

/// A setup in progress, until this is dropped.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct Setup {
    shared: Arc<Shared>,
    slot: usize,
    at: String,
}

impl Setups {
    /// Setups in `folder`, which exists and belongs to this process.
    #[must_use]
    pub fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let opened = read_at_most(&path, FILE_BYTES_MAX).and_then(|bytes| {
            let found = bytes.chunks_exact(SLOT_BYTES).filter_map(decode).collect();
            Ok((found, create_private(&path)?))
        });
        let (found, file) = match opened {
            Ok((found, file)) => (found, Some(file)),
            Err(error) => {
                tracing::warn!(
                    target: log_target::PLUGIN,
                    %error,
                    file = %path.display(),
                    "the file cannot be used: the next run will not know which plugin killed this one"
                );
                (Vec::new(), None)
            }
        };
        Self(Arc::new(Shared { file, inner: Mutex::new(Inner { found, ..Inner::default() }) }))
    }

    /// Setups without a record.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The setups during which the last process died.
    #[must_use]
    pub fn found(&self) -> Vec<Died> {
        self.0.inner().found.clone()
    }

    /// Number of processes in a row that died during this setup.
    #[must_use]
    pub fn deaths(&self, at: &str) -> u32 {
        self.0.inner().deaths(at)
    }

    /// Records a setup.
    pub fn begin(&self, at: String) -> Setup {
        let mut inner = self.0.inner();
        let slot = inner.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            inner.slots.push(None);
            inner.slots.len() - 1
        });
        inner.slots[slot] = Some(at.clone());
        if !inner.closed {
            self.0.write(slot, &encode(&at, inner.deaths(&at).saturating_add(1)));
        }
        Setup { shared: Arc::clone(&self.0), slot, at }
    }

    /// The setups in progress.
    #[must_use]
    pub fn under_way(&self) -> Vec<String> {
        self.0.inner().slots.iter().flatten().cloned().collect()
    }

    /// The process ends intentionally: no setup is the cause.
    pub fn close(&self) {
        let mut inner = self.0.inner();
        inner.closed = true;
        for slot in 0..inner.slots.len() {
            self.0.write(slot, &[0; SLOT_BYTES]);
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        let mut inner = self.shared.inner();
        inner.slots[self.slot] = None;
        // The setup succeeded, which ends the row.
        inner.found.retain(|died| died.at != self.at);
        self.shared.write(self.slot, &[0; SLOT_BYTES]);
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    fn write(&self, slot: usize, bytes: &[u8]) {
        let offset = (slot * SLOT_BYTES) as u64;
        if let Some(file) = &self.file
            && let Err(error) = file.write_all_at(bytes, offset)
        {
            tracing::debug!(target: log_target::PLUGIN, %error, "the setup cannot be recorded");
        }
    }
}

impl Inner {
    fn deaths(&self, at: &str) -> u32 {
        self.found.iter().find(|died| died.at == at).map_or(0, |died| died.times)
    }
}

fn encode(at: &str, deaths: u32) -> [u8; SLOT_BYTES] {
    let at = &at[..at.floor_char_boundary(SLOT_BYTES - HEADER)];
    let mut slot = [0; SLOT_BYTES];
    slot[8..12].copy_from_slice(&deaths.to_le_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "it is cut to less than a slot")]
    slot[12..HEADER].copy_from_slice(&(at.len() as u16).to_le_bytes());
    slot[HEADER..HEADER + at.len()].copy_from_slice(at.as_bytes());
    let checksum = XxHash3_64::oneshot_with_seed(VERSION, &slot[8..]);
    slot[..8].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<Died> {
    let (checksum, body) = slot.split_first_chunk()?;
    // Most of a file is zeros.
    if *checksum == [0; 8] || XxHash3_64::oneshot_with_seed(VERSION, body) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let (times, rest) = body.split_first_chunk()?;
    let (length, text) = rest.split_first_chunk()?;
    let text = text.get(..u16::from_le_bytes(*length).into())?;
    Some(Died { at: String::from_utf8_lossy(text).into_owned(), times: u32::from_le_bytes(*times) })
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;

    fn died(at: &str, times: u32) -> Died {
        Died { at: at.to_owned(), times }
    }

    #[test]
    fn what_is_under_way_when_the_process_dies_is_found_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        for times in 1..=3 {
            let setups = Setups::open(folder.path());
            assert_eq!(setups.deaths("it was being made"), times - 1);
            drop(setups.begin("another was being made".to_owned()));
            mem::forget(setups.begin("it was being made".to_owned()));
        }
        assert_eq!(Setups::open(folder.path()).found(), [died("it was being made", 3)]);
        assert_eq!(Setups::open(folder.path()).found(), []);
    }

    #[test]
    fn what_goes_well_is_counted_no_more() {
        let folder = tempfile::tempdir().unwrap();
        mem::forget(Setups::open(folder.path()).begin("it was being made".to_owned()));
        let setups = Setups::open(folder.path());
        let setup = setups.begin("it was being made".to_owned());
        assert_eq!(setups.under_way(), ["it was being made"]);
        drop(setup);
        assert_eq!((setups.deaths("it was being made"), setups.under_way()), (0, Vec::new()));
    }

    #[test]
    fn an_end_on_purpose_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let setups = Setups::open(folder.path());
        let setup = setups.begin("it was being made".to_owned());
        setups.close();
        mem::forget((setup, setups.begin("it was being ended".to_owned())));
        assert_eq!(Setups::open(folder.path()).found(), []);
    }

    #[test]
    fn texts_are_cut_to_their_place_and_what_is_no_slot_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        mem::forget(Setups::open(folder.path()).begin("é".repeat(1000)));
        let found = Setups::open(folder.path()).found();
        assert_eq!(found, [died(&"é".repeat(249), 1)]);
        std::fs::write(folder.path().join(FILE), [0xA5; 2000]).unwrap();
        assert_eq!(Setups::open(folder.path()).found(), []);
    }

    #[test]
    fn without_a_file_nothing_is_known() {
        let setups = Setups::open(Path::new("/nowhere"));
        mem::forget(setups.begin("it was being made".to_owned()));
        assert_eq!((setups.found(), setups.deaths("it was being made")), (Vec::new(), 0));
    }
}
