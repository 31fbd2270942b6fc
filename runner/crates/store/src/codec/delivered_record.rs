//! `DeliveredRange`: the outcomes and times of a range of deliveries as bytes.
//!
//! | part | form |
//! | --- | --- |
//! | kind | u8, 2 |
//! | time of the commit | i64 |
//! | keep until | i64; the largest number is never |
//! | number of runs of equal outcomes | varint |
//! | runs of equal outcomes | outcome varint (0 error, 1 nothing, else the number of outputs and 2); number of jobs varint |
//! | runs of equal times, to the end | see [`delivery_times`] |
//!
//! Kind 1 is that of version 9: it has no times, and no number of runs.

use super::bytes::{Bytes, Wrong, put_varint};
use super::delivery_times::{self, Runs};
use crate::api::delivery::{DeliveredJob, DeliveryOutcome, DeliveryTimes};
use tidegate_model::Timestamp;

/// Maximum number of jobs in a range.
pub(crate) const RANGE_JOBS_MAX: u64 = 1024;

const KIND: u8 = 2;
const KIND_WITHOUT_TIMES: u8 = 1;

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
    /// At least one run.
    outcomes: Runs<DeliveryOutcome>,
    /// The times of the same jobs; empty in a record without times.
    times: Runs<DeliveryTimes>,
}

impl DeliveredRange {
    /// `None` if a run is empty, or if the range has no job, too many of them, or an index that does not exist. `times` is
    /// empty if they are unknown. If it has another number of jobs, the range is `None`, too.
    pub(crate) fn new(
        first: u64,
        (time, keep_until): (Timestamp, Option<Timestamp>),
        outcomes: Runs<DeliveryOutcome>,
        times: Runs<DeliveryTimes>,
    ) -> Option<Self> {
        let jobs = sum(&outcomes)?;
        let is_whole = times.is_empty() || sum(&times) == Some(jobs);
        (first > 0 && jobs > 0 && is_whole && first.checked_add(jobs).is_some()).then_some(Self {
            first,
            time,
            keep_until,
            outcomes,
            times,
        })
    }

    /// The ranges of `jobs`, whose indices are positive and ascend.
    pub(crate) fn of_jobs(
        jobs: &[DeliveredJob],
        (time, keep_until): (Timestamp, Option<Timestamp>),
    ) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for &DeliveredJob { index, outcome, times } in jobs {
            match ranges.last_mut().filter(|range| range.last() == index - 1 && range.jobs() < RANGE_JOBS_MAX)
            {
                Some(range) => {
                    push(&mut range.outcomes, outcome, 1);
                    push(&mut range.times, times, 1);
                }
                None => {
                    let (outcomes, times) = (vec![(outcome, 1)], vec![(times, 1)]);
                    ranges.push(Self { first: index, time, keep_until, outcomes, times });
                }
            }
        }
        ranges
    }

    pub(crate) fn outcomes(&self) -> &[(DeliveryOutcome, u64)] {
        &self.outcomes
    }

    /// Empty in a record without times.
    pub(crate) fn all_times(&self) -> &[(DeliveryTimes, u64)] {
        &self.times
    }

    pub(crate) fn jobs(&self) -> u64 {
        self.outcomes.iter().map(|(_, jobs)| jobs).sum()
    }

    /// The index of the last job.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.jobs() - 1
    }

    pub(crate) fn has(&self, index: u64) -> bool {
        (self.first..=self.last()).contains(&index)
    }

    /// `None` if the range does not have the job.
    pub(crate) fn outcome(&self, index: u64) -> Option<DeliveryOutcome> {
        find(&self.outcomes, index.checked_sub(self.first)?)
    }

    /// `None` if the range does not have the job, or is a record without times.
    pub(crate) fn times(&self, index: u64) -> Option<DeliveryTimes> {
        find(&self.times, index.checked_sub(self.first)?)
    }

    /// Its jobs before `index`; `None` if it has none.
    pub(crate) fn before(&self, index: u64) -> Option<Self> {
        self.part(self.first, index.saturating_sub(1).min(self.last()))
    }

    /// Its jobs behind `index`; `None` if it has none.
    pub(crate) fn behind(&self, index: u64) -> Option<Self> {
        self.part(index.saturating_add(1).max(self.first), self.last())
    }

    /// Its jobs from `first` on, which is not before its first one, to `last`.
    fn part(&self, first: u64, last: u64) -> Option<Self> {
        let jobs = (last + 1).checked_sub(first)?;
        let (skip, times) = (first - self.first, (self.time, self.keep_until));
        Self::new(first, times, cut(&self.outcomes, skip, jobs), cut(&self.times, skip, jobs))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let keep_until = self.keep_until.map_or(FOR_EVER, |until| until.0);
        let mut record = vec![if self.times.is_empty() { KIND_WITHOUT_TIMES } else { KIND }];
        record.extend_from_slice(&self.time.0.to_le_bytes());
        record.extend_from_slice(&keep_until.to_le_bytes());
        if !self.times.is_empty() {
            put_varint(&mut record, self.outcomes.len() as u64);
        }
        for &(outcome, jobs) in &self.outcomes {
            put_varint(&mut record, code(outcome));
            put_varint(&mut record, jobs);
        }
        delivery_times::put(&mut record, self.time, &self.times);
        record
    }

    /// The inverse of [`Self::encode`], for a range whose last job has the index `last`.
    pub(crate) fn decode(last: u64, record: &[u8]) -> Result<Self, Wrong> {
        let mut bytes = Bytes(record);
        let kind = bytes.u8()?;
        let time = Timestamp(bytes.u64()?.cast_signed());
        let keep_until = Some(Timestamp(bytes.u64()?.cast_signed())).filter(|until| until.0 < FOR_EVER);
        let runs = match kind {
            KIND_WITHOUT_TIMES => None,
            KIND => Some(bytes.varint()?),
            _ => return Err("its kind is unknown"),
        };
        let mut outcomes = Vec::new();
        while !bytes.0.is_empty() && runs.is_none_or(|runs| (outcomes.len() as u64) < runs) {
            let outcome = outcome(bytes.varint()?).ok_or("it has an unknown outcome")?;
            outcomes.push((outcome, bytes.varint()?));
        }
        let times = delivery_times::take(bytes, time)?;
        if runs.is_some_and(|runs| runs != outcomes.len() as u64) || runs.is_some() && times.is_empty() {
            return Err("it is cut short");
        }
        let jobs = outcomes.iter().fold(0_u64, |all, (_, jobs)| all.saturating_add(*jobs));
        let first = last.checked_sub(jobs).map_or(0, |before| before.saturating_add(1));
        Self::new(first, (time, keep_until), outcomes, times).ok_or("it has an impossible number of jobs")
    }
}

/// The number of jobs; `None` if a run is empty, or if they are too many.
fn sum<T>(runs: &[(T, u64)]) -> Option<u64> {
    runs.iter().try_fold(0_u64, |jobs, &(_, more)| {
        jobs.checked_add(more).filter(|&jobs| more > 0 && jobs <= RANGE_JOBS_MAX)
    })
}

fn push<T: PartialEq>(runs: &mut Runs<T>, value: T, jobs: u64) {
    match runs.last_mut().filter(|(last, _)| *last == value) {
        Some((_, all)) => *all += jobs,
        None => runs.push((value, jobs)),
    }
}

/// The value of the job at `position`, from 0.
fn find<T: Copy>(runs: &[(T, u64)], position: u64) -> Option<T> {
    let mut before = position;
    runs.iter().find_map(|&(value, jobs)| {
        let is_it = before < jobs;
        before = before.saturating_sub(jobs);
        is_it.then_some(value)
    })
}

/// The runs of `jobs` jobs behind the first `skip` ones.
fn cut<T: Copy>(runs: &[(T, u64)], skip: u64, jobs: u64) -> Runs<T> {
    let (mut start, mut part) = (0, Vec::new());
    for &(value, run) in runs {
        let (from, to) = (start.max(skip), (start + run).min(skip + jobs));
        if from < to {
            part.push((value, to - from));
        }
        start += run;
    }
    part
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
