//! `Top`: the constants and imports of a script, outside of its functions.
//!
//! A top that only defines data runs once, when the script is read, and all calls share its constants. A top
//! that logs or emits, or a constant function with captured variables, makes it run before each call.
//!
//! Calls also share the state of Rhai, and the functions that it has found by name. Each call leaves this state
//! as it was, unless it fails: then the next call begins with a new one.

use std::any::TypeId;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rhai::module_resolvers::StaticModuleResolver;
use rhai::{
    AST, Caches, Dynamic, Engine, EvalAltResult, EvalContext, GlobalRuntimeState, ImmutableString, Module,
    Position, Scope,
};

use super::made::{self, KEEP};
use super::modules;
use crate::memory;
use crate::script::attempt;
use crate::script::attempt::ScriptAttempt;
use crate::script::values::frozen;

/// Maximum time of a top that runs once.
pub(crate) const TOP_MAX: Duration = Duration::from_secs(10);

/// Call levels between an external call and the called function.
pub(crate) const LEVELS: usize = 2;

/// The state of Rhai during a call.
#[derive(Debug)]
struct CallState {
    global: GlobalRuntimeState,
    /// The functions that it has found by name.
    known: Caches,
}

type Answer<T> = Result<T, Box<EvalAltResult>>;

/// Maximum number of functions that Rhai remembers from one call to the next. A script that calls functions by
/// names from its jobs would make it remember all of them.
const KNOWN_MAX: usize = 1024;

/// The state of a top that has run, for the functions of its script.
#[derive(Debug)]
pub(crate) struct Top {
    fresh: GlobalRuntimeState,
    /// The state after the last call, unless that failed. Thousands of steps may never have had one.
    last: Option<Box<CallState>>,
    /// A name means the same function in each part of the script.
    has_one_namespace: bool,
}

/// Runs the top of an imported script. Its exports and constants are shared from then on.
///
/// # Errors
/// The error of the top.
pub(crate) fn module(engine: &Engine, ast: &AST) -> Answer<Module> {
    let ast = that_keeps(engine, ast)?;
    made::take();
    let mut module = Module::eval_ast_as_new(Scope::new(), &ast, engine)?;
    if let Some(constants) = made::take().and_then(|made| made.constants) {
        constants.borrow_mut().values_mut().for_each(share);
    }
    let exported: Vec<(String, Dynamic)> =
        module.iter_var().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    for (name, mut value) in exported {
        share(&mut value);
        module.set_var(name, value);
    }
    Ok(module)
}

fn share(value: &mut Dynamic) {
    let own = std::mem::take(value);
    // The captured variables of a closure must not be shared by jobs.
    *value = if frozen::is_data(&own) { frozen::freeze(own) } else { own.flatten() };
}

/// The script with a last statement that keeps the values of the others.
fn that_keeps(engine: &Engine, ast: &AST) -> Answer<AST> {
    let mut keeping = ast.merge(&engine.compile(format!("{KEEP}()"))?);
    if let Some(source) = ast.source() {
        keeping.set_source(source);
    }
    Ok(keeping)
}

impl Top {
    /// Runs the top of `ast` by `quiet`, an engine without control functions, for calls by `engine`. `None`
    /// if the script has no top, or it must run before each call.
    pub(crate) fn run(
        engine: &Engine,
        quiet: impl FnOnce() -> Engine,
        attempt: &Rc<ScriptAttempt>,
        ast: &AST,
    ) -> Option<Self> {
        if ast.statements().is_empty() {
            return Some(Self::with(engine.new_global_runtime_state(), ast));
        }
        let mut quiet = quiet();
        let heard = deafen(&mut quiet);
        let keeping = that_keeps(&quiet, ast).ok()?;
        made::take();
        let _running = attempt.begin(Some(TOP_MAX));
        let ran = attempt::run(|| quiet.eval_ast_with_scope::<Dynamic>(&mut Scope::new(), &keeping));
        let made = made::take().filter(|_| ran.is_ok() && !heard.get())?;
        if let Some(constants) = &made.constants {
            let mut constants = constants.borrow_mut();
            if !constants.values().all(frozen::is_data) {
                return None;
            }
            constants.values_mut().for_each(share);
        }
        let mut global = engine.new_global_runtime_state();
        global.constants = made.constants;
        for (name, module) in made.imports {
            global.push_import(name, module);
        }
        Some(Self::with(global, ast))
    }

    fn with(mut global: GlobalRuntimeState, ast: &AST) -> Self {
        global.lib.push(Rc::clone(ast.shared_lib()));
        global.source = ast.source().map(ImmutableString::from);
        global.embedded_module_resolver = ast.resolver().cloned();
        let has_functions =
            |resolver: &Rc<StaticModuleResolver>| resolver.iter().any(|(_, module)| has_functions(module));
        Self { fresh: global, last: None, has_one_namespace: !ast.resolver().is_some_and(has_functions) }
    }

    /// Calls a function of the script.
    pub(crate) fn call(
        &mut self,
        engine: &Engine,
        scope: &mut Scope<'static>,
        function: &str,
        arguments: &mut [&mut Dynamic],
    ) -> Answer<Dynamic> {
        let fresh = || CallState { global: self.fresh.clone(), known: Caches::new() };
        let mut state = self.last.take().unwrap_or_else(|| memory::uncounted(|| Box::new(fresh())));
        let CallState { global, known } = &mut *state;
        let mut context = EvalContext::new(engine, global, known, scope, None);
        match context.call_fn_raw(function, false, false, arguments).map_err(|error| *error) {
            Ok(returned) => {
                if !self.has_one_namespace || known.fn_resolution_cache_mut().dict.len() > KNOWN_MAX {
                    *known = Caches::new();
                }
                self.last = Some(state);
                Ok(returned)
            }
            Err(EvalAltResult::Exit(value, _)) => Ok(value),
            Err(EvalAltResult::ErrorInFunctionCall(name, _, inner, _)) if name == function => Err(inner),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a script that imports `module` can call functions of another script.
fn has_functions(module: &Module) -> bool {
    module.iter_script_fn_info().next().is_some()
        || module.iter_sub_modules().any(|(_, module)| has_functions(module))
}

/// Makes control functions end the run. Returns a flag for printed messages.
fn deafen(quiet: &mut Engine) -> Rc<Cell<bool>> {
    let functions = modules::control_alone().collect_fn_metadata(
        None,
        |info| Some((info.metadata.name.to_string(), info.metadata.num_params)),
        false,
    );
    for (name, count) in functions {
        let kinds = vec![TypeId::of::<Dynamic>(); count];
        quiet.register_raw_fn(name, kinds, |_, _| -> Answer<Dynamic> {
            Err(EvalAltResult::ErrorTerminated(Dynamic::UNIT, Position::NONE).into())
        });
    }
    let heard = Rc::<Cell<bool>>::default();
    let (printed, debugged) = (Rc::clone(&heard), Rc::clone(&heard));
    quiet.on_print(move |_| printed.set(true)).on_debug(move |_, _, _| debugged.set(true));
    heard
}
