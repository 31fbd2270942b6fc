//! `Reference`: names at their declaration, and names that refer to them.

use super::context::{ParseContext, Placed, Text};
use super::field::Field;
use super::table::TableReader;
use crate::diagnostic::{Diagnostic, SourceSpan};
use tidegate_model::{Address, Name};

const NAME_RULE: &str = "use at most 128 ASCII letters, digits, `_` and `-`, with a letter or a digit first";

/// A name in `from`, `join`, `alts`, `to`, `errors` or `events`, or the `queue` of a table: `queue`, or `pipeline/queue`.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// The pipeline, if it is written.
    pipeline: Option<Name>,
    pub(crate) name: Name,
    pub(crate) place: SourceSpan,
    /// The name is an inserted value, so it must not be shown.
    pub(crate) secret: bool,
}

impl Reference {
    /// A reference to a part of the same pipeline that `place` implies.
    pub(crate) fn implied(name: Name, place: SourceSpan) -> Self {
        Self { pipeline: None, name, place, secret: false }
    }

    /// Its address, for a reference in the pipeline `home`.
    pub(crate) fn address(&self, home: &Name) -> Address {
        Address::new(self.pipeline.as_ref().unwrap_or(home).clone(), self.name.clone())
    }

    /// The pipeline, if it is written.
    pub(crate) fn pipeline(&self) -> Option<&Name> {
        self.pipeline.as_ref()
    }

    /// As written in the file.
    pub(crate) fn as_written(&self) -> String {
        match &self.pipeline {
            Some(pipeline) => format!("{pipeline}/{}", self.name),
            None => self.name.to_string(),
        }
    }

    /// The suffix for the name of a step that passes the jobs of `self` on.
    pub(crate) fn as_suffix(&self) -> String {
        match &self.pipeline {
            Some(pipeline) => format!("{pipeline}-{}", self.name),
            None => self.name.to_string(),
        }
    }
}

/// The name in `text`; reports an invalid one. `what` is the kind of its owner.
pub(crate) fn name(reading: &mut ParseContext<'_>, what: &str, text: &Text) -> Option<Placed<Name>> {
    let name = Name::new(&text.value);
    if name.is_none() {
        let message = format!("{} is not a valid name of a {what}", text.quoted());
        reading.report(Diagnostic::error_at(&text.place, message).help(NAME_RULE));
    }
    Some(Placed { value: name?, place: text.place.clone() })
}

/// `was`: the name that a part had in an earlier configuration.
pub(crate) fn former_name(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    what: &str,
) -> Option<Placed<Name>> {
    let text = section.field("was")?.filled_text(reading)?;
    name(reading, what, &text)
}

/// The only name in `field`.
pub(crate) fn reference(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Reference> {
    let text = field.text(reading);
    let reference = text.and_then(|text| parse(reading, field.name, &text));
    reading.names_missing |= reference.is_none();
    reference
}

/// `errors` of a step, a sink or a pipeline.
#[derive(Clone, Debug)]
pub(crate) enum ErrorTarget {
    Queue(Reference),
    /// `"drop"`: failed jobs are consumed, counted and logged.
    Drop,
}

impl ErrorTarget {
    pub(crate) fn queue(&self) -> Option<&Reference> {
        match self {
            Self::Queue(reference) => Some(reference),
            Self::Drop => None,
        }
    }
}

/// `errors`
pub(crate) fn error_target(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Option<ErrorTarget> {
    let field = section.field("errors")?;
    let drops = field.value().get_ref().as_str() == Some("drop");
    if drops { Some(ErrorTarget::Drop) } else { reference(reading, field).map(ErrorTarget::Queue) }
}

/// The name, or the list of names, in `field`.
pub(crate) fn references(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<Reference> {
    let before = reading.diagnostics.len();
    let texts = field.text_or_texts(reading).unwrap_or_default();
    let references = texts.iter().filter_map(|text| parse(reading, field.name, text)).collect();
    reading.names_missing |= reading.diagnostics.len() > before;
    references
}

fn parse(reading: &mut ParseContext<'_>, key: &str, text: &Text) -> Option<Reference> {
    let (pipeline, name) = match text.value.split_once('/') {
        Some((pipeline, name)) => (Some(Name::new(pipeline)), Name::new(name)),
        None => (None, Name::new(&text.value)),
    };
    if let (Some(name), true) = (name, pipeline.as_ref().is_none_or(Option::is_some)) {
        let (place, secret) = (text.place.clone(), text.secret);
        return Some(Reference { pipeline: pipeline.flatten(), name, place, secret });
    }
    let message = format!("{} in `{key}` is not a valid name", text.quoted());
    let help = format!("{NAME_RULE}; `pipeline/name` refers to another pipeline");
    reading.report(Diagnostic::error_at(&text.place, message).help(help));
    None
}
