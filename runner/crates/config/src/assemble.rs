//! Assembly: builds the checked configuration from valid declarations.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::model::{
    Configuration, Gate, GateRef, Input, InputRef, Invocation, Meta, OutputRef, Pipeline, Queue, QueueRef,
    Retain, Scheduling, Sink, SinkKind, SinkRef, Source, SourceRef, Step, Target,
};
use crate::check::catalog::What;
use crate::check::graph::Graph;
use crate::check::resolve::{End, Wired, Wiring};
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::settings::SettingsFile;
use crate::sections::shared_tables::SharedTables;
use crate::sections::source::Supply;
use tidegate_model::{Address, Name};

/// Sorts all lists by address, and the steps in order of the graph.
///
/// Invalid declarations are left out.
pub(crate) fn assemble(
    root: PathBuf,
    data: PathBuf,
    settings: SettingsFile,
    pipelines: &[PipelineDeclaration],
    wiring: &Wiring<'_>,
    graph: &Graph<'_, '_>,
) -> Configuration {
    let lists = Lists::of(pipelines, wiring, &settings.shelves);
    let steps = graph
        .order()
        .into_iter()
        .filter_map(|position| lists.step(&wiring.steps[position], &settings.shelves))
        .collect();
    let mut names: Vec<_> = pipelines
        .iter()
        .map(|pipeline| Pipeline { name: pipeline.name.clone(), file: pipeline.file.to_path_buf() })
        .collect();
    names.sort_by(|a, b| a.name.cmp(&b.name));
    let mut configuration = Configuration {
        root,
        data,
        settings: settings.settings,
        log: settings.log,
        pipelines: names,
        sources: lists.sources.into_values().collect(),
        queues: lists.queues.into_values().collect(),
        sinks: lists.sinks.into_values().collect(),
        gates: lists.gates.into_values().collect(),
        steps,
        readers: BTreeMap::new(),
        tests: Vec::new(),
        given: Invocation::default(),
        inserted: Vec::new(),
    };
    configuration.derive();
    configuration
}

/// The lists of the configuration; a reference is a position in the order of address.
struct Lists {
    sources: BTreeMap<Address, Source>,
    queues: BTreeMap<Address, Queue>,
    sinks: BTreeMap<Address, Sink>,
    /// By pipeline, if a pipeline declares them, and name.
    gates: BTreeMap<(Option<Name>, Name), Gate>,
}

impl Lists {
    fn of(pipelines: &[PipelineDeclaration], wiring: &Wiring<'_>, shared: &SharedTables) -> Self {
        let (sources, sinks) = (BTreeMap::new(), BTreeMap::new());
        let mut lists = Self { sources, queues: queues(pipelines, wiring), sinks, gates: BTreeMap::new() };
        lists.add_gates(None, shared);
        for pipeline in pipelines {
            lists.add_gates(Some(&pipeline.name), &pipeline.shelves);
            let address = |name: &Name| Address::new(pipeline.name.clone(), name.clone());
            for source in &pipeline.sources {
                let address = address(&source.name.value);
                match source.supply.clone() {
                    Supply::Pull(Some(kind)) => {
                        lists.sources.insert(address.clone(), Source { address, kind });
                    }
                    Supply::Push(Some(source)) => {
                        let queue = lists.queues.entry(address).or_insert_with_key(mentioned);
                        queue.source = Some(source);
                    }
                    Supply::Pull(None) | Supply::Push(None) => {}
                }
            }
            for sink in &pipeline.sinks {
                if let Some(kind) = sink.kind.clone() {
                    let address = address(&sink.name.value);
                    lists.sinks.insert(address.clone(), Sink { address, kind });
                }
            }
        }
        lists
    }

    fn add_gates(&mut self, pipeline: Option<&Name>, shelves: &SharedTables) {
        for entry in shelves.gates.entries() {
            let (pipeline, name) = (pipeline.cloned(), entry.name.value.clone());
            if let Some(inquiry) = entry.value.clone() {
                let key = (pipeline.clone(), name.clone());
                self.gates.insert(key, Gate { name, pipeline, inquiry });
            }
        }
    }

    /// The pipeline's own gate of this name, or the shared one.
    fn gate(&self, pipeline: &Name, name: &Name) -> Option<GateRef> {
        let at = |pipeline| position(&self.gates, &(pipeline, name.clone()));
        at(Some(pipeline.clone())).or_else(|| at(None)).map(GateRef)
    }

    fn step(&self, wired: &Wired<'_>, shared: &SharedTables) -> Option<Step> {
        let inputs = wired
            .inputs
            .iter()
            .map(|(binding, end)| {
                let (binding, address) = (binding.clone(), end.address.clone());
                Some(InputRef { binding, address, input: self.input(end)? })
            })
            .collect::<Option<_>>()?;
        let mut outputs: Vec<OutputRef> = wired
            .outputs
            .iter()
            .map(|(binding, end)| Some(OutputRef { binding: binding.clone(), target: self.target(end)? }))
            .collect::<Option<_>>()?;
        outputs.sort_by(|a, b| a.binding.cmp(&b.binding));
        let service = |end: &End| {
            let sink = (end.what == What::Sink).then(|| self.sinks.get(&end.address)).flatten();
            sink.is_some_and(|sink| matches!(sink.kind, SinkKind::Http(_)))
        };
        let serves = wired.outputs.iter().any(|(_, end)| service(end));
        let declared = wired.step;
        let own = &wired.pipeline.shelves;
        let retry = declared.retry.as_ref().and_then(|it| it.value(&own.retries, &shared.retries));
        let queuer = declared.queuer.as_ref().and_then(|it| it.value(&own.queuers, &shared.queuers));
        let gate = declared.gate.as_ref().and_then(|it| it.entry(&own.gates, &shared.gates));
        Some(Step {
            address: wired.address(),
            was: declared
                .was
                .as_ref()
                .map(|name| Address::new(wired.pipeline.name.clone(), name.value.clone())),
            take: declared.take,
            inputs,
            begin_at: declared.begin_at,
            processors: declared.processors.clone(),
            filter: declared.filter.clone(),
            outputs,
            errors: wired.errors.as_ref().and_then(|end| self.queue(&end.address)),
            limits: declared.limits,
            delivery: declared.delivery.unwrap_or(wired.pipeline.delivery),
            crash_limit: declared.crash_limit,
            timeout: Some(declared.timeout),
            config: declared.config.clone(),
            secrets: declared.secrets.clone(),
            isolate: declared.isolate,
            retry: retry.cloned(),
            queuer: queuer.cloned(),
            scheduling: Scheduling::default(),
            serves,
            gate: gate.and_then(|entry| self.gate(&wired.pipeline.name, &entry.name.value)),
            monitor: declared.monitor.clone(),
            file: wired.pipeline.file.to_path_buf(),
            line: declared.line,
        })
    }

    fn input(&self, end: &End) -> Option<Input> {
        match end.what {
            What::Source => position(&self.sources, &end.address).map(SourceRef).map(Input::Source),
            What::Queue => self.queue(&end.address).map(Input::Queue),
            What::PushSource | What::Sink => None,
        }
    }

    fn target(&self, end: &End) -> Option<Target> {
        match end.what {
            What::Source | What::PushSource => None,
            What::Queue => self.queue(&end.address).map(Target::Queue),
            What::Sink => position(&self.sinks, &end.address).map(SinkRef).map(Target::Sink),
        }
    }

    fn queue(&self, address: &Address) -> Option<QueueRef> {
        position(&self.queues, address).map(QueueRef)
    }
}

/// Declared queues with their settings, and undeclared ones with defaults.
fn queues(pipelines: &[PipelineDeclaration], wiring: &Wiring<'_>) -> BTreeMap<Address, Queue> {
    let mut queues: BTreeMap<Address, Queue> = BTreeMap::new();
    for pipeline in pipelines {
        for declared in &pipeline.queues {
            let address = Address::new(pipeline.name.clone(), declared.name.value.clone());
            let settings = Queue {
                retain: declared.retain,
                max_size: declared.max_size,
                meta: declared.meta,
                dedupe: declared.dedupe,
                ..mentioned(&address)
            };
            queues.insert(address, settings);
        }
    }
    let errors: Vec<&End> = wiring
        .steps
        .iter()
        .filter_map(|wired| wired.errors.as_ref())
        .chain(wiring.error_queues.values())
        .collect();
    let ends = wiring.steps.iter().flat_map(|wired| wired.gives().chain(wired.takes()));
    for end in ends.chain(errors.iter().copied()).filter(|end| end.what == What::Queue) {
        queues.entry(end.address.clone()).or_insert_with(|| mentioned(&end.address));
    }
    for end in errors {
        if let Some(queue) = queues.get_mut(&end.address) {
            queue.holds_errors = true;
        }
    }
    queues
}

/// A queue without a declaration.
fn mentioned(address: &Address) -> Queue {
    Queue {
        address: address.clone(),
        retain: Retain::Consumed,
        max_size: None,
        meta: Meta::default(),
        dedupe: None,
        holds_errors: false,
        source: None,
    }
}

fn position<K: Ord, T>(list: &BTreeMap<K, T>, key: &K) -> Option<usize> {
    list.keys().position(|other| other == key)
}
