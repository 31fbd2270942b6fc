//! Integration tests: run the real executable.
//!
//! `Project` creates a folder with a configuration and runs the executable in it. A test asserts the contents
//! of standard output, standard error and files, and the exit code.

#![expect(clippy::print_stdout, reason = "the output of a test is for the reader of its failure")]
#![expect(clippy::expect_used, reason = "a failed setup fails the test")]

mod architecture;

mod project;

mod running;

mod random;

mod small_run;

mod moment;

mod blocks;

mod printing;

mod kill;

mod crash;

mod crashed;

mod claims;

mod full_disk;

mod refused;

mod follow;

mod stop;

mod halts;

mod instances;

mod streams;

mod signals;

mod supervised;

mod logging;

mod formats;

mod wiring;

mod wirings;

mod joins;

mod pauses;

mod queue_tables;

mod filters;

mod promises;

mod error_records;

mod failures;

mod payload;

mod pipeline_tests;

mod messages;

mod begin;

mod bindings;

mod retention;

mod provenance;

mod set_back;

mod schedule;

mod chain;
mod changed;

mod shared_config;

mod plan;

mod takeovers;

mod rollback;

mod reload;

mod sinks;
mod source_kinds;

mod look;

mod graph;

mod show;

mod clear;

mod pull_source;
mod push;

mod queuer;

mod status;

mod times;

mod why;

mod http_client;

mod http_source;

mod accepted;

mod found_jobs;

mod doors;

mod handle;

mod delayed;

mod late;

mod order;

mod job_consumer;

mod job;

mod step;

mod renames;

mod replay;

mod store;

mod old_stores;

mod possession;

mod command_line;

mod memory;

mod quickstart;

mod documents;

mod wording;

mod plugins;

mod outward;

mod gates;

mod monitor;

mod outside;

mod poll;

mod events;
mod exec_source;

mod graph_demo;

mod withdrawals;

mod federation;

mod ledger;
