//! Changes: alter a graph between two generations, in every way that a configuration can change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::blueprint::{
    Blueprint, QueuePlan, SinkPlan, StepPlan, local, pipeline_of, source_files, source_of,
};
use super::dice::Dice;
use super::drawing::{FILTERS, RETRIES};
use tidegate_config::{DeliveryGuarantee, InputMode};

/// Distance of error queues.
const ERRORS: usize = 100;

/// Parts that may return, and the source of new names.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    names: u64,
    steps: Vec<StepPlan>,
    sinks: Vec<SinkPlan>,
    /// Whether sources read their files under other names, and these grow.
    pub(crate) of_sources: bool,
    /// Whether pipelines are removed and return.
    of_pipelines: bool,
    pipelines: Vec<RemovedPipeline>,
    /// Number of pipelines that have returned.
    pub(crate) returned: u64,
    /// Files that each sink had before.
    files: BTreeMap<String, Vec<u64>>,
}

/// Pipeline that may return, without its steps and sinks.
#[derive(Debug)]
struct RemovedPipeline {
    name: String,
    sources: BTreeMap<String, Vec<String>>,
    source_files: BTreeMap<String, String>,
    queues: BTreeMap<String, QueuePlan>,
    levels: BTreeMap<String, usize>,
    errors: Option<String>,
}

impl Changes {
    pub(crate) fn also_of_sources() -> Self {
        Self { of_sources: true, ..Self::default() }
    }

    pub(crate) fn also_of_pipelines() -> Self {
        Self { of_pipelines: true, ..Self::default() }
    }

    /// Makes some changes.
    pub(crate) fn make(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        // A `was` has no effect any more, and may stay.
        if dice.chance(60) {
            forget_former_names(plan);
        }
        for _ in 0..dice.between(1, 3) {
            self.make_one(plan, dice);
        }
        drop_taken_former_names(plan);
    }

    fn make_one(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        if self.of_sources && dice.chance(30) {
            return change_source(plan, dice);
        }
        if self.of_pipelines && dice.chance(30) {
            return self.remove_or_return_pipeline(plan, dice);
        }
        match dice.below(16) {
            0..=2 => plan.version += 1,
            3 | 4 => self.rewire_inputs(plan, dice),
            5 | 6 => self.rewire_outputs(plan, dice),
            7 => self.remove_step(plan, dice),
            8 => self.return_step(plan, dice),
            9 => self.rename_step(plan, dice),
            10 | 11 => self.rename_endpoint(plan, dice),
            12 => self.rename_pipeline(plan, dice),
            13 => self.change_sink(plan, dice),
            14 => self.remove_or_return_sink(plan, dice),
            _ => self.change_step(plan, dice),
        }
    }

    /// Changes a setting of a step: how it delivers, its error queue, its filter, its `config`, or its policy of retries.
    fn change_step(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let Some(at) = pick(&plan.steps, dice, is_plain) else { return };
        // With another error queue the step starts anew, so that it is known which jobs have which result. No step has
        // the same one again: its filter and `config` may be others then.
        let errors = format!("{}/{}", plan.steps[at].pipeline, self.fresh("e"));
        let step = &mut plan.steps[at];
        match dice.below(5) {
            0 => step.errors = Some(errors),
            1 => {
                step.delivery = match step.delivery {
                    None | Some(DeliveryGuarantee::ExactlyOnce) => Some(DeliveryGuarantee::AtLeastOnce),
                    Some(DeliveryGuarantee::AtLeastOnce) => None,
                    Some(DeliveryGuarantee::AtMostOnce) => Some(DeliveryGuarantee::AtMostOnce),
                };
            }
            2 => {
                // Another number of attempts would need the generation of each attempt.
                let attempts = |retry: &str| retry.rsplit(' ').next().map(ToOwned::to_owned);
                let same =
                    |retry: &&&str| step.retry.is_some_and(|before| attempts(before) == attempts(retry));
                let same: Vec<&str> = RETRIES.iter().filter(same).copied().collect();
                step.retry = step.retry.map(|_| *dice.pick(&same));
            }
            3 if step.take == InputMode::From => {
                step.errors = Some(errors);
                step.filter = dice.chance(70).then(|| (*dice.pick(&FILTERS)).to_owned());
            }
            _ => {
                step.errors = Some(errors);
                step.salt = dice.between(0, 22);
            }
        }
    }

    fn fresh(&mut self, before: &str) -> String {
        self.names += 1;
        let base = before.split('x').next().unwrap();
        format!("{base}x{}", self.names)
    }

    /// Lets a step read other inputs, under new names: a name and an index belong to one job. A job that waits for its
    /// next attempt keeps its form, so a step that retries keeps its kind of inputs.
    fn rewire_inputs(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let Some(at) = pick(&plan.steps, dice, |step| is_plain(step) && step.filter.is_none()) else {
            return;
        };
        let step = &plan.steps[at];
        let above = step.outputs.iter().filter_map(|(_, to)| plan.levels.get(to)).min().copied();
        let above = above.unwrap_or(ERRORS);
        let may = plan.levels.iter().filter(|(_, level)| **level < above);
        let may: Vec<String> = may.map(|(from, _)| from.clone()).collect();
        let take = *dice.pick(&[InputMode::From, InputMode::Join, InputMode::Alts]);
        let take = if step.retry.is_some() { step.take } else { take };
        let wanted = match take {
            InputMode::From => 1,
            _ if step.retry.is_some() => step.inputs.len(),
            InputMode::Join | InputMode::Alts => 2 + dice.below(2),
        };
        let taken = dice.several(&may, wanted);
        if taken.len() < wanted {
            return;
        }
        self.names += 1;
        let number = self.names;
        let named = taken.into_iter().zip(["a", "b", "c"]);
        let step = &mut plan.steps[at];
        step.take = take;
        step.inputs = named.map(|(from, name)| (format!("{name}{number}"), from)).collect();
    }

    /// Lets a step write to another target.
    fn rewire_outputs(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let Some(at) = pick(&plan.steps, dice, |step| is_plain(step) && !step.outputs.is_empty()) else {
            return;
        };
        let level = level_of(plan, &plan.steps[at]);
        let pipeline = plan.steps[at].pipeline.clone();
        let below: Vec<String> =
            plan.levels.iter().filter(|(_, to)| **to > level).map(|(to, _)| to.clone()).collect();
        let sinks: Vec<String> =
            plan.sinks.iter().filter(|sink| sink.from.is_empty()).map(|sink| sink.address.clone()).collect();
        let target = match dice.below(3) {
            0 if !below.is_empty() => dice.pick(&below).clone(),
            1 if !sinks.is_empty() => dice.pick(&sinks).clone(),
            _ => {
                let queue = format!("{pipeline}/{}", self.fresh("q"));
                plan.levels.insert(queue.clone(), level + 1);
                plan.queues
                    .insert(queue.clone(), QueuePlan { settings: vec!["retain = \"forever\"".into()] });
                queue
            }
        };
        if plan.sources.contains_key(&target) {
            return;
        }
        let step = &mut plan.steps[at];
        let output = dice.below(step.outputs.len());
        step.outputs[output].1 = target;
        note_effects(plan);
    }

    fn remove_step(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let Some(at) = pick(&plan.steps, dice, is_plain) else { return };
        self.steps.extend(plan.remove(at));
    }

    fn return_step(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        if self.steps.is_empty() {
            return;
        }
        let step = self.steps.swap_remove(dice.below(self.steps.len()));
        if has_ends(plan, &step) {
            plan.steps.push(StepPlan { was: None, ..step });
            note_effects(plan);
        } else if self.of_pipelines {
            self.steps.push(step);
        }
    }

    fn remove_or_return_pipeline(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        if !self.pipelines.is_empty() && dice.chance(50) {
            let at = dice.below(self.pipelines.len());
            return self.return_pipeline(at, plan);
        }
        let all: Vec<String> = plan.pipelines().into_iter().collect();
        if all.len() > 1 {
            self.remove_pipeline(dice.pick(&all).clone(), plan);
        }
    }

    /// Removes a pipeline, with the steps and sinks of others that use it, and pipelines that are empty then.
    fn remove_pipeline(&mut self, name: String, plan: &mut Blueprint) {
        let (mut gone, mut kept) = (BTreeSet::from([name]), plan.pipelines());
        loop {
            // A pipeline with nothing but sources is refused.
            let filled = plan.steps.iter().filter(|step| !uses(step, &gone)).map(|step| &*step.pipeline);
            let filled: BTreeSet<&str> = filled.collect();
            if filled.is_empty() {
                return;
            }
            let (left, empty): (BTreeSet<_>, BTreeSet<_>) =
                kept.into_iter().partition(|name| filled.contains(&**name));
            kept = left;
            if empty.is_subset(&gone) {
                break;
            }
            gone.extend(empty);
        }
        let goes = |address: &String| gone.contains(pipeline_of(address));
        self.steps.extend(plan.steps.extract_if(.., |step| uses(step, &gone)));
        let reads = |sink: &SinkPlan| goes(&sink.address) || sink.from.iter().any(goes);
        self.sinks.extend(plan.sinks.extract_if(.., |sink| reads(sink)));
        for name in &gone {
            let is_own = |address: &String| pipeline_of(address) == name;
            self.pipelines.push(RemovedPipeline {
                name: name.clone(),
                sources: take_out(&mut plan.sources, is_own),
                source_files: take_out(&mut plan.source_files, is_own),
                queues: take_out(&mut plan.queues, is_own),
                levels: take_out(&mut plan.levels, is_own),
                errors: plan.errors.remove(name),
            });
        }
        plan.errors.retain(|_, queue| !goes(queue));
    }

    /// Lets a pipeline return, with those of its steps and sinks whose ends are there.
    fn return_pipeline(&mut self, at: usize, plan: &mut Blueprint) {
        let removed = self.pipelines.swap_remove(at);
        let mut whole = plan.clone();
        whole.sources.extend(removed.sources.clone());
        whole.source_files.extend(removed.source_files.clone());
        whole.queues.extend(removed.queues.clone());
        whole.levels.extend(removed.levels.clone());
        let pipelines: BTreeSet<String> =
            plan.pipelines().into_iter().chain([removed.name.clone()]).collect();
        let is_there = |address: &String| pipelines.contains(pipeline_of(address));
        let errors = removed.errors.clone().filter(is_there);
        whole.errors.extend(errors.map(|errors| (removed.name.clone(), errors)));
        let is_own = |sink: &&SinkPlan| pipeline_of(&sink.address) == removed.name;
        let sinks = self.sinks.iter().filter(is_own).filter(|sink| sink.from.iter().all(is_there));
        whole.sinks.extend(sinks.cloned());
        let own = self.steps.iter().filter(|step| step.pipeline == removed.name);
        let steps: Vec<StepPlan> = own.filter(|step| has_ends(&whole, step)).cloned().collect();
        if steps.is_empty() {
            return self.pipelines.push(removed);
        }
        let returns = |name: &str| steps.iter().any(|step| step.name == name);
        self.steps.retain(|step| step.pipeline != removed.name || !returns(&step.name));
        self.sinks.retain(|sink| !whole.sinks.iter().any(|one| one.address == sink.address));
        whole.steps.extend(steps.into_iter().map(|step| StepPlan { was: None, ..step }));
        note_effects(&mut whole);
        *plan = whole;
        self.returned += 1;
    }

    /// Renames a step, in most cases with `was`.
    fn rename_step(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let Some(at) = pick(&plan.steps, dice, |_| true) else { return };
        let name = self.fresh(&plan.steps[at].name);
        let step = &mut plan.steps[at];
        let before = std::mem::replace(&mut step.name, name);
        step.was = dice.chance(75).then(|| step.was.take().unwrap_or(before));
    }

    /// Renames a queue or source with `was`.
    fn rename_endpoint(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let mut all: Vec<String> = plan.sources.keys().cloned().collect();
        let queues =
            plan.levels.keys().chain(plan.queues.keys()).filter(|name| !plan.sources.contains_key(*name));
        all.extend(queues.filter(|name| plan.mentions(name)).cloned());
        all.sort();
        all.dedup();
        let from = dice.pick(&all).clone();
        let to = format!("{}/{}", pipeline_of(&from), self.fresh(local(&from)));
        self.move_endpoint(plan, &from, &to);
        let was = plan.were.remove(&from).unwrap_or(from);
        plan.were.insert(to, was);
    }

    fn move_endpoint(&mut self, plan: &mut Blueprint, from: &str, to: &str) {
        if let Some(lines) = plan.sources.remove(from) {
            plan.sources.insert(to.to_owned(), lines);
            let file = plan.source_files.remove(from).unwrap_or_else(|| format!("{}.ndjson", local(from)));
            plan.source_files.insert(to.to_owned(), file);
        } else if !local(from).starts_with('k') {
            let queue = plan.queues.remove(from).unwrap_or_default();
            plan.queues.insert(to.to_owned(), queue);
        }
        if let Some(level) = plan.levels.remove(from) {
            plan.levels.insert(to.to_owned(), level);
        }
        let steps = plan.steps.iter_mut().chain(&mut self.steps);
        let of_steps = steps.flat_map(|step| {
            let ends = step.inputs.iter_mut().chain(&mut step.outputs).map(|(_, end)| end);
            ends.chain(&mut step.errors)
        });
        let sinks = plan.sinks.iter_mut().chain(&mut self.sinks);
        let of_sinks = sinks.flat_map(|sink| sink.from.iter_mut().chain([&mut sink.address]));
        let all = of_steps.chain(of_sinks).chain(plan.errors.values_mut());
        all.filter(|end| *end == from).for_each(|end| to.clone_into(end));
    }

    /// Renames a pipeline with `was`.
    fn rename_pipeline(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let all: Vec<String> = plan.pipelines().into_iter().collect();
        let from = dice.pick(&all).clone();
        let to = self.fresh(&from);
        let parts = plan.steps.iter().chain(&self.steps);
        let mut ends: BTreeSet<String> = parts.flat_map(StepPlan::ends).cloned().collect();
        ends.extend(plan.sources.keys().chain(plan.queues.keys()).chain(plan.levels.keys()).cloned());
        ends.extend(plan.errors.values().cloned());
        let sinks = plan.sinks.iter().chain(&self.sinks);
        ends.extend(sinks.flat_map(|sink| sink.from.iter().chain([&sink.address])).cloned());
        for end in ends.iter().filter(|end| pipeline_of(end) == from) {
            let moved = format!("{to}/{}", local(end));
            self.move_endpoint(plan, end, &moved);
            if let Some(was) = plan.were.remove(end) {
                plan.were.insert(moved, format!("{to}/{}", local(&was)));
            }
        }
        if let Some(errors) = plan.errors.remove(&from) {
            plan.errors.insert(to.clone(), errors);
        }
        for step in plan.steps.iter_mut().chain(&mut self.steps).filter(|step| step.pipeline == from) {
            step.pipeline.clone_from(&to);
        }
        let was = plan.pipelines_were.remove(&from).unwrap_or(from);
        plan.pipelines_were.insert(to, was);
    }

    /// Lets a sink write to another file.
    fn change_sink(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        let Some(at) = pick(&plan.sinks, dice, |sink| sink.kind == "file") else { return };
        let new = self.new_file();
        let sink = &mut plan.sinks[at];
        let earlier = self.files.entry(sink.address.clone()).or_default();
        earlier.push(std::mem::replace(&mut sink.file, new));
        // A sink may return to an earlier file.
        if dice.chance(30) {
            sink.file = *dice.pick(earlier);
        }
    }

    pub(crate) fn new_file(&mut self) -> u64 {
        self.names += 1;
        1000 + self.names
    }

    fn remove_or_return_sink(&mut self, plan: &mut Blueprint, dice: &mut Dice) {
        if dice.chance(50) && !self.sinks.is_empty() {
            let sink = self.sinks.swap_remove(dice.below(self.sinks.len()));
            let pipelines = plan.pipelines();
            let is_there = |from: &String| {
                plan.levels.contains_key(from) || is_error(from) && pipelines.contains(pipeline_of(from))
            };
            if sink.from.iter().all(is_there) && pipelines.contains(pipeline_of(&sink.address)) {
                plan.sinks.push(sink);
            }
        } else if let Some(at) = pick(&plan.sinks, dice, |sink| !sink.from.is_empty()) {
            self.sinks.push(plan.sinks.remove(at));
        }
    }
}

/// Whether the ends of a step are there.
fn has_ends(plan: &Blueprint, step: &StepPlan) -> bool {
    let pipelines = plan.pipelines();
    let is_queue = |queue: &String| plan.levels.contains_key(queue) || plan.queues.contains_key(queue);
    let is_input = |from: &String| is_queue(from) || is_error(from);
    let is_output = |to: &String| {
        let is_sink = plan.sinks.iter().any(|sink| sink.address == *to && sink.from.is_empty());
        is_sink || is_queue(to) && !plan.sources.contains_key(to)
    };
    let is_there = |end: &String| pipeline_of(end) == step.pipeline || pipelines.contains(pipeline_of(end));
    let is_whole = step.ends().all(is_there) && step.inputs.iter().all(|(_, from)| is_input(from));
    is_whole && step.outputs.iter().all(|(_, to)| is_output(to))
}

/// Whether a step is part of one of these pipelines, or uses their queues, sources or sinks.
fn uses(step: &StepPlan, pipelines: &BTreeSet<String>) -> bool {
    pipelines.contains(&step.pipeline) || step.ends().any(|end| pipelines.contains(pipeline_of(end)))
}

/// Takes the entries out whose addresses satisfy a condition.
fn take_out<T>(all: &mut BTreeMap<String, T>, goes: impl Fn(&String) -> bool) -> BTreeMap<String, T> {
    all.extract_if(.., |address, _| goes(address)).collect()
}

/// Lets a source read its file under another name.
fn change_source(plan: &mut Blueprint, dice: &mut Dice) {
    let sources: Vec<&String> = plan.sources.keys().collect();
    let source = (*dice.pick(&sources)).clone();
    let name = plan.source_files.get(&source).map_or(local(&source), |file| source_of(Path::new(file)));
    let file = dice.pick(&source_files(name)).clone();
    plan.source_files.insert(source, file);
}

/// Whether its wiring may change: it is part of no cycle.
fn is_plain(step: &StepPlan) -> bool {
    step.name.starts_with('t')
}

fn is_error(address: &str) -> bool {
    ["e", "failed", "mended"].iter().any(|name| local(address).starts_with(name))
}

fn level_of(plan: &Blueprint, step: &StepPlan) -> usize {
    let levels = step.inputs.iter().map(|(_, from)| plan.levels.get(from).copied().unwrap_or(ERRORS));
    levels.max().unwrap_or(0)
}

fn pick<T>(all: &[T], dice: &mut Dice, may: impl Fn(&T) -> bool) -> Option<usize> {
    let places: Vec<usize> = all.iter().enumerate().filter(|(_, one)| may(one)).map(|(at, _)| at).collect();
    (!places.is_empty()).then(|| *dice.pick(&places))
}

/// Steps that print have their hash in their jobs.
fn note_effects(plan: &mut Blueprint) {
    let prints = |to: &String| plan.sinks.iter().any(|sink| sink.address == *to && sink.kind == "stdout");
    for step in plan.steps.iter_mut().filter(|step| is_plain(step)) {
        step.hash = step.outputs.iter().any(|(_, to)| prints(to));
    }
}

fn forget_former_names(plan: &mut Blueprint) {
    plan.were.clear();
    plan.pipelines_were.clear();
    plan.steps.iter_mut().for_each(|step| step.was = None);
}

/// A former name must be free, and belong to one part.
fn drop_taken_former_names(plan: &mut Blueprint) {
    let names: BTreeSet<(String, String)> =
        plan.steps.iter().map(|step| (step.pipeline.clone(), step.name.clone())).collect();
    let mut taken = BTreeSet::new();
    for step in &mut plan.steps {
        let is_free = |was: &String| {
            let was = (step.pipeline.clone(), was.clone());
            !names.contains(&was) && taken.insert(was)
        };
        step.was = step.was.take().filter(is_free);
    }
    let were = std::mem::take(&mut plan.were);
    let mut taken = BTreeSet::new();
    plan.were = were
        .into_iter()
        .filter(|(now, was)| {
            let is_there = plan.sources.contains_key(now) || plan.mentions(now);
            is_there && !plan.sources.contains_key(was) && !plan.mentions(was) && taken.insert(was.clone())
        })
        .collect();
    let (pipelines, mut taken) = (plan.pipelines(), BTreeSet::new());
    plan.pipelines_were
        .retain(|now, was| pipelines.contains(now) && !pipelines.contains(was) && taken.insert(was.clone()));
}
