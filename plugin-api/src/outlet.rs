//! `Outlet`: receives the outputs of a plugin's step.

use crate::abi::{TIDEGATE_OK, TidegateAnswer, TidegateBytes};
use crate::{Failure, FailureKind, borrowed, finite};

/// Receives the outputs of one attempt. They are delivered together when the attempt succeeds, and dropped
/// when it fails.
#[derive(Debug)]
pub struct Outlet<'a> {
    answer: TidegateAnswer,
    bindings: &'a [String],
    /// The buffer for values before they are pushed; reused for each job.
    scratch: &'a mut Vec<u8>,
}

impl<'a> Outlet<'a> {
    /// # Safety
    /// `answer` fulfils the ABI, and is not used after the call that it belongs to.
    pub(crate) unsafe fn new(
        answer: *const TidegateAnswer,
        bindings: &'a [String],
        scratch: &'a mut Vec<u8>,
    ) -> Self {
        // SAFETY: the caller vouches for it. The runner may know fewer fields, or more.
        let answer = unsafe { borrowed::sized(answer) };
        Self { answer, bindings, scratch }
    }

    /// Adds an output, a JSON text, to the only output of the step. A step without `to` drops it.
    ///
    /// # Errors
    /// The step has several outputs, or the outputs of the job together exceed `limits.memory`.
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
    /// The step has no output of this name.
    pub fn push_to(&mut self, binding: &str, payload: &[u8]) -> Result<(), Failure> {
        match self.bindings.iter().position(|name| name == binding) {
            Some(position) => self.push_at(position, payload),
            None => Err(Failure::new(FailureKind::Output, format!("the step has no output `{binding}`"))),
        }
    }

    /// Adds `value` as JSON to the only output of the step.
    ///
    /// # Errors
    /// As [`Self::push`], and if it has no JSON form: `NaN` and the infinite numbers have none, and the
    /// failure names their field.
    pub fn give(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        self.written(value, Self::push)
    }

    /// Adds `value` as JSON to the output called `binding`.
    ///
    /// # Errors
    /// As [`Self::push_to`], and if it has no JSON form.
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
        let written = serde_json::to_writer(&mut payload, value).map_err(|error| error.to_string());
        // A number without a JSON form is written as `null`.
        let nulls = payload.windows(4).any(|bytes| bytes == b"null");
        let written = written.and_then(|()| if nulls { finite::check(value) } else { Ok(()) });
        let no_json = |why| Failure::new(FailureKind::Output, format!("the output is not JSON: {why}"));
        let written = written.map_err(no_json);
        let pushed = written.and_then(|()| push(self, &payload));
        *self.scratch = payload;
        pushed
    }

    fn push_at(&mut self, position: usize, payload: &[u8]) -> Result<(), Failure> {
        let answer = &self.answer;
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
        Err(Failure::new(FailureKind::Output, "the runner refuses the output"))
    }
}
