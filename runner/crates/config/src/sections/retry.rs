//! Retry policies: parses `[retry.NAME]`, and `retry = { … }` of a step.

use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::parse::context::{ParseContext, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use tidegate_model::{
    Backoff, FailureClass, Jitter, OnExhausted, QuickRow, RetryPolicy, format_duration, parse_duration,
};

/// A backoff, before the delays of a list are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    Fixed,
    Linear,
    Exponential,
    Fibonacci,
    List,
}

const BACKOFFS: [(&str, Growth); 5] = [
    ("fixed", Growth::Fixed),
    ("linear", Growth::Linear),
    ("exponential", Growth::Exponential),
    ("fibonacci", Growth::Fibonacci),
    ("list", Growth::List),
];
const JITTERS: [(&str, Jitter); 3] =
    [("none", Jitter::None), ("full", Jitter::Full), ("equal", Jitter::Equal)];
const THENS: [(&str, OnExhausted); 3] =
    [("error-queue", OnExhausted::ErrorQueue), ("drop", OnExhausted::Drop), ("halt", OnExhausted::Halt)];

/// The delay between two quick attempts.
const QUICK_DELAY: Duration = Duration::from_secs(1);

/// The keys that apply to some backoffs only.
const MEANT_FOR: [(&str, &[Growth], &str); 4] = [
    (
        "initial",
        &[Growth::Fixed, Growth::Linear, Growth::Exponential, Growth::Fibonacci],
        "put all delays of a list in `delays`",
    ),
    ("factor", &[Growth::Exponential], "it belongs to `backoff = \"exponential\"`"),
    (
        "max",
        &[Growth::Linear, Growth::Exponential, Growth::Fibonacci],
        "leave it out: the delays of this backoff are bounded",
    ),
    ("delays", &[Growth::List], "they belong to `backoff = \"list\"`"),
];

/// `None` after an error.
pub(crate) fn read(reading: &mut ParseContext<'_>, title: &str, value: &Value<'_>) -> Option<RetryPolicy> {
    let before = reading.diagnostics.len();
    let section = TableReader::open(reading, TableKind::Retry, title, value)?;
    let mut policy = RetryPolicy::default();
    let growth = section.field("backoff").map(|field| field.choice(reading, &BACKOFFS));
    if let Some(growth) = growth.unwrap_or(Some(Growth::Exponential)) {
        refuse_what_is_not_meant(reading, &section, growth);
        delays(reading, &section, growth, &mut policy);
    }
    if let Some(jitter) = choice(reading, &section, "jitter", &JITTERS) {
        policy.jitter = jitter;
    }
    if let Some(then) = choice(reading, &section, "then", &THENS) {
        policy.then = then;
    }
    if let Some(most) = section.field("max_attempts").and_then(|field| field.small_count(reading, 0)) {
        policy.max_attempts = most;
    }
    policy.ttl = section.field("ttl").and_then(|field| duration(reading, field));
    if let Some(on) = section.field("on").and_then(|field| field.choices(reading, &FailureClass::WORDS)) {
        policy.on = on;
    }
    if let Some(halt_on) =
        section.field("halt_on").and_then(|field| field.choices(reading, &FailureClass::HALTING_WORDS))
    {
        policy.halt_on = halt_on;
    }
    policy.ttl_field = section.field("ttl_field").and_then(|field| field.path_in_job(reading));
    policy.quick = quick(reading, &section);
    (reading.diagnostics.len() == before).then_some(policy)
}

/// The fix for a backoff where the name of a policy belongs.
pub(crate) fn meant(name: &str) -> Option<String> {
    if matches!(name, "none" | "never" | "no") {
        return Some("for a single attempt, write `retry = { max_attempts = 1 }`".to_owned());
    }
    let (word, growth) = BACKOFFS.iter().find(|(word, _)| *word == name)?;
    let delays = if *growth == Growth::List { ", delays = [\"1s\", \"10s\"]" } else { "" };
    Some(format!("`{word}` is a backoff: `retry = {{ backoff = \"{word}\"{delays} }}`"))
}

/// A key without an effect is a misunderstanding, and reported.
fn refuse_what_is_not_meant(reading: &mut ParseContext<'_>, section: &TableReader<'_>, growth: Growth) {
    let word = BACKOFFS.iter().find(|(_, other)| *other == growth).map_or("", |(word, _)| word);
    for (key, growths, help) in MEANT_FOR {
        if let Some(field) = section.field(key).filter(|_| !growths.contains(&growth)) {
            let message = format!("`{key}` has no effect with `backoff = \"{word}\"`");
            reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
        }
    }
}

/// `quick` and `quick_delay`: attempts in a row.
fn quick(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Option<QuickRow> {
    let attempts = section.field("quick").map(|field| field.small_count(reading, 2));
    let delay = section.field("quick_delay");
    if let (Some(field), None) = (delay, attempts) {
        let diagnostic =
            Diagnostic::error_at(&field.place(reading), "`quick_delay` has no effect without `quick`");
        reading.report(diagnostic.help("write the number of attempts in a row too: `quick = 3`"));
    }
    let delay = delay.map(|field| field.quantity(reading, ("duration", "1s"), parse_duration, None));
    Some(QuickRow { attempts: attempts??, delay: delay.unwrap_or(Some(QUICK_DELAY))? })
}

fn delays(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    growth: Growth,
    policy: &mut RetryPolicy,
) {
    if let Some(initial) = section.field("initial").and_then(|field| duration(reading, field)) {
        policy.initial = initial;
    }
    if let Some(max) = section.field("max").and_then(|field| duration(reading, field)) {
        policy.max = max;
    }
    if let Some(factor) = section.field("factor").and_then(|field| factor(reading, field)) {
        policy.factor = factor;
    }
    policy.backoff = match growth {
        Growth::Linear => Backoff::Linear,
        Growth::Exponential => Backoff::Exponential,
        Growth::Fibonacci => Backoff::Fibonacci,
        Growth::Fixed => {
            policy.max = policy.initial;
            Backoff::Fixed
        }
        Growth::List => {
            let list = listed(reading, section);
            // A list of delays is exact, so it has no jitter.
            policy.jitter = Jitter::None;
            policy.max = list.iter().max().copied().unwrap_or_default();
            policy.initial = list.first().copied().unwrap_or_default();
            Backoff::List(list)
        }
    };
    if let Some(field) = section.field("initial").filter(|_| policy.initial > policy.max) {
        let message = format!("`initial` exceeds `max`, {}", format_duration(policy.max));
        let help = format!("write `max = \"{}\"` or more", format_duration(policy.initial));
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    } else if policy.initial > policy.max
        && let Some(field) = section.field("max")
    {
        let message = format!("`max` must be at least `initial`, {}", format_duration(policy.initial));
        let help = format!("write `initial = \"{}\"` or less", format_duration(policy.max));
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
}

/// `delays`; a delay may be zero.
fn listed(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Vec<Duration> {
    let help = "write them down: `delays = [\"1s\", \"10s\", \"1m\"]`";
    let Some(field) = section.required(reading, "delays", help) else { return Vec::new() };
    field.quantities(reading, ("duration", "10s"), parse_duration).unwrap_or_default()
}

fn factor(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<f64> {
    let factor = field.number(reading)?;
    if !(1.0..=1000.0).contains(&factor) {
        let message = "`factor` must be from 1 to 1000".to_owned();
        let help = "it is the ratio of each delay to the one before it";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
        return None;
    }
    Some(factor)
}

fn choice<T: Copy>(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    key: &'static str,
    choices: &[(&'static str, T)],
) -> Option<T> {
    section.field(key)?.choice(reading, choices)
}

fn duration(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Duration> {
    field.quantity(reading, ("duration", "10s"), parse_duration, Some(&Duration::ZERO))
}
