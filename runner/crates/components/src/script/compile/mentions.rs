//! `Mentions`: the use of pending jobs and tokens in a script, as far as its text shows.

use rhai::{AST, ASTNode};

use super::unknown_calls;

/// The facts that `check` needs in addition to a successful compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// The line and the column of the first call of `pending`, from 1.
    pub pending: Option<(usize, usize)>,
    /// It may pass on the token with which an external system completes the job.
    pub token: bool,
}

impl Mentions {
    /// The mentions in `ast`, compiled from `text`. `wants_context`: it receives `ctx`.
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
                // Functions are visited in no fixed order.
                pending = pending.into_iter().chain(place).min();
            }
            true
        });
        // An import may read it from the `ctx` that it receives.
        let token = wants_context && (imports || text.contains("token"));
        Self { pending, token }
    }
}
