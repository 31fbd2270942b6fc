//! Calls of functions that there are not. A script that makes one fails only when it comes to it, so they are
//! looked for before anything runs.

use std::collections::{BTreeMap, BTreeSet};

use rhai::{AST, ASTNode, Engine, Expr, FnCallExpr, Position, Span, Stmt};

use super::{imported, modules};
use crate::script::errors::hints;
use crate::script::errors::unknown_call::{Unknown, wrong_count};
use tidegate_model::suggest::listed;

/// What Rhai itself makes something of, without a function of that name. A closure with captured variables is
/// made by `curry`, which an author cannot write.
const BUILT_IN: [&str; 9] =
    ["print", "debug", "type_of", "Fn", "call", "curry", "is_shared", "is_def_var", "is_def_fn"];

/// With how many arguments a function can be called; `None`: nobody counts them before a run.
type Takes = Option<BTreeSet<usize>>;

/// The first one in `ast`, which `engine` has compiled. Of what kind its arguments may be, only a run can
/// tell, and so with a method, which may stand in a map. A script that asks what there is, or that catches
/// what fails, may name what there is not.
pub(crate) fn unknown(engine: &Engine, ast: &AST) -> Option<Unknown> {
    let known = known(engine, ast);
    let held = held(ast);
    let tried = tried(ast);
    let mut asks = false;
    let mut found: Vec<(Position, String, usize)> = Vec::new();
    ast.walk(&mut |path| {
        let Some((call, position)) = call(path) else { return true };
        let (name, count) = (call.name.as_str(), call.args.len());
        asks |= name == "is_def_fn";
        let takes = known.get(name).map(|takes| takes.as_ref().is_none_or(|counts| counts.contains(&count)));
        let within = |span: &Span| (span.start()..=span.end()).contains(&position);
        if takes != Some(true) && !held.contains(name) && !tried.iter().any(within) {
            found.push((position, name.to_owned(), count));
        }
        true
    });
    // Functions are walked in no order.
    if asks {
        return None;
    }
    let is_tried =
        |position: Position| tried.iter().any(|span| (span.start()..=span.end()).contains(&position));
    let Some((position, name, given)) = found.into_iter().min() else {
        return imported::unknown(ast, &is_tried);
    };
    Some(match known.get(&name) {
        Some(Some(counts)) => {
            let (message, help) = wrong_count(&name, given, counts.iter().copied());
            Unknown { message, position, help }
        }
        _ => {
            let message = format!("there is no function `{name}`");
            Unknown { help: meant(&name, known.keys().map(String::as_str)), message, position }
        }
    })
}

/// What can be called. The arguments of what Rhai brings are not counted: it is called in more than one way.
fn known(engine: &Engine, ast: &AST) -> BTreeMap<String, Takes> {
    let mut known: BTreeMap<String, Takes> = BUILT_IN.iter().map(|&name| (name.to_owned(), None)).collect();
    known.extend(engine.collect_fn_metadata(None, |info| Some((info.metadata.name.to_string(), None)), true));
    let own = modules::control_alone().collect_fn_metadata(
        None,
        |info| Some((info.metadata.name.to_string(), info.metadata.num_params)),
        false,
    );
    let scripted = ast.iter_functions().map(|function| (function.name.to_owned(), function.params.len()));
    for (name, count) in own.into_iter().chain(scripted) {
        if let Some(counts) = known.entry(name).or_insert_with(|| Some(BTreeSet::new())) {
            counts.insert(count);
        }
    }
    known
}

/// From where to where the script catches what fails.
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

/// The nearest name, or those that begin with the same word.
fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(near) = hints::function(name, known.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let word = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    let kin: Vec<&str> = known.filter(|other| word(other) == word(name)).collect();
    match &*kin {
        [] => None,
        [one] => Some(format!("there is `{one}`")),
        kin => Some(format!("there are {}", listed(kin.iter().copied(), "and"))),
    }
}
