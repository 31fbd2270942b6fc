//! Unknown names of imports: finds functions and constants that imported scripts do not have.

use std::collections::BTreeMap;

use rhai::{AST, ASTNode, Expr, Module, Position, Stmt};

use crate::script::errors::hints;
use crate::script::errors::unknown_call::{Unknown, wrong_count};
use tidegate_model::suggest::{listed, nearest};

/// Maximum number of names in a help text.
const SHOWN_MAX: usize = 12;

/// The first unknown function or constant that `ast` reads from an import, except for those that the script
/// tests for.
pub(crate) fn unknown(ast: &AST, is_tried: &impl Fn(Position) -> bool) -> Option<Unknown> {
    let modules = modules(ast);
    let mut found: Vec<(Position, String, Option<String>)> = Vec::new();
    ast.walk(&mut |path| {
        let fault = match path.last() {
            Some(
                ASTNode::Stmt(Stmt::FnCall(call, position)) | ASTNode::Expr(Expr::FnCall(call, position)),
            ) if call.namespace.path.len() == 1 => {
                let module = modules.get(call.namespace.root());
                module
                    .and_then(|module| function(module, &call.name, call.args.len()))
                    .map(|fault| (fault, *position))
            }
            Some(ASTNode::Expr(Expr::Variable(variable, _, position))) if variable.2.path.len() == 1 => {
                let module = modules.get(variable.2.root());
                module.and_then(|module| constant(module, &variable.1)).map(|fault| (fault, *position))
            }
            _ => None,
        };
        let fault = fault.filter(|(_, position)| !is_tried(*position));
        found.extend(fault.map(|((message, help), position)| (position, message, help)));
        true
    });
    // Functions are visited in no fixed order.
    let (position, message, help) = found.into_iter().min()?;
    Some(Unknown { message, position, help })
}

struct Imported<'a> {
    name: &'a str,
    module: &'a Module,
}

/// By the name in the script; a name of two imports is ambiguous and left out.
fn modules(ast: &AST) -> BTreeMap<String, Imported<'_>> {
    let Some(resolver) = ast.resolver() else { return BTreeMap::new() };
    let mut paths: BTreeMap<String, Option<String>> = BTreeMap::new();
    ast.walk(&mut |path| {
        if let Some(ASTNode::Stmt(Stmt::Import(import, _))) = path.last()
            && let Expr::StringConstant(path, _) = &import.0
        {
            let known = paths.entry(import.1.name.to_string()).or_insert_with(|| Some(path.to_string()));
            if known.as_deref() != Some(path.as_str()) {
                *known = None;
            }
        }
        true
    });
    let imported = paths.into_iter().filter_map(|(alias, path)| {
        let path = path?;
        let (name, module) = resolver.iter().find(|(name, _)| *name == path)?;
        Some((alias, Imported { name, module }))
    });
    imported.collect()
}

type Fault = (String, Option<String>);

fn function(imported: &Imported<'_>, name: &str, count: usize) -> Option<Fault> {
    let functions: Vec<(&str, usize)> =
        imported.module.iter_script_fn_info().map(|(_, _, name, count, _)| (name, count)).collect();
    let counts: Vec<usize> =
        functions.iter().filter(|(other, _)| *other == name).map(|(_, count)| *count).collect();
    if counts.contains(&count) {
        return None;
    }
    if !counts.is_empty() {
        return Some(wrong_count(name, count, counts));
    }
    let mut names: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let help = hints::function(name, names.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    Some((format!("`{}.rhai` has no function `{name}`", imported.name), help.or_else(|| has(&names))))
}

fn constant(imported: &Imported<'_>, name: &str) -> Option<Fault> {
    let names: Vec<&str> = imported.module.iter_var().map(|(name, _)| name).collect();
    if names.contains(&name) {
        return None;
    }
    let help = nearest(name, names.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    let export = || format!("export it there: `export const {name} = …`");
    Some((format!("`{}.rhai` does not export `{name}`", imported.name), help.or_else(|| Some(export()))))
}

fn has(names: &[&str]) -> Option<String> {
    match names {
        [] => None,
        names => {
            let more = if names.len() > SHOWN_MAX { " and more" } else { "" };
            Some(format!("its functions are {}{more}", listed(names.iter().copied().take(SHOWN_MAX), "and")))
        }
    }
}
