//! What can be seen outside: lines on standard output, which outlive every crash, and whether what is
//! attempted again is what was attempted before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::history::{History, Known};
use crate::config::{Configuration, Promise};
use crate::decide::BatchId;
use crate::engine::delivery::{Jobs, Span};
use crate::engine::gather::{Gatherer, Walk};
use crate::engine::held::Work;
use crate::store::Store;
use crate::words::{Address, DeliveryHash};

#[derive(Debug, Default)]
pub(super) struct Effects {
    /// What each delivery was given, ever.
    given: HashMap<DeliveryHash, Vec<u8>>,
    /// By step and number of the batch: attempts that may have been seen and are not delivered.
    attempted: BTreeMap<(Address, u64), Attempted>,
    /// By step and number: batches of steps that promise at most once, from when their progress may
    /// have moved until they are delivered.
    promised: BTreeMap<(Address, u64), Jobs>,
    /// By sink: what was printed.
    pub(super) printed: BTreeMap<Address, Printed>,
}

#[derive(Debug)]
struct Attempted {
    hashes: Vec<DeliveryHash>,
    spans: Vec<Span>,
}

/// Standard output, as the outside keeps it.
#[derive(Clone, Debug, Default)]
pub(super) struct Printed(pub(super) Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Effects {
    /// An attempt is about to be made.
    pub(super) fn attempt(&mut self, configuration: &Configuration, step: usize, id: BatchId, work: &Work) {
        let step = &configuration.steps[step];
        let mut gatherer = Gatherer::new(configuration, step);
        let (mut walk, mut hashes) = (Walk::new(work), Vec::new());
        while let Some(item) = gatherer.next(&mut walk, false) {
            hashes.push(item.hash);
            if item.to.is_some() {
                // An output of an attempt before, under its hash.
                continue;
            }
            let before = self.given.entry(item.hash).or_insert_with(|| item.payload.to_vec());
            assert_eq!(before, item.payload, "{} stands for other jobs than before", item.hash);
        }
        let jobs = work.first(work.jobs);
        if work.sequential {
            // What is attempted stands in the store job by job.
            return;
        }
        if step.delivery != Promise::ExactlyOnce || !step.has_effects(configuration) || jobs.spans.is_empty()
        {
            return;
        }
        let key = (step.address.clone(), id.0);
        if let Some(before) = self.attempted.get(&key) {
            assert_eq!(before.hashes, hashes, "{} attempts batch {} with other jobs", step.address, id.0);
            return;
        }
        for ((other, number), before) in &self.attempted {
            let overlaps = |span: &Span| before.spans.iter().any(|one| one.overlaps(span));
            let overlap = *other == step.address && jobs.spans.iter().any(overlaps);
            assert!(!overlap, "{other} attempts jobs of batch {number} as batch {}", id.0);
        }
        self.attempted.insert(key, Attempted { hashes, spans: jobs.spans });
    }

    /// The progress of a batch may move before it is attempted.
    pub(super) fn promise(&mut self, step: &Address, id: BatchId, jobs: &Jobs) {
        self.promised.insert((step.clone(), id.0), jobs.clone());
    }

    pub(super) fn delivered(&mut self, step: &Address, id: BatchId) {
        let key = (step.clone(), id.0);
        self.attempted.remove(&key);
        self.promised.remove(&key);
    }

    /// A step stopped, or begins elsewhere: its batches are made anew.
    pub(super) fn forget(&mut self, step: &Address) {
        self.attempted.retain(|(one, _), _| one != step);
    }

    /// Everything that was begun is seen through when a run ends in order.
    pub(super) fn assert_none_promised(&self) {
        assert!(self.promised.is_empty(), "{:?}", self.promised);
    }

    /// After a crash: what at-most-once has lost, and whether what has to be attempted again is on
    /// record.
    pub(super) fn crashed(&mut self, history: &mut History, store: &Store) {
        for ((step, _), jobs) in std::mem::take(&mut self.promised) {
            let known = history.steps.get_mut(&step).unwrap();
            for span in &jobs.spans {
                let indices = span.first..span.first + span.jobs;
                known.lost.fresh.extend(indices.map(|index| (span.input, index)));
            }
            known.lost.returned += jobs.returned.len();
        }
        let snapshots = store.all_snapshots().unwrap();
        let on_record: BTreeSet<(Address, u64)> =
            snapshots.into_iter().map(|snapshot| (snapshot.step, snapshot.number)).collect();
        self.attempted.retain(|key, attempted| {
            let delivered = attempted.is_covered(&history.steps[&key.0]);
            assert!(delivered || on_record.contains(key), "{key:?} was attempted and is not on record");
            !delivered
        });
    }

    pub(super) fn lines(&self, sink: &Address) -> Vec<u8> {
        self.printed.get(sink).map(|printed| printed.0.lock().unwrap().clone()).unwrap_or_default()
    }
}

impl Attempted {
    fn is_covered(&self, known: &Known) -> bool {
        self.spans.iter().all(|span| span.first + span.jobs <= known.next()[span.input])
    }
}

impl Span {
    fn overlaps(&self, other: &Self) -> bool {
        self.input == other.input
            && self.first < other.first + other.jobs
            && other.first < self.first + self.jobs
    }
}
