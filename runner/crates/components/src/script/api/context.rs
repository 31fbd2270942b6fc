//! `Context`: the facts that a script has beside the job, as `ctx`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rhai::{Array, Dynamic, EvalAltResult, FuncRegistration, ImmutableString, Map, Module, Position};
use tidegate_plugin::Job;

use super::register::add_getter;
use crate::redact::Redactor;
use crate::script::script_tables::ScriptTables;
use crate::script::values::{frozen, json};
use tidegate_model::{DeliveryHash, Secret, TokenKey};

/// The `ctx` of `fn process(job, ctx)`; cheap to clone, so that unused facts cost nothing.
#[derive(Clone, Debug)]
pub(crate) struct ScriptContext {
    fixed: Rc<Fixed>,
    current: Rc<Cell<Current>>,
    lane: Rc<RefCell<Option<ImmutableString>>>,
    origin: Rc<RefCell<JobOrigin>>,
    /// Number of log messages of the running attempt.
    messages: Rc<Cell<u64>>,
}

/// The facts that are the same for all jobs of a step.
#[derive(Debug)]
struct Fixed {
    pipeline: ImmutableString,
    step: ImmutableString,
    config: Dynamic,
    token_key: TokenKey,
    scrub: Redactor,
    tables: ScriptTables,
    inputs: Vec<String>,
    outputs: Vec<ImmutableString>,
}

/// The provenance of the job, and its index in each input; no index: it is `Current::index` in the only input.
#[derive(Clone, Debug, Default)]
struct JobOrigin {
    carried: String,
    indices: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Current {
    index: u64,
    attempt: u32,
    now_ms: i64,
    hash: u128,
}

impl ScriptContext {
    pub(crate) fn new(
        (pipeline, step): (&str, &str),
        config: Dynamic,
        secrets: &[Secret],
        token_key: &TokenKey,
        tables: &ScriptTables,
    ) -> Self {
        let (token_key, scrub) = (token_key.clone(), Redactor::new(secrets));
        let config = frozen::freeze(config);
        let tables = tables.clone();
        let (pipeline, step) = (pipeline.into(), step.into());
        let (inputs, outputs) = (Vec::new(), Vec::new());
        let fixed = Fixed { pipeline, step, config, token_key, scrub, tables, inputs, outputs };
        Self {
            fixed: Rc::new(fixed),
            current: Rc::default(),
            lane: Rc::default(),
            origin: Rc::default(),
            messages: Rc::default(),
        }
    }

    /// The context of a step with these inputs and outputs.
    pub(crate) fn with_ends(mut self, inputs: &[String], outputs: &[&str]) -> Self {
        // No other handle exists yet.
        if let Some(fixed) = Rc::get_mut(&mut self.fixed) {
            fixed.inputs = inputs.to_vec();
            fixed.outputs = outputs.iter().map(|&output| output.into()).collect();
        }
        self
    }

    /// A context without a step.
    pub(crate) fn none() -> Self {
        Self::new(("", ""), Dynamic::UNIT, &[], &TokenKey::NONE, &ScriptTables::default())
    }

    /// Moves on to another job.
    pub(crate) fn set(&self, job: &Job<'_>) {
        let Job { index, attempt, now_ms, hash, .. } = *job;
        self.current.set(Current { index, attempt, now_ms, hash });
    }

    /// Sets the lane of the job, if it has one.
    pub(crate) fn set_lane(&self, lane: Option<&str>) {
        *self.lane.borrow_mut() = lane.map(ImmutableString::from);
    }

    /// Sets the provenance of the job, and its index in each input, if there are several.
    pub(crate) fn set_origin(&self, carried: &str, indices: &[u64]) {
        let mut origin = self.origin.borrow_mut();
        origin.carried.clear();
        origin.carried.push_str(carried);
        origin.indices.clear();
        origin.indices.extend_from_slice(indices);
    }

    /// The inputs that have a job here, each with its index.
    fn inputs(&self) -> Map {
        let origin = self.origin.borrow();
        let index = |index: u64| Dynamic::from(i64::try_from(index).unwrap_or(i64::MAX));
        if origin.indices.is_empty() {
            let only = self.fixed.inputs.first().into_iter();
            return only.map(|name| (name.as_str().into(), index(self.index()))).collect();
        }
        let given = self.fixed.inputs.iter().zip(&origin.indices).filter(|(_, index)| **index > 0);
        given.map(|(name, &at)| (name.as_str().into(), index(at))).collect()
    }

    /// The provenance of the job; empty if it has none.
    fn meta(&self) -> Dynamic {
        let origin = self.origin.borrow();
        // The engine wrote it as JSON.
        let read = json::read(origin.carried.as_bytes()).ok();
        read.unwrap_or_else(|| Dynamic::from(Map::new()))
    }

    /// The text without the secrets of `config`.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.fixed.scrub.clean(text)
    }

    /// Counts a message, and returns the new number.
    pub(crate) fn count_message(&self) -> u64 {
        self.messages.set(self.messages.get() + 1);
        self.messages.get()
    }

    /// Returns the number of messages, and resets it.
    pub(crate) fn take_messages(&self) -> u64 {
        self.messages.take()
    }

    pub(crate) fn index(&self) -> u64 {
        self.current.get().index
    }

    /// Start of the attempt, in milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.current.get().now_ms
    }

    pub(crate) fn config(&self) -> &Dynamic {
        &self.fixed.config
    }

    pub(crate) fn tables(&self) -> &ScriptTables {
        &self.fixed.tables
    }

    pub(crate) fn pipeline(&self) -> &str {
        &self.fixed.pipeline
    }

    pub(crate) fn step(&self) -> &str {
        &self.fixed.step
    }
}

/// The fields of `ctx`.
pub(crate) const FIELDS: [&str; 12] = [
    "attempt", "config", "hash", "index", "inputs", "lane", "meta", "now", "outputs", "pipeline", "step",
    "token",
];

pub(crate) fn register(module: &mut Module) {
    module.set_custom_type::<ScriptContext>("ctx");
    add_getter(module, "hash", |ctx: &mut ScriptContext| DeliveryHash(ctx.current.get().hash).to_string());
    add_getter(module, "token", |ctx: &mut ScriptContext| {
        ctx.fixed.token_key.token(DeliveryHash(ctx.current.get().hash))
    });
    add_getter(module, "attempt", |ctx: &mut ScriptContext| i64::from(ctx.current.get().attempt));
    add_getter(module, "index", |ctx: &mut ScriptContext| i64::try_from(ctx.index()).unwrap_or(i64::MAX));
    add_getter(module, "now", |ctx: &mut ScriptContext| ctx.now());
    add_getter(module, "pipeline", |ctx: &mut ScriptContext| ctx.fixed.pipeline.clone());
    add_getter(module, "step", |ctx: &mut ScriptContext| ctx.fixed.step.clone());
    add_getter(module, "config", |ctx: &mut ScriptContext| ctx.fixed.config.clone());
    add_getter(module, "lane", |ctx: &mut ScriptContext| {
        ctx.lane.borrow().clone().map_or(Dynamic::UNIT, Dynamic::from)
    });
    add_getter(module, "inputs", |ctx: &mut ScriptContext| ctx.inputs());
    add_getter(module, "meta", |ctx: &mut ScriptContext| ctx.meta());
    add_getter(module, "outputs", |ctx: &mut ScriptContext| {
        ctx.fixed.outputs.iter().cloned().map(Dynamic::from).collect::<Array>()
    });
    FuncRegistration::new_setter("config").set_into_module(module, keep_config);
}

/// The name of the config in the error of a script that tries to change it.
pub(crate) const CONFIG: &str = "ctx.config";

/// Refuses a change of `ctx.config`. Rhai also sets it after a call of a method on a part of it, which may
/// have changed it.
#[expect(clippy::needless_pass_by_value, reason = "functions of Rhai take values")]
fn keep_config(ctx: &mut ScriptContext, config: Dynamic) -> Result<(), Box<EvalAltResult>> {
    if frozen::is_same(&ctx.fixed.config, &config) {
        return Ok(());
    }
    Err(EvalAltResult::ErrorAssignmentToConstant(CONFIG.to_owned(), Position::NONE).into())
}
