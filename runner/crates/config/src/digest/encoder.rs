//! `Encoder`: writes a value in two forms, exactly for its digest and as a text for people.
//!
//! The exact form is injective: each piece has a tag and a length. The text has `…` for inserted values.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value as Json;
use twox_hash::XxHash3_128;

use crate::model::{Body, Shape};
use crate::parse::absolute_path::absolute;
use tidegate_model::template::{Fact, Template, TemplatePart};
use tidegate_model::{Secret, format_duration, format_size};

/// The digits of a digest in a text.
const DIGITS: usize = 12;

pub(super) struct Encoder<'c> {
    buffers: Buffers,
    context: &'c EncodingContext<'c>,
}

/// The exact form, and the text for people.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    exact: Vec<u8>,
    shown: String,
}

/// The facts of a configuration that its settings are encoded with.
pub(super) struct EncodingContext<'c> {
    /// Paths inside are relative to it, so that a configuration may be moved.
    root: PathBuf,
    /// The texts that must not be shown.
    inserted: &'c [Secret],
    /// Relative paths, by path: many steps share a script.
    relative: RefCell<HashMap<OsString, Rc<Path>>>,
}

impl<'c> EncodingContext<'c> {
    pub(super) fn new(root: PathBuf, inserted: &'c [Secret]) -> Self {
        Self { root, inserted, relative: RefCell::default() }
    }

    /// The path relative to the configuration if it is inside, and absolute otherwise.
    fn relative(&self, path: &Path) -> Rc<Path> {
        let mut known = self.relative.borrow_mut();
        if let Some(relative) = known.get(path.as_os_str()) {
            return Rc::clone(relative);
        }
        let absolute = absolute(path);
        let relative = absolute.strip_prefix(&self.root).unwrap_or(&absolute);
        let relative = Rc::from(if relative.as_os_str().is_empty() { Path::new(".") } else { relative });
        known.insert(path.as_os_str().to_owned(), Rc::clone(&relative));
        relative
    }

    fn without_secrets<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let secrets = self.inserted.iter().map(Secret::reveal).filter(|secret| !secret.is_empty());
        secrets.fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(secret) { Cow::Owned(text.replace(secret, "…")) } else { text }
        })
    }

    fn json_without_secrets(&self, value: &Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.without_secrets(text).into_owned()),
            Json::Array(values) => values.iter().map(|value| self.json_without_secrets(value)).collect(),
            Json::Object(entries) => {
                let entries = entries.iter();
                entries.map(|(key, value)| (key.clone(), self.json_without_secrets(value))).collect()
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
        }
    }
}

fn add(exact: &mut Vec<u8>, tag: Tag, bytes: &[u8]) {
    exact.push(tag as u8);
    exact.extend((bytes.len() as u64).to_le_bytes());
    exact.extend(bytes);
}

/// The kind of a piece.
#[derive(Clone, Copy)]
enum Tag {
    Word,
    Text,
    Number,
    Nothing,
    List,
    Secret,
    Field,
    Fact,
}

impl<'c> Encoder<'c> {
    /// `buffers`: their memory is used again.
    pub(super) fn new(context: &'c EncodingContext<'c>, mut buffers: Buffers) -> Self {
        buffers.exact.clear();
        buffers.shown.clear();
        Self { buffers, context }
    }

    /// The digest of all pieces so far.
    pub(super) fn exact(&self) -> u128 {
        XxHash3_128::oneshot(&self.buffers.exact)
    }

    pub(super) fn shown(&self) -> &str {
        &self.buffers.shown
    }

    pub(super) fn into_buffers(self) -> Buffers {
        self.buffers
    }

    /// A word of the grammar, or an address.
    pub(super) fn word(&mut self, word: impl Display) {
        let Buffers { exact, shown } = &mut self.buffers;
        let begin = shown.len();
        // Writing to a text cannot fail.
        let _ = write!(shown, "{word}");
        add(exact, Tag::Word, &shown.as_bytes()[begin..]);
    }

    /// A text of the operator.
    pub(super) fn text(&mut self, text: &str) {
        self.piece(Tag::Text, text.as_bytes());
        let shown = self.context.without_secrets(text);
        self.buffers.shown.push_str(&shown);
    }

    /// A text that must not be shown.
    pub(super) fn secret(&mut self, text: &str) {
        self.piece(Tag::Secret, text.as_bytes());
        self.buffers.shown.push('…');
    }

    /// A long text, shown as a part of its digest.
    pub(super) fn content(&mut self, text: &str) {
        self.piece(Tag::Text, text.as_bytes());
        let digest = format!("{:032x}", XxHash3_128::oneshot(text.as_bytes()));
        let _ = write!(self.buffers.shown, "#{}", &digest[..DIGITS]);
    }

    /// A hash in hex digits, shown in part.
    pub(super) fn hash(&mut self, hash: &str) {
        self.piece(Tag::Text, hash.as_bytes());
        let _ = write!(self.buffers.shown, "#{}", hash.get(..DIGITS).unwrap_or(hash));
    }

    pub(super) fn number(&mut self, number: u64) {
        self.piece(Tag::Number, &number.to_le_bytes());
        let _ = write!(self.buffers.shown, "{number}");
    }

    /// A digest of other settings, which people see elsewhere.
    pub(super) fn digest(&mut self, digest: u128) {
        self.piece(Tag::Number, &digest.to_le_bytes());
    }

    pub(super) fn float(&mut self, number: f64) {
        self.piece(Tag::Number, &number.to_bits().to_le_bytes());
        let _ = write!(self.buffers.shown, "{number}");
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.word(flag);
    }

    pub(super) fn duration(&mut self, duration: Duration) {
        self.piece(Tag::Number, &duration.as_nanos().to_le_bytes());
        self.buffers.shown.push_str(&format_duration(duration));
    }

    pub(super) fn size(&mut self, bytes: u64) {
        self.piece(Tag::Number, &bytes.to_le_bytes());
        self.buffers.shown.push_str(&format_size(bytes));
    }

    /// A path; relative to the configuration if it is inside.
    pub(super) fn path(&mut self, path: &Path) {
        let relative = self.context.relative(path);
        self.piece(Tag::Text, relative.as_os_str().as_encoded_bytes());
        let shown = relative.to_string_lossy();
        self.buffers.shown.push_str(&self.context.without_secrets(&shown));
    }

    /// The value, or the word for its absence.
    pub(super) fn optional<T>(&mut self, value: Option<T>, none: &str, encode: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => encode(self, value),
            None => {
                self.piece(Tag::Nothing, b"");
                self.buffers.shown.push_str(none);
            }
        }
    }

    pub(super) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut encode: impl FnMut(&mut Self, T),
    ) {
        self.piece(Tag::List, &items.len().to_le_bytes());
        for (position, item) in items.enumerate() {
            if position > 0 {
                self.buffers.shown.push_str(", ");
            }
            encode(self, item);
        }
    }

    /// A text between two pieces, for people only.
    pub(super) fn between(&mut self, text: &str) {
        self.buffers.shown.push_str(text);
    }

    pub(super) fn template(&mut self, template: &Template) {
        self.piece(Tag::List, &template.parts().len().to_le_bytes());
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => self.piece(Tag::Text, text.as_bytes()),
                TemplatePart::Secret(secret) => self.piece(Tag::Secret, secret.reveal().as_bytes()),
                TemplatePart::Field(path) => self.piece(Tag::Field, path.to_string().as_bytes()),
                TemplatePart::Fact(fact) => self.piece(Tag::Fact, &[fact_number(*fact)]),
            }
        }
        self.buffers.shown.push_str(&template.to_string());
    }

    /// JSON; its texts may hold secrets.
    pub(super) fn json(&mut self, value: &Json) {
        // The keys of an object are in order.
        let text = value.to_string();
        self.piece(Tag::Text, text.as_bytes());
        let shown = self.context.json_without_secrets(value).to_string();
        self.buffers.shown.push_str(&shown);
    }

    pub(super) fn body(&mut self, body: &Body) {
        match body {
            Body::None => self.word("none"),
            Body::Job => self.word("job"),
            Body::Json(shape) => {
                self.piece(Tag::List, b"json");
                self.shape(shape);
            }
        }
    }

    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Fixed(json) => self.word(json),
            Shape::Value(path) => {
                self.piece(Tag::Field, path.to_string().as_bytes());
                let _ = write!(self.buffers.shown, "\"{{{path}}}\"");
            }
            Shape::Text(template) => {
                self.buffers.shown.push('"');
                self.template(template);
                self.buffers.shown.push('"');
            }
            Shape::List(shapes) => {
                self.buffers.shown.push('[');
                self.list(shapes.iter(), Self::shape);
                self.buffers.shown.push(']');
            }
            Shape::Map(shapes) => {
                self.buffers.shown.push('{');
                // A list has no such length.
                self.piece(Tag::List, b"map");
                self.list(shapes.iter(), |encoder, (key, shape)| {
                    encoder.text(key);
                    encoder.buffers.shown.push_str(": ");
                    encoder.shape(shape);
                });
                self.buffers.shown.push('}');
            }
        }
    }

    fn piece(&mut self, tag: Tag, bytes: &[u8]) {
        add(&mut self.buffers.exact, tag, bytes);
    }
}

fn fact_number(fact: Fact) -> u8 {
    match fact {
        Fact::Hash => 0,
        Fact::Attempt => 1,
        Fact::Index => 2,
        Fact::Now => 3,
        Fact::Pipeline => 4,
        Fact::Step => 5,
        Fact::Token => 6,
    }
}
