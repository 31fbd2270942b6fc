//! `ReloadSettings`: parses `[reload]`.

use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::model::{ReloadSettings, WatchErrors};
use crate::parse::context::ParseContext;
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use tidegate_model::parse_duration;

/// More often, reading all files would cost more than it is worth.
const POLL_MIN: Duration = Duration::from_millis(100);

/// The settings, with defaults for missing and invalid ones.
pub(crate) fn read(reading: &mut ParseContext<'_>, field: Field<'_>) -> ReloadSettings {
    let mut settings = ReloadSettings::default();
    let Some(section) = TableReader::open(reading, TableKind::Reload, "[reload]", field.value()) else {
        return settings;
    };
    if let Some(watch) = section.field("watch").and_then(|field| field.boolean(reading)) {
        settings.watch = watch;
    }
    settings.poll = section.field("poll").and_then(|field| poll(reading, field));
    if let (Some(field), false) = (section.field("poll"), settings.watch) {
        let diagnostic =
            Diagnostic::error_at(&field.place(reading), "`poll` has no effect with `watch = false`");
        reading.report(diagnostic.help("leave out one of them"));
    }
    if let Some(tests) = section.field("tests").and_then(|field| field.boolean(reading)) {
        settings.tests = tests;
    }
    if let Some(field) = section.field("watch_errors") {
        settings.watch_errors = watch_errors(reading, field);
    }
    settings
}

fn poll(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Duration> {
    let poll = field.quantity(reading, ("duration", "5s"), parse_duration, Some(&Duration::ZERO))?;
    if poll < POLL_MIN {
        field.refuse(reading, "`poll` must be 100ms or more".to_owned());
        return None;
    }
    Some(poll)
}

fn watch_errors(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<WatchErrors> {
    let section = TableReader::open(reading, TableKind::WatchErrors, "watch_errors", field.value())?;
    let rate = section.required(reading, "rate", "name the share of failed attempts: `rate = 0.5`");
    let rate = rate.and_then(|field| share(reading, field));
    let within = section.required(reading, "within", "name the time after the reload: `within = \"30s\"`");
    let within = within.and_then(|field| {
        field.quantity(reading, ("duration", "30s"), parse_duration, Some(&Duration::ZERO))
    });
    Some(WatchErrors { rate: rate?, within: within? })
}

fn share(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<f64> {
    let rate = field.number(reading)?;
    let help = "it is a share that must be exceeded: `0.5` is one half of the attempts";
    if rate > 0.0 && rate <= 1.0 {
        if rate >= 1.0 {
            // Earlier generations may have it, and must be able to return.
            let message = "`rate` has no effect: a share of failed attempts cannot exceed 1";
            reading.report(Diagnostic::warning_at(&field.place(reading), message).help(help));
        }
        return Some(rate);
    }
    let diagnostic = Diagnostic::error_at(&field.place(reading), "`rate` must be above 0, and at most 1");
    reading.report(diagnostic.help(help));
    None
}
