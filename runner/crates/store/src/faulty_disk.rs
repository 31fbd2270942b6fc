//! `FaultyDisk`: a disk in memory that fails on demand, and computes its content after a loss of power.

use std::io;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::database::disk::Disk;
use tidegate_model::sync::{Mutex, MutexGuard};

/// Clones share the disk, so that a test can observe the writes of the store.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk(Arc<Mutex<State>>);

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
    bytes: Vec<u8>,
    /// The bytes that the last good sync has made durable.
    durable: Vec<u8>,
    /// The changes since then, in order.
    unsynced: Vec<Change>,
    failure: Option<DiskFailure>,
    struck: bool,
    operations: u64,
    syncs: u64,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

/// Bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

impl FaultyDisk {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these durable bytes.
    #[must_use]
    pub fn with(bytes: Vec<u8>) -> Self {
        let state = State { durable: bytes.clone(), bytes, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
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
    pub fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// The bytes after a loss of power: synced ones, and of the later writes some sectors, chosen by the
    /// `seed`. Seed 0 keeps none of them.
    #[must_use]
    pub fn survivors(&self, seed: u64) -> Vec<u8> {
        let state = self.state();
        let mut bytes = state.durable.clone();
        if seed == 0 {
            return bytes;
        }
        for (number, change) in state.unsynced.iter().enumerate() {
            match change {
                Change::SetLen(len) if kept(seed, number, 0) => bytes.resize(*len, 0),
                Change::SetLen(_) => {}
                Change::Write { offset, data } => {
                    for (sector, piece) in data.chunks(SECTOR_BYTES).enumerate() {
                        let at = offset + sector * SECTOR_BYTES;
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
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

    /// A change after the power failure is never durable.
    fn remember(&mut self, change: Change) {
        if !(self.struck && matches!(self.failure, Some(DiskFailure::FreezeAt(_)))) {
            self.unsynced.push(change);
        }
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

    fn write(&mut self, offset: usize, data: &[u8]) {
        if self.bytes.len() < offset + data.len() {
            self.bytes.resize(offset + data.len(), 0);
        }
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        self.remember(Change::Write { offset, data: data.to_vec() });
    }
}

impl Disk for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.operate(false)?;
        Ok(state.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.operate(false)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let end = offset.saturating_add(out.len());
        let bytes = state.bytes.get(offset..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let grows = len > state.bytes.len();
        state.operate(grows)?;
        state.bytes.resize(len, 0);
        state.remember(Change::SetLen(len));
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
        state.make_durable();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let struck_before = state.struck;
        if let Err(error) = state.operate(true) {
            if !struck_before {
                state.write(offset, &data[..data.len() / 2]);
            }
            return Err(error);
        }
        state.write(offset, data);
        Ok(())
    }
}
