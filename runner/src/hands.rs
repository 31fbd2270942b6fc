//! What touches the outside: scripts, plugins, sources and sinks.

pub mod script;

pub mod plugin;

pub mod sink;

pub mod source;
