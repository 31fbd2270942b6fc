//! What a Tidegate step is: the trait, what it is given, and what it gives back.
//!
//! A step takes one [`Job`] at a time and hands what it makes of it to [`Outputs`]. Script steps
//! implement the same trait as native plugins do, so the runner has one way to run them all.
//!
//! Payloads are JSON texts (UTF-8). This crate neither parses nor checks them.
//!
//! ```
//! use tidegate_plugin::{Failure, FailureKind, Job, Outputs, Step};
//!
//! /// Hands on every other job, and rejects what is empty.
//! struct EveryOther;
//!
//! impl Step for EveryOther {
//!     fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
//!         if job.payload.is_empty() {
//!             return Err(Failure::new(FailureKind::Rejected, "the job is empty"));
//!         }
//!         if let (0, Some(output)) = (job.index % 2, outputs.get_mut(0)) {
//!             output.push(job.payload);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let mut outputs = Outputs::new([""]);
//! for index in 1..=4 {
//!     let job = Job { index, payload: b"{}", attempt: 1, now_ms: 0, hash: 0 };
//!     EveryOther.process(&job, &mut outputs)?;
//! }
//! assert_eq!(outputs.total(), 2);
//! # Ok::<(), Failure>(())
//! ```

mod failure;
mod outputs;
mod payloads;
mod step;

pub use failure::{Failure, FailureKind, Place};
pub use outputs::{Checkpoint, Outputs};
pub use payloads::Payloads;
pub use step::{Job, Step};
