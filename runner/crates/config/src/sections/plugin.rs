//! Plugins: parses `plugin:NAME/STEP` in `run`, `isolate` of a step, and `[plugin.NAME]` in tidegate.toml.

use crate::diagnostic::Diagnostic;
use crate::model::{Pin, PluginStepConfig};
use crate::parse::context::{ParseContext, Text};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;

const PREFIX: &str = "plugin:";

/// Whether a processor is a plugin's.
pub(crate) fn is_one(run: &str) -> bool {
    run.starts_with(PREFIX)
}

/// Parses a processor of a plugin.
pub(crate) fn processor(reading: &mut ParseContext<'_>, run: &Text) -> Option<PluginStepConfig> {
    let written = run.value.strip_prefix(PREFIX)?;
    let (plugin, step) = match written.split_once('/') {
        Some((plugin, step)) => (plugin, Some(step)),
        None => (written, None),
    };
    if !std::iter::once(plugin).chain(step).all(is_name) {
        let message = format!("{} in `run` does not name a plugin", run.quoted());
        let help = "write `plugin:NAME`, or `plugin:NAME/STEP`, with letters, digits, `-` and `_`";
        reading.report(Diagnostic::error_at(&run.place, message).help(help));
        return None;
    }
    Some(PluginStepConfig {
        plugin: plugin.to_owned(),
        step: step.map(str::to_owned),
        secret: run.secret,
        named_in: reading.file.to_path_buf(),
        named_at: run.place.span.clone(),
        has_effects: false,
        sha256: String::new(),
    })
}

/// Names become names of files, so only these characters are allowed.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// `isolate`: whether a step's plugins run in a process of their own.
pub(crate) fn isolate(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> bool {
    let field = section.field("isolate");
    field.and_then(|field| field.choice(reading, &[("process", true), ("none", false)])).unwrap_or(false)
}

/// All `[plugin.NAME]`.
pub(crate) fn pins(reading: &mut ParseContext<'_>, root: &TableReader<'_>) -> Vec<(String, Pin)> {
    let mut pins = Vec::new();
    for (key, value) in root.named(reading, "plugin") {
        let section =
            TableReader::open(reading, TableKind::Plugin, &format!("[plugin.{}]", key.value), value);
        let field = section.as_ref().and_then(|section| section.field("sha256"));
        if let Some(pin) = field.and_then(|field| pin(reading, field)) {
            pins.push((key.value, pin));
        }
    }
    pins
}

fn pin(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Pin> {
    let text = field.text(reading)?;
    if text.value.len() != 64 || !text.value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let message = "`sha256` must be 64 hexadecimal digits".to_owned();
        let diagnostic = Diagnostic::error_at(&text.place, message);
        reading.report(diagnostic.help("get them from `sha256sum FILE` or `tidegate plugin inspect FILE`"));
        return None;
    }
    Some(Pin { sha256: text.value.to_ascii_lowercase(), place: text.place })
}
