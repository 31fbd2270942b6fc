//! From a text to a TOML tree, and the mistakes of syntax in words.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, Error};

use super::context::ParseContext;
use crate::diagnostic::Diagnostic;

/// A tree, and how far it can be trusted.
pub(crate) struct Parsed<'t> {
    pub(crate) tree: Spanned<DeTable<'t>>,
    /// A mistake may have moved keys into other tables, so that what else the tree says would only
    /// confuse.
    pub(crate) garbled: bool,
}

/// Parses `text`, the text of the file of `reading`, as far as it can be.
pub(crate) fn parse<'t>(reading: &mut ParseContext<'_>, text: &'t str) -> Parsed<'t> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let garbled = errors.iter().any(|error| !is_local(error));
    // A table that is given twice is taken for one, so that its keys seem to be given twice as well.
    let mut inside_twin = 0..0;
    let mut colons = BTreeSet::new();
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        if let Some((at, help)) = colon(text, span.start) {
            // Each part of such a line is a mistake of its own to the parser.
            if colons.insert(at) {
                let diagnostic =
                    Diagnostic::error_at(&reading.place(at..at + 1), "syntax: a key is followed by `=`");
                reading.report(diagnostic.help(help));
            }
            continue;
        }
        if is_duplicate(error) {
            if inside_twin.contains(&span.start) {
                continue;
            }
            if line_of(text, span.start).starts_with('[') {
                let rest = text.get(span.start..).unwrap_or_default();
                inside_twin = span.start..rest.find("\n[").map_or(text.len(), |length| span.start + length);
            }
            report_duplicate(reading, text, tree.get_ref(), span);
        } else {
            let (message, help) = words(error.message());
            let diagnostic = Diagnostic::error_at(&reading.place(span), format!("syntax: {message}"));
            reading.report(diagnostic.help_if(help.map(str::to_owned)));
        }
    }
    Parsed { tree, garbled }
}

/// Of a line like `to: "done"`: where its colon is, and how it is written right.
fn colon(text: &str, offset: usize) -> Option<(usize, String)> {
    let line = line_of(text, offset);
    let (key, value) = line.split_once(':')?;
    let is_key =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let value = value.trim();
    // `line` is a part of `text`, so the difference of their addresses is its place there.
    let at = line.as_ptr() as usize - text.as_ptr() as usize + key.len();
    (is_key && !value.is_empty()).then(|| (at, format!("write `{key} = {value}`")))
}

fn is_duplicate(error: &Error) -> bool {
    error.message() == "duplicate key"
}

/// Whether the parser goes on after it as if nothing had been: the tree around it is right.
fn is_local(error: &Error) -> bool {
    let local = ["duplicate key", "cannot extend value", "string values must be quoted"];
    local.iter().any(|start| error.message().starts_with(start))
}

/// The parser's words, or better ones for what people often do, and what to do about it.
fn words(said: &str) -> (&str, Option<&str>) {
    let helps = [
        ("key with no value", "write `key = value`"),
        ("unclosed table", "close the header with `]`"),
        ("unclosed array", "close the list with `]`"),
        (
            "invalid unquoted key",
            "use ASCII letters, digits, `_` and `-`, as in all names; a key inside `config` may have others, in quotes",
        ),
    ];
    if said.starts_with("string values must be quoted") {
        return ("a text stands in quotes", Some("put it in quotes: `\"…\"`"));
    }
    if said.contains("string, expected") {
        return (said, Some("close the text with the quote that it starts with"));
    }
    (said, helps.iter().find(|(start, _)| said.starts_with(start)).map(|(_, help)| *help))
}

fn report_duplicate(reading: &mut ParseContext<'_>, text: &str, tree: &DeTable<'_>, span: Range<usize>) {
    let written = text.get(span.clone()).unwrap_or_default();
    let diagnostic =
        Diagnostic::error_at(&reading.place(span.clone()), format!("`{written}` is given twice"));
    let diagnostic = match first_of_two(text, tree, span) {
        Some(first) => diagnostic.related(reading.place(first), "first here"),
        None => diagnostic,
    };
    reading.report(diagnostic.help("keep one of them, or give one another name"));
}

/// Where the key at `span`, which is there twice, is for the first time. `None` in tables in braces
/// and elsewhere where that is not easily said.
fn first_of_two(text: &str, tree: &DeTable<'_>, span: Range<usize>) -> Option<Range<usize>> {
    let line = line_of(text, span.start);
    let above = text.get(..span.start)?;
    if line.starts_with('[') {
        // The tree has the place of the second one.
        let header = line.split_inclusive(']').next()?;
        let inside = span.start - above.rfind('[')?;
        let start = text.find(header)? + header.rfind('[')? + inside;
        let first = start..start + span.len();
        return (start < span.start && text.get(first.clone()) == text.get(span)).then_some(first);
    }
    let header = above.lines().rev().map(str::trim_start).find(|line| line.starts_with('['));
    let path = header.and_then(|line| line.trim_start_matches('[').split(']').next()).unwrap_or_default();
    let mut table = tree;
    for part in path.split('.').map(str::trim).filter(|part| !part.is_empty()) {
        table = table.get(part)?.get_ref().as_table()?;
    }
    let (key, _) = table.get_key_value(text.get(span.clone())?)?;
    (key.span() != span).then(|| key.span())
}

/// The line around `offset`, without blanks before it.
fn line_of(text: &str, offset: usize) -> &str {
    let start = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim_start()
}
