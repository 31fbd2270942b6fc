//! `Batch`: a run of jobs with contiguous indices, from a source or a queue.

use std::path::Path;
use std::sync::Arc;

use tidegate_plugin::Payloads;

use crate::time::clock::Timestamp;

/// Contiguous jobs: the one at position `i` has the index `first + i`.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The index of the first job, from 1.
    pub first: u64,
    pub payloads: Payloads,
    pub form: Form,
    /// The lines of the jobs in a file, for messages; `None` for jobs from a queue.
    pub places: Option<LineNumbers>,
    /// Jobs that the source could not parse, ascending by position. Their payload is the unparsed text, cut
    /// to a length fit for an error record.
    pub faults: Vec<Fault>,
    /// The commits of the jobs, ascending by position; the first one has position 0. Empty if they are
    /// unknown, as for jobs from a source.
    pub stamps: Vec<Stamp>,
    /// The provenance of each job as JSON text, empty for a job without any; `None` if no job has any.
    pub carried: Option<Payloads>,
}

/// The commit of the jobs from `position` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub position: usize,
    pub time: Timestamp,
    /// The number of the commit, increasing over the whole store. 0 in a store of an older format, which did
    /// not keep it.
    pub transaction: u64,
}

/// Whether the payloads are known to be JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Well-formed JSON: Tidegate wrote it.
    Json,
    /// Expected to be JSON, but from an external system and not parsed yet.
    Unchecked,
}

/// A job that cannot be run because the source could not read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its place in the batch, from 0.
    pub position: usize,
    /// The error; a sentence fragment.
    pub message: String,
}

/// The lines of a file that the jobs of a batch came from.
#[derive(Clone, Debug)]
pub struct LineNumbers {
    pub file: Arc<Path>,
    /// Ascending by position; the first one has position 0. Jobs follow line by line within a run.
    pub runs: Vec<LineRun>,
}

/// The jobs from `position` on are on the lines `line`, `line + 1`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRun {
    pub position: usize,
    /// From 1.
    pub line: u64,
}

impl Batch {
    /// A batch of well-formed JSON payloads.
    #[must_use]
    pub fn json(first: u64, payloads: Payloads) -> Self {
        Self {
            first,
            payloads,
            form: Form::Json,
            places: None,
            faults: Vec::new(),
            stamps: Vec::new(),
            carried: None,
        }
    }

    /// Number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.payloads.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// Adds the jobs of `other` from the position `skip` on, which follow those of this batch.
    pub fn append(&mut self, other: &Self, skip: usize) {
        let before = self.len();
        for stamp in &other.stamps {
            let position = before + stamp.position.saturating_sub(skip);
            // A stamp that ends before `skip` is replaced by the next.
            self.stamps.retain(|earlier| earlier.position < position);
            self.stamps.push(Stamp { position, ..*stamp });
        }
        for payload in other.payloads.iter().skip(skip) {
            self.payloads.push(payload);
        }
        if self.carried.is_none() && other.carried.is_none() {
            return;
        }
        let carried = self.carried.get_or_insert_default();
        while carried.len() < before {
            carried.push(b"");
        }
        for position in skip..other.len() {
            let text = other.carried.as_ref().and_then(|carried| carried.get(position));
            carried.push(text.unwrap_or_default());
        }
    }

    /// The index after the last job.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.payloads.len() as u64
    }

    /// The message of the fault at `position`, if the source could not read that job.
    #[must_use]
    pub fn fault(&self, position: usize) -> Option<&str> {
        let at = self.faults.binary_search_by_key(&position, |fault| fault.position).ok()?;
        Some(&self.faults[at].message)
    }

    /// The commit of the job at `position`, if it is known.
    #[must_use]
    pub fn stamp(&self, position: usize) -> Option<&Stamp> {
        let after = self.stamps.partition_point(|stamp| stamp.position <= position);
        self.stamps.get(after.checked_sub(1)?)
    }
}

impl LineNumbers {
    /// The line of the job at `position`, from 1.
    #[must_use]
    pub fn line(&self, position: usize) -> u64 {
        let after = self.runs.partition_point(|run| run.position <= position);
        match after.checked_sub(1).and_then(|at| self.runs.get(at)) {
            Some(run) => run.line + (position - run.position) as u64,
            None => position as u64 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_across_blank_ones() {
        let places = LineNumbers {
            file: Path::new("a.ndjson").into(),
            runs: vec![LineRun { position: 0, line: 1 }, LineRun { position: 2, line: 5 }],
        };
        let lines: Vec<_> = (0..4).map(|position| places.line(position)).collect();
        assert_eq!(lines, [1, 2, 5, 6]);
    }

    #[test]
    fn a_stamp_holds_until_the_next_one() {
        let mut batch = Batch::json(7, [&b"1"[..], b"2", b"3"].into_iter().collect());
        assert_eq!(batch.stamp(0), None);
        let stamp = |position, transaction| Stamp { position, time: Timestamp(5), transaction };
        batch.stamps = vec![stamp(0, 8), stamp(2, 9)];
        let found: Vec<_> = (0..3).map(|position| batch.stamp(position).unwrap().transaction).collect();
        assert_eq!(found, [8, 8, 9]);
    }

    #[test]
    fn what_is_known_of_jobs_stays_with_them_when_batches_are_joined() {
        let stamp = |position, transaction| Stamp { position, time: Timestamp(0), transaction };
        let mut one = Batch::json(1, [&b"1"[..], b"2"].into_iter().collect());
        one.stamps = vec![stamp(0, 7)];
        let mut other = Batch::json(3, [&b"3"[..], b"4", b"5"].into_iter().collect());
        other.stamps = vec![stamp(0, 8), stamp(1, 9), stamp(2, 10)];
        other.carried = Some([&b"c"[..], b"d", b"e"].into_iter().collect());
        one.append(&other, 1);
        let known = |at| (one.stamp(at).unwrap().transaction, one.carried.as_ref().unwrap().get(at).unwrap());
        assert_eq!((0..4).map(known).collect::<Vec<_>>(), [(7, &b""[..]), (7, b""), (9, b"d"), (10, b"e")]);
    }

    #[test]
    fn a_fault_belongs_to_one_job() {
        let mut batch = Batch::json(7, [&b"1"[..], b"x", b"3"].into_iter().collect());
        batch.faults.push(Fault { position: 1, message: "no".into() });
        assert_eq!(batch.fault(0), None);
        assert_eq!(batch.fault(1), Some("no"));
        assert_eq!(batch.end(), 10);
    }
}
