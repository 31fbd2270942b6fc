//! `Piece`: one comment or one string of a Rust or C file, with the line of each of its words.

/// Ends a sentence where the text has no mark: an empty line, a list item, a line break in a string.
pub(crate) const BREAK: char = '\u{2029}';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text of whole sentences.
    Comment,
    String,
    /// Heading, or part of a list of options: it may begin with any word.
    Title,
}

/// A comment of one or more lines, or a string.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    /// The line on which the text begins.
    pub(crate) line: usize,
    /// One `\n` per line of the file, so that a place in the text has a line.
    pub(crate) text: String,
}

impl Piece {
    /// The line of the file that holds the byte `at` of the text.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.line + self.text[..at].matches('\n').count()
    }
}

/// The comments and strings of a file, in their order.
pub(crate) fn pieces(source: &str) -> Vec<Piece> {
    let mut lexer = Lexer::read(source);
    for piece in &mut lexer.pieces {
        piece.text = without_code(&piece.text);
    }
    lexer.pieces
}

/// The names in the code of a file, each with its line.
pub(crate) fn names(source: &str) -> Vec<(usize, &str)> {
    Lexer::read(source).names
}

/// The comments of a text whose comments begin with `mark` and end with their line. The lines of a drawing are left
/// out.
pub(crate) fn comments_after(mark: &str, text: &str) -> Vec<Piece> {
    let mut lexer = Lexer { line: 0, ..Lexer::new("") };
    for line in text.lines() {
        lexer.line += 1;
        let own = line.trim_start().strip_prefix(mark);
        let behind = line.split_once(&format!(" {mark} ")).map(|(_, comment)| comment);
        if let Some(comment) = own.or(behind).filter(|comment| !comment.contains('─')) {
            lexer.comment(comment.trim_start_matches(['/', '#']));
        }
    }
    for piece in &mut lexer.pieces {
        piece.text = without_code(&piece.text);
    }
    lexer.pieces
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    pieces: Vec<Piece>,
    names: Vec<(usize, &'a str)>,
    /// The line of the last comment, which the next line continues unless it begins with code.
    comment_ends: usize,
}

impl<'a> Lexer<'a> {
    fn new(source: &'a str) -> Self {
        Self { rest: source, line: 1, pieces: Vec::new(), names: Vec::new(), comment_ends: 0 }
    }

    fn read(source: &'a str) -> Self {
        let mut lexer = Self::new(source);
        while !lexer.rest.is_empty() {
            lexer.step();
        }
        lexer
    }

    fn step(&mut self) {
        let rest = self.rest;
        if rest.starts_with("//") {
            let text = rest.split('\n').next().unwrap_or(rest);
            self.comment(text.trim_start_matches(['/', '!']));
            self.skip(text.len());
        } else if rest.starts_with("/*") {
            let text = rest.split_inclusive("*/").next().unwrap_or(rest);
            for line in text.trim_start_matches("/*").trim_end_matches("*/").split('\n') {
                self.comment(line.trim_start_matches([' ', '*']));
                self.line += 1;
            }
            self.line -= 1;
            self.rest = &rest[text.len()..];
        } else if let Some(hashes) = raw_string(rest) {
            self.raw(hashes);
        } else if rest.starts_with('"') {
            self.string();
        } else if rest.starts_with('\'') {
            self.skip(char_literal(rest));
        } else {
            let name = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let first = rest.chars().next().map_or(1, char::len_utf8);
            if !rest.starts_with(char::is_whitespace) {
                self.comment_ends = 0;
            }
            if name > 0 {
                self.names.push((self.line, &rest[..name]));
            }
            self.skip(name.max(first));
        }
    }

    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.rest.split_at(bytes);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }

    /// Continues the comment of the line above, or begins one.
    fn comment(&mut self, text: &str) {
        let continues = self.line == self.comment_ends + 1;
        match self.pieces.last_mut() {
            Some(piece) if piece.kind == Kind::Comment && continues => {
                piece.text.push('\n');
                piece.text.push_str(text);
            }
            _ => self.pieces.push(Piece { kind: Kind::Comment, line: self.line, text: text.to_owned() }),
        }
        self.comment_ends = self.line;
    }

    fn raw(&mut self, hashes: usize) {
        let begin = self.rest.find('"').unwrap_or(0) + 1;
        let end = format!("\"{}", "#".repeat(hashes));
        let text: &'a str = self.rest[begin..].split(end.as_str()).next().unwrap_or_default();
        let lines = text.replace('\n', &format!("{BREAK}\n"));
        self.pieces.push(Piece { kind: Kind::String, line: self.line, text: lines });
        self.skip((begin + text.len() + end.len()).min(self.rest.len()));
    }

    fn string(&mut self) {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        let mut end = self.rest.len();
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match chars.next() {
                    Some((_, '\n')) => text.push('\n'),
                    Some((_, 'n' | 't' | 'r')) => text.push(BREAK),
                    Some((_, other)) => text.push(other),
                    None => {}
                },
                other => text.push(other),
            }
        }
        self.pieces.push(Piece { kind: Kind::String, line: self.line, text });
        self.skip(end);
    }
}

/// The number of hashes of a raw string that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let rest = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a character literal, or of the quote of a lifetime.
fn char_literal(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let Some((_, first)) = chars.next() else { return 1 };
    if first == '\\' {
        let _escaped = chars.next();
        return chars.find(|(_, char)| *char == '\'').map_or(1, |(at, _)| at + 1);
    }
    match chars.next() {
        Some((at, '\'')) => at + 1,
        _ => 1,
    }
}

/// Each span of code is a backtick, a link is its text, and a block of code is left out.
pub(crate) fn without_code(text: &str) -> String {
    let mut lines = Vec::new();
    let mut fenced = false;
    for line in text.split('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            fenced = !fenced;
            lines.push(BREAK.to_string());
        } else if fenced {
            lines.push(String::new());
        } else if trimmed.is_empty() || trimmed.starts_with(['-', '|', '#', '*', '=']) {
            let cells = line.replace(" | ", &format!(" {BREAK} "));
            let facts =
                if trimmed.starts_with('|') { cells.replace("; ", &format!("; {BREAK}")) } else { cells };
            lines.push(format!("{BREAK}{facts}"));
        } else {
            lines.push(line.to_owned());
        }
    }
    let text = lines.join("\n");
    let mut prose = String::new();
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once('`') {
        prose.push_str(before);
        prose.push('`');
        let (code, behind) = behind.split_once('`').unwrap_or((behind, ""));
        prose.extend(code.chars().filter(|char| *char == '\n'));
        rest = behind;
    }
    prose.push_str(rest);
    let mut linked = String::new();
    let mut rest = prose.as_str();
    while let Some((before, behind)) = rest.split_once("](") {
        linked.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    linked.push_str(rest);
    linked.replace(['[', ']'], "").replace("**", "")
}

#[test]
fn comments_and_strings_are_found_with_their_lines() {
    let source = "//! First\n//! line.\nfn f<'a>(c: 'x', d: '\"') { // why\n    g(\"a \\\n      b\\nc\", r#\"raw \"q\"\n`code` \"#);\n}\n/* block\n * two */\n";
    let found: Vec<_> =
        pieces(source).into_iter().map(|piece| (piece.line, piece.kind, piece.text)).collect();
    assert_eq!(
        found,
        [
            (1, Kind::Comment, " First\n line.".to_owned()),
            (3, Kind::Comment, " why".to_owned()),
            (4, Kind::String, format!("a \n      b{BREAK}c")),
            (5, Kind::String, format!("raw \"q\"{BREAK}\n` ")),
            (8, Kind::Comment, "block\ntwo ".to_owned()),
        ]
    );
    assert_eq!(names(source), [(3, "fn"), (3, "f"), (3, "a"), (3, "c"), (3, "d"), (4, "g")]);
}
