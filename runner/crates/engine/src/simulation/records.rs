//! Delivery records: their outcomes, attempts and times are those of a delivery in the model.

use std::collections::BTreeMap;

use super::history::{History, Known};
use super::model::Delivery;
use super::twin::Made;
use tidegate_config::Input;
use tidegate_model::{Address, Timestamp};
use tidegate_store::{DedupeOutcome, DeliveryPlace, DeliveryRecord, Store};

/// Expected records of deliveries that were made from one job, by step, input and index. A job that was delivered
/// several times, or by several steps of the same name, has several.
#[derive(Default)]
pub(crate) struct Records(BTreeMap<(Address, String, u64), Vec<Expected>>);

#[derive(Debug)]
struct Expected {
    attempt: u32,
    /// Whether it is on the error queue.
    failed: bool,
    /// Time of the commit that appended the job; `None` for a line of a file.
    created: Option<Timestamp>,
    /// Whether the job was retried from the error queue: then its time comes from its last record.
    is_again: bool,
}

impl Records {
    /// Adds the deliveries of a step.
    pub(crate) fn expect(&mut self, history: &History, known: &Known, done: &[Delivery]) {
        for delivery in done {
            let ([(input, index)], Some(made)) = (&delivery.inputs[..], &delivery.made) else { continue };
            let step = known.passes[delivery.delivered].step.address.clone();
            let expected = Expected::of(history, known, delivery, made);
            self.0.entry((step, input.clone(), *index)).or_default().push(expected);
        }
    }

    /// Compares the records that the store keeps.
    pub(crate) fn check(&self, store: &Store) {
        for ((step, input, index), expected) in &self.0 {
            let place = DeliveryPlace { step, input, index: *index };
            let Some(DeliveryRecord { outcome, ended, times }) = store.delivery_at(place).unwrap() else {
                continue;
            };
            let what = || format!("{step} has delivered job {index} of {input} as {outcome:?}, {times:?}");
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
        let at = delivery.indices.iter().position(|&index| index > 0).unwrap();
        let created = match taken.step.inputs[at].input {
            Input::Queue(_) => Some(history.row(&taken.inputs[at], delivery.indices[at]).stamp.time),
            Input::Source(_) => None,
        };
        let is_again = delivery.retried.is_some();
        Self { attempt: delivery.attempt, failed: made.is_err(), created, is_again }
    }
}
