//! From a script's text to something that can be called, or to a message with its place.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use rhai::module_resolvers::FileModuleResolver;
use rhai::packages::{Package, StandardPackage};
use rhai::{AST, Engine, EvalAltResult, OptimizationLevel, ParseError, Position, Scope};

use super::functions::Ended;
use super::{context, number};
use crate::config::{Limits, Script};
use crate::words::suggest::nearest;

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
pub(super) struct Compiled {
    pub(super) ast: AST,
    /// `fn process(job, ctx)` instead of `fn process(job)`.
    pub(super) wants_context: bool,
}

/// When an attempt must have ended; shared with the engine that watches it.
pub(super) type Deadline = Rc<Cell<Option<Instant>>>;

/// Compiles `script` as a run would, and forgets the result.
///
/// # Errors
/// What is wrong with it, and where.
pub fn check_script(script: &Script, limits: &Limits) -> Result<(), CompileError> {
    let engine = engine(limits, script.path.parent(), &Deadline::default());
    compile(&engine, script).map(drop)
}

/// Compiles the expression of a `when`, over the variable `job`.
///
/// # Errors
/// What is wrong with it; the column is counted from the start of `text`.
pub fn check_expression(text: &str, limits: &Limits) -> Result<(), CompileError> {
    let engine = engine(limits, None, &Deadline::default());
    compile_expression(&engine, text).map(drop)
}

/// An engine without access to files (but imports beside the script), network or clock.
pub(super) fn engine(limits: &Limits, folder: Option<&Path>, deadline: &Deadline) -> Engine {
    let mut engine = Engine::new_raw();
    StandardPackage::new().register_into_engine(&mut engine);
    number::register(&mut engine);
    context::register(&mut engine);
    // `eval` would hide code from `check`; `sleep` would hold up a worker.
    engine.disable_symbol("eval").disable_symbol("sleep");
    engine.set_strict_variables(true).set_fail_on_invalid_map_property(true);
    engine.set_optimization_level(OptimizationLevel::Simple);
    if let Some(folder) = folder {
        engine.set_module_resolver(FileModuleResolver::new_with_path(folder));
    }
    limit(&mut engine, limits);
    watch(&mut engine, deadline);
    engine
}

fn limit(engine: &mut Engine, limits: &Limits) {
    // Rhai counts characters and elements. An element takes 16 bytes, an entry of a map about 40
    // and its key; with 64 a map stays within its bytes.
    let bytes = usize::try_from(limits.memory).unwrap_or(usize::MAX);
    engine
        .set_max_operations(limits.operations)
        .set_max_call_levels(limits.depth)
        .set_max_string_size(bytes)
        .set_max_array_size((bytes / 16).max(1))
        .set_max_map_size((bytes / 64).max(1));
}

/// Ends a script past its deadline. The clock is asked every 256 operations: an operation takes
/// well under a microsecond, and asking about as long.
fn watch(engine: &mut Engine, deadline: &Deadline) {
    let deadline = Rc::clone(deadline);
    engine.on_progress(move |operations| {
        if operations % 256 != 0 {
            return None;
        }
        let past = deadline.get().is_some_and(|deadline| Instant::now() >= deadline);
        past.then(|| rhai::Dynamic::from(Ended::TimedOut))
    });
}

pub(super) fn compile(engine: &Engine, script: &Script) -> Result<Compiled, CompileError> {
    // Imports are resolved now, so that a generation does not change while it runs.
    let mut ast = engine
        .compile_into_self_contained(&Scope::new(), &script.text)
        .map_err(|error| from_evaluation(&error))?;
    ast.set_source(script.path.to_string_lossy().as_ref());
    let functions: Vec<(String, usize)> =
        ast.iter_functions().map(|function| (function.name.to_owned(), function.params.len())).collect();
    let takes = |count| functions.iter().any(|(name, params)| name == "process" && *params == count);
    let wants_context = takes(2);
    if !wants_context && !takes(1) {
        return Err(no_entry(&functions));
    }
    Ok(Compiled { ast, wants_context })
}

pub(super) fn compile_expression(engine: &Engine, text: &str) -> Result<AST, CompileError> {
    let mut scope = Scope::new();
    scope.push("job", rhai::Dynamic::UNIT);
    engine.compile_expression_with_scope(&scope, text).map_err(|error| from_parsing(&error))
}

fn no_entry(functions: &[(String, usize)]) -> CompileError {
    let message = match functions.iter().find(|(name, _)| name == "process") {
        Some((_, params)) => format!("`process` takes {params} parameters"),
        None => "the script has no function `process`".to_owned(),
    };
    let near =
        nearest("process", functions.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "process"));
    let help = match near {
        Some(near) => format!("`fn {near}` looks like it: call it `fn process(job)`"),
        None => "write `fn process(job) { … }` or `fn process(job, ctx) { … }`".to_owned(),
    };
    CompileError { file: None, line: None, column: None, message, help: Some(help) }
}

fn from_parsing(error: &ParseError) -> CompileError {
    located(lowercase(&error.err_type().to_string()), error.position())
}

fn from_evaluation(error: &EvalAltResult) -> CompileError {
    match error {
        EvalAltResult::ErrorParsing(kind, position) => located(lowercase(&kind.to_string()), *position),
        EvalAltResult::ErrorInModule(file, inner, _) => {
            let error = from_evaluation(inner);
            CompileError { file: error.file.or_else(|| Some(file.clone())), ..error }
        }
        EvalAltResult::ErrorModuleNotFound(name, position) => CompileError {
            help: Some(format!("`import \"{name}\"` looks for `{name}.rhai` beside the script")),
            ..located(format!("there is no script `{name}.rhai` to import"), *position)
        },
        other => located(lowercase(&other.to_string()), other.position()),
    }
}

fn located(message: String, position: Position) -> CompileError {
    CompileError { file: None, line: position.line(), column: position.position(), message, help: None }
}

fn lowercase(message: &str) -> String {
    let mut characters = message.chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}
