//! From a script's text to something that can be called, or to a message with its place.

pub(crate) mod entry;
pub(crate) mod imported;
pub(crate) mod imports;
pub(crate) mod made;
pub(crate) mod mentions;
pub(crate) mod modules;
pub(crate) mod scan;
pub(crate) mod top;
pub(crate) mod unknown_calls;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use rhai::module_resolvers::DummyModuleResolver;
use rhai::{AST, Engine, EvalAltResult, LexError, OptimizationLevel, ParseErrorType, Position, Scope};

use self::entry::Entry;
use self::imports::FolderResolver;
use self::mentions::Mentions;
use self::top::TOP_MAX;
use super::attempt::ScriptAttempt;
use super::errors::explain;
use super::errors::explain::lowercase;
use super::errors::hints;
use super::errors::unknown_call::Unknown;
use super::values::captured;
use tidegate_config::{Limits, Script};
use tidegate_model::suggest::nearest;

/// A script that cannot be run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// Another file than the script where the mistake is in an imported one.
    pub file: Option<String>,
    /// From 1; `None` where the mistake has no place.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    /// A sentence fragment.
    pub message: String,
    pub help: Option<String>,
}

/// A compiled script and how it wants to be called.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) ast: AST,
    /// The function to call, by its name.
    pub(crate) entry: &'static str,
    /// `fn process(job, ctx)` instead of `fn process(job)`.
    pub(crate) wants_context: bool,
    /// It may have `+=`, itself or in an import.
    pub(crate) adds: bool,
}

/// A script with everything that it imports.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) ast: AST,
    /// As in [`Compiled`].
    pub(crate) adds: bool,
}

/// What each thread that compiles or runs scripts should have: they may build values that nest deeply, and
/// taking those apart recurses. The memory is only reserved, not used.
pub const STACK: usize = 64 << 20;

/// Compiles `script` as a run would, and keeps only what it mentions.
///
/// # Errors
/// What is wrong with it, and where.
pub fn check_script(script: &Script, limits: &Limits, entry: Entry) -> Result<Mentions, CompileError> {
    on_a_stack(|| check(script, limits, entry))
}

fn check(script: &Script, limits: &Limits, entry: Entry) -> Result<Mentions, CompileError> {
    let attempt = ScriptAttempt::new(limits);
    let mut engine = engine(limits, &attempt);
    let compiled = compile(&mut engine, script, entry, &attempt)?;
    match unknown_calls::unknown(&engine, &compiled.ast) {
        None => Ok(Mentions::of(&compiled.ast, &script.text, compiled.wants_context)),
        Some(Unknown { message, position, help }) => Err(CompileError { help, ..located(message, position) }),
    }
}

/// Compiles on a stack like a worker's: what nests deeply is read by as many calls, and whoever loads a
/// configuration may have a small one.
fn on_a_stack<T: Send>(check: impl FnOnce() -> Result<T, CompileError> + Send) -> Result<T, CompileError> {
    std::thread::scope(|scope| {
        let checking = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, check);
        let ended = checking.map(std::thread::ScopedJoinHandle::join);
        match ended {
            Ok(Ok(checked)) => checked,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => {
                Err(located(format!("no thread can be started to read it: {error}"), Position::NONE))
            }
        }
    })
}

/// Compiles the expression of a `when`, over the variable `job`.
///
/// # Errors
/// What is wrong with it; the column is counted from the start of `text`.
pub fn check_expression(text: &str, limits: &Limits) -> Result<(), CompileError> {
    let attempt = ScriptAttempt::new(limits);
    compile_expression(&mut engine(limits, &attempt), text, "job", &attempt).map(drop)
}

/// An engine without access to files, network or clock. It is small: functions are shared by those of a thread.
pub(crate) fn engine(limits: &Limits, attempt: &Rc<ScriptAttempt>) -> Engine {
    let mut engine = Engine::new_raw();
    modules::register(&mut engine);
    // It would hide code from `check`.
    engine.disable_symbol("eval");
    // Functions that hold functions nest without a bound, as closures cannot: `captured` holds what those capture.
    engine.disable_symbol("curry");
    engine.set_strict_variables(true).set_fail_on_invalid_map_property(true);
    engine.set_optimization_level(OptimizationLevel::Simple);
    limit(&mut engine, limits);
    attempt.watch(&mut engine);
    engine
}

/// How deeply one function may nest what it is made of; an `else if` is a level. What functions that call each
/// other come to together must stay within a worker's stack.
fn nesting(limits: &Limits) -> usize {
    (16_000 / limits.depth.max(1)).clamp(32, 128)
}

fn limit(engine: &mut Engine, limits: &Limits) {
    // Behind the count of the allocator: Rhai measures what has grown, which holds off values that nest so
    // deeply that the stack is too small for them. It would count a text as often as a value holds it.
    let bytes = usize::try_from(limits.memory).unwrap_or(usize::MAX);
    engine
        .set_max_call_levels(limits.depth + top::LEVELS)
        // Rhai's own are others in a debug build.
        .set_max_expr_depths(64, nesting(limits))
        .set_max_array_size((bytes / 16).max(1))
        .set_max_map_size((bytes / 32).max(1));
}

pub(crate) fn compile(
    engine: &mut Engine,
    script: &Script,
    entry: Entry,
    attempt: &Rc<ScriptAttempt>,
) -> Result<Compiled, CompileError> {
    let Whole { ast, adds } = self_contained(engine, &script.path, &script.text, &Scope::new(), attempt)
        .map_err(|error| {
            let error = from_evaluation(&error, &script.text, attempt);
            // The first level of imports is resolved apart from the statement, and has no place.
            if error.line.is_none() { error.at_import_in(&script.text) } else { error }
        })?;
    let functions: Vec<(String, usize)> =
        ast.iter_functions().map(|function| (function.name.to_owned(), function.params.len())).collect();
    let takes = |count| functions.iter().any(|(name, params)| name == entry.name() && *params == count);
    let wants_context = takes(2);
    if !wants_context && !takes(1) {
        return Err(no_entry(entry, &functions, &script.text));
    }
    Ok(Compiled { ast, entry: entry.name(), wants_context, adds })
}

/// Compiles a script together with everything that it imports, so that a generation does not
/// change while it runs.
pub(crate) fn self_contained(
    engine: &mut Engine,
    path: &Path,
    text: &str,
    scope: &Scope<'_>,
    attempt: &Rc<ScriptAttempt>,
) -> Result<Whole, Box<EvalAltResult>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let unwatched = Rc::new(Cell::new(false));
    let adds = Rc::new(Cell::new(imports::adds(text)));
    engine.set_module_resolver(FolderResolver::new(folder, attempt, Some(&unwatched), &adds));
    let mut compiled = engine.compile_into_self_contained(scope, text);
    if unwatched.get() {
        attempt.watch_captured(engine);
        engine.set_module_resolver(FolderResolver::new(folder, attempt, None, &adds));
        compiled = engine.compile_into_self_contained(scope, text);
    }
    engine.set_module_resolver(DummyModuleResolver::new());
    let mut ast = compiled?;
    if captured::captures(&ast) {
        attempt.watch_captured(engine);
    }
    ast.set_source(path.to_string_lossy().as_ref());
    Ok(Whole { ast, adds: adds.get() })
}

/// Compiles an expression over one variable.
pub(crate) fn compile_expression(
    engine: &mut Engine,
    text: &str,
    variable: &str,
    attempt: &Rc<ScriptAttempt>,
) -> Result<AST, CompileError> {
    let mut scope = Scope::new();
    scope.push(variable, rhai::Dynamic::UNIT);
    let ast = engine.compile_expression_with_scope(&scope, text).map_err(|error| {
        let help = in_expression(error.err_type(), variable);
        let error = from_parsing(error.err_type(), error.position(), text);
        CompileError { help: help.or(error.help), ..error }
    })?;
    if captured::captures(&ast) {
        attempt.watch_captured(engine);
    }
    Ok(ast)
}

/// What to do about a mistake in an expression over `variable`, which stands in another text.
fn in_expression(kind: &ParseErrorType, variable: &str) -> Option<String> {
    match kind {
        ParseErrorType::VariableUndefined(name) => Some(match nearest(name, [variable]) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("read a field as `{variable}.{name}`"),
        }),
        ParseErrorType::BadInput(LexError::MalformedChar(inside)) => Some(format!(
            "put a text in double quotes, and the whole in single ones: `'{variable}.level == \"{inside}\"'`"
        )),
        _ => None,
    }
}

fn no_entry(entry: Entry, functions: &[(String, usize)], text: &str) -> CompileError {
    let (wanted, given) = (entry.name(), entry.parameter());
    let help = format!("write `fn {wanted}({given}) {{ … }}` or `fn {wanted}({given}, ctx) {{ … }}`");
    if let Some((name, params)) = functions.iter().find(|(name, _)| name == wanted) {
        let message = format!("`{wanted}` takes {params} parameters instead of one or two");
        return CompileError { help: Some(help), ..located(message, position_of(name, text)) };
    }
    let message = match entry {
        Entry::Process => "the script has no function `process`",
        Entry::Open => "the script is the last of a gate, and has no function `open`",
        Entry::Status => "the script is the last of a monitor, and has no function `status`",
    };
    match nearest(wanted, functions.iter().map(|(name, _)| name.as_str())) {
        Some(near) => {
            let help = Some(format!("`fn {near}` looks like it: call it `fn {wanted}`"));
            CompileError { help, ..located(message.to_owned(), position_of(near, text)) }
        }
        None => CompileError { help: Some(help), ..located(message.to_owned(), Position::NONE) },
    }
}

/// Where the function `name` is written, as people usually write functions.
fn position_of(name: &str, text: &str) -> Position {
    let head = format!("fn {name}");
    let found = text.lines().zip(1..).find(|(line, _)| line.starts_with(&head));
    found.map_or(Position::NONE, |(_, line)| Position::new(line, 4))
}

fn from_parsing(kind: &ParseErrorType, position: Position, text: &str) -> CompileError {
    let error = located(lowercase(&kind.to_string()), position);
    if let Some((message, help)) = hints::parsing(kind, position, text) {
        return CompileError { message, help: Some(help), ..error };
    }
    match kind {
        ParseErrorType::VariableUndefined(name) => {
            let message = format!("there is no variable `{name}` here");
            let near = || hints::variable(name, text, &[]).map(|near| format!("did you mean `{near}`?"));
            CompileError { message, help: outside_functions(name, text).or_else(near), ..error }
        }
        ParseErrorType::ExprTooDeep => CompileError {
            message: "this nests too deeply".to_owned(),
            help: Some(
                "of a long `else if` make a `switch`, or an `if` with a `return` each; put some of it into a function of its own"
                    .to_owned(),
            ),
            ..error
        },
        ParseErrorType::ModuleUndefined(name) => {
            let message = format!("nothing is imported as `{name}`");
            CompileError {
                message,
                help: Some(format!("write `import \"…\" as {name};` at the top")),
                ..error
            }
        }
        _ => error,
    }
}

/// What to do about a name that is given at the top of the script, which functions do not see.
fn outside_functions(name: &str, text: &str) -> Option<String> {
    let given = |word: &str| {
        text.lines().any(|line| {
            let rest = line.strip_prefix("export ").unwrap_or(line).strip_prefix(word);
            rest.and_then(|rest| rest.trim_start().strip_prefix(name))
                .is_some_and(|rest| rest.trim_start().starts_with(['=', ';']))
        })
    };
    if given("const ") {
        Some(format!("functions see a constant of the top as `global::{name}`"))
    } else if given("let ") {
        Some(format!(
            "functions do not see variables of the top; make it a constant, `const {name} = …`, and read `global::{name}`"
        ))
    } else {
        None
    }
}

fn from_evaluation(error: &EvalAltResult, text: &str, attempt: &ScriptAttempt) -> CompileError {
    match error {
        EvalAltResult::ErrorParsing(kind, position) => from_parsing(kind, *position, text),
        EvalAltResult::ErrorInModule(file, inner, _) => {
            let error = from_evaluation(inner, "", attempt);
            CompileError { file: error.file.or_else(|| Some(file.clone())), ..error }
        }
        EvalAltResult::ErrorModuleNotFound(name, position) => CompileError {
            help: Some(format!("`import \"{name}\"` looks for `{name}.rhai` beside the script")),
            ..located(format!("there is no script `{name}.rhai` to import"), *position)
        },
        other => {
            let message = explain::limit(other, attempt.limits(), Some(TOP_MAX));
            located(message.unwrap_or_else(|| explain::in_words(other)), other.position())
        }
    }
}

impl CompileError {
    /// The same at the `import` that its message names, if it can be found in `text`.
    fn at_import_in(self, text: &str) -> Self {
        let named = |rest: &str| {
            let name = rest.trim_start().strip_prefix('"')?.split('"').next()?;
            self.message.contains(&format!("`{name}.rhai`")).then_some(())
        };
        let found = text.lines().zip(1..).find_map(|(line, number)| {
            let (at, word) =
                line.match_indices("import").find(|(at, word)| named(&line[at + word.len()..]).is_some())?;
            let quote = at + word.len() + line[at + word.len()..].find('"')?;
            Some((number, line[..quote].chars().count() + 1))
        });
        let (line, column) = found.unzip();
        Self { line, column, ..self }
    }
}

fn located(message: String, position: Position) -> CompileError {
    CompileError { file: None, line: position.line(), column: position.position(), message, help: None }
}
