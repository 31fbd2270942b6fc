//! `Filter`: selects the jobs of a step by `types`, `topics` and `when`.

use std::rc::Rc;

use rhai::{AST, Dynamic, Engine, EvalAltResult, Scope};

use super::attempt::{self, ScriptAttempt};
use super::compile::used_fields::UsedFields;
use super::compile::{CompileError, compile_expression};
use tidegate_config::{InputMode, StepFilter};

#[derive(Debug)]
pub(crate) struct Filter {
    engine: Engine,
    types: Vec<String>,
    topics: Vec<String>,
    /// `alts` and `join`: jobs are maps of the inputs.
    take: InputMode,
    when: Option<AST>,
    scope: Scope<'static>,
}

impl Filter {
    /// `None` if every job passes.
    pub(crate) fn compile(
        engine: impl FnOnce() -> Engine,
        filter: &StepFilter,
        take: InputMode,
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
        Ok(Some(Self { engine, types, topics, take, when, scope: Scope::new() }))
    }

    /// The parts of a job that the filter reads. `inputs`: the names of the step's inputs.
    pub(crate) fn used(&self, inputs: &[String]) -> UsedFields {
        let types = (!self.types.is_empty()).then_some("type");
        let topics = (!self.topics.is_empty()).then_some(["topics", "topic"]);
        let fields = types.into_iter().chain(topics.into_iter().flatten());
        let of_field = |field| match self.take {
            InputMode::From => vec![UsedFields::reading(&[field])],
            InputMode::Alts | InputMode::Join => {
                inputs.iter().map(|input| UsedFields::reading(&[input, field])).collect()
            }
        };
        let when = self.when.iter().map(|when| UsedFields::of_expression(when, "job"));
        fields.flat_map(of_field).chain(when).reduce(UsedFields::and).unwrap_or(UsedFields::reading(&[]))
    }

    /// Whether `job` passes. The job is returned, since Rhai takes ownership of it.
    pub(crate) fn passes(&mut self, job: Dynamic) -> Result<Option<Dynamic>, Box<EvalAltResult>> {
        let has = |field, wanted: &[String]| match self.take {
            InputMode::From => has_one_of(&job, field, wanted),
            InputMode::Alts | InputMode::Join => an_input_has(&job, field, wanted),
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

/// As [`has_one_of`], for at least one job in a map.
fn an_input_has(inputs: &Dynamic, field: &str, wanted: &[String]) -> bool {
    inputs.as_map_ref().is_ok_and(|map| map.values().any(|job| has_one_of(job, field, wanted)))
}

/// Whether `field` of the job is one of `wanted`, is a list that holds one, or is a map with a key of them. A key
/// does not count if its value is null or false.
fn has_one_of(job: &Dynamic, field: &str, wanted: &[String]) -> bool {
    let Ok(map) = job.as_map_ref() else { return false };
    let Some(value) = map.get(field) else { return false };
    let is_wanted = |value: &Dynamic| {
        value.as_immutable_string_ref().is_ok_and(|text| wanted.iter().any(|one| *one == **text))
    };
    if let Ok(list) = value.as_array_ref() {
        return list.iter().any(is_wanted);
    }
    if let Ok(map) = value.as_map_ref() {
        let counts = |value: &Dynamic| !value.is_unit() && value.as_bool() != Ok(false);
        return wanted.iter().any(|key| map.get(key.as_str()).is_some_and(counts));
    }
    is_wanted(value)
}
