//! Step recovery: reads the state of one step from the store, and opens its sources and sinks.
//!
//! A step starts in this way only: at the start of a run, after a reload that adds or changes it, after a replay,
//! and after a halt.

use std::sync::atomic::AtomicBool;

use super::snapshots::recover;
use super::sources::OpenSources;
use super::start_position;
use crate::batch::join_keys::JoinKeys;
use crate::batch::retry::before;
use crate::commit::committed_state::{CommittedState, CommittedStep};
use crate::commit::sinks::{Positions, Sinks};
use crate::commit::step_events::StepEvents;
use crate::commit::unmatched_jobs::UnmatchedJobs;
use crate::error::EngineError;
use crate::step::claims::{claims_ahead, claims_lot};
use crate::step::declared::DeclaredStep;
use crate::step::held_lanes::held_lanes;
use crate::step::job_attributes::AttributeExtractor;
use tidegate_components::job_log::JobReader;
use tidegate_config::{
    BeginAt, GateRef, Input, InputMode, OutputOrder, PushSource, QueueRef, SourceRef, Target,
};
use tidegate_dispatch::{
    BatchComposition, DurabilityBarrier, Hold, InputKind, InputPlan, QueuePlan, RecoveredBatch, StepPlan,
};
use tidegate_model::Progress;
use tidegate_store::{Changes, ParkedJob, ParkedKey, Store};

/// Maximum number of jobs in a batch of a queued step.
const PICKED_BATCH: usize = 256;
/// The same for jobs that wait for each other: the next batch of a lane starts after the commit of this one.
const ROW_BATCH: usize = 4096;

/// Step that is ready to be installed in the event loop.
#[derive(Debug)]
pub(crate) struct InstalledStep {
    pub(crate) declared: DeclaredStep,
    pub(crate) plan: StepPlan,
    /// Readers of the inputs that are sources, by input.
    pub(crate) readers: Vec<(usize, JobReader)>,
    /// Last index of each input that is a queue, by position of the queue.
    pub(crate) heads: Vec<(usize, u64)>,
    /// Parked jobs, in the order of their due times.
    pub(crate) parked: Vec<(ParkedKey, ParkedJob)>,
    /// An operator has paused it.
    pub(crate) paused: bool,
    /// An operator has paused its monitor.
    pub(crate) monitor_paused: bool,
    /// Held lanes.
    pub(crate) lanes: Vec<(String, Hold)>,
    /// Reasons for which it cannot start: a source or sink cannot be opened.
    pub(crate) halts: Vec<String>,
}

/// Resources from which steps are recovered.
pub(crate) struct StepRecovery<'r> {
    pub(crate) store: &'r Store,
    pub(crate) sources: &'r mut OpenSources,
    pub(crate) sinks: &'r mut Sinks,
    pub(crate) committed: &'r mut CommittedState,
    /// Set by a stop.
    pub(crate) stopped: &'r AtomicBool,
}

/// Jobs of an input that are there, and the step's progress on it.
#[derive(Debug)]
struct RecoveredInput {
    done: Progress,
    /// Progress without the jobs that retention deleted.
    accounted: Progress,
    /// Index of the first available job.
    kept: u64,
    /// Whether the step has taken jobs of the input before.
    known: bool,
    plan: InputPlan,
}

impl StepRecovery<'_> {
    /// Recovers a step. Its progress and other new records are added to `changes`. Returns `None` if the run
    /// was stopped before.
    pub(crate) fn recover(
        &mut self,
        declared: &DeclaredStep,
        changes: &mut Changes,
    ) -> Result<Option<InstalledStep>, EngineError> {
        let (mut inputs, mut readers, mut heads, mut halts) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (position, input) in declared.inputs.iter().enumerate() {
            let recovered = match input.input {
                Input::Source(source) => {
                    let recovered = self.source_input(declared, (position, source), changes)?;
                    let Some((recovered, reader)) = recovered else { return Ok(None) };
                    match reader {
                        Ok(reader) => readers.push((position, reader)),
                        Err(why) => halts.push(why),
                    }
                    recovered
                }
                Input::Queue(queue) => {
                    let (recovered, head) = self.queue_input(declared, (position, queue), changes)?;
                    heads.push((queue.0, head));
                    recovered
                }
            };
            inputs.push(recovered);
        }
        let known: Vec<bool> = inputs.iter().map(|input| input.known).collect();
        let plans: Vec<InputPlan> = inputs.iter().map(|input| input.plan.clone()).collect();
        start_position::warn_of_new_inputs(declared, &known, &plans);
        let redo = self.redo(declared, &mut inputs, changes)?;
        let mut left = Positions::new();
        for output in &declared.outputs {
            if let Target::Sink(sink) = output.target {
                let sink_settings = &declared.configuration().sinks[sink.0];
                halts.extend(self.sinks.prepare(sink, sink_settings, self.store, &mut left)?.err());
            }
        }
        CommittedState::add_sinks(&left, changes);
        let progress: Vec<Progress> = inputs.into_iter().map(|input| input.done).collect();
        let plan = self.plan(declared, plans, progress.first(), redo)?;
        let snapshots = plan.redo.iter().map(|redo| (redo.number, redo.number)).collect();
        let rows = || self.store.all_parked(&declared.address);
        let unmatched =
            JoinKeys::new(declared).map(|keys| UnmatchedJobs::of_rows(&keys, rows())).transpose()?;
        let parked = match plan.picking {
            // They wait in no order, and may be many.
            None if unmatched.is_some() => Vec::new(),
            None if self.store.parked_count(&declared.address)? == 0 => Vec::new(),
            _ => self.store.all_parked(&declared.address).collect::<Result<_, _>>()?,
        };
        let paused = self.store.pauses()?.iter().any(|pause| pause.step == declared.address);
        let monitor_paused = self.store.monitor_pauses()?.iter().any(|pause| pause.step == declared.address);
        let lanes = held_lanes(self.store, declared)?;
        let events = StepEvents::new(declared, &progress, &parked);
        self.committed.install(CommittedStep {
            declared: declared.clone(),
            progress,
            snapshots,
            events,
            unmatched,
        });
        let declared = declared.clone();
        Ok(Some(InstalledStep {
            declared,
            plan,
            readers,
            heads,
            parked,
            paused,
            monitor_paused,
            lanes,
            halts,
        }))
    }

    /// Recovers an input that is a source. The reader is the reason for which there is none, if the source cannot
    /// be opened.
    #[expect(clippy::type_complexity, reason = "an input with its reader")]
    fn source_input(
        &mut self,
        declared: &DeclaredStep,
        (position, SourceRef(source)): (usize, SourceRef),
        changes: &mut Changes,
    ) -> Result<Option<(RecoveredInput, Result<JobReader, String>)>, EngineError> {
        let input = &declared.inputs[position];
        let settings = &declared.configuration().sources[source];
        let stored = self.store.progress(&declared.address, &input.address)?;
        let known = stored.is_some();
        let mut done = stored.unwrap_or_default();
        let log = self.sources.open(source, settings, self.store, self.committed)?;
        let mut unknown = None;
        if declared.begin_at != BeginAt::Oldest && start_position::is_new(self.store, declared, input)? {
            let mut there = Ok((1, 0));
            if let (Ok(log), BeginAt::Newest) = (&log, declared.begin_at) {
                let mark = self.store.mark(&settings.address, u64::MAX)?;
                let Some(end) = start_position::end(log, mark, self.stopped) else { return Ok(None) };
                there = end.map(|end| {
                    self.committed.note_end(source, &end);
                    changes.marks.extend(end.mark.map(|mark| (settings.address.clone(), mark)));
                    let segments = end.segments.into_iter();
                    changes.segments.extend(segments.map(|segment| (settings.address.clone(), segment)));
                    (1, end.last)
                });
            }
            match there {
                Ok(there) => done = begin(declared, position, there, changes),
                Err(why) => unknown = Some(why),
            }
        }
        let next = done.position() + 1;
        let last = self.committed.marks.get(&source).copied().filter(|mark| mark.index <= next);
        let mark = match last {
            Some(last) => Some(last),
            None => self.store.mark(&settings.address, next)?,
        };
        let reader = log.map(|log| start_position::reader(log, &done, next, mark));
        let reader = match unknown {
            Some(why) => Err(why),
            None => reader,
        };
        let plan = InputPlan { feed: InputKind::Source, next, finished: done.finished().to_vec() };
        Ok(Some((RecoveredInput { accounted: done.clone(), done, kept: 1, known, plan }, reader)))
    }

    /// Recovers an input that is a queue. Also returns the last index of the queue.
    fn queue_input(
        &mut self,
        declared: &DeclaredStep,
        (position, QueueRef(queue)): (usize, QueueRef),
        changes: &mut Changes,
    ) -> Result<(RecoveredInput, u64), EngineError> {
        let input = &declared.inputs[position];
        let state = self.store.queue(&input.address)?;
        let (kept, head) = state.map_or((1, 0), |state| (state.first, state.head));
        self.committed.set_head(queue, head);
        let stored = self.store.progress(&declared.address, &input.address)?;
        let known = stored.is_some();
        let mut done = stored.unwrap_or_default();
        if declared.begin_at != BeginAt::Oldest && start_position::is_new(self.store, declared, input)? {
            done = begin(declared, position, (kept, head), changes);
        }
        let accounted = done.clone();
        // A step that is new to a queue starts at the oldest job that is kept.
        if known {
            done.skip_to(kept - 1);
        } else {
            done.start_after(kept - 1);
        }
        let feed = match declared.configuration().queues[queue].source {
            Some(PushSource::Http(_) | PushSource::Schedule(_)) => InputKind::Pushed(queue),
            // While the command may print more, the run expects jobs.
            Some(PushSource::Exec(_)) | None => InputKind::Queue(queue),
        };
        let plan = InputPlan { feed, next: done.position() + 1, finished: done.finished().to_vec() };
        Ok((RecoveredInput { done, accounted, kept, known, plan }, head))
    }

    /// Batches that are begun again, and the counts of jobs that are lost.
    fn redo(
        &self,
        declared: &DeclaredStep,
        inputs: &mut [RecoveredInput],
        changes: &mut Changes,
    ) -> Result<Vec<RecoveredBatch>, EngineError> {
        let accounted: Vec<Progress> = inputs.iter().map(|input| input.accounted.clone()).collect();
        let kept: Vec<u64> = inputs.iter().map(|input| input.kept).collect();
        let (redo, lost) = recover(declared, (&accounted, &kept), self.store, changes)?;
        for (input, jobs) in lost {
            let address = declared.inputs[input].address.clone();
            let input = &mut inputs[input];
            input.accounted.counters.lost += jobs;
            input.done.counters.lost += jobs;
            changes.progress.push((declared.address.clone(), address, input.accounted.clone()));
        }
        Ok(redo)
    }

    fn plan(
        &self,
        declared: &DeclaredStep,
        inputs: Vec<InputPlan>,
        progress: Option<&Progress>,
        redo: Vec<RecoveredBatch>,
    ) -> Result<StepPlan, EngineError> {
        let zips = declared.take == InputMode::Join;
        let gather = if zips { BatchComposition::Zip } else { BatchComposition::Merge };
        let picking = picking(declared, progress);
        // The parked jobs of a queued step are added one by one.
        let due = match picking {
            Some(_) => None,
            None => self.store.next_due(&declared.address, None)?,
        };
        let fills = declared.outputs.iter().filter_map(|output| match output.target {
            Target::Queue(QueueRef(queue)) => Some(queue),
            Target::Sink(_) => None,
        });
        let fills = fills.chain(declared.errors.map(|QueueRef(queue)| queue)).collect();
        let before = before(declared, declared.configuration());
        Ok(StepPlan { gather, inputs, due, picking, before, redo, fills })
    }
}

/// Rules of a queued step; `None` for an ordered step.
pub(crate) fn picking(declared: &DeclaredStep, progress: Option<&Progress>) -> Option<QueuePlan> {
    let (queuer, configuration) = (declared.picks()?, declared.configuration());
    let effects = before(declared, configuration) != DurabilityBarrier::Nothing;
    // Nothing outside sees such a job before its commit.
    let in_a_row = queuer.is_serial() && !effects && !declared.acts_outside();
    Some(QueuePlan {
        rules: AttributeExtractor::new(queuer).rules(),
        in_order: declared.order() == OutputOrder::AsInputs,
        in_a_row,
        ordered: queuer.ordered,
        search_ahead: queuer.max_search_ahead.unwrap_or(0),
        batch: match () {
            () if effects || declared.acts_outside() => 1,
            () if in_a_row => ROW_BATCH,
            () => PICKED_BATCH,
        },
        ahead: claims_ahead(declared),
        lot: claims_lot(declared),
        uses_pool: declared.acts_outside(),
        gate: declared.gate.map(|GateRef(gate)| configuration.gates[gate].inquiry.every),
        progress: progress.cloned().unwrap_or_default(),
    })
}

/// Initial progress on an input that is new to the step, with available jobs from the first to the last.
fn begin(declared: &DeclaredStep, input: usize, there: (u64, u64), changes: &mut Changes) -> Progress {
    let input = &declared.inputs[input];
    let done = start_position::begin(declared, input, there);
    changes.progress.push((declared.address.clone(), input.address.clone(), done.clone()));
    done
}
