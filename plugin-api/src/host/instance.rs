//! Instance: runs the attempts of one step on one thread, and ends once.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::answer::{Target, call};
use super::line::{Ended, Keep, Line};
use super::output;
use crate::abi::{TidegateAnswer, TidegateBytes, TidegateJob, TidegateSetup};
use crate::{Checkpoint, Failure, Job, Outputs};

#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) create:
        unsafe extern "C" fn(*const TidegateSetup, *const TidegateAnswer, *mut *mut c_void) -> i32,
    pub(super) process: unsafe extern "C" fn(*mut c_void, *const TidegateJob, *const TidegateAnswer) -> i32,
    pub(super) destroy: unsafe extern "C" fn(*mut c_void, *const TidegateAnswer) -> i32,
}

/// The settings of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    pub pipeline: &'a str,
    pub step: &'a str,
    /// A JSON object.
    pub config: &'a str,
    pub bindings: &'a [&'a str],
    pub timeout: Option<Duration>,
}

/// An instance of a step; on one thread.
pub struct Instance {
    pub(super) raw: *mut c_void,
    pub(super) functions: Functions,
    /// `None` when it has ended.
    pub(super) line: Option<Arc<Line>>,
    pub(super) keep: Keep,
    /// The outputs before the running job.
    pub(super) before: Checkpoint,
    /// Neither sent nor shared.
    pub(super) _thread: PhantomData<*mut ()>,
}

impl Instance {
    /// Runs one attempt, whose outputs are limited to `memory` bytes, and validates its outputs. The caller
    /// must remove the outputs of a failed attempt.
    ///
    /// # Errors
    /// The failure of the plugin, or of an output. After [`FailureKind::Panicked`] the instance should be
    /// dropped.
    pub fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs, memory: u64) -> Result<(), Failure> {
        outputs.mark(&mut self.before);
        let raw_job = TidegateJob {
            size: size_of::<TidegateJob>(),
            payload: TidegateBytes::of(job.payload),
            index: job.index,
            hash_high: (job.hash >> 64) as u64,
            #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
            hash_low: job.hash as u64,
            now_ms: job.now_ms,
            attempt: job.attempt,
            piece: job.piece,
        };
        let (process, raw) = (self.functions.process, self.raw);
        let mut target = Target { memory, room: memory, ..Target::new(Some(&mut *outputs)) };
        // SAFETY: as the ABI asks: `create` made it, on this thread, and it is not destroyed.
        target.call(|answer| unsafe { process(raw, &raw const raw_job, answer) })?;
        output::check(job, &self.before, outputs)
    }

    /// Ends the instance.
    ///
    /// # Errors
    /// The failure of the plugin; the instance is gone nevertheless.
    pub fn close(mut self) -> Result<Ended, Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<Ended, Failure> {
        let Some(line) = self.line.take() else { return Ok(Ended::Clean) };
        line.ended.store(true, Ordering::Release);
        let (destroy, raw) = (self.functions.destroy, self.raw);
        // SAFETY: as the ABI asks: `create` made it, on this thread, and this is the only `destroy`, since
        // the line is taken once.
        let destroyed = call(None, |answer| unsafe { destroy(raw, answer) });
        let ended = line.end(&self.keep);
        destroyed.map(|()| ended)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.end(); // a caller that needs the result calls `close`
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").finish_non_exhaustive()
    }
}
