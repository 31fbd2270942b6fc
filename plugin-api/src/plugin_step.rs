//! `PluginStep`: the trait that a plugin in Rust implements.

use serde::de::DeserializeOwned;

use crate::{Context, Failure, Job, Outlet};

/// A step of a plugin, with its name; [`export_plugin!`](crate::export_plugin) makes a plugin of one or
/// several.
///
/// An instance lives on one thread and receives its jobs one after another; the runner creates one for each
/// of its threads. Its results must not depend on state between jobs: after a crash a fresh instance receives
/// the same job again. A panic is a failed attempt, after which the instance is dropped and a new one is
/// created.
pub trait PluginStep: Sized + 'static {
    /// The name in `run = "plugin:PLUGIN/NAME"`; letters, digits, `-` and `_`.
    const NAME: &'static str;

    /// One line for people, shown by `tidegate plugin inspect`.
    const DESCRIPTION: &'static str = "";

    /// Whether attempts have external effects: they send, write, or pay. Such a step has other rules for
    /// retries, and should pass [`Job::hash`] to the external system.
    const EFFECTS: bool = false;

    /// The type of `config = { … }` of the step: a struct. Without settings, an empty one with
    /// `#[serde(deny_unknown_fields)]`; `()` cannot be read from an empty table.
    type Config: DeserializeOwned;

    /// The JSON Schema of the config, against which `tidegate check` validates a configuration. With the
    /// feature `schema` and `#[derive(JsonSchema)]`, `tidegate_plugin::schema_of::<Self::Config>()`. Without
    /// a schema any config passes the check, and is read when the step is created.
    #[must_use]
    fn schema() -> Option<String> {
        None
    }

    /// Creates an instance: on each thread before its first job, and again after a panic. The context may be
    /// kept.
    ///
    /// # Errors
    /// The failure of the setup. If no instance of the step was ever created in this run, the step stops.
    /// Otherwise, and on [`Failure::retry`], [`Failure::retry_in`] or [`Failure::gate_closed`], the step
    /// waits and retries; no job fails.
    fn create(config: Self::Config, context: &Context) -> Result<Self, Failure>;

    /// Runs one attempt. Outputs that were pushed before a failure are dropped.
    ///
    /// # Errors
    /// A [`Failure`] with the reason: [`Failure::failed`], [`Failure::retry`], [`Failure::retry_in`],
    /// [`Failure::reject`], [`Failure::gate_closed`] or [`Failure::pending`].
    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure>;
}

/// The JSON Schema of a type that derives `JsonSchema`, for [`PluginStep::schema`].
#[cfg(feature = "schema")]
#[must_use]
pub fn schema_of<T: schemars::JsonSchema>() -> Option<String> {
    serde_json::to_string(&schemars::schema_for!(T)).ok()
}
