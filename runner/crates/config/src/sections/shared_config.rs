//! `SharedConfig`: `config` of a pipeline or of the runner, which lies under that of each step.
//!
//! The keys of a step win over those of its pipeline, and these over those of the runner. A table is one value: its
//! keys are not mixed.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::model::{ProbeConfig, Processor};
use crate::parse::context::ParseContext;
use crate::parse::json;
use crate::parse::table::TableReader;
use tidegate_model::Secret;

/// Values that several steps share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedConfig {
    values: Arc<Json>,
    /// The parts that must not be shown.
    secrets: Vec<Secret>,
}

/// The config of processors, with the shared values under their own.
pub(crate) struct MergedConfig {
    pub(crate) config: Arc<Json>,
    pub(crate) secrets: Vec<Secret>,
    /// The keys that are shared ones.
    pub(crate) shared: Vec<String>,
}

impl SharedConfig {
    /// The `config` of `section`.
    pub(crate) fn read(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Self {
        let (values, secrets) = json::config(reading, section);
        Self { values, secrets }
    }

    /// These values, and those of `below` at other keys.
    pub(crate) fn over(&self, below: &Self) -> Self {
        let MergedConfig { config, secrets, shared: _ } = below.under(&self.values, &self.secrets);
        Self { values: config, secrets }
    }

    /// The own values of processors that read them, and these at other keys.
    pub(crate) fn under_that_of(
        &self,
        run: &[Processor],
        (own, secrets): (&Arc<Json>, &[Secret]),
    ) -> MergedConfig {
        if run.iter().any(|it| matches!(it, Processor::Script(_) | Processor::Plugin(_))) {
            return self.under(own, secrets);
        }
        MergedConfig { config: Arc::clone(own), secrets: secrets.to_vec(), shared: Vec::new() }
    }

    /// The probe with these values under its own.
    pub(crate) fn under_probe(&self, probe: ProbeConfig) -> ProbeConfig {
        let own = (&probe.config, probe.secrets.as_slice());
        let MergedConfig { config, secrets, shared } = self.under_that_of(&probe.run, own);
        ProbeConfig { config, secrets, shared, ..probe }
    }

    fn under(&self, own: &Arc<Json>, secrets: &[Secret]) -> MergedConfig {
        let secrets: Vec<Secret> = secrets.iter().chain(&self.secrets).cloned().collect();
        let none = Map::new();
        let (values, written) = (self.values.as_object().unwrap_or(&none), own.as_object().unwrap_or(&none));
        let shared: Vec<String> = values.keys().filter(|key| !written.contains_key(*key)).cloned().collect();
        let config = if shared.is_empty() {
            Arc::clone(own)
        } else if written.is_empty() {
            Arc::clone(&self.values)
        } else {
            let mut all = values.clone();
            all.extend(written.iter().map(|(key, value)| (key.clone(), value.clone())));
            Arc::new(Json::Object(all))
        };
        MergedConfig { config, secrets, shared }
    }
}
