//! Blueprint: describes a graph of steps, and writes its configuration files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::dice::Dice;
use super::twin;
use crate::generation::source_files::SourceFiles;
use tidegate_config::{Configuration, DeliveryGuarantee, InputMode, LoadOptions};
use tidegate_model::Address;

/// Name of the script that looks up.
pub(crate) const LOOK: &str = "lookwork.rhai";

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
    /// Names of the files of sources that read another file than the one of their name.
    pub(crate) source_files: BTreeMap<String, String>,
    /// Distance of each queue and source from the sources. No step feeds what is nearer than its inputs.
    pub(crate) levels: BTreeMap<String, usize>,
    /// Former addresses of queues and sources, and former names of pipelines.
    pub(crate) were: BTreeMap<String, String>,
    pub(crate) pipelines_were: BTreeMap<String, String>,
    /// Queue of the lookup table.
    pub(crate) table: Option<String>,
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
    /// Former name.
    pub(crate) was: Option<String>,
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
    /// Number of its file.
    pub(crate) file: u64,
    pub(crate) from: Vec<String>,
    pub(crate) delivery: Option<DeliveryGuarantee>,
}

impl Blueprint {
    /// Gives every pipeline an error queue, so that few steps can halt.
    pub(crate) fn mend(&mut self) {
        for pipeline in self.pipelines() {
            let mended = format!("{pipeline}/mended");
            self.errors.entry(pipeline).or_insert(mended);
        }
    }

    /// Writes the files, and reads them like a runner does.
    pub(crate) fn load(&self, folder: &Path) -> Configuration {
        self.write(folder);
        read(folder, &LoadOptions::default()).0
    }

    /// Writes the files.
    pub(crate) fn write(&self, folder: &Path) {
        let version = format!("const VERSION = {};\n", self.version);
        if !self.files.is_empty() {
            for (name, text) in &self.files {
                let is_script = Path::new(name).extension().is_some_and(|extension| extension == "rhai");
                let before = if is_script { &version } else { "" };
                std::fs::write(folder.join(name), format!("{before}{text}")).unwrap();
            }
            return;
        }
        let made = |script: &str| script.replace("VERSION", &self.version.to_string());
        let (work, look) = (made(twin::WORK), made(&twin::looking()));
        for (name, text) in [("work.rhai", &*work), (LOOK, &*look), ("again.rhai", twin::AGAIN)] {
            std::fs::write(folder.join(name), format!("{version}{text}")).unwrap();
        }
        let pipelines = self.pipelines();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if path.extension().is_some_and(|end| end == "toml") && !pipelines.contains(name) {
                std::fs::remove_file(path).unwrap();
            }
        }
        for pipeline in pipelines {
            std::fs::write(folder.join(format!("{pipeline}.toml")), self.pipeline(&pipeline)).unwrap();
        }
        if let Some(queue) = &self.table {
            let table = format!("[table.rows]\nqueue = \"{queue}\"\nkey = \"type\"\n");
            std::fs::write(folder.join("tidegate.toml"), table).unwrap();
        }
    }

    /// Writes the file of each source, which has several names.
    pub(crate) fn write_sources(&self, folder: &Path) {
        for (address, lines) in &self.sources {
            let [path, others @ ..] = source_files(local(address)).map(|name| folder.join(name));
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
            for other in others {
                std::fs::hard_link(&path, other).unwrap();
            }
        }
    }

    /// Lines by file of the source.
    pub(crate) fn lines(&self, folder: &Path) -> BTreeMap<PathBuf, Vec<String>> {
        let lines = self.sources.iter().flat_map(|(address, lines)| {
            source_files(local(address)).map(|name| (folder.join(name), lines.clone()))
        });
        lines.collect()
    }

    /// Pipelines with content; the others must not have a file.
    pub(crate) fn pipelines(&self) -> BTreeSet<String> {
        let sources = self.sources.keys().map(|address| pipeline_of(address).to_owned());
        self.steps.iter().map(|step| step.pipeline.clone()).chain(sources).collect()
    }

    /// Lets some steps look up the newest jobs of a queue that they do not feed, if there is one.
    pub(crate) fn look_up(&mut self, dice: &mut Dice) {
        let is_queue = |address: &&String| {
            let fed = |step: &StepPlan| step.outputs.iter().any(|(_, output)| output == *address);
            !self.sources.contains_key(*address) && self.steps.iter().any(fed)
        };
        let queues: Vec<&String> = self.levels.keys().filter(is_queue).collect();
        if queues.is_empty() || dice.chance(30) {
            return;
        }
        let queue = (*dice.pick(&queues)).clone();
        let mut looks = false;
        for step in self.steps.iter_mut().filter(|step| !step.run.is_empty()) {
            let above = step.inputs.iter().filter_map(|(_, input)| self.levels.get(input)).max();
            if above.is_some_and(|above| *above >= self.levels[&queue]) && dice.chance(70) {
                step.run = if step.run.len() > 1 { &[LOOK, "again.rhai"] } else { &[LOOK] };
                looks = true;
            }
        }
        if looks {
            let settings = &mut self.queues.entry(queue.clone()).or_default().settings;
            settings.retain(|setting| !setting.starts_with("retain") && !setting.starts_with("max_size"));
            self.table = Some(queue);
        }
    }

    /// Removes a step, unless its pipeline would be empty.
    pub(crate) fn remove(&mut self, at: usize) -> Option<StepPlan> {
        let others = self.steps.iter().filter(|step| step.pipeline == self.steps[at].pipeline).count();
        (others > 1).then(|| self.steps.remove(at))
    }

    /// Whether a step or sink has this queue, source or sink as an end.
    pub(crate) fn mentions(&self, address: &str) -> bool {
        let of_steps = self.steps.iter().flat_map(StepPlan::ends);
        let of_sinks = self.sinks.iter().flat_map(|sink| sink.from.iter().chain([&sink.address]));
        let errors = self.errors.iter().filter(|(pipeline, _)| self.pipelines().contains(*pipeline));
        of_steps.chain(of_sinks).chain(errors.map(|(_, queue)| queue)).any(|one| one == address)
    }

    fn pipeline(&self, pipeline: &str) -> String {
        let mut text = format!("[pipeline]\nname = \"{pipeline}\"\n");
        if let Some(was) = self.pipelines_were.get(pipeline) {
            writeln!(text, "was = \"{was}\"").unwrap();
        }
        let was = |address: &String| {
            self.were.get(address).map(|was| format!("was = \"{}\"\n", local(was))).unwrap_or_default()
        };
        let home = |address: &str| address.starts_with(&format!("{pipeline}/"));
        let errors = self.errors.get(pipeline).cloned();
        if let Some(errors) = errors {
            writeln!(text, "errors = \"{errors}\"").unwrap();
        }
        for address in self.sources.keys().filter(|address| home(address)) {
            let (name, was) = (local(address), was(address));
            let file = self.source_files.get(address).cloned();
            let file = file.unwrap_or_else(|| format!("{name}.ndjson"));
            writeln!(text, "[source.{name}]\n{was}type = \"file\"\npath = \"{file}\"\nformat = \"ndjson\"")
                .unwrap();
        }
        for (address, queue) in self.queues.iter().filter(|(address, _)| home(address)) {
            if self.mentions(address) || self.table.as_ref() == Some(address) {
                writeln!(text, "[queue.{}]\n{}{}", local(address), was(address), queue.settings.join("\n"))
                    .unwrap();
            }
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

    /// Addresses of its inputs, outputs and errors.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &String> {
        self.inputs.iter().chain(&self.outputs).map(|(_, end)| end).chain(&self.errors)
    }

    fn write(&self, text: &mut String) {
        writeln!(text, "[step.{}]", self.name).unwrap();
        if let Some(was) = &self.was {
            writeln!(text, "was = \"{was}\"").unwrap();
        }
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
            writeln!(text, "path = \"{}.out\"", self.file).unwrap();
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

/// Reads a folder, or recorded texts, without the checks of the scripts.
pub(crate) fn read(folder: &Path, options: &LoadOptions) -> (Configuration, SourceFiles) {
    let draft = tidegate_config::load(folder, options);
    let files = draft.diagnostics.files().clone();
    let (mut configuration, _) = draft.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    configuration.given.config = folder.to_owned();
    let files = SourceFiles::new(&configuration, &files);
    (configuration, files)
}

pub(crate) fn pipeline_of(address: &str) -> &str {
    address.split_once('/').map_or(address, |(pipeline, _)| pipeline)
}

/// Names of the file of a source.
pub(crate) fn source_files(name: &str) -> [String; 3] {
    ["", "-1", "-2"].map(|end| format!("{name}{end}.ndjson"))
}

/// The inverse of [`source_files`]: the name that one of these names, or its path, is made from.
pub(crate) fn source_of(file: &Path) -> &str {
    let stem = file.file_stem().unwrap().to_str().unwrap();
    stem.split_once('-').map_or(stem, |(name, _)| name)
}

/// Name without its pipeline.
pub(crate) fn local(address: &str) -> &str {
    address.split_once('/').map_or(address, |(_, name)| name)
}
