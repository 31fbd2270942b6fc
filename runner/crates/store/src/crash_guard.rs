//! What each worker is attempting, where the death of the process cannot take it away: the file
//! `attempts` beside the store. So a job that takes the process down again and again is known by the
//! next run, and set aside.
//!
//! A worker writes what it attempts before it begins, and clears that at the end: two writes a batch,
//! into the page cache, which survives the process. Nothing is synced: a loss of power is no fault of
//! a job. What the next run finds are *suspects*. Batches with a suspect among them run one job after
//! the other, each written down by itself, and alone in the process, so that the next death has one
//! culprit. An attempt that ends with the process alive absolves its job. What has not been reached
//! when the process dies again stays a suspect.
//!
//! A file that cannot be written stops nothing: jobs are then attempted without a trace.
//!
//! | room | what it knows |
//! | --- | --- |
//! | `span` | jobs, by step and row |
//! | `cell` | jobs and their crashes, as bytes |
//! | `suspects` | what earlier deaths say about a job |

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::database::disk::{Disk, FileDisk};
use cell::{CELL_BYTES, Suspect};
use suspects::{SUSPECTS_MAX, Suspects};
use tidegate_model::log_target;
use tidegate_model::{Address, create_private, read_at_most};

pub(crate) mod cell;
pub(crate) mod span;
pub(crate) mod suspects;

pub use span::AttemptSpan;

const FILE: &str = "attempts";
const FILE_IN_THE_MAKING: &str = "attempts.new";
/// Longer than any that we write.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// How many spans one worker can attempt together; what has more runs one by one.
const SLOT_CELLS: usize = 8;
const SLOT_BYTES: usize = SLOT_CELLS * CELL_BYTES;

/// The file begins with the suspects; the slots of the workers follow.
const SLOTS_AT: usize = SUSPECTS_MAX * CELL_BYTES;

/// Slots that the file has room for from the start, so that a full disk does not matter. With more
/// it grows.
const SLOTS_READY: usize = 64;

/// The attempts of a process, and the suspects that the last one left. Its clones are one.
#[derive(Clone, Debug)]
pub struct CrashGuard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None`: nothing is written down.
    disk: Option<Box<dyn Disk>>,
    /// For messages.
    path: PathBuf,
    /// A write has failed, and that was said.
    failed: AtomicBool,
    /// Nothing more is written down.
    closed: AtomicBool,
    /// How many there are.
    slots: AtomicU64,
    suspects: Mutex<Suspects>,
    /// There are none. Never becomes false again, so that the fast path needs no lock.
    unsuspicious: AtomicBool,
    /// Held by all who run a batch while there are suspects; by one alone whose batch has some.
    alone: RwLock<()>,
}

/// The place of one worker.
#[derive(Debug)]
pub struct WorkerSlot {
    shared: Arc<Shared>,
    offset: u64,
}

/// How a batch is to be run.
#[derive(Debug)]
pub enum BatchMode<'a> {
    /// As a whole, as long as the attempt lives.
    Together(AttemptGuard<'a>),
    /// Job by job, each with its own attempt.
    OneByOne(SuspectRun<'a>),
}

/// A batch that is run job by job.
#[derive(Debug)]
pub struct SuspectRun<'a> {
    slot: &'a WorkerSlot,
    crash_limit: u32,
    _turn: Exclusivity<'a>,
}

/// What becomes of a job.
#[derive(Debug)]
pub enum SuspectVerdict<'a> {
    /// It is attempted, as long as the attempt lives.
    Run(AttemptGuard<'a>),
    /// The process died so many times in a row while it was attempted: it is not attempted again.
    SetAside { crashes: u32 },
}

/// Something is being attempted. Ends when it is dropped, also by a panic: that is no death of the
/// process.
#[derive(Debug)]
#[must_use = "the attempt ends when this is dropped"]
pub struct AttemptGuard<'a> {
    slot: &'a WorkerSlot,
    /// How much of the slot it takes.
    bytes: usize,
    /// Is no suspect any more at the end.
    absolves: Option<AttemptSpan>,
    _turn: Exclusivity<'a>,
}

/// Who else may run jobs meanwhile.
#[derive(Debug)]
#[expect(dead_code, reason = "guards are held, not read")]
enum Exclusivity<'a> {
    /// Everybody, since there are no suspects, or an outer turn says it.
    Any,
    /// Everybody who does not want to be alone.
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl CrashGuard {
    /// Attempts in `folder`, which exists and belongs to this process, and what the last process
    /// was attempting when it died. Where the file cannot be read or made, that is said, and the
    /// run does without.
    #[must_use]
    pub fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let bytes = read_at_most(&path, FILE_BYTES_MAX).unwrap_or_else(|error| {
            tracing::warn!(
                target: log_target::STORE,
                %error,
                file = %path.display(),
                "what the last run attempted cannot be read: a job that takes the process down is tried again"
            );
            Vec::new()
        });
        let suspects = Suspects::gather(cell::decode_all(&bytes));
        let made = make(folder, &path, &suspects);
        let disk = made.map_err(|error| warn(&path, &error)).ok();
        Self::on(disk.map(|disk| Box::new(disk) as Box<dyn Disk>), path, suspects)
    }

    /// Attempts that leave no trace.
    #[must_use]
    pub fn none() -> Self {
        Self::on(None, PathBuf::new(), Suspects::default())
    }

    fn on(disk: Option<Box<dyn Disk>>, path: PathBuf, suspects: Suspects) -> Self {
        Self(Arc::new(Shared {
            disk,
            path,
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            slots: AtomicU64::new(0),
            unsuspicious: AtomicBool::new(suspects.is_empty()),
            suspects: Mutex::new(suspects),
            alone: RwLock::default(),
        }))
    }

    /// The jobs that a step took from this input alone, and was attempting when the last process died: the
    /// first and the last index.
    #[must_use]
    pub fn suspects(&self, step: &Address, input: &str) -> Vec<(u64, u64)> {
        let origin = AttemptSpan::new(step, &[(input, 1)], 1).origin;
        let of_input =
            |span: &AttemptSpan| (span.origin == origin).then(|| (span.first, span.end().saturating_sub(1)));
        self.0.suspects().cells().iter().flatten().filter_map(|suspect| of_input(&suspect.span)).collect()
    }

    /// A place for one more worker.
    #[must_use]
    pub fn slot(&self) -> WorkerSlot {
        let number = self.0.slots.fetch_add(1, Ordering::Relaxed);
        WorkerSlot { shared: Arc::clone(&self.0), offset: slot_offset(number) }
    }

    /// The process ends on purpose, in the middle of whatever is attempted: no job is the cause.
    pub fn close(&self) {
        let slots = self.0.slots.load(Ordering::Relaxed);
        self.0.closed.store(true, Ordering::Release);
        for number in 0..slots {
            self.0.write_cells(slot_offset(number), &[0; SLOT_BYTES]);
        }
    }

    /// These jobs are accounted for, durably. Those that were set aside are forgotten, and attempted
    /// like any other where somebody puts them back.
    pub fn settle(&self, span: &AttemptSpan) {
        self.0.clear(span);
    }
}

impl WorkerSlot {
    /// Begins a batch that consists of these spans. Waits until others have come through theirs,
    /// where one of them, or this one, has suspects.
    pub fn begin(&mut self, batch: &[AttemptSpan], crash_limit: u32) -> BatchMode<'_> {
        let shared = &*self.shared;
        let suspicious = shared.concerns(batch);
        let leaves_traces = shared.disk.is_some();
        let one_by_one = suspicious || leaves_traces && (crash_limit <= 1 || batch.len() > SLOT_CELLS);
        let turn = shared.turn(suspicious);
        if one_by_one {
            return BatchMode::OneByOne(SuspectRun { slot: self, crash_limit, _turn: turn });
        }
        BatchMode::Together(self.attempt(batch, 1, turn))
    }

    /// Writes down what will have been attempted `crashes` times if the process dies now.
    fn attempt<'a>(&'a self, spans: &[AttemptSpan], crashes: u32, turn: Exclusivity<'a>) -> AttemptGuard<'a> {
        let mut cells = [0; SLOT_BYTES];
        let exact = spans.iter().map(|span| span.jobs).sum::<u64>() == 1;
        for (cell, &span) in cells.chunks_exact_mut(CELL_BYTES).zip(spans) {
            cell.copy_from_slice(&cell::encode(&Suspect { span, crashes, exact }));
        }
        let bytes = spans.len().min(SLOT_CELLS) * CELL_BYTES;
        if !self.shared.closed.load(Ordering::Acquire) {
            self.shared.write_cells(self.offset, &cells[..bytes]);
        }
        AttemptGuard { slot: self, bytes, absolves: None, _turn: turn }
    }
}

impl<'a> SuspectRun<'a> {
    /// The next job of the batch. The attempt of the one before it has been dropped.
    pub fn attempt(&mut self, job: &AttemptSpan) -> SuspectVerdict<'a> {
        let (crashes, exact) = self.slot.shared.crashes(job);
        if exact && crashes >= self.crash_limit {
            return SuspectVerdict::SetAside { crashes };
        }
        let mut attempt = self.slot.attempt(&[*job], crashes.saturating_add(1), Exclusivity::Any);
        attempt.absolves = (crashes > 0).then_some(*job);
        SuspectVerdict::Run(attempt)
    }
}

impl SuspectRun<'_> {
    /// This job halts its step, and so was answered: somebody looks at it before the next attempt.
    pub fn forget(&self, job: &AttemptSpan) {
        self.slot.shared.clear(job);
    }
}

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        let shared = &self.slot.shared;
        shared.write_cells(self.slot.offset, &[0; SLOT_BYTES][..self.bytes]);
        if let Some(job) = &self.absolves {
            shared.clear(job);
        }
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

    fn turn(&self, alone: bool) -> Exclusivity<'_> {
        // Nothing is behind the lock that a panic could have left half done.
        match (self.is_unsuspicious(), alone) {
            (true, _) => Exclusivity::Any,
            (false, false) => Exclusivity::Shared(self.alone.read().unwrap_or_else(PoisonError::into_inner)),
            (false, true) => Exclusivity::Alone(self.alone.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn is_unsuspicious(&self) -> bool {
        self.unsuspicious.load(Ordering::Acquire)
    }

    fn suspects(&self) -> MutexGuard<'_, Suspects> {
        // The list is whole between any two operations on it.
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
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
        "what is attempted cannot be written down: a job that takes the process down will be tried again"
    );
}

/// Makes the file anew. It takes the place of the old one when everything is in it.
fn make(folder: &Path, path: &Path, suspects: &Suspects) -> io::Result<FileDisk> {
    let path_in_the_making = folder.join(FILE_IN_THE_MAKING);
    let mut file = create_private(&path_in_the_making)?;
    file.write_all(&first_bytes(suspects))?;
    fs::rename(&path_in_the_making, path)?;
    FileDisk::new(file, path)
}

/// A file in which nothing is attempted. Its length is written out, so that there is room on the
/// disk for what follows.
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
