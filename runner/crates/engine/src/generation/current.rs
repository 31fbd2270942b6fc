//! Current generation: the configuration that a run carries out now, with its number.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::source_files::SourceFiles;
use crate::commit::queue_tables::QueueTables;
use crate::report::{ReloadHealth, ResumedRollback, RolledBack, RolledBackBefore};
use tidegate_components::plugin::Plugins;
use tidegate_config::{Configuration, ConfigurationDigest, Positions, Readings, RunnerAspect};
use tidegate_model::RenamedPart;
use tidegate_model::sync::Mutex;

/// Configuration with its scripts, plugins and number. It lives as long as a step or an attempt uses it.
#[derive(Debug)]
pub struct NumberedGeneration {
    /// Number of the configuration among all that ran on the store.
    pub number: u64,
    pub configuration: Arc<Configuration>,
    pub digest: Arc<ConfigurationDigest>,
    pub(crate) plugins: Arc<Plugins>,
    /// Files that the configuration was read from.
    pub files: Arc<SourceFiles>,
}

impl NumberedGeneration {
    pub(crate) fn new(
        number: u64,
        configuration: Arc<Configuration>,
        plugins: Arc<Plugins>,
        files: Arc<SourceFiles>,
    ) -> Self {
        let digest = Arc::new(configuration.digest());
        Self { number, configuration, digest, plugins, files }
    }
}

#[cfg(test)]
impl NumberedGeneration {
    /// First generation of a store, without plugins.
    pub(crate) fn first(configuration: &Arc<Configuration>) -> Arc<Self> {
        Arc::new(Self::new(1, Arc::clone(configuration), Arc::default(), Arc::default()))
    }
}

/// Generation that a run carries out now. It is replaced as a whole.
#[derive(Debug)]
pub(crate) struct CurrentGeneration {
    generation: Mutex<Arc<NumberedGeneration>>,
    /// Configuration that started the run.
    started_with: Arc<ConfigurationDigest>,
    positions: Mutex<Positions>,
    pub(crate) health: ReloadHealth,
    /// Rollback to an earlier generation, until the files change.
    back_to: Mutex<Option<Return>>,
    /// Number of the generation that started the run, and an earlier rollback of its files.
    back_before: Mutex<Option<(u64, RolledBackBefore)>>,
    /// Held by a reload from the reading of the files on: a later one must not be replaced by an earlier one.
    /// With the declarations of the last load.
    pub(crate) turn: Mutex<Readings>,
    /// Files that the last reading of the configuration looked for, whether it took effect or not.
    sought: Mutex<BTreeSet<PathBuf>>,
    /// Rows of the lookup tables whose rows are in queues.
    pub(crate) tables: Arc<QueueTables>,
}

/// Return to an earlier generation.
#[derive(Debug)]
struct Return {
    /// Number of the generation that carries out the earlier one again.
    number: u64,
    rollback: RolledBack,
    /// Number and meaning of the files, which were rolled back.
    files: u64,
    digest: Arc<ConfigurationDigest>,
}

impl CurrentGeneration {
    pub(crate) fn new(generation: NumberedGeneration) -> Self {
        let positions = Mutex::new(Positions::of(&generation.configuration));
        Self {
            started_with: Arc::clone(&generation.digest),
            generation: Mutex::new(Arc::new(generation)),
            positions,
            health: ReloadHealth::default(),
            back_to: Mutex::new(None),
            back_before: Mutex::new(None),
            turn: Mutex::default(),
            sought: Mutex::default(),
            tables: Arc::default(),
        }
    }

    pub(crate) fn sought(&self) -> BTreeSet<PathBuf> {
        self.sought.lock().clone()
    }

    pub(crate) fn set_sought(&self, files: BTreeSet<PathBuf>) {
        *self.sought.lock() = files;
    }

    #[must_use]
    pub(crate) fn get(&self) -> Arc<NumberedGeneration> {
        Arc::clone(&self.generation.lock())
    }

    pub(crate) fn set(&self, generation: Arc<NumberedGeneration>) {
        *self.generation.lock() = generation;
    }

    /// Settings that differ from those that started the run, and take effect at its next start.
    #[must_use]
    pub(crate) fn waiting_for_restart(&self, digest: &ConfigurationDigest) -> Vec<RunnerAspect> {
        let mut differing = self.started_with.runner.differing(&digest.runner);
        differing.retain(|aspect| !aspect.applies_at_reload());
        differing.into_iter().collect()
    }

    /// Earlier generation that is carried out again, although the files differ.
    #[must_use]
    pub(crate) fn back_to(&self) -> Option<RolledBack> {
        let number = self.get().number;
        let back_to = self.back_to.lock();
        back_to.as_ref().filter(|back| back.number == number).map(|back| back.rollback.clone())
    }

    /// Number of the generation of the files, if files of this digest mean the same as those that were rolled back.
    #[must_use]
    pub(crate) fn rolled_back_of(&self, digest: &ConfigurationDigest) -> Option<u64> {
        let number = self.get().number;
        let back_to = self.back_to.lock();
        back_to
            .as_ref()
            .filter(|back| back.number == number && *back.digest == *digest)
            .map(|back| back.files)
    }

    /// `number`: that of the generation that carries out the earlier one again. The current one is still the one that
    /// is rolled back.
    pub(crate) fn set_back_to(&self, number: u64, rollback: RolledBack) {
        let current = self.get();
        let mut back_to = self.back_to.lock();
        // After another rollback, the files are still those that were rolled back first.
        let (files, digest) = match back_to.take() {
            Some(before) if before.number == current.number => (before.files, before.digest),
            _ => (current.number, Arc::clone(&current.digest)),
        };
        *back_to = Some(Return { number, rollback, files, digest });
    }

    /// Goes on with a rollback of an earlier run.
    pub(crate) fn resume(&self, ResumedRollback { rollback, files, digest }: ResumedRollback) {
        let (number, digest) = (self.get().number, Arc::new(digest));
        *self.back_to.lock() = Some(Return { number, rollback, files, digest });
    }

    /// Earlier rollback of the files that started the run and are still in force.
    #[must_use]
    pub(crate) fn back_before(&self) -> Option<RolledBackBefore> {
        let number = self.get().number;
        self.back_before.lock().clone().filter(|(current, _)| *current == number).map(|(_, back)| back)
    }

    pub(crate) fn set_back_before(&self, back: RolledBackBefore) {
        *self.back_before.lock() = Some((self.get().number, back));
    }

    /// Records the present texts of files that mean the same as before, if this generation is still the current one.
    /// Returns whether the texts are others, or those of a generation that came by a rollback and had other files until
    /// now.
    pub(crate) fn note_files(&self, current: u64, files: &Arc<SourceFiles>) -> bool {
        let mut generation = self.generation.lock();
        if generation.number != current {
            return false;
        }
        let had_others = self.back_to.lock().take().is_some();
        let are_others = had_others || !generation.files.has_texts_of(files);
        let NumberedGeneration { number, configuration, digest, plugins, .. } = &**generation;
        *generation = Arc::new(NumberedGeneration {
            number: *number,
            configuration: Arc::clone(configuration),
            digest: Arc::clone(digest),
            plugins: Arc::clone(plugins),
            files: Arc::clone(files),
        });
        are_others
    }

    /// The configuration with the positions that its parts had before in this process, under these former names too.
    pub(crate) fn placed(&self, mut configuration: Configuration, renamed: &[RenamedPart]) -> Configuration {
        let mut positions = self.positions.lock();
        positions.rename(renamed);
        configuration.keep_positions(&mut positions);
        configuration
    }
}
