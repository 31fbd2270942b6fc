//! `Ended`: the summary of a finished run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::backlog;
use super::table::{grouped, jobs, on_one_line, rate, table};
use super::terminal::{cut, error_width};
use crate::query::Backlog;
use tidegate_config::{Configuration, Input, QueueRef, SinkKind, SinkRef, Step, Target, shown};
use tidegate_dispatch::RunOutcome;
use tidegate_engine::{Halt, RunReport, Stats, StepStats};
use tidegate_model::log_target;
use tidegate_model::{Address, Counters};

/// Columns of the reason why a step stopped, if no terminal is narrower: the log has the whole reason.
const REASON_MAX: usize = 100;

/// A run that has ended.
#[derive(Clone, Copy)]
pub(crate) struct RunEnd<'r> {
    pub(crate) configuration: &'r Configuration,
    pub(crate) stats: &'r Stats,
    pub(crate) report: &'r RunReport,
    pub(crate) elapsed: Duration,
    /// The steps that still have jobs, if known.
    pub(crate) left: Option<&'r Backlog>,
    /// The errors that the run has put on each error queue, and those of them that are open, where that is known.
    pub(crate) failed: (&'r BTreeMap<usize, u64>, &'r BTreeMap<usize, u64>),
}

impl RunEnd<'_> {
    /// For people.
    pub(crate) fn summary(self) -> String {
        let Self { configuration, stats, report, left, .. } = self;
        let headline = self.headline();
        let left = left.map_or_else(String::new, |left| backlog::lines(configuration, left));
        if self.did_nothing() {
            return format!("{headline}\n{left}");
        }
        let mut text = format!("{headline}\n\n{}", steps(configuration, stats));
        let outputs = self.outputs();
        if !outputs.is_empty() {
            text.push('\n');
            text.push_str(&outputs);
        }
        text.push_str(&left);
        // Writing to a String cannot fail.
        for halt in &report.halts {
            let _ = write!(text, "\n{}\n", stopped(halt));
        }
        if report.abandoned {
            text.push_str(
                "\njobs that ran beyond the shutdown timeout were stopped, and run again in the next run\n",
            );
        }
        text
    }

    /// For programs: a message, and its fields.
    pub(crate) fn record(self) -> (String, Map<String, Value>) {
        let Self { configuration, stats, report, elapsed, left, .. } = self;
        let count = jobs_in(configuration, stats);
        let step = |(step, stats): (&Step, Arc<StepStats>)| {
            let Counters { taken, given, filtered, failed, .. } = stats.counters();
            json!({ "step": step.address, "in": taken, "out": given, "filtered": filtered, "failed": failed })
        };
        let steps: Vec<Value> = stats.of(configuration).map(step).collect();
        let stopped: Vec<Value> =
            report.halts.iter().map(|halt| json!({ "step": halt.step, "why": halt.why })).collect();
        let left = left.map(|left| backlog::lines(configuration, left));
        let left: Option<Vec<&str>> =
            left.as_ref().map(|left| left.lines().filter(|line| !line.is_empty()).collect());
        let fields = [
            ("jobs", json!(count)),
            ("seconds", json!(elapsed.as_secs_f64())),
            ("steps", json!(steps)),
            ("left", json!(left)),
            ("stopped", json!(stopped)),
            ("given_up", json!(report.abandoned)),
        ];
        (self.headline(), fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
    }

    fn did_nothing(self) -> bool {
        let is_idle = |count: Counters| count.taken == 0 && count.given == 0;
        self.report.end == RunOutcome::Drained
            && self.stats.of(self.configuration).all(|(_, step)| is_idle(step.counters()))
    }

    fn headline(self) -> String {
        let Self { configuration, stats, report, elapsed, left, .. } = self;
        if self.did_nothing() {
            let headline = |left| backlog::headline(configuration, left);
            return left.map_or_else(|| "nothing to do now".to_owned(), headline);
        }
        let count = jobs_in(configuration, stats);
        let rate = rate(count, elapsed);
        let how = match report.end {
            RunOutcome::Drained => "done",
            RunOutcome::Stopped => "stopped",
            RunOutcome::Halted
                if report.halts.is_empty() && left.is_some_and(|left| !left.steps.is_empty()) =>
            {
                "ended early, a lane has halted"
            }
            RunOutcome::Halted => "ended early, a step had to stop",
        };
        format!("{how}: {} in {}, {} jobs/s", jobs(count), seconds_text(elapsed), grouped(rate))
    }

    /// The outputs of this run.
    fn outputs(self) -> String {
        let Self { configuration, stats, failed: (failed, open), .. } = self;
        let is_fed = |target: Target| {
            stats.of(configuration).any(|(step, stats)| {
                stats.counters().given > 0 && step.outputs.iter().any(|output| output.target == target)
            })
        };
        let mut text = String::new();
        for (position, sink) in configuration.sinks.entries() {
            let SinkKind::File(file) = &sink.kind else { continue };
            if is_fed(Target::Sink(SinkRef(position))) {
                let path = on_one_line(&shown(&file.path).to_string());
                let _ = writeln!(text, "{} → {path}", sink.address.name);
            }
        }
        for (position, queue) in configuration.queues.entries() {
            if is_fed(Target::Queue(QueueRef(position))) && !backlog::is_read(configuration, &queue.address) {
                let show = configuration.command(&format!("queue show {}", queue.address));
                let _ = writeln!(text, "{} → a queue that no step reads (see `{show}`)", queue.address);
            }
            if let Some(&failed) = failed.get(&position) {
                let errors = errors_on(configuration, &queue.address, failed, open.get(&position).copied());
                let _ = writeln!(text, "{errors}");
            }
        }
        for (step, stats) in stats.of(configuration) {
            let dropped = stats.dropped();
            if dropped > 0 {
                let is = if dropped == 1 { "is" } else { "are" };
                let _ = writeln!(text, "{} of {} failed and {is} dropped", jobs(dropped), step.address);
            }
        }
        text
    }
}

/// Why a step stopped, shortened since the log has the whole reason.
fn stopped(halt: &Halt) -> String {
    // A sink or source that cannot be used stops a step without a job.
    let at = if halt.why.starts_with("job ") { " at" } else { ":" };
    let text = format!("{} stopped{at} {}", halt.step, on_one_line(&halt.why));
    let logged = tracing::enabled!(target: log_target::ENGINE, tracing::Level::ERROR);
    if logged { cut(&text, error_width().unwrap_or(REASON_MAX)) } else { text }
}

/// Jobs from external systems, each counted once; jobs from queues if no step reads a source. Steps with the same
/// sources take the same jobs.
fn jobs_in(configuration: &Configuration, stats: &Stats) -> u64 {
    let is_source = |input: &Input| match input {
        Input::Source(_) => true,
        Input::Queue(QueueRef(queue)) => {
            configuration.queues.get(*queue).is_some_and(|queue| queue.source.is_some())
        }
    };
    let mut by_sources: BTreeMap<Vec<Input>, u64> = BTreeMap::new();
    for (step, stats) in stats.of(configuration) {
        let sources = step.inputs.iter().map(|input| input.input).filter(is_source).collect();
        let taken = by_sources.entry(sources).or_default();
        *taken = stats.counters().taken.max(*taken);
    }
    let from_queues = by_sources.remove(&Vec::new()).unwrap_or(0);
    match by_sources.values().sum() {
        0 => from_queues,
        jobs => jobs,
    }
}

fn steps(configuration: &Configuration, stats: &Stats) -> String {
    let several = configuration.pipelines.len() > 1;
    let rows = stats.of(configuration).map(|(step, stats)| {
        let count = stats.counters();
        let name = if several { step.address.to_string() } else { step.address.name.to_string() };
        let mut row = vec![name];
        row.extend([count.taken, count.given, count.filtered, count.failed].map(grouped));
        row
    });
    table(&["step", "in", "out", "filtered", "failed"], &[1, 2, 3, 4], &rows.collect::<Vec<_>>())
}

/// Number of error records that the run added, by error queue.
pub(crate) fn failed(configuration: &Configuration, stats: &Stats) -> BTreeMap<usize, u64> {
    let mut failed = BTreeMap::new();
    for (step, stats) in stats.of(configuration) {
        let errors = stats.counters().failed.saturating_sub(stats.dropped());
        if let Some(QueueRef(queue)) = step.errors.filter(|_| errors > 0) {
            *failed.entry(queue).or_default() += errors;
        }
    }
    failed
}

/// The errors of a run on one error queue. The number of open ones may have decreased since.
fn errors_on(configuration: &Configuration, queue: &Address, failed: u64, open: Option<u64>) -> String {
    let list = configuration.command("errors list");
    let (failed, open) = (grouped(failed), open.filter(|&open| open < failed));
    match open {
        None => format!("{failed} failed → {queue} (see `{list}`)"),
        Some(0) => format!("{failed} failed → {queue}, none still open"),
        Some(open) => format!("{failed} failed → {queue}, {} still open (see `{list}`)", grouped(open)),
    }
}

fn seconds_text(elapsed: Duration) -> String {
    format!("{:.2} s", elapsed.as_secs_f64())
}
