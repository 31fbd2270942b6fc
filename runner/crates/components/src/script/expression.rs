//! `Expression`: a condition over one value, with which operators select jobs.

use std::rc::Rc;
use std::time::Duration;

use rhai::{AST, Engine, Scope};

use super::attempt::{self, ScriptAttempt};
use super::compile::{CompileError, compile_expression, engine};
use super::errors::explain;
use super::errors::explain::{Circumstances, Known};
use super::values::json;
use tidegate_config::Limits;

/// Maximum time per value.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A compiled expression. Lives on one thread.
#[derive(Debug)]
pub struct Expression {
    engine: Engine,
    ast: AST,
    variable: &'static str,
    attempt: Rc<ScriptAttempt>,
    scope: Scope<'static>,
}

impl Expression {
    /// Compiles an expression over `variable`.
    ///
    /// # Errors
    /// The error; the column is counted from the start of `text`.
    pub fn new(text: &str, variable: &'static str) -> Result<Self, CompileError> {
        let limits = Limits::default();
        let attempt = ScriptAttempt::new(&limits);
        let mut engine = engine(&limits, &attempt);
        let ast = compile_expression(&mut engine, text, variable, &attempt)?;
        Ok(Self { engine, ast, variable, attempt, scope: Scope::new() })
    }

    /// Whether it is true for `value`, which is JSON.
    ///
    /// # Errors
    /// The error of the evaluation, as a sentence fragment: most likely a missing field.
    pub fn holds(&mut self, value: &[u8]) -> Result<bool, String> {
        let _running = self.attempt.begin(Some(TIMEOUT));
        let read = json::read(value).map_err(|error| format!("it is not JSON: {error}"))?;
        self.scope.clear();
        self.scope.push_dynamic(self.variable, read);
        let holds = attempt::run(|| self.engine.eval_ast_with_scope::<bool>(&mut self.scope, &self.ast));
        self.scope.clear();
        let (limits, timeout) = (self.attempt.limits(), Some(TIMEOUT));
        let known = Known::default();
        let circumstances = Circumstances { file: "", limits, timeout, payload: value, first: true, known };
        holds.map_err(|error| explain::failure(&error, circumstances).message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_true_or_false_of_a_value_or_names_the_reason_why_neither() {
        let mut large = Expression::new("job.id > 3", "job").unwrap();
        assert_eq!(large.holds(br#"{"id":4}"#), Ok(true));
        assert_eq!(large.holds(br#"{"id":3}"#), Ok(false));
        let missing = large.holds(b"{}").unwrap_err();
        assert!(missing.contains("id"), "{missing}");
        let no_answer = Expression::new("job.id", "job").unwrap().holds(br#"{"id":4}"#).unwrap_err();
        assert!(!no_answer.is_empty());
    }

    #[test]
    fn an_unknown_name_in_an_expression_is_reported_with_its_place() {
        let error = Expression::new("eror.kind == \"timeout\"", "error").unwrap_err();
        assert_eq!((error.line, error.column), (Some(1), Some(1)));
        assert_eq!(error.message, "variable `eror` is unknown here");
    }
}
