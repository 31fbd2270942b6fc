//! `Top`: the constants and imports of a script, outside of its functions.
//!
//! A top that only defines data runs once, when the script is read, and all calls share its constants. A top
//! that logs or emits, or a constant function with captured variables, makes it run before each call.

use std::any::TypeId;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rhai::{
    AST, Dynamic, Engine, EvalAltResult, GlobalRuntimeState, ImmutableString, Module, NativeCallContext,
    Position, Scope,
};

use super::made::{self, KEEP};
use super::modules;
use crate::script::attempt;
use crate::script::attempt::ScriptAttempt;
use crate::script::values::frozen;

/// Maximum time of a top that runs once.
pub(crate) const TOP_MAX: Duration = Duration::from_secs(10);

/// Call levels between an external call and the called function.
pub(crate) const LEVELS: usize = 2;

type Answer<T> = Result<T, Box<EvalAltResult>>;

/// The state of a top that has run, for the functions of its script.
#[derive(Debug)]
pub(crate) struct Top(GlobalRuntimeState);

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
            return None;
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
        global.lib.push(Rc::clone(ast.shared_lib()));
        global.source = ast.source().map(ImmutableString::from);
        global.embedded_module_resolver = ast.resolver().cloned();
        global.constants = made.constants;
        for (name, module) in made.imports {
            global.push_import(name, module);
        }
        Some(Self(global))
    }

    /// Calls a function of the script.
    pub(crate) fn call(
        &self,
        engine: &Engine,
        function: &str,
        arguments: &mut [&mut Dynamic],
    ) -> Answer<Dynamic> {
        let call = NativeCallContext::from((engine, function, self.0.source(), &self.0, Position::NONE));
        call.call_fn_raw(function, false, false, arguments).or_else(|error| match *error {
            EvalAltResult::Exit(value, _) => Ok(value),
            EvalAltResult::ErrorInFunctionCall(name, _, inner, _) if name == function => Err(inner),
            error => Err(error.into()),
        })
    }
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
