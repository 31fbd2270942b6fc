//! Errors of scripts: give the position, the cause and a hint.

pub(crate) mod explain;
pub(crate) mod hints;
pub(crate) mod locate;
pub(crate) mod unknown_call;
