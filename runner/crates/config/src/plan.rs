//! `Plan`: the changes from one configuration to another, with their effects on stored jobs and progress.
//!
//! A plan is a pure function of both digests and of the state. It changes nothing.

mod effects;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::digest::{
    ConfigurationDigest, GateAspect, PartDigest, PartDigests, QueueAspect, RunnerAspect, SettingChange,
    SinkAspect, SourceAspect, StepAspect,
};
use tidegate_model::{Address, PartNames};

/// The state that a plan depends on: remains of the parts of both configurations in the store.
#[derive(Clone, Debug, Default)]
pub struct PlanState {
    pub steps: BTreeMap<Address, StepRemains>,
    /// Number of kept jobs, by queue.
    pub queues: BTreeMap<Address, u64>,
    /// All parts that the store has something of.
    pub known: PartNames,
}

/// The state of a step.
#[derive(Clone, Debug, Default)]
pub struct StepRemains {
    /// The inputs on which it has progress, each with the number of its waiting jobs, if that is known.
    pub inputs: BTreeMap<Address, Option<u64>>,
    pub delayed: u64,
    pub pending: u64,
}

/// All changes, in the order of the data flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub changes: Vec<PartChange>,
    /// Lines of the new configuration without effect, each a sentence with its fix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Reasons for which these changes would be refused, each a sentence with its fix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// The change of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartChange {
    pub kind: PartKind,
    /// `PIPELINE/NAME`; the name alone for a pipeline or a shared gate; empty for the runner.
    pub name: String,
    pub action: PlanAction,
    /// The aspects that differ, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aspects: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<PlannedSetting>,
    /// Sentence fragments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    Runner,
    Pipeline,
    Source,
    Queue,
    Gate,
    Step,
    Sink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanAction {
    Add,
    Change,
    Remove,
    /// The part is the same, and the changes of others affect it.
    Affect,
}

/// A setting with its texts; `None` where the configuration does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedSetting {
    pub key: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

/// The keys that describe an added or a removed part.
const KEYS_SHOWN: [&str; 11] =
    ["from", "join", "alts", "run", "to", "type", "path", "url", "every", "source.type", "errors"];

impl PartKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runner => "runner",
            Self::Pipeline => "pipeline",
            Self::Source => "source",
            Self::Queue => "queue",
            Self::Gate => "gate",
            Self::Step => "step",
            Self::Sink => "sink",
        }
    }
}

impl Plan {
    /// The changes from `old` to `new`, with their effects on `state`.
    #[must_use]
    pub fn between(old: &ConfigurationDigest, new: &ConfigurationDigest, state: &PlanState) -> Self {
        let mut plan = Self::default();
        plan.runner(old, new);
        for name in old.pipelines.union(&new.pipelines) {
            let action = match (old.pipelines.contains(name), new.pipelines.contains(name)) {
                (false, true) => PlanAction::Add,
                (true, false) => PlanAction::Remove,
                _ => continue,
            };
            plan.push(PartKind::Pipeline, name.to_string(), action);
        }
        plan.parts(PartKind::Source, &old.sources, &new.sources, SourceAspect::as_str);
        plan.parts(PartKind::Queue, &old.queues, &new.queues, QueueAspect::as_str);
        plan.parts(PartKind::Gate, &old.gates, &new.gates, GateAspect::as_str);
        plan.parts(PartKind::Step, &old.steps, &new.steps, StepAspect::as_str);
        plan.parts(PartKind::Sink, &old.sinks, &new.sinks, SinkAspect::as_str);
        effects::add(&mut plan, old, new, state);
        plan.changes.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        plan
    }

    /// Each `was` of a new part that moves nothing, so that the part begins anew: a sentence with its fix. `known`: the
    /// parts that the store has something of.
    #[must_use]
    pub fn misspelt_renames(
        old: &ConfigurationDigest,
        new: &ConfigurationDigest,
        known: &PartNames,
    ) -> Vec<String> {
        effects::misspelt(old, new, known).collect()
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Number of parts with this action.
    #[must_use]
    pub fn count(&self, action: PlanAction) -> usize {
        self.changes.iter().filter(|change| change.action == action).count()
    }

    fn push(&mut self, kind: PartKind, name: String, action: PlanAction) -> &mut PartChange {
        let (aspects, settings, effects) = (Vec::new(), Vec::new(), Vec::new());
        self.changes.push(PartChange { kind, name, action, aspects, settings, effects });
        let last = self.changes.len() - 1;
        &mut self.changes[last]
    }

    fn runner(&mut self, old: &ConfigurationDigest, new: &ConfigurationDigest) {
        let aspects = old.runner.differing(&new.runner);
        // Before the first run there are no settings to change.
        if aspects.is_empty() || old.runner == PartDigest::new() {
            return;
        }
        let change = self.push(PartKind::Runner, String::new(), PlanAction::Change);
        change.aspects = words(&aspects, RunnerAspect::as_str);
        change.settings = settings(old.runner.changes(&new.runner));
        let waits: Vec<RunnerAspect> =
            aspects.into_iter().filter(|aspect| !aspect.applies_at_reload()).collect();
        change.effects.extend(next_start(&waits));
    }

    /// Names only those settings of the runner that wait for its next start: a value with which it started needs none.
    pub fn keep_waiting(&mut self, waiting: &[RunnerAspect]) {
        for change in self.changes.iter_mut().filter(|change| change.kind == PartKind::Runner) {
            let is_changing = |aspect: &RunnerAspect| change.aspects.iter().any(|one| one == aspect.as_str());
            let waits: Vec<RunnerAspect> = waiting.iter().copied().filter(is_changing).collect();
            change.effects = next_start(&waits).into_iter().collect();
        }
    }

    fn parts<K: Ord + Display, A: Copy + Ord>(
        &mut self,
        kind: PartKind,
        old: &PartDigests<K, A>,
        new: &PartDigests<K, A>,
        word: fn(A) -> &'static str,
    ) {
        let names: BTreeSet<&K> = old.keys().chain(new.keys()).collect();
        for name in names {
            match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) => {
                    let aspects = old.differing(new);
                    if !aspects.is_empty() {
                        let change = self.push(kind, name.to_string(), PlanAction::Change);
                        change.aspects = words(&aspects, word);
                        change.settings = settings(old.changes(new));
                    }
                }
                (None, Some(new)) => {
                    let change = self.push(kind, name.to_string(), PlanAction::Add);
                    change.settings = settings(PartDigest::new().changes(new));
                    change.settings.retain(describes);
                }
                (Some(old), None) => {
                    let change = self.push(kind, name.to_string(), PlanAction::Remove);
                    change.settings = settings(old.changes(&PartDigest::new()));
                    change.settings.retain(describes);
                }
                (None, None) => {}
            }
        }
    }
}

fn next_start(waits: &[RunnerAspect]) -> Option<String> {
    let takes = if waits.len() == 1 { "takes" } else { "take" };
    let waits: Vec<&str> = waits.iter().map(|aspect| aspect.as_str()).collect();
    (!waits.is_empty()).then(|| format!("{} {takes} effect at the next start only", waits.join(", ")))
}

impl RunnerAspect {
    /// Whether a running runner takes it over. The other aspects wait for the next start.
    #[must_use]
    pub fn applies_at_reload(self) -> bool {
        match self {
            Self::Plugins | Self::Reload => true,
            Self::Data | Self::Listen | Self::Hosts | Self::Workers | Self::ShutdownTimeout | Self::Log => {
                false
            }
        }
    }
}

/// Whether a setting describes an added or a removed part.
fn describes(setting: &PlannedSetting) -> bool {
    let table = setting.key.split('.').next().unwrap_or_default();
    let is_none = |text: &Option<String>| text.as_deref() == Some("none");
    (KEYS_SHOWN.contains(&table) || KEYS_SHOWN.contains(&&*setting.key))
        && !is_none(&setting.old)
        && !is_none(&setting.new)
}

fn words<A: Copy>(aspects: &BTreeSet<A>, word: fn(A) -> &'static str) -> Vec<String> {
    aspects.iter().map(|aspect| word(*aspect).to_owned()).collect()
}

/// Without settings of a table that comes or goes, and that limited nothing.
fn settings<A>(changes: Vec<SettingChange<A>>) -> Vec<PlannedSetting> {
    let is_nothing = |text: &Option<String>| matches!(text.as_deref(), None | Some("none" | "unlimited"));
    let changes = changes.into_iter().filter(|change| !(is_nothing(&change.old) && is_nothing(&change.new)));
    changes.map(|SettingChange { key, old, new, .. }| PlannedSetting { key, old, new }).collect()
}

#[cfg(test)]
mod tests;
