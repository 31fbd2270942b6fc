//! Rhai scripts as steps.
//!
//! A script is pure: it sees a job and its context (`ctx`), and nothing else of the world. Each worker
//! thread has its own engines and its own compiled copies, so nothing is shared with other threads or locked
//! while jobs run. The engines of a thread share their functions.
//!
//! Architecture Invariant: no type of Rhai crosses a thread.

pub mod json;

mod attempt;
mod calls;
mod captured;
mod compile;
mod context;
mod control;
mod decided;
mod entry;
mod explain;
mod expression;
mod filter;
mod frozen;
mod functions;
mod hints;
mod imported;
mod imports;
mod kind;
mod locate;
mod made;
mod mentions;
mod modules;
mod natives;
mod number;
mod register;
mod said;
mod scan;
mod step;
mod ticker;
mod top;
mod unknown;
mod values;

pub use compile::STACK;
pub use compile::{CompileError, check_expression, check_script};
pub use entry::Entry;
pub use expression::Expression;
pub use mentions::Mentions;
pub use step::{Outlet, ScriptStep, ScriptStepSpec};

#[cfg(test)]
mod tests;
