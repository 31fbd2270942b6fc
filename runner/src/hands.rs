//! What touches the outside: scripts, sources and sinks.

pub mod script;
