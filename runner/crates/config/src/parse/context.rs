//! `ParseContext`: one file that is being read, with its text, its inserted values and its errors.
//!
//! A caller continues after each error: a method that returns `None` has already reported it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::instance::Instance;
use super::interpolate::{Environment, InterpolationError, ValueSources};
use crate::diagnostic::files::Lines;
use crate::diagnostic::{Diagnostic, SourceSpan};
use tidegate_model::Secret;

pub(crate) type Value<'t> = Spanned<DeValue<'t>>;

/// One file while it is read.
pub(crate) struct ParseContext<'a> {
    pub(crate) file: Arc<Path>,
    text: &'a str,
    pub(crate) lines: Lines,
    env: &'a Environment<'a>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Warnings.
    pub(crate) doubts: Vec<Diagnostic>,
    /// The values inserted into texts.
    pub(crate) secrets: Vec<Secret>,
    /// A text whose variable is not set stays as it is written.
    pub(crate) keeps_unset: bool,
    /// The texts that stay, with the reasons.
    pub(crate) unset: Vec<Diagnostic>,
    /// The instance that is read, in a file with `[pipeline.each]`.
    pub(crate) each: Option<Instance>,
    /// Some names of the graph are invalid, so missing ones cannot be reported.
    pub(crate) names_missing: bool,
    /// The meaning of the file depends on the disk, and not only on texts of
    /// [`TextReader`](super::text_reader::TextReader). It cannot be kept for a later load.
    pub(crate) depends_on_disk: bool,
    /// Files that are no texts of the configuration, and whose absence is a mistake. It is read again when they appear.
    pub(crate) sought: Vec<PathBuf>,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: SourceSpan,
}

/// A text with its `${…}` replaced.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) value: String,
    pub(crate) place: SourceSpan,
    /// A part of it is an inserted value, so it must not be shown.
    pub(crate) secret: bool,
    /// The ranges of inserted values, in order.
    pub(crate) outside: Vec<Range<usize>>,
}

impl<'a> ParseContext<'a> {
    pub(crate) fn new(file: Arc<Path>, text: &'a str, env: &'a Environment<'a>) -> Self {
        Self {
            file,
            text,
            lines: Lines::of(text),
            env,
            diagnostics: Vec::new(),
            doubts: Vec::new(),
            secrets: Vec::new(),
            keeps_unset: false,
            unset: Vec::new(),
            each: None,
            names_missing: false,
            depends_on_disk: false,
            sought: Vec::new(),
        }
    }

    pub(crate) fn place(&self, span: Range<usize>) -> SourceSpan {
        SourceSpan { file: Arc::clone(&self.file), span }
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// The folder that paths in this file are relative to.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// A variable of the environment.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        self.env.get(name)
    }

    /// From 1.
    pub(crate) fn line(&self, place: &SourceSpan) -> u64 {
        self.lines.line(place.span.start) as u64
    }

    /// The text of the file at `place`.
    pub(crate) fn written(&self, place: &SourceSpan) -> Option<&'a str> {
        self.text.get(place.span.clone())
    }

    /// The range of the text itself, without its quotes; of the whole value if it has escapes or inserted
    /// values.
    pub(crate) fn inside(&self, text: &Text) -> Range<usize> {
        let whole = text.place.span.clone();
        let found = self.text.get(whole.clone()).and_then(|written| written.find(&text.value));
        found.map_or(whole.clone(), |at| whole.start + at..whole.start + at + text.value.len())
    }

    /// Reports that the value called `name` has another type than `expected`.
    pub(crate) fn wrong_type(&mut self, name: &str, value: &Value<'_>, expected: &str) {
        let message = format!("`{name}` must be {expected}, but is {}", shown(value));
        let place = self.place(value.span());
        self.report(Diagnostic::error_at(&place, message).help_if(written_right(name, value, expected)));
    }

    /// A text with all values inserted; `name` is its name in messages.
    pub(crate) fn text(&mut self, name: &str, value: &Value<'_>, expected: &str) -> Option<Text> {
        let DeValue::String(raw) = value.get_ref() else {
            self.wrong_type(name, value, expected);
            return None;
        };
        let done = self.sources().interpolate(raw);
        self.depends_on_disk |= done.reads_files;
        self.sought.extend(done.unread);
        if done.mistakes.is_empty() {
            let place = self.place(value.span());
            let (value, outside) = (done.value, done.outside);
            self.secrets.extend(outside.iter().map(|range| Secret::new(&value[range.clone()])));
            return Some(Text { value, place, secret: !outside.is_empty(), outside });
        }
        let keeps = self.keeps_unset && done.mistakes.iter().all(|mistake| mistake.unset);
        let place = self.place(value.span());
        if keeps {
            let mistakes = done.mistakes.into_iter();
            self.unset.extend(mistakes.map(|mistake| Diagnostic::error_at(&place, mistake.message)));
            return Some(Text::written((**raw).to_owned(), place));
        }
        self.report_mistakes(raw, value, done.mistakes);
        None
    }

    /// Whether the text at `place` stays as it is written, since a `${…}` in it has no value.
    pub(crate) fn is_unset(&self, place: &SourceSpan) -> bool {
        self.unset.iter().any(|unset| *unset.file == *place.file && unset.span.as_ref() == Some(&place.span))
    }

    /// The value of the text `raw` that is one `${NAME:KIND}`; the inner `None` after an error.
    #[expect(clippy::option_option, reason = "whether it is such a text, and whether it has a value")]
    pub(crate) fn typed(&mut self, raw: &str, value: &Value<'_>) -> Option<Option<serde_json::Value>> {
        match self.sources().typed(raw)? {
            Ok(typed) => Some(Some(typed)),
            Err(mistake) if mistake.unset && self.keeps_unset => {
                self.unset.push(Diagnostic::error_at(&self.place(value.span()), mistake.message));
                Some(Some(serde_json::Value::Null))
            }
            Err(mistake) => {
                self.report_mistakes(raw, value, vec![mistake]);
                Some(None)
            }
        }
    }

    fn sources(&self) -> ValueSources<'_> {
        ValueSources { folder: self.folder(), env: self.env, each: self.each.as_ref() }
    }

    fn report_mistakes(&mut self, raw: &str, value: &Value<'_>, mistakes: Vec<InterpolationError>) {
        let whole = value.span();
        // Without escapes the text is unchanged in the file, and the error can be marked in it.
        let exact = self.text.get(whole.clone()).and_then(|written| written.find(raw));
        for mistake in mistakes {
            let span = exact.map_or(whole.clone(), |at| {
                let start = whole.start + at;
                start + mistake.span.start..start + mistake.span.end
            });
            let diagnostic = Diagnostic::error_at(&self.place(span), mistake.message);
            self.report(diagnostic.help(mistake.help));
        }
    }
}

impl Text {
    /// A text that is unchanged in the file.
    pub(crate) fn written(value: String, place: SourceSpan) -> Self {
        Self { value, place, secret: false, outside: Vec::new() }
    }

    /// The text in backticks, or other words if it must not be shown.
    pub(crate) fn quoted(&self) -> String {
        if self.secret { "the value given here".into() } else { format!("`{}`", self.value) }
    }
}

/// The fix for a value that is almost right.
fn written_right(name: &str, value: &Value<'_>, expected: &str) -> Option<String> {
    let text = value.get_ref().as_str()?;
    let is_number = text.parse::<u64>().is_ok() && expected.ends_with("number");
    let is_truth = matches!(text, "true" | "false") && expected.starts_with("`true`");
    if is_number || is_truth {
        return Some(format!("write it without quotes: `{name} = {text}`"));
    }
    (expected == "a list of texts").then(|| format!("write it in brackets: `{name} = [\"{text}\"]`"))
}

/// The type of a value, in plain words.
pub(crate) fn shown(value: &Value<'_>) -> &'static str {
    match value.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(true) => "`true`",
        DeValue::Boolean(false) => "`false`",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
