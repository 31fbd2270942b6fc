//! `HistoryEntry`: a configuration that a runner took over or refused, with the whole texts of its files.
//!
//! Texts are compressed, and equal ones are stored once. The newest [`ENTRIES_MAX`] entries are kept. The history
//! is for display and for rollbacks: damage in it is reported where it is read, and stops no runner. Older
//! versions leave it unchanged, and an export omits it.
//!
//! | table | key | record |
//! | --- | --- | --- |
//! | history | sequence u64 | JSON |
//! | texts | XXH3-128 of the text | the text, lz4 with its length in front |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redb::{
    ReadTransaction, ReadableTable, ReadableTableMetadata as _, TableDefinition, TableError, WriteTransaction,
};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::format::{Bytes, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Timestamp, log_target};

/// Number of entries that are kept.
pub const ENTRIES_MAX: u64 = 100;

/// Number of texts that a writer knows to be sound.
const SOUND_MAX: usize = 100_000;

/// The longest text that is read back; longer ones are damage.
const TEXT_BYTES_MAX: usize = 1 << 30;

pub(crate) const HISTORY: TableDefinition<'_, u64, Bytes> = TableDefinition::new("history");
pub(crate) const TEXTS: TableDefinition<'_, u128, Bytes> = TableDefinition::new("texts");

/// The reason for taking over a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A run started.
    Start,
    /// `tidegate reload`, or a request to the port.
    Reload,
    /// A watched file changed.
    Watch,
    Signal,
    Rollback,
    /// Too many attempts failed after a reload: `[reload] watch_errors`.
    WatchErrors,
}

impl Trigger {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reload => "reload",
            Self::Watch => "watch",
            Self::Signal => "signal",
            Self::Rollback => "rollback",
            Self::WatchErrors => "watch_errors",
        }
    }
}

/// The result of taking over a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeoverOutcome {
    Installed,
    /// The configuration before it stayed in place, for this reason.
    Failed(String),
    /// It was in place, and was replaced by an earlier one, for this reason.
    RolledBack(String),
}

/// The number of a text: its XXH3-128 in hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TextHash(String);

/// An entry to write.
#[derive(Clone, Debug)]
pub struct NewHistoryEntry {
    /// `None` if it failed.
    pub generation: Option<u64>,
    pub trigger: Trigger,
    pub outcome: TakeoverOutcome,
    /// Whole texts, by path relative to the configuration.
    pub files: Vec<(String, Arc<str>)>,
    /// SHA-256 of the plugins, by name.
    pub plugins: BTreeMap<String, String>,
    /// The settings of all parts, in a form that the engine reads.
    pub digest: Arc<str>,
}

/// An entry that is stored. Its texts are read by [`Store::history_text`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// `None` if it failed.
    pub generation: Option<u64>,
    pub time: Timestamp,
    pub trigger: Trigger,
    pub outcome: TakeoverOutcome,
    pub files: Vec<(String, TextHash)>,
    pub plugins: BTreeMap<String, String>,
    pub digest: TextHash,
}

impl HistoryEntry {
    /// Whether its generation came by a rollback.
    #[must_use]
    pub fn is_rollback(&self) -> bool {
        matches!(self.trigger, Trigger::Rollback | Trigger::WatchErrors)
    }
}

/// A change of the history in a commit.
#[derive(Clone, Debug)]
pub enum HistoryChange {
    Add(NewHistoryEntry),
    /// The generation was replaced by an earlier one, for this reason.
    RolledBack {
        generation: u64,
        why: String,
    },
}

impl TextHash {
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(format!("{:032x}", XxHash3_128::oneshot(text.as_bytes())))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn key(&self) -> Option<u128> {
        u128::from_str_radix(&self.0, 16).ok()
    }
}

impl HistoryEntry {
    /// Whether both have the same files, plugins and settings.
    #[must_use]
    pub fn has_content_of(&self, new: &NewHistoryEntry) -> bool {
        let files = new.files.iter().map(|(path, text)| (path, TextHash::of(text)));
        let own = self.files.iter().map(|(path, hash)| (path, hash.clone()));
        own.eq(files) && self.plugins == new.plugins && self.digest == TextHash::of(&new.digest)
    }
}

impl Store {
    /// All readable entries, the oldest first, and the number of damaged ones.
    pub fn history(&self) -> Result<(Vec<HistoryEntry>, usize), ReadError> {
        self.view(|txn| {
            let table = match txn.open_table(HISTORY) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => return Ok((Vec::new(), 0)),
                Err(error) => return Err(error.into()),
            };
            let (entries, damaged) = read(&table)?;
            Ok((entries.into_iter().map(|(_, entry)| entry).collect(), damaged))
        })
    }

    /// The last readable entry of a configuration that was installed.
    pub fn last_installed(&self) -> Result<Option<HistoryEntry>, ReadError> {
        self.view(|txn| {
            let table = match txn.open_table(HISTORY) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            for entry in table.iter()?.rev() {
                let (sequence, stored) = entry?;
                let entry = RecordKey::History(sequence.value()).unseal_json(stored.value());
                if let Ok(entry @ HistoryEntry { outcome: TakeoverOutcome::Installed, .. }) = entry {
                    return Ok(Some(entry));
                }
            }
            Ok(None)
        })
    }

    /// A text of the history; `None` if it is missing or damaged.
    pub fn history_text(&self, hash: &TextHash) -> Result<Option<String>, ReadError> {
        self.view(|txn| match txn.open_table(TEXTS) {
            Ok(table) => text(&table, hash),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }
}

/// Applies the change, and removes the oldest entries beyond [`ENTRIES_MAX`] with the texts of theirs alone.
///
/// `sound`: texts that this writer has found sound or has written. They are not read again for each entry.
pub(crate) fn write(
    txn: &WriteTransaction,
    changes: &[HistoryChange],
    now: Timestamp,
    sound: &mut BTreeSet<u128>,
) -> Result<(), StoreCause> {
    if changes.is_empty() {
        return Ok(());
    }
    match apply(txn, changes, now, sound) {
        // A start is worth more than its entry.
        Err(StoreCause::Damaged(what)) => {
            tracing::warn!(target: log_target::STORE, what, "the history is damaged, so it was not continued");
            Ok(())
        }
        outcome => outcome,
    }
}

fn apply(
    txn: &WriteTransaction,
    changes: &[HistoryChange],
    now: Timestamp,
    sound: &mut BTreeSet<u128>,
) -> Result<(), StoreCause> {
    if sound.len() > SOUND_MAX {
        sound.clear();
    }
    let mut history = txn.open_table(HISTORY)?;
    let mut texts = txn.open_table(TEXTS)?;
    for change in changes {
        match change {
            HistoryChange::Add(new) => {
                let sequence = history.last()?.map_or(1, |(sequence, _)| sequence.value() + 1);
                let mut put = |text: &str| -> Result<TextHash, StoreCause> {
                    let hash = TextHash::of(text);
                    let key = XxHash3_128::oneshot(text.as_bytes());
                    // A text of an earlier commit that failed is missing.
                    let is_sound = sound.contains(&key) && texts.get(key)?.is_some();
                    // A damaged copy is replaced.
                    if !is_sound && self::text(&texts, &hash)?.is_none() {
                        texts.insert(key, &*lz4_flex::compress_prepend_size(text.as_bytes()))?;
                    }
                    sound.insert(key);
                    Ok(hash)
                };
                let files = new.files.iter().map(|(path, text)| Ok((path.clone(), put(text)?)));
                let entry = HistoryEntry {
                    generation: new.generation,
                    time: now,
                    trigger: new.trigger,
                    outcome: new.outcome.clone(),
                    files: files.collect::<Result<_, StoreCause>>()?,
                    plugins: new.plugins.clone(),
                    digest: put(&new.digest)?,
                };
                history.insert(sequence, &*RecordKey::History(sequence).seal_json(&entry)?)?;
            }
            HistoryChange::RolledBack { generation, why } => {
                let (entries, _) = read(&history)?;
                // Starts and changed comments have added further entries.
                let of_it = entries.into_iter().filter(|(_, entry)| entry.generation == Some(*generation));
                for (sequence, mut entry) in of_it {
                    entry.outcome = TakeoverOutcome::RolledBack(why.clone());
                    history.insert(sequence, &*RecordKey::History(sequence).seal_json(&entry)?)?;
                }
            }
        }
    }
    let surplus = history.len()?.saturating_sub(ENTRIES_MAX);
    for _ in 0..surplus {
        history.pop_first()?;
    }
    if surplus > 0 {
        collect_texts(&history, &mut texts)?;
    }
    Ok(())
}

/// Removes the texts that no entry has. The texts of a damaged entry are unknown, so nothing is removed while it exists.
fn collect_texts(
    history: &impl ReadableTable<u64, Bytes>,
    texts: &mut redb::Table<'_, u128, Bytes>,
) -> Result<(), StoreCause> {
    let (entries, damaged) = read(history)?;
    if damaged > 0 {
        return Ok(());
    }
    let used = entries.iter().flat_map(|(_, entry)| {
        entry.files.iter().map(|(_, hash)| hash).chain([&entry.digest]).filter_map(TextHash::key)
    });
    let used: BTreeSet<u128> = used.collect();
    texts.retain(|hash, _| used.contains(&hash))?;
    Ok(())
}

/// The generations that went back to an earlier one.
pub(crate) fn rollbacks(txn: &ReadTransaction) -> Result<BTreeSet<u64>, StoreCause> {
    let table = match txn.open_table(HISTORY) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeSet::new()),
        Err(error) => return Err(error.into()),
    };
    let (entries, _) = read(&table)?;
    let goes_back = |entry: &HistoryEntry| matches!(entry.trigger, Trigger::Rollback | Trigger::WatchErrors);
    let entries = entries.into_iter().map(|(_, entry)| entry).filter(goes_back);
    Ok(entries.filter_map(|entry| entry.generation).collect())
}

/// The readable entries with their sequences, in order, and the number of damaged ones.
fn read(table: &impl ReadableTable<u64, Bytes>) -> Result<(Vec<(u64, HistoryEntry)>, usize), StoreCause> {
    let (mut entries, mut damaged) = (Vec::new(), 0);
    for entry in table.iter()? {
        let (sequence, stored) = entry?;
        match RecordKey::History(sequence.value()).unseal_json(stored.value()) {
            Ok(entry) => entries.push((sequence.value(), entry)),
            Err(_) => damaged += 1,
        }
    }
    Ok((entries, damaged))
}

/// The text, if it is complete and has this hash.
fn text(table: &impl ReadableTable<u128, Bytes>, hash: &TextHash) -> Result<Option<String>, StoreCause> {
    let Some(key) = hash.key() else { return Ok(None) };
    let Some(stored) = table.get(key)? else { return Ok(None) };
    let length = stored.value().first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
    if length.is_none_or(|length| length > TEXT_BYTES_MAX) {
        return Ok(None);
    }
    let text = lz4_flex::decompress_size_prepended(stored.value()).ok();
    let text = text.and_then(|text| String::from_utf8(text).ok());
    Ok(text.filter(|text| XxHash3_128::oneshot(text.as_bytes()) == key))
}

/// The problems of the history, each a sentence fragment.
pub(crate) fn verify(txn: &ReadTransaction) -> Result<Vec<String>, StoreCause> {
    let mut problems = Vec::new();
    let (history, texts) = match (txn.open_table(HISTORY), txn.open_table(TEXTS)) {
        (Ok(history), Ok(texts)) => (history, texts),
        (Err(TableError::TableDoesNotExist(_)), _) => return Ok(problems),
        (Err(error), _) | (_, Err(error)) => return Err(error.into()),
    };
    let (entries, damaged) = read(&history)?;
    if damaged > 0 {
        problems.push(format!("{damaged} entries of the history cannot be read"));
    }
    let hashes =
        entries.iter().flat_map(|(_, entry)| entry.files.iter().map(|(_, hash)| hash).chain([&entry.digest]));
    for hash in hashes.collect::<BTreeSet<_>>() {
        if text(&texts, hash)?.is_none() {
            problems.push(format!("the text {} of the history is missing or damaged", hash.as_str()));
        }
    }
    Ok(problems)
}
