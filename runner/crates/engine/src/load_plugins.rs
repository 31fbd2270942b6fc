//! Plugin loader: loads the plugins of a configuration and checks their options against their schemas.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use tidegate_plugin::schema::{self, Mistake};

use super::error::Chain;
use tidegate_components::plugin::{LoadError, Pins, Plugins, Search};
use tidegate_config::locate;
use tidegate_config::{
    Configuration, Diagnostic, Diagnostics, Gate, Monitor, Pin, PluginStepConfig, Processor, SourceSpan,
    Step, all_processors,
};
use tidegate_model::Parts;
use tidegate_model::suggest::did_you_mean;

/// Loads the plugins of steps and gates, and checks their options.
pub(crate) fn load(configuration: &Configuration, diagnostics: &mut Diagnostics) -> Plugins {
    let Configuration { steps, gates, settings, .. } = configuration;
    let search = Search { folders: settings.plugins.clone() };
    let pins: Pins = settings.pins.iter().map(|(name, pin)| (name.clone(), pin.sha256.clone())).collect();
    let named = named(steps, gates);
    named.iter().flat_map(|name| search.paths(name)).for_each(|path| diagnostics.seek(path));
    let plugins = Plugins::load(&named, &search, &pins);
    let mut printing = BTreeSet::new();
    let mut check_all = |run: &[Processor], config: Given<'_>, diagnostics: &mut Diagnostics| {
        let mut any = false;
        for plugin in run.iter().filter_map(Processor::plugin) {
            any = true;
            if let Err(diagnostic) = check(config, plugin, (&plugins, &settings.pins), diagnostics) {
                diagnostics.push(*diagnostic);
            }
            if printing.insert(plugin.plugin.clone()) {
                diagnostics.extend(prints(plugin, &plugins));
            }
        }
        any
    };
    for step in steps {
        let name = step.address.name.as_str();
        let way: &[&str] = &["step", name, "config"];
        let given = Given { config: &step.config, shared: &step.shared, way };
        let mut any = check_all(&step.processors, given, diagnostics);
        if let Some(Monitor { inquiry, .. }) = &step.monitor {
            let way = ["step", name, "monitor", "config"];
            let given = Given { config: &inquiry.config, shared: &inquiry.shared, way: &way };
            any |= check_all(&inquiry.run, given, diagnostics);
        }
        if step.isolate && !any {
            let span = place(diagnostics, &step.file, &["step", name, "isolate"], true);
            let message = "`isolate` has no effect: the step runs no plugin";
            diagnostics.push(Diagnostic::warning(&step.file, span, message));
        }
    }
    for Gate { name, inquiry, .. } in gates {
        let way = ["gate", name.as_str(), "config"];
        let given = Given { config: &inquiry.config, shared: &inquiry.shared, way: &way };
        check_all(&inquiry.run, given, diagnostics);
    }
    plugins
}

/// Names of the plugins of steps and gates, each once.
fn named<'c>(steps: &'c Parts<Step>, gates: &'c Parts<Gate>) -> Vec<&'c str> {
    let plugins = all_processors(steps, gates).filter_map(Processor::plugin);
    plugins.map(|plugin| plugin.plugin.as_str()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Warning for a library that prints on standard output, which programs may parse.
fn prints(plugin: &PluginStepConfig, plugins: &Plugins) -> Option<Diagnostic> {
    let printed = plugins.get(&plugin.plugin)?.printed();
    let message =
        || plugin.masked(format!("plugin `{}` prints while it is loaded: `{printed}`", plugin.plugin));
    let warning = || Diagnostic::warning(&plugin.named_in, Some(plugin.named_at.clone()), message());
    (!printed.is_empty()).then(|| warning().help("call the logging functions of the host in the plugin"))
}

/// Records the facts about each plugin that are known once it is loaded.
pub(crate) fn note(configuration: &mut Configuration, plugins: &Plugins) {
    let of_steps = configuration.steps.iter_mut().flat_map(|step| {
        let asked = step.monitor.iter_mut().flat_map(|monitor| &mut monitor.inquiry.run);
        step.processors.iter_mut().chain(asked)
    });
    let of_gates = configuration.gates.iter_mut().flat_map(|gate| &mut gate.inquiry.run);
    for plugin in of_steps.chain(of_gates).filter_map(Processor::plugin_mut) {
        let Some(loaded) = plugins.get(&plugin.plugin) else { continue };
        loaded.image().sha256().clone_into(&mut plugin.sha256);
        if let Ok(offered) = loaded.description().step(&plugin.plugin, plugin.step.as_deref()) {
            plugin.has_effects = offered.has_effects;
        }
    }
    configuration.derive();
}

/// The config of a processor.
#[derive(Clone, Copy)]
struct Given<'c> {
    config: &'c Value,
    /// The keys that are the pipeline's or the runner's.
    shared: &'c [String],
    /// The place of its own keys in the file.
    way: &'c [&'c str],
}

/// The config that a plugin receives: without the shared keys that its schema does not know, which are for other
/// processors.
pub(crate) fn accepted<'c>(schema: Option<&str>, config: &'c Value, shared: &[String]) -> Cow<'c, Value> {
    let schema = schema.filter(|_| !shared.is_empty()).and_then(|text| schema::read(text).ok());
    let Some(schema) = schema else { return Cow::Borrowed(config) };
    let unknown = schema::mistakes(&schema, config).into_iter().filter(|mistake| mistake.at_key);
    let mut accepted = Cow::Borrowed(config);
    for mistake in unknown {
        if let [key] = mistake.path.as_slice()
            && shared.contains(key)
            && let Some(fields) = accepted.to_mut().as_object_mut()
        {
            fields.remove(key);
        }
    }
    accepted
}

fn check(
    Given { config, shared, way }: Given<'_>,
    plugin: &PluginStepConfig,
    (plugins, pinned): (&Plugins, &BTreeMap<String, Pin>),
    diagnostics: &mut Diagnostics,
) -> Result<(), Box<Diagnostic>> {
    let wrong = |message: String| {
        Diagnostic::error(&plugin.named_in, plugin.named_at.clone(), plugin.masked(message))
    };
    // A suggestion could reveal a secret name.
    let help = |help: Option<String>| help.filter(|_| !plugin.secret);
    let Some(found) = plugins.find(&plugin.plugin) else { return Ok(()) };
    let loaded = found.map_err(|error| {
        let diagnostic = wrong(Chain(error).to_string()).help_if(help(error.help()));
        Box::new(match (error, pinned.get(&plugin.plugin)) {
            (LoadError::Pinned { .. }, Some(pin)) => diagnostic.related(pin.place.clone(), "pinned here"),
            _ => diagnostic,
        })
    })?;
    let offered = loaded
        .description()
        .step(&plugin.plugin, plugin.step.as_deref())
        .map_err(|(message, hint)| Box::new(wrong(message).help_if(help(Some(hint)))))?;
    let Some(text) = &offered.schema else { return Ok(()) };
    let schema = schema::read(text).map_err(|fault| {
        let named = plugin.named();
        Box::new(wrong(format!("the config schema of plugin `{named}` {fault}")))
    })?;
    for mistake in schema::mistakes(&schema, &accepted(Some(text), config, shared)) {
        let is_shared = mistake.path.first().is_some_and(|key| shared.contains(key));
        let mut way = if is_shared { vec!["pipeline", "config"] } else { way.to_vec() };
        let section = way.len() - 1;
        way.extend(mistake.path.iter().map(String::as_str));
        let span = place(diagnostics, &plugin.named_in, &way, mistake.at_key);
        let named = way[section..way.len() - usize::from(mistake.at_key)].join(".");
        let message = format!("`{named}` {}", mistake.message);
        let place = SourceSpan { file: plugin.named_in.as_path().into(), span: plugin.named_at.clone() };
        let label = format!("required by plugin `{}`", plugin.named());
        diagnostics.push(
            Diagnostic::error(&plugin.named_in, span, message)
                .related(place, label)
                .help_if(help_with(mistake)),
        );
    }
    Ok(())
}

/// Suggestion for a mistake: the nearest known word, or the help of the schema.
fn help_with(mistake: Mistake) -> Option<String> {
    let Mistake { typed, help, .. } = mistake;
    let near = typed.and_then(|(typed, words)| did_you_mean(&typed, words.iter().map(String::as_str)));
    near.or(help)
}

fn place(diagnostics: &Diagnostics, file: &Path, way: &[&str], key: bool) -> Option<std::ops::Range<usize>> {
    locate(diagnostics.files().get(file)?, way, key)
}
