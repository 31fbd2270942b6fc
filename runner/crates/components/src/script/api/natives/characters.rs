//! `Characters`: iterates over the characters of a text. Rhai collects all of them first.

use rhai::{FuncRegistration, ImmutableString, Module};
use std::any::TypeId;

use super::reads;

/// The remaining characters of a text.
#[derive(Clone, Debug)]
struct Characters {
    text: ImmutableString,
    /// Byte position of the next one.
    at: usize,
    /// Number of remaining characters.
    left: usize,
}

impl Characters {
    fn new(text: ImmutableString, start: i64, length: i64) -> Self {
        let left = usize::try_from(length).unwrap_or(0);
        let at = match usize::try_from(start) {
            Ok(start) => text.char_indices().nth(start).map_or(text.len(), |(at, _)| at),
            Err(_) => {
                let last = usize::try_from(start.unsigned_abs() - 1).unwrap_or(usize::MAX);
                text.char_indices().rev().nth(last).map_or(0, |(at, _)| at)
            }
        };
        Self { text, at, left }
    }
}

impl Iterator for Characters {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        self.left = self.left.checked_sub(1)?;
        let next = self.text[self.at..].chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }
}

pub(crate) fn register(module: &mut Module) {
    type Text = ImmutableString;
    type Exclusive = std::ops::Range<i64>;
    type Inclusive = std::ops::RangeInclusive<i64>;
    module.set_custom_type::<Characters>("characters").set_iterator::<Characters>();
    reads(module, "chars", |text: Text| Characters::new(text, 0, i64::MAX));
    reads(module, "chars", |text: Text, start: i64| Characters::new(text, start, i64::MAX));
    reads(module, "chars", Characters::new);
    reads(module, "chars", |text: Text, range: Exclusive| {
        let start = range.start.max(0);
        Characters::new(text, start, range.end.max(start) - start)
    });
    reads(module, "chars", |text: Text, range: Inclusive| {
        let start = (*range.start()).max(0);
        Characters::new(text, start, (*range.end()).max(start - 1).min(i64::MAX - 1) - start + 1)
    });
    FuncRegistration::new_getter("chars")
        .set_into_module(module, |text: &mut Text| Characters::new(text.clone(), 0, i64::MAX));
    module.set_iter(TypeId::of::<Text>(), |text| {
        Box::new(Characters::new(text.cast(), 0, i64::MAX).map(Into::into))
    });
}
