//! Where a plugin's step puts its outputs.

use crate::abi::{TIDEGATE_OK, TidegateAnswer, TidegateBytes};
use crate::{Failure, FailureKind};

/// Takes the outputs of one attempt. They are delivered together when the attempt succeeds, and dropped
/// when it fails.
#[derive(Debug)]
pub struct Outlet<'a> {
    answer: *const TidegateAnswer,
    bindings: &'a [String],
    /// Where values are written before they are pushed; kept from job to job.
    scratch: &'a mut Vec<u8>,
}

impl<'a> Outlet<'a> {
    /// # Safety
    /// `answer` is as the ABI says, and is not used past the call that it belongs to.
    pub(crate) unsafe fn new(
        answer: *const TidegateAnswer,
        bindings: &'a [String],
        scratch: &'a mut Vec<u8>,
    ) -> Self {
        Self { answer, bindings, scratch }
    }

    /// Adds an output, a JSON text, to the one output of the step. A step without `to` drops it.
    ///
    /// # Errors
    /// Where the step has several outputs.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), Failure> {
        match self.bindings.len() {
            0 => Ok(()),
            1 => self.push_at(0, payload),
            _ => {
                let message =
                    format!("the step has several outputs ({}); name one", self.bindings.join(", "));
                Err(Failure::new(FailureKind::Output, message))
            }
        }
    }

    /// Adds an output, a JSON text, to the output called `binding`.
    ///
    /// # Errors
    /// Where the step has no output of this name.
    pub fn push_to(&mut self, binding: &str, payload: &[u8]) -> Result<(), Failure> {
        match self.bindings.iter().position(|name| name == binding) {
            Some(position) => self.push_at(position, payload),
            None => Err(Failure::new(FailureKind::Output, format!("the step has no output `{binding}`"))),
        }
    }

    /// Adds `value` as JSON to the one output of the step.
    ///
    /// # Errors
    /// As [`Self::push`], and where it cannot be written as JSON.
    pub fn give(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        self.written(value, Self::push)
    }

    /// Adds `value` as JSON to the output called `binding`.
    ///
    /// # Errors
    /// As [`Self::push_to`], and where it cannot be written as JSON.
    pub fn give_to(&mut self, binding: &str, value: &impl serde::Serialize) -> Result<(), Failure> {
        self.written(value, |outlet, payload| outlet.push_to(binding, payload))
    }

    fn written(
        &mut self,
        value: &impl serde::Serialize,
        push: impl FnOnce(&mut Self, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut payload = std::mem::take(self.scratch);
        payload.clear();
        let written = serde_json::to_writer(&mut payload, value)
            .map_err(|error| Failure::new(FailureKind::Output, format!("the output is no JSON: {error}")));
        let pushed = written.and_then(|()| push(self, &payload));
        *self.scratch = payload;
        pushed
    }

    fn push_at(&mut self, position: usize, payload: &[u8]) -> Result<(), Failure> {
        // SAFETY: `new` was told that it lives for the call, and so for this outlet.
        let answer = unsafe { &*self.answer };
        let status = match (answer.push, u32::try_from(position)) {
            (Some(push), Ok(position)) => {
                // SAFETY: as the ABI asks: on the thread of the call, with bytes that live until it returns.
                unsafe { push(answer.target, position, TidegateBytes::of(payload)) }
            }
            _ => TIDEGATE_OK + 1,
        };
        if status == TIDEGATE_OK {
            return Ok(());
        }
        Err(Failure::new(FailureKind::Output, "the runner does not take the output"))
    }
}
