//! `Kind`: the kinds of tables, with the keys of each.

/// A kind of table in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKind {
    PipelineFile,
    /// The file of a pipeline that is named alone: it may hold settings of the runner too.
    SingleFile,
    SettingsFile,
    Runner,
    Log,
    Reload,
    WatchErrors,
    Pipeline,
    FileSource,
    HttpSource,
    ScheduleSource,
    CommandSource,
    PullSource,
    Queue,
    QueueDefaults,
    Retry,
    Queuer,
    Gate,
    LookupTable,
    Step,
    Monitor,
    Plugin,
    Limits,
    Http,
    Exec,
    FileSink,
    StdoutSink,
    HttpSink,
    NullSink,
    Test,
    LaterJobs,
    MockAnswer,
}

/// Every kind, in the order of messages. A single file has only keys that other kinds have.
pub(crate) const KINDS: [TableKind; 31] = [
    TableKind::PipelineFile,
    TableKind::SettingsFile,
    TableKind::Runner,
    TableKind::Log,
    TableKind::Reload,
    TableKind::WatchErrors,
    TableKind::Pipeline,
    TableKind::FileSource,
    TableKind::HttpSource,
    TableKind::ScheduleSource,
    TableKind::CommandSource,
    TableKind::PullSource,
    TableKind::Queue,
    TableKind::QueueDefaults,
    TableKind::Retry,
    TableKind::Queuer,
    TableKind::Gate,
    TableKind::LookupTable,
    TableKind::Step,
    TableKind::Monitor,
    TableKind::Plugin,
    TableKind::Limits,
    TableKind::Http,
    TableKind::Exec,
    TableKind::FileSink,
    TableKind::StdoutSink,
    TableKind::HttpSink,
    TableKind::NullSink,
    TableKind::Test,
    TableKind::LaterJobs,
    TableKind::MockAnswer,
];

impl TableKind {
    /// The keys that this version supports. Keys of a later version are in `later`.
    #[expect(clippy::too_many_lines, reason = "a table with one row for each kind")]
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::PipelineFile => &[
                "pipeline",
                "source",
                "queue",
                "queue_defaults",
                "retry",
                "queuer",
                "gate",
                "table",
                "step",
                "sink",
                "test",
            ],
            Self::SingleFile => &[
                "pipeline",
                "source",
                "queue",
                "queue_defaults",
                "retry",
                "queuer",
                "gate",
                "table",
                "step",
                "sink",
                "test",
                "runner",
                "log",
                "reload",
            ],
            Self::SettingsFile => {
                &["runner", "log", "reload", "plugin", "queue_defaults", "retry", "queuer", "gate", "table"]
            }
            Self::Runner => &["data", "listen", "hosts", "workers", "shutdown_timeout", "plugins", "config"],
            Self::Log => &["level", "format"],
            Self::Reload => &["watch", "poll", "tests", "watch_errors"],
            Self::WatchErrors => &["rate", "within"],
            Self::Pipeline => &["name", "was", "errors", "delivery", "config", "each"],
            Self::FileSource => {
                &["type", "was", "path", "format", "follow", "max_line", "headers", "delimiter", "meta"]
            }
            Self::HttpSource => &[
                "type",
                "was",
                "key",
                "dedupe",
                "max_body",
                "max_waiting",
                "token",
                "schema",
                "accept",
                "limits",
                "timeout",
                "due",
                "delay",
            ],
            Self::ScheduleSource => &["type", "was", "cron", "time_zone", "every", "missed", "payload"],
            Self::CommandSource => &[
                "type",
                "was",
                "command",
                "env",
                "cwd",
                "format",
                "headers",
                "delimiter",
                "max_line",
                "cursor",
                "cursor_prefix",
                "restart",
                "retry",
                "max_waiting",
            ],
            Self::PullSource => &[
                "type",
                "was",
                "url",
                "headers",
                "first",
                "until",
                "not_yet",
                "accept",
                "every",
                "concurrency",
                "timeout",
                "max_response",
                "retry",
                "meta",
            ],
            Self::Retry => &[
                "backoff",
                "initial",
                "factor",
                "max",
                "delays",
                "jitter",
                "quick",
                "quick_delay",
                "max_attempts",
                "ttl",
                "ttl_field",
                "then",
                "on",
                "halt_on",
            ],
            Self::Queuer => &[
                "strategy",
                "lane",
                "lane_missing",
                "free_lane_at",
                "on_invalid",
                "delay_window",
                "max_processing",
                "max_pending",
                "max_search_ahead",
                "max_per_lane",
                "rate",
                "lane_rate",
                "ordered",
                "age",
                "id",
                "priority",
                "aging",
                "reads",
                "writes",
                "keys_missing",
                "pause",
            ],
            Self::Gate => &["run", "every", "http", "exec", "timeout", "config"],
            Self::Monitor => &[
                "run",
                "every",
                "batch",
                "batch_by",
                "concurrency",
                "http",
                "exec",
                "timeout",
                "config",
                "ttl",
                "max_checks",
                "then",
            ],
            Self::LookupTable => &["path", "queue", "key", "format", "delimiter", "tombstone", "max_size"],
            Self::Queue => &["was", "retain", "max_size", "meta", "dedupe", "allow_cycle"],
            Self::QueueDefaults => &["retain", "max_size", "meta", "dedupe"],
            Self::Step => &[
                "was",
                "from",
                "join",
                "on",
                "within",
                "max_waiting",
                "left",
                "alts",
                "begin_at",
                "to",
                "run",
                "http",
                "exec",
                "when",
                "types",
                "topics",
                "config",
                "limits",
                "timeout",
                "errors",
                "events",
                "delivery",
                "crash_limit",
                "isolate",
                "retry",
                "queuer",
                "gate",
                "monitor",
            ],
            Self::Plugin => &["sha256"],
            Self::Limits => &["operations", "memory", "depth"],
            Self::Http => &[
                "url",
                "hosts",
                "host",
                "method",
                "headers",
                "body",
                "timeout",
                "max_response",
                "accept",
                "response",
            ],
            Self::Exec => &["command", "env", "cwd", "timeout"],
            Self::FileSink => &["type", "from", "begin_at", "delivery", "path", "format", "on_mismatch"],
            Self::StdoutSink => &["type", "from", "begin_at", "delivery", "format"],
            Self::HttpSink => &[
                "type", "from", "begin_at", "delivery", "errors", "retry", "queuer", "gate", "url", "hosts",
                "host", "method", "headers", "body", "timeout", "accept",
            ],
            Self::NullSink => &["type", "from", "begin_at", "delivery"],
            Self::Test => &["name", "step", "given", "later", "at", "for", "mock", "expect"],
            Self::LaterJobs => &["after", "given"],
            Self::MockAnswer => &[
                "output",
                "outputs",
                "error",
                "cause",
                "retry",
                "in",
                "reject",
                "halt",
                "pending",
                "gate_closed",
            ],
        }
    }

    /// The name of such a table in messages.
    fn shown(self) -> &'static str {
        match self {
            Self::PipelineFile | Self::SingleFile => "a pipeline's file",
            Self::SettingsFile => "tidegate.toml",
            Self::Runner => "`[runner]` in tidegate.toml",
            Self::Log => "`[log]` in tidegate.toml",
            Self::Reload => "`[reload]` in tidegate.toml",
            Self::WatchErrors => "`watch_errors` of `[reload]`",
            Self::Pipeline => "`[pipeline]`",
            Self::FileSource => "a `[source.NAME]` of type `file`",
            Self::HttpSource => "a `[source.NAME]` of type `http`",
            Self::ScheduleSource => "a `[source.NAME]` of type `schedule`",
            Self::CommandSource => "a `[source.NAME]` of type `exec`",
            Self::PullSource => "a `[source.NAME]` of type `http-pull`",
            Self::Queue => "`[queue.NAME]`",
            Self::QueueDefaults => "`[queue_defaults]`",
            Self::Retry => "`[retry.NAME]`",
            Self::Queuer => "`[queuer.NAME]`",
            Self::Gate => "`[gate.NAME]`",
            Self::LookupTable => "`[table.NAME]`",
            Self::Monitor => "`monitor` of a step",
            Self::Step => "`[step.NAME]`",
            Self::Plugin => "`[plugin.NAME]` in tidegate.toml",
            Self::Limits => "`limits` of a step",
            Self::Http => "`http` of a step",
            Self::Exec => "`exec` of a step",
            Self::FileSink => "a `[sink.NAME]` of type `file`",
            Self::StdoutSink => "a `[sink.NAME]` of type `stdout`",
            Self::HttpSink => "a `[sink.NAME]` of type `http`",
            // It has only keys that other kinds have.
            Self::NullSink => "`[sink.NAME]`",
            Self::Test => "`[[test]]`",
            Self::LaterJobs => "`later` of a `[[test]]`",
            Self::MockAnswer => "an answer in `mock` of a `[[test]]`",
        }
    }
}

/// The other tables with `key`, as words for a message.
pub(crate) fn homes(key: &str) -> Option<String> {
    let knows = |kind: &TableKind| kind.keys().contains(&key);
    let of_every_sink = |kind: &TableKind| {
        matches!(kind, TableKind::FileSink | TableKind::StdoutSink | TableKind::HttpSink)
            && knows(&TableKind::NullSink)
    };
    let mut homes: Vec<_> = KINDS
        .into_iter()
        .filter(|kind| knows(kind) && !of_every_sink(kind) && *kind != TableKind::MockAnswer)
        .map(TableKind::shown)
        .collect();
    let last = homes.pop()?;
    Some(if homes.is_empty() { last.into() } else { format!("{} and {last}", homes.join(", ")) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{KINDS, TableKind};

    /// A page of the manual. The folder `docs` is beside this crate or above it.
    fn page(name: &str) -> String {
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let found = folders.find_map(|folder| fs::read_to_string(folder.join("docs").join(name)).ok());
        found.unwrap_or_else(|| panic!("docs/{name} is missing"))
    }

    #[test]
    fn the_manual_names_every_key_in_a_table() {
        for kind in KINDS {
            let name = match kind {
                TableKind::PipelineFile | TableKind::SingleFile | TableKind::SettingsFile => continue,
                TableKind::Retry => "retries.md",
                TableKind::Queuer => "queuers.md",
                TableKind::Gate | TableKind::Monitor => "gates.md",
                TableKind::Http | TableKind::Exec => "http.md",
                TableKind::Test | TableKind::LaterJobs | TableKind::MockAnswer => "testing.md",
                _ => "configuration.md",
            };
            let page = page(name);
            let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
            let first_cells: Vec<&str> = cells.collect();
            for key in kind
                .keys()
                .iter()
                .filter(|key| !matches!(kind, TableKind::Limits | TableKind::WatchErrors) && **key != "type")
            {
                let quoted = format!("`{key}`");
                let named = first_cells.iter().any(|cell| cell.split(", ").any(|word| word == quoted));
                assert!(
                    named,
                    "docs/{name}: {} has {quoted}, and no table begins a row with it",
                    kind.shown()
                );
            }
        }
    }
}
