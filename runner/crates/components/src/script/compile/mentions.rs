//! `Mentions`: the use of pending jobs and tokens in a script, as far as its text shows.

use rhai::{AST, ASTNode, Expr};

use super::unknown_calls;

/// The facts that `check` needs in addition to a successful compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// The line and the column of the first call of `pending`, from 1.
    pub pending: Option<(usize, usize)>,
    /// It may pass on the token with which an external system completes the job.
    pub token: bool,
    /// The tables that its calls of `lookup` name, in order of place.
    pub tables: Vec<NamedTable>,
}

/// The name of a lookup table in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTable {
    pub name: String,
    /// From 1, as `column`.
    pub line: usize,
    pub column: usize,
}

impl Mentions {
    /// The mentions in `ast`, compiled from `text`. `wants_context`: it receives `ctx`.
    pub(crate) fn of(ast: &AST, text: &str, wants_context: bool) -> Self {
        let defines = |name| ast.iter_functions().any(|function| function.name == name);
        let is_own = defines("pending");
        let (mut pending, mut imports) = (None, false);
        ast.walk(&mut |path| {
            imports |= matches!(path.last(), Some(ASTNode::Stmt(rhai::Stmt::Import(..))));
            if let Some((call, position)) = unknown_calls::call(path)
                && call.name == "pending"
                && !is_own
            {
                let place = position.line().zip(position.position());
                // Functions are visited in no fixed order.
                pending = pending.into_iter().chain(place).min();
            }
            true
        });
        // An import may read it from the `ctx` that it receives.
        let token = wants_context && (imports || text.contains("token"));
        Self { pending, token, tables: if defines("lookup") { Vec::new() } else { tables(ast) } }
    }
}

/// As [`Mentions::tables`].
pub(crate) fn tables(ast: &AST) -> Vec<NamedTable> {
    let mut tables = Vec::new();
    ast.walk(&mut |path| {
        if let Some((call, _)) = unknown_calls::call(path)
            && call.name == "lookup"
            && let [Expr::StringConstant(name, position), _] = &*call.args
        {
            let (line, column) = (position.line().unwrap_or(1), position.position().unwrap_or(1));
            tables.push(NamedTable { name: name.to_string(), line, column });
        }
        true
    });
    tables.sort_by_key(|table| (table.line, table.column));
    tables
}
