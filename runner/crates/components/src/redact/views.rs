//! `View`: a text as it is, or with percent-encoding or JSON escapes decoded, up to twice. Each view maps its
//! bytes to the original.

use std::borrow::Cow;
use std::ops::Range;

/// Maximum number of decodings.
const DEPTH: usize = 2;

/// One decoding of a text.
#[derive(Debug)]
pub(crate) struct View<'t> {
    text: Cow<'t, [u8]>,
    /// The position in the original of each byte, and the end of the last one; empty for the original itself.
    places: Vec<usize>,
}

/// A decoder: returns the decoded value at the start of a text, and the number of bytes it takes. `None`: the
/// byte is not encoded.
type Undo = fn(&[u8]) -> Option<(Undone, usize)>;

/// At most one character.
#[derive(Clone, Copy)]
struct Undone {
    bytes: [u8; 4],
    len: usize,
}

/// Each with the bytes at which its encodings start.
const UNDO: [(Undo, &[u8]); 2] = [(percent, b"%+"), (json, b"\\")];

/// All decodings of `text`. The first one is the text itself.
pub(crate) fn views(text: &[u8]) -> Vec<View<'_>> {
    let mut views = vec![View { text: Cow::Borrowed(text), places: Vec::new() }];
    let mut from = 0;
    for _ in 0..DEPTH {
        let until = views.len();
        for at in from..until {
            let undone: Vec<View<'_>> =
                UNDO.iter().filter_map(|&(undo, begins)| views[at].undone(undo, begins)).collect();
            views.extend(undone);
        }
        from = until;
    }
    views
}

impl View<'_> {
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The range of these bytes in the original. An escape is included as a whole.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        if self.places.is_empty() {
            return range;
        }
        self.places[range.start]..self.places[range.end]
    }

    /// `None`: the text has no such encoding.
    fn undone<'v>(&self, undo: Undo, begins: &[u8]) -> Option<View<'v>> {
        if !self.text.iter().any(|byte| begins.contains(byte)) {
            return None;
        }
        let place = |at: usize| self.places.get(at).copied().unwrap_or(at);
        let (mut text, mut places) = (Vec::with_capacity(self.text.len()), Vec::new());
        let (mut at, mut changed) = (0, false);
        while at < self.text.len() {
            let (Undone { bytes, len }, read) = match undo(&self.text[at..]) {
                Some(undone) => {
                    changed = true;
                    undone
                }
                None => (one(self.text[at]), 1),
            };
            places.extend(bytes[..len].iter().map(|_| place(at)));
            text.extend(&bytes[..len]);
            at += read;
        }
        places.push(place(at));
        changed.then_some(View { text: Cow::Owned(text), places })
    }
}

fn one(byte: u8) -> Undone {
    Undone { bytes: [byte, 0, 0, 0], len: 1 }
}

/// `%2F` in both cases, and `+` for a blank, as in forms.
fn percent(text: &[u8]) -> Option<(Undone, usize)> {
    match text {
        [b'%', high, low, ..] => Some((one(hex(&[*high, *low])?), 3)),
        [b'+', ..] => Some((one(b' '), 1)),
        _ => None,
    }
}

/// `\n`, `\u00e4`, and pairs of surrogates.
fn json(text: &[u8]) -> Option<(Undone, usize)> {
    let [b'\\', kind, rest @ ..] = text else { return None };
    let byte = match kind {
        b'"' | b'\\' | b'/' => *kind,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => return escaped(rest),
        _ => return None,
    };
    Some((one(byte), 2))
}

/// The rest of an escape after `\u`.
fn escaped(rest: &[u8]) -> Option<(Undone, usize)> {
    let unit =
        |digits: &[u8]| Some(u16::from(hex(digits.get(..2)?)?) << 8 | u16::from(hex(digits.get(2..4)?)?));
    let first = unit(rest)?;
    let second = rest.get(4..6).filter(|begins| *begins == b"\\u").and_then(|_| unit(&rest[6..]));
    let character = char::decode_utf16(std::iter::once(first).chain(second)).next()?.ok()?;
    let mut bytes = [0; 4];
    let len = character.encode_utf8(&mut bytes).len();
    Some((Undone { bytes, len }, 6 * character.len_utf16()))
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}
