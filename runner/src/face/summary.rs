//! What a run says at its end.

use std::fmt::Write as _;
use std::time::Duration;

use super::left;
use super::look::StepStatus;
use super::table::{grouped, jobs, rate, table};
use crate::config::{Configuration, SinkKind, Target};
use crate::decide::{Counters, End};
use crate::engine::{Report, Stats};

/// The summary of a run that took `elapsed`, after which `left` still have jobs, where that is known.
pub(super) fn summary(
    configuration: &Configuration,
    stats: &Stats,
    report: &Report,
    (elapsed, left): (Duration, Option<&[StepStatus]>),
) -> String {
    let is_idle = |count: Counters| count.taken == 0 && count.given == 0;
    let nothing = stats.steps.iter().all(|step| is_idle(step.counters()));
    if nothing && report.end == End::Drained {
        let headline = left.map_or_else(|| "nothing to do now".to_owned(), left::headline);
        return format!("{headline}\n{}", left::lines(configuration, left.unwrap_or_default()));
    }
    let mut text = String::new();
    let count = jobs_in(configuration, stats);
    let rate = rate(count, elapsed);
    let how = match report.end {
        End::Drained => "done",
        End::Stopped => "stopped",
        End::Halted => "ended early, a step had to stop",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{how}: {} in {}, {} jobs/s", jobs(count), seconds_text(elapsed), grouped(rate));
    text.push('\n');
    text.push_str(&steps(configuration, stats));
    let outputs = outputs(configuration, stats);
    if !outputs.is_empty() {
        text.push('\n');
        text.push_str(&outputs);
    }
    text.push_str(&left::lines(configuration, left.unwrap_or_default()));
    for halt in &report.halts {
        let _ = write!(text, "\n{} stopped at {}\n", halt.step, halt.why);
    }
    if report.abandoned {
        text.push_str("\nwhat still ran after the shutdown timeout was given up, and runs again next time\n");
    }
    text
}

/// Jobs that came in from outside; from queues where no step reads a source.
fn jobs_in(configuration: &Configuration, stats: &Stats) -> u64 {
    let taken = |from_source: bool| {
        let steps = configuration.steps.iter().zip(&stats.steps);
        let steps = steps.filter(move |(step, _)| step.reads_source() == from_source);
        steps.map(|(_, stats)| stats.counters().taken)
    };
    match taken(true).sum() {
        0 => taken(false).max().unwrap_or(0),
        jobs => jobs,
    }
}

fn steps(configuration: &Configuration, stats: &Stats) -> String {
    let several = configuration.pipelines.len() > 1;
    let rows = configuration.steps.iter().zip(&stats.steps).map(|(step, stats)| {
        let count = stats.counters();
        let name = if several { step.address.to_string() } else { step.address.name.to_string() };
        let mut row = vec![name];
        row.extend([count.taken, count.given, count.filtered, count.failed].map(grouped));
        row
    });
    table(&["step", "in", "out", "filtered", "failed"], &[1, 2, 3, 4], &rows.collect::<Vec<_>>())
}

/// Where the outputs of this run are.
fn outputs(configuration: &Configuration, stats: &Stats) -> String {
    let mut text = String::new();
    for (position, sink) in configuration.sinks.iter().enumerate() {
        let SinkKind::File(file) = &sink.kind else { continue };
        let feeds = configuration.steps.iter().zip(&stats.steps).any(|(step, stats)| {
            stats.counters().given > 0
                && step
                    .outputs
                    .iter()
                    .any(|output| matches!(output.target, Target::Sink(to) if to.0 == position))
        });
        if feeds {
            // `./out` says no more than `out`.
            let path = file.path.strip_prefix(".").unwrap_or(&file.path);
            let _ = writeln!(text, "{} → {}", sink.address.name, path.display());
        }
    }
    for (position, queue) in configuration.queues.iter().enumerate() {
        let failed: u64 = configuration
            .steps
            .iter()
            .zip(&stats.steps)
            .filter(|(step, _)| step.errors.is_some_and(|errors| errors.0 == position))
            .map(|(_, stats)| stats.counters().failed)
            .sum();
        if failed > 0 {
            let _ =
                writeln!(text, "{} failed → {} (see `tidegate errors list`)", grouped(failed), queue.address);
        }
    }
    text
}

fn seconds_text(elapsed: Duration) -> String {
    format!("{:.2} s", elapsed.as_secs_f64())
}
