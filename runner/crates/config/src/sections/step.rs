//! `StepDeclaration`: parses `[step.NAME]`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::begin_at;
use super::bindings::{self, Bound};
use super::keyed_join::{self, JoinDeclaration, KeyedJoinKeys, TupleQueue};
use super::plugin;
use super::probe::{self, MonitorDeclaration};
use super::queuer;
use super::retry;
use super::run::run;
use crate::model::{
    BeginAt, DeliveryGuarantee, InputMode, Limits, ProbeConfig, Processor, Queuer, StepFilter,
};
use crate::parse::context::{ParseContext, Placed, Text, Value};
use crate::parse::field::Field;
use crate::parse::json;
use crate::parse::keys::TableKind;
use crate::parse::named_table::Chosen;
use crate::parse::reference::{ErrorTarget, Reference, error_target, former_name, name, reference};
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::{Name, RetryPolicy, Secret, parse_duration, parse_size};

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const CRASH_LIMIT_DEFAULT: Option<NonZeroU32> = NonZeroU32::new(3);
const PROMISES: [(&str, DeliveryGuarantee); 3] = [
    ("exactly-once", DeliveryGuarantee::ExactlyOnce),
    ("at-least-once", DeliveryGuarantee::AtLeastOnce),
    ("at-most-once", DeliveryGuarantee::AtMostOnce),
];

/// A step as written.
#[derive(Debug)]
pub(crate) struct StepDeclaration {
    pub(crate) name: Placed<Name>,
    /// Its former name.
    pub(crate) was: Option<Placed<Name>>,
    pub(crate) line: u64,
    pub(crate) take: InputMode,
    pub(crate) inputs: Bound,
    /// Set until the step is split by [`super::implied_steps`].
    pub(crate) join_keys: Option<KeyedJoinKeys>,
    /// Set in the step that finds the tuples of a join by key.
    pub(crate) joins: Option<JoinDeclaration>,
    /// The queue of the tuples that it reads, if it declares a join by key.
    pub(crate) tuples: Option<TupleQueue>,
    pub(crate) begin_at: BeginAt,
    pub(crate) to: Bound,
    pub(crate) errors: Option<ErrorTarget>,
    /// The queue of its events.
    pub(crate) events: Option<Reference>,
    pub(crate) processors: Vec<Processor>,
    pub(crate) filter: StepFilter,
    pub(crate) limits: Limits,
    /// `None`: the default of the pipeline.
    pub(crate) delivery: Option<DeliveryGuarantee>,
    pub(crate) crash_limit: Option<NonZeroU32>,
    pub(crate) timeout: Duration,
    pub(crate) config: Arc<serde_json::Value>,
    /// Secrets of `config`.
    pub(crate) secrets: Vec<Secret>,
    pub(crate) isolate: bool,
    pub(crate) retry: Option<Chosen<RetryPolicy>>,
    pub(crate) queuer: Option<Chosen<Queuer>>,
    pub(crate) gate: Option<Chosen<ProbeConfig>>,
    pub(crate) monitor: Option<MonitorDeclaration>,
}

impl StepDeclaration {
    /// A step that passes its jobs on.
    pub(crate) fn new(name: Placed<Name>, line: u64) -> Self {
        Self {
            name,
            was: None,
            line,
            take: InputMode::From,
            inputs: Vec::new(),
            join_keys: None,
            joins: None,
            tuples: None,
            begin_at: BeginAt::default(),
            to: Vec::new(),
            errors: None,
            events: None,
            processors: Vec::new(),
            filter: StepFilter::default(),
            limits: Limits::default(),
            delivery: None,
            crash_limit: CRASH_LIMIT_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
            config: Arc::new(serde_json::Value::Object(serde_json::Map::new())),
            secrets: Vec::new(),
            isolate: false,
            retry: None,
            queuer: None,
            gate: None,
            monitor: None,
        }
    }
}

pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    key: &Text,
    value: &Value<'_>,
) -> Option<StepDeclaration> {
    let name = name(reading, "step", key);
    reading.names_missing |= name.is_none();
    let section = TableReader::open(reading, TableKind::Step, &format!("[step.{}]", key.value), value)?;
    let section = &section;
    let (take, inputs) = bindings::inputs(reading, section);
    let join_keys = keyed_join::read(reading, section);
    let begin_at = begin_at::read(reading, section, take);
    let to = section.field("to").map(|field| bindings::outputs(reading, field));
    let errors = error_target(reading, section);
    let events = section.field("events").and_then(|field| reference(reading, field));
    let filter = filter(reading, section);
    let limits = section.field("limits").and_then(|field| limits(reading, field));
    let timeout = section.field("timeout").and_then(|field| {
        field.quantity(reading, ("duration", "10s"), parse_duration, Some(&Duration::ZERO))
    });
    let processors = run(reading, files, section, timeout.unwrap_or(TIMEOUT_DEFAULT));
    let (config, secrets) = json::config(reading, section);
    let delivery = delivery(reading, section);
    let isolate = plugin::isolate(reading, section);
    let crash_limit = section.field("crash_limit").and_then(|field| field.small_count(reading, 0));
    let retry = section.field("retry").map(|field| Chosen::read(reading, field, retry::read));
    let queuer = section.field("queuer").map(|field| Chosen::read(reading, field, queuer::read));
    let gate = section.field("gate").map(|field| gate(reading, field));
    let monitor = section.field("monitor").and_then(|field| probe::monitor(reading, files, field));

    let was = former_name(reading, section, "step");

    // Last, so that other errors of a step with an invalid name are reported too.
    let defaults = StepDeclaration::new(name?, reading.line(&section.place));
    Some(StepDeclaration {
        was,
        take,
        inputs,
        join_keys,
        begin_at,
        to: to.unwrap_or_default(),
        errors,
        events,
        processors,
        filter,
        limits: limits.unwrap_or_default(),
        delivery,
        crash_limit: crash_limit.map_or(defaults.crash_limit, NonZeroU32::new),
        timeout: timeout.unwrap_or(defaults.timeout),
        config,
        secrets,
        isolate,
        retry,
        queuer,
        gate,
        monitor,
        ..defaults
    })
}

/// `delivery`, of a step or as the default of a pipeline.
pub(crate) fn delivery(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
) -> Option<DeliveryGuarantee> {
    section.field("delivery")?.choice(reading, &PROMISES)
}

fn filter(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> StepFilter {
    let mut words = |key| {
        let texts = section.field(key).and_then(|field| field.texts(reading)).unwrap_or_default();
        texts.into_iter().map(|text| text.value).collect()
    };
    let (types, topics) = (words("types"), words("topics"));
    let when = section.field("when").and_then(|field| field.filled_text(reading));
    StepFilter {
        types,
        topics,
        when: when.map(|text| (reading.inside(&text), text)).map(|(at, text)| (text.value, at)),
    }
}

/// Deeper calls could overflow a worker's stack.
const DEPTH_MAX: u64 = 500;

pub(crate) fn limits(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Limits> {
    let section = TableReader::open(reading, TableKind::Limits, "limits", field.value())?;
    let mut limits = Limits::default();
    if let Some(operations) = section.field("operations").and_then(|field| field.count(reading, 1)) {
        limits.operations = operations;
    }
    if let Some(field) = section.field("memory") {
        let memory = field.quantity(reading, ("size", "16MiB"), parse_size, Some(&0));
        limits.memory = memory.unwrap_or(limits.memory);
    }
    if let Some(field) = section.field("depth") {
        match field.count(reading, 1) {
            Some(depth) if depth > DEPTH_MAX => {
                field.refuse(reading, format!("`depth` must be {DEPTH_MAX} or less"));
            }
            Some(depth) => limits.depth = usize::try_from(depth).unwrap_or(limits.depth),
            None => {}
        }
    }
    Some(limits)
}

/// The name of a gate; an inline one has no name yet.
fn gate(reading: &mut ParseContext<'_>, field: Field<'_>) -> Chosen<ProbeConfig> {
    let written = field.value().get_ref().is_table();
    let before = reading.diagnostics.len();
    let chosen = Chosen::named(reading, field, "the name of a gate");
    if let (true, Some(mistake)) = (written, reading.diagnostics.get_mut(before)) {
        mistake
            .help
            .push("move it to a table of its own, `[gate.NAME]`, and write `gate = \"NAME\"`".to_owned());
    }
    chosen
}
