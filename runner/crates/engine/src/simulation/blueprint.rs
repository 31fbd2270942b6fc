//! Blueprint: describes a graph of steps, and writes its configuration files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::twin;
use tidegate_config::{Configuration, DeliveryGuarantee, InputMode, LoadOptions};
use tidegate_model::Address;

/// Graph of steps. Addresses are `pipeline/name`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blueprint {
    /// Lines of each source, by address.
    pub(crate) sources: BTreeMap<String, Vec<String>>,
    pub(crate) queues: BTreeMap<String, QueuePlan>,
    pub(crate) steps: Vec<StepPlan>,
    pub(crate) sinks: Vec<SinkPlan>,
    /// Error queue of all steps of a pipeline, by pipeline.
    pub(crate) errors: BTreeMap<String, String>,
    /// Version of the scripts: other text with the same behaviour.
    pub(crate) version: u64,
    /// Files by name. If they are set, the graph is not used, except for the sources and the version.
    pub(crate) files: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePlan {
    pub(crate) settings: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct StepPlan {
    pub(crate) pipeline: String,
    pub(crate) name: String,
    pub(crate) take: InputMode,
    /// Bindings and addresses.
    pub(crate) inputs: Vec<(String, String)>,
    pub(crate) outputs: Vec<(String, String)>,
    pub(crate) run: &'static [&'static str],
    pub(crate) mode: &'static str,
    pub(crate) salt: u64,
    pub(crate) calm: bool,
    /// Content of `retry`.
    pub(crate) retry: Option<&'static str>,
    pub(crate) hash: bool,
    pub(crate) filter: Option<String>,
    pub(crate) errors: Option<String>,
    pub(crate) delivery: Option<DeliveryGuarantee>,
}

#[derive(Clone, Debug)]
pub(crate) struct SinkPlan {
    pub(crate) address: String,
    pub(crate) kind: &'static str,
    pub(crate) from: Vec<String>,
    pub(crate) delivery: Option<DeliveryGuarantee>,
}

impl Blueprint {
    /// Gives every pipeline an error queue, so that few steps can halt.
    pub(crate) fn mend(&mut self) {
        for pipeline in self.pipelines() {
            self.errors.entry(pipeline.into()).or_insert_with(|| format!("{pipeline}/mended"));
        }
    }

    /// Writes the files, and reads them like a runner does.
    pub(crate) fn load(&self, folder: &Path) -> Configuration {
        let version = format!("const VERSION = {};\n", self.version);
        if !self.files.is_empty() {
            for (name, text) in &self.files {
                let is_script = Path::new(name).extension().is_some_and(|extension| extension == "rhai");
                let before = if is_script { &version } else { "" };
                std::fs::write(folder.join(name), format!("{before}{text}")).unwrap();
            }
            let loaded = tidegate_config::load(folder, &LoadOptions::default()).finish();
            return loaded.unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{:?}", self.files)).0;
        }
        let work = twin::WORK.replace("VERSION", &self.version.to_string());
        for (name, text) in [("work.rhai", &*work), ("again.rhai", twin::AGAIN)] {
            std::fs::write(folder.join(name), format!("{version}{text}")).unwrap();
        }
        for pipeline in self.pipelines() {
            let text = self.pipeline(pipeline);
            std::fs::write(folder.join(format!("{pipeline}.toml")), text).unwrap();
        }
        let options = LoadOptions::default();
        let loaded = tidegate_config::load(folder, &options).finish();
        loaded
            .unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{}{}", self.pipeline("p"), self.pipeline("q")))
            .0
    }

    /// Writes the sources, which never change.
    pub(crate) fn write_sources(&self, folder: &Path) {
        for (address, lines) in &self.sources {
            let path = folder.join(format!("{}.ndjson", local(address)));
            std::fs::write(path, lines.join("\n") + "\n").unwrap();
        }
    }

    /// Pipelines with content; the others must not have a file.
    fn pipelines(&self) -> Vec<&'static str> {
        let busy = |pipeline: &&str| self.steps.iter().any(|step| step.pipeline == **pipeline);
        ["p", "q"].into_iter().filter(|pipeline| *pipeline == "p" || busy(pipeline)).collect()
    }

    /// Removes a step, unless its pipeline would be empty.
    pub(crate) fn remove(&mut self, at: usize) -> Option<StepPlan> {
        let others = self.steps.iter().filter(|step| step.pipeline == self.steps[at].pipeline).count();
        (others > 1).then(|| self.steps.remove(at))
    }

    fn pipeline(&self, pipeline: &str) -> String {
        let mut text = format!("[pipeline]\nname = \"{pipeline}\"\n");
        let home = |address: &str| address.starts_with(&format!("{pipeline}/"));
        let errors = self.errors.get(pipeline).cloned();
        if let Some(errors) = errors {
            writeln!(text, "errors = \"{errors}\"").unwrap();
        }
        for address in self.sources.keys().filter(|address| home(address)) {
            let name = local(address);
            writeln!(text, "[source.{name}]\ntype = \"file\"\npath = \"{name}.ndjson\"\nformat = \"ndjson\"")
                .unwrap();
        }
        for (address, queue) in self.queues.iter().filter(|(address, _)| home(address)) {
            writeln!(text, "[queue.{}]\n{}", local(address), queue.settings.join("\n")).unwrap();
        }
        for step in self.steps.iter().filter(|step| step.pipeline == pipeline) {
            step.write(&mut text);
        }
        for sink in self.sinks.iter().filter(|sink| home(&sink.address)) {
            sink.write(&mut text);
        }
        text
    }
}

impl StepPlan {
    pub(crate) fn address(&self) -> Address {
        Address::parse(&format!("{}/{}", self.pipeline, self.name)).unwrap()
    }

    fn write(&self, text: &mut String) {
        writeln!(text, "[step.{}]", self.name).unwrap();
        let bound = |ends: &[(String, String)]| {
            let all: Vec<_> = ends.iter().map(|(binding, end)| format!("{binding} = \"{end}\"")).collect();
            format!("{{ {} }}", all.join(", "))
        };
        match self.take {
            InputMode::From => writeln!(text, "from = \"{}\"", self.inputs[0].1),
            InputMode::Join => writeln!(text, "join = {}", bound(&self.inputs)),
            InputMode::Alts => writeln!(text, "alts = {}", bound(&self.inputs)),
        }
        .unwrap();
        match &self.outputs[..] {
            [] => {}
            [(binding, to)] if binding.is_empty() => writeln!(text, "to = \"{to}\"").unwrap(),
            outputs => writeln!(text, "to = {}", bound(outputs)).unwrap(),
        }
        if !self.run.is_empty() {
            writeln!(text, "run = {:?}", self.run).unwrap();
        }
        let outs: Vec<_> = self.outputs.iter().map(|(binding, _)| binding).collect();
        let take = match self.take {
            InputMode::From => "from",
            InputMode::Join => "join",
            InputMode::Alts => "alts",
        };
        writeln!(
            text,
            "config = {{ take = \"{take}\", mode = \"{}\", tag = \"{}\", salt = {}, calm = {}, hash = {}, \
             outs = {outs:?} }}",
            self.mode, self.name, self.salt, self.calm, self.hash
        )
        .unwrap();
        for line in self.filter.iter().chain(&delivery(self.delivery)) {
            writeln!(text, "{line}").unwrap();
        }
        if let Some(retry) = self.retry {
            writeln!(text, "retry = {{ {retry} }}").unwrap();
        }
        // A crash is not a failure of the job, and the model does not count crashes.
        writeln!(text, "crash_limit = 1000000").unwrap();
        if let Some(errors) = &self.errors {
            writeln!(text, "errors = \"{errors}\"").unwrap();
        }
    }
}

impl SinkPlan {
    fn write(&self, text: &mut String) {
        let name = local(&self.address);
        writeln!(text, "[sink.{name}]\ntype = \"{}\"", self.kind).unwrap();
        if self.kind == "file" {
            writeln!(text, "path = \"{name}.out\"").unwrap();
        }
        match &self.from[..] {
            [] => {}
            [one] => writeln!(text, "from = \"{one}\"").unwrap(),
            all => writeln!(text, "from = {all:?}").unwrap(),
        }
        if let (Some(line), false) = (delivery(self.delivery), self.from.is_empty()) {
            writeln!(text, "{line}").unwrap();
        }
    }
}

fn delivery(promise: Option<DeliveryGuarantee>) -> Option<String> {
    let name = match promise? {
        DeliveryGuarantee::ExactlyOnce => "exactly-once",
        DeliveryGuarantee::AtLeastOnce => "at-least-once",
        DeliveryGuarantee::AtMostOnce => "at-most-once",
    };
    Some(format!("delivery = \"{name}\""))
}

/// Name without its pipeline.
fn local(address: &str) -> &str {
    address.split_once('/').map_or(address, |(_, name)| name)
}
