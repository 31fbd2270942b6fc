//! Calls of functions that there are not. A script that makes one fails only when it comes to it, so they are
//! looked for before anything runs.

use std::collections::BTreeSet;

use rhai::{AST, ASTNode, Dynamic, Engine, Expr, FnCallExpr, Position, Stmt};

use super::context::Context;
use super::control::Emitted;
use super::functions;
use crate::config::Limits;
use crate::words::TokenKey;
use crate::words::suggest::{listed, nearest};

/// What Rhai itself makes something of, without a function of that name.
const BUILT_IN: [&str; 9] =
    ["print", "debug", "type_of", "Fn", "call", "curry", "is_shared", "is_def_var", "is_def_fn"];

/// A call of a function that neither the script has nor anybody else.
pub(super) struct Unknown {
    pub(super) name: String,
    pub(super) position: Position,
    pub(super) help: Option<String>,
}

/// The first one in `ast`, which `engine` has compiled. How many arguments it takes, and of what kind, only a
/// run can tell, and so with a method, which may stand in a map.
pub(super) fn unknown(engine: &mut Engine, limits: &Limits, ast: &AST) -> Option<Unknown> {
    // None of it is ever called.
    let context = Context::new("", "", Dynamic::UNIT, &TokenKey::NONE);
    functions::register(engine, &context, &Emitted::default(), limits);
    let mut known: BTreeSet<String> = BUILT_IN.iter().map(|&name| name.to_owned()).collect();
    known.extend(engine.collect_fn_metadata(None, |info| Some(info.metadata.name.to_string()), true));
    known.extend(ast.iter_functions().map(|function| function.name.to_owned()));
    let held = held(ast);
    let mut found: Vec<(Position, String)> = Vec::new();
    ast.walk(&mut |path| {
        let unknown = call(path).filter(|(name, _)| !known.contains(*name) && !held.contains(*name));
        found.extend(unknown.map(|(name, position)| (position, name.to_owned())));
        true
    });
    // Functions are walked in no order.
    let (position, name) = found.into_iter().min()?;
    Some(Unknown { help: meant(&name, &known), name, position })
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

fn call<'a>(path: &'a [ASTNode<'_>]) -> Option<(&'a str, Position)> {
    let (call, position): (&FnCallExpr, Position) = match path.last()? {
        ASTNode::Stmt(Stmt::FnCall(call, position)) | ASTNode::Expr(Expr::FnCall(call, position)) => {
            (call, *position)
        }
        _ => return None,
    };
    let is_plain = !call.is_qualified() && call.op_token.is_none();
    is_plain.then_some((call.name.as_str(), position))
}

/// The nearest name, or those that begin with the same word.
fn meant(name: &str, known: &BTreeSet<String>) -> Option<String> {
    if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
        return Some(format!("did you mean `{near}`?"));
    }
    let word = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    let kin: Vec<&str> = known.iter().map(String::as_str).filter(|other| word(other) == word(name)).collect();
    match &*kin {
        [] => None,
        [one] => Some(format!("there is `{one}`")),
        kin => Some(format!("there are {}", listed(kin.iter().copied(), "and"))),
    }
}
