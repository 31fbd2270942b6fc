//! `TableReader`: one table of a known kind, whose unknown keys are reported when it is opened.

use toml::Spanned;
use toml::de::DeTable;

use super::context::{ParseContext, Text, Value, shown};
use super::field::Field;
use super::keys::{TableKind, homes};
use crate::diagnostic::{Diagnostic, SourceSpan};
use tidegate_model::suggest::{did_you_mean, listed};

/// A table of a known kind.
pub(crate) struct TableReader<'t> {
    kind: TableKind,
    /// As the user wrote it: `[step.price]`.
    pub(crate) title: String,
    /// The header, or the table in braces.
    pub(crate) place: SourceSpan,
    table: &'t DeTable<'t>,
}

impl<'t> TableReader<'t> {
    /// The whole file.
    pub(crate) fn root(
        reading: &mut ParseContext<'_>,
        kind: TableKind,
        table: &'t Spanned<DeTable<'t>>,
    ) -> Self {
        let name = reading.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = reading.place(0..0);
        Self { kind, title: name, place, table: table.get_ref() }.opened(reading)
    }

    /// The table in `value`; an empty one, with a diagnostic, if it is not a table.
    pub(crate) fn open(
        reading: &mut ParseContext<'_>,
        kind: TableKind,
        title: &str,
        value: &'t Value<'t>,
    ) -> Option<Self> {
        let place = reading.place(value.span());
        let Some(table) = value.get_ref().as_table() else {
            reading.wrong_type(title.trim_matches(['[', ']']), value, "a table");
            return None;
        };
        Some(Self { kind, title: title.to_owned(), place, table }.opened(reading))
    }

    /// Reports the unknown keys of a table.
    fn opened(self, reading: &mut ParseContext<'_>) -> Self {
        for (key, value) in self.table {
            let name = &**key.get_ref();
            if self.kind.keys().contains(&name) {
                continue;
            }
            let place = reading.place(key.span());
            let diagnostic = self.unknown(&place, name, value);
            reading.report(diagnostic);
            // It may be a misspelled key that wires a step.
            reading.names_missing |= matches!(
                self.kind,
                TableKind::PipelineFile
                    | TableKind::SingleFile
                    | TableKind::Step
                    | TableKind::FileSink
                    | TableKind::StdoutSink
                    | TableKind::HttpSink
                    | TableKind::NullSink
            );
        }
        self
    }

    fn unknown(&self, place: &SourceSpan, key: &str, value: &Value<'_>) -> Diagnostic {
        let is_file =
            matches!(self.kind, TableKind::PipelineFile | TableKind::SingleFile | TableKind::SettingsFile);
        let what = if is_file && value.get_ref().is_table() { "table" } else { "key" };
        let keys = self.kind.keys().iter().copied();
        let home = homes(key).map(|homes| format!("`{key}` belongs in {homes}"));
        let help = match (did_you_mean(key, keys.clone()), home) {
            (Some(near), Some(home)) => format!("{near} ({home})"),
            (Some(help), None) | (None, Some(help)) => help,
            (None, None) => format!("the keys of `{}` are {}", self.title, listed(keys, "and")),
        };
        Diagnostic::error_at(place, format!("unknown {what} `{key}` in `{}`", self.title)).help(help)
    }

    pub(crate) fn field(&self, key: &'static str) -> Option<Field<'t>> {
        let value = self.table.get(key)?;
        Some(Field::of(key, value))
    }

    /// The place of the key itself.
    pub(crate) fn key_place(&self, reading: &ParseContext<'_>, key: &str) -> Option<SourceSpan> {
        let (key, _) = self.table.get_key_value(key)?;
        Some(reading.place(key.span()))
    }

    /// As [`Self::field`], and reports a missing one.
    pub(crate) fn required(
        &self,
        reading: &mut ParseContext<'_>,
        key: &'static str,
        help: &str,
    ) -> Option<Field<'t>> {
        let field = self.field(key);
        if field.is_none() {
            let message = format!("`{}` lacks `{key}`", self.title);
            reading.report(Diagnostic::error_at(&self.place, message).help(help));
        }
        field
    }

    /// The tables under `[KIND.NAME]`, by name; reports values that are not tables.
    pub(crate) fn named(
        &self,
        reading: &mut ParseContext<'_>,
        kind: &'static str,
    ) -> Vec<(Text, &'t Value<'t>)> {
        let Some(field) = self.field(kind) else { return Vec::new() };
        let before = reading.diagnostics.len();
        let Some(table) = field.table(reading) else {
            if let (true, Some(mistake)) =
                (field.value().get_ref().is_array(), reading.diagnostics.get_mut(before))
            {
                mistake.help.push(format!("give each a name of its own: `[{kind}.NAME]`"));
            }
            reading.names_missing = true;
            return Vec::new();
        };
        let mut entries = Vec::new();
        for (key, value) in table {
            if value.get_ref().is_table() {
                let place = reading.place(key.span());
                entries.push((Text::written(key.get_ref().to_string(), place), value));
            } else {
                let message = format!("`{kind}.{}` must be a table, but is {}", key.get_ref(), shown(value));
                let diagnostic = Diagnostic::error_at(&reading.place(key.span()), message);
                reading.report(diagnostic.help(format!("a {kind} has a name of its own: `[{kind}.NAME]`")));
                reading.names_missing = true;
            }
        }
        // The tree is sorted by key; the file is read from the top.
        entries.sort_by_key(|(key, _)| key.place.span.start);
        entries
    }
}
