//! `QueueDeclaration`: parses `[queue.NAME]`.

use std::time::Duration;

use crate::diagnostic::SourceSpan;
use crate::model::{Meta, Retain};
use crate::parse::context::{ParseContext, Placed, Text, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::reference::name;
use crate::parse::table::TableReader;
use tidegate_model::{Name, parse_duration, parse_size};

/// The kinds of provenance.
#[derive(Clone, Copy)]
enum MetaField {
    Index,
    Time,
    Transaction,
}

const TOLD: [(&str, MetaField); 3] =
    [("index", MetaField::Index), ("time", MetaField::Time), ("tx", MetaField::Transaction)];

/// A queue as written.
#[derive(Debug)]
pub(crate) struct QueueDeclaration {
    pub(crate) name: Placed<Name>,
    pub(crate) retain: Retain,
    pub(crate) max_size: Option<u64>,
    pub(crate) meta: Meta,
    pub(crate) dedupe: Option<Duration>,
    pub(crate) allow_cycle: bool,
    /// Settings that apply only to jobs of steps.
    pub(crate) of_steps: Vec<(&'static str, SourceSpan)>,
}

pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    key: &Text,
    value: &Value<'_>,
) -> Option<QueueDeclaration> {
    let name = name(reading, "queue", key);
    reading.names_missing |= name.is_none();
    let section = TableReader::open(reading, TableKind::Queue, &format!("[queue.{}]", key.value), value)?;
    let retain = section.field("retain").and_then(|field| retain(reading, field));
    let max_size = section
        .field("max_size")
        .and_then(|field| field.quantity(reading, ("size", "1GiB"), parse_size, Some(&0)));
    let meta = section.field("meta").map(|field| meta(reading, field));
    let dedupe = section
        .field("dedupe")
        .and_then(|field| field.quantity(reading, ("duration", "7d"), parse_duration, Some(&Duration::ZERO)));
    let allow_cycle = section.field("allow_cycle").and_then(|field| field.boolean(reading));
    let of_steps = ["dedupe", "allow_cycle"]
        .into_iter()
        .filter_map(|key| Some((key, section.field(key)?.place(reading))))
        .collect();
    Some(QueueDeclaration {
        name: name?,
        retain: retain.unwrap_or(Retain::Consumed),
        max_size,
        meta: meta.unwrap_or_default(),
        dedupe,
        // An invalid value is reported; an additional error about the cycle would be confusing.
        allow_cycle: allow_cycle.unwrap_or(section.field("allow_cycle").is_some()),
        of_steps,
    })
}

fn meta(reading: &mut ParseContext<'_>, field: Field<'_>) -> Meta {
    let mut meta = Meta::default();
    for told in field.choices(reading, TableKind::Queue, &TOLD).unwrap_or_default() {
        match told {
            MetaField::Index => meta.index = true,
            MetaField::Time => meta.time = true,
            MetaField::Transaction => meta.transaction = true,
        }
    }
    meta
}

fn retain(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Retain> {
    let parse = |text: &str| match text {
        "consumed" => Ok(Retain::Consumed),
        "forever" => Ok(Retain::Forever),
        // Only a text that starts like a duration is treated as one.
        _ if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            parse_duration(text).map(Retain::For)
        }
        _ => Err(format!("`{text}` must be `consumed`, `forever`, or a duration like `7d`")),
    };
    field.quantity(reading, ("`consumed`, `forever` or duration", "7d"), parse, None)
}
