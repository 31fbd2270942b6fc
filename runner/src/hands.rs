//! What touches the outside: scripts, sources and sinks.

pub mod script;

pub mod sink;

pub mod source;
