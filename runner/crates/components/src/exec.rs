//! `ExecStep`: runs a command for each job, which the command reads from standard input.
//!
//! The outputs of a job are the JSON values that the command prints on standard output, one per line. An exit
//! code other than 0 is a failed attempt; its reason is the end of standard error. A command runs in a process
//! group of its own. If it exceeds its time or output limit, the whole group is killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_plugin::{Cause, Failure, FailureKind, Job, Outputs};
use tokio::time::Instant;

use self::child::{AwaitedCommand, ChildEnd, EndedCommand, Printed, Running};
use self::process_group::ProcessEnd;
pub use self::running_commands::RunningCommands;
use crate::calls::{Answer, Call, Calls};
use crate::outputs_from_json::outputs_from_json;
use crate::redact::Redactor;
use crate::render::{Encoding, TemplateContext, key, of};
use tidegate_config::ExecCommand;
use tidegate_model::log_target;
use tidegate_model::template::Template;
use tidegate_model::{DeliveryHash, TokenKey, format_duration, format_size};

/// Characters of a command's standard error that a message shows.
const SHOWN: usize = 1000;

/// The settings of a command; borrowed from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ExecSpec<'a> {
    pub pipeline: &'a str,
    pub step: &'a str,
    pub command: &'a ExecCommand,
    /// The timeout of the whole attempt, unless the command has its own.
    pub timeout: Option<Duration>,
    /// Maximum bytes of the outputs of a job.
    pub memory: u64,
    /// The key that signs the tokens of jobs.
    pub token_key: &'a TokenKey,
    /// Kills the command when its outputs are no longer needed.
    pub running_commands: &'a Arc<RunningCommands>,
    /// Awaits the ends of the commands.
    pub calls: &'a Calls,
}

/// Runs commands. Lives on one thread.
#[derive(Debug)]
pub struct ExecStep {
    command: ExecCommand,
    pipeline: String,
    step: String,
    timeout: Option<Duration>,
    memory: u64,
    token_key: TokenKey,
    running_commands: Arc<RunningCommands>,
    calls: Calls,
    scrub: Redactor,
    /// The name of the command in messages.
    named: String,
}

impl ExecStep {
    #[must_use]
    pub fn new(spec: &ExecSpec<'_>) -> Self {
        let mut command = spec.command.clone();
        let named = command.program.file_name().unwrap_or(command.program.as_os_str());
        let named = format!("the command `{}`", named.to_string_lossy());
        // The command runs in another folder, so a relative path would be wrong.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        if command.program.components().count() > 1 {
            command.program = absolute(command.program);
        }
        command.folder = absolute(command.folder);
        let values = command.environment.iter().map(|(_, value)| value);
        let scrub = Redactor::new(command.arguments.iter().chain(values).flat_map(Template::secrets));
        Self {
            timeout: command.timeout.or(spec.timeout),
            memory: spec.memory,
            token_key: spec.token_key.clone(),
            running_commands: Arc::clone(spec.running_commands),
            calls: spec.calls.clone(),
            pipeline: spec.pipeline.to_owned(),
            step: spec.step.to_owned(),
            command,
            scrub,
            named,
        }
    }

    /// Runs the command for `job`, the piece with this number (from 1), and adds the printed values to
    /// `outputs`.
    ///
    /// # Errors
    /// The failure of the attempt.
    pub fn process(&mut self, job: &Job<'_>, piece: u32, outputs: &mut Outputs) -> Result<(), Failure> {
        match self.calls.wait(Call::Command(self.start(job, piece)?))? {
            Answer::Command(ended) => self.take(job, ended, outputs),
            Answer::Http(_) => Ok(()),
        }
    }

    /// Starts the command for `job`, the piece with this number (from 1).
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn start(&self, job: &Job<'_>, piece: u32) -> Result<AwaitedCommand, Failure> {
        let mut command = self.prepared(job, piece)?;
        let until = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let running = Running::start(&mut command, &self.running_commands);
        let running = running
            .map_err(|error| self.failure(FailureKind::Failed, &format!("cannot be started: {error}")))?;
        Ok(AwaitedCommand { running, input: job.payload.to_vec(), until, bytes: self.memory })
    }

    /// Adds the values that the command for `job` has printed to `outputs`.
    ///
    /// # Errors
    /// The failure of the attempt.
    pub fn take(&self, job: &Job<'_>, ended: EndedCommand, outputs: &mut Outputs) -> Result<(), Failure> {
        let EndedCommand { end, printed } = ended;
        let ended =
            end.map_err(|error| self.failure(FailureKind::Failed, &format!("cannot be monitored: {error}")))?;
        if let Some(failure) = self.failed(ended, &printed) {
            return Err(failure);
        }
        self.note(&printed, job.index);
        for (number, line) in (1..).zip(printed.out.split(|byte| *byte == b'\n')) {
            if !line.iter().all(u8::is_ascii_whitespace) {
                let whose = format!("line {number} of the output of {}", self.named);
                outputs_from_json(line, outputs, &whose)?;
            }
        }
        Ok(())
    }

    fn prepared(&self, job: &Job<'_>, piece: u32) -> Result<std::process::Command, Failure> {
        let key = key(job, piece);
        let Self { pipeline, step, token_key, .. } = self;
        let filling = TemplateContext { job, key: &key, pipeline, step, token_key };
        let mut command = std::process::Command::new(&self.command.program);
        command.current_dir(&self.command.folder);
        for argument in &self.command.arguments {
            let text = filling.text(argument, Encoding::Plain).map_err(of("command"))?;
            command.arg(self.sound(text, "an argument")?);
        }
        for (name, value) in &self.command.environment {
            let what = format!("the variable `{name}`");
            let text = filling.text(value, Encoding::Plain).map_err(of(format_args!("env.{name}")))?;
            command.env(name, self.sound(text, &what)?);
        }
        command
            .env("TIDEGATE_HASH", &key)
            .env("TIDEGATE_TOKEN", token_key.token(DeliveryHash(job.hash)))
            .env("TIDEGATE_ATTEMPT", job.attempt.to_string())
            .env("TIDEGATE_INDEX", job.index.to_string())
            .env("TIDEGATE_PIPELINE", &self.pipeline)
            .env("TIDEGATE_STEP", &self.step);
        Ok(command)
    }

    /// A program cannot receive a text with the character 0.
    fn sound(&self, text: String, what: &str) -> Result<String, Failure> {
        if text.contains('\0') {
            let why = format!("cannot receive {what} with the character 0");
            return Err(self.failure(FailureKind::Payload, &why));
        }
        Ok(text)
    }

    fn failed(&self, ended: ChildEnd, printed: &Printed) -> Option<Failure> {
        let stderr = self.stderr(printed);
        let after = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
        let (kind, cause, why) = match ended {
            ChildEnd::Ended(ProcessEnd::Exited(0)) => return None,
            ChildEnd::Ended(ProcessEnd::Exited(code)) => {
                (FailureKind::Failed, Some(Cause::Exit(code)), format!("ended with exit code {code}{after}"))
            }
            ChildEnd::Ended(ProcessEnd::Killed(signal)) => {
                (FailureKind::Failed, None, format!("was killed by signal {signal}{after}"))
            }
            ChildEnd::Late => {
                let timeout = format_duration(self.timeout.unwrap_or_default());
                let why = format!("exceeded its `timeout` of {timeout} and was killed{after}");
                (FailureKind::Failed, Some(Cause::Timeout), why)
            }
            ChildEnd::GivenUp => {
                (FailureKind::Failed, None, format!("was killed, since the run ends{after}"))
            }
            ChildEnd::Large => {
                let most = format_size(self.memory);
                let why = format!("exceeded `limits.memory` ({most}) with its output and was killed{after}");
                (FailureKind::Limit, None, why)
            }
        };
        let mut failure = self.failure(kind, &why);
        failure.cause = cause;
        Some(failure)
    }

    /// The end of its standard error.
    fn stderr(&self, printed: &Printed) -> String {
        printed.errors.text(&self.scrub, SHOWN)
    }

    /// The standard error of a successful command is logged at debug level.
    fn note(&self, printed: &Printed, index: u64) {
        let stderr = self.stderr(printed);
        if !stderr.is_empty() {
            let Self { pipeline, step, .. } = self;
            tracing::debug!(target: log_target::EXEC, pipeline, step, index, "{stderr}");
        }
    }

    fn failure(&self, kind: FailureKind, why: &str) -> Failure {
        Failure::new(kind, format!("{} {}", self.named, self.scrub.clean(why)))
    }
}

pub(crate) mod child;
pub(crate) mod process_group;
pub(crate) mod running_commands;
pub(crate) mod stderr_tail;

#[cfg(test)]
mod tests;
