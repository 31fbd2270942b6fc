//! Log targets: the names by which `[log] level` selects what is logged, as in `info,tidegate_store=debug`.
//!
//! They are part of the interface and independent of the modules of the code.
//!
//! | target | logs |
//! | --- | --- |
//! | `tidegate` | the runner itself: start, listening, stopping |
//! | `tidegate::config` | mistakes in the configuration, with `format = "json"` |
//! | `tidegate::summary` | the end of a run, with `format = "json"` |
//! | `tidegate::panic` | panics, with `format = "json"` |
//! | `tidegate::engine` | steps: starts, failures, gates, monitors, halts, a full disk |
//! | `tidegate::store` | the store's files |
//! | `tidegate::source` | files that begin, continue, end or are replaced |
//! | `tidegate::sink` | files of sinks |
//! | `tidegate::script` | `log_info` and its siblings, `print` |
//! | `tidegate::plugin` | plugins: their own log lines, and crashes |
//! | `tidegate::exec` | the standard error of commands |
//! | `tidegate::http` | the HTTP port |

pub const RUNNER: &str = "tidegate";
pub const CONFIG: &str = "tidegate::config";
pub const SUMMARY: &str = "tidegate::summary";
pub const PANIC: &str = "tidegate::panic";
pub const ENGINE: &str = "tidegate::engine";
pub const STORE: &str = "tidegate::store";
pub const SOURCE: &str = "tidegate::source";
pub const SINK: &str = "tidegate::sink";
pub const SCRIPT: &str = "tidegate::script";
pub const PLUGIN: &str = "tidegate::plugin";
pub const EXEC: &str = "tidegate::exec";
pub const HTTP: &str = "tidegate::http";
