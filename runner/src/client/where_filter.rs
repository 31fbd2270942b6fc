//! `Where`: the filter of `--where`, a compiled expression that selects jobs.

use crate::output::exit;
use crate::output::exit::Exit;
use tidegate_components::script::{CompileError, Expression};

/// The expression, and the number of jobs for which its evaluation failed.
pub(crate) struct Where {
    expression: Option<Expression>,
    failed: u64,
    /// The first of these jobs, and the error.
    first: Option<String>,
}

impl Where {
    /// Compiles an expression over `variable`. Without an expression every job passes.
    pub(crate) fn new(text: Option<&str>, variable: &'static str) -> Result<Self, Exit> {
        let expression = text.map(|text| Expression::new(text, variable).map_err(|error| (text, error)));
        match expression.transpose() {
            Ok(expression) => Ok(Self { expression, failed: 0, first: None }),
            Err((text, error)) => Err(exit::misuse(describe(text, &error))),
        }
    }

    /// Whether the job passes. A job for which the evaluation fails does not pass.
    pub(crate) fn passes(&mut self, queue: &str, index: u64, job: &str) -> bool {
        let Some(expression) = &mut self.expression else { return true };
        expression.holds(job.as_bytes()).unwrap_or_else(|why| {
            self.failed += 1;
            self.first.get_or_insert_with(|| format!("{queue}/{index}: {why}"));
            false
        })
    }

    /// Reports the number of jobs for which the evaluation failed.
    pub(crate) fn warn_of_failures(&self) {
        let Some(first) = &self.first else { return };
        let what = match self.failed {
            1 => "`--where` could not be evaluated for 1 job, which was skipped".to_owned(),
            more => {
                format!("`--where` could not be evaluated for {more} jobs, which were skipped; the first")
            }
        };
        exit::warn(format_args!("{what}: {first}"));
    }
}

/// The compile error, with its place marked under the expression.
fn describe(text: &str, error: &CompileError) -> String {
    let line = error.line.and_then(|line| text.lines().nth(line - 1)).unwrap_or(text);
    let mut lines =
        vec![format!("the expression of `--where` does not compile: {}", error.message), format!("  {line}")];
    lines.extend(error.column.map(|column| format!("  {}^", " ".repeat(column.saturating_sub(1)))));
    lines.extend(error.help.as_ref().map(|help| format!("  help: {help}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_marked() {
        let text = "job.id > nothing";
        let error = Expression::new(text, "job").unwrap_err();
        insta::assert_snapshot!(describe(text, &error), @r"
        the expression of `--where` does not compile: variable `nothing` is unknown here
          job.id > nothing
                   ^
          help: read a field as `job.nothing`
        ");
    }
}
