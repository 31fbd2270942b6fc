//! `TemplateContext`: fills a template from a job.
//!
//! Numbers keep their digits. A missing value, or one that is not a text or number, is a failure that names
//! it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tidegate_plugin::{Failure, FailureKind, Job};

use tidegate_config::Shape;
use tidegate_model::suggest::nearest;
use tidegate_model::template::{Fact, Part, Template};
use tidegate_model::{DeliveryHash, TokenKey};

/// The values of one attempt for templates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateContext<'a> {
    pub(crate) job: &'a Job<'a>,
    /// The key of the attempt in external systems.
    pub(crate) key: &'a str,
    pub(crate) pipeline: &'a str,
    pub(crate) step: &'a str,
    pub(crate) token_key: &'a TokenKey,
}

/// The key of an attempt in external systems: its hash, with a number for every piece of the same job except
/// the first. External systems must distinguish the pieces.
pub(crate) fn key(job: &Job<'_>, piece: u32) -> String {
    match piece {
        0 | 1 => format!("{:032x}", job.hash),
        piece => format!("{:032x}-{piece}", job.hash),
    }
}

/// Adds the option whose template could not be filled to a failure.
pub(crate) fn of(option: impl fmt::Display) -> impl FnOnce(Failure) -> Failure {
    move |mut failure| {
        failure.message = format!("`{option}`: {}", failure.message);
        failure
    }
}

/// The encoding of inserted values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    /// Percent-encodes every character with a meaning in URLs. An empty value in the path is a failure.
    Url,
}

impl TemplateContext<'_> {
    /// The text of the filled `template`.
    pub(crate) fn text(self, template: &Template, encoding: Encoding) -> Result<String, Failure> {
        let mut text = String::new();
        let mut in_query = false;
        for part in template.parts() {
            let value = match part {
                Part::Text(fixed) => {
                    in_query |= fixed.contains('?');
                    text.push_str(fixed);
                    continue;
                }
                Part::Secret(secret) => {
                    in_query |= secret.reveal().contains('?');
                    text.push_str(secret.reveal());
                    continue;
                }
                Part::Field(path) => self.scalar(path)?,
                Part::Fact(fact) => self.fact(*fact),
            };
            if encoding == Encoding::Plain {
                text.push_str(&value);
                continue;
            }
            if value.is_empty() && !in_query {
                let message = format!("`{}` is empty, but a part of the path must not be", named(part));
                return Err(Failure::new(FailureKind::Payload, message));
            }
            encode(&value, &mut text);
        }
        Ok(text)
    }

    /// The URL for display: with `…` for secrets, and unfilled if the job lacks a value.
    pub(crate) fn shown(self, template: &Template) -> String {
        let mut text = String::new();
        for part in template.parts() {
            let value = match part {
                Part::Text(fixed) => {
                    text.push_str(fixed);
                    continue;
                }
                Part::Secret(_) | Part::Fact(Fact::Token) => {
                    text.push('…');
                    continue;
                }
                Part::Field(path) => self.scalar(path),
                Part::Fact(fact) => Ok(self.fact(*fact)),
            };
            match value {
                Ok(value) => encode(&value, &mut text),
                Err(_) => return template.to_string(),
            }
        }
        text
    }

    /// Appends the JSON of the filled `shape`.
    pub(crate) fn json(self, shape: &Shape, to: &mut Vec<u8>) -> Result<(), Failure> {
        match shape {
            Shape::Fixed(json) => to.extend_from_slice(json.as_bytes()),
            Shape::Value(path) => to.extend_from_slice(self.value(path)?.get().as_bytes()),
            Shape::Text(template) => write_text(&self.text(template, Encoding::Plain)?, to),
            Shape::List(shapes) => {
                to.push(b'[');
                for (at, shape) in shapes.iter().enumerate() {
                    if at > 0 {
                        to.push(b',');
                    }
                    self.json(shape, to)?;
                }
                to.push(b']');
            }
            Shape::Map(shapes) => {
                to.push(b'{');
                for (at, (key, shape)) in shapes.iter().enumerate() {
                    if at > 0 {
                        to.push(b',');
                    }
                    write_text(key, to);
                    to.push(b':');
                    self.json(shape, to)?;
                }
                to.push(b'}');
            }
        }
        Ok(())
    }

    fn fact(self, fact: Fact) -> Cow<'static, str> {
        match fact {
            Fact::Hash => self.key.to_owned(),
            Fact::Attempt => self.job.attempt.to_string(),
            Fact::Index => self.job.index.to_string(),
            Fact::Now => self.job.now_ms.to_string(),
            Fact::Pipeline => self.pipeline.to_owned(),
            Fact::Step => self.step.to_owned(),
            Fact::Token => self.token_key.token(DeliveryHash(self.job.hash)),
        }
        .into()
    }

    /// A value that can be inserted in a text.
    fn scalar(&self, path: &[String]) -> Result<Cow<'_, str>, Failure> {
        let raw = self.value(path)?.get();
        let what = match raw.as_bytes().first() {
            Some(b'"') => {
                let text: String = serde_json::from_str(raw).map_err(|error| odd(path, &error))?;
                return Ok(text.into());
            }
            Some(b'{') => "a map",
            Some(b'[') => "a list",
            Some(b'n') => "null",
            _ => return Ok(raw.into()),
        };
        let message = format!("the job's `{}` is {what}, but must be a text or a number", path.join("."));
        Err(Failure::new(FailureKind::Payload, message))
    }

    fn value(&self, path: &[String]) -> Result<&RawValue, Failure> {
        let mut deserializer = serde_json::Deserializer::from_slice(self.job.payload);
        let found = FieldSeek(path).deserialize(&mut deserializer).map_err(|error| odd(path, &error))?;
        found.ok_or_else(|| Failure::new(FailureKind::Payload, self.lacks(path)))
    }

    /// The message for a missing value, with the nearest name.
    fn lacks(&self, path: &[String]) -> String {
        let message = format!("the job has no `{}`", path.join("."));
        let known = |depth: usize| Some((depth, self.keys(path.get(..depth)?)?));
        let Some((depth, keys)) = (0..path.len()).rev().find_map(known) else { return message };
        match nearest(&path[depth], keys.iter().map(String::as_str)) {
            Some(near) => {
                let mut meant = path.to_vec();
                near.clone_into(&mut meant[depth]);
                format!("{message}; did you mean `{}`?", meant.join("."))
            }
            None => message,
        }
    }

    /// The keys of the object at the path.
    fn keys(&self, path: &[String]) -> Option<Vec<String>> {
        let mut deserializer = serde_json::Deserializer::from_slice(self.job.payload);
        let object = FieldSeek(path).deserialize(&mut deserializer).ok()??;
        let entries: BTreeMap<String, &RawValue> = serde_json::from_str(object.get()).ok()?;
        Some(entries.into_keys().collect())
    }
}

fn odd(path: &[String], error: &serde_json::Error) -> Failure {
    let message = format!("the job's `{}` cannot be read: {error}", path.join("."));
    Failure::new(FailureKind::Payload, message)
}

fn named(part: &Part) -> String {
    match part {
        Part::Field(path) => path.join("."),
        _ => "ctx".to_owned(),
    }
}

/// Percent-encodes all characters except those that RFC 3986 calls unreserved.
fn encode(value: &str, to: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(byte.into());
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            to.push('%');
            to.push(DIGITS[usize::from(byte >> 4)].into());
            to.push(DIGITS[usize::from(byte & 15)].into());
        }
    }
}

fn write_text(text: &str, to: &mut Vec<u8>) {
    // Writing a text to memory cannot fail.
    let _ = serde_json::to_writer(to, text);
}

/// Finds the value at the end of a path, and skips the rest.
struct FieldSeek<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for FieldSeek<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeek<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let Some((wanted, rest)) = self.0.split_first() else { return Ok(None) };
        let mut found = None;
        // The last value of a repeated key counts.
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            if key == wanted.as_str() {
                found = entries.next_value_seed(FieldSeek(rest))?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0.split_first().and_then(|(key, rest)| Some((key.parse::<usize>().ok()?, rest)));
        let mut found = None;
        for at in 0.. {
            match wanted {
                Some((place, rest)) if place == at => match elements.next_element_seed(FieldSeek(rest))? {
                    Some(value) => found = value,
                    None => break,
                },
                _ => {
                    if elements.next_element::<IgnoredAny>()?.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
