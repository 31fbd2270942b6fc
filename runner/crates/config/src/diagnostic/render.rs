//! Rendering of diagnostics: shows file, line and column, the line with the place marked, the problem and its
//! fix. At the end it counts them.

use std::ops::Range;
use std::path::Path;

use annotate_snippets::{
    Annotation, AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str,
};

use super::files::{Files, clamp};
use super::{Diagnostic, Diagnostics, Severity};
use tidegate_model::plain;

impl Diagnostics {
    /// All of them, one after the other, and a line that counts them; empty if there are none. `color` adds
    /// the codes of terminals.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        if self.is_empty() {
            return String::new();
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for diagnostic in self.iter() {
            // The renderer pads empty lines of a snippet; the blanks are removed.
            for line in renderer.render(&[group(diagnostic, self.files())]).lines() {
                text.push_str(&without_steering(line.trim_end()));
                text.push('\n');
            }
            text.push('\n');
        }
        text.push_str(&self.summary());
        text.push('\n');
        text
    }

    /// `3 errors, 1 warning in configs/x`
    #[must_use]
    pub fn summary(&self) -> String {
        let counted = |severity, one: &str| match self.count(severity) {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {one}s")),
        };
        let counts = [counted(Severity::Error, "error"), counted(Severity::Warning, "warning")];
        let counts: Vec<_> = counts.into_iter().flatten().collect();
        let counts = if counts.is_empty() { "no mistakes".into() } else { counts.join(", ") };
        format!("{counts} in {}", printable(self.subject()))
    }
}

/// The renderer escapes most control characters, except for the second half (C1) and some marks. The codes of
/// colours begin with ESC, which no text contains.
fn without_steering(line: &str) -> String {
    line.split_inclusive('\u{1b}')
        .map(|part| match part.strip_suffix('\u{1b}') {
            Some(text) => plain::on_one_line(text) + "\u{1b}",
            None => plain::on_one_line(part),
        })
        .collect()
}

fn group<'a>(diagnostic: &'a Diagnostic, files: &'a Files) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let messages = (diagnostic.notes.iter().map(|note| (Level::NOTE, note)))
        .chain(diagnostic.help.iter().map(|help| (Level::HELP, help)))
        // Messages may quote the file, whose text must not control the terminal.
        .map(|(level, text)| Element::from(level.message(normalize_untrusted_str(text))));
    level
        .primary_title(diagnostic.message.as_str())
        .element(source(diagnostic, files))
        .elements(elsewhere(diagnostic, files))
        .elements(messages)
}

/// The marked place with its line, or the name of the file without a place.
fn source<'a>(diagnostic: &'a Diagnostic, files: &'a Files) -> Element<'a> {
    let (Some(span), Some(text)) = (&diagnostic.span, files.get(&diagnostic.file)) else {
        return Origin::path(printable(&diagnostic.file)).into();
    };
    let here = diagnostic.related.iter().filter(|(place, _)| *place.file == *diagnostic.file);
    let mut marks = vec![(AnnotationKind::Primary, one_line(text, span), diagnostic.label.as_deref())];
    marks.extend(
        here.map(|(place, label)| {
            (AnnotationKind::Context, one_line(text, &place.span), Some(label.as_str()))
        }),
    );
    snippet(&diagnostic.file, text, files, marks).into()
}

type Mark<'a> = (AnnotationKind, Range<usize>, Option<&'a str>);

/// The lines from the first mark to the last, and one around them: the renderer reads its whole input for
/// each diagnostic.
fn snippet<'a>(
    path: &Path,
    text: &'a str,
    files: &Files,
    marks: Vec<Mark<'a>>,
) -> Snippet<'a, Annotation<'a>> {
    let first = marks.iter().map(|(_, span, _)| span.start).min().unwrap_or(0);
    let last = marks.iter().map(|(_, span, _)| span.end).max().unwrap_or(first);
    let start_of_line = |end: usize| text[..end].rfind('\n').map_or(0, |at| at + 1);
    let end_of_line = |start: usize| text[start..].find('\n').map_or(text.len(), |at| start + at + 1);
    let start = start_of_line(start_of_line(first).saturating_sub(1));
    let end = end_of_line(end_of_line(last));
    let line = files.position(path, start).map_or(1, |position| position.line);
    let marks = marks
        .into_iter()
        .map(|(kind, span, label)| kind.span(span.start - start..span.end - start).label(label));
    Snippet::source(&text[start..end]).path(printable(path)).line_start(line).annotations(marks)
}

/// The places of other files that explain this one.
fn elsewhere<'a>(diagnostic: &'a Diagnostic, files: &'a Files) -> Vec<Element<'a>> {
    let others = diagnostic.related.iter().filter(|(place, _)| *place.file != *diagnostic.file);
    others
        .filter_map(|(place, label)| {
            let text = files.get(&place.file)?;
            let mark = (AnnotationKind::Context, one_line(text, &place.span), Some(label.as_str()));
            Some(snippet(&place.file, text, files, vec![mark]).into())
        })
        .collect()
}

/// The part of `span` on its first line: a mark over several lines would draw boxes that hide the place.
fn one_line(text: &str, span: &Range<usize>) -> Range<usize> {
    let span = clamp(text, span);
    let length = text[span.clone()].find(['\n', '\r']).unwrap_or(span.len());
    span.start..span.start + length
}

fn printable(path: &Path) -> String {
    plain::on_one_line(&normalize_untrusted_str(&path.display().to_string()))
}
