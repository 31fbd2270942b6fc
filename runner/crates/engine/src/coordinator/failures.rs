//! Failed jobs and attempts: are counted and logged at a limited rate.

use std::time::Duration;

use super::Coordinator;
use tidegate_dispatch::{Ending, Failed, FailedJob, FailureLine, NextAttempt};
use tidegate_model::log_target;
use tidegate_model::{Address, Timestamp, format_duration, rfc3339};

impl Coordinator {
    /// Logs jobs of a step that failed permanently and are committed, and failed attempts of jobs that are tried again.
    pub(crate) fn note_failed(&mut self, step: usize, failed: Vec<Failed>, now: Timestamp) {
        for failed in failed {
            if !matches!(failed.cause.ending, Ending::SetAside | Ending::TriedAgain) {
                self.stats.step(step).add_dropped(failed.jobs);
            }
            if let Some(line) = self.failures.note(step, failed, now) {
                self.log_failures(&line);
            }
        }
    }

    /// Logs the counts of the last minute.
    pub(crate) fn report_failures(&mut self, now: Timestamp) {
        for line in self.failures.tick(now) {
            self.log_failures(&line);
        }
    }

    /// Logs the counts that are left at the end of the run.
    pub(crate) fn report_last_failures(&mut self, now: Timestamp) {
        for line in self.failures.finish(now) {
            self.log_failures(&line);
        }
    }

    fn log_failures(&self, line: &FailureLine) {
        let FailureLine { step, cause, jobs, within, last } = line;
        // The counters of a removed step have its failures.
        let configuration = &self.generation.configuration;
        let Some(step) = configuration.steps.get(*step) else { return };
        let queue = step.errors.map(|queue| &configuration.queues[queue.0].address);
        let (kind, step) = (&cause.kind, &step.address);
        let (is, are) = match (cause.ending, queue) {
            (Ending::TriedAgain, _) => return log_retries(line, step),
            (Ending::SetAside, Some(queue)) => (format!("is on `{queue}`"), format!("are on `{queue}`")),
            (Ending::SetAside, None) => ("is set aside".to_owned(), "are set aside".to_owned()),
            (Ending::DroppedByPolicy, _) => dropped("by its retry policy"),
            (Ending::DroppedByErrors, _) => dropped("by `errors = \"drop\"`"),
            (Ending::DroppedOnce, _) => dropped("by `at-most-once`"),
        };
        let (job, why) = (&last.job, &last.why);
        match within {
            None => {
                tracing::warn!(target: log_target::ENGINE, %step, %kind, "job `{job}` failed and {is}: {why}");
            }
            Some(within) => {
                let more = if *jobs == 1 { "1 more job" } else { &format!("{jobs} more jobs") };
                let are = if *jobs == 1 { is } else { are };
                let within = whole_seconds(*within);
                tracing::warn!(
                    target: log_target::ENGINE,
                    %step, %kind, "{more} of `{step}` failed in the last {within} and {are}; the last, `{job}`: {why}"
                );
            }
        }
    }
}

fn log_retries(FailureLine { cause, jobs, within, last, .. }: &FailureLine, step: &Address) {
    let (kind, FailedJob { job, again, why }) = (&cause.kind, last);
    let next =
        again.map(|NextAttempt { number, due }| format!("attempt {number} is due at {}", rfc3339(due)));
    let next = next.unwrap_or_default();
    match within {
        None => {
            tracing::warn!(target: log_target::ENGINE, %step, %kind, "job `{job}` failed, and {next}: {why}");
        }
        Some(within) => {
            let more = if *jobs == 1 { "1 more attempt" } else { &format!("{jobs} more attempts") };
            let within = whole_seconds(*within);
            tracing::warn!(
                target: log_target::ENGINE,
                %step, %kind,
                "{more} of `{step}` failed in the last {within}, and their jobs are tried again; the last was `{job}`, and {next}: {why}"
            );
        }
    }
}

fn dropped(how: &str) -> (String, String) {
    (format!("is dropped {how}"), format!("are dropped {how}"))
}

/// A duration of at least one second in whole seconds.
fn whole_seconds(time: Duration) -> String {
    let whole = if time.as_secs() > 0 { Duration::from_secs(time.as_secs()) } else { time };
    match whole.as_secs() {
        60 => "minute".to_owned(),
        _ => format_duration(whole),
    }
}
