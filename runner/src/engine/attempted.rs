//! What stands between the jobs of a batch and the file of attempts: names them there, and sets aside
//! those that took the process down too often.

use tidegate_plugin::{Failure, FailureKind};

use super::gather::{Gatherer, Item, Walk};
use super::held::Work;
use crate::store::{Pace, Slot, Span, Verdict};
use crate::words::Address;

/// Watches over the attempts of one batch, as long as it lives.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    step: &'a Address,
    /// `None` where nothing is attempted twice, so that nobody has to know.
    pace: Option<Pace<'a>>,
    /// Jobs that may still be suspects, and are none any more when they are delivered.
    taken: Vec<Span>,
}

impl<'a> Watch<'a> {
    /// `crash_limit` is `None` where a job that took the process down is not attempted again anyway.
    pub(super) fn begin(
        slot: &'a mut Slot,
        step: &'a Address,
        gatherer: &mut Gatherer,
        work: &Work,
        crash_limit: Option<u32>,
    ) -> Self {
        let pace = crash_limit.map(|limit| slot.begin(&spans(step, gatherer, work), limit));
        Self { step, pace, taken: Vec::new() }
    }

    /// Attempts a job with `run`, unless it is set aside.
    pub(super) fn attempt(
        &mut self,
        item: &Item<'_>,
        run: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(Pace::OneByOne(careful)) = &mut self.pace else { return run() };
        match careful.attempt(&job(self.step, item)) {
            Verdict::Run(_attempt) => run(),
            Verdict::SetAside { crashes } => Err(crashed(crashes)),
        }
    }

    /// A job is accounted for by the delivery of this batch.
    pub(super) fn take(&mut self, item: &Item<'_>) {
        if let Some(Pace::OneByOne(_)) = self.pace {
            self.taken.push(job(self.step, item));
        }
    }

    /// A job halts the step. One that was set aside is attempted again in the next run: until then
    /// somebody has mended what it needs.
    pub(super) fn halt(&self, item: &Item<'_>, failure: &Failure) {
        if let (Some(Pace::OneByOne(careful)), FailureKind::Crashed) = (&self.pace, failure.kind) {
            careful.forget(&job(self.step, item));
        }
    }

    /// What is settled when the batch is delivered.
    pub(super) fn finish(self) -> Vec<Span> {
        self.taken
    }
}

fn crashed(crashes: u32) -> Failure {
    let often = if crashes == 1 { String::new() } else { format!(" {crashes} times in a row") };
    let message =
        format!("the process died{often} while this job was attempted, so it is not attempted any more");
    Failure::new(FailureKind::Crashed, message)
}

fn job(step: &Address, item: &Item<'_>) -> Span {
    let row: Vec<_> = item.given().map(|(seen, index)| (seen.name.as_str(), index)).collect();
    Span::new(step, &row, 1)
}

/// The jobs of a batch: one span, but where jobs came again.
fn spans(step: &Address, gatherer: &mut Gatherer, work: &Work) -> Vec<Span> {
    if let Some(span) = contiguous(step, gatherer, work) {
        return vec![span];
    }
    let mut spans: Vec<Span> = Vec::new();
    let mut walk = Walk::new(work);
    while let Some(item) = gatherer.next(&mut walk, false) {
        let job = job(step, &item);
        if !spans.last_mut().is_some_and(|last| last.extend(&job)) {
            spans.push(job);
        }
    }
    spans
}

/// The jobs of a batch whose indices move on together on all inputs.
fn contiguous(step: &Address, gatherer: &Gatherer, work: &Work) -> Option<Span> {
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
            _ => row.push((gatherer.inputs.get(portion.input)?.name.as_str(), first)),
        }
        next = Some((portion.input, first + portion.jobs as u64));
    }
    Some(Span::new(step, &row, work.jobs as u64))
}
