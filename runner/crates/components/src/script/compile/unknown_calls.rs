//! Unknown calls: finds calls of functions that do not exist before anything runs. Without this check a
//! script fails only when it reaches the call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use rhai::{AST, ASTNode, Engine, Expr, FnCallExpr, Position, Span, Stmt};

use super::{imported, modules};
use crate::script::errors::hints;
use crate::script::errors::unknown_call::{Unknown, wrong_count};
use tidegate_model::suggest::listed;

/// Names that Rhai itself handles, without a function. A closure with captured variables is made by `curry`,
/// which an author cannot write.
const BUILT_IN: [&str; 9] =
    ["print", "debug", "type_of", "Fn", "call", "curry", "is_shared", "is_def_var", "is_def_fn"];

/// The numbers of arguments that a function accepts; `None`: they are not checked before a run.
type Takes = Option<BTreeSet<usize>>;

/// The first unknown call in `ast`, which `engine` has compiled. The types of arguments, and methods, which
/// may be in a map, can only be checked in a run. A script that tests for functions, or that catches
/// failures, may name unknown ones.
pub(crate) fn unknown(engine: &Engine, ast: &AST) -> Option<Unknown> {
    let known = Known::of(engine, ast);
    let held = held(ast);
    let tried = tried(ast);
    let mut asks = false;
    let mut found: Vec<(Position, String, usize)> = Vec::new();
    ast.walk(&mut |path| {
        let Some((call, position)) = call(path) else { return true };
        let (name, count) = (call.name.as_str(), call.args.len());
        asks |= name == "is_def_fn";
        let within = |span: &Span| (span.start()..=span.end()).contains(&position);
        if !known.takes(name, count) && !held.contains(name) && !tried.iter().any(within) {
            found.push((position, name.to_owned(), count));
        }
        true
    });
    // Functions are visited in no fixed order.
    if asks {
        return None;
    }
    let is_tried =
        |position: Position| tried.iter().any(|span| (span.start()..=span.end()).contains(&position));
    let Some((position, name, given)) = found.into_iter().min() else {
        return imported::unknown(ast, &is_tried);
    };
    let counts = known.counts(&name);
    if counts.is_empty() {
        let message = format!("function `{name}` is unknown");
        return Some(Unknown { help: meant(&name, known.names().iter().copied()), message, position });
    }
    let (message, help) = wrong_count(&name, given, counts);
    Some(Unknown { message, position, help })
}

/// The functions of every script, which are listed once: listing them takes longer than checking a script.
static REGISTERED: OnceLock<BTreeMap<String, Takes>> = OnceLock::new();

/// The callable functions.
struct Known<'a> {
    registered: &'static BTreeMap<String, Takes>,
    /// The functions of the script, with their numbers of parameters.
    own: BTreeMap<&'a str, BTreeSet<usize>>,
}

impl<'a> Known<'a> {
    fn of(engine: &Engine, ast: &'a AST) -> Self {
        let mut own: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for function in ast.iter_functions() {
            own.entry(function.name).or_default().insert(function.params.len());
        }
        Self { registered: REGISTERED.get_or_init(|| registered(engine)), own }
    }

    fn takes(&self, name: &str, count: usize) -> bool {
        matches!(self.registered.get(name), Some(None)) || self.counts(name).contains(&count)
    }

    /// The numbers of arguments that the functions of this name accept; none for an unknown function.
    fn counts(&self, name: &str) -> BTreeSet<usize> {
        let registered = self.registered.get(name).and_then(Option::as_ref);
        registered.into_iter().chain(self.own.get(name)).flatten().copied().collect()
    }

    fn names(&self) -> BTreeSet<&str> {
        self.registered.keys().map(String::as_str).chain(self.own.keys().copied()).collect()
    }
}

/// All functions that a script can call without defining them. The arguments of Rhai's own functions are not counted,
/// since they can be called in several ways.
fn registered(engine: &Engine) -> BTreeMap<String, Takes> {
    let mut known: BTreeMap<String, Takes> = BUILT_IN.iter().map(|&name| (name.to_owned(), None)).collect();
    known.extend(engine.collect_fn_metadata(None, |info| Some((info.metadata.name.to_string(), None)), true));
    let own = modules::control_alone().collect_fn_metadata(
        None,
        |info| Some((info.metadata.name.to_string(), info.metadata.num_params)),
        false,
    );
    for (name, count) in own {
        if let Some(counts) = known.entry(name).or_insert_with(|| Some(BTreeSet::new())) {
            counts.insert(count);
        }
    }
    known
}

/// The spans in which the script catches failures.
fn tried(ast: &AST) -> Vec<Span> {
    let mut tried = Vec::new();
    ast.walk(&mut |path| {
        if let Some(ASTNode::Stmt(Stmt::TryCatch(flow, _))) = path.last() {
            tried.push(flow.body.span());
        }
        true
    });
    tried
}

/// Variables and parameters, which may hold a function.
fn held(ast: &AST) -> BTreeSet<String> {
    let parameters = ast.iter_functions().flat_map(|function| function.params);
    let mut held: BTreeSet<String> = parameters.map(str::to_owned).collect();
    ast.walk(&mut |path| {
        if let Some(ASTNode::Stmt(Stmt::Var(variable, ..))) = path.last() {
            held.insert(variable.0.name.to_string());
        }
        true
    });
    held
}

pub(crate) fn call<'a>(path: &'a [ASTNode<'_>]) -> Option<(&'a FnCallExpr, Position)> {
    let (call, position): (&FnCallExpr, Position) = match path.last()? {
        ASTNode::Stmt(Stmt::FnCall(call, position)) | ASTNode::Expr(Expr::FnCall(call, position)) => {
            (call, *position)
        }
        _ => return None,
    };
    let is_plain = !call.is_qualified() && call.op_token.is_none();
    is_plain.then_some((call, position))
}

/// The nearest name, or the names that begin with the same word.
fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(near) = hints::function(name, known.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let word = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    let kin: Vec<&str> = known.filter(|other| word(other) == word(name)).collect();
    match &*kin {
        [] => None,
        [one] => Some(format!("a similar function is `{one}`")),
        kin => Some(format!("similar functions are {}", listed(kin.iter().copied(), "and"))),
    }
}
