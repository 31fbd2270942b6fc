//! Queuers: parses `[queuer.NAME]`, and `queuer = { … }` of a step.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::model::{AfterInvalid, FreesAt, KeysMissing, Lane, LaneMissing, Queuer, Strategy};
use crate::parse::context::{ParseContext, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use tidegate_model::suggest::{listed, nearest};
use tidegate_model::{FieldPath, Rate, parse_duration, parse_rate};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Fifo,
    Serial,
    OneRoundSerial,
    OneRoundParallel,
    Priority,
    Rounds,
}

const STRATEGIES: [(&str, Word); 6] = [
    ("fifo", Word::Fifo),
    ("serial", Word::Serial),
    ("one-round-serial", Word::OneRoundSerial),
    ("one-round-parallel", Word::OneRoundParallel),
    ("priority", Word::Priority),
    ("rounds", Word::Rounds),
];
const LANE_MISSING: [(&str, LaneMissing); 2] =
    [("error", LaneMissing::Error), ("default", LaneMissing::Default)];

const FREES_AT: [(&str, FreesAt); 2] = [("end", FreesAt::End), ("valid", FreesAt::Valid)];

const AFTER_INVALID: [(&str, AfterInvalid); 2] =
    [("go-on", AfterInvalid::GoesOn), ("halt-lane", AfterInvalid::HaltsLane)];

const KEYS_MISSING: [(&str, KeysMissing); 2] = [("error", KeysMissing::Error), ("none", KeysMissing::None)];

/// The keys that apply to some strategies only.
const MEANT_FOR: [(&str, &[Word]); 13] = [
    ("delay_window", &[Word::OneRoundSerial, Word::OneRoundParallel]),
    ("reads", &[Word::OneRoundParallel]),
    ("writes", &[Word::OneRoundParallel]),
    ("keys_missing", &[Word::OneRoundParallel]),
    ("priority", &[Word::Priority]),
    ("aging", &[Word::Priority]),
    ("pause", &[Word::Rounds]),
    ("max_processing", &NOT_SERIAL),
    ("max_pending", &NOT_SERIAL),
    ("max_per_lane", &NOT_SERIAL),
    ("free_lane_at", &NOT_SERIAL),
    ("on_invalid", &NOT_SERIAL),
    ("lane_rate", &NOT_SERIAL),
];

/// `serial` runs one job at a time, in any lane.
const NOT_SERIAL: [Word; 5] =
    [Word::Fifo, Word::OneRoundSerial, Word::OneRoundParallel, Word::Priority, Word::Rounds];

/// `None` after an error.
pub(crate) fn read(reading: &mut ParseContext<'_>, title: &str, value: &Value<'_>) -> Option<Queuer> {
    let before = reading.diagnostics.len();
    let section = TableReader::open(reading, TableKind::Queuer, title, value)?;
    let help = format!("use {}", listed(STRATEGIES.iter().map(|(word, _)| *word), "or"));
    let word = section.required(reading, "strategy", &help);
    let word = word.and_then(|field| field.choice(reading, &STRATEGIES));
    if let Some(word) = word {
        refuse_what_is_not_meant(reading, &section, word);
    }
    let strategy = strategy(reading, &section, word);
    let lane = lane(reading, &section, word);
    let max_processing = section.field("max_processing").and_then(|field| at_least_one(reading, field));
    let max_pending = section.field("max_pending").and_then(|field| at_least_one(reading, field));
    let search_ahead = section.field("max_search_ahead").and_then(|field| field.count(reading, 0));
    let max_search_ahead = search_ahead.filter(|&most| most > 0);
    if let (Some(_), Some(word)) = (max_search_ahead, word) {
        refuse_search_ahead_of_lanes(reading, &section, word);
    }
    let rate = section.field("rate").and_then(|field| rate(reading, field));
    let ordered = section.field("ordered").and_then(|field| field.boolean(reading)) == Some(true);
    if ordered {
        refuse_other_orders(reading, &section, word);
    }
    let halts = lane.as_ref().is_some_and(|lane| lane.after_invalid == AfterInvalid::HaltsLane);
    if let Some(field) = section.field("on_invalid").filter(|_| ordered && halts) {
        let message = "`on_invalid` cannot halt lanes beside `ordered`: a lane goes on before the result of its job is delivered";
        let help = "leave `ordered` out: jobs of one lane keep their order without it";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
    let age = path(reading, &section, "age");
    let id = path(reading, &section, "id");
    if reading.diagnostics.len() > before {
        return None;
    }
    Some(Queuer {
        strategy: strategy?,
        lane,
        max_processing,
        max_pending,
        max_search_ahead,
        rate,
        ordered,
        age,
        id,
    })
}

/// The fix for a strategy where the name of a queuer belongs.
pub(crate) fn meant(name: &str) -> Option<String> {
    let word = STRATEGIES.iter().find(|(word, _)| *word == name).or_else(|| {
        let near = nearest(name, STRATEGIES.iter().map(|(word, _)| *word))?;
        STRATEGIES.iter().find(|(word, _)| *word == near)
    });
    let (name, word) = word?;
    let needed = match word {
        Word::OneRoundSerial => ", lane = \"FIELD\"",
        Word::OneRoundParallel => ", lane = \"FIELD\", reads = \"FIELD\", writes = \"FIELD\"",
        Word::Priority => ", priority = \"FIELD\"",
        Word::Fifo | Word::Serial | Word::Rounds => "",
    };
    Some(format!("`{name}` is a strategy: `queuer = {{ strategy = \"{name}\"{needed} }}`"))
}

/// A key without an effect is a misunderstanding, and reported.
fn refuse_what_is_not_meant(reading: &mut ParseContext<'_>, section: &TableReader<'_>, word: Word) {
    let name = |word| STRATEGIES.iter().find(|(_, other)| *other == word).map_or("", |(name, _)| name);
    for (key, words) in MEANT_FOR {
        let Some(field) = section.field(key).filter(|_| !words.contains(&word)) else { continue };
        let message = format!("`{key}` has no effect with the strategy `{}`", name(word));
        let help = if word == Word::Serial && words == NOT_SERIAL {
            "`serial` runs one job at a time; `one-round-serial` runs one of each lane".to_owned()
        } else {
            format!("it belongs to {}", listed(words.iter().map(|&word| name(word)), "and"))
        };
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
}

/// Results in the order of the input would wait for the jobs that another order starts last.
fn refuse_other_orders(reading: &mut ParseContext<'_>, section: &TableReader<'_>, word: Option<Word>) {
    let Some(field) = section.field("ordered") else { return };
    let (message, help) = match word {
        Some(Word::Serial) if section.field("age").is_none() => (
            "`ordered` has no effect with the strategy `serial`",
            "leave it out: `serial` runs one job at a time, and delivers in the order of the input",
        ),
        Some(Word::Priority) => (
            "`ordered` cannot be used with `priority`: results would wait for the jobs of the lowest priority",
            "leave it out, or use `fifo`",
        ),
        _ if section.field("age").is_some() => (
            "`ordered` cannot be used with `age`: results would wait for the youngest jobs",
            "leave one of them out",
        ),
        _ => return,
    };
    reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
}

/// One bound for all lanes: a lane that is busy, or whose job waits for its next attempt, would hold the lanes whose
/// jobs are further ahead.
fn refuse_search_ahead_of_lanes(reading: &mut ParseContext<'_>, section: &TableReader<'_>, word: Word) {
    let Some(field) = section.field("max_search_ahead") else { return };
    if !matches!(word, Word::OneRoundSerial | Word::OneRoundParallel) {
        return;
    }
    let name = STRATEGIES.iter().find(|(_, other)| *other == word).map_or("", |(name, _)| name);
    let message =
        format!("`max_search_ahead` cannot be used with `{name}`: one busy lane would hold up the others");
    let help = "leave it out; `max_processing` bounds the jobs that run at once";
    reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
}

/// Reads the keys of every strategy, so that all errors are reported.
fn strategy(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    word: Option<Word>,
) -> Option<Strategy> {
    let delay_window = section.field("delay_window").and_then(|field| duration(reading, field));
    let (reads, writes) = (path(reading, section, "reads"), path(reading, section, "writes"));
    let missing = section.field("keys_missing");
    let missing = missing.and_then(|field| field.choice(reading, &KEYS_MISSING));
    let priority = path(reading, section, "priority");
    let aging = section.field("aging").and_then(|field| duration(reading, field));
    let pause = section.field("pause");
    let pause = pause.and_then(|field| field.quantity(reading, ("duration", "5s"), parse_duration, None));
    match word? {
        Word::Fifo => Some(Strategy::Fifo),
        Word::Serial => Some(Strategy::Serial),
        Word::OneRoundSerial => Some(Strategy::OneRoundSerial { delay_window }),
        Word::OneRoundParallel => {
            if section.field("reads").is_none() && section.field("writes").is_none() {
                let message = format!("`{}` must have `reads` or `writes`", section.title);
                let help = "name lists of keys in the job: `reads = \"inputs\"`, `writes = \"outputs\"`; for one job of each lane at a time, use `one-round-serial`";
                reading.report(Diagnostic::error_at(&section.place, message).help(help));
            }
            let missing = missing.unwrap_or(KeysMissing::Error);
            Some(Strategy::OneRoundParallel { delay_window, reads, writes, missing })
        }
        Word::Priority => {
            let help = "name the field with the number: `priority = \"urgency\"`";
            section.required(reading, "priority", help);
            Some(Strategy::Priority { priority: priority?, aging })
        }
        Word::Rounds => Some(Strategy::Rounds { pause: pause.unwrap_or_default() }),
    }
}

fn lane(reading: &mut ParseContext<'_>, section: &TableReader<'_>, word: Option<Word>) -> Option<Lane> {
    let path = path(reading, section, "lane");
    let missing = section.field("lane_missing");
    let missing = missing.and_then(|field| field.choice(reading, &LANE_MISSING));
    let frees_at = section.field("free_lane_at");
    let frees_at = frees_at.and_then(|field| field.choice(reading, &FREES_AT));
    let after_invalid = section.field("on_invalid");
    let after_invalid = after_invalid.and_then(|field| field.choice(reading, &AFTER_INVALID));
    let max_per_lane = section.field("max_per_lane").and_then(|field| at_least_one(reading, field));
    let rate = section.field("lane_rate").and_then(|field| rate(reading, field));
    if section.field("lane").is_none() {
        let help = "name the field that determines the lane: `lane = \"pool\"`, or `\"order.account\"`";
        if matches!(word, Some(Word::OneRoundSerial | Word::OneRoundParallel)) {
            section.required(reading, "lane", help);
        } else {
            for field in ["lane_missing", "free_lane_at", "on_invalid", "max_per_lane", "lane_rate"]
                .map(|key| section.field(key))
            {
                let Some(field) = field else { continue };
                let message = format!("`{}` needs `lane`", field.name);
                reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
            }
        }
    }
    let (missing, frees_at) = (missing.unwrap_or(LaneMissing::Error), frees_at.unwrap_or(FreesAt::End));
    let after_invalid = after_invalid.unwrap_or(AfterInvalid::GoesOn);
    Some(Lane { path: path?, missing, frees_at, after_invalid, max_per_lane, rate })
}

fn path(reading: &mut ParseContext<'_>, section: &TableReader<'_>, key: &'static str) -> Option<FieldPath> {
    section.field(key)?.path_in_job(reading)
}

fn at_least_one(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<NonZeroU32> {
    field.small_count(reading, 1).and_then(NonZeroU32::new)
}

fn rate(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Rate> {
    field.quantity(reading, ("rate", "100/s"), parse_rate, None)
}

fn duration(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Duration> {
    field.quantity(reading, ("duration", "15s"), parse_duration, Some(&Duration::ZERO))
}
