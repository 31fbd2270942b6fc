//! What a script does with jobs that an outside system finishes, as far as its text tells.

use rhai::{AST, ASTNode};

use super::unknown_calls;

/// What `check` asks of a script besides whether it compiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// The line and the column of the first call of `pending`, from 1.
    pub pending: Option<(usize, usize)>,
    /// It may hand on the token by which the outside system finishes the job.
    pub token: bool,
}

impl Mentions {
    /// Of what `text` was compiled to. `wants_context`: it is given `ctx`.
    pub(crate) fn of(ast: &AST, text: &str, wants_context: bool) -> Self {
        let is_own = ast.iter_functions().any(|function| function.name == "pending");
        let (mut pending, mut imports) = (None, false);
        ast.walk(&mut |path| {
            imports |= matches!(path.last(), Some(ASTNode::Stmt(rhai::Stmt::Import(..))));
            if let Some((call, position)) = unknown_calls::call(path)
                && call.name == "pending"
                && !is_own
            {
                let place = position.line().zip(position.position());
                // Functions are walked in no order.
                pending = pending.into_iter().chain(place).min();
            }
            true
        });
        // What is imported may read it from the `ctx` that it is given.
        let token = wants_context && (imports || text.contains("token"));
        Self { pending, token }
    }
}
