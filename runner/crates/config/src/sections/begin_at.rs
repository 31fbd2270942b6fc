//! `BeginAt`: parses `begin_at`, the first job of a step.

use toml::de::DeValue;

use crate::diagnostic::Diagnostic;
use crate::model::{BeginAt, InputMode};
use crate::parse::context::ParseContext;
use crate::parse::table::TableReader;

const WORDS: [(&str, BeginAt); 2] = [("oldest", BeginAt::Oldest), ("newest", BeginAt::Newest)];

/// For a step, or for a sink that reads jobs; `take` is its input mode.
pub(crate) fn read(reading: &mut ParseContext<'_>, section: &TableReader<'_>, take: InputMode) -> BeginAt {
    let Some(field) = section.field("begin_at") else { return BeginAt::default() };
    let begin_at = match field.value().get_ref() {
        DeValue::String(text) if text.parse::<u64>().is_ok() => {
            let message = "`begin_at` must be `\"oldest\"`, `\"newest\"` or an index, but is a text";
            let diagnostic = Diagnostic::error_at(&field.place(reading), message);
            reading.report(diagnostic.help(format!("write it without quotes: `begin_at = {text}`")));
            None
        }
        DeValue::String(_) => field.choice(reading, &WORDS),
        DeValue::Integer(_) if take != InputMode::From => {
            let message =
                "`begin_at` cannot be an index if the step has several inputs: each counts its own jobs";
            let diagnostic = Diagnostic::error_at(&field.place(reading), message);
            reading.report(diagnostic.help("use `\"oldest\"` or `\"newest\"`"));
            None
        }
        DeValue::Integer(_) => field.count(reading, 1).map(BeginAt::Index),
        _ => {
            reading.wrong_type("begin_at", field.value(), "`\"oldest\"`, `\"newest\"` or an index");
            None
        }
    };
    begin_at.unwrap_or_default()
}
