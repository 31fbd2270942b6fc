//! `[queue.NAME]`

use super::field::Field;
use super::grammar::Kind;
use super::model::Retain;
use super::reading::{Placed, Reading, Text, Value};
use super::reference::name;
use super::section::Section;
use crate::words::{Name, parse_duration};

/// A queue as it was written.
#[derive(Debug)]
pub(super) struct QueueDeclaration {
    pub(super) name: Placed<Name>,
    pub(super) retain: Retain,
    pub(super) allow_cycle: bool,
}

pub(super) fn read(reading: &mut Reading<'_>, key: &Text, value: &Value<'_>) -> Option<QueueDeclaration> {
    let name = name(reading, "queue", key);
    reading.names_missing |= name.is_none();
    let section = Section::open(reading, Kind::Queue, &format!("[queue.{}]", key.value), value)?;
    let retain = section.field("retain").and_then(|field| retain(reading, field));
    let allow_cycle = section.field("allow_cycle").and_then(|field| field.boolean(reading));
    Some(QueueDeclaration {
        name: name?,
        retain: retain.unwrap_or(Retain::Consumed),
        // A value that is no answer is told; that there is also a cycle would be one thing too much.
        allow_cycle: allow_cycle.unwrap_or(section.field("allow_cycle").is_some()),
    })
}

fn retain(reading: &mut Reading<'_>, field: Field<'_>) -> Option<Retain> {
    let parse = |text: &str| match text {
        "consumed" => Ok(Retain::Consumed),
        "forever" => Ok(Retain::Forever),
        // Only what starts as a duration does is one that went wrong.
        _ if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            parse_duration(text).map(Retain::For)
        }
        _ => Err(format!("`{text}` is none of `consumed`, `forever`, or a duration like `7d`")),
    };
    field.quantity(reading, ("`consumed`, `forever` or duration", "7d"), parse, None)
}
