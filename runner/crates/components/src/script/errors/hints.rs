//! Hints for authors: guess the intended name or syntax from the text of the script.

use rhai::{Dynamic, LexError, ParseErrorType, Position};

use crate::script::compile::scan::skipped;
use crate::script::values::frozen;
use tidegate_model::suggest::{listed, nearest};

/// Maximum number of fields in a message.
pub(crate) const SHOWN_FIELDS_MAX: usize = 12;

/// Maximum number of names that are compared with a mistyped one.
const COMPARED_MAX: usize = 1000;

/// Functions of other languages, and Rhai's equivalents.
const ELSEWHERE: [(&str, &str); 15] = [
    ("length", "len"),
    ("size", "len"),
    ("count", "len"),
    ("substr", "sub_string"),
    ("slice", "extract"),
    ("includes", "contains"),
    ("has", "contains"),
    ("has_key", "contains"),
    ("lower", "to_lower"),
    ("upper", "to_upper"),
    ("strip", "trim"),
    ("str", "to_string"),
    ("stringify", "to_json"),
    ("concat", "append"),
    ("forEach", "for_each"),
];

/// The known function that `name` most likely means.
pub(crate) fn function<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().filter(|name| is_name(name)).collect();
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == name).map(|(_, own)| *own);
    match elsewhere.filter(|own| known.contains(own)) {
        Some(own) => Some(own),
        None => nearest(name, known),
    }
}

fn is_name(name: &str) -> bool {
    name.chars().all(|char| char.is_alphanumeric() || char == '_')
}

/// The message for a syntax error, and its fix.
pub(crate) fn parsing(kind: &ParseErrorType, position: Position, text: &str) -> Option<(String, String)> {
    if begins_with("curry", position, text) {
        let help = "write a closure, which has the variables around it: `|x| scale(factor, x)`";
        return Some(("`curry` is not a function of scripts".to_owned(), help.to_owned()));
    }
    let is_reserved = match kind {
        ParseErrorType::Reserved(_) => Some(true),
        ParseErrorType::PropertyExpected | ParseErrorType::MissingToken(..) => Some(false),
        _ => None,
    };
    if let Some(hint) = is_reserved.and_then(|is_reserved| word_as_field(position, text, is_reserved)) {
        return Some(hint);
    }
    match kind {
        ParseErrorType::BadInput(LexError::MalformedChar(inside)) => Some((
            format!("`'{inside}'` is not a character"),
            format!("put a text in double quotes: `\"{inside}\"`"),
        )),
        ParseErrorType::Reserved(word) if NOTHING.contains(&&**word) => Some(nothing(word)),
        ParseErrorType::Reserved(word) => Some((no_name(word), "take another name".to_owned())),
        ParseErrorType::VariableUndefined(word) => match word.as_str() {
            "def" | "function" | "func" | "fun" | "sub" | "proc" => Some((
                format!("`{word}` does not start a function"),
                "start a function with `fn`: `fn process(job) { … }`".to_owned(),
            )),
            word if NOTHING.contains(&word) => Some(nothing(word)),
            "True" | "False" => {
                Some((format!("`{word}` is unknown"), format!("write `{}`", word.to_lowercase())))
            }
            _ => None,
        },
        ParseErrorType::MissingToken(..) if is_at_end(position, text) => {
            let (line, column) = unclosed(text)?;
            Some((
                "the script ends where a `}` is missing".to_owned(),
                format!("close the block that opens at line {line}, column {column}"),
            ))
        }
        _ => None,
    }
}

/// Words of the language for which the parser has no message of its own.
const KEYWORDS: [&str; 26] = [
    "as", "break", "catch", "const", "continue", "do", "else", "eval", "export", "false", "fn", "for", "if",
    "import", "in", "let", "loop", "private", "return", "switch", "this", "throw", "true", "try", "until",
    "while",
];

/// The message for a word of the language that is used as the name of a field.
fn word_as_field(position: Position, text: &str, is_reserved: bool) -> Option<(String, String)> {
    let (line, column) = position.line().zip(position.position())?;
    let line = text.lines().nth(line - 1)?;
    let (before, rest) = line.split_at(line.char_indices().nth(column - 1)?.0);
    let length = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
    let (word, after) = rest.split_at(length);
    let fix = match () {
        () if !is_reserved && !KEYWORDS.contains(&word) => return None,
        () if before.trim_end().ends_with('.') => format!("write `[\"{word}\"]` in place of `.{word}`"),
        () if after.trim_start().starts_with(':') => format!("put the key in quotes: `\"{word}\": …`"),
        () => return None,
    };
    Some((no_name(word), fix))
}

fn no_name(word: &str) -> String {
    format!("`{word}` is a word of the language, and no name")
}

/// The names of `()` in other languages.
const NOTHING: [&str; 7] = ["null", "NULL", "Null", "nil", "None", "none", "undefined"];

/// Whether the text has `word` at this position.
fn begins_with(word: &str, position: Position, text: &str) -> bool {
    let Some((line, column)) = position.line().zip(position.position()) else { return false };
    let characters = text.lines().nth(line - 1).into_iter().flat_map(|line| line.chars().skip(column - 1));
    characters.take_while(|char| char.is_alphanumeric() || *char == '_').eq(word.chars())
}

/// Whether only blanks follow.
fn is_at_end(position: Position, text: &str) -> bool {
    let Some((line, column)) = position.line().zip(position.position()) else { return true };
    let mut lines = text.lines().skip(line - 1);
    let rest = lines.next().and_then(|line| line.char_indices().nth(column - 1).map(|(at, _)| &line[at..]));
    rest.is_none_or(|rest| rest.trim().is_empty()) && lines.all(|line| line.trim().is_empty())
}

fn nothing(word: &str) -> (String, String) {
    (format!("`{word}` is not a value of a script"), "write `()` for an absent value or null".to_owned())
}

/// The variable that `name` most likely means, of those declared in `text` and of `given`.
pub(crate) fn variable(name: &str, text: &str, given: &[&str]) -> Option<String> {
    let declared = declared(text);
    nearest(name, declared.iter().map(String::as_str).chain(given.iter().copied())).map(str::to_owned)
}

/// Names after `let`, `const` and `for`, and of parameters.
fn declared(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|char: char| !char.is_alphanumeric() && char != '_').collect();
    let named = words.windows(2).filter(|pair| ["let", "const", "for"].contains(&pair[0]));
    let mut names: Vec<String> = named.map(|pair| pair[1].to_owned()).collect();
    for function in text.split("fn ").skip(1) {
        let parameters = function.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        names.extend(
            parameters
                .into_iter()
                .flat_map(|(inside, _)| inside.split(','))
                .map(|name| name.trim().to_owned()),
        );
    }
    names.retain(|name| !name.is_empty() && is_name(name));
    names
}

/// Line and column of the `{` that is not closed: one whose block ends further to the left than it begins, or
/// else the last that is open at the end.
fn unclosed(text: &str) -> Option<(usize, usize)> {
    struct Open {
        line: usize,
        column: usize,
        indent: usize,
    }
    let mut open: Vec<Open> = Vec::new();
    let (mut at, mut line, mut begins) = (0, 1, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let length = skipped(rest).unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8));
        let indent = || text[begins..].chars().take_while(|char| [' ', '\t'].contains(char)).count();
        match rest.as_bytes()[0] {
            b'{' => {
                let column = text[begins..at].chars().count() + 1;
                open.push(Open { line, column, indent: indent() });
            }
            b'}' => {
                let last = open.pop()?;
                let is_first = text[begins..at].trim().is_empty();
                if is_first && last.line < line && indent() < last.indent {
                    return Some((last.line, last.column));
                }
            }
            _ => {}
        }
        let passed = &rest[..length];
        if let Some(end) = passed.rfind('\n') {
            line += passed.matches('\n').count();
            begins = at + end + 1;
        }
        at += length;
    }
    open.last().map(|open| (open.line, open.column))
}

/// The expression before the field at a position of the text: `ctx.config.rates` for `ctx.config.rates.usd`.
pub(crate) fn owner(text: &str, line: usize, column: usize) -> Option<&str> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    let end = line.char_indices().nth(column.checked_sub(1)?).map_or(line.len(), |(at, _)| at);
    let before = line[..end].trim_end_matches(['.', '?', '[', ' ']);
    let start = before
        .char_indices()
        .rev()
        .take_while(|(_, char)| char.is_alphanumeric() || ['_', '.', '?', ':'].contains(char))
        .last()
        .map_or(before.len(), |(at, _)| at);
    Some(&before[start..]).filter(|owner| !owner.is_empty())
}

/// The path within `ctx.config` that `owner` names.
pub(crate) fn path_in_config(owner: &str) -> Option<Vec<&str>> {
    let mut names = owner.split('.').map(|name| name.trim_end_matches('?'));
    let (context, config) = (names.next()?, names.next()?);
    (context == "ctx" && config == "config").then(|| names.collect())
}

/// Whether `owner` begins with a variable that `text` declares, so that its fields need not be the job's.
pub(crate) fn is_declared(owner: &str, text: &str) -> bool {
    let root = owner.split(['.', '?']).next().unwrap_or_default();
    text.split("let ").skip(1).any(|rest| {
        rest.trim_start().strip_prefix(root).is_some_and(|rest| rest.trim_start().starts_with(['=', ';']))
    })
}

/// The message for a field `name` that a map of `ctx.config` lacks, with its fields.
pub(crate) fn missing_in_config(name: &str, path: &[&str], config: &Dynamic) -> Option<String> {
    let mut value = config.clone();
    for name in path {
        value = field(&value, name)?;
    }
    let value = frozen::plain(&value);
    let map = value.as_map_ref().ok()?;
    let names: Vec<&str> = map.keys().map(AsRef::as_ref).take(COMPARED_MAX).collect();
    let owner = ["ctx.config"].iter().chain(path).copied().collect::<Vec<_>>().join(".");
    let has = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "it is empty".to_owned(),
        None => {
            let more = if names.len() > SHOWN_FIELDS_MAX { " and more" } else { "" };
            format!("its fields are {}{more}", listed(names.into_iter().take(SHOWN_FIELDS_MAX), "and"))
        }
    };
    Some(format!("`{owner}` has no field `{name}`; {has}"))
}

fn field(value: &Dynamic, name: &str) -> Option<Dynamic> {
    match frozen::map(value) {
        Some(map) => map.get(name),
        None => value.as_map_ref().ok()?.get(name).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brace_that_is_not_closed_is_found_by_what_stands_left_of_it() {
        let inner = "fn process(job) {\n    if job.a {\n        job.b = 1;\n    job\n}\n";
        assert_eq!(unclosed(inner), Some((2, 14)));
        let outer = "fn one() { 1 }\nfn process(job) {\n    let text = \"}\"; // }\n    #{ a: 1 }\n";
        assert_eq!(unclosed(outer), Some((2, 17)));
        assert_eq!(unclosed("fn process(job) { job }"), None);
    }

    #[test]
    fn the_owner_of_a_field_is_what_stands_before_it() {
        let text = "let x = 1;\n    if ctx.config.rates.usd > (job?.a ?? 1) {";
        assert_eq!(owner(text, 2, 25), Some("ctx.config.rates"));
        assert_eq!(owner(text, 2, 37), Some("job"));
        assert_eq!(owner("ctx.config[\"x\"]", 1, 12), Some("ctx.config"));
        assert_eq!(path_in_config("ctx.config.rates"), Some(vec!["rates"]));
        assert_eq!(path_in_config("ctx?.config"), Some(vec![]));
        assert_eq!(path_in_config("job.config"), None);
    }
}
