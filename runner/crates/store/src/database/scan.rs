//! `ParkedJobs`: scans the parked jobs of a step, started ones first and then in order of due time. It reads
//! page by page, so that memory is bounded.

use std::vec;

use super::read::Store;
use crate::api::parked_job::{ParkedId, ParkedJob, ParkedKey, ParkedPosition};
use crate::error::ReadError;
use tidegate_model::{Address, Due, Timestamp};

/// Rows per read, and bytes of them.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 2 << 20;

/// Parked jobs one by one. Rows written during the scan may be included or not. No row is returned twice,
/// unless it is moved behind the current position. Ends after an error.
#[derive(Debug)]
pub struct ParkedJobs<'a> {
    store: &'a Store,
    step: &'a Address,
    after: Option<ParkedPosition>,
    until: Due,
    page: vec::IntoIter<(ParkedKey, ParkedJob)>,
    over: bool,
}

impl Store {
    /// All parked jobs of `step`, those that no time makes due last.
    #[must_use]
    pub fn all_parked<'a>(&'a self, step: &'a Address) -> ParkedJobs<'a> {
        self.walk(step, None, Due::Never)
    }

    /// Parked jobs that are due by `now`.
    #[must_use]
    pub fn parked_due_by<'a>(&'a self, step: &'a Address, now: Timestamp) -> ParkedJobs<'a> {
        self.walk(step, None, Due::At(now))
    }

    /// Parked jobs after this position.
    #[must_use]
    pub fn parked_after<'a>(&'a self, step: &'a Address, after: ParkedPosition) -> ParkedJobs<'a> {
        self.walk(step, Some(after), Due::Never)
    }

    /// Parked jobs that no time makes due.
    #[must_use]
    pub fn pending_jobs<'a>(&'a self, step: &'a Address) -> ParkedJobs<'a> {
        // Numbers start above 0.
        let after = ParkedPosition { due: Some(Due::Never), id: ParkedId(0) };
        self.walk(step, Some(after), Due::Never)
    }

    fn walk<'a>(&'a self, step: &'a Address, after: Option<ParkedPosition>, until: Due) -> ParkedJobs<'a> {
        ParkedJobs { store: self, step, after, until, page: Vec::new().into_iter(), over: false }
    }
}

impl Iterator for ParkedJobs<'_> {
    type Item = Result<(ParkedKey, ParkedJob), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 && !self.over {
            match self.store.due(self.step, self.until, self.after, PAGE, PAGE_BYTES) {
                Ok(page) => {
                    self.over = page.is_empty();
                    let last = page.last().map(|(key, job)| ParkedPosition::of(key.id, job));
                    self.after = last.or(self.after);
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
