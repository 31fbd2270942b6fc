//! `DeliveredRange`: the outcomes of a range of deliveries as bytes.
//!
//! | part | form |
//! | --- | --- |
//! | kind | u8, 1 |
//! | time of the commit | i64 |
//! | keep until | i64; the largest number is never |
//! | runs of equal outcomes, to the end | outcome varint (0 error, 1 nothing, else the number of outputs and 2); number of jobs varint |
//!
//! Another kind can add columns.

use super::bytes::{Bytes, Wrong, put_varint};
use crate::api::delivery::DeliveryOutcome;
use tidegate_model::Timestamp;

/// Maximum number of jobs in a range.
pub(crate) const RANGE_JOBS_MAX: u64 = 1024;

const KIND: u8 = 1;

/// The stored time of records that are never forgotten.
const FOR_EVER: i64 = i64::MAX;

/// The deliveries of jobs with consecutive indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeliveredRange {
    /// The index of the first job.
    pub(crate) first: u64,
    /// Time of the commit.
    pub(crate) time: Timestamp,
    /// The range may be forgotten from this time on; `None`: never.
    pub(crate) keep_until: Option<Timestamp>,
    /// Runs of equal outcomes with their numbers of jobs: at least one run, and at least one job in each.
    runs: Vec<(DeliveryOutcome, u64)>,
}

impl DeliveredRange {
    /// `None` if a run is empty, or if the range has no job, too many of them, or an index that does not exist.
    pub(crate) fn new(
        first: u64,
        (time, keep_until): (Timestamp, Option<Timestamp>),
        runs: Vec<(DeliveryOutcome, u64)>,
    ) -> Option<Self> {
        let jobs = runs.iter().try_fold(0_u64, |jobs, &(_, more)| {
            jobs.checked_add(more).filter(|&jobs| more > 0 && jobs <= RANGE_JOBS_MAX)
        })?;
        (first > 0 && jobs > 0 && first.checked_add(jobs).is_some()).then_some(Self {
            first,
            time,
            keep_until,
            runs,
        })
    }

    /// The ranges of `jobs`, whose indices are positive and ascend.
    pub(crate) fn of_jobs(
        jobs: &[(u64, DeliveryOutcome)],
        (time, keep_until): (Timestamp, Option<Timestamp>),
    ) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for &(index, outcome) in jobs {
            match ranges.last_mut().filter(|range| range.last() == index - 1 && range.jobs() < RANGE_JOBS_MAX)
            {
                Some(range) => push(&mut range.runs, outcome, 1),
                None => ranges.push(Self { first: index, time, keep_until, runs: vec![(outcome, 1)] }),
            }
        }
        ranges
    }

    pub(crate) fn runs(&self) -> &[(DeliveryOutcome, u64)] {
        &self.runs
    }

    pub(crate) fn jobs(&self) -> u64 {
        self.runs.iter().map(|(_, jobs)| jobs).sum()
    }

    /// The index of the last job.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.jobs() - 1
    }

    /// `None` if the range does not have the job.
    pub(crate) fn outcome(&self, index: u64) -> Option<DeliveryOutcome> {
        let mut before = index.checked_sub(self.first)?;
        self.runs.iter().find_map(|&(outcome, jobs)| {
            let is_it = before < jobs;
            before = before.saturating_sub(jobs);
            is_it.then_some(outcome)
        })
    }

    /// Its jobs before `index`; `None` if it has none.
    pub(crate) fn before(&self, index: u64) -> Option<Self> {
        self.part(self.first, index.saturating_sub(1).min(self.last()))
    }

    /// Its jobs behind `index`; `None` if it has none.
    pub(crate) fn behind(&self, index: u64) -> Option<Self> {
        self.part(index.saturating_add(1).max(self.first), self.last())
    }

    fn part(&self, first: u64, last: u64) -> Option<Self> {
        let mut runs = Vec::new();
        (first..=last)
            .filter_map(|index| self.outcome(index))
            .for_each(|outcome| push(&mut runs, outcome, 1));
        Self::new(first, (self.time, self.keep_until), runs)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let keep_until = self.keep_until.map_or(FOR_EVER, |until| until.0);
        let mut record = vec![KIND];
        record.extend_from_slice(&self.time.0.to_le_bytes());
        record.extend_from_slice(&keep_until.to_le_bytes());
        for &(outcome, jobs) in &self.runs {
            put_varint(&mut record, code(outcome));
            put_varint(&mut record, jobs);
        }
        record
    }

    /// The inverse of [`Self::encode`], for a range whose last job has the index `last`.
    pub(crate) fn decode(last: u64, record: &[u8]) -> Result<Self, Wrong> {
        let mut bytes = Bytes(record);
        if bytes.u8()? != KIND {
            return Err("its kind is unknown");
        }
        let time = Timestamp(bytes.u64()?.cast_signed());
        let keep_until = Some(Timestamp(bytes.u64()?.cast_signed())).filter(|until| until.0 < FOR_EVER);
        let mut runs = Vec::new();
        while !bytes.0.is_empty() {
            let outcome = outcome(bytes.varint()?).ok_or("it has an unknown outcome")?;
            runs.push((outcome, bytes.varint()?));
        }
        let jobs = runs.iter().fold(0_u64, |all, (_, jobs)| all.saturating_add(*jobs));
        let first = last.checked_sub(jobs).map_or(0, |before| before.saturating_add(1));
        Self::new(first, (time, keep_until), runs).ok_or("it has an impossible number of jobs")
    }
}

fn push(runs: &mut Vec<(DeliveryOutcome, u64)>, outcome: DeliveryOutcome, jobs: u64) {
    match runs.last_mut().filter(|(last, _)| *last == outcome) {
        Some((_, all)) => *all += jobs,
        None => runs.push((outcome, jobs)),
    }
}

fn code(outcome: DeliveryOutcome) -> u64 {
    match outcome {
        DeliveryOutcome::Error => 0,
        DeliveryOutcome::Nothing => 1,
        DeliveryOutcome::Output { jobs } => 2 + u64::from(jobs),
    }
}

fn outcome(code: u64) -> Option<DeliveryOutcome> {
    match code {
        0 => Some(DeliveryOutcome::Error),
        1 => Some(DeliveryOutcome::Nothing),
        code => u32::try_from(code - 2).ok().map(|jobs| DeliveryOutcome::Output { jobs }),
    }
}

#[cfg(test)]
mod tests;
