//! Loads the plugins of a configuration, and holds what it says of them against what they offer.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Chain;
use crate::config::{self, Diagnostic, Diagnostics, Pin, Place, PluginStep, Settings, Step, locate};
use crate::hands::plugin::{LoadError, Pins, Plugins, Search, schema};

/// Loads what `steps` name.
pub(super) fn load(steps: &[Step], settings: &Settings, diagnostics: &mut Diagnostics) -> Plugins {
    let search = Search { folders: settings.plugins.clone() };
    let pins: Pins = settings.pins.iter().map(|(name, pin)| (name.clone(), pin.sha256.clone())).collect();
    let mut plugins = Plugins::default();
    for step in steps {
        let mut any = false;
        for plugin in step.processors.iter().filter_map(config::Processor::plugin) {
            any = true;
            if let Err(diagnostic) =
                check(step, plugin, &mut plugins, (&search, &pins, &settings.pins), diagnostics)
            {
                diagnostics.push(*diagnostic);
            }
        }
        if step.isolate && !any {
            let span = place(diagnostics, &step.file, &["step", step.address.name.as_str(), "isolate"], true);
            let message = "`isolate` changes nothing here: the step runs no plugin";
            diagnostics.push(Diagnostic::warning(&step.file, span, message));
        }
    }
    plugins
}

/// Notes in `steps` what is known since their plugins are loaded.
pub(super) fn note(steps: &mut [Step], plugins: &Plugins) {
    for plugin in
        steps.iter_mut().flat_map(|step| &mut step.processors).filter_map(config::Processor::plugin_mut)
    {
        let Some(loaded) = plugins.get(&plugin.plugin) else { continue };
        loaded.image().sha256().clone_into(&mut plugin.sha256);
        if let Ok(offer) = loaded.offer(&plugin.plugin, plugin.step.as_deref()) {
            plugin.has_effects = offer.has_effects();
        }
    }
}

fn check(
    step: &Step,
    plugin: &PluginStep,
    plugins: &mut Plugins,
    (search, pins, pinned): (&Search, &Pins, &BTreeMap<String, Pin>),
    diagnostics: &mut Diagnostics,
) -> Result<(), Box<Diagnostic>> {
    let wrong = |message: String| {
        Diagnostic::error(&plugin.named_in, plugin.named_at.clone(), plugin.masked(message))
    };
    // Which name is near to a secret one says much about it.
    let help = |help: Option<String>| help.filter(|_| !plugin.secret);
    let loaded = plugins.load(&plugin.plugin, search, pins).map_err(|error| {
        let diagnostic = wrong(Chain(&error).to_string()).help_if(help(error.help()));
        Box::new(match (&error, pinned.get(&plugin.plugin)) {
            (LoadError::Pinned { .. }, Some(pin)) => diagnostic.related(pin.place.clone(), "pinned here"),
            _ => diagnostic,
        })
    })?;
    let offer = loaded
        .offer(&plugin.plugin, plugin.step.as_deref())
        .map_err(|(message, hint)| Box::new(wrong(message).help_if(help(Some(hint)))))?;
    let Some(text) = offer.schema() else { return Ok(()) };
    let schema = serde_json::from_str(text).map_err(|error| {
        let named = plugin.named();
        Box::new(wrong(format!("the schema that plugin `{named}` says for its config is no JSON: {error}")))
    })?;
    for mistake in schema::mistakes(&schema, &step.config) {
        let mut way = vec!["step", step.address.name.as_str(), "config"];
        way.extend(mistake.path.iter().map(String::as_str));
        let span = place(diagnostics, &step.file, &way, mistake.at_key);
        let named = way[2..way.len() - usize::from(mistake.at_key)].join(".");
        let message = format!("`{named}` {}", mistake.message);
        let place = Place { file: plugin.named_in.as_path().into(), span: plugin.named_at.clone() };
        let label = format!("so says plugin `{}`", plugin.named());
        diagnostics
            .push(Diagnostic::error(&step.file, span, message).related(place, label).help_if(mistake.help));
    }
    Ok(())
}

fn place(diagnostics: &Diagnostics, file: &Path, way: &[&str], key: bool) -> Option<std::ops::Range<usize>> {
    locate(diagnostics.files().get(file)?, way, key)
}
