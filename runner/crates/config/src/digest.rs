//! Digests: compare two configurations, part by part and aspect by aspect.
//!
//! Each setting of a part is encoded field by field. Positions in lists, places in files, comments and the order
//! of tables are not encoded. Settings have their effective values, so a shared `[retry.NAME]` is a setting of
//! each step that uses it. Facts about plugins are known once the plugins are loaded.

mod aspect;
mod encoder;
mod parts;
mod processors;
mod recorded;
mod runner;
mod setting;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::model::{Configuration, FormerNames, Gate, GateRef, Source, Step};
use tidegate_model::{Address, Name, PartNames};

use self::setting::Scope;

pub use self::aspect::{GateAspect, QueueAspect, RunnerAspect, SinkAspect, SourceAspect, StepAspect};
pub use self::setting::{PartDigest, SettingChange};

pub type StepDigest = PartDigest<StepAspect>;
pub type QueueDigest = PartDigest<QueueAspect>;
pub type SourceDigest = PartDigest<SourceAspect>;
pub type SinkDigest = PartDigest<SinkAspect>;
pub type GateDigest = PartDigest<GateAspect>;
pub type RunnerDigest = PartDigest<RunnerAspect>;

/// The digests of the parts of one kind. Configurations share those of parts that are the same.
pub type PartDigests<K, A> = BTreeMap<K, Arc<PartDigest<A>>>;

/// The digests of all parts of a configuration, by address. The default has no parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationDigest {
    pub pipelines: BTreeSet<Name>,
    /// The earlier names of parts.
    pub former: FormerNames,
    pub steps: PartDigests<Address, StepAspect>,
    /// Pushed sources are in the queues of their names.
    pub queues: PartDigests<Address, QueueAspect>,
    /// Pulled sources.
    pub sources: PartDigests<Address, SourceAspect>,
    pub sinks: PartDigests<Address, SinkAspect>,
    pub gates: PartDigests<GateAddress, GateAspect>,
    /// The settings of `tidegate.toml`.
    pub runner: RunnerDigest,
}

/// The name of a gate, with the pipeline that declares it; without one for `tidegate.toml`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GateAddress {
    pub pipeline: Option<Name>,
    pub name: Name,
}

impl fmt::Display for GateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pipeline {
            Some(pipeline) => write!(f, "{pipeline}/{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

impl Gate {
    #[must_use]
    pub fn address(&self) -> GateAddress {
        GateAddress { pipeline: self.pipeline.clone(), name: self.name.clone() }
    }
}

impl ConfigurationDigest {
    /// Whether a step of `later`, or its gate, is new there or differs. `digest` is that of `later`.
    #[must_use]
    pub fn is_changed(&self, step: &Step, later: &Configuration, digest: &Self) -> bool {
        let gate = step.gate.map(|GateRef(gate)| later.gates[gate].address());
        self.steps.get(&step.address) != digest.steps.get(&step.address)
            || gate.is_some_and(|gate| self.gates.get(&gate) != digest.gates.get(&gate))
    }
}

impl Configuration {
    /// The digests of all its parts.
    #[must_use]
    pub fn digest(&self) -> ConfigurationDigest {
        let scope = Scope::of(self);
        ConfigurationDigest {
            pipelines: self.pipelines.iter().map(|pipeline| pipeline.name.clone()).collect(),
            former: self.former.clone(),
            steps: by(self.steps.iter(), |step| (step.address.clone(), step::digest(&scope, self, step))),
            queues: by(self.queues.iter(), |queue| (queue.address.clone(), parts::queue(&scope, queue))),
            sources: by(self.sources.iter(), |source| {
                (source.address.clone(), parts::source(&scope, source))
            }),
            sinks: by(self.sinks.iter(), |sink| (sink.address.clone(), parts::sink(&scope, sink))),
            gates: by(self.gates.iter(), |gate| (gate.address(), parts::gate(&scope, gate))),
            runner: runner::digest(&scope, self),
        }
    }

    /// As [`Self::digest`], shared with an earlier configuration where parts are the same.
    #[must_use]
    pub fn digest_like(&self, earlier: &ConfigurationDigest) -> ConfigurationDigest {
        let mut digest = self.digest();
        digest.share(earlier);
        digest
    }

    /// The digest of one of its sources.
    #[must_use]
    pub fn source_digest(&self, source: &Source) -> SourceDigest {
        parts::source(&Scope::of(self), source)
    }

    /// A number that depends on the content of all parts, scripts included, and not on the runner's settings.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.digest().fingerprint()
    }
}

impl ConfigurationDigest {
    /// Shares the digests of parts that are the same in an earlier configuration, so that they are compared at once and
    /// kept once.
    fn share(&mut self, earlier: &Self) {
        let Self { pipelines: _, former: _, steps, queues, sources, sinks, gates, runner: _ } = self;
        share(steps, &earlier.steps);
        share(queues, &earlier.queues);
        share(sources, &earlier.sources);
        share(sinks, &earlier.sinks);
        share(gates, &earlier.gates);
    }

    /// The names of all parts.
    #[must_use]
    pub fn part_names(&self) -> PartNames {
        PartNames {
            steps: self.steps.keys().cloned().collect(),
            sources: self.sources.keys().cloned().collect(),
            queues: self.queues.keys().cloned().collect(),
            sinks: self.sinks.keys().cloned().collect(),
            inputs: BTreeSet::new(),
            returned: BTreeMap::new(),
            step_inputs: (self.steps.iter()).map(|(step, digest)| (step.clone(), digest.inputs())).collect(),
        }
    }

    /// A number that depends on the content of all parts, scripts included, and not on the runner's settings.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut exact = Vec::new();
        add(&mut exact, 1, &self.steps);
        add(&mut exact, 2, &self.queues);
        add(&mut exact, 3, &self.sources);
        add(&mut exact, 4, &self.sinks);
        add(&mut exact, 5, &self.gates);
        XxHash3_64::oneshot(&exact)
    }
}

fn add<K: fmt::Display, A: Copy + Ord>(exact: &mut Vec<u8>, kind: u8, parts: &PartDigests<K, A>) {
    for (address, part) in parts {
        let address = address.to_string();
        exact.push(kind);
        exact.extend((address.len() as u64).to_le_bytes());
        exact.extend(address.as_bytes());
        exact.extend(part.whole().to_le_bytes());
    }
}

fn by<'c, T: 'c, K: Ord, V>(
    list: impl Iterator<Item = &'c T>,
    entry: impl Fn(&T) -> (K, V),
) -> BTreeMap<K, Arc<V>> {
    let entries = list.map(entry).map(|(name, digest)| (name, Arc::new(digest)));
    entries.collect()
}

/// Replaces each digest by the equal one of the same part.
fn share<K: Ord, A: Eq>(parts: &mut PartDigests<K, A>, earlier: &PartDigests<K, A>) {
    for (name, part) in parts {
        if let Some(same) = earlier.get(name).filter(|same| *same == part) {
            *part = Arc::clone(same);
        }
    }
}

#[cfg(test)]
mod tests;
