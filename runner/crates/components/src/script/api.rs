//! Script API: provides the functions and values that a script can use.

pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod decided;
pub(crate) mod functions;
pub(crate) mod lookup;
pub(crate) mod natives;
pub(crate) mod register;
