//! Tidegate runs pipelines that people write in TOML.
//!
//! The floors, lowest first; a file imports only from floors below its own:
//!
//! | floor | what it knows |
//! | --- | --- |
//! | `memory` | what a thread holds, counted by the allocator |
//! | [`words`] | the words of the domain: names, indices, batches, durations, the delivery hash, the clock |
//! | [`decide`] | pure decisions: progress, retries, schedules and the dispatcher; no I/O, no clock, no threads |
//! | [`config`] | TOML on disk → a checked [`config::Configuration`], or every mistake with its place |
//! | [`store`] | the one redb file: logs, progress, hashes, sink positions |
//! | [`hands`] | what touches the outside: scripts, plugins, sources, sinks |
//! | [`engine`] | threads and channels that carry out what the dispatcher decides |
//! | [`face`] | what a person sees: commands, progress, summaries |

mod memory;

pub mod words;

pub mod decide;

pub mod config;

pub mod store;

pub mod hands;

pub mod engine;

pub mod face;
