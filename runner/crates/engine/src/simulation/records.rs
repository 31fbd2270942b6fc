//! Delivery records: their outcomes, attempts and times are those of a delivery in the model.

use std::collections::BTreeMap;

use super::history::{History, Known};
use super::model::Delivery;
use super::twin::Made;
use tidegate_config::Input;
use tidegate_model::{Address, Timestamp};
use tidegate_store::{DedupeOutcome, DeliveryKey, DeliveryRecord, Store};

/// A step, and the inputs and indices of the jobs of a delivery.
type Key = (Address, Vec<(String, u64)>);

/// Expected records. Jobs that were delivered several times, or by several steps of the same name, have several.
#[derive(Default)]
pub(crate) struct Records(BTreeMap<Key, Vec<Expected>>);

#[derive(Debug)]
struct Expected {
    attempt: u32,
    /// Whether it is on the error queue.
    failed: bool,
    /// Time of the last commit that appended one of the jobs; `None` if all are lines of files.
    created: Option<Timestamp>,
    /// Whether the job was retried from the error queue: then its time comes from its last record.
    is_again: bool,
}

impl Records {
    /// Adds the deliveries of a step.
    pub(crate) fn expect(&mut self, history: &History, known: &Known, done: &[Delivery]) {
        for delivery in done {
            let Some(made) = &delivery.made else { continue };
            let step = known.passes[delivery.delivered].step.address.clone();
            let expected = Expected::of(history, known, delivery, made);
            // In one order, as in the hash: a reload may reorder the inputs.
            let mut jobs = delivery.inputs.clone();
            jobs.sort_unstable();
            self.0.entry((step, jobs)).or_default().push(expected);
        }
    }

    /// Compares the records that the store keeps.
    pub(crate) fn check(&self, store: &Store) {
        for ((step, jobs), expected) in &self.0 {
            let record = store.delivery_record(DeliveryKey::new(step, jobs)).unwrap();
            let Some(DeliveryRecord { outcome, ended, times }) = record else { continue };
            let what = || format!("{step} has delivered {jobs:?} as {outcome:?}, {times:?}");
            let times = times.unwrap_or_else(|| panic!("{}", what()));
            let failed = outcome == DedupeOutcome::Error;
            let is_it = |one: &Expected| {
                let created = one.is_again || one.created == times.created;
                (one.attempt, one.failed) == (times.attempts, failed) && created
            };
            assert!(expected.iter().any(is_it), "{}, and not {expected:?}", what());
            assert!(times.first_attempt.is_some() && times.first_attempt <= ended, "{} at {ended:?}", what());
        }
    }
}

impl Expected {
    fn of(history: &History, known: &Known, delivery: &Delivery, made: &Made) -> Self {
        let taken = &known.passes[delivery.pass];
        let inputs = taken.step.inputs.iter().zip(&taken.inputs).zip(&delivery.indices);
        let of_queue = inputs.filter_map(|((input, queue), &index)| match input.input {
            Input::Queue(_) if index > 0 => Some(history.row(queue, index).stamp.time),
            Input::Queue(_) | Input::Source(_) => None,
        });
        let created = of_queue.max();
        let is_again = delivery.retried.is_some();
        Self { attempt: delivery.attempt, failed: made.is_err(), created, is_again }
    }
}
