//! `FolderResolver`: resolves `import "name"` to scripts in the folder of the script.
//!
//! They are read while a generation is loaded, never during a run: [`FolderResolver`] serves the compiler, and a
//! running engine has no resolver.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rhai::{AST, Engine, EvalAltResult, Module, ModuleResolver, Position};

use super::top::{self, TOP_MAX};
use crate::memory;
use crate::script::attempt;
use crate::script::attempt::ScriptAttempt;
use crate::script::values::captured::captures;
use tidegate_config::{ImportedScript, TextReadError, read_text};

/// Finds `NAME.rhai` in one folder.
#[derive(Debug)]
pub(crate) struct FolderResolver {
    folder: PathBuf,
    /// The texts that were read with the configuration; a run must not mix them with newer ones.
    texts: BTreeMap<PathBuf, Arc<str>>,
    /// The scripts already read, so that two imports of one script share it.
    done: RefCell<BTreeMap<PathBuf, Rc<Module>>>,
    /// The scripts being read, each imported by the one before it.
    open: RefCell<Vec<PathBuf>>,
    attempt: Rc<ScriptAttempt>,
    /// Set once a script captures variables, if they are not tracked yet.
    unwatched: Option<Rc<Cell<bool>>>,
    /// Set once a script that is read may have `+=`.
    adds: Rc<Cell<bool>>,
}

impl FolderResolver {
    pub(crate) fn new(
        folder: &Path,
        imports: &[ImportedScript],
        attempt: &Rc<ScriptAttempt>,
        unwatched: Option<&Rc<Cell<bool>>>,
        adds: &Rc<Cell<bool>>,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            texts: imports.iter().map(|import| (import.path.clone(), Arc::clone(&import.text))).collect(),
            done: RefCell::default(),
            open: RefCell::default(),
            attempt: Rc::clone(attempt),
            unwatched: unwatched.cloned(),
            adds: Rc::clone(adds),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        let mut file = self.folder.join(name).into_os_string();
        file.push(".rhai");
        file.into()
    }

    fn compile(&self, engine: &Engine, name: &str, at: Position) -> Result<AST, Box<EvalAltResult>> {
        let path = self.path(name);
        let text = match self.texts.get(&path) {
            Some(text) => Arc::clone(text),
            // It is missing or unreadable, or its name was no plain text.
            None => read_text(&path).map(Arc::from).map_err(|error| match error {
                TextReadError::Missing => EvalAltResult::ErrorModuleNotFound(name.to_owned(), at),
                error => EvalAltResult::ErrorRuntime(format!("`{name}.rhai` {error}").into(), at),
            })?,
        };
        if adds(&text) {
            self.adds.set(true);
        }
        let source = path.display().to_string();
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut ast = engine.compile(text).map_err(|error| in_module(&source, error.into(), at))?;
        // Errors of its functions name their own file.
        ast.set_source(source);
        match &self.unwatched {
            Some(unwatched) if captures(&ast) => {
                unwatched.set(true);
                Err(EvalAltResult::ErrorRuntime("closures capture variables".into(), at).into())
            }
            _ => Ok(ast),
        }
    }

    fn evaluate(&self, engine: &Engine, name: &str, at: Position) -> Result<Rc<Module>, Box<EvalAltResult>> {
        let ast = memory::uncounted(|| self.compile(engine, name, at))?;
        let run = || attempt::run(|| top::module(engine, &ast));
        let mut running = self.attempt.begin(Some(TOP_MAX));
        let mut module = run();
        if let Err(error) = &mut module
            && matches!(**error, EvalAltResult::ErrorTerminated(..))
            && error.position().is_none()
        {
            // A limit is reached without a position: another run stops one operation before, with the same
            // result so far.
            let operations = self.attempt.operations();
            drop(running);
            running = self.attempt.begin(None);
            self.attempt.stop_at(operations.saturating_sub(1));
            if let Err(again) = run() {
                error.set_position(again.position());
            }
        }
        let module = module.map_err(|error| in_module(ast.source().unwrap_or(name), error, at))?;
        running.keep();
        Ok(module.into())
    }
}

/// Whether a script may use `+=`; true also if only a text or a comment has it.
pub(crate) fn adds(text: &str) -> bool {
    text.contains("+=")
}

impl ModuleResolver for FolderResolver {
    fn resolve(
        &self,
        engine: &Engine,
        _source: Option<&str>,
        name: &str,
        at: Position,
    ) -> Result<Rc<Module>, Box<EvalAltResult>> {
        let path = self.path(name);
        if let Some(module) = self.done.borrow().get(&path) {
            return Ok(module.clone());
        }
        if self.open.borrow().contains(&path) {
            let message = format!("`{name}.rhai` imports itself, directly or through others");
            return Err(EvalAltResult::ErrorRuntime(message.into(), at).into());
        }
        self.open.borrow_mut().push(path.clone());
        let module = self.evaluate(engine, name, at);
        self.open.borrow_mut().pop();
        let module = module?;
        self.done.borrow_mut().insert(path, module.clone());
        Ok(module)
    }

    fn resolve_ast(
        &self,
        engine: &Engine,
        _source: Option<&str>,
        name: &str,
        at: Position,
    ) -> Option<Result<AST, Box<EvalAltResult>>> {
        Some(self.compile(engine, name, at))
    }
}

fn in_module(file: &str, error: Box<EvalAltResult>, at: Position) -> EvalAltResult {
    EvalAltResult::ErrorInModule(file.to_owned(), error, at)
}
