//! One link of a chain of processors: what it is made from, and how a job runs through it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_plugin::{Failure, Job, Outputs};

use tidegate_components::exec::{ExecSpec, ExecStep, Leash};
use tidegate_components::http::{HttpSpec, HttpStep};
use tidegate_components::plugin::{Custody, Deaths, Isolated, PluginRunner, PluginSpec, Plugins, Setups};
use tidegate_components::script::{Entry, Outlet, ScriptStep, ScriptStepSpec};
use tidegate_config::{ExecCommand, HttpRequest, Limits, PluginStep, Promise, Script, Step, StepFilter};
use tidegate_model::{Address, Secret, TokenKey};

/// Scripts that follow each other, or one other processor.
#[derive(Debug)]
pub(crate) enum Link {
    Script(Box<ScriptStep>),
    /// Scripts without a script: only whether the job is wanted.
    Filter(Box<ScriptStep>, Outputs),
    Plugin(Box<PluginRunner>),
    Isolated(Box<Isolated>),
    Http(Box<HttpStep>),
    Exec(Box<ExecStep>),
    /// No processor at all: jobs are handed on as they are.
    Pass,
}

/// Whose processors they are, and what holds for all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'c> {
    pub(crate) step: &'c Address,
    pub(crate) limits: &'c Limits,
    pub(crate) timeout: Option<Duration>,
    pub(crate) config: &'c serde_json::Value,
    /// What of it must not be shown.
    pub(crate) secrets: &'c [Secret],
    /// The file that names them, for messages.
    pub(crate) file: &'c str,
    /// What the tokens of jobs are made with.
    pub(crate) token_key: &'c TokenKey,
    /// Commands are killed by it.
    pub(crate) leash: &'c Arc<Leash>,
    /// Set when the run is asked to end.
    pub(crate) ending: &'c Arc<AtomicBool>,
    /// Of processes that plugins run in.
    pub(crate) deaths: &'c Arc<Deaths>,
    pub(crate) setups: &'c Setups,
    /// Plugins run in a process of their own.
    pub(crate) isolate: bool,
    /// So often a job may take a process down; `None` where no job is attempted twice.
    pub(crate) crash_limit: Option<u32>,
}

/// So many processes in a row may die while a plugin is created for a step that attempts no job twice.
const CREATION_LIMIT: u32 = 3;

/// What the processors of all steps share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common<'c> {
    pub(crate) plugins: &'c Plugins,
    pub(crate) token_key: &'c TokenKey,
    /// Commands are killed by it.
    pub(crate) leash: &'c Arc<Leash>,
    /// Set when the run is asked to end.
    pub(crate) ending: &'c Arc<AtomicBool>,
    /// Of processes that plugins run in.
    pub(crate) deaths: &'c Arc<Deaths>,
    /// Where is written down what is set up.
    pub(crate) setups: &'c Setups,
}

/// Scripts of one link, and what is particular to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scripts<'c> {
    pub(crate) scripts: &'c [Script],
    pub(crate) filter: &'c StepFilter,
    pub(crate) wrapped: bool,
    pub(crate) outlet: Outlet,
    pub(crate) entry: Entry,
}

impl<'c> Owner<'c> {
    pub(crate) fn of(step: &'c Step, file: &'c str, common: &Common<'c>) -> Self {
        Self {
            step: &step.address,
            limits: &step.limits,
            timeout: step.timeout,
            config: &step.config,
            secrets: &step.secrets,
            file,
            token_key: common.token_key,
            leash: common.leash,
            ending: common.ending,
            deaths: common.deaths,
            setups: common.setups,
            isolate: step.isolate,
            // Progress of `at-most-once` moves first: nothing is attempted after a crash.
            crash_limit: (step.delivery != Promise::AtMostOnce).then_some(step.crash_limit),
        }
    }

    pub(crate) fn script(&self, scripts: &Scripts<'_>) -> Result<Box<ScriptStep>, String> {
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
            wrapped: scripts.wrapped,
            outlet: scripts.outlet,
            entry: scripts.entry,
            token_key: self.token_key,
        };
        let made = ScriptStep::new(&spec).map(Box::new);
        made.map_err(|error| format!("a script that compiled before does not any more: {}", error.message))
    }

    pub(crate) fn http(&self, request: &HttpRequest) -> HttpStep {
        HttpStep::new(&HttpSpec {
            pipeline: self.step.pipeline.as_str(),
            step: self.step.name.as_str(),
            request,
            timeout: self.timeout,
            memory: self.limits.memory,
            token_key: self.token_key,
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
            leash: self.leash,
        })
    }

    pub(crate) fn plugin(
        &self,
        plugin: &PluginStep,
        plugins: &Plugins,
        bindings: &[&str],
        earlier: u32,
    ) -> Result<Link, String> {
        let named = plugin.named();
        let loaded = plugins.get(&plugin.plugin).ok_or_else(|| format!("plugin `{named}` is not loaded"))?;
        let offered = loaded
            .description()
            .step(&plugin.plugin, plugin.step.as_deref())
            .map_err(|(message, _)| plugin.masked(message))?;
        let spec = PluginSpec {
            named: &named,
            pipeline: self.step.pipeline.as_str(),
            step: self.step.name.as_str(),
            config: self.config,
            secrets: self.secrets,
            bindings,
            timeout: self.timeout,
            memory: self.limits.memory,
            token_key: self.token_key,
            earlier,
        };
        let link = if self.isolate {
            let custody = Custody {
                crash_limit: self.crash_limit,
                ending: Arc::clone(self.ending),
                deaths: Arc::clone(self.deaths),
            };
            Link::Isolated(Box::new(Isolated::new(loaded, offered, &spec, custody)))
        } else {
            self.refuse_after_deaths(&PluginRunner::creation(&spec))?;
            let loading = self.setups.begin(format!("plugin `{named}` was being loaded"));
            let opened = loaded.plugin().map_err(|error| plugin.masked(error.to_string()))?;
            let missing = || plugin.masked(format!("plugin `{named}` offers its step no more"));
            let offer = opened.offer(&offered.name).ok_or_else(missing)?;
            drop(loading);
            Link::Plugin(Box::new(PluginRunner::recorded(offer, &spec, self.setups)))
        };
        Ok(link)
    }
}

impl Owner<'_> {
    /// What took the process down again and again is left alone for this run.
    fn refuse_after_deaths(&self, at: &str) -> Result<(), String> {
        let (deaths, limit) = (self.setups.deaths(at), self.crash_limit.unwrap_or(CREATION_LIMIT));
        if deaths < limit {
            return Ok(());
        }
        let often = if deaths == 1 { String::new() } else { format!(" {deaths} times in a row") };
        Err(format!("the process died{often} while {at}; the next run tries it again"))
    }
}

impl Link {
    /// Makes a plugin ready that is not.
    ///
    /// # Errors
    /// What it says, or why it cannot be reached.
    pub(crate) fn set_up(&mut self) -> Result<(), Failure> {
        match self {
            Self::Plugin(plugin) => plugin.set_up(),
            Self::Isolated(isolated) => isolated.set_up(),
            Self::Script(_) | Self::Filter(..) | Self::Http(_) | Self::Exec(_) | Self::Pass => Ok(()),
        }
    }

    /// Runs `job` through it, which has `left` of its time. `pieces` counts what is asked of the outside.
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
            Self::Pass => {
                for position in 0..outputs.bindings() {
                    if let Some(payloads) = outputs.get_mut(position) {
                        payloads.push(job.payload);
                    }
                }
                Ok(())
            }
            Self::Script(script) => script.process_within(job, outputs, left),
            Self::Plugin(plugin) => plugin.process_within(job, outputs, left),
            Self::Isolated(isolated) => isolated.process_within(job, outputs, left),
            Self::Filter(filter, passed) => {
                passed.clear();
                filter.process_within(job, passed, left)?;
                if let (1.., Some(payloads)) = (passed.total(), outputs.get_mut(0)) {
                    payloads.push(job.payload);
                }
                Ok(())
            }
        }
    }
}
