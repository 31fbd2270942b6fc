//! `SettingsFile`: parses `tidegate.toml`, the runner's own settings. A pipeline whose file is named alone
//! may hold `[runner]`, `[log]` and `[reload]` itself.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;

use super::plugin;
use super::queue::{self, QueueSettings};
use super::reload;
use super::shared_config::SharedConfig;
use super::shared_tables::{self, SharedTables};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::{LogFormat, LogSettings, Settings};
use crate::parse::context::{ParseContext, Text};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::parse_duration;
use tidegate_model::suggest::did_you_mean;

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// A greater number of workers than any machine's cores is a typing error.
const WORKERS_MAX: u64 = 1024;

/// The content of the file, with defaults for missing settings.
#[derive(Debug, Default)]
pub(crate) struct SettingsFile {
    /// Already relative to the file.
    pub(crate) data: Option<PathBuf>,
    /// `data` names a variable that is not set.
    pub(crate) data_is_unset: bool,
    pub(crate) settings: Settings,
    pub(crate) log: LogSettings,
    /// The values under the `config` of all pipelines.
    pub(crate) config: SharedConfig,
    /// It has an address to listen on, valid or not.
    pub(crate) has_listen: bool,
    /// The places of `[runner]`, `[log]` and `[reload]`.
    headers: Vec<(&'static str, SourceSpan)>,
    /// `[queue_defaults]` of all pipelines.
    pub(crate) queue_defaults: QueueSettings,
    /// The tables for all pipelines.
    pub(crate) shelves: SharedTables,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    tree: &Spanned<DeTable<'_>>,
) -> SettingsFile {
    let root = TableReader::root(reading, TableKind::SettingsFile, tree);
    let mut file = in_place(reading, &root);
    file.shelves = SharedTables::read(reading, files, &root);
    shared_tables::refuse_local_queues(reading, &file.shelves);
    file.queue_defaults = queue::defaults(reading, &root);
    file.settings.pins = plugin::pins(reading, &root).into_iter().collect();
    file
}

/// The `[runner]`, `[log]` and `[reload]` of a file that may hold other tables too.
pub(crate) fn in_place(reading: &mut ParseContext<'_>, root: &TableReader<'_>) -> SettingsFile {
    let mut file = SettingsFile::default();
    for key in ["runner", "log", "reload"] {
        file.headers.extend(root.key_place(reading, key).map(|place| (key, place)));
    }
    if let Some(field) = root.field("runner")
        && let Some(runner) = TableReader::open(reading, TableKind::Runner, "[runner]", field.value())
    {
        let before = reading.unset.len();
        file.data = runner.field("data").and_then(|field| field.path(reading)).map(|path| path.value);
        file.data_is_unset = reading.unset.len() > before;
        file.has_listen = runner.field("listen").is_some();
        file.config = SharedConfig::read(reading, &runner);
        file.settings = Settings {
            listen: runner.field("listen").and_then(|field| listen(reading, field)),
            hosts: runner.field("hosts").map(|field| hosts(reading, field)).unwrap_or_default(),
            workers: runner.field("workers").and_then(|field| workers(reading, field)).unwrap_or(0),
            shutdown_timeout: runner.field("shutdown_timeout").and_then(|field| duration(reading, field)),
            plugins: runner
                .field("plugins")
                .and_then(|field| field.path(reading))
                .map(|path| path.value)
                .into_iter()
                .collect(),
            ..Settings::default()
        };
    }
    if let Some(field) = root.field("reload") {
        file.settings.reload = reload::read(reading, field);
    }
    if let Some(field) = root.field("log")
        && let Some(log) = TableReader::open(reading, TableKind::Log, "[log]", field.value())
    {
        if let Some(level) = log.field("level").and_then(|field| level(reading, field)) {
            file.log.level = level;
        }
        let format = log.field("format").and_then(|field| field.choice(reading, &LOG_FORMATS));
        file.log.format = format.unwrap_or(file.log.format);
    }
    file
}

/// An error for every table of settings in `own`, the file of a single pipeline, if the tidegate.toml at
/// `path` is beside it.
pub(crate) fn refuse_both(own: &SettingsFile, beside: &SettingsFile, path: &Path) -> Vec<Diagnostic> {
    let refuse = |(key, place): &(&'static str, SourceSpan)| {
        let there = beside.headers.iter().find(|(other, _)| other == key).map(|(_, place)| place.clone());
        let there = there.unwrap_or_else(|| SourceSpan { file: Arc::from(path), span: 0..0 });
        let message = format!("`[{key}]` cannot be in this file, since a tidegate.toml is beside it");
        Diagnostic::error_at(place, message)
            .related(there, "the settings beside it")
            .help(format!("move `[{key}]` to tidegate.toml, or the file to a folder of its own"))
    };
    own.headers.iter().map(refuse).collect()
}

fn workers(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<usize> {
    let count = field.count(reading, 0)?;
    if count > WORKERS_MAX {
        let message = format!("`workers` must be {WORKERS_MAX} or less");
        let diagnostic = Diagnostic::error_at(&field.place(reading), message);
        reading.report(diagnostic.help("0 means one per core"));
        return None;
    }
    usize::try_from(count).ok()
}

/// An address and a port. A name is refused, since its address could change.
fn listen(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<SocketAddr> {
    let text = field.filled_text(reading)?;
    let address = text.value.parse().ok();
    if address.is_none() {
        let message = format!("{} in `listen` is not an address with a port", text.quoted());
        let help = "write `127.0.0.1:8484` for this machine only, or `0.0.0.0:8484` for all clients that can reach it";
        reading.report(Diagnostic::error_at(&text.place, message).help(help));
    }
    address
}

/// Names or addresses, without ports: a proxy may listen on any.
fn hosts(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<String> {
    let texts = field.texts(reading).unwrap_or_default();
    let mut hosts = Vec::new();
    for text in texts {
        if is_host(&text.value) {
            hosts.push(text.value.to_ascii_lowercase());
        } else {
            let message = format!("{} in `hosts` is not a name of a host", text.quoted());
            let help = "write the name alone, as `tide.example`, without `https://`, a port or a path";
            reading.report(Diagnostic::error_at(&text.place, message).help(help));
        }
    }
    hosts
}

fn is_host(text: &str) -> bool {
    let is_name = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    text.parse::<IpAddr>().is_ok() || text.split('.').all(is_name)
}

fn duration(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Duration> {
    field.quantity(reading, ("duration", "30s"), parse_duration, None)
}

/// A level, or levels by log target: `info,tidegate_store=debug`.
fn level(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<String> {
    let text = field.filled_text(reading)?;
    let wrong = text.value.split(',').map(|directive| match directive.split_once('=') {
        Some((_, level)) => level.trim(),
        None => directive.trim(),
    });
    let wrong = wrong.clone().find(|level| !LEVELS.contains(&level.to_ascii_lowercase().as_str()));
    match wrong {
        None => Some(text.value),
        Some(wrong) => {
            let diagnostic = wrong_level(&text, wrong);
            reading.report(diagnostic);
            None
        }
    }
}

fn wrong_level(text: &Text, wrong: &str) -> Diagnostic {
    let quoted = if text.secret { text.quoted() } else { format!("`{wrong}`") };
    let near = (!text.secret).then(|| did_you_mean(wrong, LEVELS)).flatten();
    let help = near.unwrap_or_else(|| {
        "use `error`, `warn`, `info`, `debug`, `trace` or `off`, also by log target: `info,tidegate::store=debug`"
            .into()
    });
    Diagnostic::error_at(&text.place, format!("{quoted} is not a log level")).help(help)
}
