//! What a Tidegate step is: the trait, what it is given, and what it gives back.
//!
//! A step takes one [`Job`] at a time and hands what it makes of it to [`Outputs`]. Script steps
//! implement the same trait as native plugins do, so the runner has one way to run them all.
//!
//! Payloads are JSON texts (UTF-8). This crate neither parses nor checks them.

mod failure;
mod outputs;
mod payloads;
mod step;

pub use failure::{Failure, FailureKind, Place};
pub use outputs::{Checkpoint, Outputs};
pub use payloads::Payloads;
pub use step::{Job, Step};
