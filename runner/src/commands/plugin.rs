//! `tidegate plugin inspect` and `plugin-host`: describe a library, and run plugins in a process of their
//! own.

use serde::Serialize;
use serde_json::Value;
use tidegate_plugin::abi::TIDEGATE_ABI_VERSION;
use tidegate_plugin::schema;

use crate::cli::{Format, PluginInspect};
use crate::client::{plain, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::table;
use tidegate_components::plugin;
use tidegate_components::plugin::{Description, Image, Loaded, Offered};
use tidegate_engine::Chain;

/// The JSON form of a plugin.
#[derive(Serialize)]
struct Record<'a> {
    file: String,
    sha256: &'a str,
    interface: u32,
    name: &'a str,
    version: &'a str,
    steps: Vec<StepRecord<'a>>,
}

#[derive(Serialize)]
struct StepRecord<'a> {
    name: &'a str,
    description: &'a str,
    has_effects: bool,
    /// The JSON Schema of its `config`.
    schema: Option<Value>,
    /// The error of its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_fault: Option<String>,
}

pub(crate) fn inspect(command: &PluginInspect) -> Exit {
    let loaded = match Image::read(&command.file).map_err(Into::into).and_then(Loaded::describe) {
        Ok(loaded) => loaded,
        Err(error) => return exit::fail(Chain(&error)),
    };
    if !loaded.printed().is_empty() {
        exit::warn(format_args!("the plugin prints while it is loaded: `{}`", loaded.printed()));
    }
    let record = record(&loaded);
    match command.format {
        Format::Json => print_json(&record, Exit::Done),
        Format::Text => {
            print_text(&plain(&text(&record)));
            Exit::Done
        }
    }
}

/// `tidegate plugin-host`
pub(crate) fn host() -> Exit {
    match plugin::serve() {
        Ok(()) => Exit::Done,
        Err(error) => exit::fail(format_args!("this command must be started by a runner: {error}")),
    }
}

fn record(loaded: &Loaded) -> Record<'_> {
    let Description { name, version, steps } = loaded.description();
    Record {
        file: loaded.image().path().display().to_string(),
        sha256: loaded.image().sha256(),
        interface: TIDEGATE_ABI_VERSION,
        name,
        version,
        steps: steps.iter().map(step).collect(),
    }
}

fn step(offered: &Offered) -> StepRecord<'_> {
    let Offered { name, description, has_effects, schema } = offered;
    let (schema, schema_fault) = match schema.as_deref().map(schema::read) {
        Some(Ok(schema)) => (Some(schema), None),
        Some(Err(fault)) => (None, Some(fault)),
        None => (None, None),
    };
    StepRecord { name, description, has_effects: *has_effects, schema, schema_fault }
}

fn text(record: &Record<'_>) -> String {
    let Record { file, sha256, interface, name, version, steps } = record;
    let mut text =
        format!("{name} {version}, for version {interface} of the interface\n{file}\nsha256 {sha256}\n");
    for StepRecord { name, description, has_effects, schema, schema_fault } in steps {
        let description = if description.is_empty() { String::new() } else { format!(": {description}") };
        let effects = if *has_effects { ", with external effects" } else { "" };
        text.extend(["\nstep ", name, &description, effects, "\n"]);
        let takes = match (schema, schema_fault) {
            (_, Some(fault)) => format!("the schema of its config {fault}\n"),
            (Some(schema), _) => config(schema),
            (None, None) => "takes any config\n".to_owned(),
        };
        text += &takes;
    }
    text
}

/// One row per key.
fn config(schema: &Value) -> String {
    let keys = schema::keys(schema);
    if let Some(takes) = schema::takes(schema) {
        return format!("takes {takes}\n");
    }
    if keys.is_empty() {
        return "takes no config\n".to_owned();
    }
    let row = |key: schema::Key| {
        let default = match key.default {
            Some(default) => default.to_string(),
            None if key.required => "(needed)".to_owned(),
            None => String::new(),
        };
        vec![key.name, key.kind, default, key.description]
    };
    table(&["config", "what", "default", ""], &[], &keys.into_iter().map(row).collect::<Vec<_>>())
}
