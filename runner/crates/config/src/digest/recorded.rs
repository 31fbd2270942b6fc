//! Records of digests: write a `ConfigurationDigest` as a text for the history of the store, and read it back.
//!
//! Equal settings of many parts are written once.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::setting::SettingDigest;
use super::{
    ConfigurationDigest, GateAddress, GateAspect, PartDigest, PartDigests, QueueAspect, RunnerAspect,
    SinkAspect, SourceAspect, StepAspect,
};
use crate::model::{FormerNames, SinkStep};
use tidegate_model::{Address, Name};

/// The form of the text: JSON.
#[derive(Serialize, Deserialize)]
struct Recorded {
    pipelines: Vec<String>,
    /// The former addresses of steps.
    #[serde(default)]
    renamed: BTreeMap<Address, Address>,
    /// The former addresses of queues and sources.
    #[serde(default)]
    renamed_endpoints: BTreeMap<Address, Address>,
    #[serde(default)]
    renamed_pipelines: BTreeMap<String, String>,
    /// Sink and input of each step of a sink.
    #[serde(default)]
    sink_steps: BTreeMap<Address, (Address, Address)>,
    steps: RecordedParts<StepAspect>,
    queues: RecordedParts<QueueAspect>,
    sources: RecordedParts<SourceAspect>,
    sinks: RecordedParts<SinkAspect>,
    gates: RecordedParts<GateAspect>,
    runner: RecordedParts<RunnerAspect>,
}

/// The parts of one kind, each with the positions of its settings in `settings`.
#[derive(Serialize, Deserialize)]
struct RecordedParts<A> {
    settings: Vec<RecordedSetting<A>>,
    parts: BTreeMap<String, Vec<u32>>,
}

/// Aspect, key, text for people, and exact digest in hex.
#[derive(Serialize, Deserialize)]
struct RecordedSetting<A>(A, Cow<'static, str>, Option<String>, String);

impl ConfigurationDigest {
    /// The digests as a text.
    #[must_use]
    pub fn recorded(&self) -> String {
        let recorded = Recorded {
            pipelines: self.pipelines.iter().map(ToString::to_string).collect(),
            renamed: self.former.steps.clone(),
            renamed_endpoints: self.former.endpoints.clone(),
            renamed_pipelines: {
                let pipelines = self.former.pipelines.iter();
                pipelines.map(|(name, was)| (name.to_string(), was.to_string())).collect()
            },
            sink_steps: {
                let steps = self.former.sink_steps.iter();
                steps.map(|(step, of)| (step.clone(), (of.sink.clone(), of.input.clone()))).collect()
            },
            steps: record(&self.steps),
            queues: record(&self.queues),
            sources: record(&self.sources),
            sinks: record(&self.sinks),
            gates: record(&self.gates),
            runner: record(&BTreeMap::from([("runner", Arc::new(self.runner.clone()))])),
        };
        // All keys are texts, so this cannot fail.
        serde_json::to_string(&recorded).unwrap_or_default()
    }

    /// The digests that [`Self::recorded`] wrote. `None` for the text of a newer version, and for damage.
    #[must_use]
    pub fn from_recorded(text: &str) -> Option<Self> {
        let recorded: Recorded = serde_json::from_str(text).ok()?;
        Some(Self {
            pipelines: recorded.pipelines.iter().map(|name| Name::new(name)).collect::<Option<_>>()?,
            former: FormerNames {
                pipelines: {
                    let pipelines = recorded.renamed_pipelines.iter();
                    let pipelines = pipelines.map(|(name, was)| Some((Name::new(name)?, Name::new(was)?)));
                    pipelines.collect::<Option<_>>()?
                },
                steps: recorded.renamed,
                endpoints: recorded.renamed_endpoints,
                sink_steps: {
                    let steps = recorded.sink_steps.into_iter();
                    steps.map(|(step, (sink, input))| (step, SinkStep { sink, input })).collect()
                },
            },
            steps: read(recorded.steps, Address::parse)?,
            queues: read(recorded.queues, Address::parse)?,
            sources: read(recorded.sources, Address::parse)?,
            sinks: read(recorded.sinks, Address::parse)?,
            gates: read(recorded.gates, GateAddress::parse)?,
            runner: Arc::unwrap_or_clone(read(recorded.runner, Name::new)?.into_values().next()?),
        })
    }
}

impl GateAddress {
    fn parse(text: &str) -> Option<Self> {
        match Address::parse(text) {
            Some(Address { pipeline, name }) => Some(Self { pipeline: Some(pipeline), name }),
            None => Name::new(text).map(|name| Self { pipeline: None, name }),
        }
    }
}

fn record<K: ToString, A: Copy + Eq>(parts: &PartDigests<K, A>) -> RecordedParts<A> {
    let mut positions: HashMap<&SettingDigest<A>, u32> = HashMap::new();
    let mut settings = Vec::new();
    let mut position = |setting| {
        *positions.entry(setting).or_insert_with(|| {
            let SettingDigest { aspect, key, shown, exact } = setting;
            settings.push(RecordedSetting(*aspect, key.clone(), shown.clone(), format!("{exact:x}")));
            // More than 4 billion settings do not fit into memory.
            u32::try_from(settings.len() - 1).unwrap_or(u32::MAX)
        })
    };
    let mut recorded = BTreeMap::new();
    let mut before: Vec<(&SettingDigest<A>, u32)> = Vec::new();
    for (address, part) in parts {
        // Most settings are those of the part before, at the same place, and need no search.
        let own = part.settings.iter().enumerate().map(|(at, setting)| {
            let same = before.get(at).filter(|(other, _)| other.exact == setting.exact && *other == setting);
            (setting, same.map_or_else(|| position(setting), |(_, position)| *position))
        });
        before = own.collect();
        recorded.insert(address.to_string(), before.iter().map(|(_, position)| *position).collect());
    }
    RecordedParts { settings, parts: recorded }
}

fn read<K: Ord, A: Copy + DeserializeOwned>(
    recorded: RecordedParts<A>,
    address: impl Fn(&str) -> Option<K>,
) -> Option<PartDigests<K, A>> {
    let settings = recorded.settings.into_iter().map(|RecordedSetting(aspect, key, shown, exact)| {
        let exact = u128::from_str_radix(&exact, 16).ok()?;
        Some(SettingDigest { aspect, key, shown, exact })
    });
    let settings: Vec<SettingDigest<A>> = settings.collect::<Option<_>>()?;
    let parts = recorded.parts.into_iter().map(|(name, positions)| {
        let own = positions.into_iter().map(|position| settings.get(position as usize).cloned());
        Some((address(&name)?, Arc::new(PartDigest { settings: own.collect::<Option<_>>()? })))
    });
    parts.collect()
}
