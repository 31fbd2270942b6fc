//! Gates: track the state of each step's gate, and log its changes.

use tidegate_plugin::{Failure, FailureKind};

use super::Coordinator;
use crate::batch::result::{BatchResult, StartBlock};
use crate::step::probe_health::ProbeKind;
use crate::step::state::StepState;
use crate::step::stats::BlockCause;
use tidegate_config::GateRef;
use tidegate_dispatch::JobOutcome;
use tidegate_model::log_target;
use tidegate_model::{Timestamp, format_duration};

impl Coordinator {
    /// Records the result of a check of the step's gate and returns whether it is open. A failed check counts
    /// as closed.
    pub(crate) fn gate_seen(&mut self, step: usize, seen: Result<bool, Failure>, now: Timestamp) -> bool {
        let Some(StepState { declared, stats, .. }) = self.steps.get(step) else { return false };
        let gate = declared.gate.map(|GateRef(gate)| &declared.configuration().gates[gate].name);
        let gate = gate.map_or("", |name| name.as_str());
        let step = &declared.address;
        let unknown = |failure: &Failure| failure.kind != FailureKind::GateClosed;
        let trouble = seen.as_ref().err().filter(|failure| unknown(failure)).map(Failure::to_string);
        if trouble.is_none() {
            stats.recovered(ProbeKind::Gate);
        }
        stats.answered(ProbeKind::Gate, 0, trouble, now);
        let (by, why) = match seen {
            Ok(true) => {
                if stats.open(|by| matches!(by, BlockCause::Gate | BlockCause::Failure)) {
                    tracing::info!(target: log_target::ENGINE, %step, gate, "the gate is open");
                }
                return true;
            }
            Ok(false) => (BlockCause::Gate, String::new()),
            Err(failure) if failure.kind == FailureKind::GateClosed => (BlockCause::Gate, failure.message),
            Err(failure) => (BlockCause::Failure, failure.to_string()),
        };
        if stats.close(by, why.clone(), now) {
            let why = if why.is_empty() { why } else { format!(": {why}") };
            match by {
                BlockCause::Failure => tracing::warn!(
                    target: log_target::ENGINE,
                    %step, gate, "the check of the gate failed, so the gate counts as closed{why}"
                ),
                BlockCause::Gate | BlockCause::Job | BlockCause::Setup { .. } => {
                    tracing::info!(target: log_target::ENGINE, %step, gate, "the gate is closed{why}");
                }
            }
        }
        false
    }

    /// Records whether a job or a failed setup holds the step back.
    pub(crate) fn note_held(&mut self, step: usize, ran: &BatchResult, now: Timestamp) {
        let Some(StepState { declared, stats, .. }) = self.steps.get(step) else { return };
        let step = &declared.address;
        if let Some(StartBlock { by, why }) = &ran.held {
            if stats.close(*by, why.clone(), now) {
                match by {
                    BlockCause::Setup { until } => {
                        let wait = format_duration(until.since(now));
                        tracing::warn!(target: log_target::ENGINE, %step, "the step is held back, and its setup is retried in {wait}: {why}");
                    }
                    _ => {
                        tracing::info!(target: log_target::ENGINE, %step, "the step is held back by one of its jobs: {why}");
                    }
                }
            }
            return;
        }
        let runs = ran.ends.iter().any(|end| !matches!(end, JobOutcome::Held(_)))
            || ran.ends.is_empty() && ran.taken > 0;
        let goes_on = stats.open(|by| match by {
            BlockCause::Job => runs,
            // Another worker may still run jobs.
            BlockCause::Setup { until } => (runs || ran.taken > 0) && until <= now,
            BlockCause::Gate | BlockCause::Failure => false,
        });
        if goes_on {
            tracing::info!(target: log_target::ENGINE, %step, "the step resumes");
        }
    }
}
