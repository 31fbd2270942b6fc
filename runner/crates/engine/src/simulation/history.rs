//! History: records each durable state, with all jobs of all queues and the progress of all steps. No crash
//! removes anything from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::pass::{Pass, TakenOver};
use tidegate_config::{Configuration, Input, Step};
use tidegate_model::{Address, Due, NameHistory, NamedKind, NamesSince, Origin, RenamedPart, Stamp};
use tidegate_store::{ParkReason, ReadError, Store};

#[derive(Debug, Default)]
pub(crate) struct History {
    /// Jobs by queue, from index 1 on; `None` for jobs that were deleted before they were observed.
    pub(crate) rows: BTreeMap<Address, Vec<Option<Row>>>,
    /// Lines of all sources, by file.
    pub(crate) sources: BTreeMap<PathBuf, Vec<String>>,
    /// All steps that ever existed, by their present names.
    pub(crate) steps: BTreeMap<Address, Known>,
    /// Steps with a requested replay.
    pub(crate) replayed: BTreeSet<Address>,
    /// Inputs of jobs that were attempted again, as the last attempt named them: by step, and by present names.
    pub(crate) attempted: BTreeMap<(Address, NamedInputs), NamedInputs>,
    /// Jobs of queues whose names went to other queues, by name.
    pub(crate) displaced: BTreeMap<Address, Vec<Row>>,
    /// Versions of the scripts, in the order in which they were in force.
    pub(crate) versions: Vec<u64>,
}

/// Inputs of a job by name, and its index there.
pub(crate) type NamedInputs = Vec<(String, u64)>;

/// Job that is attempted again.
#[derive(Debug)]
pub(crate) struct NamedJob {
    /// Inputs by their present names.
    pub(crate) now: NamedInputs,
    /// Inputs as the attempt names them.
    pub(crate) attempted: NamedInputs,
}

/// Job on a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) payload: Vec<u8>,
    /// `None` for a pushed job. Its names are those of its time.
    pub(crate) origin: Option<Origin>,
    pub(crate) carried: String,
    pub(crate) stamp: Stamp,
}

/// Step, under all its names.
#[derive(Debug)]
pub(crate) struct Known {
    /// Present name.
    pub(crate) address: Address,
    pub(crate) retired: bool,
    /// Number in the order in which the steps appeared. A later one may have its former name.
    pub(crate) number: usize,
    /// The last one is that of the last configuration that had the step.
    pub(crate) passes: Vec<Pass>,
    /// Last job of each input that the step has ever read and accounted for.
    pub(crate) positions: BTreeMap<Address, u64>,
}

/// Start of a step on an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) input: Address,
    /// Whether it goes on at kept progress.
    pub(crate) goes_on: bool,
}

impl History {
    /// Records the steps of the next run. Returns those that did not exist before, or that are wired otherwise now, with
    /// the inputs that they did not read before.
    pub(crate) fn begin(
        &mut self,
        configuration: &Arc<Configuration>,
        store: &Store,
    ) -> Result<Vec<(Address, Vec<Begun>)>, ReadError> {
        // A step that returns is retired until it is installed: retention may have deleted jobs in front of it.
        for known in self.steps.values_mut() {
            known.retired |= !configuration.steps.iter().any(|step| step.address == known.address);
        }
        let mut changed = Vec::new();
        for step in &configuration.steps {
            let begun = self.install(step, configuration, store)?;
            changed.extend(begun.map(|begun| (step.address.clone(), begun)));
        }
        Ok(changed)
    }

    /// Records that a step starts from the store. If it is wired otherwise than before, returns the inputs that it did
    /// not read before.
    pub(crate) fn install(
        &mut self,
        step: &Step,
        configuration: &Arc<Configuration>,
        store: &Store,
    ) -> Result<Option<Vec<Begun>>, ReadError> {
        let number = self.steps.values().map(|known| known.number + 1).max().unwrap_or(0);
        let passes = self.steps.values().flat_map(|known| &known.passes);
        let number_of_pass = passes.map(|pass| pass.number + 1).max().unwrap_or(0);
        let known = self.steps.entry(step.address.clone()).or_insert_with(|| Known {
            address: step.address.clone(),
            retired: false,
            number,
            passes: Vec::new(),
            positions: BTreeMap::new(),
        });
        let was_retired = std::mem::replace(&mut known.retired, false);
        let mut start = Vec::new();
        for input in &step.inputs {
            let oldest = match input.input {
                Input::Source(_) => 1,
                Input::Queue(_) => store.queue(&input.address)?.map_or(1, |state| state.first),
            };
            // Retention may have deleted jobs while the step did not read them.
            start.push(known.positions.get(&input.address).map_or(oldest, |last| oldest.max(last + 1)));
        }
        let mut pass = Pass::new(step, configuration, number_of_pass, start);
        let begun = match known.passes.last_mut() {
            Some(last) if last.is_wired_like(&pass) => {
                last.declare(step, configuration);
                if was_retired && last.next != pass.start {
                    let again = last.again(pass.start);
                    known.passes.push(again);
                }
                return Ok(None);
            }
            before => {
                if let Some(before) = &before {
                    let at = |input: usize| pass.inputs.iter().position(|one| *one == before.inputs[input]);
                    let left = before.left.iter().filter_map(|&(input, index)| Some((at(input)?, index)));
                    pass.left = left.filter(|&(input, index)| pass.start[input] <= index).collect();
                }
                let read = before.map(|before| before.inputs.clone()).unwrap_or_default();
                let new = pass.inputs.iter().filter(|input| was_retired || !read.contains(input));
                let positions = &known.positions;
                new.map(|input| Begun { input: input.clone(), goes_on: positions.contains_key(input) })
                    .collect()
            }
        };
        for (_, job) in store.due(&step.address, Due::Never, None, usize::MAX, usize::MAX)? {
            if job.from_error.is_none() {
                let taken = known.find(&job.inputs);
                let (pass_of, indices) =
                    taken.unwrap_or_else(|| panic!("{} has never begun {job:?}", known.address));
                let (inputs, attempt) = (job.inputs, job.attempt);
                pass.taken_over.push(TakenOver { pass: pass_of, indices, inputs, attempt });
            }
        }
        known.passes.push(pass);
        Ok(Some(begun))
    }

    /// Records that a step is not in the configuration any more.
    pub(crate) fn remove(&mut self, step: &Address) {
        if let Some(known) = self.steps.get_mut(step) {
            known.retired = true;
        }
    }

    /// Gives renamed parts their new names. `store`: the state in which they have them.
    pub(crate) fn rename(&mut self, renamed: &[RenamedPart], store: &Store) -> Result<(), ReadError> {
        for RenamedPart { kind, from, to } in renamed {
            match kind {
                NamedKind::Step => {
                    if let Some(mut known) = self.steps.remove(from) {
                        known.address = to.clone();
                        let before = self.steps.insert(to.clone(), known);
                        assert!(
                            before.is_none_or(|before| before.positions.is_empty()),
                            "{to} was there before"
                        );
                    }
                    let attempted = std::mem::take(&mut self.attempted).into_iter();
                    let step = |step: Address| if step == *from { to.clone() } else { step };
                    self.attempted =
                        attempted.map(|((one, inputs), names)| ((step(one), inputs), names)).collect();
                    if self.replayed.remove(from) {
                        self.replayed.insert(to.clone());
                    }
                }
                NamedKind::Endpoint => {
                    let head = self.head(from);
                    if self.rows.contains_key(from) {
                        let before = self.rows.remove(to).into_iter().flatten().flatten();
                        self.displaced.entry(to.clone()).or_default().extend(before);
                    }
                    rename_key(&mut self.rows, from, to);
                    let displaced = self.displaced.remove(from).unwrap_or_default();
                    self.displaced.entry(to.clone()).or_default().extend(displaced);
                    let attempted = std::mem::take(&mut self.attempted).into_iter();
                    let (was, now) = (from.to_string(), to.to_string());
                    self.attempted = attempted
                        .map(|((step, mut inputs), names)| {
                            let own = inputs.iter_mut().filter(|(input, _)| *input == was);
                            own.for_each(|(input, _)| now.clone_into(input));
                            inputs.sort();
                            ((step, inputs), names)
                        })
                        .collect();
                    // An empty queue goes on behind the jobs that its new name has had.
                    let first = store.queue(to)?.map(|state| state.first).filter(|&first| first > head + 1);
                    for known in self.steps.values_mut() {
                        rename_key(&mut known.positions, from, to);
                        known.passes.iter_mut().for_each(|pass| pass.rename(from, to));
                        let again = first.and_then(|first| known.passes.last()?.behind(to, first));
                        known.passes.extend(again);
                    }
                }
            }
        }
        let mut names = NameHistory::default();
        names.add(1, renamed.iter().cloned());
        for known in self.steps.values_mut() {
            known.rename_waiting(names.since(0), store)?;
        }
        Ok(())
    }

    /// Records the names of jobs that a step attempts again.
    pub(crate) fn attempts(&mut self, step: &Address, jobs: Vec<NamedJob>) {
        self.attempted.extend(jobs.into_iter().map(|job| ((step.clone(), job.now), job.attempted)));
    }

    /// Inputs of a job as its last attempt named them, if it was attempted again. `now`: by their present names.
    pub(crate) fn named_in_attempt(
        &self,
        step: &Address,
        mut now: Vec<(String, u64)>,
    ) -> Option<&[(String, u64)]> {
        now.sort();
        self.attempted.get(&(step.clone(), now)).map(Vec::as_slice)
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

    /// All steps, in the order in which they appeared.
    pub(crate) fn in_order(&self) -> Vec<&Known> {
        let mut all: Vec<&Known> = self.steps.values().collect();
        all.sort_by_key(|known| known.number);
        all
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
        let step = &self.address;
        let pass = self.passes.last_mut().unwrap();
        for (input, &last) in self.positions.iter().filter(|(input, _)| !pass.inputs.contains(input)) {
            let progress = store.progress(step, input)?.unwrap_or_default();
            assert_eq!(progress.position(), last, "{step} does not read {input} now");
        }
        let mut now = pass.next.clone();
        let mut skipped = BTreeSet::new();
        for (at, (input, now)) in pass.inputs.iter().zip(&mut now).enumerate() {
            let Some(progress) = store.progress(step, input)? else { continue };
            let ahead = progress.finished().iter().flat_map(|&(first, last)| first..=last);
            skipped.extend(ahead.map(|index| (at, index)).filter(|job| !pass.left.contains(job)));
            *now = progress.position() + 1;
            let last = self.positions.entry(input.clone()).or_default();
            let goes_back = progress.position() < *last;
            assert!(!goes_back || replayed.contains(step), "{step} was rewound without a request");
            *last = progress.position();
        }
        // A step that has not begun may have recorded progress without jobs. One that was changed may have had jobs
        // deleted in front of it.
        for (now, start) in now.iter_mut().zip(&pass.start) {
            if !replayed.contains(step) {
                *now = (*now).max(*start);
            }
        }
        if pass.step.picks().is_none() && !skipped.is_empty() {
            let left: Vec<_> = skipped.difference(&waiting(pass, step, store)?).copied().collect();
            assert!(left.is_empty(), "{step} has skipped jobs of its inputs: {left:?}");
        }
        if now == pass.next {
            return Ok(());
        }
        assert!(!self.retired, "{step} is not there and makes progress");
        if now.iter().zip(&pass.next).any(|(now, next)| now < next) {
            assert!(replayed.contains(step), "{step} was rewound without a request");
            let mut again = pass.again(now);
            let is_ahead = |&(at, index): &(usize, u64)| again.start[at] <= index;
            again.left.retain(|&(at, _)| again.start[at] >= pass.next[at]);
            again.left.extend(waiting(&again, step, store)?.into_iter().filter(is_ahead));
            self.passes.push(again);
        } else {
            pass.next = now;
        }
        Ok(())
    }

    /// Gives the jobs that wait for an attempt of a later pass the new names of inputs that the pass does not read.
    /// The inputs that it reads have the names of its time, and jobs that were delivered have the names of their delivery.
    fn rename_waiting(&mut self, names: NamesSince<'_>, store: &Store) -> Result<(), ReadError> {
        let waiting = store.due(&self.address, Due::Never, None, usize::MAX, usize::MAX)?;
        let waiting: Vec<_> = waiting.into_iter().map(|(_, job)| job.inputs).collect();
        for pass in &mut self.passes {
            let read: Vec<String> = pass.present_names().collect();
            for job in &mut pass.taken_over {
                let mut inputs = job.inputs.clone();
                for (name, _) in &mut inputs {
                    *name = names.input(name);
                }
                if waiting.contains(&inputs) {
                    let renamed = job.inputs.iter_mut().zip(inputs);
                    for (input, new) in renamed.filter(|(_, new)| !read.contains(&new.0)) {
                        *input = new;
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn last(&self) -> &Pass {
        self.passes.last().unwrap()
    }

    pub(crate) fn next(&self) -> &[u64] {
        &self.last().next
    }

    /// Last pass that has accounted for the job with these inputs, and its indices there.
    pub(crate) fn find(&self, inputs: &[(String, u64)]) -> Option<(usize, Vec<u64>)> {
        let mut passes = self.passes.iter().enumerate().rev();
        passes.find_map(|(at, pass)| {
            let taken = pass.taken_over.iter().find(|job| job.inputs == inputs);
            let taken = taken.map(|job| (job.pass, job.indices.clone()));
            pass.find(inputs).map(|indices| (at, indices)).or(taken)
        })
    }
}

/// Jobs of a step that wait in the store, by input of the pass. An output that is due later is no such job.
fn waiting(pass: &Pass, step: &Address, store: &Store) -> Result<BTreeSet<(usize, u64)>, ReadError> {
    let names: Vec<String> = pass.present_names().collect();
    let mut waiting = BTreeSet::new();
    for (_, job) in store.due(step, Due::Never, None, usize::MAX, usize::MAX)? {
        if !matches!(job.reason, ParkReason::Output { .. }) {
            let own = job.inputs.iter();
            waiting.extend(
                own.filter_map(|(name, index)| Some((names.iter().position(|one| one == name)?, *index))),
            );
        }
    }
    Ok(waiting)
}

pub(crate) fn rename_key<T>(all: &mut BTreeMap<Address, T>, from: &Address, to: &Address) {
    if let Some(part) = all.remove(from) {
        all.insert(to.clone(), part);
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
