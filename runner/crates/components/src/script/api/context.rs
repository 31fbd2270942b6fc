//! `Context`: the facts that a script has beside the job, as `ctx`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rhai::{Dynamic, EvalAltResult, FuncRegistration, ImmutableString, Module, Position};
use tidegate_plugin::Job;

use super::register::add_getter;
use crate::redact::Redactor;
use crate::script::values::frozen;
use tidegate_model::{DeliveryHash, Secret, TokenKey};

/// The `ctx` of `fn process(job, ctx)`; cheap to clone, so that unused facts cost nothing.
#[derive(Clone, Debug)]
pub(crate) struct ScriptContext {
    fixed: Rc<Fixed>,
    current: Rc<Cell<Current>>,
    lane: Rc<RefCell<Option<ImmutableString>>>,
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
    ) -> Self {
        let (token_key, scrub) = (token_key.clone(), Redactor::new(secrets));
        let config = frozen::freeze(config);
        let fixed = Fixed { pipeline: pipeline.into(), step: step.into(), config, token_key, scrub };
        Self { fixed: Rc::new(fixed), current: Rc::default(), lane: Rc::default(), messages: Rc::default() }
    }

    /// A context without a step.
    pub(crate) fn none() -> Self {
        Self::new(("", ""), Dynamic::UNIT, &[], &TokenKey::NONE)
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

    pub(crate) fn pipeline(&self) -> &str {
        &self.fixed.pipeline
    }

    pub(crate) fn step(&self) -> &str {
        &self.fixed.step
    }
}

/// The fields of `ctx`.
pub(crate) const FIELDS: [&str; 9] =
    ["attempt", "config", "hash", "index", "lane", "now", "pipeline", "step", "token"];

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
