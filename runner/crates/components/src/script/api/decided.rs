//! `Ended` and `Emit`: the decisions of a script on its attempt and its outputs.

use rhai::{Dynamic, ImmutableString, Position};
use tidegate_plugin::FailureKind;

/// Ends a script from within, past any `try` of the script.
#[derive(Clone, Debug)]
pub(crate) enum AttemptEnd {
    /// A control function was called.
    Called {
        kind: FailureKind,
        /// The reason; of a pending job its handle.
        why: String,
        /// The author's context of the failure, as JSON.
        context: Option<Box<str>>,
        /// The position of the call; Rhai drops it on the way out.
        at: Position,
        file: Option<String>,
    },
    TimedOut,
    TooManyOperations,
    TooMuchMemory {
        /// The bytes that the attempt holds, or would hold.
        bytes: u64,
        /// The function that asked for them.
        by: Option<&'static str>,
    },
}

/// A job that the script emits in addition to its return value.
#[derive(Clone, Debug)]
pub(crate) struct Emit {
    pub(crate) binding: ImmutableString,
    pub(crate) job: Dynamic,
    /// Milliseconds since 1970; `None`: at once.
    pub(crate) due: Option<i64>,
}
