//! Interpolation: replaces `${NAME}`, `${NAME:-default}` and `${file:PATH}` inside texts, and a text that is one
//! `${NAME:int}` by a number.
//!
//! It works on a parsed text, so that an inserted value can never change the structure of a file, and is not
//! interpolated again. It never quotes an inserted value, which may be a secret.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Number, Value as Json};

use super::instance::{Instance, Parameter, is_of_instance};
use crate::diagnostic::files::read_text;

/// Returns the value of an environment variable.
pub type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The variables of the environment, and which of them were asked for.
pub(crate) struct Environment<'a> {
    lookup: &'a Lookup,
    asked: RefCell<BTreeMap<String, Option<String>>>,
}

impl<'a> Environment<'a> {
    pub(crate) fn new(lookup: &'a Lookup) -> Self {
        Self { lookup, asked: RefCell::default() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let value = (self.lookup)(name);
        self.asked.borrow_mut().insert(name.to_owned(), value.clone());
        value
    }

    /// All variables that were asked for, with their values; `None`: it was not set.
    pub(crate) fn into_asked(self) -> BTreeMap<String, Option<String>> {
        self.asked.into_inner()
    }
}

/// A text with all values inserted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Interpolated {
    pub(crate) value: String,
    /// The ranges of inserted values, in order.
    pub(crate) outside: Vec<Range<usize>>,
    pub(crate) mistakes: Vec<InterpolationError>,
    /// It has a `${file:…}`.
    pub(crate) reads_files: bool,
    /// Files of `${file:…}` that cannot be read.
    pub(crate) unread: Vec<PathBuf>,
}

/// The error of one `${…}`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InterpolationError {
    /// Bytes of the text.
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: String,
    /// The variable or the file is missing.
    pub(crate) unset: bool,
}

/// The sources of values: variables, and files relative to `folder`.
#[derive(Clone, Copy)]
pub(crate) struct ValueSources<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) env: &'a Environment<'a>,
    /// The instance of `${each}` and `${each.NAME}`.
    pub(crate) each: Option<&'a Instance>,
}

/// A kind of value in `${NAME:KIND}`.
struct ValueKind {
    word: &'static str,
    /// With its article, and an example.
    shown: (&'static str, &'static str),
    read: fn(&str) -> Option<Json>,
}

const KINDS: [ValueKind; 3] = [
    ValueKind { word: "int", shown: ("an integer", "60"), read: integer },
    ValueKind { word: "float", shown: ("a number", "0.5"), read: float },
    ValueKind { word: "bool", shown: ("a boolean", "true"), read: |text| text.parse().map(Json::Bool).ok() },
];

fn integer(text: &str) -> Option<Json> {
    let signed = text.parse::<i64>().map(Number::from);
    signed.or_else(|_| text.parse::<u64>().map(Number::from)).map(Json::Number).ok()
}

fn float(text: &str) -> Option<Json> {
    text.parse().ok().and_then(Number::from_f64).map(Json::Number)
}

/// Name, kind and default of `NAME:KIND` or `NAME:KIND:-default`.
fn of_kind(inner: &str) -> Option<(&str, &'static ValueKind, Option<&str>)> {
    let (head, default) = match inner.split_once(":-") {
        Some((head, default)) => (head, Some(default)),
        None => (inner, None),
    };
    // `${file:int}` is a file called `int`.
    let (name, word) = head
        .split_once(':')
        .filter(|(name, _)| is_variable(name.strip_prefix("each.").unwrap_or(name)) && *name != "file")?;
    Some((name, KINDS.iter().find(|kind| kind.word == word)?, default))
}

impl ValueSources<'_> {
    /// The value of a text that is one `${NAME:KIND}`, perhaps with a default; `None`: it is another text. The
    /// message of an error does not contain the variable, which may be a secret.
    pub(crate) fn typed(self, text: &str) -> Option<Result<Json, InterpolationError>> {
        let inner = text.strip_prefix("${")?.strip_suffix('}')?;
        let (name, kind, default) = of_kind(inner)?;
        let set = if is_of_instance(name) {
            match self.of_instance(name) {
                Ok(parameter) => Some(parameter.value),
                Err((message, help)) => {
                    return Some(Err(InterpolationError {
                        span: 0..text.len(),
                        message,
                        help,
                        unset: false,
                    }));
                }
            }
        } else {
            self.env.get(name)
        };
        let set = set.filter(|value| default.is_none() || !value.is_empty());
        let (what, example) = kind.shown;
        let fault = match (&set, default) {
            (Some(_), _) => (
                format!("the variable `{name}` must be {what}"),
                format!("set it to a value such as `{example}` in the environment"),
            ),
            (None, Some(default)) => (
                format!("the default of `{name}` must be {what}, but is `{default}`"),
                format!("write a default such as `${{{name}:{}:-{example}}}`", kind.word),
            ),
            (None, None) => (
                format!("the variable `{name}` is not set"),
                format!(
                    "set it in the environment, or give a default: `${{{name}:{}:-{example}}}`",
                    kind.word
                ),
            ),
        };
        let value = set.as_deref().or(default).and_then(kind.read);
        let (message, help) = fault;
        let unset = set.is_none() && default.is_none();
        Some(value.ok_or(InterpolationError { span: 0..text.len(), message, help, unset }))
    }

    /// Inserts all values, or returns every error.
    pub(crate) fn interpolate(self, text: &str) -> Interpolated {
        let mut done = Interpolated::default();
        let mut rest = 0;
        while let Some(found) = text[rest..].find("${") {
            let start = rest + found;
            if text[rest..start].ends_with('$') {
                // `$${` is a literal `${`: one of the two dollars is removed.
                done.value.push_str(&text[rest..start]);
                done.value.push('{');
                rest = start + 2;
                continue;
            }
            done.value.push_str(&text[rest..start]);
            let Some(length) = text[start..].find('}') else {
                done.mistakes.push(InterpolationError {
                    span: start..text.len(),
                    message: "this `${` is not closed".into(),
                    help: "close it with `}`, or write `$${` for a literal `${`".into(),
                    unset: false,
                });
                return done;
            };
            rest = start + length + 1;
            let inner = &text[start + 2..rest - 1];
            let file = inner.strip_prefix("file:");
            done.reads_files |= file.is_some();
            match self.answer(inner) {
                Ok(ValueLookup { value, from_outside }) => {
                    let start = done.value.len();
                    done.value.push_str(&value);
                    if from_outside {
                        done.outside.push(start..done.value.len());
                    }
                }
                Err((message, help, unset)) => {
                    let named = file.filter(|path| !path.is_empty());
                    done.unread.extend(named.map(|path| self.folder.join(path)));
                    done.mistakes.push(InterpolationError { span: start..rest, message, help, unset });
                }
            }
        }
        done.value.push_str(&text[rest..]);
        done
    }

    /// The value of `inner`, or message and help, and whether its variable or file is missing.
    fn answer(self, inner: &str) -> Result<ValueLookup, (String, String, bool)> {
        if let Some(path) = inner.strip_prefix("file:") {
            return self.file(path);
        }
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if let Some((name, kind, _)) = of_kind(inner) {
            let word = kind.word;
            return Err((
                format!("`${{{name}:{word}}}` must be the whole text of a value in `config`"),
                "write `${NAME}` to insert a text".into(),
                false,
            ));
        }
        if is_of_instance(name) {
            let found = self.of_instance(name).map_err(|(message, help)| (message, help, false))?;
            return Ok(ValueLookup { value: found.value, from_outside: found.secret });
        }
        if !is_variable(name) {
            return Err((
                format!("`{name}` is not a name of a variable"),
                "write `${NAME}`, `${NAME:-default}` or `${file:PATH}`, or `$${` for a literal `${`".into(),
                false,
            ));
        }
        // As in a shell, a default also replaces an empty variable.
        match (self.env.get(name), default) {
            (Some(value), None) => Ok(ValueLookup { value, from_outside: true }),
            (Some(value), Some(_)) if !value.is_empty() => Ok(ValueLookup { value, from_outside: true }),
            (_, Some(default)) => Ok(ValueLookup { value: default.into(), from_outside: false }),
            (None, None) => Err((
                format!("the variable `{name}` is not set"),
                format!("set it in the environment, or give a default: `${{{name}:-default}}`"),
                true,
            )),
        }
    }

    fn of_instance(self, name: &str) -> Result<Parameter, (String, String)> {
        match self.each {
            Some(instance) => instance.get(name),
            None => Err((
                format!("`${{{name}}}` has no value: the file has no `[pipeline.each]`"),
                "add it with a line for each instance, such as `eu = { url = \"…\" }`".into(),
            )),
        }
    }

    /// The text of a file without the line break at its end, which editors add.
    fn file(self, path: &str) -> Result<ValueLookup, (String, String, bool)> {
        if path.is_empty() {
            return Err(("`${file:}` must name a file".into(), "write `${file:PATH}`".into(), false));
        }
        match read_text(&self.folder.join(path)) {
            Ok(text) => {
                let value = text.strip_suffix('\n').unwrap_or(&text);
                let value = value.strip_suffix('\r').unwrap_or(value);
                Ok(ValueLookup { value: value.into(), from_outside: true })
            }
            Err(error) => Err((
                format!("the file `{path}` {error}"),
                "a path in `${file:PATH}` is relative to the file that names it".into(),
                true,
            )),
        }
    }
}

struct ValueLookup {
    value: String,
    from_outside: bool,
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Debug for ValueSources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").field("folder", &self.folder).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpolate(text: &str) -> Interpolated {
        let env = |name: &str| match name {
            "WHO" => Some("world".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${WHO}\"]".to_owned()),
            _ => None,
        };
        ValueSources { folder: Path::new("nowhere"), env: &Environment::new(&env), each: None }
            .interpolate(text)
    }

    #[test]
    fn variables_and_defaults_are_put_in() {
        let cases = [
            ("hello ${WHO}!", "hello world!"),
            ("${WHO}${WHO}", "worldworld"),
            ("${NONE:-a b}", "a b"),
            ("${EMPTY:-x}", "x"),
            ("[${EMPTY}]", "[]"),
            ("${NONE:-}", ""),
            ("$${WHO} costs $5 {}", "${WHO} costs $5 {}"),
            ("$$${WHO}", "$${WHO}"),
            // Inserted values are not interpolated again.
            ("${TRICK}", "${WHO}\"]"),
        ];
        for (text, value) in cases {
            let done = interpolate(text);
            assert_eq!((done.value.as_str(), done.mistakes), (value, vec![]), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_one_variable_of_a_kind_becomes_a_value() {
        let typed = |text: &str| {
            let env = |name: &str| match name {
                "PRICE" => Some("60".to_owned()),
                "RATE" => Some("-0.5".to_owned()),
                "ON" => Some("true".to_owned()),
                "SECRET" => Some("s3cret".to_owned()),
                "EMPTY" => Some(String::new()),
                _ => None,
            };
            let typed =
                ValueSources { folder: Path::new("nowhere"), env: &Environment::new(&env), each: None }
                    .typed(text)?;
            Some(typed.map_or_else(|error| error.message, |value| value.to_string()))
        };
        for (text, value) in [
            ("${PRICE:int}", Some("60")),
            ("${PRICE:float}", Some("60.0")),
            ("${RATE:float}", Some("-0.5")),
            ("${ON:bool}", Some("true")),
            ("${NONE:int:-7}", Some("7")),
            ("${EMPTY:int:-18446744073709551615}", Some("18446744073709551615")),
            ("${NONE:bool:-false}", Some("false")),
            ("${RATE:int}", Some("the variable `RATE` must be an integer")),
            ("${SECRET:float:-1}", Some("the variable `SECRET` must be a number")),
            ("${PRICE:bool}", Some("the variable `PRICE` must be a boolean")),
            ("${NONE:int}", Some("the variable `NONE` is not set")),
            ("${NONE:int:-x}", Some("the default of `NONE` must be an integer, but is `x`")),
            ("${PRICE}", None),
            ("${PRICE:-5}", None),
            ("${PRICE:text}", None),
            ("${PRICE:int} ${PRICE:int}", None),
            ("$${PRICE:int}", None),
            ("${file:int}", None),
        ] {
            assert_eq!(typed(text).as_deref(), value, "{text}");
        }
        let within = interpolate("at most ${WHO:int}");
        assert_eq!(within.mistakes[0].message, "`${WHO:int}` must be the whole text of a value in `config`");
    }

    #[test]
    fn only_what_comes_from_outside_is_kept_quiet() {
        assert_eq!(interpolate("a ${WHO}${EMPTY}${NONE:-x} ${WHO}").outside, [2..7, 7..7, 9..14]);
        assert_eq!(interpolate("${NONE:-x}").outside, Vec::<Range<usize>>::new());
        assert_eq!(interpolate("$${WHO}").outside, Vec::<Range<usize>>::new());
    }

    #[test]
    fn every_mistake_has_its_own_place() {
        let done = interpolate("a ${NONE} ${} ${1x} ${file:} ${file:gone} ${WHO");
        let places: Vec<_> = done.mistakes.iter().map(|it| (it.span.clone(), it.message.as_str())).collect();
        insta::assert_debug_snapshot!(places);
    }
}
