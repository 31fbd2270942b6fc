//! JSON of scripts: converts JSON texts to Rhai values and back, without a tree in between.
//!
//! Values that JSON has and Rhai has not are kept: integers past 64 bits and floats past the largest double
//! stay unchanged (see `BigNumber`). The keys of an object are sorted, and the last value of a repeated key
//! counts. Values that Rhai has and JSON has not (not-a-number, functions, values nested too deep) are errors
//! that name the field.

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::marker::PhantomData;

use rhai::{Array, Dynamic, Identifier, ImmutableString, Map};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::value::RawValue;
use tidegate_plugin::json::{FULL, deeper};
pub use tidegate_plugin::json::{MAX_DEPTH, ReadError, check};

use super::number::BigNumber;
use super::{frozen, type_names};
use crate::memory;
use tidegate_model::format_size;

/// Doubles from here on may be integers whose last digits are lost.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0; // 2^63

/// Why a value cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{0}")]
    Unsayable(String),
    #[error("it exceeds {}", format_size(*.0 as u64))]
    TooLarge(usize),
}

/// Reads one JSON value.
///
/// # Errors
/// `text` is not exactly one JSON value, or nests deeper than 120 levels.
pub fn read(text: &[u8]) -> Result<Dynamic, ReadError> {
    let mut lossy = false;
    // One check of all bytes is cheaper than one per text.
    let value = match std::str::from_utf8(text) {
        Ok(text) => read_from(serde_json::Deserializer::from_str(text), &mut lossy),
        Err(_) => read_from(serde_json::Deserializer::from_slice(text), &mut lossy),
    };
    match value {
        Ok(value) if !lossy => Ok(value),
        Err(error) if !is_out_of_range(&error) => Err(ReadError::new(&error, text)),
        _ => {
            // Rare: a number may have lost digits. The text is read again, with the digits of each number.
            well_formed(text)?;
            exact(text, 0).map_err(|error| ReadError::new(&error, text))
        }
    }
}

/// Whether `text` is exactly one JSON value, with any numbers and texts.
fn well_formed(text: &[u8]) -> Result<(), ReadError> {
    serde_json::from_slice::<serde::de::IgnoredAny>(text)
        .map(drop)
        .map_err(|error| ReadError::new(&error, text))
}

/// Appends `value` as JSON without white space.
///
/// # Errors
/// `value` holds a value without a JSON form.
pub fn write(value: &Dynamic, buffer: &mut Vec<u8>) -> Result<(), WriteError> {
    write_within(value, buffer, usize::MAX)
}

/// As [`write()`], up to `bytes`: a text that a value holds several times is written as many times.
///
/// # Errors
/// As [`write()`]; `buffer` has the beginning of a value that is larger.
pub fn write_within(value: &Dynamic, buffer: &mut Vec<u8>, bytes: usize) -> Result<(), WriteError> {
    let most = buffer.len().saturating_add(bytes);
    serde_json::to_writer(Within { buffer, most }, &Writer { value, depth: 0 }).map_err(|error| {
        if error.is_io() {
            return WriteError::TooLarge(bytes);
        }
        let mut path = String::new();
        let reason = fault(value, 0, &mut path).unwrap_or_else(|| "it cannot be written".to_owned());
        WriteError::Unsayable(if path.is_empty() { reason } else { format!("{reason} (in `{path}`)") })
    })
}

/// Writes until the buffer has `most` bytes.
struct Within<'a> {
    buffer: &'a mut Vec<u8>,
    most: usize,
}

impl io::Write for Within<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.most - self.buffer.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_from<'de, R: serde_json::de::Read<'de>>(
    mut deserializer: serde_json::Deserializer<R>,
    lossy: &mut bool,
) -> serde_json::Result<Dynamic> {
    let value = Reader { lossy, depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end().map(|()| value)
}

/// `serde_json` has no kind for this error.
fn is_out_of_range(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("number out of range")
}

struct Reader<'a> {
    /// Set when a number may have lost digits.
    lossy: &'a mut bool,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Dynamic;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Dynamic, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Dynamic;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Dynamic, E> {
        Ok(Dynamic::UNIT)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Dynamic, E> {
        Ok(Dynamic::from_bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Dynamic, E> {
        Ok(Dynamic::from_int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Dynamic, E> {
        Ok(match i64::try_from(value) {
            Ok(value) => Dynamic::from_int(value),
            Err(_) => Dynamic::from(BigNumber::new(&value.to_string())),
        })
    }

    fn visit_f64<E>(self, value: f64) -> Result<Dynamic, E> {
        *self.lossy |= value.abs() >= INTEGERS_END;
        Ok(Dynamic::from_float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Dynamic, E> {
        Ok(Dynamic::from(ImmutableString::from(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Dynamic, A::Error> {
        let depth = deeper(self.depth)?;
        let mut array = Array::with_capacity(elements.size_hint().unwrap_or(0).min(1024));
        while let Some(element) = elements.next_element_seed(Reader { lossy: self.lossy, depth })? {
            array.push(element);
            has_room()?;
        }
        Ok(Dynamic::from_array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Dynamic, A::Error> {
        let depth = deeper(self.depth)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Key(PhantomData))? {
            let value = entries.next_value_seed(Reader { lossy: self.lossy, depth })?;
            map.insert(key, value);
            has_room()?;
        }
        Ok(Dynamic::from_map(map))
    }
}

/// A value may take many times the memory of its text.
#[inline]
fn has_room<E: serde::de::Error>() -> Result<(), E> {
    if memory::left() < 0 { Err(E::custom(FULL)) } else { Ok(()) }
}

/// Reads a short key without an allocation of its own. `K` is the key of Rhai's maps, whose type is not
/// public in Rhai.
struct Key<K>(PhantomData<K>);

impl<'de, K: for<'a> From<&'a str>> DeserializeSeed<'de> for Key<K> {
    type Value = K;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<K: for<'a> From<&'a str>> Visitor<'_> for Key<K> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<K, E> {
        Ok(K::from(key))
    }
}

/// The slow path: keeps the digits of numbers that Rhai cannot hold.
fn exact(text: &[u8], depth: usize) -> serde_json::Result<Dynamic> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(b'{' | b'[') => {
            let depth = deeper(depth)?;
            serde_json::Deserializer::from_slice(text).deserialize_any(Exact { depth })
        }
        Some(b'-' | b'0'..=b'9') => exact_number(text),
        _ => Reader { lossy: &mut false, depth }.deserialize(&mut serde_json::Deserializer::from_slice(text)),
    }
}

/// The content of an object or array.
struct Exact {
    depth: usize,
}

impl<'de> Visitor<'de> for Exact {
    type Value = Dynamic;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Dynamic, A::Error> {
        let mut array = Array::new();
        while let Some(raw) = elements.next_element::<&RawValue>()? {
            array.push(exact(raw.get().as_bytes(), self.depth).map_err(serde::de::Error::custom)?);
            has_room()?;
        }
        Ok(Dynamic::from_array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Dynamic, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Key(PhantomData))? {
            let raw = entries.next_value::<&RawValue>()?;
            map.insert(key, exact(raw.get().as_bytes(), self.depth).map_err(serde::de::Error::custom)?);
            has_room()?;
        }
        Ok(Dynamic::from_map(map))
    }
}

fn exact_number(text: &[u8]) -> serde_json::Result<Dynamic> {
    let text = std::str::from_utf8(text).map_err(<serde_json::Error as serde::de::Error>::custom)?.trim();
    // The fast path has a float here: an integer has no negative zero.
    if text == "-0" {
        return Ok(Dynamic::from_float(-0.0));
    }
    if let Ok(integer) = text.parse() {
        return Ok(Dynamic::from_int(integer));
    }
    let whole = !text.contains(['.', 'e', 'E']);
    match text.parse::<f64>() {
        Ok(float) if float.is_finite() && !whole => Ok(Dynamic::from_float(float)),
        _ => Ok(Dynamic::from(BigNumber::new(text))),
    }
}

struct Writer<'a> {
    value: &'a Dynamic,
    depth: usize,
}

impl Serialize for Writer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.value;
        if let Ok(text) = value.as_immutable_string_ref() {
            return serializer.serialize_str(&text);
        }
        if let Ok(integer) = value.as_int() {
            return serializer.serialize_i64(integer);
        }
        if let Ok(float) = value.as_float() {
            if !float.is_finite() {
                return Err(S::Error::custom(UNSAYABLE));
            }
            return serializer.serialize_f64(float);
        }
        if let Ok(truth) = value.as_bool() {
            return serializer.serialize_bool(truth);
        }
        if value.is_unit() {
            return serializer.serialize_unit();
        }
        self.serialize_nested(serializer)
    }
}

impl Writer<'_> {
    fn serialize_nested<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.value;
        if self.depth == MAX_DEPTH {
            return Err(S::Error::custom(UNSAYABLE));
        }
        let depth = self.depth + 1;
        if let Ok(map) = value.as_map_ref() {
            return serialize_map(map.iter(), depth, serializer);
        }
        if let Ok(array) = value.as_array_ref() {
            return serialize_array(&array, depth, serializer);
        }
        if let Some(map) = frozen::map(value) {
            return serialize_map(map.iter(), depth, serializer);
        }
        if let Some(array) = frozen::array(value) {
            return serialize_array(&array, depth, serializer);
        }
        if let Ok(blob) = value.as_blob_ref() {
            return serializer.collect_seq(blob.iter());
        }
        if let Ok(character) = value.as_char() {
            return serializer.serialize_char(character);
        }
        if let Some(number) = value.read_lock::<BigNumber>() {
            // `RawValue` writes the digits unchanged.
            let raw = RawValue::from_string(number.digits().to_owned()).map_err(S::Error::custom)?;
            return raw.serialize(serializer);
        }
        Err(S::Error::custom(UNSAYABLE))
    }
}

fn serialize_map<'a, S: Serializer, V: Borrow<Dynamic>>(
    map: impl ExactSizeIterator<Item = (&'a Identifier, V)>,
    depth: usize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut entries = serializer.serialize_map(Some(map.len()))?;
    for (key, value) in map {
        entries.serialize_key(key.as_str())?;
        entries.serialize_value(&Writer { value: value.borrow(), depth })?;
    }
    entries.end()
}

fn serialize_array<S: Serializer>(array: &Array, depth: usize, serializer: S) -> Result<S::Ok, S::Error> {
    let mut elements = serializer.serialize_seq(Some(array.len()))?;
    for value in array {
        elements.serialize_element(&Writer { value, depth })?;
    }
    elements.end()
}

/// Marks that [`fault`] has the details.
const UNSAYABLE: &str = "the value has no JSON form";

/// Finds the value without a JSON form after a failed write: returns the reason, and its place in `path`.
fn fault(value: &Dynamic, depth: usize, path: &mut String) -> Option<String> {
    let value = &*frozen::plain(value);
    if let Ok(float) = value.as_float() {
        return (!float.is_finite()).then(|| format!("JSON has no number for `{float}`"));
    }
    let simple = value.is_string() || value.is_int() || value.is_bool() || value.is_unit() || value.is_char();
    if simple || value.is_blob() || value.read_lock::<BigNumber>().is_some() {
        return None;
    }
    if depth == MAX_DEPTH {
        // The full path would have 120 names.
        path.clear();
        return Some(format!("values nest deeper than {MAX_DEPTH} levels"));
    }
    let length = path.len();
    let mut inside = |value, step: fmt::Arguments<'_>| {
        path.truncate(length);
        path.push_str(&step.to_string());
        fault(value, depth + 1, path)
    };
    let dot = if length == 0 { "" } else { "." };
    if let Ok(map) = value.as_map_ref() {
        return map.iter().find_map(|(key, value)| inside(value, format_args!("{dot}{key}")));
    }
    if let Ok(array) = value.as_array_ref() {
        return array.iter().enumerate().find_map(|(at, value)| inside(value, format_args!("[{at}]")));
    }
    Some(format!("JSON has no form for {}", type_names::of(value)))
}

#[cfg(test)]
mod tests;
