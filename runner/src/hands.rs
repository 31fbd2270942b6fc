//! What touches the outside: files that jobs leave to.

pub mod sink;
