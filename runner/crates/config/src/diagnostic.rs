//! `Diagnostics`: the errors and warnings of a configuration, each with its place.
//!
//! Every crate that reads a configuration reports through [`Diagnostics`]. They are kept in order of file and
//! place, each once. `render` formats them.

pub(crate) mod files;
pub(crate) mod render;
pub(crate) mod span_of;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use self::files::{Files, Position};
use super::model::LogFormat;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration cannot run.
    Error,
    /// The configuration runs, but perhaps not as intended.
    Warning,
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpan {
    pub file: Arc<Path>,
    pub span: Range<usize>,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// The file (or folder) with the problem.
    pub file: PathBuf,
    /// Bytes of the file; `None` for the file as a whole.
    pub span: Option<Range<usize>>,
    /// A lowercase fragment that names its object in `backticks`.
    pub message: String,
    /// The text beside the marked place.
    pub label: Option<String>,
    /// Other places that explain this one, each with its label.
    pub related: Vec<(SourceSpan, String)>,
    pub notes: Vec<String>,
    /// The fix.
    pub help: Vec<String>,
}

/// A diagnostic for programs (`--format json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiagnosticRecord {
    pub file: PathBuf,
    /// From 1.
    pub line: Option<usize>,
    /// In characters, from 1.
    pub column: Option<usize>,
    pub severity: Severity,
    pub message: String,
    pub notes: Vec<String>,
    pub help: Vec<String>,
}

/// All diagnostics of one configuration, in order of file and place, each once.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    subject: PathBuf,
    files: Files,
    list: Vec<Diagnostic>,
    log: LogFormat,
}

/// Removes repetitions; the first of equal ones stays.
pub(crate) fn without_repetitions(diagnostics: &mut Vec<Diagnostic>) {
    let mut kept: Vec<Diagnostic> = Vec::with_capacity(diagnostics.len());
    for diagnostic in diagnostics.drain(..) {
        if !kept.contains(&diagnostic) {
            kept.push(diagnostic);
        }
    }
    *diagnostics = kept;
}

impl Diagnostic {
    /// An error at a place, or (with `None`) in the file as a whole.
    pub fn error(
        file: impl Into<PathBuf>,
        span: impl Into<Option<Range<usize>>>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Error, file.into(), span.into(), message.into())
    }

    /// A warning at a place, or (with `None`) in the file as a whole.
    pub fn warning(
        file: impl Into<PathBuf>,
        span: impl Into<Option<Range<usize>>>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Warning, file.into(), span.into(), message.into())
    }

    pub(crate) fn error_at(place: &SourceSpan, message: impl Into<String>) -> Self {
        Self::error(&*place.file, place.span.clone(), message)
    }

    pub(crate) fn warning_at(place: &SourceSpan, message: impl Into<String>) -> Self {
        Self::warning(&*place.file, place.span.clone(), message)
    }

    fn new(severity: Severity, file: PathBuf, span: Option<Range<usize>>, message: String) -> Self {
        let (label, related, notes, help) = (None, Vec::new(), Vec::new(), Vec::new());
        Self { severity, file, span, message, label, related, notes, help }
    }

    /// Sets the text beside the marked place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds another place that explains this one.
    #[must_use]
    pub fn related(mut self, place: SourceSpan, label: impl Into<String>) -> Self {
        self.related.push((place, label.into()));
        self
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a fix.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Adds a fix, if it is known.
    #[must_use]
    pub fn help_if(mut self, help: Option<String>) -> Self {
        self.help.extend(help);
        self
    }

    /// Adds places that explain it, each once.
    fn explain(&mut self, places: Vec<(SourceSpan, String)>) {
        self.related.extend(places);
        self.related.sort_by(|one, other| place(one).cmp(&place(other)));
        self.related.dedup();
    }

    /// By file, so that a reader fixes one file after another; a diagnostic of the whole file precedes those
    /// with a place.
    fn sort_key(&self) -> impl Ord + '_ {
        let place = self.span.as_ref().map(|span| (span.start, span.end));
        (&self.file, place, self.severity, &self.message, &self.label, &self.notes, &self.help)
    }
}

/// Key of the order of related places.
fn place((span, label): &(SourceSpan, String)) -> (&Path, usize, usize, &str) {
    (&span.file, span.span.start, span.span.end, label)
}

impl Diagnostics {
    /// Without diagnostics, for the configuration at `subject`, whose texts are `files`.
    #[must_use]
    pub fn new(subject: impl Into<PathBuf>, files: Files) -> Self {
        Self { subject: subject.into(), files, list: Vec::new(), log: LogFormat::Text }
    }

    /// For a configuration whose log has this form.
    pub(crate) fn logged(self, log: LogFormat) -> Self {
        Self { log, ..self }
    }

    /// The log format of the configuration, if it could be read.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        self.log
    }

    /// Adds one at its place in the order. Mistakes that differ in the places that explain them are one: a module with a
    /// mistake is named by each script that imports it.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        match self.list.binary_search_by(|other| other.sort_key().cmp(&diagnostic.sort_key())) {
            Err(at) => self.list.insert(at, diagnostic),
            Ok(at) => self.list[at].explain(diagnostic.related),
        }
    }

    /// Adds a text that diagnostics of a higher crate refer to.
    pub fn add_file(&mut self, path: impl Into<PathBuf>, text: impl Into<Arc<str>>) {
        self.files.add(path, text);
    }

    /// Records that a higher crate has looked for a file.
    pub fn seek(&mut self, path: impl Into<PathBuf>) {
        self.files.seek(path);
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Diagnostic> {
        self.list.iter()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.list.iter().filter(|diagnostic| diagnostic.severity == severity).count()
    }

    /// The configuration, as the user named it.
    #[must_use]
    pub fn subject(&self) -> &Path {
        &self.subject
    }

    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// For programs.
    #[must_use]
    pub fn records(&self) -> Vec<DiagnosticRecord> {
        self.list.iter().map(|diagnostic| self.record(diagnostic)).collect()
    }

    fn record(&self, diagnostic: &Diagnostic) -> DiagnosticRecord {
        let position: Option<Position> =
            diagnostic.span.as_ref().and_then(|span| self.files.position(&diagnostic.file, span.start));
        DiagnosticRecord {
            file: diagnostic.file.clone(),
            line: position.map(|position| position.line),
            column: position.map(|position| position.column),
            severity: diagnostic.severity,
            message: diagnostic.message.clone(),
            notes: diagnostic.notes.clone(),
            help: diagnostic.help.clone(),
        }
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, diagnostics: I) {
        self.list.extend(diagnostics);
        self.list.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
        self.list.dedup_by(|later, first| {
            let is_same = later.sort_key() == first.sort_key();
            if is_same {
                first.explain(std::mem::take(&mut later.related));
            }
            is_same
        });
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(named_at: usize) -> Diagnostic {
        let place = SourceSpan { file: Path::new("p.toml").into(), span: named_at..named_at + 1 };
        Diagnostic::error("lib.rhai", 3..4, "unexpected '}'").related(place, "named here")
    }

    #[test]
    fn a_mistake_of_a_module_that_several_scripts_import_is_one() {
        let mut one_by_one = Diagnostics::new(".", Files::default());
        for at in [7, 2, 7] {
            one_by_one.push(mistake(at));
        }
        let mut together = Diagnostics::new(".", Files::default());
        together.extend([7, 2, 7].map(mistake));
        for found in [one_by_one, together] {
            let [one] = &found.list[..] else { panic!("{found}") };
            assert_eq!(one.related, [mistake(2).related, mistake(7).related].concat());
        }
    }
}
