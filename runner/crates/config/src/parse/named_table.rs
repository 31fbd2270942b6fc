//! Named tables: parses tables that many steps may use, and the choice of a step, as in `retry = "name"`.
//!
//! A name of the pipeline's own file takes precedence over the same one in tidegate.toml.

use super::context::{ParseContext, Placed, Text, Value};
use super::field::Field;
use super::reference::name;
use super::table::TableReader;
use crate::diagnostic::{Diagnostic, SourceSpan};
use tidegate_model::Name;
use tidegate_model::suggest::did_you_mean;

/// The tables of one kind in one file.
#[derive(Debug)]
pub(crate) struct NamedTables<T> {
    entries: Vec<NamedEntry<T>>,
}

#[derive(Debug)]
pub(crate) struct NamedEntry<T> {
    pub(crate) name: Placed<Name>,
    /// `None` after an error.
    pub(crate) value: Option<T>,
}

/// The choice of a step.
#[derive(Clone, Debug)]
pub(crate) struct Chosen<T> {
    pub(crate) place: SourceSpan,
    way: Way<T>,
}

#[derive(Clone, Debug)]
enum Way<T> {
    Named(Text),
    /// `None` after an error.
    Inline(Option<T>),
}

/// The name of a `[KIND.NAME]` in messages.
pub(crate) fn called(kind: &str) -> &str {
    if kind == "retry" { "retry policy" } else { kind }
}

impl<T> Default for NamedTables<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> NamedTables<T> {
    /// All tables under `[KIND.NAME]`; `read` receives the title of each.
    pub(crate) fn read(
        reading: &mut ParseContext<'_>,
        root: &TableReader<'_>,
        kind: &'static str,
        mut read: impl FnMut(&mut ParseContext<'_>, &str, &Value<'_>) -> Option<T>,
    ) -> Self {
        let mut shelf = Self::default();
        for (key, value) in root.named(reading, kind) {
            let name = name(reading, called(kind), &key);
            let value = read(reading, &format!("[{kind}.{}]", key.value), value);
            shelf.entries.extend(name.map(|name| NamedEntry { name, value }));
        }
        shelf
    }

    pub(crate) fn entries(&self) -> &[NamedEntry<T>] {
        &self.entries
    }

    fn get(&self, name: &str) -> Option<&NamedEntry<T>> {
        self.entries.iter().find(|entry| entry.name.value.as_str() == name)
    }
}

impl<T> Chosen<T> {
    /// A name, or a table that `read` parses.
    pub(crate) fn read(
        reading: &mut ParseContext<'_>,
        field: Field<'_>,
        read: impl FnOnce(&mut ParseContext<'_>, &str, &Value<'_>) -> Option<T>,
    ) -> Self {
        let place = field.place(reading);
        if field.value().get_ref().is_table() {
            return Self { place, way: Way::Inline(read(reading, field.name, field.value())) };
        }
        Self::named(reading, field, "a name or a table")
    }

    /// A name; `expected` describes the alternatives.
    pub(crate) fn named(reading: &mut ParseContext<'_>, field: Field<'_>, expected: &str) -> Self {
        let place = field.place(reading);
        let way = match reading.text(field.name, field.value(), expected) {
            Some(name) if name.value.is_empty() => {
                let message = format!("`{}` is empty", field.name);
                let help = format!("write {expected}, or leave `{}` out", field.name);
                reading.report(Diagnostic::error_at(&place, message).help(help));
                Way::Inline(None)
            }
            Some(name) => Way::Named(name),
            None => Way::Inline(None),
        };
        Self { place, way }
    }

    /// Its named table, if it is a name.
    pub(crate) fn entry<'a>(
        &self,
        own: &'a NamedTables<T>,
        shared: &'a NamedTables<T>,
    ) -> Option<&'a NamedEntry<T>> {
        match &self.way {
            Way::Named(name) => own.get(&name.value).or_else(|| shared.get(&name.value)),
            Way::Inline(_) => None,
        }
    }

    /// Its value.
    pub(crate) fn value<'a>(&'a self, own: &'a NamedTables<T>, shared: &'a NamedTables<T>) -> Option<&'a T> {
        match &self.way {
            Way::Named(_) => self.entry(own, shared)?.value.as_ref(),
            Way::Inline(value) => value.as_ref(),
        }
    }

    /// The error of an unknown name. `kind` is as in `[KIND.NAME]`; `meant` returns the fix for other
    /// meanings of the name.
    pub(crate) fn lost(
        &self,
        kind: &str,
        meant: fn(&str) -> Option<String>,
        own: &NamedTables<T>,
        shared: &NamedTables<T>,
    ) -> Option<Diagnostic> {
        let Way::Named(name) = &self.way else { return None };
        if self.entry(own, shared).is_some() {
            return None;
        }
        let all = own.entries.iter().chain(&shared.entries).map(|entry| entry.name.value.as_str());
        let near = || did_you_mean(&name.value, all).or_else(|| meant(&name.value));
        let near = if name.secret { None } else { near() };
        let shown = if name.secret { "NAME" } else { &name.value };
        let help = near.unwrap_or_else(|| {
            format!("declare it in this file, or for all pipelines in tidegate.toml: `[{kind}.{shown}]`")
        });
        let kind = called(kind);
        let what =
            if name.secret { format!("the {kind} named here") } else { format!("{kind} {}", name.quoted()) };
        Some(Diagnostic::error_at(&name.place, format!("{what} is unknown")).help(help))
    }
}
