//! `Template`: a text with `{path.to.field}` parts, which are filled from each job.
//!
//! `{{` and `}}` are literal braces. `{ctx.hash}` and its siblings are facts of the attempt. This module does
//! not depend on jobs: the code that fills a template also escapes its values.

use std::fmt;
use std::ops::Range;

use super::suggest::{did_you_mean, listed};
use super::{FieldPath, Secret};

/// A text that is filled for each job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    Text(String),
    /// A text that is not in the configuration files.
    Secret(Secret),
    Field(FieldPath),
    Fact(Fact),
}

/// The facts of an attempt beside its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    Hash,
    Attempt,
    Index,
    Now,
    Pipeline,
    Step,
    Token,
}

const FACTS: [(&str, Fact); 7] = [
    ("hash", Fact::Hash),
    ("attempt", Fact::Attempt),
    ("index", Fact::Index),
    ("now", Fact::Now),
    ("pipeline", Fact::Pipeline),
    ("step", Fact::Step),
    ("token", Fact::Token),
];

/// One error in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateMistake {
    /// Bytes of the text.
    pub span: Range<usize>,
    pub message: String,
    pub help: String,
}

impl Template {
    /// Parses `text`. The ranges `secrets`, in order, are literal, braces included.
    ///
    /// # Errors
    /// Every error in it.
    pub fn parse(text: &str, secrets: &[Range<usize>]) -> Result<Self, Vec<TemplateMistake>> {
        let mut parser = Parser::default();
        let mut from = 0;
        for secret in secrets {
            parser.plain(text, from..secret.start);
            parser.secret(&text[secret.clone()], secret);
            from = secret.end;
        }
        parser.plain(text, from..text.len());
        parser.finish(text.len())
    }

    /// The text itself, in which braces have no meaning. The ranges `secrets` are in order.
    #[must_use]
    pub fn fixed(text: &str, secrets: &[Range<usize>]) -> Self {
        let plain =
            |range: Range<usize>| (!range.is_empty()).then(|| TemplatePart::Text(text[range].to_owned()));
        let (mut parts, mut from) = (Vec::new(), 0);
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            parts.extend(plain(from..secret.start));
            parts.push(TemplatePart::Secret(Secret::new(&text[secret.clone()])));
            from = secret.end;
        }
        parts.extend(plain(from..text.len()));
        Self { parts }
    }

    /// The text with its secrets, if it is the same for every job.
    #[must_use]
    pub fn reveal(&self) -> Option<String> {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => Some(text.clone()),
            TemplatePart::Secret(secret) => Some(secret.reveal().to_owned()),
            TemplatePart::Field(_) | TemplatePart::Fact(_) => None,
        };
        self.parts.iter().map(part).collect()
    }

    #[must_use]
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// Whether it is the same for every job.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, TemplatePart::Text(_) | TemplatePart::Secret(_)))
    }

    /// Whether it contains this fact of an attempt.
    #[must_use]
    pub fn has(&self, fact: Fact) -> bool {
        self.parts.contains(&TemplatePart::Fact(fact))
    }

    /// The parts that must not be shown.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.parts
            .iter()
            .filter_map(|part| if let TemplatePart::Secret(secret) = part { Some(secret) } else { None })
    }
}

/// The text for display, with `…` for secrets.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            TemplatePart::Text(text) => f.write_str(text),
            TemplatePart::Secret(_) => f.write_str("…"),
            TemplatePart::Field(path) => write!(f, "{{{path}}}"),
            TemplatePart::Fact(fact) => {
                let word = FACTS.iter().find(|(_, other)| other == fact).map_or("", |(word, _)| *word);
                write!(f, "{{ctx.{word}}}")
            }
        })
    }
}

#[derive(Default)]
struct Parser {
    parts: Vec<TemplatePart>,
    mistakes: Vec<TemplateMistake>,
    /// The position of an unclosed brace, and the text after it so far.
    open: Option<(usize, String)>,
}

impl Parser {
    /// Parses the part of `text` at `range`, which comes from the file.
    fn plain(&mut self, text: &str, range: Range<usize>) {
        let mut letters = text[range.clone()].char_indices().map(|(at, c)| (range.start + at, c)).peekable();
        while let Some((at, letter)) = letters.next() {
            let doubled = letters.peek().is_some_and(|(_, next)| *next == letter);
            match (&mut self.open, letter) {
                (None, '{' | '}') if doubled => {
                    letters.next();
                    self.push(letter);
                }
                (None, '{') => self.open = Some((at, String::new())),
                (None, '}') => {
                    let help = "write `}}` for a literal `}`";
                    self.mistake(at..at + 1, "this `}` has no opening `{`".into(), help.into());
                }
                (None, letter) => self.push(letter),
                (Some((start, inner)), '}') => {
                    let (start, inner) = (*start, std::mem::take(inner));
                    self.open = None;
                    self.field(&inner, start..at + 1);
                }
                (Some((_, inner)), letter) => inner.push(letter),
            }
        }
    }

    fn secret(&mut self, text: &str, range: &Range<usize>) {
        if let Some((start, _)) = self.open.take() {
            let help =
                "a value of a variable or secret cannot be the name of a field; write `{{` for a literal `{`";
            self.mistake(
                start..range.end,
                "this `{` is not closed before the next value".into(),
                help.into(),
            );
        }
        if !text.is_empty() {
            self.parts.push(TemplatePart::Secret(Secret::new(text)));
        }
    }

    fn finish(mut self, end: usize) -> Result<Template, Vec<TemplateMistake>> {
        if let Some((start, _)) = self.open.take() {
            let help = "close it with `}`, or write `{{` for a literal `{`";
            self.mistake(start..end, "this `{` is not closed".into(), help.into());
        }
        if self.mistakes.is_empty() { Ok(Template { parts: self.parts }) } else { Err(self.mistakes) }
    }

    fn push(&mut self, letter: char) {
        if let Some(TemplatePart::Text(text)) = self.parts.last_mut() {
            text.push(letter);
        } else {
            self.parts.push(TemplatePart::Text(letter.into()));
        }
    }

    fn field(&mut self, inner: &str, span: Range<usize>) {
        if !inner.split('.').all(is_key) || inner == "ctx" {
            let help = "write `{field}`, or `{path.to.field}`, or `{{` for a literal `{`";
            self.mistake(span, format!("`{{{inner}}}` is not the name of a field"), help.into());
            return;
        }
        let part = match inner.strip_prefix("ctx.") {
            Some(word) => {
                FACTS.iter().find(|(fact, _)| *fact == word).map(|(_, fact)| TemplatePart::Fact(*fact))
            }
            None => FieldPath::parse(inner).map(TemplatePart::Field),
        };
        match part {
            Some(part) => self.parts.push(part),
            None => self.no_fact(inner.strip_prefix("ctx.").unwrap_or(inner), span),
        }
    }

    fn no_fact(&mut self, word: &str, span: Range<usize>) {
        let facts = FACTS.iter().map(|(fact, _)| *fact);
        let help = did_you_mean(word, facts.clone());
        let help = help.unwrap_or_else(|| format!("`ctx` has {}", listed(facts, "and")));
        self.mistake(span, format!("`{word}` is unknown in `ctx`"), help);
    }

    fn mistake(&mut self, span: Range<usize>, message: String, help: String) {
        self.mistakes.push(TemplateMistake { span, message, help });
    }
}

/// Distinguishes a field name from text that is in braces by accident (JSON, shell, prose).
fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key.trim() == key
        && !key.contains(|c: char| c.is_control() || "{}[]()\"'`,:;|<>\\".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(path: &[&str]) -> TemplatePart {
        TemplatePart::Field(FieldPath::parse(&path.join(".")).unwrap())
    }

    #[test]
    fn fields_and_facts_stand_between_texts() {
        let template = Template::parse("a/{order.id}/{items.0}?h={ctx.hash}", &[]).unwrap();
        let text = |text: &str| TemplatePart::Text(text.into());
        let expected = [
            text("a/"),
            field(&["order", "id"]),
            text("/"),
            field(&["items", "0"]),
            text("?h="),
            TemplatePart::Fact(Fact::Hash),
        ];
        assert_eq!(template.parts(), expected);
        assert_eq!(template.to_string(), "a/{order.id}/{items.0}?h={ctx.hash}");
    }

    #[test]
    fn doubled_braces_are_literal() {
        let template = Template::parse("{{\"a\": {a}}}", &[]).unwrap();
        assert_eq!(
            template.parts(),
            [TemplatePart::Text("{\"a\": ".into()), field(&["a"]), TemplatePart::Text("}".into())]
        );
        assert!(Template::parse("{{}}", &[]).unwrap().is_fixed());
    }

    #[test]
    fn what_comes_from_outside_is_no_template_and_is_not_shown() {
        let template = Template::parse("Bearer {a}b{c", &[7..10, 11..13]).unwrap();
        assert_eq!(template.to_string(), "Bearer …b…");
        assert_eq!(template.secrets().map(Secret::reveal).collect::<Vec<_>>(), ["{a}", "{c"]);
        let shown = format!("{template:?}");
        assert!(!shown.contains("{a}") && !shown.contains("{c"), "{shown}");
        assert_ne!(shown, format!("{:?}", Template::parse("Bearer {x}b{c", &[7..10, 11..13]).unwrap()));
    }

    #[test]
    fn every_mistake_has_its_own_place() {
        let texts = ["{}", "a {b", "}", "{a..b}", "{a: 1}", "{ctx.hsah} {ctx} {ctx.a.b}", "x{y {z} }"];
        let mistakes = texts.map(|text| {
            let mistakes = Template::parse(text, &[]).unwrap_err();
            let messages = mistakes.iter().map(|it| format!("{:?} {}; {}", it.span, it.message, it.help));
            (text, messages.collect::<Vec<_>>())
        });
        insta::assert_debug_snapshot!(mistakes);
        assert!(Template::parse("{a}", std::slice::from_ref(&(1..2))).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_as_a_template_or_refused(text in "[a-c.{}ctx]{0,12}", cut in 0_usize..12) {
            let at = cut.min(text.len());
            let _ = Template::parse(&text, &[]);
            let template = Template::parse(&text, std::slice::from_ref(&(0..at)));
            if let Ok(template) = template {
                let secret: String = template.secrets().map(Secret::reveal).collect();
                proptest::prop_assert_eq!(secret, &text[..at]);
            }
        }
    }
}
