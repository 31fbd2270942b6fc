//! Partial jobs: only the fields that a script uses are parsed, and the text of the rest is handed on as it came.
//!
//! A job that is not certain to be one JSON object, or that has an escape in a key, is left to the full reader. So every
//! mistake is found as before, and its message has the same place.

use std::collections::HashSet;
use std::mem;
use std::ops::Range;

use memchr::memchr2;
use rhai::{Array, Dynamic, Identifier, Map};

use super::compile::used_fields::UsedFields;
use super::values::json::{self, MAX_DEPTH, ReadError, WriteError};
use crate::memory;

/// The key of the mark in the map of a partial object. A job is parsed as a whole if such an object has this key.
const MARK: &str = "";

/// The number of the object that is the job.
const JOB: usize = 0;

/// Room for the text of a job that is kept for the next one.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Keys of an object that are compared one by one. More of them are hashed.
const COMPARED_KEYS_MAX: usize = 64;

/// Keys of a job that are expected in the next ones.
const EXPECTED_KEYS_MAX: usize = 256;

/// Expected keys at which a key is searched. A job may lack those before it.
const SEARCHED_KEYS: usize = 4;

/// Jobs with an unexpected key after which the keys of such a job are expected.
const UNEXPECTED_JOBS: u32 = 16;

/// Marks the map of a partial object with its number. Scripts can neither read nor make it.
#[derive(Clone, Copy, Debug)]
struct Mark(usize);

/// The text of a job of which only some fields were parsed. Reused for each job.
#[derive(Debug, Default)]
pub(crate) struct PartialJob {
    text: String,
    objects: Vec<PartialObject>,
    fields: Vec<ParsedField>,
    /// Room for the keys of the objects around a place of the text.
    keys: Vec<Range<usize>>,
    expected: ExpectedKeys,
}

/// The keys of an earlier job, in its order. Most jobs of a step have the same ones, and a key at its place is neither
/// scanned nor compared with the keys before it.
#[derive(Debug, Default)]
struct ExpectedKeys {
    keys: Vec<ExpectedKey>,
    /// Jobs with other keys.
    others: u32,
}

#[derive(Debug)]
struct ExpectedKey {
    /// From its quote to behind the colon.
    text: Box<str>,
    /// Bytes between the quotes.
    len: usize,
}

impl ExpectedKeys {
    /// Notes the keys of a job that has one that was not expected.
    fn note(&mut self, text: &str, keys: &[Range<usize>]) {
        self.others += 1;
        if !self.keys.is_empty() && self.others < UNEXPECTED_JOBS {
            return;
        }
        self.others = 0;
        memory::uncounted(|| {
            let of_key = |key: &Range<usize>| {
                let colon = text[key.end..].find(':')?;
                let whole = text.get(key.start.checked_sub(1)?..=key.end + colon)?;
                Some(ExpectedKey { text: whole.into(), len: key.len() })
            };
            let known = if text.len() <= KEPT_BYTES_MAX { keys } else { &[] };
            self.keys = known.iter().take(EXPECTED_KEYS_MAX).map_while(of_key).collect();
        });
    }
}

#[derive(Debug)]
struct PartialObject {
    /// From its first brace to behind its last.
    text: Range<usize>,
    is_empty: bool,
}

/// A field of a partial object that was parsed, in the order of the text.
#[derive(Debug)]
struct ParsedField {
    /// Number of its object.
    object: usize,
    /// Without quotes.
    key: Range<usize>,
    value: Range<usize>,
    /// The value may be another one when the object is handed on.
    changes: bool,
}

impl PartialJob {
    /// Parses the used fields of a job. `None`: the job must be parsed as a whole.
    pub(crate) fn read(&mut self, payload: &[u8], used: &UsedFields) -> Option<Dynamic> {
        self.clear();
        let text = std::str::from_utf8(payload).ok()?;
        let read = self.read_text(text, used);
        match read {
            Some(_) => memory::uncounted(|| self.text.push_str(text)),
            None => self.clear(),
        }
        read
    }

    /// Forgets the job: values are whole from now on.
    pub(crate) fn clear(&mut self) {
        if self.text.capacity() > KEPT_BYTES_MAX {
            *self = Self { expected: mem::take(&mut self.expected), ..Self::default() };
        }
        self.text.clear();
        self.objects.clear();
        self.fields.clear();
        self.keys.clear();
    }

    fn read_text(&mut self, text: &str, used: &UsedFields) -> Option<Dynamic> {
        let mut scanner = Scanner {
            text,
            at: 0,
            // The fold is done on many bytes at once; a search for the first one would not be.
            has_controls: text.bytes().fold(u8::MAX, u8::min) < b' ',
            keys: mem::take(&mut self.keys),
            expected: mem::take(&mut self.expected),
        };
        scanner.skip_space();
        let value = self.read_value(&mut scanner, used, 0);
        scanner.skip_space();
        let is_read = scanner.at == text.len() && !self.objects.is_empty();
        (self.keys, self.expected) = (scanner.keys, scanner.expected);
        value.filter(|_| is_read)
    }

    fn read_value(&mut self, scanner: &mut Scanner<'_>, used: &UsedFields, depth: usize) -> Option<Dynamic> {
        if let (UsedFields::Fields(_), Some(b'{')) = (used, scanner.peek()) {
            return self.read_object(scanner, used, depth).map(Dynamic::from_map);
        }
        let start = scanner.at;
        scanner.skip_value(depth)?;
        json::read(&scanner.text.as_bytes()[start..scanner.at]).ok()
    }

    fn read_object(&mut self, scanner: &mut Scanner<'_>, used: &UsedFields, depth: usize) -> Option<Map> {
        let UsedFields::Fields(fields) = used else { return None };
        let (object, start) = (self.objects.len(), scanner.at);
        memory::uncounted(|| self.objects.push(PartialObject { text: start..start, is_empty: false }));
        let mut map = Map::new();
        let is_empty = scanner.each_field(depth, |scanner, key, depth| {
            let name = &scanner.text[key.clone()];
            if name == MARK {
                return None;
            }
            // Most jobs use few fields.
            let Some((_, used)) = fields.iter().find(|(field, _)| **field == *name) else {
                return scanner.skip_value(depth);
            };
            let start = scanner.at;
            let place = self.fields.len();
            let value = start..start;
            let field = ParsedField { object, key, value, changes: used.changes() };
            memory::uncounted(|| self.fields.push(field));
            let parsed = self.read_value(scanner, used, depth)?;
            self.fields[place].value.end = scanner.at;
            map.insert(Identifier::from(name), parsed);
            Some(())
        })?;
        map.insert(Identifier::from(MARK), Dynamic::from(Mark(object)));
        self.objects[object] = PartialObject { text: start..scanner.at, is_empty };
        Some(map)
    }

    /// Appends `value` as JSON, up to `bytes`. Partial objects in it keep their texts.
    ///
    /// # Errors
    /// As [`json::write_within`].
    pub(crate) fn write(
        &self,
        value: &Dynamic,
        buffer: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<(), WriteError> {
        if self.objects.is_empty() {
            return json::write_within(value, buffer, bytes);
        }
        let start = buffer.len();
        let mut writer = PartialWriter { job: self, most: start.saturating_add(bytes), buffer };
        match writer.value(value) {
            Err(WriteError::TooLarge(_)) => Err(WriteError::TooLarge(bytes)),
            Err(WriteError::Unsayable(_)) => {
                // The message names the path from the beginning of the value.
                buffer.truncate(start);
                let whole = self.whole(value).map_err(|_| WriteError::TooLarge(bytes))?;
                json::write_within(&whole, buffer, bytes)
            }
            Ok(()) => Ok(()),
        }
    }

    /// The return value of a script as the next one of its chain gets it: the job, of which the fields are parsed that
    /// any of them uses, or a value without partial objects.
    ///
    /// # Errors
    /// The memory is full.
    pub(crate) fn between_scripts(&self, value: Dynamic) -> Result<Dynamic, ReadError> {
        let is_job = |value: &Dynamic| value.as_map_ref().is_ok_and(|map| mark(&map) == Some(JOB));
        if self.objects.is_empty() || is_job(&value) || !holds_partial(&value) {
            return Ok(value);
        }
        self.whole(&value)
    }

    /// The value with all fields of partial objects.
    ///
    /// # Errors
    /// The memory is full.
    pub(crate) fn whole(&self, value: &Dynamic) -> Result<Dynamic, ReadError> {
        if let Ok(map) = value.as_map_ref() {
            let mut whole = mark(&map).map_or_else(|| Ok(Map::new()), |object| self.object(object))?;
            for (key, value) in map.iter().filter(|(key, _)| !key.is_empty() || mark(&map).is_none()) {
                whole.insert(key.clone(), self.whole(value)?);
            }
            return Ok(Dynamic::from_map(whole));
        }
        if let Ok(array) = value.as_array_ref() {
            let whole = array.iter().map(|element| self.whole(element)).collect::<Result<Array, _>>()?;
            return Ok(Dynamic::from_array(whole));
        }
        Ok(value.clone())
    }

    /// All fields of an object, as they were in the job.
    fn object(&self, number: usize) -> Result<Map, ReadError> {
        let text = self.objects.get(number).and_then(|object| self.text.get(object.text.clone()));
        let read = text.map(|text| json::read(text.as_bytes())).transpose()?;
        Ok(read.and_then(Dynamic::try_cast::<Map>).unwrap_or_default())
    }
}

/// Whether `value` is the map of a partial object.
pub(crate) fn is_partial(value: &Dynamic) -> bool {
    value.as_map_ref().is_ok_and(|map| mark(&map).is_some())
}

/// The number of the object, if the map is that of a partial one.
fn mark(map: &Map) -> Option<usize> {
    // The empty key is the first one.
    let (key, value) = map.first_key_value()?;
    if !key.is_empty() {
        return None;
    }
    value.read_lock::<Mark>().map(|mark| mark.0)
}

/// Whether a partial object is within `value`.
fn holds_partial(value: &Dynamic) -> bool {
    if let Ok(map) = value.as_map_ref() {
        return mark(&map).is_some() || map.values().any(holds_partial);
    }
    value.as_array_ref().is_ok_and(|array| array.iter().any(holds_partial))
}

struct PartialWriter<'a> {
    job: &'a PartialJob,
    buffer: &'a mut Vec<u8>,
    /// Longest length of the buffer.
    most: usize,
}

impl PartialWriter<'_> {
    fn value(&mut self, value: &Dynamic) -> Result<(), WriteError> {
        if !holds_partial(value) {
            return json::write_within(value, self.buffer, self.most.saturating_sub(self.buffer.len()));
        }
        if let Ok(array) = value.as_array_ref() {
            for (place, element) in array.iter().enumerate() {
                self.text(if place == 0 { "[" } else { "," })?;
                self.value(element)?;
            }
            return self.text("]");
        }
        let Ok(map) = value.as_map_ref() else { return Ok(()) };
        if let Some(object) = mark(&map) {
            return self.object(object, &map);
        }
        self.text("{")?;
        for (place, (key, value)) in map.iter().enumerate() {
            self.field(place == 0, key, value)?;
        }
        self.text("}")
    }

    /// Writes the text of an object, with the values that may have changed, and with new fields at its end.
    fn object(&mut self, number: usize, map: &Map) -> Result<(), WriteError> {
        let job = self.job;
        let Some(object) = job.objects.get(number) else { return Ok(()) };
        let fields = || job.fields.iter().filter(move |field| field.object == number);
        let (mut at, mut parsed) = (object.text.start, 0);
        for field in fields() {
            parsed += 1;
            if let Some(value) = map.get(&job.text[field.key.clone()]).filter(|_| field.changes) {
                self.text(&job.text[at..field.value.start])?;
                self.value(value)?;
                at = field.value.end;
            }
        }
        self.text(&job.text[at..object.text.end - 1])?;
        // The mark is one more.
        if map.len() > parsed + 1 {
            let is_known = |key: &str| fields().any(|field| job.text[field.key.clone()] == *key);
            let mut is_first = object.is_empty;
            for (key, value) in map.iter().filter(|(key, _)| !key.is_empty() && !is_known(key)) {
                self.field(is_first, key, value)?;
                is_first = false;
            }
        }
        self.text("}")
    }

    fn field(&mut self, is_first: bool, key: &str, value: &Dynamic) -> Result<(), WriteError> {
        if !is_first {
            self.text(",")?;
        }
        let key = Dynamic::from(key.to_owned());
        json::write_within(&key, self.buffer, self.most.saturating_sub(self.buffer.len()))?;
        self.text(":")?;
        self.value(value)
    }

    fn text(&mut self, text: &str) -> Result<(), WriteError> {
        if text.len() > self.most.saturating_sub(self.buffer.len()) {
            return Err(WriteError::TooLarge(text.len()));
        }
        self.buffer.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// A scan over a JSON text. Each method returns `None` at everything that is not plain, valid JSON.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
    /// Whether a byte of the text is a control character: allowed between values, and not in strings.
    has_controls: bool,
    /// Keys of the objects around `at`, so far.
    keys: Vec<Range<usize>>,
    expected: ExpectedKeys,
}

/// The keys of an object that were seen.
#[derive(Default)]
struct SeenKeys<'t> {
    /// A bit for each of them, by its hash. Several keys may have the same one.
    bits: [u64; 4],
    /// All of them, if there are many.
    hashed: Option<HashSet<&'t str>>,
}

impl SeenKeys<'_> {
    /// Adds a key. Returns whether its bit was set before.
    fn may_have(&mut self, name: &str) -> bool {
        let hash = key_hash(name.as_bytes());
        let (word, bit) = (&mut self.bits[usize::from(hash >> 6)], 1 << (hash % 64));
        let was_set = *word & bit != 0;
        *word |= bit;
        was_set
    }
}

impl Drop for SeenKeys<'_> {
    fn drop(&mut self) {
        if self.hashed.is_some() {
            memory::uncounted(|| self.hashed = None);
        }
    }
}

impl<'t> Scanner<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Payloads are on one line.
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Calls `field` at the value of each field, with the range of its key and the depth of the value. Returns whether
    /// there was none.
    fn each_field(
        &mut self,
        depth: usize,
        mut field: impl FnMut(&mut Self, Range<usize>, usize) -> Option<()>,
    ) -> Option<bool> {
        self.open(b'{', depth)?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(true);
        }
        let (first, mut seen) = (self.keys.len(), SeenKeys::default());
        let is_job = depth == 0;
        // The next expected key, while all keys before it are expected ones in their order.
        let mut next = is_job.then_some(0);
        if is_job {
            memory::uncounted(|| self.keys.reserve(self.expected.keys.len()));
        }
        loop {
            let key = match next.and_then(|next| self.expected_key(next)) {
                Some((key, place)) => {
                    next = Some(place + 1);
                    self.keys.push(key.clone());
                    key
                }
                None => {
                    if next.take().is_some() {
                        for known in &self.keys[first..] {
                            seen.may_have(&self.text[known.clone()]);
                        }
                    }
                    let key = self.key()?;
                    self.note_key(first, &mut seen, key.clone())?;
                    self.skip_space();
                    self.expect(b':')?;
                    key
                }
            };
            self.skip_space();
            field(self, key, depth + 1)?;
            if self.is_over(b'}')? {
                if is_job && next.is_none() {
                    self.expected.note(self.text, &self.keys[first..]);
                }
                self.keys.truncate(first);
                return Some(false);
            }
        }
    }

    /// Goes behind the colon of a key that is expected at the place `next`, or little later. It differs from the keys
    /// before it. Returns its range and its place.
    fn expected_key(&mut self, next: usize) -> Option<(Range<usize>, usize)> {
        let rest = &self.text.as_bytes()[self.at..];
        let ahead = self.expected.keys.get(next..)?;
        let skipped =
            ahead.iter().take(SEARCHED_KEYS).position(|key| rest.starts_with(key.text.as_bytes()))?;
        let (key, start) = (&ahead[skipped], self.at + 1);
        self.at += key.text.len();
        Some((start..start + key.len, next + skipped))
    }

    /// Adds a key of an object, whose keys begin at `first`. Only the last of repeated keys counts, so that the
    /// text is not that of the value.
    fn note_key(&mut self, first: usize, seen: &mut SeenKeys<'t>, key: Range<usize>) -> Option<()> {
        let text = self.text;
        let name = &text[key.clone()];
        let before = &self.keys[first..];
        let is_known = if before.len() < COMPARED_KEYS_MAX {
            seen.may_have(name) && before.iter().any(|other| text[other.clone()] == *name)
        } else {
            memory::uncounted(|| {
                let all = || before.iter().map(|other| &text[other.clone()]).collect();
                !seen.hashed.get_or_insert_with(all).insert(name)
            })
        };
        if is_known {
            return None;
        }
        memory::uncounted(|| self.keys.push(key));
        Some(())
    }

    /// Goes behind the first byte of an object or a list.
    fn open(&mut self, first: u8, depth: usize) -> Option<()> {
        if depth + 1 >= MAX_DEPTH {
            return None;
        }
        self.expect(first)?;
        self.skip_space();
        Some(())
    }

    /// Goes to the place behind a comma and spaces, or right behind the end of the object or list: its text ends there.
    fn is_over(&mut self, end: u8) -> Option<bool> {
        self.skip_space();
        let found = self.peek()?;
        if found != end && found != b',' {
            return None;
        }
        self.at += 1;
        if found == b',' {
            self.skip_space();
        }
        Some(found == end)
    }

    /// A key without escapes.
    fn key(&mut self) -> Option<Range<usize>> {
        let start = self.at + 1;
        let has_escapes = self.skip_string()?;
        let key = start..self.at - 1;
        (!has_escapes).then_some(key)
    }

    fn skip_value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_string().map(drop),
            b'{' => self.each_field(depth, |scanner, _, depth| scanner.skip_value(depth)).map(drop),
            b'[' => self.skip_list(depth),
            b't' => self.skip_word("true"),
            b'f' => self.skip_word("false"),
            b'n' => self.skip_word("null"),
            _ => self.skip_number(),
        }
    }

    fn skip_list(&mut self, depth: usize) -> Option<()> {
        self.open(b'[', depth)?;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.skip_value(depth + 1)?;
            if self.is_over(b']')? {
                return Some(());
            }
        }
    }

    fn skip_word(&mut self, word: &str) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// Returns whether it has escapes.
    fn skip_string(&mut self) -> Option<bool> {
        self.expect(b'"')?;
        let mut has_escapes = false;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let len = if self.has_controls { plain_text_len(rest) } else { memchr2(b'"', b'\\', rest) }?;
            self.at += len + 1;
            match rest[len] {
                b'"' => return Some(has_escapes),
                b'\\' => {
                    has_escapes = true;
                    self.skip_escape()?;
                }
                _ => return None,
            }
        }
    }

    /// Skips an escape, or both halves of a character. A half alone is no text.
    fn skip_escape(&mut self) -> Option<()> {
        let kind = self.peek()?;
        self.at += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => match self.skip_unit()? {
                0xD800..0xDC00 => {
                    self.expect(b'\\')?;
                    self.expect(b'u')?;
                    (0xDC00..0xE000).contains(&self.skip_unit()?).then_some(())
                }
                0xDC00..0xE000 => None,
                _ => Some(()),
            },
            _ => None,
        }
    }

    /// Skips the four digits of a UTF-16 unit, and returns it.
    fn skip_unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.at += 4;
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    }

    fn skip_number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.skip_digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        Some(())
    }

    /// Skips at least one digit.
    fn skip_digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Number of bytes before the first one that ends the plain part of a text: a quote, a backslash, or a control character,
/// which JSON forbids.
pub(super) fn plain_text_len(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks();
    for (place, word) in words.iter().enumerate() {
        let ends = ends_of_plain_text(u64::from_le_bytes(*word));
        if ends != 0 {
            return Some(place * 8 + ends.trailing_zeros() as usize / 8);
        }
    }
    let ends = |byte: &u8| matches!(byte, ..0x20 | b'"' | b'\\');
    Some(words.len() * 8 + rest.iter().position(ends)?)
}

/// The high bit of each of eight bytes that ends plain text. Bytes above the lowest such one can have the bit without
/// reason.
fn ends_of_plain_text(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xFF;
    // Subtracting `limit` from a byte below it borrows, which sets its high bit.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, 0x20) | equal(b'"') | equal(b'\\')) & (ONES << 7)
}

/// A hash of a key. Keys that are numbered differ in their last bytes.
fn key_hash(key: &[u8]) -> u8 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15; // as in Fibonacci hashing
    let tail = key.last_chunk().map_or_else(
        || key.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        |tail| u64::from_le_bytes(*tail),
    );
    let head = u64::from(key.first().copied().unwrap_or_default()) << 8 | key.len() as u64;
    let [first, ..] = (tail ^ head.rotate_left(24)).wrapping_mul(FACTOR).to_be_bytes();
    first
}
