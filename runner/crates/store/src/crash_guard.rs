//! `CrashGuard`: the crash guard. It records the jobs in progress in the file `attempts` beside the store,
//! which survives the death of the process. A job that kills the process several times is recognized by the
//! next run, and quarantined.
//!
//! A worker writes its jobs before it starts them, and clears the record at the end: two writes per batch,
//! into the page cache, which survives the process. Nothing is synced, since no job causes a loss of power.
//! The records that the next run finds are *suspects*. A batch with a suspect runs job by job, and one such
//! batch at a time, beside all others: each job is recorded by itself. The next death then has one culprit
//! among the suspects. A job whose attempt ends without a crash is cleared. A suspect that was not attempted
//! before the next death stays a suspect.
//!
//! While an attempt waits for a command, a request or another process, its record is lifted: that cannot kill
//! this process.
//!
//! If the file cannot be written, jobs run without a record.
//!
//! | module | content |
//! | --- | --- |
//! | `span` | jobs, by step and row |
//! | `cell` | jobs and their number of crashes, as bytes |
//! | `suspects` | the crashes of earlier runs, by job |
//! | `begun` | which claimed jobs were begun |

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::api::parked_job::ParkedId;
use crate::database::disk::{Disk, FileDisk};
use begun::BegunJobs;
use cell::{CELL_BYTES, Suspect};
use suspects::{SUSPECTS_MAX, Suspects};
use tidegate_model::log_target;
use tidegate_model::sync::{Mutex, MutexGuard};
use tidegate_model::{Address, create_private, read_at_most};

pub(crate) mod begun;
pub(crate) mod cell;
pub(crate) mod span;
pub(crate) mod suspects;

pub use span::AttemptSpan;

const FILE: &str = "attempts";
const FILE_IN_THE_MAKING: &str = "attempts.new";
/// Longer than any file that this version writes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of spans that one worker attempts together; a batch with more runs job by job.
const SLOT_CELLS: usize = 8;
const SLOT_BYTES: usize = SLOT_CELLS * CELL_BYTES;

/// The file begins with the suspects, followed by the slots of the workers.
const SLOTS_AT: usize = SUSPECTS_MAX * CELL_BYTES;

/// Number of slots allocated at the start, so that a full disk does not matter. The file grows for more.
const SLOTS_READY: usize = 64;

/// The attempts of a process, and the suspects of the last one. Clones share them.
#[derive(Clone, Debug)]
pub struct CrashGuard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None`: nothing is recorded.
    disk: Option<Box<dyn Disk>>,
    /// For messages.
    path: PathBuf,
    /// A write has failed, and the failure is logged.
    failed: AtomicBool,
    /// No more attempts are recorded.
    closed: AtomicBool,
    /// Number of slots.
    slots: AtomicU64,
    /// Offsets of slots whose workers have ended.
    free_slots: Mutex<Vec<u64>>,
    suspects: Mutex<Suspects>,
    /// The list of suspects is empty. Never becomes false again, so that the fast path needs no lock.
    unsuspicious: AtomicBool,
    /// Locked by the worker whose batch has a suspect.
    turn: Mutex<()>,
    begun: BegunJobs,
}

/// The slot of one worker.
#[derive(Debug)]
pub struct WorkerSlot {
    shared: Arc<Shared>,
    record: AttemptRecord,
}

/// The record of one worker's attempt. Clones share it.
#[derive(Clone, Debug)]
pub struct AttemptRecord(Arc<SlotRecord>);

#[derive(Debug)]
struct SlotRecord {
    shared: Arc<Shared>,
    offset: u64,
    /// Cells of the attempt in progress; empty without one.
    cells: Mutex<Vec<u8>>,
}

/// A time in which the attempt runs outside of this process. Its record returns on drop.
#[derive(Debug)]
#[must_use = "the record returns when this is dropped"]
pub struct LiftedRecord(AttemptRecord);

/// The mode of a batch.
#[derive(Debug)]
pub enum BatchMode<'a> {
    /// As a whole, while the attempt lives.
    Together(AttemptGuard<'a>),
    /// Job by job, each with an attempt of its own.
    OneByOne(SuspectRun<'a>),
}

/// A batch that runs job by job.
#[derive(Debug)]
pub struct SuspectRun<'a> {
    slot: &'a WorkerSlot,
    crash_limit: u32,
    _turn: Turn<'a>,
}

/// The decision on a job.
#[derive(Debug)]
pub enum SuspectVerdict<'a> {
    /// The job runs while the attempt lives.
    Run(AttemptGuard<'a>),
    /// The process died this many times in a row during its attempts: it is not attempted again.
    SetAside { crashes: u32 },
}

/// A running attempt. It ends on drop, also in a panic, which is no death of the process.
#[derive(Debug)]
#[must_use = "the attempt ends when this is dropped"]
pub struct AttemptGuard<'a> {
    slot: &'a WorkerSlot,
    /// The jobs to clear at the end.
    absolves: Option<AttemptSpan>,
}

/// The turn of a batch with suspects; `None` for other batches.
type Turn<'a> = Option<MutexGuard<'a, ()>>;

impl CrashGuard {
    /// Attempts in `folder`, which exists and belongs to this process, with the suspects of the last one.
    /// Suspects of steps other than `guarded` are dropped, since no attempt would clear them. If the file
    /// cannot be read or created, a warning is logged, and the run continues without it.
    #[must_use]
    pub fn open<'a>(folder: &Path, guarded: impl IntoIterator<Item = &'a Address>) -> Self {
        let path = folder.join(FILE);
        let bytes = read_at_most(&path, FILE_BYTES_MAX).unwrap_or_else(|error| {
            tracing::warn!(
                target: log_target::STORE,
                %error,
                file = %path.display(),
                "the attempts of the last run cannot be read: a job that killed the process is tried again"
            );
            Vec::new()
        });
        let guarded: Vec<u64> = guarded.into_iter().map(span::hash_of).collect();
        let found = cell::decode_all(&bytes).into_iter().filter(|suspect| suspect.span.may_be_of(&guarded));
        let suspects = Suspects::gather(found);
        let made = make(folder, &path, &suspects);
        let disk = made.map_err(|error| warn(&path, &error)).ok();
        let begun = BegunJobs::open(folder);
        Self::on(disk.map(|disk| Box::new(disk) as Box<dyn Disk>), path, (suspects, begun))
    }

    /// Attempts without a record.
    #[must_use]
    pub fn none() -> Self {
        Self::on(None, PathBuf::new(), (Suspects::default(), BegunJobs::default()))
    }

    /// Attempts without a file, which know the claimed jobs that were begun before; `None` if that is lost.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn remembering(begun: Option<std::collections::HashSet<ParkedId>>) -> Self {
        Self::on(None, PathBuf::new(), (Suspects::default(), BegunJobs::in_memory(begun)))
    }

    fn on(disk: Option<Box<dyn Disk>>, path: PathBuf, (suspects, begun): (Suspects, BegunJobs)) -> Self {
        Self(Arc::new(Shared {
            disk,
            path,
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            slots: AtomicU64::new(0),
            free_slots: Mutex::default(),
            unsuspicious: AtomicBool::new(suspects.is_empty()),
            suspects: Mutex::new(suspects),
            turn: Mutex::default(),
            begun,
        }))
    }

    /// Starts the record of begun jobs. `claimed`: all claimed jobs in the store.
    pub fn recall(&self, claimed: &[ParkedId]) {
        self.0.begun.start(claimed);
    }

    /// These claimed jobs begin now.
    pub fn begin_claimed(&self, jobs: &[ParkedId]) {
        self.0.begun.begin(jobs);
    }

    /// These jobs have left the store.
    pub fn end_claimed(&self, jobs: &[ParkedId]) {
        self.0.begun.end(jobs);
    }

    /// Whether a claimed job was begun, by this process or before its start.
    #[must_use]
    pub fn has_begun(&self, job: ParkedId) -> bool {
        self.0.begun.has(job)
    }

    /// Claimed jobs that were begun and have not ended.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn begun(&self) -> std::collections::HashSet<ParkedId> {
        self.0.begun.all()
    }

    /// The suspects that a step took from this input alone: the first and the last index.
    #[must_use]
    pub fn suspects(&self, step: &Address, input: &str) -> Vec<(u64, u64)> {
        let origin = AttemptSpan::new(step, &[(input, 1)], 1).origin;
        let of_input =
            |span: &AttemptSpan| (span.origin == origin).then(|| (span.first, span.end().saturating_sub(1)));
        self.0.suspects().cells().iter().flatten().filter_map(|suspect| of_input(&suspect.span)).collect()
    }

    /// A slot for one more worker. It is free again when the worker ends.
    #[must_use]
    pub fn slot(&self) -> WorkerSlot {
        let free = self.0.free_slots.lock().pop();
        let offset = free.unwrap_or_else(|| slot_offset(self.0.slots.fetch_add(1, Ordering::Relaxed)));
        let shared = Arc::clone(&self.0);
        let record = SlotRecord { shared: Arc::clone(&shared), offset, cells: Mutex::default() };
        WorkerSlot { shared, record: AttemptRecord(Arc::new(record)) }
    }

    /// Whether the last process left suspects that are not cleared.
    #[must_use]
    pub fn has_suspects(&self) -> bool {
        !self.0.is_unsuspicious()
    }

    /// The process ends intentionally: no running job is the cause.
    pub fn close(&self) {
        let slots = self.0.slots.load(Ordering::Relaxed);
        self.0.closed.store(true, Ordering::Release);
        for number in 0..slots {
            self.0.write_cells(slot_offset(number), &[0; SLOT_BYTES]);
        }
    }

    /// These jobs are accounted for, durably. Quarantined ones are cleared, and attempted like any other if
    /// an operator retries them.
    pub fn settle(&self, span: &AttemptSpan) {
        self.0.clear(span);
    }
}

impl Drop for SlotRecord {
    fn drop(&mut self) {
        // An attempt that never ended keeps its cells.
        if self.cells.lock().is_empty() {
            self.shared.free_slots.lock().push(self.offset);
        }
    }
}

impl WorkerSlot {
    /// Whether one of these jobs is a suspect.
    #[must_use]
    pub fn suspects(&self, batch: &[AttemptSpan]) -> bool {
        self.shared.concerns(batch)
    }

    /// The attempts that it belongs to.
    #[must_use]
    pub fn guard(&self) -> CrashGuard {
        CrashGuard(Arc::clone(&self.shared))
    }

    /// The record of its attempts.
    #[must_use]
    pub fn record(&self) -> AttemptRecord {
        self.record.clone()
    }

    /// Starts a batch that consists of these spans. A batch with suspects waits for the one that runs.
    pub fn begin(&mut self, batch: &[AttemptSpan], crash_limit: u32) -> BatchMode<'_> {
        let shared = &*self.shared;
        let suspicious = shared.concerns(batch);
        let leaves_traces = shared.disk.is_some();
        let one_by_one = suspicious || leaves_traces && (crash_limit <= 1 || batch.len() > SLOT_CELLS);
        if one_by_one {
            let turn = suspicious.then(|| shared.turn.lock());
            return BatchMode::OneByOne(SuspectRun { slot: self, crash_limit, _turn: turn });
        }
        BatchMode::Together(self.attempt(batch, 1))
    }

    /// Records the attempt, as the one with number `crashes` that the process may die in.
    fn attempt<'a>(&'a self, spans: &[AttemptSpan], crashes: u32) -> AttemptGuard<'a> {
        let mut cells = vec![0; spans.len().min(SLOT_CELLS) * CELL_BYTES];
        let exact = spans.iter().map(|span| span.jobs).sum::<u64>() == 1;
        for (cell, &span) in cells.chunks_exact_mut(CELL_BYTES).zip(spans) {
            cell.copy_from_slice(&cell::encode(&Suspect { span, crashes, exact }));
        }
        self.record.begin(cells);
        AttemptGuard { slot: self, absolves: None }
    }
}

impl<'a> SuspectRun<'a> {
    /// The next job of the batch. The attempt of the one before it has been dropped.
    pub fn attempt(&mut self, job: &AttemptSpan) -> SuspectVerdict<'a> {
        let (crashes, exact) = self.slot.shared.crashes(job);
        if exact && crashes >= self.crash_limit {
            return SuspectVerdict::SetAside { crashes };
        }
        let mut attempt = self.slot.attempt(&[*job], crashes.saturating_add(1));
        attempt.absolves = (crashes > 0).then_some(*job);
        SuspectVerdict::Run(attempt)
    }
}

impl SuspectRun<'_> {
    /// This job halts its step, so an operator inspects it before the next attempt.
    pub fn forget(&self, job: &AttemptSpan) {
        self.slot.shared.clear(job);
    }
}

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        let shared = &self.slot.shared;
        self.slot.record.end();
        if let Some(job) = &self.absolves {
            shared.clear(job);
        }
    }
}

impl AttemptRecord {
    fn begin(&self, cells: Vec<u8>) {
        self.write(&cells);
        *self.0.cells.lock() = cells;
    }

    fn end(&self) {
        let cells = std::mem::take(&mut *self.0.cells.lock());
        self.clear(cells.len());
    }

    /// Lifts the record while the attempt runs outside of this process; `None` without an attempt.
    #[must_use]
    pub fn lift(&self) -> Option<LiftedRecord> {
        let cells = self.0.cells.lock().len();
        (cells > 0).then(|| {
            self.clear(cells);
            LiftedRecord(self.clone())
        })
    }

    fn write(&self, cells: &[u8]) {
        if !self.0.shared.closed.load(Ordering::Acquire) {
            self.0.shared.write_cells(self.0.offset, cells);
        }
    }

    fn clear(&self, bytes: usize) {
        self.0.shared.write_cells(self.0.offset, &[0; SLOT_BYTES][..bytes]);
    }
}

impl Drop for LiftedRecord {
    fn drop(&mut self) {
        self.0.write(&self.0.0.cells.lock());
    }
}

impl Shared {
    fn concerns(&self, batch: &[AttemptSpan]) -> bool {
        !self.is_unsuspicious() && batch.iter().any(|span| self.suspects().concern(span))
    }

    fn crashes(&self, job: &AttemptSpan) -> (u32, bool) {
        if self.is_unsuspicious() { (0, false) } else { self.suspects().crashes(job) }
    }

    fn clear(&self, span: &AttemptSpan) {
        if self.is_unsuspicious() {
            return;
        }
        let mut suspects = self.suspects();
        for place in suspects.absolve(span) {
            let suspect = &suspects.cells()[place];
            let cell = suspect.as_ref().map_or([0; CELL_BYTES], cell::encode);
            self.write_cells((place * CELL_BYTES) as u64, &cell);
        }
        self.unsuspicious.store(suspects.is_empty(), Ordering::Release);
    }

    fn is_unsuspicious(&self) -> bool {
        self.unsuspicious.load(Ordering::Acquire)
    }

    fn suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock()
    }

    /// Several workers write at a time, each to cells of its own.
    fn write_cells(&self, offset: u64, bytes: &[u8]) {
        let Some(disk) = &self.disk else { return };
        if let Err(error) = disk.write(offset, bytes)
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            warn(&self.path, &error);
        }
    }
}

fn slot_offset(number: u64) -> u64 {
    SLOTS_AT as u64 + number * SLOT_BYTES as u64
}

fn warn(path: &Path, error: &io::Error) {
    tracing::warn!(
        target: log_target::STORE,
        %error,
        file = %path.display(),
        "attempts cannot be recorded: a job that kills the process will be tried again"
    );
}

/// Creates the file again. It replaces the old one when it is complete.
fn make(folder: &Path, path: &Path, suspects: &Suspects) -> io::Result<FileDisk> {
    let path_in_the_making = folder.join(FILE_IN_THE_MAKING);
    let mut file = create_private(&path_in_the_making)?;
    file.write_all(&first_bytes(suspects))?;
    fs::rename(&path_in_the_making, path)?;
    FileDisk::new(file, path)
}

/// A file without running attempts. Its full length is written, so that the disk has space for later records.
fn first_bytes(suspects: &Suspects) -> Vec<u8> {
    let mut bytes = vec![0; SLOTS_AT + SLOTS_READY * SLOT_BYTES];
    for (cell, suspect) in bytes.chunks_exact_mut(CELL_BYTES).zip(suspects.cells()) {
        if let Some(suspect) = suspect {
            cell.copy_from_slice(&cell::encode(suspect));
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
