//! Assembly: builds the checked configuration from valid declarations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::model::{
    Configuration, FormerNames, Gate, GateRef, Input, InputRef, Invocation, KeyedJoin, Monitor, OutputRef,
    Pipeline, Queue, QueueRef, Retain, Scheduling, Sink, SinkKind, SinkRef, SinkStep, Source, SourceKind,
    SourceRef, Step, Target,
};
use crate::check::catalog::What;
use crate::check::graph::Graph;
use crate::check::lookups::{self, TableScope};
use crate::check::resolve::{End, Wired, Wiring};
use crate::model::push_source::{BadLines, PushSource};
use crate::parse::reference::ErrorTarget;
use crate::sections::keyed_join::JoinDeclaration;
use crate::sections::pipeline::{FormerName, PipelineDeclaration};
use crate::sections::queue::QueueSettings;
use crate::sections::settings::SettingsFile;
use crate::sections::shared_config::{MergedConfig, SharedConfig};
use crate::sections::shared_tables::SharedTables;
use crate::sections::source::{SourceDeclaration, Supply};
use tidegate_model::{Address, Name, RetryPolicy};

/// Sorts all lists by address, and the steps in order of the graph.
///
/// Invalid declarations are left out.
pub(crate) fn assemble(
    root: PathBuf,
    data: PathBuf,
    settings: SettingsFile,
    pipelines: &[Arc<PipelineDeclaration>],
    wiring: &Wiring<'_>,
    graph: &Graph<'_, '_>,
) -> Configuration {
    let lists = Lists::of(pipelines, wiring, &settings);
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
        sources: lists.sources.into_values(),
        queues: lists.queues.into_values(),
        sinks: lists.sinks.into_values(),
        gates: lists.gates.into_values(),
        steps,
        former: former_names(pipelines),
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
    sources: Sorted<Address, Source>,
    queues: Sorted<Address, Queue>,
    sinks: Sorted<Address, Sink>,
    gates: Sorted<GateName, Gate>,
    /// By pipeline, over those of the runner.
    configs: BTreeMap<Name, SharedConfig>,
}

/// Name of a gate, after its pipeline if a pipeline declares it.
type GateName = (Option<Name>, Name);

/// A finished list by key. A large configuration looks up thousands of positions.
struct Sorted<K, T>(Vec<(K, T)>);

impl<K: Ord, T> Sorted<K, T> {
    fn position(&self, key: &K) -> Option<usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key)).ok()
    }

    fn get(&self, key: &K) -> Option<&T> {
        self.position(key).map(|at| &self.0[at].1)
    }

    fn into_values<C: FromIterator<T>>(self) -> C {
        self.0.into_iter().map(|(_, value)| value).collect()
    }
}

impl<K, T> From<BTreeMap<K, T>> for Sorted<K, T> {
    fn from(list: BTreeMap<K, T>) -> Self {
        Self(list.into_iter().collect())
    }
}

impl Lists {
    fn of(pipelines: &[Arc<PipelineDeclaration>], wiring: &Wiring<'_>, settings: &SettingsFile) -> Self {
        let (mut sources, mut sinks) = (BTreeMap::new(), BTreeMap::new());
        let mut queues = queues(pipelines, wiring, settings);
        let (mut gates, mut configs) = (BTreeMap::new(), BTreeMap::new());
        add_gates(&mut gates, None, &settings.shelves, (&settings.config, &settings.shelves));
        for pipeline in pipelines {
            let config = pipeline.config.over(&settings.config);
            add_gates(&mut gates, Some(&pipeline.name), &pipeline.shelves, (&config, &settings.shelves));
            configs.insert(pipeline.name.clone(), config);
            let address = |name: &Name| Address::new(pipeline.name.clone(), name.clone());
            for declared in &pipeline.sources {
                let address = address(&declared.name.value);
                match declared.supply.clone() {
                    Supply::Pull(Some((mut kind, meta))) => {
                        if let SourceKind::Service(service) = &mut kind
                            && let Some(chosen) = source_policy(declared, pipeline, settings)
                        {
                            service.retry = chosen;
                        }
                        sources.insert(address.clone(), Source { address, kind, meta });
                    }
                    Supply::Push(Some(mut source)) => {
                        if let PushSource::Exec(command) = &mut source {
                            let chosen = source_policy(declared, pipeline, settings);
                            command.retry = chosen.unwrap_or(RetryPolicy::DEFAULT);
                            command.bad_lines = bad_lines(pipeline, wiring);
                        }
                        let defaults = pipeline.queue_defaults.over(settings.queue_defaults);
                        let queue = queues.entry(address);
                        let queue = queue.or_insert_with_key(|address| made(address, defaults));
                        queue.source = Some(source);
                        // It concerns deliveries of steps, which do not fill this queue.
                        queue.dedupe = None;
                    }
                    Supply::Pull(None) | Supply::Push(None) => {}
                }
            }
            for sink in &pipeline.sinks {
                if let Some(kind) = sink.kind.clone() {
                    let address = address(&sink.name.value);
                    sinks.insert(address.clone(), Sink { address, kind });
                }
            }
        }
        Self {
            sources: sources.into(),
            queues: queues.into(),
            sinks: sinks.into(),
            gates: gates.into(),
            configs,
        }
    }

    /// The pipeline's own gate of this name, or the shared one.
    fn gate(&self, pipeline: &Name, name: &Name) -> Option<GateRef> {
        let at = |pipeline| self.gates.position(&(pipeline, name.clone()));
        at(Some(pipeline.clone())).or_else(|| at(None)).map(GateRef)
    }

    fn step(&self, wired: &Wired<'_>, shared: &SharedTables) -> Option<Step> {
        let inputs: Vec<InputRef> = wired
            .inputs
            .iter()
            .map(|(binding, end)| {
                let (binding, address) = (binding.clone(), end.address.clone());
                Some(InputRef { binding, address, input: self.input(end)?, is_moved: false })
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
        let common = self.configs.get(&wired.pipeline.name)?;
        let written = (&declared.config, declared.secrets.as_slice());
        let MergedConfig { config, secrets, shared: shared_keys } =
            common.under_that_of(&declared.processors, written);
        let scope = TableScope { home: Some(&wired.pipeline.name), own: &own.tables, shared: &shared.tables };
        let retry = declared.retry.as_ref().and_then(|it| it.value(&own.retries, &shared.retries));
        let queuer = declared.queuer.as_ref().and_then(|it| it.value(&own.queuers, &shared.queuers));
        let gate = declared.gate.as_ref().and_then(|it| it.entry(&own.gates, &shared.gates));
        Some(Step {
            address: wired.address(),
            take: declared.take,
            joins: keyed_join(wired, &inputs),
            tuple_of: declared.tuples.as_ref().map(|tuples| tuples.bindings.clone()).unwrap_or_default(),
            inputs,
            begin_at: declared.begin_at,
            processors: declared.processors.clone(),
            filter: declared.filter.clone(),
            outputs,
            errors: wired.errors.as_ref().and_then(|end| self.queue(&end.address)),
            drops_errors: wired.drops_errors,
            events: wired.events.as_ref().and_then(|end| self.queue(&end.address)),
            limits: declared.limits,
            delivery: declared.delivery.unwrap_or(wired.pipeline.delivery),
            crash_limit: declared.crash_limit,
            timeout: Some(declared.timeout),
            config,
            secrets,
            shared: shared_keys,
            tables: lookups::of_step(declared, scope),
            isolate: declared.isolate,
            retry: retry.cloned(),
            queuer: queuer.cloned(),
            scheduling: Scheduling::default(),
            serves,
            gate: gate.and_then(|entry| self.gate(&wired.pipeline.name, &entry.name.value)),
            monitor: declared.monitor.as_ref().map(|declared| {
                let monitor = declared.monitor.clone();
                let inquiry = lookups::linked(common.under_probe(monitor.inquiry), scope);
                Monitor { inquiry, ..monitor }
            }),
            file: wired.pipeline.file.to_path_buf(),
            line: declared.line,
        })
    }

    fn input(&self, end: &End) -> Option<Input> {
        match end.what {
            What::Source => self.sources.position(&end.address).map(SourceRef).map(Input::Source),
            What::Queue => self.queue(&end.address).map(Input::Queue),
            What::PushSource | What::Sink => None,
        }
    }

    fn target(&self, end: &End) -> Option<Target> {
        match end.what {
            What::Source | What::PushSource => None,
            What::Queue => self.queue(&end.address).map(Target::Queue),
            What::Sink => self.sinks.position(&end.address).map(SinkRef).map(Target::Sink),
        }
    }

    fn queue(&self, address: &Address) -> Option<QueueRef> {
        self.queues.position(address).map(QueueRef)
    }
}

fn add_gates(
    gates: &mut BTreeMap<GateName, Gate>,
    pipeline: Option<&Name>,
    shelves: &SharedTables,
    (config, shared): (&SharedConfig, &SharedTables),
) {
    let scope = TableScope { home: pipeline, own: &shelves.tables, shared: &shared.tables };
    for entry in shelves.gates.entries() {
        let (pipeline, name) = (pipeline.cloned(), entry.name.value.clone());
        if let Some(inquiry) = entry.value.clone() {
            let key = (pipeline.clone(), name.clone());
            let inquiry = lookups::linked(config.under_probe(inquiry), scope);
            gates.insert(key, Gate { name, pipeline, inquiry });
        }
    }
}

/// The policy of a source that may fail.
fn source_policy(
    source: &SourceDeclaration,
    pipeline: &PipelineDeclaration,
    settings: &SettingsFile,
) -> Option<RetryPolicy> {
    source.retry.as_ref()?.value(&pipeline.shelves.retries, &settings.shelves.retries).cloned()
}

/// The fate of the lines of commands that are no jobs.
fn bad_lines(pipeline: &PipelineDeclaration, wiring: &Wiring<'_>) -> BadLines {
    match (wiring.error_queues.get(&pipeline.name), &pipeline.errors) {
        (Some(end), _) => BadLines::Queue(end.address.clone()),
        (None, Some(ErrorTarget::Drop)) => BadLines::Drop,
        (None, _) => BadLines::Stop,
    }
}

/// The rules of a join by key, for these inputs of the step.
fn keyed_join(wired: &Wired<'_>, inputs: &[InputRef]) -> Option<Box<KeyedJoin>> {
    let JoinDeclaration { reader, sides, within, max_waiting, place: _ } = wired.step.joins.as_ref()?;
    let side = |input: &InputRef| {
        let (_, side) = sides.iter().find(|(binding, _)| *binding == input.binding)?;
        Some(side.clone())
    };
    Some(Box::new(KeyedJoin {
        reader: Address::new(wired.pipeline.name.clone(), reader.clone()),
        sides: inputs.iter().map(side).collect::<Option<_>>()?,
        within: *within,
        max_waiting: *max_waiting,
    }))
}

/// All `was`.
fn former_names(pipelines: &[Arc<PipelineDeclaration>]) -> FormerNames {
    let mut former = FormerNames::default();
    for pipeline in pipelines {
        let own = |name: &Name| Address::new(pipeline.name.clone(), name.clone());
        if let Some(was) = &pipeline.was {
            former.pipelines.insert(pipeline.name.clone(), was.value.clone());
        }
        for FormerName { kind, name, was, .. } in pipeline.former_names() {
            former.set(kind, own(&name.value), own(&was.value));
        }
    }
    for pipeline in pipelines {
        let own = |name: &Name| Address::new(pipeline.name.clone(), name.clone());
        for sink in &pipeline.sinks {
            for step in &sink.steps {
                let Some((_, input)) = step.inputs.first() else { continue };
                let step_of_sink =
                    SinkStep { sink: own(&sink.name.value), input: input.address(&pipeline.name) };
                former.sink_steps.insert(own(&step.name.value), step_of_sink);
            }
        }
    }
    former
}

/// Declared queues with their settings, and undeclared ones with defaults.
fn queues(
    pipelines: &[Arc<PipelineDeclaration>],
    wiring: &Wiring<'_>,
    settings: &SettingsFile,
) -> BTreeMap<Address, Queue> {
    let mut queues: BTreeMap<Address, Queue> = BTreeMap::new();
    let mut defaults: BTreeMap<&Name, QueueSettings> = BTreeMap::new();
    for pipeline in pipelines {
        let below = pipeline.queue_defaults.over(settings.queue_defaults);
        defaults.insert(&pipeline.name, below);
        for declared in &pipeline.queues {
            let address = Address::new(pipeline.name.clone(), declared.name.value.clone());
            let queue = made(&address, declared.settings.over(below));
            queues.insert(address, queue);
        }
    }
    let mentioned = |address: &Address| {
        made(address, defaults.get(&address.pipeline).copied().unwrap_or(settings.queue_defaults))
    };
    let errors: Vec<&End> = wiring
        .steps
        .iter()
        .filter_map(|wired| wired.errors.as_ref())
        .chain(wiring.error_queues.values())
        .collect();
    let ends = wiring.steps.iter().flat_map(|wired| wired.gives().chain(wired.takes()));
    let ends = ends.chain(errors.iter().copied()).chain(&wiring.tables);
    for end in ends.filter(|end| end.what == What::Queue) {
        queues.entry(end.address.clone()).or_insert_with(|| mentioned(&end.address));
    }
    let is_read = |address: &Address| wiring.steps.iter().any(|wired| wired.takes_from(address));
    let has_retention = |address: &Address| {
        let mut declared = pipelines.iter().filter(|pipeline| pipeline.name == address.pipeline);
        let own = declared.find_map(|pipeline| {
            let mut queues = pipeline.queues.iter();
            queues.find(|queue| queue.name.value == address.name)?.settings.retain
        });
        own.or_else(|| defaults.get(&address.pipeline)?.retain).is_some()
    };
    for end in errors {
        if let Some(queue) = queues.get_mut(&end.address) {
            queue.holds_errors = true;
            if is_read(&end.address) && !has_retention(&end.address) {
                queue.retain = RECORDS_KEPT;
            }
        }
    }
    for end in wiring.steps.iter().filter_map(|wired| wired.events.as_ref()) {
        if let Some(queue) = queues.get_mut(&end.address) {
            queue.holds_events = true;
            if !has_retention(&end.address) {
                queue.retain = RECORDS_KEPT;
            }
        }
    }
    for end in &wiring.tables {
        if let Some(queue) = queues.get_mut(&end.address) {
            // Each start builds the table from the jobs. Other settings of the queue itself are errors.
            (queue.retain, queue.max_size) = (Retain::Forever, None);
        }
    }
    queues
}

/// The retention of a queue of events, and of an error queue with a reader, whose records stay for `errors retry`.
const RECORDS_KEPT: Retain = Retain::For(Duration::from_hours(7 * 24));

fn made(address: &Address, settings: QueueSettings) -> Queue {
    let QueueSettings { retain, max_size, meta, dedupe } = settings;
    Queue {
        address: address.clone(),
        retain: retain.unwrap_or(Retain::Consumed),
        max_size,
        meta: meta.unwrap_or_default(),
        dedupe,
        holds_errors: false,
        holds_events: false,
        source: None,
    }
}
