//! What touches the outside: files that jobs come from, and files that they leave to.

pub mod sink;
pub mod source;
