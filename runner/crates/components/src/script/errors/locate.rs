//! Position of a limit: finds the line at which a script reached it.
//!
//! Rhai gives such an error the position of each call on the stack; the outermost call, which the runner
//! makes, has none. So the body of that function is run once more, as statements outside of any function,
//! with positions. This happens only after a limit was reached. Scripts are pure, so running one again does
//! no harm.
//!
//! A limit of an attempt has no position there either. A third run stops one operation before, with an error
//! that has one. Rhai's handling of that error was within the limits in the run before.

use std::mem::discriminant;
use std::rc::Rc;
use std::time::Duration;

use rhai::{Dynamic, Engine, EvalAltResult, Position, Scope};

use crate::script::attempt;
use crate::script::attempt::ScriptAttempt;
use crate::script::compile;
use crate::script::compile::scan::skipped;
use tidegate_config::Script;

/// The place of the called function in a script.
struct Head<'t> {
    start: usize,
    /// After the closing parenthesis.
    end: usize,
    parameters: Vec<&'t str>,
}

/// Runs the function `entry` of the script again on `arguments`, if they are still known, for at most `left`.
/// Returns the position of an error like `error`, otherwise that of the function.
pub(crate) fn place(
    engine: &mut Engine,
    (script, entry): (&Script, &str),
    arguments: &dyn Fn() -> Option<[Dynamic; 2]>,
    error: &EvalAltResult,
    (attempt, left): (&Rc<ScriptAttempt>, Duration),
) -> Option<Position> {
    let text = &*script.text;
    let head = head(text, entry)?;
    let again = attempt.apart(|| {
        let scope = |arguments: [Dynamic; 2]| {
            let mut scope = Scope::new();
            for (parameter, argument) in head.parameters.iter().zip(arguments) {
                scope.push_dynamic(*parameter, argument);
            }
            scope
        };
        let (unset, statements) = (scope([Dynamic::UNIT, Dynamic::UNIT]), without(text, &head));
        let ast = compile::self_contained(engine, script, &statements, &unset, attempt).ok()?.ast;
        let run = |stop: Option<u64>| {
            // The last run repeats the one before, and needs no bound of its own.
            let _running = attempt.begin(stop.is_none().then_some(left / 2));
            if let Some(stop) = stop {
                attempt.stop_at(stop);
            }
            let mut scope = scope(arguments()?);
            // Its messages were already logged.
            let ran = tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::new(), || {
                attempt::run(|| engine.eval_ast_with_scope::<Dynamic>(&mut scope, &ast))
            });
            Some((ran.err()?, attempt.operations()))
        };
        let (again, operations) = run(None)?;
        let is_placed = !again.position().is_none();
        if is_placed { Some(again) } else { run(Some(operations.saturating_sub(1))).map(|(again, _)| again) }
    });
    match again {
        Some(again) if !again.position().is_none() && is_such(&again, error) => Some(again.position()),
        _ => begin_of(text, head.start),
    }
}

/// A timeout during the search counts too, since it was in the same loop.
fn is_such(again: &EvalAltResult, error: &EvalAltResult) -> bool {
    discriminant(again) == discriminant(error) || matches!(again, EvalAltResult::ErrorTerminated(..))
}

fn begin_of(text: &str, offset: usize) -> Option<Position> {
    let before = text.get(..offset)?;
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next()?.chars().count() + 1;
    Some(Position::new(u16::try_from(line).ok()?, u16::try_from(column).ok()?))
}

/// The script with blanks in place of the head, so that every line and column stays. Rhai gives constants to
/// `global::` only if the script has a function.
fn without(text: &str, head: &Head<'_>) -> String {
    let (before, rest) = text.split_at(head.start);
    let (inside, after) = rest.split_at(head.end - head.start);
    let blank = |char| if char == '\n' { '\n' } else { ' ' };
    before
        .chars()
        .chain(inside.chars().map(blank))
        .chain(after.chars())
        .chain("\nfn process() {}".chars())
        .collect()
}

/// Finds the function `entry` outside of comments and texts.
fn head<'t>(text: &'t str, entry: &str) -> Option<Head<'t>> {
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        at += match skipped(rest) {
            Some(length) => length,
            None => match head_at(text, at, entry) {
                Some(head) => return Some(head),
                None => word_length(rest),
            },
        };
    }
    None
}

fn head_at<'t>(text: &'t str, start: usize, entry: &str) -> Option<Head<'t>> {
    let rest = text.get(start..)?.strip_prefix("fn")?;
    let name = rest.trim_start();
    let list = name.strip_prefix(entry).filter(|_| name.len() < rest.len())?.trim_start();
    let inside = list.strip_prefix('(')?;
    let length = inside.find(')')?;
    let end = text.len() - inside.len() + length + 1;
    let parameters = inside[..length].split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    Some(Head { start, end, parameters })
}

/// The length of the word, or else of the character, at the start of `rest`.
fn word_length(rest: &str) -> usize {
    let in_word = |char: char| char.is_alphanumeric() || char == '_';
    let word = rest.find(|char| !in_word(char)).unwrap_or(rest.len());
    if word > 0 { word } else { rest.chars().next().map_or(1, char::len_utf8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_found_outside_of_comments_and_texts() {
        let text = "// fn process(a)\n/* fn process(b) */ const X = \"fn process(c) \\\" \";\n\
                    const Y = `ü fn process(d)`; const Z = '\"';\nfn processes(e) {}\n  fn  process ( job , ctx ) { }";
        let found = head(text, "process").unwrap();
        assert_eq!(found.parameters, ["job", "ctx"]);
        assert_eq!(&text[found.start..found.end], "fn  process ( job , ctx )");
        assert_eq!(begin_of(text, found.start), Some(Position::new(5, 3)));
        let statements = without(text, &found);
        assert_eq!(statements.lines().nth(4).unwrap(), format!("{:27} {{ }}", ""));
        assert!(head("fn other(job) {} \"fn process(job)", "process").is_none());
    }
}
