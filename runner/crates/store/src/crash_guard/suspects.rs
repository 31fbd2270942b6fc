//! `Suspects`: the jobs that may have killed the process. It is a pure state, whose changes are written to
//! the file cell by cell.

use super::cell::Suspect;
use super::span::AttemptSpan;

/// Maximum number of suspects. More need hundreds of crashes without one good run between them.
pub(crate) const SUSPECTS_MAX: usize = 1024;

/// Each suspect keeps its place. Spans may overlap; the highest count of a job's spans holds for the job.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    cells: Vec<Option<Suspect>>,
}

/// Changed cells, in the order in which they must be written, so that a death in between leaves no job out.
pub(crate) type Changed = Vec<usize>;

impl Suspects {
    /// The suspects of a file: suspects of the last run, and the attempts of its workers at its end.
    pub(crate) fn gather(found: impl IntoIterator<Item = Suspect>) -> Self {
        let mut gathered: Vec<Suspect> = Vec::new();
        for suspect in found {
            match gathered.iter_mut().find(|known| known.span == suspect.span) {
                Some(known) => {
                    known.crashes = known.crashes.max(suspect.crashes);
                    known.exact |= suspect.exact;
                }
                None => gathered.push(suspect),
            }
        }
        // Suspects closest to quarantine are dropped last.
        gathered.sort_by_key(|suspect| std::cmp::Reverse((suspect.exact, suspect.crashes)));
        gathered.truncate(SUSPECTS_MAX);
        Self { cells: gathered.into_iter().map(Some).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.iter().all(Option::is_none)
    }

    pub(crate) fn cells(&self) -> &[Option<Suspect>] {
        &self.cells
    }

    /// Whether one of these jobs is a suspect.
    pub(crate) fn concern(&self, span: &AttemptSpan) -> bool {
        self.cells.iter().flatten().any(|suspect| suspect.span.overlaps(span))
    }

    /// Number of deaths in a row while `job` was attempted, and whether it was attempted alone at least once.
    /// A job is not condemned for crashes of its batch.
    pub(crate) fn crashes(&self, job: &AttemptSpan) -> (u32, bool) {
        let known = self.cells.iter().flatten().filter(|suspect| suspect.span.overlaps(job));
        known.fold((0, false), |(crashes, exact), suspect| {
            (crashes.max(suspect.crashes), exact || suspect.exact)
        })
    }

    /// Clears these jobs: an attempt has ended without a crash, or they are accounted for.
    pub(crate) fn absolve(&mut self, span: &AttemptSpan) -> Changed {
        let mut changed = Changed::new();
        for place in 0..self.cells.len() {
            let Some(suspect) = self.cells[place] else { continue };
            if !suspect.span.overlaps(span) {
                continue;
            }
            let (before, behind) = suspect.span.without(span);
            if let (Some(_), Some(behind)) = (before, behind) {
                // Without space they stay suspects, which is harmless.
                let Some(free) = self.free() else { continue };
                self.cells[free] = Some(Suspect { span: behind, ..suspect });
                changed.push(free);
            }
            self.cells[place] = before.or(behind).map(|span| Suspect { span, ..suspect });
            changed.push(place);
        }
        changed
    }

    fn free(&mut self) -> Option<usize> {
        if let Some(free) = self.cells.iter().position(Option::is_none) {
            return Some(free);
        }
        (self.cells.len() < SUSPECTS_MAX).then(|| {
            self.cells.push(None);
            self.cells.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_model::Address;

    fn span(first: u64, jobs: u64) -> AttemptSpan {
        AttemptSpan::new(&Address::parse("a/step").unwrap(), &[("in", first)], jobs)
    }

    fn suspect(first: u64, jobs: u64, crashes: u32) -> Suspect {
        Suspect { span: span(first, jobs), crashes, exact: jobs == 1 }
    }

    fn left(suspects: &Suspects) -> Vec<Suspect> {
        suspects.cells().iter().flatten().copied().collect()
    }

    #[test]
    fn a_job_is_known_by_the_worst_that_is_said_of_it() {
        let suspects = Suspects::gather([suspect(1, 10, 1), suspect(4, 1, 2)]);
        let crashes: Vec<_> = (3..=5).map(|index| suspects.crashes(&span(index, 1))).collect();
        assert_eq!(crashes, [(1, false), (2, true), (1, false)]);
        assert_eq!(suspects.crashes(&span(11, 1)), (0, false));
    }

    #[test]
    fn the_same_jobs_are_one_suspect() {
        let suspects = Suspects::gather([suspect(4, 1, 2), suspect(4, 1, 3), suspect(4, 1, 1)]);
        assert_eq!(left(&suspects), [suspect(4, 1, 3)]);
    }

    #[test]
    fn a_batch_concerns_suspects_that_it_shares_a_job_with() {
        let suspects = Suspects::gather([suspect(5, 5, 1)]);
        assert!(suspects.concern(&span(1, 5)));
        assert!(suspects.concern(&span(9, 90)));
        assert!(!suspects.concern(&span(1, 4)));
        assert!(!suspects.concern(&span(10, 90)));
    }

    #[test]
    fn an_absolved_job_is_none_of_any_span() {
        let mut suspects = Suspects::gather([suspect(1, 10, 1), suspect(4, 1, 2)]);
        suspects.absolve(&span(4, 1));
        let suspicious = |suspects: &Suspects| -> Vec<_> {
            (1..=11).filter(|&index| suspects.concern(&span(index, 1))).collect()
        };
        assert_eq!(suspicious(&suspects), [1, 2, 3, 5, 6, 7, 8, 9, 10]);
        suspects.absolve(&span(1, 3));
        suspects.absolve(&span(6, 99));
        assert_eq!(suspicious(&suspects), [5]);
        suspects.absolve(&span(5, 1));
        assert!(suspects.is_empty());
    }

    #[test]
    fn what_lies_behind_an_absolved_job_is_written_before_the_rest_shrinks() {
        let mut suspects = Suspects::gather([suspect(1, 10, 1)]);
        assert_eq!(suspects.absolve(&span(4, 1)), [1, 0]);
        assert_eq!(suspects.cells()[1].map(|suspect| suspect.span), Some(span(5, 6)));
    }

    #[test]
    fn the_list_of_suspects_is_bounded_and_keeps_the_worst() {
        let many = (0..3000).map(|number| suspect(10 * number + 1, 5, 1));
        let mut suspects = Suspects::gather(many.chain([suspect(7, 1, 2)]));
        assert_eq!(left(&suspects).len(), SUSPECTS_MAX);
        assert_eq!(suspects.crashes(&span(7, 1)), (2, true));
        // The list has no space for a cut span.
        assert!(suspects.absolve(&span(3, 1)).is_empty());
        assert!(suspects.concern(&span(3, 1)));
        assert_eq!(suspects.absolve(&span(1, 1)).len(), 1);
        assert!(!suspects.concern(&span(1, 1)));
    }
}
