//! `FaultyDisk`: a disk in memory that fails on demand, and computes its content after a loss of power.
//!
//! It has two files: the store and its write-ahead log. A failure hits both. After a loss of power, the writes to one file
//! may survive without earlier ones to the other.

use std::io;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::database::disk::{Disk, WalBounds, WalSpace};
use tidegate_model::sync::{Mutex, MutexGuard};

/// Clones share the disk, so that a test can observe the writes of the store.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
    /// The file that this handle accesses.
    file: FileKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FileKind {
    #[default]
    Store,
    Wal,
}

/// The bytes of both files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskBytes {
    pub store: Vec<u8>,
    pub wal: Vec<u8>,
}

/// A failure to inject. Operations and syncs are counted from 1, since the failure was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFailure {
    /// Every operation from this one on fails. If it is a write, half of it is done.
    From(u64),
    /// From this operation on the disk is full: writes that need space fail, and half of the first one is
    /// done. [`FaultyDisk::heal`] frees space.
    FullFrom(u64),
    /// The power fails during this sync, unnoticed: later operations seem to succeed.
    FreezeAt(u64),
}

#[derive(Debug, Default)]
struct State {
    store: FileState,
    wal: FileState,
    wal_bounds: Option<WalBounds>,
    failure: Option<DiskFailure>,
    struck: bool,
    operations: u64,
    syncs: u64,
}

#[derive(Debug, Default)]
struct FileState {
    bytes: Vec<u8>,
    /// The bytes that the last good sync has made durable.
    durable: Vec<u8>,
    /// The changes since then, in order.
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

/// Bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// Few, so that tests reach the end of the log.
const WAL_BOUNDS: WalBounds = WalBounds { bytes: 16 << 10, records: 8 };

impl FaultyDisk {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these durable bytes.
    #[must_use]
    pub fn with(bytes: impl Into<DiskBytes>) -> Self {
        let DiskBytes { store, wal } = bytes.into();
        let state = State { store: FileState::with(store), wal: FileState::with(wal), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), file: FileKind::Store }
    }

    /// The same disk, with other bounds for the log of its store.
    #[must_use]
    pub fn bound_wal(self, bounds: WalBounds) -> Self {
        self.state().wal_bounds = Some(bounds);
        self
    }

    /// Injects a failure, and restarts the counts.
    pub fn fail(&self, failure: DiskFailure) {
        let mut state = self.state();
        state.failure = Some(failure);
        (state.operations, state.syncs, state.struck) = (0, 0, false);
    }

    /// Removes the failure.
    pub fn heal(&self) {
        self.state().failure = None;
    }

    /// Whether the failure has happened.
    #[must_use]
    pub fn struck(&self) -> bool {
        self.state().struck
    }

    /// Number of operations since the failure was set, or ever.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Number of syncs since the failure was set, or ever.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The bytes after the process dies: every write.
    #[must_use]
    pub fn bytes(&self) -> DiskBytes {
        let state = self.state();
        DiskBytes { store: state.store.bytes.clone(), wal: state.wal.bytes.clone() }
    }

    /// The bytes after a loss of power: synced ones, and of the later writes some sectors, chosen by the
    /// `seed`. Seed 0 keeps none of them.
    #[must_use]
    pub fn survivors(&self, seed: u64) -> DiskBytes {
        let state = self.state();
        let seeds = if seed == 0 { [0, 0] } else { [seed, !seed] };
        DiskBytes { store: state.store.survivors(seeds[0]), wal: state.wal.survivors(seeds[1]) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl From<Vec<u8>> for DiskBytes {
    fn from(store: Vec<u8>) -> Self {
        Self { store, wal: Vec::new() }
    }
}

/// The parts of a write in each sector, with their offsets.
fn sectors(mut at: usize, mut data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    std::iter::from_fn(move || {
        let (piece, rest) = data.split_at(data.len().min(SECTOR_BYTES - at % SECTOR_BYTES));
        let start = at;
        (at, data) = (at + piece.len(), rest);
        (!piece.is_empty()).then_some((start, piece))
    })
}

fn kept(seed: u64, change: usize, sector: usize) -> bool {
    let key = [change.to_le_bytes(), sector.to_le_bytes()].concat();
    XxHash3_64::oneshot_with_seed(seed, &key) & 1 == 0
}

impl State {
    /// Counts one operation; an error if it fails.
    fn operate(&mut self, grows: bool) -> io::Result<()> {
        self.operations += 1;
        let error = match self.failure {
            Some(DiskFailure::From(operation)) if self.operations >= operation => {
                io::Error::other("the disk has failed, as injected by the test")
            }
            Some(DiskFailure::FullFrom(operation)) if grows && self.operations >= operation => {
                io::Error::from(io::ErrorKind::StorageFull)
            }
            _ => return Ok(()),
        };
        self.struck = true;
        Err(error)
    }

    fn file(&mut self, file: FileKind) -> &mut FileState {
        match file {
            FileKind::Store => &mut self.store,
            FileKind::Wal => &mut self.wal,
        }
    }

    /// A change after the power failure is never durable.
    fn has_lost_power(&self) -> bool {
        self.struck && matches!(self.failure, Some(DiskFailure::FreezeAt(_)))
    }

    fn write(&mut self, file: FileKind, offset: usize, data: &[u8]) {
        let lost = self.has_lost_power();
        let (file, end) = (self.file(file), offset + data.len());
        let grows = file.bytes.len() < end;
        if grows {
            file.bytes.resize(end, 0);
        }
        file.bytes[offset..end].copy_from_slice(data);
        if !lost {
            file.unsynced.extend(grows.then_some(Change::SetLen(end)));
            file.unsynced.push(Change::Write { offset, data: data.to_vec() });
        }
    }
}

impl FileState {
    fn with(bytes: Vec<u8>) -> Self {
        Self { durable: bytes.clone(), bytes, unsynced: Vec::new() }
    }

    /// Equal to a copy of all bytes, which would take too long at every sync.
    fn make_durable(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::SetLen(len) => self.durable.resize(len, 0),
                Change::Write { offset, data } => {
                    let end = offset + data.len();
                    if self.durable.len() < end {
                        self.durable.resize(end, 0);
                    }
                    self.durable[offset..end].copy_from_slice(&data);
                }
            }
        }
    }

    fn survivors(&self, seed: u64) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        if seed == 0 {
            return bytes;
        }
        for (number, change) in self.unsynced.iter().enumerate() {
            match change {
                Change::SetLen(len) if kept(seed, number, 0) => bytes.resize(*len, 0),
                Change::SetLen(_) => {}
                Change::Write { offset, data } => {
                    for (sector, (at, piece)) in sectors(*offset, data).enumerate() {
                        // Bytes beyond the end are lost with the growth of the file.
                        let room = bytes.get_mut(at..at + piece.len());
                        if let Some(room) = room.filter(|_| kept(seed, number, sector)) {
                            room.copy_from_slice(piece);
                        }
                    }
                }
            }
        }
        bytes
    }
}

impl Disk for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.operate(false)?;
        Ok(state.file(self.file).bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.operate(false)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let end = offset.saturating_add(out.len());
        let bytes = state.file(self.file).bytes.get(offset..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let grows = len > state.file(self.file).bytes.len();
        state.operate(grows)?;
        let lost = state.has_lost_power();
        let file = state.file(self.file);
        file.bytes.resize(len, 0);
        if !lost {
            file.unsynced.push(Change::SetLen(len));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.operate(false)?;
        state.syncs += 1;
        if matches!(state.failure, Some(DiskFailure::FreezeAt(sync)) if state.syncs >= sync) {
            state.struck = true;
            return Ok(());
        }
        state.file(self.file).make_durable();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let struck_before = state.struck;
        if let Err(error) = state.operate(true) {
            if !struck_before {
                state.write(self.file, offset, &data[..data.len() / 2]);
            }
            return Err(error);
        }
        state.write(self.file, offset, data);
        Ok(())
    }

    fn wal_space(&self) -> Option<WalSpace> {
        if self.file == FileKind::Wal {
            return None;
        }
        let bounds = self.state().wal_bounds.unwrap_or(WAL_BOUNDS);
        Some(WalSpace { disk: Box::new(Self { file: FileKind::Wal, ..self.clone() }), bounds, bytes_min: 0 })
    }
}
