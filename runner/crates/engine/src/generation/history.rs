//! Entries of the history: a configuration with its files and plugins, as the store records it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::current::NumberedGeneration;
use crate::report::RolledBackBefore;
use tidegate_config::{Configuration, ConfigurationDigest, Diagnostics, Processor, all_processors};
use tidegate_store::{HistoryChange, HistoryEntry, NewHistoryEntry, Store, TakeoverOutcome, Trigger};

/// The entry of a generation that takes over. One without files has none.
pub(crate) fn of_generation(generation: &NumberedGeneration, trigger: Trigger) -> Option<NewHistoryEntry> {
    of_takeover(generation, &generation.digest, trigger)
}

/// As [`of_generation`], with the digest of its texts as a start reads them. The names that a rollback adds are in no
/// file.
pub(crate) fn of_takeover(
    generation: &NumberedGeneration,
    digest: &ConfigurationDigest,
    trigger: Trigger,
) -> Option<NewHistoryEntry> {
    let NumberedGeneration { number, configuration, files, .. } = generation;
    (!files.is_empty()).then(|| NewHistoryEntry {
        generation: Some(*number),
        trigger,
        outcome: TakeoverOutcome::Installed,
        files: files.relative(&configuration.root),
        plugins: plugins(configuration),
        digest: digest.recorded().into(),
    })
}

/// The entry of a start; `None` if the last one is the same.
pub(crate) fn at_start(generation: &NumberedGeneration, store: &Store) -> Option<HistoryChange> {
    let entry = of_generation(generation, Trigger::Start)?;
    // Damage of the history stops no start.
    let last = store.last_installed().unwrap_or_default();
    let is_same = |last: &HistoryEntry| last.generation == entry.generation && last.has_content_of(&entry);
    (!last.as_ref().is_some_and(is_same)).then_some(HistoryChange::Add(entry))
}

/// The rollback of the same files, unless they came into force again by a reload since.
pub(crate) fn rolled_back_before(generation: &NumberedGeneration, store: &Store) -> Option<RolledBackBefore> {
    let own = of_generation(generation, Trigger::Start)?;
    // Damage of the history stops no start.
    let (entries, _) = store.history().unwrap_or_default();
    let is_restart = |entry: &&HistoryEntry| {
        entry.outcome == TakeoverOutcome::Installed && entry.trigger == Trigger::Start
    };
    let mut same = entries.into_iter().rev().filter(|entry| entry.has_content_of(&own));
    let last = same.find(|entry| !is_restart(&entry))?;
    let TakeoverOutcome::RolledBack(why) = last.outcome else { return None };
    Some(RolledBackBefore { generation: last.generation?, why })
}

/// The entry of a configuration with mistakes.
pub(crate) fn of_refused(
    diagnostics: &Diagnostics,
    root: &Path,
    trigger: Trigger,
    why: String,
) -> NewHistoryEntry {
    let files = diagnostics.files().texts().map(|(path, text)| {
        let path = path.strip_prefix(root).unwrap_or(path);
        (path.display().to_string(), Arc::clone(text))
    });
    NewHistoryEntry {
        generation: None,
        trigger,
        outcome: TakeoverOutcome::Failed(why),
        files: files.collect(),
        plugins: BTreeMap::new(),
        digest: "".into(),
    }
}

/// SHA-256 of the plugins, by name.
pub(crate) fn plugins(configuration: &Configuration) -> BTreeMap<String, String> {
    let all = all_processors(&configuration.steps, &configuration.gates);
    let plugins = all.filter_map(Processor::plugin).filter(|plugin| !plugin.secret);
    plugins.map(|plugin| (plugin.plugin.clone(), plugin.sha256.clone())).collect()
}
