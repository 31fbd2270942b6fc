//! A disk in memory that fails on demand, and tells what would be left after a loss of power.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use twox_hash::XxHash3_64;

use crate::database::disk::Disk;

/// The clones are one disk, so that a test can look at what the store does to it.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk(Arc<Mutex<State>>);

/// What is going to happen. Operations and syncs are counted from 1, from when the failure was
/// set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Every operation from this one on fails. If it is a write, the first half of it is done.
    From(u64),
    /// From this operation on there is no room: what would write or grow fails, and half of what
    /// the first one writes is done. [`FaultyDisk::heal`] makes room.
    FullFrom(u64),
    /// The power goes during this sync, and nobody is told: later operations seem to succeed.
    FreezeAt(u64),
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    /// What the last good sync has made durable.
    durable: Vec<u8>,
    /// What has happened since then, in order.
    unsynced: Vec<Change>,
    failure: Option<Failure>,
    struck: bool,
    operations: u64,
    syncs: u64,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

/// What a disk writes as a whole, in bytes.
const SECTOR_BYTES: usize = 512;

impl FaultyDisk {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these bytes on it, all durable.
    #[must_use]
    pub fn with(bytes: Vec<u8>) -> Self {
        let state = State { durable: bytes.clone(), bytes, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Lets something fail, and counts anew.
    pub fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.failure = Some(failure);
        (state.operations, state.syncs, state.struck) = (0, 0, false);
    }

    /// Lets nothing fail any more.
    pub fn heal(&self) {
        self.state().failure = None;
    }

    /// Whether the failure has happened.
    #[must_use]
    pub fn struck(&self) -> bool {
        self.state().struck
    }

    /// How many operations there were since the failure was set, or ever.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// How many syncs there were since the failure was set, or ever.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// What is there if only the process dies: everything that was written.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// What is there if the power goes: what was synced, and of what was written since then some
    /// sectors and some not, by the `seed`. Seed 0 keeps none of them.
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
                        // What would be past the end is lost with the growth of the file.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            Some(Failure::From(operation)) if self.operations >= operation => {
                io::Error::other("the disk has failed, as the test wants it")
            }
            Some(Failure::FullFrom(operation)) if grows && self.operations >= operation => {
                io::Error::from(io::ErrorKind::StorageFull)
            }
            _ => return Ok(()),
        };
        self.struck = true;
        Err(error)
    }

    /// The power goes while the disk freezes: what comes later never happened.
    fn remember(&mut self, change: Change) {
        if !(self.struck && matches!(self.failure, Some(Failure::FreezeAt(_)))) {
            self.unsynced.push(change);
        }
    }

    /// As copying all bytes would, which grow too many to copy at every sync.
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
        if matches!(state.failure, Some(Failure::FreezeAt(sync)) if state.syncs >= sync) {
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
