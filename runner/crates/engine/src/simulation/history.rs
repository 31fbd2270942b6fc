//! History: records each durable state, with all jobs of all queues and the progress of all steps. No crash
//! removes anything from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::{Configuration, Input, Step};
use tidegate_model::{Address, Origin, Stamp};
use tidegate_store::{ReadError, Store};

#[derive(Debug, Default)]
pub(crate) struct History {
    /// Jobs by queue, from index 1 on; `None` for jobs that were deleted before they were observed.
    pub(crate) rows: BTreeMap<Address, Vec<Option<Row>>>,
    /// All steps that ever existed.
    pub(crate) steps: BTreeMap<Address, Known>,
    /// Steps with a requested replay.
    pub(crate) replayed: BTreeSet<Address>,
}

/// Job on a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) payload: Vec<u8>,
    /// `None` for a pushed job.
    pub(crate) origin: Option<Origin>,
    pub(crate) carried: String,
    pub(crate) stamp: Stamp,
}

/// Step, as it was in the last configuration that had it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) step: Step,
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) retired: bool,
    /// Whether it had no error queue at some time.
    pub(crate) was_without_errors: bool,
    pub(crate) passes: Vec<Pass>,
    /// Jobs that an `at-most-once` step had accounted for and was attempting in a crash.
    pub(crate) lost: Lost,
}

#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Inputs and indices.
    pub(crate) fresh: BTreeSet<(usize, u64)>,
    /// Number of retried errors.
    pub(crate) returned: usize,
}

/// One pass of a step over its inputs; a replay begins another one.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    /// First index, by input.
    pub(crate) start: Vec<u64>,
    /// Index behind the last job that is accounted for, by input.
    pub(crate) next: Vec<u64>,
}

impl History {
    /// Records the steps of the next run.
    pub(crate) fn begin(
        &mut self,
        configuration: &Arc<Configuration>,
        store: &Store,
    ) -> Result<(), ReadError> {
        for known in self.steps.values_mut() {
            known.retired = !configuration.steps.iter().any(|step| step.address == known.step.address);
        }
        for step in &configuration.steps {
            if let Some(known) = self.steps.get_mut(&step.address) {
                (known.step, known.configuration) = (step.clone(), Arc::clone(configuration));
                known.was_without_errors |= step.errors.is_none();
                continue;
            }
            let mut start = Vec::new();
            for input in &step.inputs {
                let oldest = match input.input {
                    Input::Source(_) => 1,
                    Input::Queue(_) => store.queue(&input.address)?.map_or(1, |state| state.first),
                };
                start.push(oldest);
            }
            let known = Known {
                step: step.clone(),
                configuration: Arc::clone(configuration),
                retired: false,
                was_without_errors: step.errors.is_none(),
                passes: vec![Pass { next: start.clone(), start }],
                lost: Lost::default(),
            };
            self.steps.insert(step.address.clone(), known);
        }
        Ok(())
    }

    /// Observes the durable state.
    pub(crate) fn observe(&mut self, store: &Store) -> Result<(), ReadError> {
        for state in store.queues()? {
            let rows = self.rows.entry(state.address.clone()).or_default();
            let seen = rows.len() as u64;
            assert!(state.head >= seen, "{} has lost jobs: {} of {seen} are left", state.address, state.head);
            // These jobs were deleted in the commit that appended them.
            while (rows.len() as u64) + 1 < state.first {
                rows.push(None);
            }
            while (rows.len() as u64) < state.head {
                let next = rows.len() as u64 + 1;
                rows.extend(read(store, &state.address, next)?.into_iter().map(Some));
            }
        }
        for known in self.steps.values_mut() {
            known.observe(store, &self.replayed)?;
        }
        Ok(())
    }

    /// Compares the store with the observed state.
    pub(crate) fn compare(&self, store: &Store) {
        for state in store.queues().unwrap() {
            let rows = &self.rows[&state.address];
            assert_eq!(rows.len() as u64, state.head, "{}", state.address);
            let mut next = state.first;
            while next <= state.head {
                for row in read(store, &state.address, next).unwrap() {
                    let seen = rows[usize::try_from(next).unwrap() - 1].as_ref();
                    assert_eq!(seen, Some(&row), "{}/{next} is not what it was", state.address);
                    next += 1;
                }
            }
        }
    }

    pub(crate) fn row(&self, queue: &Address, index: u64) -> &Row {
        let row = self.rows.get(queue).and_then(|rows| rows.get(usize::try_from(index).unwrap() - 1));
        row.and_then(Option::as_ref).unwrap_or_else(|| panic!("{queue}/{index} was never seen"))
    }

    /// Number of jobs that the queue ever had.
    pub(crate) fn head(&self, queue: &Address) -> u64 {
        self.rows.get(queue).map_or(0, |rows| rows.len() as u64)
    }
}

impl Known {
    fn observe(&mut self, store: &Store, replayed: &BTreeSet<Address>) -> Result<(), ReadError> {
        let step = &self.step.address;
        let pass = self.passes.last_mut().unwrap();
        let mut now = pass.next.clone();
        for (input, now) in self.step.inputs.iter().zip(&mut now) {
            let Some(progress) = store.progress(step, &input.address)? else { continue };
            let picks = self.step.picks().is_some();
            assert!(picks || progress.finished().is_empty(), "{step} has skipped jobs of {}", input.address);
            *now = progress.position() + 1;
        }
        // A step that has not begun may have recorded progress without jobs.
        if now == pass.next {
            return Ok(());
        }
        assert!(!self.retired, "{step} is not there and makes progress");
        if now.iter().zip(&pass.next).any(|(now, next)| now < next) {
            assert!(replayed.contains(step), "{step} was rewound without a request");
            let start = now.clone();
            self.passes.push(Pass { start, next: now });
        } else {
            pass.next = now;
        }
        Ok(())
    }

    pub(crate) fn next(&self) -> &[u64] {
        &self.passes.last().unwrap().next
    }
}

fn read(store: &Store, queue: &Address, from: u64) -> Result<Vec<Row>, ReadError> {
    let Some((batch, origins)) = store.read_details(queue, from, 100, 1 << 20)? else {
        return Ok(Vec::new());
    };
    let mut origins = origins.into_iter();
    let rows = batch.payloads.iter().enumerate().map(|(position, payload)| {
        let carried = batch.carried.as_ref().and_then(|carried| carried.get(position)).unwrap_or_default();
        Row {
            payload: payload.to_vec(),
            origin: origins.next().flatten(),
            carried: String::from_utf8(carried.to_vec()).unwrap(),
            stamp: Stamp { position: 0, ..*batch.stamp(position).unwrap() },
        }
    });
    Ok(rows.collect())
}
