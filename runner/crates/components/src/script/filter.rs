//! `Filter`: selects the jobs of a step by `types`, `topics` and `when`.

use std::rc::Rc;

use rhai::{AST, Dynamic, Engine, EvalAltResult, Scope};

use super::attempt::{self, ScriptAttempt};
use super::compile::{CompileError, compile_expression};
use tidegate_config::StepFilter;

#[derive(Debug)]
pub(crate) struct Filter {
    engine: Engine,
    types: Vec<String>,
    topics: Vec<String>,
    /// Jobs are wrapped in a map under the name of their alternative.
    wrapped: bool,
    when: Option<AST>,
    scope: Scope<'static>,
}

impl Filter {
    /// `None` if every job passes.
    pub(crate) fn compile(
        engine: impl FnOnce() -> Engine,
        filter: &StepFilter,
        wrapped: bool,
        attempt: &Rc<ScriptAttempt>,
    ) -> Result<Option<Self>, CompileError> {
        let StepFilter { types, topics, when } = filter;
        if types.is_empty() && topics.is_empty() && when.is_none() {
            return Ok(None);
        }
        let mut engine = engine();
        let compile = |(text, _): &(String, _)| compile_expression(&mut engine, text, "job", attempt);
        let when = when.as_ref().map(compile).transpose()?;
        let (types, topics) = (types.clone(), topics.clone());
        Ok(Some(Self { engine, types, topics, wrapped, when, scope: Scope::new() }))
    }

    /// Whether `job` passes. The job is returned, since Rhai takes ownership of it.
    pub(crate) fn passes(&mut self, job: Dynamic) -> Result<Option<Dynamic>, Box<EvalAltResult>> {
        let has = |field, wanted: &[String]| {
            if self.wrapped { inner_has(&job, field, wanted) } else { has_one_of(&job, field, wanted) }
        };
        if !self.types.is_empty() && !has("type", &self.types) {
            return Ok(None);
        }
        if !self.topics.is_empty() && !has("topics", &self.topics) && !has("topic", &self.topics) {
            return Ok(None);
        }
        let Some(when) = &self.when else { return Ok(Some(job)) };
        self.scope.push_dynamic("job", job);
        let holds = attempt::run(|| self.engine.eval_ast_with_scope::<bool>(&mut self.scope, when));
        let job = self.scope.remove("job");
        self.scope.clear();
        let holds = holds?;
        Ok(job.filter(|_| holds))
    }
}

/// As [`has_one_of`], for the one job in a map.
fn inner_has(wrapped: &Dynamic, field: &str, wanted: &[String]) -> bool {
    wrapped.as_map_ref().is_ok_and(|map| map.values().any(|job| has_one_of(job, field, wanted)))
}

/// Whether `field` of the job is one of `wanted`, or is a list that holds one.
fn has_one_of(job: &Dynamic, field: &str, wanted: &[String]) -> bool {
    let Ok(map) = job.as_map_ref() else { return false };
    let Some(value) = map.get(field) else { return false };
    let is_wanted = |value: &Dynamic| {
        value.as_immutable_string_ref().is_ok_and(|text| wanted.iter().any(|one| *one == **text))
    };
    match value.as_array_ref() {
        Ok(list) => list.iter().any(is_wanted),
        Err(_) => is_wanted(value),
    }
}
