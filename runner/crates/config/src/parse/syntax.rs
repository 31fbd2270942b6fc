//! Syntax: parses a text into a TOML tree, and explains its syntax errors.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, Error};

use super::context::ParseContext;
use crate::diagnostic::Diagnostic;

/// A tree, and its reliability.
pub(crate) struct Parsed<'t> {
    pub(crate) tree: Spanned<DeTable<'t>>,
    /// A syntax error may have moved keys into other tables, so that further errors of the tree would be
    /// confusing.
    pub(crate) garbled: bool,
}

/// Parses `text`, the text of the file of `reading`, as far as possible.
pub(crate) fn parse<'t>(reading: &mut ParseContext<'_>, text: &'t str) -> Parsed<'t> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let garbled = errors.iter().any(|error| !is_local(error));
    // A repeated table is merged, so that its keys seem to be repeated as well.
    let mut inside_twin = 0..0;
    let mut colons = BTreeSet::new();
    // The beginnings of the lines with an error. Further errors in them mostly follow from the first.
    let mut wrong = BTreeSet::new();
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        if !is_local(error) && !wrong.insert(line_start(text, span.start)) {
            continue;
        }
        if let Some((at, help)) = colon(text, span.start) {
            // The parser reports an error for each part of such a line.
            if colons.insert(at) {
                let diagnostic =
                    Diagnostic::error_at(&reading.place(at..at + 1), "syntax: a key must be followed by `=`");
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
        } else if let Some((at, help)) = decimal_comma(text, span.start) {
            let message = "syntax: a number cannot have a comma";
            reading.report(Diagnostic::error_at(&reading.place(at), message).help(help));
        } else {
            let (mut message, mut help) = words(error.message());
            if error.message().starts_with(NO_QUOTES) && is_blank(rest_of_line(text, span.start)) {
                (message, help) = ("a value is missing", Some("write `key = value`"));
            }
            if message.starts_with("missing comma") && quotes(line_of(text, span.start)) % 2 == 1 {
                help = Some("a quote is missing in this line: a text has one at both ends");
            }
            let diagnostic = Diagnostic::error_at(&reading.place(span), format!("syntax: {message}"));
            reading.report(diagnostic.help_if(help.map(str::to_owned)));
        }
    }
    Parsed { tree, garbled }
}

/// The colon in a line like `to: "done"`, and the right form of the line.
fn colon(text: &str, offset: usize) -> Option<(usize, String)> {
    let line = line_of(text, offset);
    let (key, value) = line.split_once(':')?;
    let is_key =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let value = value.trim();
    // `line` is a part of `text`, so the difference of their addresses is its position.
    let at = line.as_ptr() as usize - text.as_ptr() as usize + key.len();
    (is_key && !value.is_empty()).then(|| (at, format!("write `{key} = {value}`")))
}

/// A value like `0,2` on the line of an error, and the right form of it.
fn decimal_comma(text: &str, offset: usize) -> Option<(Range<usize>, String)> {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let start = line_start(text, offset);
    let line = text.get(start..)?.lines().next()?;
    let bytes = line.as_bytes();
    let (comma, _) = line.match_indices(',').find(|&(at, _)| {
        let digits = bytes[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let before = line[..at - digits].trim_end_matches(['-', '+']).trim_end();
        let is_value = before.ends_with('=') && quotes(before).is_multiple_of(2) && !before.contains('#');
        digits > 0 && is_value && is_digit(bytes.get(at + 1))
    })?;
    let first = line[..comma].rfind('=')? + 1;
    let first = first + line[first..].len() - line[first..].trim_start().len();
    let rest = line[comma + 1..].bytes().take_while(u8::is_ascii_digit).count();
    let end = comma + 1 + rest;
    let number = &line[first..end];
    let with_point = format!("write `{}`", number.replace(',', "."));
    let help =
        if rest == 3 { format!("{with_point}, or `{}`", number.replace(',', "_")) } else { with_point };
    (offset >= start + first).then(|| (start + first..start + end, help))
}

/// The parser's message for a text without quotes, and for a missing value.
const NO_QUOTES: &str = "string values must be quoted";

fn rest_of_line(text: &str, at: usize) -> &str {
    text.get(at..).and_then(|rest| rest.split('\n').next()).unwrap_or_default()
}

/// Whether it has at most a comment.
fn is_blank(rest: &str) -> bool {
    rest.trim_start().is_empty() || rest.trim_start().starts_with('#')
}

/// Number of quotes that begin or end a text.
fn quotes(line: &str) -> usize {
    line.matches('"').count() - line.matches("\\\"").count()
}

fn is_duplicate(error: &Error) -> bool {
    error.message() == "duplicate key"
}

/// Whether the tree around the error is still right.
fn is_local(error: &Error) -> bool {
    let local = ["duplicate key", "cannot extend value", NO_QUOTES];
    local.iter().any(|start| error.message().starts_with(start))
}

/// The parser's message, or a better one for frequent errors, and its fix.
fn words(message: &str) -> (&str, Option<&str>) {
    let helps = [
        ("key with no value", "write `key = value`"),
        ("unclosed table", "close the header with `]`"),
        ("unclosed array", "close the list with `]`"),
        (
            "invalid unquoted key",
            "use ASCII letters, digits, `_` and `-`, as in all names; quote a key with other characters, inside `config` only",
        ),
    ];
    if message.starts_with(NO_QUOTES) {
        return ("a text must be in quotes", Some("put it in quotes: `\"…\"`"));
    }
    if message.contains("string, expected") {
        return (message, Some("close the text with the quote that it starts with"));
    }
    (message, helps.iter().find(|(start, _)| message.starts_with(start)).map(|(_, help)| *help))
}

fn report_duplicate(reading: &mut ParseContext<'_>, text: &str, tree: &DeTable<'_>, span: Range<usize>) {
    let written = text.get(span.clone()).unwrap_or_default();
    let diagnostic = Diagnostic::error_at(&reading.place(span.clone()), format!("`{written}` occurs twice"));
    let diagnostic = match first_of_two(text, tree, span) {
        Some(first) => diagnostic.related(reading.place(first), "first here"),
        None => diagnostic,
    };
    reading.report(diagnostic.help("keep one of them, or give one another name"));
}

/// The first occurrence of the repeated key at `span`. `None` in inline tables and other complex cases.
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
    text.get(line_start(text, offset)..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim_start()
}

fn line_start(text: &str, offset: usize) -> usize {
    text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1)
}
