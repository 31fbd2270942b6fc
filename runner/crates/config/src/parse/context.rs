//! One file while it is read: its text, what is put into its values, and what is wrong with it.
//!
//! Who reads goes on after each mistake: a method that answers `None` has already said why.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::interpolate::{Lookup, ValueSources};
use crate::diagnostic::files::Lines;
use crate::diagnostic::{Diagnostic, SourceSpan};
use tidegate_model::Secret;

pub(crate) type Value<'t> = Spanned<DeValue<'t>>;

/// One file while it is read.
pub(crate) struct ParseContext<'a> {
    pub(crate) file: Arc<Path>,
    text: &'a str,
    pub(crate) lines: Lines,
    env: &'a Lookup,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// What is no mistake, but may be one.
    pub(crate) doubts: Vec<Diagnostic>,
    /// What was put into texts from outside the file.
    pub(crate) secrets: Vec<Secret>,
    /// Some names of the graph could not be read, so nothing can be said about what is missing.
    pub(crate) names_missing: bool,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: SourceSpan,
}

/// A text with its `${…}` put in.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) value: String,
    pub(crate) place: SourceSpan,
    /// Some of it came from outside the file, so it must not be shown.
    pub(crate) secret: bool,
    /// Where in the value that is, in order.
    pub(crate) outside: Vec<Range<usize>>,
}

impl<'a> ParseContext<'a> {
    pub(crate) fn new(file: Arc<Path>, text: &'a str, env: &'a Lookup) -> Self {
        Self {
            file,
            text,
            lines: Lines::of(text),
            env,
            diagnostics: Vec::new(),
            doubts: Vec::new(),
            secrets: Vec::new(),
            names_missing: false,
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
        (self.env)(name)
    }

    /// From 1.
    pub(crate) fn line(&self, place: &SourceSpan) -> u64 {
        self.lines.line(place.span.start) as u64
    }

    /// What stands in the file at `place`.
    pub(crate) fn written(&self, place: &SourceSpan) -> Option<&'a str> {
        self.text.get(place.span.clone())
    }

    /// Where the text itself stands, without its quotes; all of the value where it is written with
    /// escapes, or is put together.
    pub(crate) fn inside(&self, text: &Text) -> Range<usize> {
        let whole = text.place.span.clone();
        let found = self.text.get(whole.clone()).and_then(|written| written.find(&text.value));
        found.map_or(whole.clone(), |at| whole.start + at..whole.start + at + text.value.len())
    }

    /// Says that the value that messages call `name` should be something else.
    pub(crate) fn wrong_type(&mut self, name: &str, value: &Value<'_>, expected: &str) {
        let message = format!("`{name}` should be {expected}, but is {}", shown(value));
        let place = self.place(value.span());
        self.report(Diagnostic::error_at(&place, message).help_if(written_right(name, value, expected)));
    }

    /// A text with everything put in, `name` being what messages call it.
    pub(crate) fn text(&mut self, name: &str, value: &Value<'_>, expected: &str) -> Option<Text> {
        let DeValue::String(raw) = value.get_ref() else {
            self.wrong_type(name, value, expected);
            return None;
        };
        let done = ValueSources { folder: self.folder(), env: self.env }.interpolate(raw);
        let place = self.place(value.span());
        if done.mistakes.is_empty() {
            let (value, outside) = (done.value, done.outside);
            self.secrets.extend(outside.iter().map(|range| Secret::new(&value[range.clone()])));
            return Some(Text { value, place, secret: !outside.is_empty(), outside });
        }
        // Without escapes the text stands in the file as it is, and the mistake can be shown in it.
        let exact = self.text.get(place.span.clone()).and_then(|written| written.find(&**raw));
        for mistake in done.mistakes {
            let span = exact.map_or(place.span.clone(), |at| {
                let start = place.span.start + at;
                start + mistake.span.start..start + mistake.span.end
            });
            let diagnostic = Diagnostic::error_at(&self.place(span), mistake.message);
            self.report(diagnostic.help(mistake.help));
        }
        None
    }
}

impl Text {
    /// A text that stands in the file as it is.
    pub(crate) fn written(value: String, place: SourceSpan) -> Self {
        Self { value, place, secret: false, outside: Vec::new() }
    }

    /// The text in backticks, or other words for it where it must not be shown.
    pub(crate) fn quoted(&self) -> String {
        if self.secret { "the value given here".into() } else { format!("`{}`", self.value) }
    }
}

/// What is right is written otherwise.
fn written_right(name: &str, value: &Value<'_>, expected: &str) -> Option<String> {
    let text = value.get_ref().as_str()?;
    let is_number = text.parse::<u64>().is_ok() && expected.ends_with("number");
    let is_truth = matches!(text, "true" | "false") && expected.starts_with("`true`");
    if is_number || is_truth {
        return Some(format!("write it without quotes: `{name} = {text}`"));
    }
    (expected == "a list of texts").then(|| format!("write it in brackets: `{name} = [\"{text}\"]`"))
}

/// What a value is, in words of people who do not program.
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
