//! Walk: the way of one job through the processors of a step, piece by piece.
//!
//! A walk keeps the outputs of processors whose pieces are not all through. It holds bytes alone, so an attempt
//! that calls an external system is suspended with its walk, without a thread. Any thread that has the step set up
//! resumes it with the answer: scripts keep nothing between two pieces.

use std::time::Instant;

use tidegate_plugin::{Failure, Outputs, Payloads};

use tidegate_components::calls::Call;
use tidegate_model::Timestamp;
use tidegate_store::LiftedRecord;

/// Outcome of an attempt, or of its part up to a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is handed on at once")]
pub(crate) enum Attempted {
    Through,
    /// It waits for the answer to a call.
    Calls(Call, Box<Suspended>),
}

/// Whether attempts are suspended during their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calling {
    /// The thread waits for each answer.
    Blocks,
    Suspends,
}

/// Attempt that waits for the answer to a call.
#[derive(Debug)]
pub(crate) struct Suspended {
    pub(crate) walk: Walk,
    pub(crate) numbers: PieceNumbers,
    /// Outputs of the job so far.
    pub(crate) outputs: Outputs,
    /// Begin of the attempt, by its deadline.
    pub(crate) begun_nanos: u64,
    /// Time of the attempt, and of its first processor.
    pub(crate) times: AttemptTimes,
    /// Dropped when the attempt has left its thread.
    pub(crate) lifted: Option<LiftedRecord>,
}

/// Times of an attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptTimes {
    pub(crate) now: Timestamp,
    pub(crate) began: Timestamp,
    /// Start of its batch, which is measured with the calls; `None` before the first one.
    pub(crate) started: Option<Instant>,
}

/// Way of a job through the processors.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Outputs on their way, those of later processors last.
    frames: Vec<Frame>,
    /// The processor whose call waits for an answer.
    calls: Option<usize>,
    /// Requests to services after the processors; `None` before.
    pub(crate) sends: Option<Sends>,
}

/// Outputs of one processor on their way through the later ones.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Position of the processor.
    pub(crate) of: usize,
    pub(crate) outputs: Outputs,
    /// Number of pieces that have left it.
    next: usize,
    /// Result of the processor: a pending job has outputs, too.
    pub(crate) ran: Result<(), Failure>,
}

/// Requests to services, for the outputs of a job.
#[derive(Debug)]
pub(crate) struct Sends {
    /// Result of the processors.
    pub(crate) ran: Result<(), Failure>,
    /// The service that is next, and the number of its outputs that were sent.
    pub(crate) service: usize,
    pub(crate) sent: usize,
}

/// Numbers of the pieces of a job, so that external systems can distinguish them.
#[derive(Debug, Default)]
pub(crate) struct PieceNumbers {
    /// Requests and commands so far.
    pub(crate) calls: u32,
    /// Pieces so far, by processor.
    counts: Vec<u32>,
}

impl Walk {
    /// The next piece of the last outputs: the processor that it goes to, and its payload.
    pub(crate) fn next_piece(&mut self) -> Option<usize> {
        let frame = self.frames.last_mut()?;
        let has_more = frame.pieces().is_some_and(|pieces| frame.next < pieces.len());
        has_more.then(|| {
            frame.next += 1;
            frame.of + 1
        })
    }

    /// The piece that has left last; `None`: the job itself.
    pub(crate) fn piece(&self) -> Option<&[u8]> {
        let frame = self.frames.last()?;
        frame.pieces()?.get(frame.next.checked_sub(1)?)
    }

    /// Adds the outputs of a processor.
    pub(crate) fn push(&mut self, of: usize, outputs: Outputs, ran: Result<(), Failure>) {
        self.frames.push(Frame { of, outputs, next: 0, ran });
    }

    /// Removes the last outputs.
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        self.frames.pop()
    }

    /// The processor waits for the answer to its call.
    pub(crate) fn begin_call(&mut self, of: usize) {
        self.calls = Some(of);
    }

    /// The processor whose call is answered; `None`: a service.
    pub(crate) fn end_call(&mut self) -> Option<usize> {
        self.calls.take()
    }
}

impl Frame {
    fn pieces(&self) -> Option<&Payloads> {
        self.outputs.get(0)
    }
}

impl PieceNumbers {
    /// Begins with a job, for a chain of `processors` processors.
    pub(crate) fn begin(&mut self, processors: usize) {
        self.calls = 0;
        self.counts.clear();
        self.counts.resize(processors, 0);
    }

    /// Number of the next piece at this processor. Each processor counts its own pieces, so a piece has the same
    /// number on its own and in a batch.
    pub(crate) fn next_at(&mut self, processor: usize) -> u32 {
        let Some(count) = self.counts.get_mut(processor) else { return 0 };
        let piece = *count;
        *count = piece.saturating_add(1);
        piece
    }

    /// Number of the next request or command.
    pub(crate) fn next_call(&mut self) -> u32 {
        self.calls = self.calls.saturating_add(1);
        self.calls
    }
}
