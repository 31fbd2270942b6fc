//! Decisions of a script: how its attempt ends, and what it emits.

use rhai::{Dynamic, ImmutableString, Position};
use tidegate_plugin::FailureKind;

/// Ends a script from within, past any `try` of the script.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// The script said so.
    Said {
        kind: FailureKind,
        /// The reason; of a pending job its handle.
        why: String,
        /// What the author says about the circumstances, as JSON.
        context: Option<Box<str>>,
        /// Where the function was called; Rhai forgets it on the way out.
        at: Position,
        file: Option<String>,
    },
    TimedOut,
    TooManyOperations,
    TooMuchMemory {
        /// What the attempt holds, or would hold.
        bytes: u64,
        /// The function that was not let to take them.
        by: Option<&'static str>,
    },
}

/// A job that the script hands on beside what it returns.
#[derive(Clone, Debug)]
pub(crate) struct Emit {
    pub(crate) binding: ImmutableString,
    pub(crate) job: Dynamic,
    /// Milliseconds since 1970; `None`: at once.
    pub(crate) due: Option<i64>,
}
