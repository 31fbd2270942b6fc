//! Earlier generation: finds one in the history, to go back to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Generation;
use tidegate_config::{Configuration, Invocation, LoadOptions};
use tidegate_store::{HistoryEntry, ReadError, Store, TakeoverOutcome};

/// Generation that ran before the current one, as the history has it.
#[expect(missing_debug_implementations, reason = "load options have no useful debug output")]
pub struct EarlierGeneration {
    pub number: u64,
    /// Options that load its recorded texts in the place of the files.
    pub options: LoadOptions,
    /// SHA-256 of its plugins, by name.
    pub plugins: BTreeMap<String, String>,
    /// Configurations that ran after it, in the order of time, with those of the current generation: it may have left out
    /// a `was` since. One that cannot be read any more is left out: it only names the parts that were renamed.
    pub between: Vec<Arc<Configuration>>,
}

impl EarlierGeneration {
    /// The generation with this number; without one, the last that was in force before the current one.
    ///
    /// # Errors
    /// The reason for which there is none, as a sentence.
    pub fn find(given: &Invocation, store: &Store, current: u64, to: Option<u64>) -> Result<Self, String> {
        let unreadable = |error: ReadError| format!("the history cannot be read: {error}");
        let (entries, _) = store.history().map_err(unreadable)?;
        let entry = target(&entries, current, to)?;
        let number = entry.generation.unwrap_or_default();
        let mut options = given.options();
        options.recorded = Some(texts(store, entry)?);
        let is_between = |entry: &&HistoryEntry| {
            entry.generation.is_some_and(|other| number < other && other <= current)
                && !matches!(entry.outcome, TakeoverOutcome::Failed(_))
        };
        let read = |entry: &HistoryEntry| {
            let options = LoadOptions { recorded: Some(texts(store, entry).ok()?), ..given.options() };
            Some(Generation::read(&given.config, &options).ok()?.configuration)
        };
        let between = entries.iter().filter(is_between).filter_map(read).collect();
        Ok(Self { number, options, plugins: entry.plugins.clone(), between })
    }
}

/// The generation that a rollback without a number goes back to while no run is active.
///
/// # Errors
/// The reason for which there is none, as a sentence.
pub fn previous(entries: &[HistoryEntry]) -> Result<u64, String> {
    let in_force = |entry: &&HistoryEntry| entry.outcome == TakeoverOutcome::Installed;
    let current = entries.iter().rev().filter(in_force).find_map(|entry| entry.generation);
    let current = current.ok_or("the history has no generation")?;
    target(entries, current, None).map(|entry| entry.generation.unwrap_or_default())
}

/// Reason for which an earlier generation cannot return: a library of its plugins has been replaced.
#[must_use]
pub fn different_library(then: &BTreeMap<String, String>, earlier: &Generation) -> Option<String> {
    let now = earlier.plugin_hashes();
    let (name, _) = now.iter().find(|(name, now)| then.get(*name).is_some_and(|then| then != *now))?;
    let why = "differs from the one of that generation: restore the library first";
    Some(format!("the library of plugin `{name}` {why}"))
}

/// The texts of an entry, by path.
pub(crate) fn texts(store: &Store, entry: &HistoryEntry) -> Result<BTreeMap<String, String>, String> {
    let mut texts = BTreeMap::new();
    for (path, hash) in &entry.files {
        let text =
            store.history_text(hash).map_err(|error| format!("the history cannot be read: {error}"))?;
        let text = text.ok_or_else(|| format!("the text of `{path}` is damaged in the history"))?;
        texts.insert(path.clone(), text);
    }
    Ok(texts)
}

/// The newest entry of the generation; without a number, of the last that was in force before the current one.
fn target(entries: &[HistoryEntry], current: u64, to: Option<u64>) -> Result<&HistoryEntry, String> {
    let Some(wanted) = to else {
        let of = |number: u64| entries.iter().rev().find(|entry| entry.generation == Some(number));
        let now = of(current);
        let is_same = |entry: &HistoryEntry| {
            now.is_some_and(|now| {
                (&entry.files, &entry.plugins, &entry.digest) == (&now.files, &now.plugins, &now.digest)
            })
        };
        // A generation that came by a rollback has the place of the one that it repeats, also when its files are restored.
        let is_back = entries.iter().any(|entry| entry.generation == Some(current) && entry.is_rollback());
        let repeated = entries.iter().filter(|entry| !entry.is_rollback() && is_same(entry));
        let repeated = repeated.filter_map(|entry| entry.generation).rfind(|&number| number < current);
        let place = repeated.filter(|_| is_back).unwrap_or(current);
        let before = |entry: &&HistoryEntry| {
            entry.generation.is_some_and(|number| number < place)
                && entry.outcome == TakeoverOutcome::Installed
                && !is_same(entry)
        };
        let none = || {
            format!(
                "the history has no earlier generation that is still in order; `tidegate rollback {current} --write` \
                 restores the files of the present one"
            )
        };
        return entries.iter().rev().find(before).ok_or_else(none);
    };
    if wanted == current {
        return Err(format!("generation {wanted} is in force already"));
    }
    let found = entries.iter().rev().find(|entry| entry.generation == Some(wanted));
    found.ok_or_else(|| format!("the history has no generation {wanted}"))
}
