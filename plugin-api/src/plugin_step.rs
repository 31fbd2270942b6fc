//! The trait that a plugin in Rust implements.

use serde::de::DeserializeOwned;

use crate::{Context, Failure, Job, Outlet};

/// A step that a plugin offers under a name; [`export_plugin!`](crate::export_plugin) makes a plugin of
/// one or several.
///
/// An instance lives on one thread and sees its jobs one after another; the runner makes one for each
/// of its threads. It must not rely on state between jobs for its results: after a crash a fresh
/// instance sees the same job again. A panic is a failed attempt, after which the instance is dropped
/// and a new one is created.
pub trait PluginStep: Sized + 'static {
    /// The name in `run = "plugin:PLUGIN/NAME"`; letters, digits, `-` and `_`.
    const NAME: &'static str;

    /// A line for people, shown by `tidegate plugin inspect`.
    const DESCRIPTION: &'static str = "";

    /// Whether attempts can be seen from outside: it sends, writes, or pays. A step with effects is
    /// tried again under other rules, and should carry [`Job::hash`] to whatever it talks to.
    const EFFECTS: bool = false;

    /// What `config = { … }` of the step is read into: a struct. Where there is nothing to set, an empty one
    /// with `#[serde(deny_unknown_fields)]`; `()` cannot be read from an empty table.
    type Config: DeserializeOwned;

    /// The JSON Schema of the config, which `tidegate check` holds a configuration against. With the
    /// feature `schema` and `#[derive(JsonSchema)]`, `tidegate_plugin::schema_of::<Self::Config>()`.
    /// Without one any config passes the check, and is read when the step is created.
    #[must_use]
    fn schema() -> Option<String> {
        None
    }

    /// Makes an instance: on each thread before its first job, and again after a panic. The context may be
    /// kept.
    ///
    /// # Errors
    /// Why it cannot. If no instance of the step was ever made in this run, the step stops. Otherwise, and where
    /// it is [`Failure::retry`], [`Failure::retry_in`] or [`Failure::gate_closed`], the step waits, and it is tried
    /// again; no job fails of it.
    fn create(config: Self::Config, context: &Context) -> Result<Self, Failure>;

    /// Runs one attempt. Outputs that were pushed before a failure are dropped.
    ///
    /// # Errors
    /// A [`Failure`] says why there is no output: [`Failure::failed`], [`Failure::retry`],
    /// [`Failure::retry_in`], [`Failure::reject`], [`Failure::gate_closed`] or [`Failure::pending`].
    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure>;
}

/// The JSON Schema of a type that derives `JsonSchema`, for [`PluginStep::schema`].
#[cfg(feature = "schema")]
#[must_use]
pub fn schema_of<T: schemars::JsonSchema>() -> Option<String> {
    serde_json::to_string(&schemars::schema_for!(T)).ok()
}
