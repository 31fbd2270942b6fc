//! `QueueDeclaration`: parses `[queue.NAME]`.

use std::time::Duration;

use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::{Meta, Retain};
use crate::parse::context::{ParseContext, Placed, Text, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::reference::{former_name, name};
use crate::parse::table::TableReader;
use tidegate_model::{Name, parse_duration, parse_size};

/// The kinds of provenance.
#[derive(Clone, Copy)]
enum MetaField {
    Index,
    Time,
    Transaction,
    Place,
}

const OF_QUEUES: [(&str, MetaField); 3] =
    [("index", MetaField::Index), ("time", MetaField::Time), ("tx", MetaField::Transaction)];
const OF_FILES: [(&str, MetaField); 2] = [("index", MetaField::Index), ("place", MetaField::Place)];

/// A queue as written.
#[derive(Debug)]
pub(crate) struct QueueDeclaration {
    pub(crate) name: Placed<Name>,
    /// Its former name.
    pub(crate) was: Option<Placed<Name>>,
    pub(crate) settings: QueueSettings,
    pub(crate) allow_cycle: bool,
    /// Settings that apply only to jobs of steps.
    pub(crate) of_steps: Vec<(&'static str, SourceSpan)>,
}

/// The settings of a queue, or the defaults of queues; a `None` inherits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueSettings {
    pub(crate) retain: Option<Retain>,
    pub(crate) max_size: Option<u64>,
    pub(crate) meta: Option<Meta>,
    pub(crate) dedupe: Option<Duration>,
}

impl QueueSettings {
    /// These settings, and those of `below` for missing ones.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            retain: self.retain.or(below.retain),
            max_size: self.max_size.or(below.max_size),
            meta: self.meta.or(below.meta),
            dedupe: self.dedupe.or(below.dedupe),
        }
    }

    fn read(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Self {
        let retain = section.field("retain").and_then(|field| retain(reading, field));
        let max_size = section
            .field("max_size")
            .and_then(|field| field.quantity(reading, ("size", "1GiB"), parse_size, Some(&0)));
        let meta = section.field("meta").and_then(|field| meta(reading, field));
        let dedupe = section.field("dedupe").and_then(|field| {
            field.quantity(reading, ("duration", "7d"), parse_duration, Some(&Duration::ZERO))
        });
        Self { retain, max_size, meta, dedupe }
    }
}

/// `[queue_defaults]`
pub(crate) fn defaults(reading: &mut ParseContext<'_>, root: &TableReader<'_>) -> QueueSettings {
    let section = root.field("queue_defaults").and_then(|field| {
        TableReader::open(reading, TableKind::QueueDefaults, "[queue_defaults]", field.value())
    });
    section.map(|section| QueueSettings::read(reading, &section)).unwrap_or_default()
}

pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    key: &Text,
    value: &Value<'_>,
) -> Option<QueueDeclaration> {
    let name = name(reading, "queue", key);
    reading.names_missing |= name.is_none();
    let section = TableReader::open(reading, TableKind::Queue, &format!("[queue.{}]", key.value), value)?;
    let was = former_name(reading, &section, "queue");
    let settings = QueueSettings::read(reading, &section);
    let allow_cycle = section.field("allow_cycle").and_then(|field| field.boolean(reading));
    let of_steps = ["dedupe", "allow_cycle"]
        .into_iter()
        .filter_map(|key| Some((key, section.field(key)?.place(reading))))
        .collect();
    Some(QueueDeclaration {
        name: name?,
        was,
        settings,
        // An invalid value is reported; an additional error about the cycle would be confusing.
        allow_cycle: allow_cycle.unwrap_or(section.field("allow_cycle").is_some()),
        of_steps,
    })
}

/// A list of fields, or `false`.
fn meta(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Meta> {
    match field.value().get_ref().as_bool() {
        Some(false) => Some(Meta { dropped: true, ..Meta::default() }),
        Some(true) => {
            let message = "`meta` must be `false` or a list of texts, but is `true`";
            let diagnostic = Diagnostic::error_at(&field.place(reading), message);
            reading.report(diagnostic.help("write `meta = [\"index\", \"time\", \"tx\"]`"));
            None
        }
        None => Some(fields(reading, field, &OF_QUEUES)),
    }
}

/// `meta` of a file source.
pub(crate) fn meta_of_file(reading: &mut ParseContext<'_>, field: Field<'_>) -> Meta {
    fields(reading, field, &OF_FILES)
}

fn fields(reading: &mut ParseContext<'_>, field: Field<'_>, words: &[(&'static str, MetaField)]) -> Meta {
    let mut meta = Meta::default();
    for meta_field in field.choices(reading, words).unwrap_or_default() {
        match meta_field {
            MetaField::Index => meta.index = true,
            MetaField::Time => meta.time = true,
            MetaField::Transaction => meta.transaction = true,
            MetaField::Place => meta.place = true,
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
