//! Simulated look-ups: each attempt finds the newest committed job of its key, as the store has it when the batch begins.
//!
//! So no attempt finds a job that was not committed, or an older one than an earlier batch, also after a crash.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::batch::result::BatchResult;
use crate::step::declared::DeclaredStep;
use tidegate_model::Address;
use tidegate_store::Store;

/// Maximum jobs and bytes of one read.
const READ: (usize, usize) = (1 << 12, 1 << 20);

/// The id of the newest job of each key. Jobs without a text as their key are no rows.
pub(crate) fn rows(queue: &str, store: &Store) -> BTreeMap<String, String> {
    let queue = Address::parse(queue).unwrap();
    let (mut rows, mut next) = (BTreeMap::new(), 1);
    while let Some(batch) = store.read(&queue, next, READ.0, READ.1).unwrap() {
        for payload in batch.payloads.iter() {
            let job: Value = serde_json::from_slice(payload).unwrap();
            if let (Some(key), id) = (job["type"].as_str(), &job["id"]) {
                rows.insert(key.to_owned(), id.as_str().unwrap_or_default().to_owned());
            }
        }
        next = batch.end();
    }
    rows
}

/// Compares the rows that the jobs of a batch have found. Returns the number of those that are there.
pub(crate) fn check(step: &DeclaredStep, ran: &BatchResult, rows: &BTreeMap<String, String>) -> u64 {
    let mut found = 0;
    for payload in ran.outputs.iter().flat_map(|output| output.payloads.iter()) {
        let job: Value = serde_json::from_slice(payload).unwrap();
        // A job that a filter took, or a recalled one, was not made now.
        let (Some(key), Some(seen)) = (job["type"].as_str(), job["seen"].as_str()) else { continue };
        let row = rows.get(key).map_or("", String::as_str);
        assert_eq!(seen, row, "{} has found another row for `{key}`: {job}", step.address);
        found += u64::from(!row.is_empty());
    }
    found
}
