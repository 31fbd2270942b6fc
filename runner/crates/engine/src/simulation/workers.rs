//! Simulated workers: keep the workers of the steps from one run to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blueprint::LOOK;
use crate::batch::runner::BatchRunner;
use crate::commit::queue_tables::{QueueTables, TablesOf};
use crate::processor::SharedResources;
use crate::step::declared::DeclaredStep;
use tidegate_components::calls::Calls;
use tidegate_components::plugin::Plugins;
use tidegate_components::plugin::Setups;
use tidegate_config::{Processor, Step};
use tidegate_model::{Address, TokenKey};
use tidegate_store::Store;

/// Workers by step. Compilation of scripts takes most of the time, so compiled scripts are kept while they
/// cannot differ.
#[derive(Debug, Default)]
pub(crate) struct Workers(BTreeMap<Address, CachedWorker>);

#[derive(Debug)]
struct CachedWorker {
    /// Version of the step, and fingerprint of its configuration.
    version: (u64, u64),
    /// Whether it reads the store, or tables that are built from it.
    reads_store: bool,
    runner: BatchRunner,
}

impl Workers {
    pub(crate) fn get(
        &mut self,
        step: &DeclaredStep,
        store: &Store,
        tables: &QueueTables,
    ) -> &mut BatchRunner {
        let version = (step.version, step.configuration().fingerprint());
        if self.0.get(&step.address).is_none_or(|made| made.version != version) {
            let (plugins, running_commands) = (Plugins::default(), Arc::default());
            let (ending, deaths) = (Arc::default(), Arc::default());
            let token_key = &TokenKey::NONE;
            let common = SharedResources {
                plugins: &plugins,
                token_key,
                rows: TablesOf { tables, configuration: step.configuration() },
                running_commands: &running_commands,
                calls: &Calls::default(),
                ending: &ending,
                deaths: &deaths,
                setups: &Setups::none(),
                mocks: None,
            };
            let runner =
                BatchRunner::new(step.configuration(), step, step.version, store, &common, &Arc::default())
                    .unwrap();
            let reads_store = step.configuration().dedupes(step) || looks_up(step);
            self.0.insert(step.address.clone(), CachedWorker { version, reads_store, runner });
        }
        &mut self.0.get_mut(&step.address).unwrap().runner
    }

    /// Drops the workers that read the store or a table, because it is closed.
    pub(crate) fn forget(&mut self) {
        self.0.retain(|_, worker| !worker.reads_store);
    }
}

/// Whether the step reads the table of the graph.
pub(crate) fn looks_up(step: &Step) -> bool {
    step.processors.iter().any(|processor| match processor {
        Processor::Script(script) => script.path.ends_with(LOOK),
        _ => false,
    })
}
