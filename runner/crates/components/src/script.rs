//! Scripts: run Rhai code as steps, filters, gates and monitors.
//!
//! A script is pure: it has access to a job and its context (`ctx`), and to nothing else. Each worker thread
//! has its own engines and its own compiled copies, so nothing is shared with other threads or locked while
//! jobs run. The engines of a thread share their functions.
//!
//! Architecture Invariant: no type of Rhai crosses a thread.

pub(crate) mod api;
pub(crate) mod attempt;
pub(crate) mod compile;
pub(crate) mod errors;
pub(crate) mod expression;
pub(crate) mod filter;
pub(crate) mod partial;
pub(crate) mod script_tables;
pub(crate) mod step;
pub(crate) mod ticker;
pub(crate) mod values;

pub use self::api::lookup::unknown_table;
pub use self::compile::entry::EntryPoint;
pub use self::compile::mentions::{Mentions, NamedTable};
pub use self::values::json;
pub use compile::STACK;
pub use compile::{CompileError, check_expression, check_script};
pub use expression::Expression;
pub use script_tables::ScriptTables;
pub use step::{ScriptOutlet, ScriptStep, ScriptStepSpec};

#[cfg(test)]
mod tests;
