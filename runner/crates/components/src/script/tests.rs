//! Tests of scripts: their inputs, their outputs, and the messages for their authors.

pub(crate) mod answering;
pub(crate) mod at_rest;
pub(crate) mod comparing;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod failing;
pub(crate) mod filtering;
pub(crate) mod hinting;
pub(crate) mod imports;
pub(crate) mod isolation;
pub(crate) mod limits;
pub(crate) mod logging;
pub(crate) mod looking_up;
pub(crate) mod memory;
pub(crate) mod natives;
pub(crate) mod partial;
pub(crate) mod returning;
pub(crate) mod reviewed;
pub(crate) mod tables;
pub(crate) mod time;
pub(crate) mod tops;
pub(crate) mod values;

use std::fmt::Write as _;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_plugin::{Checkpoint, Failure, FailureKind, Job, Outputs, Step as _};

use super::{CompileError, EntryPoint, ScriptOutlet, ScriptStep, ScriptStepSpec, ScriptTables};
use tidegate_config::{ImportedScript, InputMode, Limits, Script, StepFilter};
use tidegate_model::{HashPrefix, TokenKey, format_duration};

/// A step to build, with the default configuration.
struct Draft {
    folder: TempDir,
    scripts: Vec<Script>,
    outputs: Vec<&'static str>,
    filter: StepFilter,
    limits: Limits,
    timeout: Option<Duration>,
    config: serde_json::Value,
    tables: ScriptTables,
    entry: EntryPoint,
    take: InputMode,
}

/// A step of one script, `process.rhai`, with one output.
fn script(text: &str) -> Draft {
    Draft::new().then("process.rhai", text)
}

/// The body of a `fn process(job, ctx)`.
fn body(text: &str) -> Draft {
    script(&format!("fn process(job, ctx) {{ {text} }}"))
}

/// Each body with its result for the job, for a snapshot.
fn shown(job: &str, bodies: &[&str]) -> String {
    let mut text = format!("the job: {job}\n");
    for one in bodies {
        let made = body(one).run(job).replace('\n', "\n    ");
        let _ = write!(text, "\n{one}\n    {made}\n"); // writing to a String cannot fail
    }
    text
}

impl Draft {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            scripts: Vec::new(),
            outputs: vec![""],
            filter: StepFilter::default(),
            limits: Limits::default(),
            timeout: Some(Duration::from_mins(1)),
            config: serde_json::json!({}),
            tables: ScriptTables::default(),
            entry: EntryPoint::Process,
            take: InputMode::From,
        }
    }

    /// Adds another script to the chain.
    fn then(mut self, name: &str, text: &str) -> Self {
        let path = self.write(name, text);
        let named_in = self.folder.path().join("pipeline.toml");
        self.scripts.push(Script { path, text: text.into(), named_in, imports: Vec::new(), named_at: 0..0 });
        self
    }

    /// Adds a file beside the scripts.
    fn beside(self, name: &str, text: &str) -> Self {
        self.write(name, text);
        self
    }

    /// The configuration was read when this file beside the scripts had this text.
    fn read_as(mut self, name: &str, text: &str) -> Self {
        let path = self.folder.path().join(name);
        for script in &mut self.scripts {
            script.imports.push(ImportedScript { path: path.clone(), text: text.into() });
        }
        self
    }

    fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn to(mut self, bindings: &[&'static str]) -> Self {
        self.outputs = bindings.to_vec();
        self
    }

    fn when(mut self, expression: &str) -> Self {
        self.filter.when = Some((expression.to_owned(), 0..0));
        self
    }

    fn try_build(&self) -> Result<ScriptStep, CompileError> {
        let outlet = match self.outputs.iter().all(|binding| binding.is_empty()) {
            _ if self.entry.answers() => ScriptOutlet::Next,
            true => ScriptOutlet::Unnamed,
            false => ScriptOutlet::Named,
        };
        ScriptStep::new(&ScriptStepSpec {
            tables: &self.tables,
            pipeline: "shop",
            step: "price",
            scripts: &self.scripts,
            filter: &self.filter,
            limits: &self.limits,
            timeout: self.timeout,
            config: &self.config,
            secrets: &[],
            file: "shop.toml",
            take: self.take,
            outlet,
            entry: self.entry,
            inputs: &["shop/orders".to_owned()],
            parts: &[],
            outputs: &self.outputs,
            token_key: &TokenKey::NONE,
        })
    }

    /// Runs one job, the seventh, and returns its outcome as text.
    fn run(&self, payload: &str) -> String {
        self.run_all(&[payload])
    }

    /// Runs jobs one after the other through the same step.
    fn run_all(&self, payloads: &[&str]) -> String {
        let mut step = match self.try_build() {
            Ok(step) => step,
            Err(error) => return self.plain(&format!("does not compile: {error:?}")),
        };
        step.begin_batch();
        let mut outputs = Outputs::new(self.outputs.iter().copied());
        let mut checkpoint = Checkpoint::default();
        let mut failures = String::new();
        for (payload, index) in payloads.iter().zip(7..) {
            outputs.mark(&mut checkpoint);
            if let Err(failure) = step.process(&job(index, payload), &mut outputs) {
                outputs.roll_back(&checkpoint);
                let _ = writeln!(failures, "{}", failure_text(&failure)); // writing to a String cannot fail
            }
        }
        self.plain(&format!("{}{failures}", listed(&outputs)))
    }

    /// `text` without the temporary part of paths.
    fn plain(&self, text: &str) -> String {
        let text = text.replace(&format!("{}/", self.folder.path().display()), "");
        without_hashes(text.trim_end())
    }
}

/// Rhai names a closure by a hash that differs in each build.
fn without_hashes(text: &str) -> String {
    let mut parts = text.split("anon$");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str("anon$…");
        plain.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_hexdigit()));
    }
    plain
}

fn job(index: u64, payload: &str) -> Job<'_> {
    let hash = HashPrefix::new("shop", "price", "shop/orders").hash(index).0;
    Job::new(index, payload.as_bytes()).attempted(1, 1_517_363_399_650).hashed(hash)
}

fn failure_text(failure: &Failure) -> String {
    let Failure { kind, message, context, place, .. } = failure;
    let place = place.as_ref().map_or_else(String::new, |place| format!("\n  at {place}"));
    let context = context.as_ref().map_or_else(String::new, |context| format!("\n  with {context}"));
    let delay = match kind {
        FailureKind::RetryIn(delay) => format!(" in {}", format_duration(*delay)),
        _ => String::new(),
    };
    format!("{}{delay}: {message}{place}{context}", kind.as_str())
}

/// One payload per line, after the name of its binding; `nothing` without outputs.
fn listed(outputs: &Outputs) -> String {
    let mut text = String::new();
    for (position, name) in outputs.names().enumerate() {
        for payload in outputs.get(position).unwrap().iter() {
            let payload = String::from_utf8_lossy(payload);
            let arrow = if name.is_empty() { "->" } else { &*format!("-> {name}:") };
            let _ = writeln!(text, "{arrow} {payload}"); // writing to a String cannot fail
        }
    }
    for (position, due, payload) in outputs.delayed().iter() {
        let name = outputs.names().nth(position).unwrap();
        let (payload, due) =
            (String::from_utf8_lossy(payload), jiff::Timestamp::from_millisecond(due).unwrap());
        let _ = writeln!(text, "-> {name} at {due}: {payload}"); // writing to a String cannot fail
    }
    if text.is_empty() { "nothing\n".to_owned() } else { text }
}
