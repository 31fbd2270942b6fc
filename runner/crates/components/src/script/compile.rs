//! Compilation: turns a script's text into a callable function, or into an error with its position.

pub(crate) mod checked;
pub(crate) mod entry;
pub(crate) mod imported;
pub(crate) mod imports;
pub(crate) mod made;
pub(crate) mod mentions;
pub(crate) mod modules;
pub(crate) mod scan;
pub(crate) mod top;
pub(crate) mod unknown_calls;
pub(crate) mod used_fields;

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use rhai::module_resolvers::DummyModuleResolver;
use rhai::{AST, Engine, EvalAltResult, LexError, OptimizationLevel, ParseErrorType, Position, Scope};

use self::entry::EntryPoint;
use self::imports::FolderResolver;
use self::mentions::{Mentions, NamedTable};
use self::top::TOP_MAX;
use super::attempt::ScriptAttempt;
use super::errors::explain;
use super::errors::explain::lowercase;
use super::errors::hints;
use super::errors::unknown_call::Unknown;
use super::values::captured;
use tidegate_config::{Limits, Script};
use tidegate_model::suggest::nearest;
use tidegate_model::sync::Mutex;

/// The error of a script that cannot be run, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The imported file with the error, if it is not in the script.
    pub file: Option<String>,
    /// From 1; `None` if the error has no position.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    /// A sentence fragment.
    pub message: String,
    pub help: Option<String>,
}

/// A compiled script, and the signature of its entry function.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) ast: AST,
    /// The name of the function to call.
    pub(crate) entry: &'static str,
    /// `fn process(job, ctx)` instead of `fn process(job)`.
    pub(crate) wants_context: bool,
    /// It may have `+=`, itself or in an import.
    pub(crate) adds: bool,
}

/// A script with everything that it imports.
#[derive(Debug)]
pub(crate) struct WholeScript {
    pub(crate) ast: AST,
    /// As in [`Compiled`].
    pub(crate) adds: bool,
}

/// The stack of each thread that compiles or runs scripts. They may build deeply nested values, which are
/// freed recursively. The memory is only reserved, not used.
pub const STACK: usize = 64 << 20;

/// Compiles `script` as a run would, and returns only the names that it mentions.
///
/// # Errors
/// The error, and its position.
pub fn check_script(script: &Script, limits: &Limits, entry: EntryPoint) -> Result<Mentions, CompileError> {
    let key = checked::key(script, limits, entry);
    if let Some(mentions) = checked::get(key) {
        return Ok(mentions);
    }
    let (script, limits) = (script.clone(), *limits);
    let mentions = on_a_stack(move || check(&script, &limits, entry))?;
    checked::remember(key, mentions.clone());
    Ok(mentions)
}

fn check(script: &Script, limits: &Limits, entry: EntryPoint) -> Result<Mentions, CompileError> {
    let attempt = ScriptAttempt::new(limits);
    let mut engine = engine(limits, &attempt);
    let compiled = compile(&mut engine, script, entry, &attempt)?;
    match unknown_calls::unknown(&engine, &compiled.ast) {
        None => Ok(Mentions::of(&compiled.ast, &script.text, compiled.wants_context)),
        Some(Unknown { message, position, help }) => Err(CompileError { help, ..located(message, position) }),
    }
}

/// Compiles on a stack like a worker's: deep nesting is parsed recursively, and the caller's stack may be small. The
/// thread is kept for a while for the next script, since registering the functions takes longer than most scripts.
fn on_a_stack<T: Send + 'static>(
    check: impl Fn() -> Result<T, CompileError> + Clone + Send + 'static,
) -> Result<T, CompileError> {
    loop {
        // Callers at the same time have threads of their own.
        let kept = IDLE_CHECKER.lock().take();
        let is_new = kept.is_none();
        let checker = kept.map_or_else(start_checker, Ok).map_err(|error| {
            located(format!("no thread can be started to read it: {error}"), Position::NONE)
        })?;
        let (answer, answered) = channel();
        let check = check.clone();
        // The caller waits for the answer. A thread that has ended gives none.
        let _ = checker.send(Box::new(move || drop(answer.send(catch_unwind(AssertUnwindSafe(check))))));
        match answered.recv() {
            Ok(checked) => {
                IDLE_CHECKER.lock().get_or_insert(checker);
                return checked.unwrap_or_else(|panic| resume_unwind(panic));
            }
            Err(_) if is_new => {
                return Err(located("the thread that reads it has ended".to_owned(), Position::NONE));
            }
            // It was idle for too long, just now.
            Err(_) => {}
        }
    }
}

type Check = Box<dyn FnOnce() + Send>;

/// A thread of [`on_a_stack`] that has nothing to do.
static IDLE_CHECKER: Mutex<Option<Sender<Check>>> = Mutex::new(None);

/// How long such a thread keeps its memory.
const IDLE_MAX: Duration = Duration::from_secs(10);

fn start_checker() -> io::Result<Sender<Check>> {
    let (sender, checks) = channel::<Check>();
    let check_all = move || {
        while let Ok(check) = checks.recv_timeout(IDLE_MAX) {
            check();
        }
    };
    thread::Builder::new().name("scripts".into()).stack_size(STACK).spawn(check_all)?;
    Ok(sender)
}

/// Compiles the expression of a `when`, over the variable `job`. Returns the tables that it reads, as in
/// [`Mentions::tables`].
///
/// # Errors
/// The error; the column is counted from the start of `text`.
pub fn check_expression(text: &str, limits: &Limits) -> Result<Vec<NamedTable>, CompileError> {
    let attempt = ScriptAttempt::new(limits);
    compile_expression(&mut engine(limits, &attempt), text, "job", &attempt).map(|ast| mentions::tables(&ast))
}

/// An engine without access to files, network or clock. It is small, since the engines of a thread share
/// their functions.
pub(crate) fn engine(limits: &Limits, attempt: &Rc<ScriptAttempt>) -> Engine {
    let mut engine = Engine::new_raw();
    modules::register(&mut engine);
    // It would hide code from `check`.
    engine.disable_symbol("eval");
    // Functions that hold functions nest without a bound, unlike closures: `captured` holds their variables.
    engine.disable_symbol("curry");
    engine.set_strict_variables(true).set_fail_on_invalid_map_property(true);
    engine.set_optimization_level(OptimizationLevel::Simple);
    limit(&mut engine, limits);
    attempt.watch(&mut engine);
    engine
}

/// Maximum nesting within one function; an `else if` is a level. Functions that call each other must together
/// fit a worker's stack.
fn nesting(limits: &Limits) -> usize {
    (16_000 / limits.depth.max(1)).clamp(32, 128)
}

fn limit(engine: &mut Engine, limits: &Limits) {
    // An additional limit beside the allocator's: Rhai measures a value that has grown, which prevents
    // nesting that exceeds the stack. Alone it would count a shared text once per reference.
    let bytes = usize::try_from(limits.memory).unwrap_or(usize::MAX);
    engine
        .set_max_call_levels(limits.depth + top::LEVELS)
        // Rhai's own limits differ in a debug build.
        .set_max_expr_depths(64, nesting(limits))
        .set_max_array_size((bytes / 16).max(1))
        .set_max_map_size((bytes / 32).max(1));
}

pub(crate) fn compile(
    engine: &mut Engine,
    script: &Script,
    entry: EntryPoint,
    attempt: &Rc<ScriptAttempt>,
) -> Result<Compiled, CompileError> {
    let WholeScript { ast, adds } = self_contained(engine, script, &script.text, &Scope::new(), attempt)
        .map_err(|error| {
            let error = from_evaluation(&error, &script.text, attempt);
            // The first level of imports is resolved separately from the statement, and has no position.
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

/// Compiles `text` in the place of the script, together with all imports, so that a generation does not change while it runs.
pub(crate) fn self_contained(
    engine: &mut Engine,
    script: &Script,
    text: &str,
    scope: &Scope<'_>,
    attempt: &Rc<ScriptAttempt>,
) -> Result<WholeScript, Box<EvalAltResult>> {
    let folder = script.path.parent().unwrap_or(Path::new(""));
    let unwatched = Rc::new(Cell::new(false));
    let adds = Rc::new(Cell::new(imports::adds(text)));
    engine.set_module_resolver(FolderResolver::new(
        folder,
        &script.imports,
        attempt,
        Some(&unwatched),
        &adds,
    ));
    let mut compiled = engine.compile_into_self_contained(scope, text);
    if unwatched.get() {
        attempt.watch_captured(engine);
        engine.set_module_resolver(FolderResolver::new(folder, &script.imports, attempt, None, &adds));
        compiled = engine.compile_into_self_contained(scope, text);
    }
    engine.set_module_resolver(DummyModuleResolver::new());
    let mut ast = compiled?;
    if captured::captures(&ast) {
        attempt.watch_captured(engine);
    }
    ast.set_source(script.path.to_string_lossy().as_ref());
    Ok(WholeScript { ast, adds: adds.get() })
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

/// The fix for an error in an expression over `variable`, which is embedded in another text.
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

fn no_entry(entry: EntryPoint, functions: &[(String, usize)], text: &str) -> CompileError {
    let (wanted, given) = (entry.name(), entry.parameter());
    let help = format!("write `fn {wanted}({given}) {{ … }}` or `fn {wanted}({given}, ctx) {{ … }}`");
    if let Some((name, params)) = functions.iter().find(|(name, _)| name == wanted) {
        let message = format!("`{wanted}` takes {params} parameters instead of one or two");
        return CompileError { help: Some(help), ..located(message, position_of(name, text)) };
    }
    let message = match entry {
        EntryPoint::Process => "the script has no function `process`",
        EntryPoint::Open => "the script is the last of a gate and must have a function `open`",
        EntryPoint::Accept => "the script is the `accept` of a source and must have a function `accept`",
        EntryPoint::Status => "the script is the last of a monitor and must have a function `status`",
    };
    match nearest(wanted, functions.iter().map(|(name, _)| name.as_str())) {
        Some(near) => {
            let help = Some(format!("`fn {near}` is similar: rename it to `fn {wanted}`"));
            CompileError { help, ..located(message.to_owned(), position_of(near, text)) }
        }
        None => CompileError { help: Some(help), ..located(message.to_owned(), Position::NONE) },
    }
}

/// The position of the function `name`, in the usual notation.
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
            let message = format!("variable `{name}` is unknown here");
            let near = || hints::variable(name, text, &[]).map(|near| format!("did you mean `{near}`?"));
            CompileError { message, help: outside_functions(name, text).or_else(near), ..error }
        }
        ParseErrorType::ExprTooDeep => CompileError {
            message: "the code nests too deeply".to_owned(),
            help: Some(
                "replace a long `else if` by a `switch`, or by several `if` with a `return`; move a part into a function of its own"
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

/// The fix for a name that is defined at the top of the script, which functions cannot access.
fn outside_functions(name: &str, text: &str) -> Option<String> {
    let given = |word: &str| {
        text.lines().any(|line| {
            let rest = line.strip_prefix("export ").unwrap_or(line).strip_prefix(word);
            rest.and_then(|rest| rest.trim_start().strip_prefix(name))
                .is_some_and(|rest| rest.trim_start().starts_with(['=', ';']))
        })
    };
    if given("const ") {
        Some(format!("functions access a constant of the top as `global::{name}`"))
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
            ..located(format!("script `{name}.rhai` is missing"), *position)
        },
        other => {
            let message = explain::limit(other, attempt.limits(), Some(TOP_MAX));
            located(message.unwrap_or_else(|| explain::in_words(other)), other.position())
        }
    }
}

impl CompileError {
    /// The same error at the `import` that its message names, if `text` contains it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_checked_after_one_that_panicked_and_at_the_same_time_as_another() {
        let panicked = catch_unwind(|| on_a_stack(|| -> Result<(), CompileError> { panic!("once") }));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"once"));
        // The outer check waits for the inner one, which so has another thread.
        let names = || thread::current().id();
        let both = on_a_stack(move || Ok((names(), on_a_stack(move || Ok(names()))?))).unwrap();
        assert_ne!(both.0, both.1);
    }
}
