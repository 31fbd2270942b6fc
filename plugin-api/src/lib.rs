//! `tidegate-plugin`: the interface of steps, and the means to write one as a native plugin.
//!
//! A step receives one [`Job`] at a time and returns its outputs. Payloads are JSON texts (UTF-8). A native
//! plugin implements [`PluginStep`], and [`export_plugin!`] makes a shared library of it. Any Tidegate with
//! the same version of the [interface](abi) can load it, built with any compilers.
//!
//! # Writing a plugin
//!
//! `tidegate plugin new NAME` writes the whole crate, with a copy of this one beside it. By hand: a crate with
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! tidegate-plugin = { path = "tidegate-plugin", features = ["schema"] }
//! schemars = "1"
//! serde = { version = "1", features = ["derive"] }
//! ```
//!
//! and in it
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use tidegate_plugin::{Context, Failure, Job, Outlet, PluginStep};
//!
//! /// Converts the amount of an order into another currency.
//! struct Convert {
//!     rate: f64,
//! }
//!
//! /// The keys of `config = { … }` of a step; `tidegate check` reports invalid ones.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     /// How much one unit of the order's currency is worth.
//!     rate: f64,
//! }
//!
//! #[derive(Deserialize, Serialize)]
//! struct Order {
//!     id: u64,
//!     amount: f64,
//! }
//!
//! impl PluginStep for Convert {
//!     const NAME: &'static str = "convert";
//!     const DESCRIPTION: &'static str = "converts the amount of an order";
//!     type Config = Config;
//!
//!     fn schema() -> Option<String> {
//!         tidegate_plugin::schema_of::<Config>()
//!     }
//!
//!     fn create(config: Config, context: &Context) -> Result<Self, Failure> {
//!         context.debug(format_args!("converting at {}", config.rate));
//!         Ok(Self { rate: config.rate })
//!     }
//!
//!     fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
//!         let mut order: Order = job.parse()?;
//!         if order.amount < 0.0 {
//!             return Err(Failure::reject(format!("order {} has a negative amount", order.id)));
//!         }
//!         order.amount *= self.rate;
//!         outlet.give(&order)
//!     }
//! }
//!
//! tidegate_plugin::export_plugin!(Convert);
//!
//! // Its test, without the runner:
//! use tidegate_plugin::testing::Harness;
//! let mut convert = Harness::<Convert>::new(r#"{"rate": 2.0}"#)?;
//! assert_eq!(convert.run(r#"{"id": 1, "amount": 1.5}"#)?, [r#"{"id":1,"amount":3.0}"#]);
//! assert!(convert.run(r#"{"id": 2, "amount": -1.0}"#).is_err());
//! # Ok::<(), Failure>(())
//! ```
//!
//! Copy the library (`cargo build --release`) to the folder of `[runner] plugins`, and write `run =
//! "plugin:CRATE/convert"`. If a plugin has only one step, `plugin:CRATE` suffices. A gate and a monitor may
//! run one too: it receives the input of their scripts, and pushes one answer.
//!
//! # Rules
//!
//! - **Threads.** An instance is created, used and dropped on one thread; each of the runner's threads has an
//!   instance. A [`Context`] may be cloned and passed to threads of the plugin. Threads must have ended when
//!   the instance is dropped. One that still holds a context is detected: it causes a warning, and keeps the
//!   library loaded until the runner ends. One that holds none is not detected, and crashes when the library
//!   is closed.
//! - **Time.** A step's `timeout` cannot end code inside the runner's process. An attempt that returns late
//!   has failed; one that loops or waits should check [`Context::stopping`] regularly. With `isolate =
//!   "process"` the step runs in a process of its own, which is killed.
//! - **Config.** It belongs to the whole step; all of its plugins receive it. `tidegate check` validates it
//!   against [`PluginStep::schema`]; `create` receives a valid one. A `type Config = ()` cannot be read from
//!   `{}`: use an empty struct.
//! - **Setup.** [`PluginStep::create`] is called on each thread before its first job, and again after a
//!   panic. If it fails and never succeeded, the step stops. If it returns [`Failure::retry`],
//!   [`Failure::retry_in`] or [`Failure::gate_closed`], or succeeded before, the step waits and retries, and
//!   no job is at fault.
//! - **Jobs.** [`Job::parse`] reads the whole payload; [`Job::field`] reads one field of it, in a fraction of
//!   the time. Reading the whole payload into a [`Value`] is about as fast as a script.
//! - **Failures.** An unreadable job is not retried. A retry policy matches [`Failure::because`]:
//!   [`Cause::Connection`], [`Cause::Http`], [`Cause::Timeout`] and [`Cause::Exit`].
//! - **Memory.** The outputs of a job are limited to `limits.memory` together: [`Outlet::push`] refuses more,
//!   and the attempt fails.
//! - **Pieces.** If earlier processors made several jobs from one, [`Job::piece`] distinguishes them, and
//!   each has its own [`Job::hash`].
//! - **Panics** are failed attempts, with message and place. The instance is dropped and a new one is
//!   created. `panic = "abort"` is refused at compile time.
//! - **Effects.** A step that sends, writes or pays declares it with [`PluginStep::EFFECTS`], which costs a
//!   record of each attempt on disk. It passes [`Job::hash`] to the external system, where it identifies
//!   repeated attempts.
//! - **Pending jobs.** An attempt that ends with [`Failure::pending`] leaves the job to an external system. A
//!   monitor asks for its outcome, or the external system sends it with [`Context::token`].
//!
//! # Features
//!
//! `json` (on): [`PluginStep`], [`export_plugin!`] and [`testing`], with serde and `serde_json`. `schema`:
//! `schema_of`, with schemars. Without any, the crate is the [ABI](abi), and has no dependency. All other
//! items are for the runner, and change with it.

pub mod abi;

#[cfg(feature = "json")]
#[expect(unsafe_code, reason = "reads data from across the boundary")]
mod borrowed;

mod failure;

mod level;

#[doc(hidden)]
pub mod words;

mod outputs;

mod payloads;

#[cfg(feature = "json")]
mod field;

#[cfg(feature = "json")]
mod finite;

#[cfg(feature = "json")]
#[doc(hidden)]
pub mod json;

#[cfg(feature = "json")]
#[doc(hidden)]
pub mod schema;

mod step;

#[cfg(feature = "json")]
#[expect(unsafe_code, reason = "calls across the boundary")]
mod context;

#[cfg(feature = "json")]
#[expect(unsafe_code, reason = "calls across the boundary")]
mod outlet;

#[cfg(feature = "json")]
mod plugin_step;

#[cfg(feature = "json")]
#[doc(hidden)]
#[expect(unsafe_code, reason = "is called across the boundary")]
pub mod export;

#[cfg(feature = "json")]
#[doc(hidden)]
#[expect(unsafe_code, reason = "calls across the boundary")]
pub mod host;

#[cfg(feature = "json")]
#[expect(unsafe_code, reason = "describes a step as a library would")]
pub mod testing;

pub use failure::{Cause, Failure, FailureKind, Place};
pub use level::Level;
#[doc(hidden)]
pub use outputs::{Checkpoint, Delayed, Outputs};
#[doc(hidden)]
pub use payloads::Payloads;
pub use step::Job;
#[doc(hidden)]
pub use step::Step;

#[cfg(feature = "json")]
pub use context::Context;
#[cfg(feature = "json")]
pub use outlet::Outlet;
#[cfg(feature = "json")]
pub use plugin_step::PluginStep;
#[cfg(feature = "schema")]
pub use plugin_step::schema_of;
/// Any JSON value, for steps without a fixed type of jobs.
#[cfg(feature = "json")]
pub use serde_json::Value;
