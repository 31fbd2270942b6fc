//! Processor: runs a job through one part of a chain.

pub(crate) mod chain;
pub(crate) mod deadline;
pub(crate) mod mock;
pub(crate) mod monitor_protocol;
pub(crate) mod probe;
pub(crate) mod services;
pub(crate) mod walk;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_plugin::{Failure, FailureKind, Job, Outputs};

use self::mock::{MockedProcessor, Mocks};
use self::walk::PieceNumbers;
use crate::commit::queue_tables::TablesOf;
use crate::load_plugins;
use tidegate_components::calls::{Answer, Call, Calls};
use tidegate_components::exec::{ExecSpec, ExecStep, RunningCommands};
use tidegate_components::http::{HttpSpec, HttpStep};
use tidegate_components::plugin::{
    AfterDeath, Custody, Deaths, Isolated, PluginRunner, PluginSpec, Plugins, Setups,
};
use tidegate_components::script::{EntryPoint, ScriptOutlet, ScriptStep, ScriptStepSpec, ScriptTables};
use tidegate_config::{
    ExecCommand, HttpRequest, InputMode, Limits, LookupTables, MockPlace, PluginStepConfig, Processor,
    Script, Step, StepFilter,
};
use tidegate_model::{Address, Secret, TokenKey};

/// Consecutive scripts, or one other processor.
#[derive(Debug)]
pub(crate) enum ProcessorStage {
    /// The first one contains the filter of the step, perhaps without a script.
    Script(Box<ScriptStep>),
    Plugin(Box<PluginRunner>),
    Isolated(Box<Isolated>),
    Http(Box<HttpStep>),
    Exec(Box<ExecStep>),
    /// Answers of a test, in the place of a plugin or a built-in.
    Mocked(Box<MockedProcessor>),
    /// No processor: jobs are passed on unchanged.
    Pass,
}

/// Step or gate that owns the processors, with their common settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepContext<'c> {
    pub(crate) step: &'c Address,
    pub(crate) limits: &'c Limits,
    pub(crate) timeout: Option<Duration>,
    pub(crate) config: &'c serde_json::Value,
    /// The keys of `config` that are the pipeline's or the runner's.
    pub(crate) shared: &'c [String],
    /// Secrets that must not be shown.
    pub(crate) secrets: &'c [Secret],
    /// Tables that its scripts may read.
    pub(crate) tables: &'c LookupTables,
    /// Finds the rows of tables that are in queues.
    pub(crate) rows: TablesOf<'c>,
    /// File that names the processors, for messages.
    pub(crate) file: &'c str,
    /// Key of the completion tokens.
    pub(crate) token_key: &'c TokenKey,
    /// Kills the commands.
    pub(crate) running_commands: &'c Arc<RunningCommands>,
    /// Awaits requests and commands.
    pub(crate) calls: &'c Calls,
    /// Set when the run must end.
    pub(crate) ending: &'c Arc<AtomicBool>,
    /// Deaths of plugin processes.
    pub(crate) deaths: &'c Arc<Deaths>,
    pub(crate) setups: &'c Setups,
    /// Mocks of a test.
    pub(crate) mocks: Option<&'c Arc<Mocks>>,
    /// Whether plugins run in their own processes.
    pub(crate) isolate: bool,
    pub(crate) after_death: AfterDeath,
}

/// Maximum number of process deaths in a row while a plugin is created for a step that attempts no job twice.
const CREATION_LIMIT: u32 = 3;

/// Resources that the processors of all steps share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedResources<'c> {
    pub(crate) plugins: &'c Plugins,
    pub(crate) token_key: &'c TokenKey,
    /// Rows of tables that are in queues.
    pub(crate) rows: TablesOf<'c>,
    /// Kills the commands.
    pub(crate) running_commands: &'c Arc<RunningCommands>,
    /// Awaits requests and commands.
    pub(crate) calls: &'c Calls,
    /// Set when the run must end.
    pub(crate) ending: &'c Arc<AtomicBool>,
    /// Deaths of plugin processes.
    pub(crate) deaths: &'c Arc<Deaths>,
    /// Record of setups in progress.
    pub(crate) setups: &'c Setups,
    /// Mocks of a test; `None` in a run.
    pub(crate) mocks: Option<&'c Arc<Mocks>>,
}

/// Scripts of one processor, with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptGroup<'c> {
    pub(crate) scripts: &'c [Script],
    pub(crate) filter: &'c StepFilter,
    pub(crate) take: InputMode,
    pub(crate) outlet: ScriptOutlet,
    pub(crate) entry: EntryPoint,
    /// Names of the inputs of the step, as in delivery hashes.
    pub(crate) inputs: &'c [String],
    /// Parts of its jobs, if they are the tuples of a join by key.
    pub(crate) parts: &'c [String],
    /// Bindings of the outputs of the step.
    pub(crate) outputs: &'c [&'c str],
}

impl<'c> StepContext<'c> {
    pub(crate) fn of(step: &'c Step, file: &'c str, common: &SharedResources<'c>) -> Self {
        Self {
            step: &step.address,
            limits: &step.limits,
            timeout: step.timeout,
            config: &step.config,
            shared: &step.shared,
            secrets: &step.secrets,
            tables: &step.tables,
            rows: common.rows,
            file,
            token_key: common.token_key,
            running_commands: common.running_commands,
            calls: common.calls,
            ending: common.ending,
            deaths: common.deaths,
            setups: common.setups,
            mocks: common.mocks,
            isolate: step.isolate,
            after_death: if step.attempts_again_after_a_death() {
                AfterDeath::Again { crash_limit: step.crash_limit }
            } else {
                AfterDeath::Crashed
            },
        }
    }

    pub(crate) fn script(&self, scripts: &ScriptGroup<'_>) -> Result<Box<ScriptStep>, String> {
        let tables = ScriptTables::new(self.tables, |table| self.rows.rows(table));
        let tables = tables.ok_or("the rows of a lookup table are unknown")?;
        let spec = ScriptStepSpec {
            pipeline: self.step.pipeline.as_str(),
            step: self.step.name.as_str(),
            scripts: scripts.scripts,
            filter: scripts.filter,
            limits: self.limits,
            timeout: self.timeout,
            config: self.config,
            secrets: self.secrets,
            file: self.file,
            take: scripts.take,
            outlet: scripts.outlet,
            entry: scripts.entry,
            inputs: scripts.inputs,
            parts: scripts.parts,
            outputs: scripts.outputs,
            token_key: self.token_key,
            tables: &tables,
        };
        let made = ScriptStep::new(&spec).map(Box::new);
        made.map_err(|error| format!("a script no longer compiles: {}", error.message))
    }

    /// The mock of a processor; `None` if the processor itself runs.
    pub(crate) fn mocked(&self, processor: &Processor, place: &MockPlace) -> Option<ProcessorStage> {
        let mocked = self.mocks?.replace(processor, place)?;
        Some(ProcessorStage::Mocked(Box::new(mocked)))
    }

    pub(crate) fn http(&self, request: &HttpRequest) -> HttpStep {
        HttpStep::new(&HttpSpec {
            pipeline: self.step.pipeline.as_str(),
            step: self.step.name.as_str(),
            request,
            timeout: self.timeout,
            memory: self.limits.memory,
            token_key: self.token_key,
            calls: self.calls,
        })
    }

    pub(crate) fn exec(&self, command: &ExecCommand) -> ExecStep {
        ExecStep::new(&ExecSpec {
            pipeline: self.step.pipeline.as_str(),
            step: self.step.name.as_str(),
            command,
            timeout: self.timeout,
            memory: self.limits.memory,
            token_key: self.token_key,
            running_commands: self.running_commands,
            calls: self.calls,
        })
    }

    pub(crate) fn plugin(
        &self,
        plugin: &PluginStepConfig,
        plugins: &Plugins,
        bindings: &[&str],
        earlier: u32,
    ) -> Result<ProcessorStage, String> {
        let named = plugin.named();
        let loaded = plugins.get(&plugin.plugin).ok_or_else(|| format!("plugin `{named}` is not loaded"))?;
        let offered = loaded
            .description()
            .step(&plugin.plugin, plugin.step.as_deref())
            .map_err(|(message, _)| plugin.masked(message))?;
        let config = load_plugins::accepted(offered.schema.as_deref(), self.config, self.shared);
        let spec = PluginSpec {
            named: &named,
            pipeline: self.step.pipeline.as_str(),
            step: self.step.name.as_str(),
            config: &config,
            secrets: self.secrets,
            bindings,
            timeout: self.timeout,
            memory: self.limits.memory,
            token_key: self.token_key,
            earlier,
        };
        let link = if self.isolate {
            let custody = Custody {
                after_death: self.after_death,
                ending: Arc::clone(self.ending),
                deaths: Arc::clone(self.deaths),
            };
            ProcessorStage::Isolated(Box::new(Isolated::new(loaded, offered, &spec, custody)))
        } else {
            self.refuse_after_deaths(&PluginRunner::creation(&spec))?;
            let loading = self.setups.begin(format!("plugin `{named}` was being loaded"));
            let opened = loaded.plugin().map_err(|error| plugin.masked(error.to_string()))?;
            let missing = || plugin.masked(format!("plugin `{named}` no longer has its step"));
            let offer = opened.offer(&offered.name).ok_or_else(missing)?;
            drop(loading);
            ProcessorStage::Plugin(Box::new(PluginRunner::recorded(offer, &spec, self.setups)))
        };
        Ok(link)
    }
}

impl StepContext<'_> {
    /// Refuses a setup that crashed the process repeatedly; the next run tries it again.
    fn refuse_after_deaths(&self, at: &str) -> Result<(), String> {
        let limit = match self.after_death {
            AfterDeath::Crashed => Some(CREATION_LIMIT),
            AfterDeath::Again { crash_limit } => crash_limit.map(NonZeroU32::get),
        };
        let deaths = self.setups.deaths(at);
        if limit.is_none_or(|limit| deaths < limit) {
            return Ok(());
        }
        let often = if deaths == 1 { String::new() } else { format!(" {deaths} times in a row") };
        Err(format!("the process died{often} while {at}; the next run tries it again"))
    }
}

impl ProcessorStage {
    /// Sets up a plugin that is not set up.
    ///
    /// # Errors
    /// The error of the plugin, or the reason for which it cannot be reached.
    pub(crate) fn set_up(&mut self) -> Result<(), Failure> {
        match self {
            Self::Plugin(plugin) => plugin.set_up(),
            Self::Isolated(isolated) => isolated.set_up(),
            Self::Script(_) | Self::Http(_) | Self::Exec(_) | Self::Mocked(_) | Self::Pass => Ok(()),
        }
    }

    /// Prepares the request of `job`, or starts its command; `None` for every other processor.
    pub(crate) fn call(&self, job: &Job<'_>, numbers: &mut PieceNumbers) -> Option<Result<Call, Failure>> {
        match self {
            Self::Http(http) => Some(http.prepare(job, numbers.next_call()).map(Call::Http)),
            Self::Exec(exec) => Some(exec.start(job, numbers.next_call()).map(Call::Command)),
            _ => None,
        }
    }

    /// Adds the answer to the call of `job` to `outputs`.
    ///
    /// # Errors
    /// The failure of the call, or the answer is no output.
    pub(crate) fn take(&self, job: &Job<'_>, answer: Answer, outputs: &mut Outputs) -> Result<(), Failure> {
        match (self, answer) {
            (Self::Http(http), Answer::Http(answer)) => http.take(job, &answer, outputs),
            (Self::Exec(exec), Answer::Command(ended)) => exec.take(job, ended, outputs),
            // The step is the same as at the begin of the call.
            _ => Err(Failure::new(FailureKind::Failed, "the answer belongs to another processor")),
        }
    }

    /// Runs `job` through the processor within the time `left`. `pieces` counts requests and commands.
    ///
    /// # Errors
    /// The failure.
    pub(crate) fn process(
        &mut self,
        job: &Job<'_>,
        pieces: &mut u32,
        outputs: &mut Outputs,
        left: Option<Duration>,
    ) -> Result<(), Failure> {
        match self {
            Self::Http(http) => {
                *pieces += 1;
                http.process(job, *pieces, outputs)
            }
            Self::Exec(exec) => {
                *pieces += 1;
                exec.process(job, *pieces, outputs)
            }
            Self::Mocked(mocked) => mocked.process(outputs),
            Self::Pass => {
                outputs.push_to_all(job.payload);
                Ok(())
            }
            Self::Script(script) => script.process_within(job, outputs, left),
            Self::Plugin(plugin) => plugin.process_within(job, outputs, left),
            Self::Isolated(isolated) => isolated.process_within(job, outputs, left),
        }
    }
}
