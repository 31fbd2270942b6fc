//! `KeyedJoin`: the rules by which a step pairs jobs of its inputs by a key.

use std::time::Duration;

use tidegate_model::{Address, FieldPath, Name};

/// `join` with `on`: a step of its own finds the jobs that belong together, and the declared step reads its tuples.
///
/// The implied step has the name of `joining_step`, and delivers to the queue of `joined_queue`. A job without a
/// partner is parked in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedJoin {
    /// The declared step, which reads the tuples.
    pub reader: Address,
    /// In the order of the step's inputs.
    pub sides: Vec<JoinSide>,
    /// How long a job waits for its partners; `None`: without end.
    pub within: Option<Duration>,
    /// Number of jobs without a partner from which on an input is not read.
    pub max_waiting: u64,
}

/// One input of a join by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSide {
    /// The field with the key.
    pub on: FieldPath,
    /// Its jobs go on without a partner when their time is over.
    pub left: bool,
}

/// The name of the step that finds the tuples for the step `reader`; `None` if it would be too long.
pub(crate) fn joining_step(reader: &Name) -> Option<Name> {
    Name::new(&format!("{reader}-join"))
}

/// The name of the queue of its tuples.
pub(crate) fn joined_queue(reader: &Name) -> Option<Name> {
    Name::new(&format!("{reader}-joined"))
}
