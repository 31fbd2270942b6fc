//! `Kind`: the kinds of tables, with the keys of each.

/// A kind of table in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    PipelineFile,
    /// The file of a pipeline that is named alone: it may hold settings of the runner too.
    SingleFile,
    SettingsFile,
    Runner,
    Log,
    Pipeline,
    FileSource,
    HttpSource,
    ScheduleSource,
    Queue,
    Retry,
    Queuer,
    Gate,
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
}

/// Every kind, in the order of messages. A single file has only keys that other kinds have.
const KINDS: [Kind; 22] = [
    Kind::PipelineFile,
    Kind::SettingsFile,
    Kind::Runner,
    Kind::Log,
    Kind::Pipeline,
    Kind::FileSource,
    Kind::HttpSource,
    Kind::ScheduleSource,
    Kind::Queue,
    Kind::Retry,
    Kind::Queuer,
    Kind::Gate,
    Kind::Step,
    Kind::Monitor,
    Kind::Plugin,
    Kind::Limits,
    Kind::Http,
    Kind::Exec,
    Kind::FileSink,
    Kind::StdoutSink,
    Kind::HttpSink,
    Kind::NullSink,
];

impl Kind {
    /// The keys that this version supports. Keys of a later version are in `later`.
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::PipelineFile => &["pipeline", "source", "queue", "retry", "queuer", "gate", "step", "sink"],
            Self::SingleFile => {
                &["pipeline", "source", "queue", "retry", "queuer", "gate", "step", "sink", "runner", "log"]
            }
            Self::SettingsFile => &["runner", "log", "plugin", "retry", "queuer", "gate"],
            Self::Runner => &["data", "listen", "hosts", "workers", "shutdown_timeout", "plugins"],
            Self::Log => &["level", "format"],
            Self::Pipeline => &["name", "errors", "delivery"],
            Self::FileSource => &["type", "path", "format", "follow", "max_line", "headers", "delimiter"],
            Self::HttpSource => &["type", "key", "dedupe", "max_body", "max_waiting", "token"],
            Self::ScheduleSource => &["type", "cron", "time_zone", "every", "missed", "payload"],
            Self::Retry => &[
                "backoff",
                "initial",
                "factor",
                "max",
                "delays",
                "jitter",
                "max_attempts",
                "ttl",
                "then",
                "on",
            ],
            Self::Queuer => &[
                "strategy",
                "lane",
                "lane_missing",
                "delay_window",
                "max_processing",
                "max_search_ahead",
                "max_per_lane",
                "rate",
                "lane_rate",
                "age",
                "id",
                "priority",
                "aging",
                "reads",
                "writes",
                "pause",
            ],
            Self::Gate => &["run", "every", "http", "exec", "timeout", "config"],
            Self::Monitor => &["run", "every", "batch", "http", "exec", "timeout", "config"],
            Self::Queue => &["retain", "max_size", "meta", "dedupe", "allow_cycle"],
            Self::Step => &[
                "from",
                "join",
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
            Self::Http => {
                &["url", "method", "headers", "body", "timeout", "max_response", "accept", "response"]
            }
            Self::Exec => &["command", "env", "cwd", "timeout"],
            Self::FileSink => &["type", "from", "begin_at", "delivery", "path", "format", "on_mismatch"],
            Self::StdoutSink => &["type", "from", "begin_at", "delivery", "format"],
            Self::HttpSink => &[
                "type", "from", "begin_at", "delivery", "errors", "retry", "queuer", "gate", "url", "method",
                "headers", "body", "timeout", "accept",
            ],
            Self::NullSink => &["type", "from", "begin_at", "delivery"],
        }
    }

    /// The name of such a table in messages.
    fn shown(self) -> &'static str {
        match self {
            Self::PipelineFile | Self::SingleFile => "a pipeline's file",
            Self::SettingsFile => "tidegate.toml",
            Self::Runner => "`[runner]` in tidegate.toml",
            Self::Log => "`[log]` in tidegate.toml",
            Self::Pipeline => "`[pipeline]`",
            Self::FileSource => "a `[source.NAME]` of type `file`",
            Self::HttpSource => "a `[source.NAME]` of type `http`",
            Self::ScheduleSource => "a `[source.NAME]` of type `schedule`",
            Self::Queue => "`[queue.NAME]`",
            Self::Retry => "`[retry.NAME]`",
            Self::Queuer => "`[queuer.NAME]`",
            Self::Gate => "`[gate.NAME]`",
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
        }
    }
}

/// The other tables with `key`, as words for a message.
pub(crate) fn homes(key: &str) -> Option<String> {
    let knows = |kind: &Kind| kind.keys().contains(&key);
    let of_every_sink = |kind: &Kind| {
        matches!(kind, Kind::FileSink | Kind::StdoutSink | Kind::HttpSink) && knows(&Kind::NullSink)
    };
    let mut homes: Vec<_> =
        KINDS.into_iter().filter(|kind| knows(kind) && !of_every_sink(kind)).map(Kind::shown).collect();
    let last = homes.pop()?;
    Some(if homes.is_empty() { last.into() } else { format!("{} and {last}", homes.join(", ")) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{KINDS, Kind};

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
                Kind::PipelineFile | Kind::SingleFile | Kind::SettingsFile => continue,
                Kind::Retry => "retries.md",
                Kind::Queuer => "queuers.md",
                Kind::Gate | Kind::Monitor => "gates.md",
                Kind::Http | Kind::Exec => "http.md",
                _ => "configuration.md",
            };
            let page = page(name);
            let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
            let first_cells: Vec<&str> = cells.collect();
            for key in kind.keys().iter().filter(|key| kind != Kind::Limits && **key != "type") {
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
