//! Resumed rollback: a start goes on with the generation that was in force, if that was a rollback and the files have not
//! changed since.
//!
//! A start would bring the files into force otherwise. That is right for changed files, and repeats the failure that the
//! rollback has ended for unchanged ones.

use std::path::Path;

use super::Generation;
use super::earlier::{different_library, texts};
use super::history;
use crate::report::{ResumedRollback, RolledBack};
use tidegate_config::{ConfigurationDigest, Diagnostics, LoadOptions};
use tidegate_model::Timestamp;
use tidegate_store::{HistoryEntry, Store, TakeoverOutcome, TextHash, Trigger};

/// The generation of a rollback that is in force although the files differ. `files`: the present ones. `None`: a start
/// brings the files into force. `options` are those of the files.
///
/// # Errors
/// The rollback, and the reason for which its generation cannot go on: a sentence fragment.
pub fn resume(
    path: &Path,
    options: LoadOptions,
    files: Result<&Generation, &Diagnostics>,
    store: &Store,
) -> Result<Option<(Generation, ResumedRollback)>, (RolledBack, String)> {
    // Damage of the history stops no start.
    let (entries, _) = store.history().unwrap_or_default();
    let root = match files {
        Ok(files) => files.configuration.root.clone(),
        Err(_) => Generation::valid_part(path, &options).map(|part| part.root).unwrap_or_default(),
    };
    let Some((rollback, last, of_files)) = in_force(&entries, files, &root) else { return Ok(None) };
    let failed = |why: String| (rollback.clone(), why);
    let recorded = texts(store, last).map_err(failed)?;
    let options = LoadOptions { recorded: Some(recorded), ..options };
    let generation = Generation::load(path, &options).map_err(|diagnostics| {
        let first = diagnostics.records().into_iter().next().map(|record| record.message);
        failed(first.unwrap_or_default())
    })?;
    if let Some(why) = different_library(&last.plugins, &generation) {
        return Err(failed(why));
    }
    let digest = match files {
        Ok(files) => ConfigurationDigest::clone(files.digest()),
        Err(_) => {
            let text = store.history_text(&of_files.digest).unwrap_or_default();
            text.and_then(|text| ConfigurationDigest::from_recorded(&text)).unwrap_or_default()
        }
    };
    let files = of_files.generation.unwrap_or_default();
    Ok(Some((generation, ResumedRollback { rollback, files, digest })))
}

/// The rollback that is in force, the entry of its generation, and that of the files, which were rolled back.
fn in_force<'e>(
    entries: &'e [HistoryEntry],
    files: Result<&Generation, &Diagnostics>,
    root: &Path,
) -> Option<(RolledBack, &'e HistoryEntry, &'e HistoryEntry)> {
    let mut taken_over = entries.iter().enumerate().rev().filter(|(_, entry)| entry.generation.is_some());
    let (at, last) = taken_over.next()?;
    if !last.is_rollback() || last.outcome != TakeoverOutcome::Installed {
        return None;
    }
    let (before, rolled_back) = taken_over.next()?;
    let TakeoverOutcome::RolledBack(why) = &rolled_back.outcome else { return None };
    // Several rollbacks, one after the other: the files are those before the first one. The entry of restored files is
    // that of a reload.
    let (mut before, mut of_files) = (before, rolled_back);
    while of_files.is_rollback() {
        (before, of_files) = taken_over.next()?;
        if !matches!(of_files.outcome, TakeoverOutcome::RolledBack(_)) {
            return None;
        }
    }
    let are_the_same = match files {
        Ok(files) => is_of(of_files, files),
        // They had mistakes when the generation was rolled back, and have the same ones.
        Err(diagnostics) => {
            let refused = entries[before..at].iter().rev().find(|entry| entry.generation.is_none());
            let present = history::of_refused(diagnostics, root, Trigger::Start, String::new());
            refused.is_some_and(|refused| {
                let texts = present.files.iter().map(|(path, text)| (path, TextHash::of(text)));
                refused.files.iter().map(|(path, hash)| (path, hash.clone())).eq(texts)
            })
        }
    };
    let same = |entry: &&HistoryEntry| {
        entry.generation.is_some()
            && (&entry.files, &entry.plugins, &entry.digest) == (&last.files, &last.plugins, &last.digest)
    };
    let to = entries[..before].iter().rev().find(same).unwrap_or(last);
    let since: Timestamp = last.time;
    are_the_same.then_some(())?;
    let (to, from) = (to.generation?, rolled_back.generation?);
    Some((RolledBack { to, from, since, trigger: last.trigger, why: why.clone() }, last, of_files))
}

/// Whether files mean the same as those of an entry.
fn is_of(entry: &HistoryEntry, files: &Generation) -> bool {
    let digest = files.digest().recorded();
    entry.digest == TextHash::of(&digest) && entry.plugins == files.plugin_hashes()
}
