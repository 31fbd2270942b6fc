//! Provenance: collects the index, time and commit number of a job on each queue with `meta` that it has
//! passed.

use serde_json::{Map, Value, json};

use tidegate_config::Meta;
use tidegate_model::{Address, Batch, rfc3339};

/// Provenance of several jobs that become one.
#[derive(Debug, Default)]
pub(crate) struct MergedProvenance(Map<String, Value>);

impl MergedProvenance {
    /// Adds the provenance of a job; an empty text adds nothing.
    pub(crate) fn add(&mut self, carried: &str) {
        if carried.is_empty() {
            return;
        }
        // This text was written by `into_text`.
        let Ok(Value::Object(map)) = serde_json::from_str(carried) else { return };
        for (queue, passed) in map {
            self.put(queue, passed);
        }
    }

    /// Adds the queue or source that the job at `position` of a batch comes from.
    pub(crate) fn stamp(&mut self, from: &Address, meta: Meta, (batch, position): (&Batch, usize)) {
        if meta.is_empty() {
            return;
        }
        let mut passed = Map::new();
        if meta.index {
            passed.insert("index".into(), json!(batch.first + position as u64));
        }
        if let Some(places) = batch.places.as_ref().filter(|_| meta.place) {
            passed.insert("path".into(), json!(places.file.to_string_lossy()));
            passed.insert("line".into(), json!(places.line(position)));
        }
        if let Some(stamp) = batch.stamp(position) {
            if meta.time {
                passed.insert("time".into(), json!(rfc3339(stamp.time)));
            }
            if meta.transaction {
                passed.insert("tx".into(), json!(stamp.transaction));
            }
        }
        self.put(from.to_string(), Value::Object(passed));
    }

    /// Jobs that meet again may have passed the same queue as one job or as several; several become a list.
    fn put(&mut self, queue: String, passed: Value) {
        match self.0.get_mut(&queue) {
            None => {
                self.0.insert(queue, passed);
            }
            Some(Value::Array(all)) => {
                let more = if let Value::Array(more) = passed { more } else { vec![passed] };
                for one in more {
                    if !all.contains(&one) {
                        all.push(one);
                    }
                }
            }
            Some(one) if *one == passed => {}
            Some(one) => {
                let first = one.take();
                *one = Value::Array(vec![first]);
                self.put(queue, passed);
            }
        }
    }

    pub(crate) fn into_text(self) -> String {
        if self.0.is_empty() { String::new() } else { Value::Object(self.0).to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_model::{Stamp, Timestamp};

    const STAMP: Stamp = Stamp { position: 0, time: Timestamp(0), transaction: 7 };

    #[test]
    fn queues_that_were_passed_add_up() {
        let all = Meta { index: true, time: true, transaction: true, ..Meta::default() };
        let mut merged = MergedProvenance::default();
        merged.add(r#"{"p/a":{"index":3}}"#);
        let batch = Batch { stamps: vec![STAMP], ..Batch::json(4, [&b"1"[..]].into_iter().collect()) };
        merged.stamp(&Address::parse("p/b").unwrap(), all, (&batch, 0));
        merged.stamp(&Address::parse("p/c").unwrap(), Meta::default(), (&batch, 0));
        insta::assert_snapshot!(
            merged.into_text(),
            @r#"{"p/a":{"index":3},"p/b":{"index":4,"time":"1970-01-01T00:00:00.000Z","tx":7}}"#
        );
    }

    #[test]
    fn branches_of_one_job_that_meet_again_say_it_once_and_several_jobs_are_a_list() {
        let mut merged = MergedProvenance::default();
        merged.add(r#"{"p/a":{"index":3}}"#);
        merged.add(r#"{"p/a":{"index":3}}"#);
        assert_eq!(merged.0["p/a"]["index"], 3);
        merged.add(r#"{"p/a":{"index":9}}"#);
        merged.add(r#"{"p/a":[{"index":3},{"index":4}]}"#);
        assert_eq!(merged.into_text(), r#"{"p/a":[{"index":3},{"index":9},{"index":4}]}"#);
    }
}
