//! Functions on texts: replace Rhai's that create more than their arguments, or run long.

use rhai::{Array, Dynamic, ImmutableString, Module};

use super::{Answer, changes, reads};
use crate::script::attempt::{ScriptAttempt, current};

type Exclusive = std::ops::Range<i64>;
type Inclusive = std::ops::RangeInclusive<i64>;

pub(crate) fn register(module: &mut Module) {
    register_replace(module);
    register_pad(module);
    register_split(module);
    register_parts(module);
    register_case(module);
}

fn register_replace(module: &mut Module) {
    macro_rules! replace {
        ($find:ty, $with:ty) => {
            changes(module, "replace", |text: &mut ImmutableString, find: $find, with: $with| {
                replace(&current(), text, &find.to_string(), &with.to_string())
            });
        };
    }
    replace!(char, char);
    replace!(char, ImmutableString);
    replace!(ImmutableString, char);
    changes(module, "replace", |text: &mut ImmutableString, find: ImmutableString, with: ImmutableString| {
        replace(&current(), text, &find, &with)
    });
}

fn replace(attempt: &ScriptAttempt, text: &mut ImmutableString, find: &str, with: &str) -> Answer<()> {
    const NAME: &str = "replace";
    if text.is_empty() {
        return Ok(());
    }
    let found_max = text.len() / find.len().max(1) + 1;
    if attempt.room(NAME, found_max.saturating_mul(with.len()).saturating_add(text.len())).is_err() {
        let mut found = 0_usize;
        for _ in text.match_indices(find) {
            attempt.go_on(NAME)?;
            found += 1;
        }
        let kept = text.len() - found * find.len();
        attempt.room(NAME, found.saturating_mul(with.len()).saturating_add(kept))?;
    }
    let mut replaced = String::new();
    let mut from = 0;
    for (at, found) in text.match_indices(find) {
        attempt.go_on(NAME)?;
        replaced.push_str(&text[from..at]);
        replaced.push_str(with);
        from = at + found.len();
    }
    // Without a match the text stays unchanged.
    if from > 0 || !replaced.is_empty() {
        replaced.push_str(&text[from..]);
        *text = replaced.into();
    }
    Ok(())
}

fn register_pad(module: &mut Module) {
    changes(module, "pad", |text: &mut ImmutableString, length: i64, with: char| {
        pad(&current(), text, length, with.encode_utf8(&mut [0; 4]))
    });
    changes(module, "pad", |text: &mut ImmutableString, length: i64, with: ImmutableString| {
        pad(&current(), text, length, &with)
    });
}

/// Extends `text` to `length` characters, with repetitions of `with`.
fn pad(attempt: &ScriptAttempt, text: &mut ImmutableString, length: i64, with: &str) -> Answer<()> {
    const NAME: &str = "pad";
    let Ok(length) = usize::try_from(length) else { return Ok(()) };
    let lacking = length.saturating_sub(text.chars().count());
    let characters = with.chars().count();
    if lacking == 0 || characters == 0 {
        return Ok(());
    }
    let (whole, rest) = (lacking / characters, lacking % characters);
    let rest = with.char_indices().nth(rest).map_or(with, |(end, _)| &with[..end]);
    let bytes = whole.saturating_mul(with.len()).saturating_add(rest.len());
    attempt.room(NAME, bytes.saturating_add(text.len()))?;
    let mut padded = String::with_capacity(text.len() + bytes);
    padded.push_str(text);
    for _ in 0..whole {
        attempt.go_on(NAME)?;
        padded.push_str(with);
    }
    padded.push_str(rest);
    *text = padded.into();
    Ok(())
}

fn register_split(module: &mut Module) {
    type Text = ImmutableString;
    const SPLIT: &str = "split";
    const SPLIT_REV: &str = "split_rev";
    /// At least one part, and at most `segments`.
    fn parts(segments: i64) -> usize {
        usize::try_from(segments).unwrap_or(0).max(1)
    }
    macro_rules! split {
        ($name:expr, |$text:ident $(, $argument:ident: $kind:ty)*| $parts:expr) => {
            reads(module, $name, |$text: &mut Text $(, $argument: $kind)*| gather(&current(), $name, $text, $parts));
        };
    }
    split!(SPLIT, |text| text.split_whitespace());
    split!(SPLIT, |text, at: Text| text.split(at.as_str()));
    split!(SPLIT, |text, at: char| text.split(at));
    split!(SPLIT, |text, at: Text, segments: i64| text.splitn(parts(segments), at.as_str()));
    split!(SPLIT, |text, at: char, segments: i64| text.splitn(parts(segments), at));
    split!(SPLIT_REV, |text, at: Text| text.rsplit(at.as_str()));
    split!(SPLIT_REV, |text, at: char| text.rsplit(at));
    split!(SPLIT_REV, |text, at: Text, segments: i64| text.rsplitn(parts(segments), at.as_str()));
    split!(SPLIT_REV, |text, at: char, segments: i64| text.rsplitn(parts(segments), at));
    reads(module, "to_chars", |text: &mut Text| -> Answer<Array> {
        let of = current();
        of.room("to_chars", text.len().saturating_mul(size_of::<Dynamic>()) / 4)?;
        let mut made = Array::new();
        for character in text.chars() {
            of.go_on("to_chars")?;
            made.push(character.into());
        }
        Ok(made)
    });
}

/// The parts of `text`; the whole text, shared, if it is the only part.
fn gather<'t>(
    attempt: &ScriptAttempt,
    name: &'static str,
    text: &'t ImmutableString,
    parts: impl Iterator<Item = &'t str>,
) -> Answer<Array> {
    if text.is_empty() {
        return Ok(vec![text.clone().into()]);
    }
    let mut made = Array::new();
    for part in parts {
        attempt.go_on(name)?;
        let is_whole = part.len() == text.len();
        made.push(if is_whole { text.clone().into() } else { part.into() });
    }
    Ok(made)
}

/// Rhai collects all characters of a text to take a part of it.
fn register_parts(module: &mut Module) {
    reads(module, "sub_string", |text: &str, range: Exclusive| sub_string(text, between(&range)));
    reads(module, "sub_string", |text: &str, range: Inclusive| sub_string(text, through(&range)));
    reads(module, "sub_string", |text: &str, start: i64, length: i64| sub_string(text, (start, length)));
    reads(module, "sub_string", |text: &str, start: i64| sub_string(text, (start, i64::MAX)));
    changes(module, "crop", |text: &mut ImmutableString, range: Exclusive| crop(text, between(&range)));
    changes(module, "crop", |text: &mut ImmutableString, range: Inclusive| crop(text, through(&range)));
    changes(module, "crop", |text: &mut ImmutableString, start: i64, length: i64| {
        crop(text, (start, length));
    });
    changes(module, "crop", |text: &mut ImmutableString, start: i64| crop(text, (start, i64::MAX)));
    changes(module, "pop", |text: &mut ImmutableString, length: i64| -> ImmutableString {
        let Some(last) = usize::try_from(length).ok().and_then(|length| length.checked_sub(1)) else {
            return ImmutableString::new();
        };
        let at = text.char_indices().rev().nth(last).map_or(0, |(at, _)| at);
        let popped = text[at..].into();
        text.make_mut().truncate(at);
        popped
    });
    reads(module, "index_of", |text: &str, find: char, start: i64| {
        index_of(text, start, |rest| rest.find(find))
    });
    reads(module, "index_of", |text: &str, find: &str, start: i64| {
        index_of(text, start, |rest| rest.find(find))
    });
    changes(module, "set", |text: &mut ImmutableString, index: i64, character: char| -> Answer<()> {
        let at = match usize::try_from(index) {
            Ok(index) => text.char_indices().nth(index),
            Err(_) => backwards(index).and_then(|index| text.char_indices().rev().nth(index)),
        };
        let Some((at, old)) = at else { return Ok(()) };
        current().room("set", text.len() + character.len_utf8())?;
        *text = format!("{}{character}{}", &text[..at], &text[at + old.len_utf8()..]).into();
        Ok(())
    });
}

/// The start and the length of a range, as Rhai interprets it.
fn between(range: &Exclusive) -> (i64, i64) {
    let start = range.start.max(0);
    (start, range.end.max(start) - start)
}

fn through(range: &Inclusive) -> (i64, i64) {
    let start = (*range.start()).max(0);
    (start, (*range.end()).max(start).min(i64::MAX - 1) - start + 1)
}

/// Number of characters after the one at a negative `index`, which counts from the end.
fn backwards(index: i64) -> Option<usize> {
    usize::try_from(index.unsigned_abs()).ok()?.checked_sub(1)
}

/// Byte position of the character at `start`; a negative one counts from the end, and stops at the beginning.
fn offset(text: &str, start: i64) -> Option<usize> {
    match usize::try_from(start) {
        Ok(start) => text.char_indices().nth(start).map(|(at, _)| at),
        Err(_) => {
            let last = backwards(start)?;
            Some(text.char_indices().rev().nth(last).map_or(0, |(at, _)| at))
        }
    }
}

fn part(text: &str, (start, length): (i64, i64)) -> &str {
    let Some(from) = offset(text, start).filter(|_| length > 0) else { return "" };
    let rest = &text[from..];
    let end = usize::try_from(length).ok().and_then(|length| rest.char_indices().nth(length));
    end.map_or(rest, |(end, _)| &rest[..end])
}

fn sub_string(text: &str, range: (i64, i64)) -> ImmutableString {
    part(text, range).into()
}

fn crop(text: &mut ImmutableString, range: (i64, i64)) {
    *text = part(text, range).into();
}

fn index_of(text: &str, start: i64, find: impl Fn(&str) -> Option<usize>) -> i64 {
    if text.is_empty() {
        return -1;
    }
    let found = offset(text, start).and_then(|from| Some(from + find(&text[from..])?));
    found.and_then(|at| i64::try_from(text[..at].chars().count()).ok()).unwrap_or(-1)
}

fn register_case(module: &mut Module) {
    reads(module, "to_upper", |text: ImmutableString| upper(&current(), "to_upper", &text));
    changes(module, "make_upper", |text: &mut ImmutableString| -> Answer<()> {
        *text = upper(&current(), "make_upper", text)?;
        Ok(())
    });
    reads(module, "to_lower", |text: ImmutableString| lower(&current(), "to_lower", &text));
    changes(module, "make_lower", |text: &mut ImmutableString| -> Answer<()> {
        *text = lower(&current(), "make_lower", text)?;
        Ok(())
    });
}

fn upper(attempt: &ScriptAttempt, name: &'static str, text: &ImmutableString) -> Answer<ImmutableString> {
    if all(attempt, name, text, char::is_uppercase)? {
        return Ok(text.clone());
    }
    attempt.room(name, text.len())?;
    let mut made = String::with_capacity(text.len());
    for character in text.chars() {
        attempt.go_on(name)?;
        made.extend(character.to_uppercase());
    }
    Ok(made.into())
}

fn lower(attempt: &ScriptAttempt, name: &'static str, text: &ImmutableString) -> Answer<ImmutableString> {
    if all(attempt, name, text, char::is_lowercase)? {
        return Ok(text.clone());
    }
    attempt.room(name, text.len())?;
    let mut made = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        attempt.go_on(name)?;
        if character == SIGMA && ends_word(attempt, name, text, at)? {
            made.push('ς');
        } else {
            made.extend(character.to_lowercase());
        }
    }
    Ok(made.into())
}

fn all(attempt: &ScriptAttempt, name: &'static str, text: &str, is: impl Fn(char) -> bool) -> Answer<bool> {
    for character in text.chars() {
        attempt.go_on(name)?;
        if !is(character) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Its lower case depends on its position in the word.
const SIGMA: char = 'Σ';

/// Whether the sigma at `at` is the last letter of a word, and not its only one: marks between letters do not
/// count.
fn ends_word(attempt: &ScriptAttempt, name: &'static str, text: &str, at: usize) -> Answer<bool> {
    let is_letter = |characters: &mut dyn Iterator<Item = char>| -> Answer<bool> {
        for character in characters {
            attempt.go_on(name)?;
            match Role::of(character) {
                Role::Letter => return Ok(true),
                Role::Mark => {}
                Role::Other => return Ok(false),
            }
        }
        Ok(false)
    };
    let (before, behind) = (&text[..at], &text[at + SIGMA.len_utf8()..]);
    Ok(is_letter(&mut before.chars().rev())? && !is_letter(&mut behind.chars())?)
}

/// The role of a character beside a sigma.
enum Role {
    Letter,
    /// It does not count.
    Mark,
    Other,
}

impl Role {
    /// The standard library does not expose this property, but uses it.
    fn of(character: char) -> Self {
        let is_inside = |behind: &str| format!("aΣ{character}{behind}").to_lowercase().starts_with("aσ");
        if is_inside("") {
            Self::Letter
        } else if is_inside("a") {
            Self::Mark
        } else {
            Self::Other
        }
    }
}
