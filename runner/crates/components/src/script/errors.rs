//! Errors of scripts, with place, cause and hint.

pub(crate) mod explain;
pub(crate) mod hints;
pub(crate) mod locate;
pub(crate) mod unknown_call;
