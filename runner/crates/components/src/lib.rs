//! `tidegate-components`: scripts, plugins, commands, HTTP services, sources and sinks.

pub mod accept;
pub mod attempt_outputs;
pub mod calls;
mod coarse_clock;
pub mod command_source;
pub mod exec;
pub mod http;
pub mod job_log;
mod memory;
pub mod open_files;
pub mod outputs_from_json;
mod pending_handle;
pub mod plugin;
pub mod pull_source;
pub mod redact;
mod render;
pub mod script;
pub mod sink;
pub mod source;
pub mod table_rows;
