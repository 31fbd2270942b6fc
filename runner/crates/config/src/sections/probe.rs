//! `ProbeConfig`: parses `[gate.NAME]`, and `monitor = { … }` of a step.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use super::run::run;
use crate::diagnostic::Diagnostic;
use crate::diagnostic::SourceSpan;
use crate::model::{BatchBy, LookupTables, Monitor, MonitorLimits, ProbeConfig};
use crate::parse::context::{ParseContext, Value};
use crate::parse::field::Field;
use crate::parse::json;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::parse_duration;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const BATCH_DEFAULT: usize = 100;
const CONCURRENCY_DEFAULT: usize = 4;
/// Whether a job at a limit is submitted again.
const THENS: [(&str, bool); 2] = [("error-queue", false), ("resubmit", true)];
const BATCH_BY: [(&str, BatchBy); 2] = [("any", BatchBy::Any), ("lane", BatchBy::Lane)];

/// More pending jobs, with their payloads, are too many for one call of a script.
const BATCH_MAX: u64 = 100_000;

/// Each open request has a thread, and all steps share 256 of them.
const CONCURRENCY_MAX: u64 = 256;

/// A monitor as written.
#[derive(Debug)]
pub(crate) struct MonitorDeclaration {
    pub(crate) monitor: Monitor,
    /// The place of `batch_by = "lane"`.
    pub(crate) lane_batches: Option<SourceSpan>,
}

/// Parses a gate; `None` after an error.
pub(crate) fn gate(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    title: &str,
    value: &Value<'_>,
) -> Option<ProbeConfig> {
    let before = reading.diagnostics.len();
    let section = TableReader::open(reading, TableKind::Gate, title, value)?;
    let help = "name the script that decides whether the gate is open: `run = \"gas.rhai\"`";
    let inquiry = inquiry(reading, files, &section, help);
    inquiry.filter(|_| reading.diagnostics.len() == before)
}

/// `None` after an error.
pub(crate) fn monitor(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    field: Field<'_>,
) -> Option<MonitorDeclaration> {
    let before = reading.diagnostics.len();
    if let Some(script) = field.value().get_ref().as_str() {
        let message = "`monitor` must be a table, but is a text";
        let script = if is_script(script) { script } else { "status.rhai" };
        let help = format!("write `monitor = {{ run = \"{script}\", every = \"2s\" }}`");
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
        return None;
    }
    let section = TableReader::open(reading, TableKind::Monitor, field.name, field.value())?;
    let help = "name what asks for the status of pending jobs: `run = \"status.rhai\"`";
    let inquiry = inquiry(reading, files, &section, help);
    let batch = section.field("batch").and_then(|field| count(reading, field, BATCH_MAX));
    let by_field = section.field("batch_by");
    let batch_by = by_field.and_then(|field| field.choice(reading, &BATCH_BY));
    let lane_batches = by_field.filter(|_| batch_by == Some(BatchBy::Lane)).map(|field| field.place(reading));
    let concurrency = section.field("concurrency").and_then(|field| count(reading, field, CONCURRENCY_MAX));
    let limits = limits(reading, &section);
    let inquiry = inquiry.filter(|_| reading.diagnostics.len() == before)?;
    let monitor = Monitor {
        limits,
        inquiry,
        batch: batch.unwrap_or(BATCH_DEFAULT),
        batch_by: batch_by.unwrap_or(BatchBy::Any),
        concurrency: concurrency.unwrap_or(CONCURRENCY_DEFAULT),
    };
    Some(MonitorDeclaration { monitor, lane_batches })
}

/// `ttl`, `max_checks` and `then`.
fn limits(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> MonitorLimits {
    let ttl = section.field("ttl");
    let max_checks = section.field("max_checks");
    let then = section.field("then");
    if let (Some(field), None, None) = (then, ttl, max_checks) {
        let message = "`then` has no effect without `ttl` or `max_checks`";
        let help = "write a limit too: `ttl = \"1h\"` or `max_checks = 100`";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
    let then = then.and_then(|field| field.choice(reading, &THENS));
    MonitorLimits {
        ttl: ttl.and_then(|field| duration(reading, field)),
        max_checks: max_checks.and_then(|field| field.small_count(reading, 1)).and_then(NonZeroU32::new),
        resubmits: then.unwrap_or(false),
    }
}

fn inquiry(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    section: &TableReader<'_>,
    help: &str,
) -> Option<ProbeConfig> {
    section.required(reading, "run", help);
    let every = section.required(reading, "every", "name the interval: `every = \"5s\"`");
    let every = every.and_then(|field| duration(reading, field));
    let timeout = section.field("timeout").and_then(|field| duration(reading, field));
    let timeout = timeout.unwrap_or(TIMEOUT_DEFAULT);
    let run = run(reading, files, section, timeout);
    let (config, secrets) = json::config(reading, section);
    let (shared, tables) = (Vec::new(), LookupTables::new());
    Some(ProbeConfig { run, every: every?, timeout, config, secrets, shared, tables })
}

/// The fix for a gate's processor where its name belongs.
pub(crate) fn meant(name: &str) -> Option<String> {
    let declare = "declare it by a name of its own, `[gate.NAME]` with `run = \"…\"` and `every = \"5s\"`, and write `gate = \"NAME\"`";
    (is_script(name) || name.contains(':')).then(|| declare.to_owned())
}

fn is_script(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|ending| ending == "rhai")
}

fn count(reading: &mut ParseContext<'_>, field: Field<'_>, most: u64) -> Option<usize> {
    let count = field.count(reading, 1)?;
    if count > most {
        field.refuse(reading, format!("`{}` must be {most} or less", field.name));
        return None;
    }
    usize::try_from(count).ok()
}

fn duration(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Duration> {
    field.quantity(reading, ("duration", "5s"), parse_duration, Some(&Duration::ZERO))
}
