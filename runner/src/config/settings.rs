//! `tidegate.toml`: the runner's own settings.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;

use super::diagnostic::Diagnostic;
use super::field::Field;
use super::files::Files;
use super::grammar::Kind;
use super::model::{LogFormat, LogSettings, Settings};
use super::plugin;
use super::reading::{Reading, Text};
use super::section::Section;
use super::shelves::Shelves;
use crate::words::parse_duration;
use crate::words::suggest::did_you_mean;

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// More workers than any machine has cores are a slip of the finger.
const WORKERS_MAX: u64 = 1024;

/// What the file says, with defaults for what it does not say.
#[derive(Debug, Default)]
pub(super) struct SettingsFile {
    /// Relative to the file already.
    pub(super) data: Option<PathBuf>,
    pub(super) settings: Settings,
    pub(super) log: LogSettings,
    /// It says where to listen, be it wrong.
    pub(super) has_listen: bool,
    /// For all pipelines.
    pub(super) shelves: Shelves,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

pub(super) fn read(
    reading: &mut Reading<'_>,
    files: &mut Files,
    tree: &Spanned<DeTable<'_>>,
) -> SettingsFile {
    let root = Section::root(reading, Kind::SettingsFile, tree);
    let mut file = SettingsFile::default();
    if let Some(field) = root.field("runner")
        && let Some(runner) = Section::open(reading, Kind::Runner, "[runner]", field.value())
    {
        file.data = runner.field("data").and_then(|field| field.path(reading)).map(|path| path.value);
        file.has_listen = runner.field("listen").is_some();
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
    file.shelves = Shelves::read(reading, files, &root);
    file.settings.pins = plugin::pins(reading, &root).into_iter().collect();
    if let Some(field) = root.field("log")
        && let Some(log) = Section::open(reading, Kind::Log, "[log]", field.value())
    {
        if let Some(level) = log.field("level").and_then(|field| level(reading, field)) {
            file.log.level = level;
        }
        let format = log.field("format").and_then(|field| field.choice(reading, Kind::Log, &LOG_FORMATS));
        file.log.format = format.unwrap_or(file.log.format);
    }
    file
}

fn workers(reading: &mut Reading<'_>, field: Field<'_>) -> Option<usize> {
    let count = field.count(reading, 0)?;
    if count > WORKERS_MAX {
        let message = format!("`workers` should be {WORKERS_MAX} or less");
        let diagnostic = Diagnostic::error_at(&field.place(reading), message);
        reading.report(diagnostic.help("0 stands for one a core"));
        return None;
    }
    usize::try_from(count).ok()
}

/// An address and a port. No name, which could come to stand for another address.
fn listen(reading: &mut Reading<'_>, field: Field<'_>) -> Option<SocketAddr> {
    let text = field.filled_text(reading)?;
    let address = text.value.parse().ok();
    if address.is_none() {
        let message = format!("{} in `listen` is no address with a port", text.quoted());
        let help = "write `127.0.0.1:8484` for this machine only, or `0.0.0.0:8484` for all who can reach it";
        reading.report(Diagnostic::error_at(&text.place, message).help(help));
    }
    address
}

/// Names or addresses, without ports: a proxy may listen on any.
fn hosts(reading: &mut Reading<'_>, field: Field<'_>) -> Vec<String> {
    let texts = field.texts(reading).unwrap_or_default();
    let mut hosts = Vec::new();
    for text in texts {
        if is_host(&text.value) {
            hosts.push(text.value.to_ascii_lowercase());
        } else {
            let message = format!("{} in `hosts` is no name of a host", text.quoted());
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

fn duration(reading: &mut Reading<'_>, field: Field<'_>) -> Option<Duration> {
    field.quantity(reading, ("duration", "30s"), parse_duration, None)
}

/// A level, or levels by part of the program: `info,tidegate::store=debug`.
fn level(reading: &mut Reading<'_>, field: Field<'_>) -> Option<String> {
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
        "use `error`, `warn`, `info`, `debug`, `trace` or `off`, also by part: `info,tidegate::store=debug`"
            .into()
    });
    Diagnostic::error_at(&text.place, format!("{quoted} is no level of a log")).help(help)
}
