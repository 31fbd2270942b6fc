//! Crash guard of a batch: records the jobs that are being attempted, and rejects those that crashed the
//! process too often.

use tidegate_plugin::{Failure, FailureKind};

use super::input::BatchInput;
use super::job_builder::{BatchCursor, JobBuilder, JobInput};
use tidegate_model::Address;
use tidegate_store::{AttemptSpan, BatchMode, CrashGuard, ParkedId, SuspectVerdict, WorkerSlot};

/// Crash guard of one batch while it runs.
#[derive(Debug)]
pub(crate) struct BatchCrashGuard<'a> {
    step: &'a Address,
    /// Mode of the attempts; `None` if no job is attempted twice.
    pace: Option<BatchMode<'a>>,
    attempts: CrashGuard,
    /// Possible suspects that are cleared by the delivery.
    taken: Vec<AttemptSpan>,
    /// Number of process deaths caused by the last rejected job.
    crashes: Option<u32>,
}

impl<'a> BatchCrashGuard<'a> {
    /// `crash_limit` is `None` if a job is not attempted again after a crash.
    pub(crate) fn begin(
        slot: &'a mut WorkerSlot,
        step: &'a Address,
        gatherer: &mut JobBuilder,
        work: &BatchInput,
        crash_limit: Option<u32>,
    ) -> Self {
        let attempts = slot.guard();
        let pace = crash_limit.map(|limit| slot.begin(&spans(step, gatherer, work), limit));
        Self { step, pace, attempts, taken: Vec::new(), crashes: None }
    }

    /// Records that a claimed job begins now.
    pub(crate) fn begin_claimed(&self, job: ParkedId) {
        self.attempts.begin_claimed(&[job]);
    }

    /// Attempts a job with `run`, unless it is rejected.
    pub(crate) fn attempt<T>(
        &mut self,
        item: &JobInput<'_>,
        run: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(BatchMode::OneByOne(careful)) = &mut self.pace else { return run() };
        match careful.attempt(&job(self.step, item)) {
            SuspectVerdict::Run(_attempt) => run(),
            SuspectVerdict::SetAside { crashes } => {
                self.crashes = Some(crashes);
                Err(crashed(crashes))
            }
        }
    }

    /// Number of process deaths, if the last job was rejected.
    pub(crate) fn crashes(&mut self) -> Option<u32> {
        self.crashes.take()
    }

    /// Records that the delivery of this batch accounts for the job.
    pub(crate) fn take(&mut self, item: &JobInput<'_>) {
        if let Some(BatchMode::OneByOne(_)) = self.pace {
            self.taken.push(job(self.step, item));
        }
    }

    /// Suspects that are cleared by the delivery of a job that waits for its next attempt.
    pub(crate) fn wait(&self, item: &JobInput<'_>) -> Vec<AttemptSpan> {
        match self.pace {
            Some(BatchMode::OneByOne(_)) => vec![job(self.step, item)],
            _ => Vec::new(),
        }
    }

    /// Handles a job that halts the step. A rejected job is attempted again in the next run: by then its
    /// author may have fixed it.
    pub(crate) fn halt(&self, item: &JobInput<'_>, failure: &Failure) {
        if let (Some(BatchMode::OneByOne(careful)), FailureKind::Crashed) = (&self.pace, failure.kind) {
            careful.forget(&job(self.step, item));
        }
    }

    /// Suspects that are cleared by the delivery of the batch.
    pub(crate) fn finish(self) -> Vec<AttemptSpan> {
        self.taken
    }
}

fn crashed(crashes: u32) -> Failure {
    let often = if crashes == 1 { String::new() } else { format!(" {crashes} times in a row") };
    let message =
        format!("the process died{often} while this job was attempted, so it is no longer attempted");
    Failure::new(FailureKind::Crashed, message)
}

fn job(step: &Address, item: &JobInput<'_>) -> AttemptSpan {
    let row: Vec<_> = item.given().map(|given| (given.name, given.index)).collect();
    AttemptSpan::new(step, &row, 1)
}

/// Jobs of a batch as one span, or as several if jobs were redelivered.
pub(crate) fn spans(step: &Address, gatherer: &mut JobBuilder, work: &BatchInput) -> Vec<AttemptSpan> {
    if let Some(span) = contiguous(step, gatherer, work) {
        return vec![span];
    }
    let mut spans: Vec<AttemptSpan> = Vec::new();
    let mut walk = BatchCursor::new(work);
    while let Some(item) = gatherer.next(&mut walk, false) {
        let job = job(step, &item);
        if !spans.last_mut().is_some_and(|last| last.extend(&job)) {
            spans.push(job);
        }
    }
    spans
}

/// Jobs of a batch whose indices advance together on all inputs.
fn contiguous(step: &Address, gatherer: &JobBuilder, work: &BatchInput) -> Option<AttemptSpan> {
    let mut row = Vec::new();
    let mut next = None;
    for portion in &work.portions {
        if portion.returned.is_some() {
            return None;
        }
        let first = portion.batch.first + portion.skip as u64;
        match next {
            Some((input, index)) if input == portion.input && index != first => return None,
            Some((input, _)) if input == portion.input => {}
            _ => row.push((gatherer.inputs.get(portion.input?)?.name.as_str(), first)),
        }
        next = Some((portion.input, first + portion.jobs as u64));
    }
    Some(AttemptSpan::new(step, &row, work.jobs as u64))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_plugin::Payloads;

    use super::*;
    use crate::batch::input::{BatchSlice, RedeliveredJob};
    use tidegate_config::{Configuration, LoadOptions, load};
    use tidegate_model::Batch;
    use tidegate_store::{JobForm, ParkedId, ParkedJob};

    /// Steps with `left` and `right` as inputs of each kind.
    const PIPELINE: &str = "[pipeline]\nname = \"p\"\nerrors = \"failed\"\n\
        [source.left]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n\
        [source.right]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n\
        [sink.out]\ntype = \"null\"\n\
        [step.alone]\nfrom = \"right\"\nto = \"out\"\n\
        [step.either]\nalts = { old = \"left\", new = \"right\" }\nto = \"out\"\n\
        [step.both]\njoin = { z = \"left\", a = \"right\" }\nto = \"out\"\n";

    fn configuration() -> Configuration {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.toml"), PIPELINE).unwrap();
        load(folder.path(), &LoadOptions::default()).finish().unwrap().0
    }

    /// Portion of `jobs` jobs, after the first `skip` of a read that starts at `first`.
    fn portion(input: usize, first: u64, skip: usize, jobs: usize) -> BatchSlice {
        let payloads: Payloads = (0..skip + jobs).map(|_| &b"{}"[..]).collect();
        let batch = Arc::new(Batch::json(first, payloads));
        BatchSlice { input: Some(input), batch, skip, jobs, returned: None }
    }

    /// Portion of redelivered jobs with these rows.
    fn returned(step: &Address, input: usize, rows: &[&[(&str, u64)]]) -> BatchSlice {
        let returned = |row: &&[(&str, u64)]| RedeliveredJob {
            key: ParkedId(1).of(step),
            job: ParkedJob {
                inputs: row.iter().map(|&(name, index)| (name.to_owned(), index)).collect(),
                attempt: 1,
                first_attempt: None,
                last_error: None,
                from_error: None,
                form: JobForm::Json,
                payload: b"{}".to_vec(),
                carried: None,
                ..ParkedJob::default()
            },
        };
        BatchSlice { returned: Some(rows.iter().map(returned).collect()), ..portion(input, 1, 0, rows.len()) }
    }

    fn seen(step: &str, portions: Vec<BatchSlice>) -> (Vec<AttemptSpan>, Vec<AttemptSpan>) {
        let configuration = configuration();
        let step =
            configuration.steps.iter().find(|declared| declared.address.name.as_str() == step).unwrap();
        let mut gatherer = JobBuilder::new(&configuration, step);
        let joined = portions.iter().filter(|portion| portion.input == portions[0].input);
        let jobs = joined.map(|portion| portion.jobs).sum();
        let work = BatchInput { jobs, portions, ..BatchInput::default() };
        let whole = spans(&step.address, &mut gatherer, &work);
        let (mut walk, mut jobs) = (BatchCursor::new(&work), Vec::new());
        while let Some(item) = gatherer.next(&mut walk, false) {
            jobs.push(job(&step.address, &item));
        }
        (whole, jobs)
    }

    fn address(step: &str) -> Address {
        Address::parse(&format!("p/{step}")).unwrap()
    }

    /// Asserts that the batch is the one span `expected`, with its jobs.
    fn assert_is_one(step: &str, portions: Vec<BatchSlice>, expected: AttemptSpan) {
        let (whole, jobs) = seen(step, portions);
        assert_eq!(whole, [expected]);
        let mut joined = jobs[0];
        assert!(jobs[1..].iter().all(|next| joined.extend(next)));
        assert_eq!(joined, expected);
    }

    #[test]
    fn a_batch_is_one_span_however_it_was_read() {
        let alone = AttemptSpan::new(&address("alone"), &[("p/right", 12)], 5);
        assert_is_one("alone", vec![portion(0, 10, 2, 3), portion(0, 15, 0, 2)], alone);
        let either = AttemptSpan::new(&address("either"), &[("new", 12)], 3);
        let configuration = configuration();
        let step = configuration.steps.iter().find(|step| step.address == address("either")).unwrap();
        let new = step.inputs.iter().position(|input| input.binding == "new").unwrap();
        assert_is_one("either", vec![portion(new, 10, 2, 3)], either);
        // By binding: `a` from `right`, `z` from `left`.
        let both = AttemptSpan::new(&address("both"), &[("z", 500), ("a", 12)], 4);
        let portions = vec![portion(0, 10, 2, 1), portion(0, 13, 0, 3), portion(1, 500, 0, 4)];
        assert_is_one("both", portions, both);
    }

    #[test]
    fn jobs_that_came_again_are_the_jobs_that_they_were() {
        let step = address("both");
        let rows: [&[(&str, u64)]; 3] =
            [&[("a", 12), ("z", 500)], &[("z", 501), ("a", 13)], &[("z", 9), ("a", 9)]];
        let (whole, jobs) = seen("both", vec![returned(&step, 2, &rows)]);
        let first = AttemptSpan::new(&step, &[("a", 12), ("z", 500)], 2);
        assert_eq!(whole, [first, AttemptSpan::new(&step, &[("a", 9), ("z", 9)], 1)]);
        assert_eq!(jobs.len(), 3);
    }

    #[test]
    fn reads_with_a_gap_between_them_are_two_spans() {
        let (whole, _) = seen("alone", vec![portion(0, 1, 0, 2), portion(0, 7, 0, 1)]);
        let step = address("alone");
        assert_eq!(
            whole,
            [AttemptSpan::new(&step, &[("p/right", 1)], 2), AttemptSpan::new(&step, &[("p/right", 7)], 1)]
        );
    }
}
