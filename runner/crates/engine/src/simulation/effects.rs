//! External effects: record the lines on standard output, which survive every crash, and check that repeated
//! attempts have the same jobs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::history::{History, NamedJob, rename_key};
use crate::batch::input::BatchInput;
use crate::batch::job_builder::{BatchCursor, JobBuilder};
use crate::commit::request::BatchJobs;
use tidegate_config::{Configuration, DeliveryGuarantee, Step};
use tidegate_model::{Address, DeliveryHash, NamedKind, NamesSince, RenamedPart};
use tidegate_store::{ParkedKey, SnapshotInput, Store};

#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Payload of each delivery so far. A hash names bindings: it occurs again if a binding names another input and that
    /// one has the index, too (`docs/delivery.md`). So the inputs are part of the key.
    given: HashMap<(DeliveryHash, Vec<String>), Vec<u8>>,
    /// Attempts by step that may have been seen and are not delivered.
    attempted: BTreeMap<Address, BTreeSet<Place>>,
    /// Steps with a batch in this run that halts them. Its delivery ends the records of the attempts behind it.
    pub(crate) halting: BTreeSet<Address>,
    /// Jobs of `at-most-once` steps, from the possible commit of their progress until their delivery.
    promised: BTreeMap<Address, BTreeSet<Place>>,
    /// Redelivered jobs of these steps.
    returned: BTreeMap<Address, BTreeSet<ParkedKey>>,
    /// Printed lines by sink, one part for each time it was opened.
    pub(crate) printed: Arc<Mutex<BTreeMap<Address, Vec<Printed>>>>,
}

/// Input of a job, and its index there.
type Place = (usize, u64);

/// Standard output, as its reader keeps it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printed(pub(crate) Arc<Mutex<Vec<u8>>>);

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
    /// Checks an attempt before it is made. Returns the number of its jobs that are retried, and the names of their
    /// inputs. `names`: the present names of the parts of `configuration`.
    pub(crate) fn attempt(
        &mut self,
        configuration: &Configuration,
        step: &Step,
        names: NamesSince<'_>,
        work: &BatchInput,
    ) -> (u64, Vec<NamedJob>) {
        let (mut again, mut named) = (0, Vec::new());
        let mut gatherer = JobBuilder::new(configuration, step);
        let mut walk = BatchCursor::new(work);
        while let Some(item) = gatherer.next(&mut walk, false) {
            if item.to.is_some() {
                // A delayed output of an earlier attempt, under its hash.
                continue;
            }
            let inputs: Vec<String> = item.given().map(|given| names.input(&given.from())).collect();
            if let Some((_, row)) = item.returned_row() {
                // An input that the step does not read any more has its binding before its address.
                let addresses = inputs.iter().map(|name| name.split_once('=').map_or(&**name, |(_, it)| it));
                let addresses = addresses.map(str::to_owned);
                let mut now: Vec<_> = addresses.zip(item.given().map(|given| given.index)).collect();
                now.sort();
                named.push(NamedJob { now, attempted: row.inputs.clone() });
            }
            let before = self.given.entry((item.hash, inputs)).or_insert_with(|| item.payload.to_vec());
            assert_eq!(before, item.payload, "{} has other jobs than before", item.hash);
            again += u64::from(item.put_back_from().is_none() && (item.attempt > 1 || work.before.is_some()));
        }
        if work.is_picked
            || step.delivery != DeliveryGuarantee::ExactlyOnce
            || !step.has_effects(configuration)
        {
            // Attempted jobs of a queued step have rows, and those of a pure step need no record.
            return (again, named);
        }
        let jobs = work.first(work.jobs);
        self.attempted.entry(names.step(&step.address)).or_default().extend(places(&jobs));
        (again, named)
    }

    /// Records that the progress of a batch may be committed before its attempt.
    pub(crate) fn promise(&mut self, step: &Address, jobs: &BatchJobs) {
        self.promised.entry(step.clone()).or_default().extend(places(jobs));
        self.returned.entry(step.clone()).or_default().extend(jobs.returned.iter().cloned());
    }

    pub(crate) fn delivered(&mut self, step: &Address, jobs: &BatchJobs) {
        if let Some(promised) = self.promised.get_mut(step) {
            places(jobs).for_each(|place| _ = promised.remove(&place));
        }
        if let Some(returned) = self.returned.get_mut(step) {
            jobs.returned.iter().for_each(|key| _ = returned.remove(key));
        }
    }

    /// Drops the records of a step that has stopped, or that has another start position.
    pub(crate) fn forget(&mut self, step: &Address) {
        self.attempted.remove(step);
    }

    /// Gives renamed parts their new names.
    pub(crate) fn rename(&mut self, renamed: &[RenamedPart]) {
        for RenamedPart { kind, from, to } in renamed {
            match kind {
                NamedKind::Step => {
                    rename_key(&mut self.attempted, from, to);
                    if self.halting.remove(from) {
                        self.halting.insert(to.clone());
                    }
                    rename_key(&mut self.promised, from, to);
                    rename_key(&mut self.returned, from, to);
                }
                NamedKind::Endpoint => {
                    let mut printed = self.printed.lock().unwrap();
                    let parts = printed.remove(from).unwrap_or_default();
                    printed.entry(to.clone()).or_default().extend(parts);
                    let (from, to) = (from.to_string(), to.to_string());
                    let rename = |((hash, mut inputs), payload): ((_, Vec<String>), _)| {
                        inputs
                            .iter_mut()
                            .filter(|input| **input == from)
                            .for_each(|input| to.clone_into(input));
                        ((hash, inputs), payload)
                    };
                    self.given = std::mem::take(&mut self.given).into_iter().map(rename).collect();
                }
            }
        }
    }

    /// Checks that each begun job was finished before an orderly end.
    pub(crate) fn assert_none_promised(&self) {
        assert!(self.promised.values().all(BTreeSet::is_empty), "{:?}", self.promised);
        assert!(self.returned.values().all(BTreeSet::is_empty), "{:?}", self.returned);
    }

    /// After a crash: counts the jobs that `at-most-once` has lost, and checks that attempts to be repeated
    /// are recorded.
    pub(crate) fn crashed(&mut self, history: &mut History, store: &Store) {
        for (step, places) in std::mem::take(&mut self.promised) {
            history.steps.get_mut(&step).unwrap().passes.last_mut().unwrap().lost.fresh.extend(places);
        }
        for (step, rows) in std::mem::take(&mut self.returned) {
            history.steps.get_mut(&step).unwrap().passes.last_mut().unwrap().lost.returned += rows.len();
        }
        let snapshots = store.all_snapshots().unwrap();
        for step in std::mem::take(&mut self.halting) {
            // Its delivery may be durable, and no notice of it was heard.
            self.attempted.remove(&step);
        }
        for (step, places) in &mut self.attempted {
            let known = &history.steps[step];
            places.retain(|&(input, index)| index >= known.next()[input]);
            for &(input, index) in places.iter() {
                let address = &known.last().inputs[input];
                let holds = |snapshot: &SnapshotInput| {
                    snapshot.address == *address
                        && (snapshot.first..snapshot.first + snapshot.jobs).contains(&index)
                };
                let of_step = snapshots.iter().filter(|snapshot| snapshot.step == *step);
                let on_record = of_step.flat_map(|snapshot| &snapshot.inputs).any(holds);
                assert!(on_record, "{step} has attempted job {index} of {address}, and it is not on record");
            }
        }
    }

    pub(crate) fn lines(&self, sink: &Address) -> Vec<u8> {
        let printed = self.printed.lock().unwrap();
        let parts = printed.get(sink).into_iter().flatten();
        parts.flat_map(|part| part.0.lock().unwrap().clone()).collect()
    }
}

fn places(jobs: &BatchJobs) -> impl Iterator<Item = Place> {
    jobs.spans.iter().flat_map(|span| (span.first..span.first + span.jobs).map(|index| (span.input, index)))
}
