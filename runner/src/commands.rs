//! Commands: one module for each command of the command line.

pub(crate) mod check;
pub(crate) mod delayed;
pub(crate) mod errors_list;
pub(crate) mod errors_retry;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod job_cancel;
pub(crate) mod job_show;
pub(crate) mod plan;
pub(crate) mod plugin;
pub(crate) mod plugin_new;
pub(crate) mod queue_clear;
pub(crate) mod queue_drop;
pub(crate) mod queue_list;
pub(crate) mod queue_push;
pub(crate) mod queue_show;
pub(crate) mod queuer_preview;
pub(crate) mod reload;
pub(crate) mod replay;
pub(crate) mod rollback;
pub(crate) mod run;
pub(crate) mod stand_by;
pub(crate) mod status;
pub(crate) mod step_pause;
pub(crate) mod store;
pub(crate) mod test;
