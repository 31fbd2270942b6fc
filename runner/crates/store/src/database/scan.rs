//! `ParkedJobs`: scans the parked jobs of a step in order of due time, page by page, so that memory is
//! bounded.

use std::vec;

use super::read::Store;
use crate::api::parked_job::{NO_DUE_TIME, ParkedJob, ParkedKey};
use crate::error::ReadError;
use tidegate_model::{Address, Timestamp};

/// Rows per read, and bytes of them.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 2 << 20;

/// Parked jobs one by one. Rows written during the scan may be included or not. No row is returned twice,
/// unless it is put back behind the current position. Ends after an error.
#[derive(Debug)]
pub struct ParkedJobs<'a> {
    store: &'a Store,
    step: &'a Address,
    after: Option<ParkedKey>,
    until: Timestamp,
    page: vec::IntoIter<(ParkedKey, ParkedJob)>,
    over: bool,
}

impl Store {
    /// All parked jobs of `step`, those without a due time last.
    #[must_use]
    pub fn all_delayed<'a>(&'a self, step: &'a Address) -> ParkedJobs<'a> {
        self.walk(step, None, NO_DUE_TIME)
    }

    /// Parked jobs that are due by `now`.
    #[must_use]
    pub fn delayed_by<'a>(&'a self, step: &'a Address, now: Timestamp) -> ParkedJobs<'a> {
        self.walk(step, None, now)
    }

    /// Parked jobs whose key is greater than `after`.
    #[must_use]
    pub fn parked_after<'a>(&'a self, step: &'a Address, after: ParkedKey) -> ParkedJobs<'a> {
        self.walk(step, Some(after), NO_DUE_TIME)
    }

    /// Parked jobs without a due time.
    #[must_use]
    pub fn pending_jobs<'a>(&'a self, step: &'a Address) -> ParkedJobs<'a> {
        // Sequences start above 0.
        self.walk(step, Some(ParkedKey { step: step.clone(), due: NO_DUE_TIME, sequence: 0 }), NO_DUE_TIME)
    }

    fn walk<'a>(&'a self, step: &'a Address, after: Option<ParkedKey>, until: Timestamp) -> ParkedJobs<'a> {
        ParkedJobs { store: self, step, after, until, page: Vec::new().into_iter(), over: false }
    }
}

impl Iterator for ParkedJobs<'_> {
    type Item = Result<(ParkedKey, ParkedJob), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 && !self.over {
            match self.store.due(self.step, self.until, self.after.as_ref(), PAGE, PAGE_BYTES) {
                Ok(page) => {
                    self.over = page.is_empty();
                    self.after = page.last().map(|(key, _)| key.clone()).or(self.after.take());
                    self.page = page.into_iter();
                }
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        self.page.next().map(Ok)
    }
}
