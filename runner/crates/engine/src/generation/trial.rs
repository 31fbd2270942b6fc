//! Trial: sets up the plugins that a new generation would set up anew, and ends their instances again. A plugin that
//! cannot be set up keeps the generation from taking over.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, unbounded};

use super::Generation;
use crate::commit::queue_tables::{QueueTables, TablesOf};
use crate::processor::chain::{earlier, shown};
use crate::processor::probe::owner;
use crate::processor::{SharedResources, StepContext};
use tidegate_components::calls::Calls;
use tidegate_components::exec::RunningCommands;
use tidegate_components::plugin::{AfterDeath, Deaths, Setups};
use tidegate_components::redact::Redactor;
use tidegate_components::script::STACK;
use tidegate_config::{Configuration, ConfigurationDigest, Limits, PluginStepConfig, Processor, Step};
use tidegate_model::{Address, TokenKey, log_target};

/// Longest wait for all plugins. A plugin that takes longer is set up after the takeover, as at the start of a
/// run: a reload does not wait for code that hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks for the end of the run, which waits for no trial.
const LOOK: Duration = Duration::from_millis(50);

/// Plugin that cannot be set up.
#[derive(Clone, Debug)]
pub struct FailedSetup {
    /// Step that runs the plugin, or asks it as its gate or monitor.
    pub step: Address,
    /// Text that names the plugin.
    pub named_in: PathBuf,
    pub named_at: Range<usize>,
    /// The error, as a sentence fragment.
    pub message: String,
}

/// Resources of the run that a trial uses.
#[derive(Clone, Debug)]
pub(crate) struct TrialResources {
    pub(crate) running_commands: Arc<RunningCommands>,
    pub(crate) ending: Arc<AtomicBool>,
    pub(crate) setups: Setups,
    pub(crate) tables: Arc<QueueTables>,
}

/// Plugins of new and changed steps that cannot be set up. `before`: the configuration that is in force.
///
/// # Errors
/// No thread can be started.
pub(crate) fn failures(
    next: &Generation,
    before: &ConfigurationDigest,
    resources: TrialResources,
) -> io::Result<Vec<FailedSetup>> {
    let mut failed = Vec::new();
    let after = Arc::clone(next.digest());
    let is_set_up_anew = |step: &&Step| {
        has_plugins(&next.configuration, step) && before.is_changed(step, &next.configuration, &after)
    };
    let steps: BTreeSet<Address> =
        next.configuration.steps.iter().filter(is_set_up_anew).map(|step| step.address.clone()).collect();
    if steps.is_empty() {
        return Ok(failed);
    }
    let (results, tried) = unbounded();
    let (next, ending) = (next.clone(), Arc::clone(&resources.ending));
    thread::Builder::new()
        .name("trial".into())
        .stack_size(STACK)
        .spawn(move || try_all(&next, &steps, &resources, &results))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match tried.recv_timeout(LOOK) {
            Ok(of_step) => failed.extend(of_step),
            Err(RecvTimeoutError::Disconnected) => return Ok(failed),
            Err(RecvTimeoutError::Timeout) if ending.load(Ordering::Acquire) => return Ok(failed),
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            Err(RecvTimeoutError::Timeout) => {
                let patience = PATIENCE.as_secs();
                tracing::warn!(
                    target: log_target::ENGINE,
                    "the plugins of the changed steps were not set up within {patience} seconds: the reload goes on \
                     without a trial of the others"
                );
                return Ok(failed);
            }
        }
    }
}

fn has_plugins(configuration: &Configuration, step: &Step) -> bool {
    let asked = configuration.probes(step).flat_map(|probe| &probe.run);
    step.processors.iter().chain(asked).any(|processor| processor.plugin().is_some())
}

/// Sends the failures of each step. Ends early if the receiver is gone.
fn try_all(
    next: &Generation,
    steps: &BTreeSet<Address>,
    resources: &TrialResources,
    results: &Sender<Vec<FailedSetup>>,
) {
    let (token_key, calls, deaths) = (TokenKey::NONE, Calls::default(), Arc::<Deaths>::default());
    let configuration = &next.configuration;
    let common = SharedResources {
        plugins: &next.plugins,
        token_key: &token_key,
        rows: TablesOf { tables: &resources.tables, configuration },
        running_commands: &resources.running_commands,
        calls: &calls,
        ending: &resources.ending,
        deaths: &deaths,
        setups: &resources.setups,
        mocks: None,
    };
    for step in configuration.steps.iter().filter(|step| steps.contains(&step.address)) {
        if results.send(try_step(configuration, step, &common)).is_err() {
            return;
        }
    }
}

fn try_step(configuration: &Configuration, step: &Step, common: &SharedResources<'_>) -> Vec<FailedSetup> {
    let (mut failed, mut named_before) = (Vec::new(), Vec::new());
    let file = shown(configuration, &step.file);
    // Deaths of an earlier library do not concern this one.
    let after_death = AfterDeath::Again { crash_limit: None };
    let context = StepContext { after_death, ..StepContext::of(step, &file, common) };
    let bindings: Vec<&str> = step.outputs.iter().map(|output| output.binding.as_str()).collect();
    let mut note = |plugin: &PluginStepConfig, why: Option<String>| {
        failed.extend(why.map(|why| FailedSetup {
            step: step.address.clone(),
            named_in: plugin.named_in.clone(),
            named_at: plugin.named_at.clone(),
            message: plugin.masked(why),
        }));
    };
    for (position, plugin) in plugins(&step.processors) {
        let bindings = if position + 1 == step.processors.len() { &bindings[..] } else { &[""] };
        let earlier = earlier(&mut named_before, plugin);
        note(plugin, why_not(&context, plugin, bindings, earlier, common));
    }
    let limits = Limits::default();
    for inquiry in configuration.probes(step) {
        let context = StepContext { after_death, ..owner(step, inquiry, (&limits, &file), common) };
        for (_, plugin) in plugins(&inquiry.run) {
            note(plugin, why_not(&context, plugin, &[""], 0, common));
        }
    }
    failed
}

fn plugins(processors: &[Processor]) -> impl Iterator<Item = (usize, &PluginStepConfig)> {
    processors.iter().enumerate().filter_map(|(position, processor)| Some((position, processor.plugin()?)))
}

/// Reason for which a plugin cannot be set up.
fn why_not(
    context: &StepContext<'_>,
    plugin: &PluginStepConfig,
    bindings: &[&str],
    earlier: u32,
    common: &SharedResources<'_>,
) -> Option<String> {
    let made = context.plugin(plugin, common.plugins, bindings, earlier);
    let set_up = made.and_then(|mut made| made.set_up().map_err(|failure| failure.message));
    set_up.err().map(|why| Redactor::new(context.secrets).clean(&why))
}
