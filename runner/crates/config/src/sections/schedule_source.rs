//! `ScheduleSource`: parses `[source.NAME]` of type `schedule`.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json};

use crate::diagnostic::Diagnostic;
use crate::model::push_source::{DUE, ScheduleSource};
use crate::parse::context::{ParseContext, Value};
use crate::parse::field::Field;
use crate::parse::json::object;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use tidegate_model::suggest::did_you_mean;
use tidegate_model::{Cron, Missed, Schedule, parse_duration};

const MISSED: [(&str, Missed); 3] = [("skip", Missed::Skip), ("once", Missed::Once), ("all", Missed::All)];

/// `None` after an error.
pub(crate) fn read(reading: &mut ParseContext<'_>, title: &str, value: &Value<'_>) -> Option<ScheduleSource> {
    let before = reading.diagnostics.len();
    let section = TableReader::open(reading, TableKind::ScheduleSource, title, value)?;
    let schedule = schedule(reading, &section);
    let missed = section.field("missed");
    let missed = missed.and_then(|field| field.choice(reading, &MISSED));
    let payload = section.field("payload").map(|field| payload(reading, field));
    if reading.diagnostics.len() > before {
        return None;
    }
    let missed = missed.unwrap_or(Missed::Skip);
    Some(ScheduleSource { schedule: schedule?, missed, payload: payload.unwrap_or_default() })
}

fn schedule(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Option<Schedule> {
    let zone = section.field("time_zone");
    match (section.field("cron"), section.field("every")) {
        (Some(cron), None) => {
            let zone = zone.map_or(Some(TimeZone::UTC), |field| time_zone(reading, field));
            let cron = cron.quantity(reading, ("cron expression", "30 2 * * mon-fri"), Cron::parse, None);
            Some(Schedule::Cron { cron: Box::new(cron?), zone: zone? })
        }
        (None, Some(every)) => {
            if let Some(zone) = zone {
                let message = "`time_zone` has no effect with `every`, which counts elapsed time";
                let diagnostic = Diagnostic::error_at(&zone.place(reading), message);
                reading.report(diagnostic.help("leave it out, or use `cron`"));
            }
            let zero = Some(&Duration::ZERO);
            every.quantity(reading, ("duration", "5m"), parse_duration, zero).map(Schedule::Every)
        }
        (Some(_), Some(every)) => {
            let message = format!("`{}` must have one of `cron` and `every`, but has both", section.title);
            let diagnostic = Diagnostic::error_at(&every.place(reading), message);
            reading.report(diagnostic.help("keep one of `cron` and `every`"));
            None
        }
        (None, None) => {
            let message = format!("`{}` must have `cron` or `every`", section.title);
            let help = "write `cron = \"30 2 * * mon-fri\"`, or `every = \"5m\"`";
            reading.report(Diagnostic::error_at(&section.place, message).help(help));
            None
        }
    }
}

fn time_zone(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<TimeZone> {
    let text = field.filled_text(reading)?;
    // The rules of a time zone are files of the system, which are updated.
    reading.depends_on_disk = true;
    let zone = TimeZone::get(&text.value).ok();
    if zone.is_none() {
        let names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        let near =
            if text.secret { None } else { did_you_mean(&text.value, names.iter().map(String::as_str)) };
        let help = near.unwrap_or_else(|| "write one like `UTC` or `Europe/Berlin`".into());
        let message = format!("{} in `time_zone` is not a time zone", text.quoted());
        reading.report(Diagnostic::error_at(&text.place, message).help(help));
    }
    zone
}

fn payload(reading: &mut ParseContext<'_>, field: Field<'_>) -> Map<String, Json> {
    let Some(table) = field.table(reading) else { return Map::new() };
    if let Some((due, _)) = table.get_key_value(DUE) {
        let message = "`payload` cannot have a `due`: the due time of the tick has this name";
        let diagnostic = Diagnostic::error_at(&reading.place(due.span()), message);
        reading.report(diagnostic.help("give it another name"));
    }
    match object(reading, table) {
        Json::Object(payload) => payload,
        _ => Map::new(),
    }
}
