//! The one trait of a step, and the job it is given.

use crate::{Failure, Outputs};

/// One job, as one attempt of a step sees it.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The job's place in its source or queue, from 1.
    pub index: u64,
    /// JSON, UTF-8.
    pub payload: &'a [u8],
    /// From 1.
    pub attempt: u32,
    /// The time of the attempt, milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// The delivery hash: the same on every attempt and after every restart.
    pub hash: u128,
}

#[cfg(feature = "json")]
impl<'a> Job<'a> {
    /// The payload, read as a `T`.
    ///
    /// # Errors
    /// A failed attempt where it is not what a `T` needs.
    pub fn parse<T: serde::Deserialize<'a>>(&self) -> Result<T, Failure> {
        // Looking once whether it is UTF-8 is faster than doing so for each text in it.
        serde_json::from_str(std::str::from_utf8(self.payload)?).map_err(|error| {
            Failure::new(crate::FailureKind::Payload, format!("the job is not what it should be: {error}"))
        })
    }
}

/// Turns one job into outputs.
///
/// An instance lives on one thread and sees its jobs one after another. It must not rely on state
/// between jobs for its results: after a crash a fresh instance sees the same job again.
pub trait Step {
    /// Runs one attempt. Outputs pushed before a failure are dropped by the caller.
    ///
    /// # Errors
    /// A [`Failure`] says why there is no output, and whether the job is rejected for good.
    fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure>;
}
