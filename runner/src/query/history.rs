//! History: lists the configurations that were taken over, and shows the files of one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Answer, rfc3339};
use tidegate_store::{HistoryEntry, ReadError, Store, TakeoverOutcome, TextHash, Trigger};

/// All entries, the oldest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HistoryPage {
    pub(crate) entries: Vec<HistoryRow>,
    /// Number of entries that cannot be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) damaged: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HistoryRow {
    /// `null` if the configuration was refused.
    pub(crate) generation: Option<u64>,
    /// RFC 3339.
    pub(crate) time: String,
    pub(crate) trigger: Trigger,
    /// `installed`, `failed` or `rolled back`.
    pub(crate) outcome: String,
    /// The reason of an outcome other than `installed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Number of its files.
    pub(crate) files: usize,
    /// The files that differ from the generation before it, also those that it does not have. Files that a refused
    /// configuration does not have may only be unread, and are left out.
    pub(crate) changed: Vec<String>,
    /// SHA-256 of its plugins, by name.
    pub(crate) plugins: BTreeMap<String, String>,
}

/// One configuration with its files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HistoryFiles {
    pub(crate) entry: HistoryRow,
    pub(crate) files: Vec<HistoryText>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HistoryText {
    /// Relative to the configuration.
    pub(crate) path: String,
    /// `null` if it is damaged.
    pub(crate) text: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

pub(super) fn history(store: &Store, generation: Option<u64>) -> Result<Answer, ReadError> {
    let (entries, damaged) = store.history()?;
    let mut rows: Vec<HistoryRow> = Vec::with_capacity(entries.len());
    let mut before = None;
    for entry in &entries {
        rows.push(row(entry, before));
        // A refused configuration was in force never, and may have left files unread.
        if entry.generation.is_some() {
            before = Some(entry);
        }
    }
    let Some(generation) = generation else {
        return Ok(Answer::History(HistoryPage { entries: rows, damaged }));
    };
    let found = entries.iter().zip(rows).rev().find(|(entry, _)| entry.generation == Some(generation));
    let Some((entry, row)) = found else {
        return Ok(Answer::Missing(format!("the history has no generation {generation}")));
    };
    let mut files = Vec::new();
    for (path, hash) in &entry.files {
        files.push(HistoryText { path: path.clone(), text: store.history_text(hash)? });
    }
    Ok(Answer::HistoryFiles(HistoryFiles { entry: row, files }))
}

fn row(entry: &HistoryEntry, before: Option<&HistoryEntry>) -> HistoryRow {
    let (outcome, why) = match &entry.outcome {
        TakeoverOutcome::Installed => ("installed", None),
        TakeoverOutcome::Failed(why) => ("failed", Some(why.clone())),
        TakeoverOutcome::RolledBack(why) => ("rolled back", Some(why.clone())),
    };
    HistoryRow {
        generation: entry.generation,
        time: rfc3339(entry.time),
        trigger: entry.trigger,
        outcome: outcome.to_owned(),
        why,
        files: entry.files.len(),
        changed: before.map(|before| changed(before, entry)).unwrap_or_default(),
        plugins: entry.plugins.clone(),
    }
}

fn changed(before: &HistoryEntry, entry: &HistoryEntry) -> Vec<String> {
    let files =
        |entry: &HistoryEntry| -> BTreeMap<String, TextHash> { entry.files.iter().cloned().collect() };
    let (before, after) = (files(before), files(entry));
    let may_be_unread = |path: &String| entry.generation.is_none() && !after.contains_key(path);
    let differs = |path: &&String| before.get(*path) != after.get(*path) && !may_be_unread(path);
    let mut changed: Vec<String> = before.keys().chain(after.keys()).filter(differs).cloned().collect();
    changed.sort();
    changed.dedup();
    changed
}
