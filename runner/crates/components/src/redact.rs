//! `Redactor`: redacts secrets in external texts. An answer, a command or a script may repeat its input.
//!
//! A secret is found unchanged, percent-encoded, escaped as in JSON, and with two of these encodings combined.
//! It is also found in base64 (both alphabets, at any position of a longer text). The patterns are built once.

pub(crate) mod views;

use std::ops::Range;

use aho_corasick::AhoCorasick;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use tidegate_plugin::Failure;

use self::views::{View, views};
use tidegate_model::Secret;

/// Shorter texts occur everywhere, and are not treated as secrets.
const SHORTEST: usize = 4;
/// The replacement of a secret.
const MASK: &str = "…";
/// A longer text is searched in pieces of this many bytes, since each is decoded in several ways.
const PIECE: usize = 64 << 10;
/// Maximum bytes that represent one byte in a text that was escaped twice (`%255Cu00XX` and the like).
const ESCAPED_MAX: usize = 36;

/// The secrets that must not be shown.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    /// `None`: no secrets.
    patterns: Option<Box<Patterns>>,
}

#[derive(Clone, Debug)]
struct Patterns {
    /// Finds any text that would reveal a secret.
    search: AhoCorasick,
    /// By pattern: the number of characters before and after it that reveal a part of the secret.
    edges: Vec<(usize, usize)>,
    /// Pieces overlap by this many bytes, so that every secret is within one piece.
    overlap: usize,
}

impl Redactor {
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let (mut texts, mut edges) = (Vec::new(), Vec::new());
        for secret in secrets {
            let secret = secret.reveal().trim();
            if secret.len() < SHORTEST {
                continue;
            }
            texts.push(secret.to_owned());
            edges.push((0, 0));
            for (text, edge) in in_base64(secret) {
                texts.extend([text.replace('+', "-").replace('/', "_"), text]);
                edges.extend([edge, edge]);
            }
        }
        if texts.is_empty() {
            return Self::default();
        }
        let overlap = ESCAPED_MAX * texts.iter().map(String::len).max().unwrap_or(0);
        // Only patterns of gigabytes do not fit.
        let search = AhoCorasick::new(texts).ok();
        Self { patterns: search.map(|search| Box::new(Patterns { search, edges, overlap })) }
    }

    /// `text` with `…` for each secret in it.
    #[must_use]
    pub fn clean(&self, text: &str) -> String {
        let Some(patterns) = &self.patterns else { return text.to_owned() };
        let found = patterns.find(text.as_bytes());
        let mut clean = String::with_capacity(text.len());
        let mut from = 0;
        for range in found {
            clean.extend([&text[from..range.start], MASK]);
            from = range.end;
        }
        clean + &text[from..]
    }

    /// The failure with redacted texts.
    #[must_use]
    pub fn failure(&self, mut failure: Failure) -> Failure {
        if self.patterns.is_some() {
            failure.message = self.clean(&failure.message);
            failure.context = failure.context.map(|context| self.clean(&context).into());
        }
        failure
    }
}

impl Patterns {
    /// The ranges of secrets, in order and disjoint.
    fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for start in (0..text.len()).step_by(PIECE) {
            let piece = &text[start..text.len().min(start + PIECE + self.overlap)];
            for view in views(piece) {
                for hit in self.search.find_overlapping_iter(view.text()) {
                    let shown = self.shown(&view, hit.start()..hit.end(), hit.pattern().as_usize());
                    found.push(start + shown.start..start + shown.end);
                }
            }
        }
        found.sort_by_key(|range| (range.start, range.end));
        let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for range in found {
            match apart.last_mut().filter(|last| range.start < last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => apart.push(range),
            }
        }
        apart
    }

    /// The part of the original that a match represents.
    fn shown(&self, view: &View<'_>, hit: Range<usize>, pattern: usize) -> Range<usize> {
        let (before, behind) = self.edges.get(pattern).copied().unwrap_or_default();
        let text = view.text();
        let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
        let more = text[..hit.start].iter().rev().take(before).take_while(|byte| is_digit(byte)).count();
        let less = text[hit.end..].iter().take(behind).take_while(|byte| is_digit(byte)).count();
        view.original(hit.start - more..hit.end + less)
    }
}

/// The constant part of any base64 that contains the secret, for each offset. The number is that of the digits
/// beside it that hold a part of the secret.
fn in_base64(secret: &str) -> impl Iterator<Item = (String, (usize, usize))> {
    (0..3).map(move |before| {
        let bytes = [&[0; 2][..before], secret.as_bytes()].concat();
        let digits = BASE64_STANDARD.encode(&bytes);
        // A digit holds 6 bits: digits within the secret do not depend on the bytes beside it.
        let (start, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        let edges = (usize::from(before > 0), usize::from(bytes.len() % 3 > 0));
        (digits[start..end].to_owned(), edges)
    })
}

#[cfg(test)]
mod tests;
