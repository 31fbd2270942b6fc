//! Delivery outcomes: collects the outcomes and times of a batch, by the places of the jobs that its deliveries were made
//! from, or by hash.

use tidegate_model::{Address, DeliveryHash, Timestamp};
use tidegate_store::{
    Changes, DedupeRecord, DeliveredJob, DeliveredJobs, DeliveryKey, DeliveryOutcome, DeliveryPlace,
    DeliveryTimes,
};

/// The outcomes of deliveries.
#[derive(Debug, Default)]
pub(crate) struct DeliveryOutcomes {
    /// Deliveries that were made from one job, in runs of the same input: its name in the hash, and the jobs.
    single: Vec<(String, Vec<DeliveredJob>)>,
    /// Deliveries that were made from several jobs.
    joined: Vec<(DeliveryHash, DeliveryOutcome, DeliveryTimes)>,
}

impl DeliveryOutcomes {
    /// Adds the outcome of the delivery with this hash. `only`: its input and index, if it was made from one job.
    pub(crate) fn push(
        &mut self,
        only: Option<(&str, u64)>,
        hash: DeliveryHash,
        (outcome, times): (DeliveryOutcome, DeliveryTimes),
    ) {
        let Some((input, index)) = only else {
            self.joined.push((hash, outcome, times));
            return;
        };
        let job = DeliveredJob { index, outcome, times };
        match self.single.last_mut().filter(|(name, _)| name == input) {
            Some((_, jobs)) => jobs.push(job),
            None => self.single.push((input.to_owned(), vec![job])),
        }
    }

    /// The time of the first attempt of the first delivery, if it is recorded. A batch has deliveries of one job, or of
    /// several.
    pub(crate) fn first_attempt(&self) -> Option<Timestamp> {
        let single = self.single.first().and_then(|(_, jobs)| Some(jobs.first()?.times));
        single.or_else(|| Some(self.joined.first()?.2))?.first_attempt
    }

    /// Adds the records of these deliveries of `step`.
    pub(crate) fn record(&self, step: &Address, keep_until: Option<Timestamp>, changes: &mut Changes) {
        changes.delivered.extend(self.single.iter().map(|(input, jobs)| DeliveredJobs {
            step: step.clone(),
            input: input.clone(),
            jobs: jobs.clone(),
            keep_until,
        }));
        let record = |&(hash, outcome, times): &(_, DeliveryOutcome, _)| DedupeRecord {
            hash,
            outcome: outcome.into(),
            times: Some(times),
            keep_until,
        };
        changes.dedupe_records.extend(self.joined.iter().map(record));
    }
}

/// The keys of the delivery records of some jobs.
#[derive(Debug, Default)]
pub(crate) struct DeliveryKeys {
    /// Names of inputs, one for each run of jobs.
    inputs: Vec<String>,
    /// For each job its hash, and if it has one input, the position of its name and its index.
    jobs: Vec<(DeliveryHash, Option<(usize, u64)>)>,
}

impl DeliveryKeys {
    /// Adds the key of a job, as [`DeliveryOutcomes::push`].
    pub(crate) fn push(&mut self, only: Option<(&str, u64)>, hash: DeliveryHash) {
        let place = only.map(|(input, index)| {
            if self.inputs.last().is_none_or(|last| last != input) {
                self.inputs.push(input.to_owned());
            }
            (self.inputs.len() - 1, index)
        });
        self.jobs.push((hash, place));
    }

    /// One key for each job.
    pub(crate) fn of_step<'a>(&'a self, step: &'a Address) -> Vec<DeliveryKey<'a>> {
        let key = |&(hash, place): &(DeliveryHash, Option<(usize, u64)>)| match place {
            Some((input, index)) => {
                DeliveryKey::Place(DeliveryPlace { step, input: &self.inputs[input], index })
            }
            None => DeliveryKey::Hash(hash),
        };
        self.jobs.iter().map(key).collect()
    }
}
