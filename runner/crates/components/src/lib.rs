//! What touches the outside: scripts, plugins, commands, HTTP services, sources and sinks.

mod memory;

pub mod script;

pub mod plugin;

pub mod sink;

pub mod source;

mod fill;

pub mod give;

mod handle;

pub mod open_files;

pub mod scrub;

pub mod http;

pub mod exec;
