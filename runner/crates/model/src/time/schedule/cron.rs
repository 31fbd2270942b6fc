//! `Cron`: a cron expression, which matches calendar times and finds the next one.

use std::fmt;

use jiff::civil::{Date, DateTime, Time};

use crate::suggest::did_you_mean;

/// `minute hour day month weekday`, with seconds first if there are six fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    /// Bit n represents n.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// From Sunday, 0.
    weekdays: u64,
    /// Both `day` and `weekday` are restricted, so that either may match.
    either: bool,
    /// The expression, with one blank between fields.
    written: String,
}

/// The expression as it was written.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// A field of an expression.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// Names of its values, from `first` on.
    words: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", first: 0, last: 59, words: &[] };
const MINUTE: Field = Field { name: "minute", first: 0, last: 59, words: &[] };
const HOUR: Field = Field { name: "hour", first: 0, last: 23, words: &[] };
const DAY: Field = Field { name: "day of the month", first: 1, last: 31, words: &[] };
const MONTH: Field = Field {
    name: "month",
    first: 1,
    last: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
/// 7 is Sunday too.
const WEEKDAY: Field = Field {
    name: "day of the week",
    first: 0,
    last: 7,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

const NICKNAMES: [(&str, &str); 6] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
];

/// The longest interval between two 29ths of February, in a century without one.
const YEARS_MAX: i16 = 8;

/// The interval that other schedulers write as a nickname.
fn interval(written: &str) -> Option<String> {
    let every = written.strip_prefix("@every")?.trim();
    Some(format!("an interval is written `every = \"{every}\"`, without `cron`"))
}

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    /// A sentence fragment with the problem and its fix.
    pub fn parse(text: &str) -> Result<Self, String> {
        let written = text.trim();
        if written.starts_with('@') {
            let names = NICKNAMES.map(|(name, _)| name);
            let known = NICKNAMES.iter().find(|(name, _)| *name == written);
            let hint = || {
                let meant = interval(written).or_else(|| did_you_mean(written, names));
                meant.unwrap_or_else(|| "use `@daily` or five fields".into())
            };
            return known
                .map_or_else(|| Err(format!("`{written}` is unknown; {}", hint())), |it| Self::parse(it.1));
        }
        let fields: Vec<&str> = written.split_ascii_whitespace().collect();
        let (second, fields) = match fields[..] {
            [_, _, _, _, _] => ("0", &fields[..]),
            [second, _, _, _, _, _] => (second, &fields[1..]),
            _ => {
                return Err(format!(
                    "`{text}` has {} field{}; a cron expression has five: minute, hour, day, month and weekday, like `30 2 * * mon-fri`",
                    fields.len(),
                    if fields.len() == 1 { "" } else { "s" }
                ));
            }
        };
        let weekdays = WEEKDAY.parse(fields[4])?;
        let cron = Self {
            seconds: SECOND.parse(second)?,
            minutes: MINUTE.parse(fields[0])?,
            hours: HOUR.parse(fields[1])?,
            days: DAY.parse(fields[2])?,
            months: MONTH.parse(fields[3])?,
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either: !is_open(fields[2]) && !is_open(fields[4]),
            written: written.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
        };
        // Every kind of year occurs within these years.
        match cron.next(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)) {
            Some(_) => Ok(cron),
            None => Err(format!("`{text}` never matches: no month that it names has such a day")),
        }
    }

    /// Whether it matches in every hour of its days, and so follows elapsed time rather than local time.
    pub(crate) fn is_hourly(&self) -> bool {
        self.hours == HOUR.all()
    }

    /// The first match at or after `from`; `None` at the end of the calendar.
    pub(crate) fn next(&self, from: DateTime) -> Option<DateTime> {
        let from = match from.subsec_nanosecond() {
            0 => from,
            _ => from
                .with()
                .subsec_nanosecond(0)
                .build()
                .ok()?
                .checked_add(jiff::SignedDuration::from_secs(1))
                .ok()?,
        };
        let (mut date, mut time) = (from.date(), from.time());
        let last = date.year().saturating_add(YEARS_MAX);
        while date.year() <= last {
            if !has(self.months, date.month()) {
                date = date.last_of_month();
            } else if self.has_day(date)
                && let Some(time) = self.next_time(time)
            {
                return Some(date.to_datetime(time));
            }
            date = date.tomorrow().ok()?;
            time = Time::midnight();
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either { day || weekday } else { day && weekday }
    }

    /// The first time of a day at or after `from`.
    fn next_time(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        let first = |set: u64| at_or_after(set, 0);
        let time = |hour, minute, second| Time::new(hour, minute?, second?, 0).ok();
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_or_after(self.seconds, second)
            {
                return time(hour, Some(minute), Some(second));
            }
            if let Some(minute) = at_or_after(self.minutes, minute + 1) {
                return time(hour, Some(minute), first(self.seconds));
            }
        }
        time(at_or_after(self.hours, hour + 1)?, first(self.minutes), first(self.seconds))
    }
}

impl Field {
    fn all(&self) -> u64 {
        (self.first..=self.last).fold(0, |set, value| set | 1 << value)
    }

    /// The values of `text`: `*`, `5`, `1-5`, `*/15`, `9-17/2`, or several of them with commas.
    fn parse(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    fn part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        let (first, mut last) = match range.split_once('-') {
            _ if is_open(range) => (self.first, self.last_of_all()),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            None => {
                let value = self.value(range)?;
                // `5/15` means from 5 on.
                (value, if step.is_some() { self.last_of_all() } else { value })
            }
        };
        if last < first && last == 0 && self.last == WEEKDAY.last {
            // A range that ends with Sunday.
            last = WEEKDAY.last;
        }
        if last < first {
            let name = self.name;
            return Err(format!("the {name} `{part}` goes backwards; write its two parts with a comma"));
        }
        Ok((first..=last).step_by(step.unwrap_or(1)).fold(0, |set, value| set | 1 << value))
    }

    /// Sunday counts once, unless it is written as 7.
    fn last_of_all(&self) -> u32 {
        if self.last == WEEKDAY.last { 6 } else { self.last }
    }

    fn step(&self, text: &str) -> Result<usize, String> {
        match text.parse() {
            // A step as long as the field matches once, which its author may intend.
            Ok(step) if step > (self.last_of_all() - self.first) as usize + 1 => Err(format!(
                "`/{text}` steps past the last {}, which goes from {} to {}: only the first is left, which can be written alone",
                self.name,
                self.first,
                self.last_of_all()
            )),
            Ok(step) if step > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(step),
            _ => Err(format!("`/{text}` in the {} is not a step; write one like `*/15`", self.name)),
        }
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        if text.is_empty() {
            return Err(format!("the {} has an empty part; write it like `5`, `1-5` or `1,5`", self.name));
        }
        let word = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        let number = match word {
            Some(position) => u32::try_from(position).ok().map(|position| position + self.first),
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            None => None,
        };
        number.filter(|number| (self.first..=self.last).contains(number)).ok_or_else(|| {
            if let Some(mark) = text.find(['#', '?', 'L', 'W']).filter(|_| is_quartz(text)) {
                let mark = &text[mark..=mark];
                return format!(
                    "`{text}` has the Quartz mark `{mark}` in the {}, which cron does not support",
                    self.name
                );
            }
            let near =
                text.get(..3).filter(|start| self.words.iter().any(|word| word.eq_ignore_ascii_case(start)));
            if let Some(near) = near.filter(|_| text.bytes().all(|byte| byte.is_ascii_alphabetic())) {
                return format!(
                    "`{text}` is not a {}; did you mean `{}`?",
                    self.name,
                    near.to_ascii_lowercase()
                );
            }
            let words = match self.words {
                [first, .., last] => format!(", or from `{first}` to `{last}`"),
                _ => String::new(),
            };
            format!("`{text}` is not a {}, which goes from {} to {}{words}", self.name, self.first, self.last)
        })
    }
}

/// Whether a value has a mark that Quartz supports and cron does not: `MON#2`, `6L`, `15W`, `LW`.
fn is_quartz(text: &str) -> bool {
    let before = |marks: &[char]| {
        let rest = text.trim_end_matches(marks);
        rest.len() < text.len() && (rest.is_empty() || rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.contains(['#', '?']) || before(&['L', 'W'])
}

/// Whether a field is unrestricted.
fn is_open(text: &str) -> bool {
    text == "*" || text == "?"
}

fn has(set: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| value < 64 && set >> value & 1 == 1)
}

/// The smallest member of the set that is at least `value`.
fn at_or_after(set: u64, value: i8) -> Option<i8> {
    let value = u32::try_from(value).ok()?;
    let rest = set.checked_shr(value)?.checked_shl(value)?;
    if rest == 0 { None } else { i8::try_from(rest.trailing_zeros()).ok() }
}
