//! Write-ahead log: makes small commits durable by one write and one sync of the file `store.wal`.
//!
//! A *checkpoint* is a commit that makes the store itself durable, with all commits before it. A commit behind a
//! checkpoint can be in the log instead: its changes are in the memory of redb, and in a record of the log. The next
//! checkpoint writes the pages of all these commits at once, and begins the log anew. After a crash, the records behind the
//! last checkpoint are applied again ([`recover`]).
//!
//! The log belongs to a state of the store: see [`state::WalState`]. A checkpoint that begins a log follows the creation
//! of the file. When the store is closed, a last checkpoint closes the log, and the file is emptied. So a store at rest
//! is whole without the file.

pub(crate) mod frames;
pub(crate) mod record;
pub(crate) mod state;

use std::collections::BTreeSet;
use std::io;

use redb::{Database, ReadableDatabase as _};

use self::frames::{FoundCommits, HEADER_BYTES};
use self::record::packed::unpack;
use self::state::{WalState, random};
use super::changes::{Changes, apply};
use super::disk::{Taken, WAL_FILE, WalBounds, WalSpace};
use super::format::{CommitRecord, META};
use crate::error::{StoreCause, is_full};
use tidegate_model::log_target;

/// The bounds of a log in a file. A checkpoint takes some milliseconds, and opening after a crash less than a second.
/// The records have at most [`RAW_FACTOR`] times these bytes before they are packed.
pub(crate) const BOUNDS: WalBounds = WalBounds { bytes: 4 << 20, records: 1000 };

/// Bytes by which the file grows. They are written ahead of the records: a sync that changes the length of a file costs
/// more. A shorter file of an open log was cut, so a later version must not raise it.
pub(crate) const GROWTH_BYTES: u64 = 256 << 10;

const PAGE_BYTES: u64 = 4096;

const RAW_FACTOR: u64 = 4;

/// Number of commits of an opening before the first that begins a log. A command that commits once needs no file.
const COMMITS_BEFORE_LOG: u64 = 1;

/// The log of an open store, as its writer knows it.
#[derive(Debug)]
pub(crate) struct Wal {
    /// As the last checkpoint has recorded it.
    state: WalState,
    salt: u64,
    /// Number of commits since the opening.
    commits: u64,
    /// The offset of the next frame. 0: the next write has the header, too.
    end: u64,
    /// Number of frames.
    records: u64,
    /// Bytes of their records before they were packed. They bound the time of a recovery.
    raw_bytes: u64,
    /// Bytes that the file has at least.
    len: u64,
    /// A file that could not be created was reported.
    is_failure_reported: bool,
}

/// The way in which a commit becomes durable.
#[derive(Debug)]
pub(crate) enum CommitPlan<'a> {
    /// This frame of the log.
    Log { space: &'a WalSpace, frame: NextFrame },
    /// A checkpoint. `next` is the state to record with it, and `create` the space of a log that has no file yet.
    Checkpoint { create: Option<&'a WalSpace>, next: Option<WalState> },
}

/// The next frame of a log, and the header before the first one.
#[derive(Debug)]
pub(crate) struct NextFrame {
    bytes: Vec<u8>,
    /// The offset of its end.
    end: u64,
    /// Bytes of its record before it was packed.
    raw_bytes: u64,
}

impl CommitPlan<'_> {
    /// A checkpoint that leaves the record of the log as it is.
    const PLAIN: Self = Self::Checkpoint { create: None, next: None };
}

impl Wal {
    pub(crate) fn new(state: WalState) -> Self {
        Self {
            state,
            salt: random(),
            commits: 0,
            end: 0,
            records: 0,
            raw_bytes: 0,
            len: 0,
            is_failure_reported: false,
        }
    }

    /// Decides how the commit with this number becomes durable.
    pub(crate) fn plan<'a>(
        &self,
        space: Option<&'a WalSpace>,
        number: u64,
        changes: &Changes,
    ) -> CommitPlan<'a> {
        let Some(space) = space else { return CommitPlan::PLAIN };
        let is_open = self.state.is_open;
        if !is_open && self.commits < COMMITS_BEFORE_LOG {
            return CommitPlan::PLAIN;
        }
        let next = Some(self.state.next(self.salt));
        match record::encode(changes) {
            Some(record) if is_open => {
                let frame = self.frame(number, &record);
                if self.has_room(space.bounds, &frame) {
                    CommitPlan::Log { space, frame }
                } else {
                    CommitPlan::Checkpoint { create: None, next }
                }
            }
            Some(_) => CommitPlan::Checkpoint { create: Some(space), next },
            None if is_open => CommitPlan::Checkpoint { create: None, next },
            None => CommitPlan::PLAIN,
        }
    }

    fn frame(&self, number: u64, record: &[u8]) -> NextFrame {
        let id = self.state.id;
        let mut bytes = if self.end == 0 { frames::header(id) } else { Vec::new() };
        let packed = record::packed::pack(record);
        bytes.extend_from_slice(&frames::frame(id, self.end + bytes.len() as u64, number, &packed));
        let end = self.end + bytes.len() as u64;
        NextFrame { bytes, end, raw_bytes: record.len() as u64 }
    }

    fn has_room(&self, bounds: WalBounds, frame: &NextFrame) -> bool {
        self.records < bounds.records
            && frame.end <= bounds.bytes
            && self.raw_bytes + frame.raw_bytes <= RAW_FACTOR * bounds.bytes
    }

    /// Prepares the file of the log for a commit. If it cannot be created, or cannot grow because the disk is full, the commit
    /// is a checkpoint: the store may be writable. No log is created unless the store is in its place, because it would
    /// belong to another one.
    pub(crate) fn prepare<'a>(
        &mut self,
        plan: CommitPlan<'a>,
        is_in_place: impl FnOnce() -> bool,
    ) -> io::Result<CommitPlan<'a>> {
        match &plan {
            CommitPlan::Log { space, frame } => match self.grow(space, frame.end) {
                Ok(()) => Ok(plan),
                // The folder may have been moved since.
                Err(error) if is_full(&error) || error.kind() == io::ErrorKind::NotFound => {
                    Ok(CommitPlan::Checkpoint { create: None, next: Some(self.state.next(self.salt)) })
                }
                Err(error) => Err(error),
            },
            CommitPlan::Checkpoint { create: Some(_), .. } if !is_in_place() => Ok(CommitPlan::PLAIN),
            CommitPlan::Checkpoint { create: Some(space), .. } => match self.create(space) {
                Ok(()) => Ok(plan),
                // Nothing is in the log yet.
                Err(error) => {
                    self.report_failure(&error);
                    Ok(CommitPlan::PLAIN)
                }
            },
            CommitPlan::Checkpoint { create: None, .. } => Ok(plan),
        }
    }

    fn report_failure(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failure_reported, true) {
            tracing::warn!(
                target: log_target::STORE,
                %error,
                "the file `{WAL_FILE}` cannot be created beside the store; until that succeeds, each commit writes to the \
                 store itself, which takes longer"
            );
        }
    }

    /// Creates the file of the log. On `Ok` it is durable.
    fn create(&mut self, space: &WalSpace) -> io::Result<()> {
        self.len = 0;
        space.disk.set_len(0)?;
        self.grow(space, 1)?;
        space.disk.sync()
    }

    /// Writes the next frame. On `Ok` it is durable.
    pub(crate) fn append(&mut self, space: &WalSpace, frame: &NextFrame) -> io::Result<()> {
        space.disk.write(self.end, &frame.bytes)?;
        space.disk.sync()?;
        (self.end, self.records) = (frame.end, self.records + 1);
        self.raw_bytes += frame.raw_bytes;
        Ok(())
    }

    /// Writes zeros up to a length of at least `end`, page by page. Linux keeps the pages of a larger write together,
    /// and counts all of them as written for each frame in one of them.
    fn grow(&mut self, space: &WalSpace, end: u64) -> io::Result<()> {
        if end <= self.len {
            return Ok(());
        }
        let len = end.next_multiple_of(GROWTH_BYTES).min(space.bounds.bytes).max(end);
        while self.len < len {
            let page = zeros(PAGE_BYTES.min(len - self.len));
            space.disk.write(self.len, &page)?;
            self.len += page.len() as u64;
        }
        Ok(())
    }

    /// Continues behind a checkpoint that has recorded `next`.
    pub(crate) fn checkpointed(&mut self, next: Option<WalState>) {
        self.state = next.unwrap_or(self.state);
        self.commits += 1;
        (self.end, self.records, self.raw_bytes) = (0, 0, 0);
    }

    /// Whether commits may be in the log.
    pub(crate) fn is_open(&self) -> bool {
        self.state.is_open
    }

    /// Whether the file of an open log has lost its end.
    pub(crate) fn is_cut(&self, space: &WalSpace) -> bool {
        space.disk.len().is_ok_and(|len| len < self.len)
    }

    /// The state to record with the last checkpoint.
    pub(crate) fn closed(&self) -> WalState {
        self.state.closed()
    }
}

/// Applies the commits that are in the log and not in the store, and makes them durable in the store. Returns the number of
/// the last commit, and the new state of the log, which is not open then.
pub(crate) fn recover(
    database: &Database,
    space: Option<&WalSpace>,
    quick_repair: bool,
) -> Result<(u64, WalState), StoreCause> {
    let (durable, state) = {
        let txn = database.begin_read()?;
        let meta = txn.open_table(META)?;
        (CommitRecord::read(&meta)?.number, WalState::read(&meta)?)
    };
    let bytes = match space {
        _ if state.is_open => read_open(space, state, durable)?,
        // The store is whole without it, also if this user may not read it.
        Some(space) => read(space, state).unwrap_or_default(),
        None => Vec::new(),
    };
    let len = bytes.len() as u64;
    if state.is_open && len == 0 {
        tracing::warn!(
            target: log_target::STORE,
            commit = durable,
            "`{WAL_FILE}` is empty after a crash, so commits behind this one are lost, if there were any"
        );
    } else if state.is_open && space.is_some_and(|space| len < space.bytes_min) {
        return Err(StoreCause::Wal(format!(
            "is cut short: it has {len} bytes, so commits behind commit {durable} may be lost; restore it, or replace \
             it by an empty file to go on with commit {durable}"
        )));
    }
    let FoundCommits { commits, are_packed } =
        frames::commits(&bytes, state, durable).map_err(StoreCause::Wal)?;
    if !state.is_open {
        return Ok((durable, state));
    }
    let mut txn = database.begin_write()?;
    txn.set_quick_repair(quick_repair);
    let mut last = durable;
    for (number, range) in commits {
        let at = range.start;
        let record = if are_packed { unpack(&bytes[range]) } else { Ok(bytes[range].into()) };
        let changes = record.and_then(|record| record::decode(&record)).map_err(|what| {
            StoreCause::Wal(format!("is damaged at byte {at}: commit {number} cannot be read: {what}"))
        })?;
        apply(&txn, &changes, number, &mut BTreeSet::new())?;
        last = number;
    }
    let closed = state.closed();
    closed.write(&txn)?;
    // A process that has the store open, too, may have added a commit.
    if let Some(space) = space
        && read(space, state)? != bytes
    {
        return Err(io::Error::other(Taken).into());
    }
    txn.commit()?;
    Ok((last, closed))
}

/// The bytes of the log of a store that crashed after commit `durable`.
fn read_open(space: Option<&WalSpace>, state: WalState, durable: u64) -> Result<Vec<u8>, StoreCause> {
    let unreadable = |error| {
        StoreCause::Wal(format!(
            "cannot be read, and commits behind commit {durable} may be in it: {error}; make it a file that this user \
             can read and write"
        ))
    };
    match space {
        Some(space) if space.disk.exists().map_err(unreadable)? => read(space, state).map_err(unreadable),
        _ => Err(StoreCause::Wal(format!(
            "is missing, and commits behind commit {durable} may be in it; restore it, or create an empty file in \
             its place to go on with commit {durable}: later commits are lost then"
        ))),
    }
}

/// The bytes of the log, or of its header if it is not open.
fn read(space: &WalSpace, state: WalState) -> io::Result<Vec<u8>> {
    let len = space.disk.len()?;
    let len = if state.is_open { len } else { len.min(HEADER_BYTES as u64) };
    let mut bytes = zeros(len);
    if len > 0 {
        space.disk.read(0, &mut bytes)?;
    }
    Ok(bytes)
}

/// Empties the file of a log that is not open. If that fails, the bytes stay, and are obsolete.
pub(crate) fn empty(space: &WalSpace) {
    if space.disk.len().is_ok_and(|len| len > 0) {
        let _ = space.disk.set_len(0);
    }
}

/// `len` is at most the length of a log.
fn zeros(len: u64) -> Vec<u8> {
    vec![0; usize::try_from(len).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::disk::Disk as _;
    use crate::testing::{DiskFailure, FaultyDisk};

    #[test]
    fn a_commit_whose_log_has_no_room_or_no_place_is_a_checkpoint() {
        let disk = FaultyDisk::new();
        let space = disk.wal_space().unwrap();
        let prepared = |state, is_in_place| {
            let mut wal = Wal { commits: 1, ..Wal::new(state) };
            let plan = wal.plan(Some(&space), 7, &Changes::default());
            wal.prepare(plan, || is_in_place).unwrap()
        };
        let closed = WalState::initial();
        let CommitPlan::Checkpoint { create: None, next: None } = prepared(closed, false) else { panic!() };
        assert_eq!(disk.bytes().wal, b"");
        let CommitPlan::Checkpoint { create: Some(_), next: Some(_) } = prepared(closed, true) else {
            panic!()
        };
        disk.fail(DiskFailure::FullFrom(1));
        let CommitPlan::Checkpoint { create: None, next: None } = prepared(closed, true) else { panic!() };
        // Another log begins.
        let CommitPlan::Checkpoint { create: None, next: Some(next) } = prepared(closed.next(5), true) else {
            panic!()
        };
        assert_eq!((next.id.generation, next.is_open), (2, true));
    }

    #[test]
    fn a_log_holds_four_times_its_bytes_of_records_that_are_not_packed_yet() {
        let space = FaultyDisk::new().wal_space().unwrap();
        let open = WalState::initial().next(5);
        let plan = |raw_bytes| {
            let wal = Wal { raw_bytes, ..Wal::new(open) };
            matches!(wal.plan(Some(&space), 7, &Changes::default()), CommitPlan::Log { .. })
        };
        assert!(plan(0) && !plan(RAW_FACTOR * space.bounds.bytes));
    }
}
