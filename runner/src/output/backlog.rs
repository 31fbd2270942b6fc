//! Backlog summary of a finished run: counts the waiting jobs of each step, and names what holds them.

use std::fmt::Write as _;

use super::lane_command::held_lane;
use super::table::{grouped, jobs, on_one_line};
use crate::query::{Backlog, BlockStatus, StepStatus};
use tidegate_config::{Configuration, GateRef};
use tidegate_model::{Address, suggest};

/// The headline of a run that had nothing to do.
pub(crate) fn headline(configuration: &Configuration, Backlog { steps: left, late }: &Backlog) -> String {
    if left.is_empty() && late.is_empty() {
        let unread = unread_sources(configuration);
        return match &unread[..] {
            [] => "nothing to do: everything is delivered".to_owned(),
            [one] => format!("nothing to do: no step reads the source `{one}`"),
            unread => format!("nothing to do: no step reads the sources {}", listed(unread)),
        };
    }
    if late.is_empty() && left.iter().all(is_unpaired) {
        return "nothing to do: nothing can be delivered".to_owned();
    }
    let mut counts = counts_in_words(left);
    if !late.is_empty() {
        let between = if counts.is_empty() { "" } else { ", " };
        let count: u64 = late.iter().map(|(_, count)| count).sum();
        // Writing to a String cannot fail.
        let _ = write!(counts, "{between}{} due later", grouped(count));
    }
    format!("nothing to do now: {}", if counts.is_empty() { "steps are held" } else { &counts })
}

/// The sources that no step reads.
pub(crate) fn unread_sources(configuration: &Configuration) -> Vec<&Address> {
    let pulled = configuration.sources.iter().map(|source| &source.address);
    let filled = configuration.queues.iter().filter(|queue| queue.source.is_some());
    let sources = pulled.chain(filled.map(|queue| &queue.address));
    sources.filter(|address| !is_read(configuration, address)).collect()
}

/// Whether a step reads jobs from there, as its input or in a lookup table.
pub(crate) fn is_read(configuration: &Configuration, address: &Address) -> bool {
    configuration.steps.iter().flat_map(|step| &step.inputs).any(|input| input.address == *address)
        || configuration.queue_tables().any(|(_, table)| table.queue == *address)
}

fn listed(addresses: &[&Address]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    suggest::listed(addresses.iter().map(String::as_str), "and")
}

/// The backlog of each step and queue, one line each after an empty one.
pub(crate) fn lines(configuration: &Configuration, Backlog { steps, late }: &Backlog) -> String {
    let of_steps = steps.iter().map(|status| line(configuration, status));
    let of_queues = late.iter().map(|(queue, count)| format!("{queue}: {} due later", grouped(*count)));
    let lines: Vec<String> = of_steps.chain(of_queues).collect();
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}

fn line(configuration: &Configuration, status: &StepStatus) -> String {
    if is_unpaired(status) {
        let unpaired = if status.joins { status.jobs_waiting() } else { status.unmatched };
        let count = jobs(unpaired);
        let wait = if unpaired == 1 { "waits" } else { "wait" };
        return format!("{count} on {} {wait} for a partner in {}", status.input, status.step);
    }
    let mut parts = vec![counts_in_words(std::slice::from_ref(status))];
    parts.retain(|part| !part.is_empty());
    if status.paused.is_some() {
        let resume = configuration.command(&format!("step resume {}", status.step));
        parts.push(format!("paused: `{resume}` resumes it"));
    }
    if status.monitor_paused.is_some() {
        let resume = configuration.command(&format!("step resume {} --monitor", status.step));
        parts.push(format!("monitor paused: `{resume}` resumes it"));
    }
    for held in &status.held_lanes {
        parts.push(held_lane(configuration, &status.step, &held.lane, held.halted.is_some()));
    }
    let step = configuration.steps.iter().find(|step| step.address.to_string() == status.step);
    let gate = step.and_then(|step| step.gate);
    let gate = gate.map_or("", |GateRef(gate)| configuration.gates[gate].name.as_str());
    parts.extend(status.closed.as_ref().map(|closed| held(closed, gate)));
    format!("{}: {}", status.step, parts.join(", "))
}

/// A join that waits only for the partners of its jobs.
fn is_unpaired(status: &StepStatus) -> bool {
    let others = status.delayed + status.pending + status.begun;
    let held = status.paused.is_some() || status.closed.is_some();
    let unpaired = if status.joins { status.jobs_waiting() > 0 } else { status.unmatched > 0 };
    let has_others = others > 0 || !status.joins && status.jobs_waiting() > 0;
    unpaired && !has_others && !held
}

/// `6 delayed, 6 pending, 3 waiting`
fn counts_in_words(left: &[StepStatus]) -> String {
    let count = |of: fn(&StepStatus) -> u64| left.iter().map(of).sum::<u64>();
    let counts = [
        (count(|status| status.delayed), "delayed"),
        (count(|status| status.unmatched), "without a partner"),
        (count(|status| status.pending), "pending"),
        (count(|status| status.begun), "begun"),
        (count(StepStatus::jobs_waiting), "waiting"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, state)| format!("{} {state}", grouped(*count))).collect::<Vec<_>>().join(", ")
}

/// Why the step starts nothing.
fn held(closed: &BlockStatus, gate: &str) -> String {
    let why = if closed.why.is_empty() { String::new() } else { format!(": {}", on_one_line(&closed.why)) };
    match &*closed.by {
        "failure" => format!("behind the gate `{gate}`, which cannot be probed{why}"),
        "job" => format!("held by one of its jobs{why}"),
        "setup" => format!("held until it can be set up{why}"),
        _ => format!("behind the gate `{gate}`, which is closed{why}"),
    }
}
