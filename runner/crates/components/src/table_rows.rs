//! `TableRows`: the newest job of each key of a queue, which scripts read with `lookup`.
//!
//! One thread adds the jobs of each commit. Readers take a snapshot, which no later commit changes. Snapshots share
//! all rows that are the same, so a commit copies the paths to its own rows and nothing else.

use std::borrow::Cow;
use std::sync::Arc;

use rpds::HashTrieMapSync;
use tidegate_config::QueueTable;
use tidegate_model::scalar;
use tidegate_model::sync::Mutex;
use tidegate_plugin::Payloads;

/// Bytes that a row needs beside its key and its job. Measured with 20,000 to a million rows of 20 to 200 bytes: 151 to
/// 163.
const ROW_OVERHEAD: u64 = 160;

/// Rows of one table, shared by the thread that adds jobs and all readers.
#[derive(Debug)]
pub struct TableRows {
    table: QueueTable,
    present: Mutex<RowsSnapshot>,
}

/// The rows of a table after some commit.
#[derive(Clone, Debug)]
pub struct RowsSnapshot {
    /// Jobs as JSON objects, by key.
    rows: HashTrieMapSync<Box<str>, Arc<str>>,
    counts: RowCounts,
}

/// Counts of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// Index of the first job that is not in the table yet.
    pub next: u64,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of all rows, by an estimate.
    pub bytes: u64,
    /// Number of jobs that are no row: they are no JSON object, or have no key.
    pub ignored: u64,
    /// Whether the rows exceeded their limit, so that they were discarded.
    pub is_full: bool,
}

/// The rows are more than the limit of the table allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

impl Default for RowsSnapshot {
    fn default() -> Self {
        let counts = RowCounts { next: 1, rows: 0, bytes: 0, ignored: 0, is_full: false };
        Self { rows: HashTrieMapSync::default(), counts }
    }
}

impl TableRows {
    #[must_use]
    pub fn new(table: QueueTable) -> Self {
        Self { table, present: Mutex::new(RowsSnapshot::default()) }
    }

    #[must_use]
    pub fn table(&self) -> &QueueTable {
        &self.table
    }

    /// The present rows.
    #[must_use]
    pub fn snapshot(&self) -> RowsSnapshot {
        self.present.lock().clone()
    }

    #[must_use]
    pub fn counts(&self) -> RowCounts {
        self.present.lock().counts
    }

    /// Adds jobs of the queue from the index `first` on. Jobs that the table has already are skipped.
    ///
    /// Only one thread may add jobs. A reader sees all of them or none.
    pub fn add(&self, first: u64, jobs: &Payloads) {
        let mut rows = self.snapshot();
        let known = usize::try_from(rows.counts.next.saturating_sub(first)).unwrap_or(usize::MAX);
        for job in jobs.iter().skip(known) {
            rows.add(&self.table, job);
        }
        rows.counts.next = rows.counts.next.max(first + jobs.len() as u64);
        self.set(rows);
    }

    /// Skips jobs that the queue does not have any more: the next one is that at the index `next`, or a later one.
    pub fn skip_to(&self, next: u64) {
        let mut rows = self.snapshot();
        rows.counts.next = rows.counts.next.max(next);
        self.set(rows);
    }

    /// Takes over the rows of `other`.
    pub fn replace(&self, other: &Self) {
        self.set(other.snapshot());
    }

    fn set(&self, rows: RowsSnapshot) {
        let before = std::mem::replace(&mut *self.present.lock(), rows);
        // Without the lock: it may be the last owner of many rows.
        drop(before);
    }
}

impl RowsSnapshot {
    /// The job with this key, in constant time; a JSON object.
    ///
    /// # Errors
    /// The table is full, so its rows are unknown.
    pub fn get(&self, key: &str) -> Result<Option<&str>, TableFull> {
        if self.counts.is_full { Err(TableFull) } else { Ok(self.rows.get(key).map(|row| &**row)) }
    }

    fn add(&mut self, table: &QueueTable, job: &[u8]) {
        let Some((key, row)) = row(table, job) else {
            self.counts.ignored += 1;
            return;
        };
        if self.counts.is_full {
            return;
        }
        let size = |row: &str| ROW_OVERHEAD + (key.len() + row.len()) as u64;
        let counts = &mut self.counts;
        if let Some(before) = self.rows.get(&*key) {
            counts.bytes -= size(before);
            counts.rows -= 1;
        }
        if is_tombstone(table, job) {
            self.rows.remove_mut(&*key);
            return;
        }
        counts.bytes += size(row);
        counts.rows += 1;
        if counts.bytes > table.max_size {
            (counts.rows, counts.bytes, counts.is_full) = (0, 0, true);
            self.rows = HashTrieMapSync::default();
            return;
        }
        self.rows.insert_mut(key.into(), row.into());
    }
}

/// The key and the text of a job; `None` if it is no row.
fn row<'j>(table: &QueueTable, job: &'j [u8]) -> Option<(Cow<'j, str>, &'j str)> {
    let text = str::from_utf8(job).ok().filter(|text| text.trim_start().starts_with('{'))?;
    Some((scalar(table.key.find(job)?)?, text))
}

fn is_tombstone(table: &QueueTable, job: &[u8]) -> bool {
    let mark = table.tombstone.as_ref().and_then(|path| path.find(job));
    mark.is_some_and(|mark| !matches!(mark, "null" | "false"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tidegate_model::{Address, FieldPath};

    use super::*;

    fn table(max_size: u64) -> QueueTable {
        QueueTable {
            queue: Address::parse("p/states").unwrap(),
            key: FieldPath::parse("id").unwrap(),
            tombstone: FieldPath::parse("gone"),
            max_size,
        }
    }

    fn jobs(texts: &[&str]) -> Payloads {
        texts.iter().map(|text| text.as_bytes()).collect()
    }

    #[test]
    fn the_newest_job_of_a_key_counts_and_a_tombstone_removes_it() {
        let rows = TableRows::new(table(1 << 20));
        rows.add(1, &jobs(&[r#"{"id":1,"n":1}"#, r#"{"id":"2","n":2}"#, r#"{"id":1,"n":3}"#]));
        let before = rows.snapshot();
        assert_eq!(before.get("1"), Ok(Some(r#"{"id":1,"n":3}"#)));
        assert_eq!(before.get("2"), Ok(Some(r#"{"id":"2","n":2}"#)));
        rows.add(
            4,
            &jobs(&[r#"{"id":1,"gone":true}"#, r#"{"id":2,"gone":false}"#, r#"{"id":3,"gone":null}"#]),
        );
        let after = rows.snapshot();
        assert_eq!(after.get("1"), Ok(None));
        assert_eq!(after.get("2"), Ok(Some(r#"{"id":2,"gone":false}"#)));
        assert_eq!(after.get("3"), Ok(Some(r#"{"id":3,"gone":null}"#)));
        assert_eq!(before.get("1"), Ok(Some(r#"{"id":1,"n":3}"#)), "a snapshot does not change");
        assert_eq!((after.counts.next, after.counts.rows, after.counts.ignored), (7, 2, 0));
    }

    #[test]
    fn jobs_that_are_no_rows_are_counted() {
        let rows = TableRows::new(table(1 << 20));
        rows.add(1, &jobs(&["1", "{}", r#"{"id":null}"#, r#"{"id":[1]}"#, "[]", r#"{"id":true}"#]));
        let counts = rows.counts();
        assert_eq!((counts.rows, counts.ignored, counts.next), (1, 5, 7));
        assert_eq!(rows.snapshot().get("true"), Ok(Some(r#"{"id":true}"#)));
    }

    #[test]
    fn jobs_that_the_table_has_already_are_skipped() {
        let rows = TableRows::new(table(1 << 20));
        rows.add(1, &jobs(&[r#"{"id":1,"n":1}"#, r#"{"id":1,"n":2}"#]));
        rows.add(1, &jobs(&[r#"{"id":1,"n":1}"#]));
        rows.add(2, &jobs(&[r#"{"id":1,"n":2}"#, r#"{"id":1,"n":3}"#]));
        assert_eq!(rows.snapshot().get("1"), Ok(Some(r#"{"id":1,"n":3}"#)));
        assert_eq!(rows.counts().next, 4);
    }

    #[test]
    fn a_full_table_has_no_answers_and_no_rows() {
        let rows = TableRows::new(table(400));
        rows.add(1, &jobs(&[r#"{"id":1}"#, r#"{"id":2}"#]));
        assert_eq!(rows.counts().rows, 2);
        rows.add(3, &jobs(&[r#"{"id":3}"#]));
        assert_eq!(rows.snapshot().get("1"), Err(TableFull));
        let full = RowCounts { next: 4, rows: 0, bytes: 0, ignored: 0, is_full: true };
        assert_eq!(rows.counts(), full);
        rows.replace(&TableRows::new(table(400)));
        assert_eq!(rows.snapshot().get("1"), Ok(None));
    }

    #[test]
    fn a_table_that_is_overwritten_does_not_grow() {
        let rows = TableRows::new(table(10_000));
        for index in 1..10_000 {
            rows.add(index, &jobs(&[&format!(r#"{{"id":{},"n":{index}}}"#, index % 50)]));
        }
        let counts = rows.counts();
        assert_eq!((counts.rows, counts.is_full), (50, false));
        let sum = |snapshot: &RowsSnapshot| -> u64 {
            let rows = snapshot.rows.iter();
            rows.map(|(key, row)| ROW_OVERHEAD + (key.len() + row.len()) as u64).sum()
        };
        assert_eq!(counts.bytes, sum(&rows.snapshot()));
    }

    proptest! {
        #[test]
        fn rows_are_those_of_a_plain_map(
            commits in prop::collection::vec(prop::collection::vec((0..40_u32, prop::bool::ANY), 0..20), 0..30),
        ) {
            let rows = TableRows::new(table(1 << 20));
            let (mut model, mut next) = (HashMap::<u32, u64>::new(), 1);
            let mut kept = Vec::new();
            for commit in commits {
                let mut payloads = Payloads::new();
                let first = next;
                for (key, gone) in commit {
                    payloads.push(format!(r#"{{"id":{key},"n":{next},"gone":{gone}}}"#).as_bytes());
                    if gone { model.remove(&key); } else { model.insert(key, next); }
                    next += 1;
                }
                rows.add(first, &payloads);
                kept.push((rows.snapshot(), model.clone()));
            }
            for (snapshot, model) in kept {
                prop_assert_eq!(snapshot.counts.rows, model.len() as u64);
                for key in 0..40 {
                    let expected = model.get(&key).map(|n| format!(r#"{{"id":{key},"n":{n},"gone":false}}"#));
                    prop_assert_eq!(snapshot.get(&key.to_string()).unwrap(), expected.as_deref());
                }
            }
        }
    }
}
