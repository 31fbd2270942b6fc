//! Answer of one call: collects the outputs and texts that a plugin pushes, and makes them a result.

use std::ffi::c_void;
use std::time::Duration;

use super::output;
use crate::abi::{self, TIDEGATE_FAILED, TIDEGATE_OK, TidegateAnswer, TidegateBytes};
use crate::words::format_duration;
use crate::{Cause, Failure, FailureKind, Outputs, Place, borrowed, json};

/// The answer of one call.
pub(super) struct Target<'a> {
    pub(super) outputs: Option<&'a mut Outputs>,
    pub(super) message: String,
    pub(super) place: Option<Place>,
    pub(super) context: Option<Box<str>>,
    pub(super) delay_ms: u64,
    /// The class of the failure, as a word.
    pub(super) word: Option<String>,
    /// The invalid binding of an output.
    pub(super) astray: Option<u32>,
    /// Maximum bytes of the outputs, and the bytes that are left.
    pub(super) memory: u64,
    pub(super) room: u64,
    /// An output was refused because of the limit.
    pub(super) full: bool,
}

/// Calls into a plugin, with an answer of its own.
pub(super) fn call(
    outputs: Option<&mut Outputs>,
    run: impl FnOnce(*const TidegateAnswer) -> i32,
) -> Result<(), Failure> {
    Target::new(outputs).call(run)
}

impl<'a> Target<'a> {
    pub(super) fn new(outputs: Option<&'a mut Outputs>) -> Self {
        Self {
            outputs,
            message: String::new(),
            place: None,
            context: None,
            delay_ms: 0,
            word: None,
            astray: None,
            memory: 0,
            room: 0,
            full: false,
        }
    }

    pub(super) fn call(&mut self, run: impl FnOnce(*const TidegateAnswer) -> i32) -> Result<(), Failure> {
        let answer = TidegateAnswer {
            size: size_of::<TidegateAnswer>(),
            target: (&raw mut *self).cast(),
            push: Some(push),
            say: Some(say),
            place: Some(place),
            context: Some(context),
            delay: Some(delay),
            word: Some(word),
        };
        let status = run(&raw const answer);
        if status == TIDEGATE_OK && self.astray.is_none() && !self.full {
            return Ok(());
        }
        Err(self.failure(status))
    }

    #[cold]
    pub(super) fn failure(&mut self, status: i32) -> Failure {
        let message = std::mem::take(&mut self.message);
        let tries =
            matches!(status, TIDEGATE_OK | TIDEGATE_FAILED | abi::TIDEGATE_RETRY | abi::TIDEGATE_RETRY_IN);
        // Later outputs are lost, even if the plugin ignores the refusal.
        if self.full && tries {
            return output::too_much(self.memory);
        }
        let (mut kind, default) = match (status, self.astray) {
            (TIDEGATE_OK, Some(binding)) => return astray(binding),
            (TIDEGATE_FAILED, Some(binding)) if message.is_empty() => return astray(binding),
            (TIDEGATE_FAILED, _) => (FailureKind::Failed, "it failed without a reason"),
            (abi::TIDEGATE_RETRY, _) => (FailureKind::Retry, "without a reason"),
            (abi::TIDEGATE_RETRY_IN, _) => {
                (FailureKind::RetryIn(Duration::from_millis(self.delay_ms)), "without a reason")
            }
            (abi::TIDEGATE_REJECT, _) => (FailureKind::Rejected, "without a reason"),
            (abi::TIDEGATE_GATE_CLOSED, _) => (FailureKind::GateClosed, "without a reason"),
            (abi::TIDEGATE_PENDING, _) => (FailureKind::Pending, ""),
            (abi::TIDEGATE_PANICKED, _) => (FailureKind::Panicked, "without a message"),
            (abi::TIDEGATE_HALT, _) => (FailureKind::Halted, "without a reason"),
            (unknown, _) => {
                let message = format!("it returned the unknown status {unknown}");
                return Failure::new(FailureKind::Failed, message);
            }
        };
        if kind == FailureKind::Pending
            && let Some(fault) = output::fault_of_handle(&message)
        {
            return Failure::new(FailureKind::Limit, fault);
        }
        let word = self.word.take().unwrap_or_default();
        let cause = Cause::of_word(&word).filter(|_| tries);
        if status == TIDEGATE_FAILED {
            kind = kind_of_word(&word, cause);
        }
        let message = if message.is_empty() { default.to_owned() } else { message };
        let (context, place) = (self.context.take().map(as_json), self.place.take());
        Failure { context, place, cause, ..Failure::new(kind, message) }
    }
}

/// An output with an invalid binding.
fn astray(binding: u32) -> Failure {
    let message = format!("it gave an output to the unknown binding {binding}");
    Failure::new(FailureKind::Output, message)
}

/// The kind of a failed attempt with this word.
fn kind_of_word(word: &str, cause: Option<Cause>) -> FailureKind {
    match (word, cause) {
        ("payload", _) => FailureKind::Payload,
        ("output", _) => FailureKind::Output,
        ("limit", _) | (_, Some(Cause::Timeout)) => FailureKind::Limit,
        _ => FailureKind::Failed,
    }
}

/// A text that is not JSON, as a JSON text.
fn as_json(context: Box<str>) -> Box<str> {
    match json::check(context.as_bytes()) {
        Ok(()) => context,
        Err(_) => serde_json::Value::from(&*context).to_string().into(),
    }
}

/// The result of an attempt with this `timeout` that ended too late: it has failed. An attempt that obeyed
/// the request to stop is treated the same.
///
/// # Errors
/// The failure. A failure with a request of its own is left unchanged.
pub fn ended_late(processed: Result<(), Failure>, timeout: Option<Duration>) -> Result<(), Failure> {
    match processed {
        Ok(()) => {
            let timeout = format_duration(timeout.unwrap_or_default());
            let message =
                format!("it returned after the `timeout` of {timeout}, so its outputs do not count");
            Err(Failure::new(FailureKind::Limit, message).because(Cause::Timeout))
        }
        Err(failure) if failure.kind == FailureKind::Failed && failure.cause.is_none() => {
            Err(Failure { kind: FailureKind::Limit, ..failure.because(Cause::Timeout) })
        }
        Err(failure) => Err(failure),
    }
}

pub(super) unsafe extern "C" fn push(target: *mut c_void, binding: u32, payload: TidegateBytes) -> i32 {
    // SAFETY: it is the target of the running call, on its thread, and has no other user meanwhile.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    let len = payload.len;
    // SAFETY: the payload lives for this call.
    let payload = unsafe { borrowed::slice(payload) };
    let Some(outputs) = target.outputs.as_deref_mut() else {
        target.astray = Some(binding);
        return TIDEGATE_FAILED;
    };
    // A step without `to` drops its outputs.
    if outputs.bindings() == 0 && binding == 0 {
        return TIDEGATE_OK;
    }
    let Some(payloads) = outputs.get_mut(binding as usize) else {
        target.astray = Some(binding);
        return TIDEGATE_FAILED;
    };
    let Some(room) = target.room.checked_sub(len as u64).filter(|_| len <= borrowed::BYTES_MAX) else {
        target.full = true;
        return TIDEGATE_FAILED;
    };
    target.room = room;
    payloads.push(payload);
    TIDEGATE_OK
}

unsafe extern "C" fn say(target: *mut c_void, text: TidegateBytes) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the text lives for this call.
    target.message = unsafe { borrowed::text(text) };
}

unsafe extern "C" fn place(target: *mut c_void, file: TidegateBytes, line: u32, column: u32) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the text lives for this call.
    let file = unsafe { borrowed::text(file) };
    let column = (column > 0).then_some(u64::from(column));
    target.place = Some(Place { file, line: u64::from(line), column });
}

unsafe extern "C" fn context(target: *mut c_void, json: TidegateBytes) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the text lives for this call.
    target.context = Some(unsafe { borrowed::text(json) }.into());
}

unsafe extern "C" fn delay(target: *mut c_void, delay_ms: u64) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    target.delay_ms = delay_ms;
}

unsafe extern "C" fn word(target: *mut c_void, word: TidegateBytes) {
    // SAFETY: as in `push`.
    let target = unsafe { &mut *target.cast::<Target<'_>>() };
    // SAFETY: the word lives for this call.
    target.word = Some(unsafe { borrowed::text(word) });
}
