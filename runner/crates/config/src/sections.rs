//! Sections: one module for each kind of table in a configuration.

pub(crate) mod begin_at;
pub(crate) mod bindings;
pub(crate) mod builtin;
pub(crate) mod exec;
pub(crate) mod http;
pub(crate) mod http_source;
pub(crate) mod lookup_table;
pub(crate) mod pipeline;
pub(crate) mod plugin;
pub(crate) mod probe;
pub(crate) mod queue;
pub(crate) mod queuer;
pub(crate) mod reload;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod schedule_source;
pub(crate) mod settings;
pub(crate) mod shared_config;
pub(crate) mod shared_tables;
pub(crate) mod sink;
pub(crate) mod source;
pub(crate) mod step;
pub(crate) mod test;
pub(crate) mod test_expect;
pub(crate) mod test_jobs;
pub(crate) mod test_mock;
