//! `TemplateContext`: fills a template from a job.
//!
//! Numbers keep their digits. A missing value, or one that is not a text or number, is a failure that names
//! it.

use std::borrow::Cow;
use std::fmt;

use tidegate_plugin::{Failure, FailureKind, Job};

use tidegate_config::Shape;
use tidegate_model::template::{Fact, Template, TemplatePart};
use tidegate_model::{DeliveryHash, FieldPath, TokenKey, scalar};

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

impl<'a> TemplateContext<'a> {
    /// The text of the filled `template`.
    pub(crate) fn text(self, template: &Template, encoding: Encoding) -> Result<String, Failure> {
        let mut text = String::new();
        let mut in_query = false;
        for part in template.parts() {
            let value = match part {
                TemplatePart::Text(fixed) => {
                    in_query |= fixed.contains('?');
                    text.push_str(fixed);
                    continue;
                }
                TemplatePart::Secret(secret) => {
                    in_query |= secret.reveal().contains('?');
                    text.push_str(secret.reveal());
                    continue;
                }
                TemplatePart::Field(path) => self.scalar(path)?,
                TemplatePart::Fact(fact) => self.fact(*fact),
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
                TemplatePart::Text(fixed) => {
                    text.push_str(fixed);
                    continue;
                }
                TemplatePart::Secret(_) | TemplatePart::Fact(Fact::Token) => {
                    text.push('…');
                    continue;
                }
                TemplatePart::Field(path) => self.scalar(path),
                TemplatePart::Fact(fact) => Ok(self.fact(*fact)),
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
            Shape::Value(path) => to.extend_from_slice(self.value(path)?.as_bytes()),
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
    fn scalar(self, path: &FieldPath) -> Result<Cow<'a, str>, Failure> {
        let written = self.value(path)?;
        if let Some(text) = scalar(written) {
            return Ok(text);
        }
        let what = match written.as_bytes().first() {
            Some(b'{') => "a map",
            Some(b'[') => "a list",
            Some(b'n') => "null",
            // Half of a surrogate pair is no text.
            _ => "no text",
        };
        let message = format!("the job's `{path}` is {what}, but must be a text or a number");
        Err(Failure::new(FailureKind::Payload, message))
    }

    fn value(self, path: &FieldPath) -> Result<&'a str, Failure> {
        let found = path.read(self.job.payload).map_err(|error| {
            Failure::new(FailureKind::Payload, format!("the job's `{path}` cannot be read: {error}"))
        })?;
        found.ok_or_else(|| {
            let near = path.nearest(self.job.payload).map(|near| format!("; did you mean `{near}`?"));
            let message = format!("the job has no `{path}`{}", near.unwrap_or_default());
            Failure::new(FailureKind::Payload, message)
        })
    }
}

fn named(part: &TemplatePart) -> String {
    match part {
        TemplatePart::Field(path) => path.to_string(),
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

#[cfg(test)]
mod tests;
