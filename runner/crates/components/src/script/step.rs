//! `ScriptStep`: runs a filter and scripts, one after the other, on values in memory.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use rhai::{CallFnOptions, Dynamic, Engine, EvalAltResult, Scope};
use tidegate_plugin::{Failure, FailureKind, Job, Outputs, Payloads, Place, Step};

use super::api::context::ScriptContext;
use super::api::decided::Emit;
use super::api::functions;
use super::attempt::{self, ScriptAttempt};
use super::compile::entry::EntryPoint;
use super::compile::modules;
use super::compile::top::Top;
use super::compile::used_fields::UsedFields;
use super::compile::{self, CompileError, Compiled};
use super::errors::explain;
use super::errors::explain::{Circumstances, Known};
use super::errors::{hints, locate};
use super::filter::Filter;
use super::partial;
use super::partial::PartialJob;
use super::script_tables::ScriptTables;
use super::values::json;
use super::values::json::WriteError;
use super::values::{frozen, type_names};
use crate::attempt_outputs::after_outputs;
use crate::memory;
use tidegate_config::{InputMode, Limits, Script, StepFilter};
use tidegate_model::suggest::{listed, nearest};
use tidegate_model::{Secret, TokenKey, format_size};

/// Maximum time for finding the position of a limit.
const LOCATE_MAX: Duration = Duration::from_secs(1);

/// The same after the `timeout`.
const LOCATE_LATE_MAX: Duration = Duration::from_millis(50);

/// The settings of a script step; borrowed from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ScriptStepSpec<'a> {
    pub pipeline: &'a str,
    pub step: &'a str,
    pub scripts: &'a [Script],
    pub filter: &'a StepFilter,
    pub limits: &'a Limits,
    pub timeout: Option<Duration>,
    pub config: &'a serde_json::Value,
    /// The parts of it that must not be shown.
    pub secrets: &'a [Secret],
    /// The file of the step, for messages about `when`.
    pub file: &'a str,
    /// `alts` and `join`: jobs are maps of the inputs.
    pub take: InputMode,
    pub outlet: ScriptOutlet,
    /// The entry function of the last script; earlier scripts use `process`.
    pub entry: EntryPoint,
    /// The names of the inputs of the step: bindings, or the address for `from`.
    pub inputs: &'a [String],
    /// The parts of its jobs, if they are the tuples of a join by key.
    pub parts: &'a [String],
    /// The bindings of the outputs of the step.
    pub outputs: &'a [&'a str],
    /// The key that signs the tokens of jobs.
    pub token_key: &'a TokenKey,
    /// The tables that `lookup` reads.
    pub tables: &'a ScriptTables,
}

/// The destination of the last script's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptOutlet {
    /// The outputs of the step, by name.
    Named,
    /// The only output of the step, without a name (`to = "name"`); or the step has no output.
    Unnamed,
    /// Another processor, or the caller.
    Next,
}

/// Runs scripts on jobs. Lives on one thread.
#[derive(Debug)]
pub struct ScriptStep {
    scripts: Vec<Loaded>,
    filter: Option<Filter>,
    context: ScriptContext,
    attempt: Rc<ScriptAttempt>,
    timeout: Option<Duration>,
    limits: Limits,
    /// Bytes that the running job may still output.
    room: Cell<u64>,
    file: String,
    take: InputMode,
    outlet: ScriptOutlet,
    entry: EntryPoint,
    /// The parts of a job that the filter and the script use. `None`: jobs are parsed as a whole.
    used: Option<UsedFields>,
    partial: PartialJob,
}

#[derive(Debug)]
struct Loaded {
    /// One engine per script, since `import` is relative to the script.
    engine: Engine,
    compiled: Compiled,
    /// `None`: it runs before each call.
    top: Option<Top>,
    /// For finding positions again; `compiled` is the program that runs.
    source: Script,
    /// Reused for each job.
    scope: Scope<'static>,
}

impl ScriptStep {
    /// Compiles everything for one thread.
    ///
    /// # Errors
    /// The error of the first script that does not compile; `check` has found them all before.
    pub fn new(spec: &ScriptStepSpec<'_>) -> Result<Self, CompileError> {
        let tables_before = frozen::made();
        let config = serde_json::to_vec(spec.config)
            .ok()
            .and_then(|text| json::read(&text).ok())
            .unwrap_or(Dynamic::UNIT);
        let context =
            ScriptContext::new((spec.pipeline, spec.step), config, spec.secrets, spec.token_key, spec.tables)
                .with_ends(spec.inputs, spec.outputs);
        let attempt = ScriptAttempt::with(spec.limits, context.clone());
        let mut scripts = Vec::with_capacity(spec.scripts.len());
        for (position, script) in spec.scripts.iter().enumerate() {
            let last = position + 1 == spec.scripts.len();
            let entry = if last { spec.entry } else { EntryPoint::Process };
            let mut engine = compile::engine(spec.limits, &attempt);
            modules::register_control(&mut engine);
            let compiled = compile::compile(&mut engine, script, entry, &attempt)?;
            let quiet = || compile::engine(spec.limits, &attempt);
            let top = Top::run(&engine, quiet, &attempt, &compiled.ast);
            scripts.push(Loaded { engine, compiled, top, source: script.clone(), scope: Scope::new() });
        }
        if frozen::made() != tables_before {
            for script in scripts.iter_mut().filter(|script| script.compiled.adds) {
                script.engine.set_fast_operators(false);
            }
        }
        let engine = || compile::engine(spec.limits, &attempt);
        // A tuple is filtered as the job of a positional join.
        let (take, inputs) = match spec.parts {
            [] => (spec.take, spec.inputs),
            parts => (InputMode::Join, parts),
        };
        let filter = Filter::compile(engine, spec.filter, take, &attempt)?;
        let used = used_fields(&scripts, filter.as_ref().map(|filter| filter.used(inputs)), spec.entry);
        Ok(Self {
            used,
            partial: PartialJob::default(),
            scripts,
            filter,
            context,
            attempt,
            timeout: spec.timeout,
            limits: *spec.limits,
            room: Cell::new(0),
            file: spec.file.to_owned(),
            take: spec.take,
            outlet: spec.outlet,
            entry: spec.entry,
        })
    }

    /// Begins a batch: its scripts see the present rows of lookup tables until [`Self::end_batch`].
    pub fn begin_batch(&self) {
        self.context.tables().look();
    }

    pub fn end_batch(&self) {
        self.context.tables().release();
    }

    /// `text`: that of the script `file`.
    fn circumstances<'a>(
        &'a self,
        (file, text): (&'a str, &'a str),
        functions: &'a [String],
        first: bool,
        job: &Job<'a>,
    ) -> Circumstances<'a> {
        let (limits, timeout) = (&self.limits, self.timeout);
        let known = Known { text, config: Some(self.context.config()), functions };
        Circumstances { file, limits, timeout, payload: job.payload, first, known }
    }

    /// The sorted names of all callable functions, if `error` is about a name.
    fn functions(&self, error: &EvalAltResult) -> Vec<String> {
        if explain::is_about_a_name(error) { names_of_functions(&self.scripts) } else { Vec::new() }
    }

    fn failure_of_payload(&self, error: &json::ReadError) -> Failure {
        if !error.is_full() {
            return Failure::new(FailureKind::Payload, format!("the job is not JSON: {error}"));
        }
        let most = format_size(self.limits.memory);
        let message = format!("the values of the job exceed `limits.memory` of {most}");
        Failure::new(FailureKind::Limit, message)
    }

    fn failure_of_script(&mut self, position: usize, error: &EvalAltResult, job: &Job<'_>) -> Failure {
        let file = self.scripts[position].source.path.display().to_string();
        let text = &*self.scripts[position].source.text;
        let functions = self.functions(error);
        let circumstances = self.circumstances((&file, text), &functions, position == 0, job);
        let mut failure = explain::failure(error, circumstances);
        if failure.kind == FailureKind::Limit && failure.place.is_none() {
            // An attempt after its timeout must end soon.
            let most = if explain::is_timeout(error) { LOCATE_LATE_MAX } else { LOCATE_MAX };
            let left = self.timeout.map_or(most, |timeout| timeout.min(most));
            // The argument of a later script is gone, so only its beginning can be named.
            let arguments = || {
                let value = json::read(job.payload).ok().filter(|_| position == 0)?;
                Some([value, Dynamic::from(self.context.clone())])
            };
            let script = &mut self.scripts[position];
            let source = (&script.source, script.compiled.entry);
            let found = locate::place(&mut script.engine, source, &arguments, error, (&self.attempt, left));
            failure.place = found.and_then(|position| explain::place(position, file));
        }
        failure
    }

    /// Runs the scripts from `from` on over `value`, and writes the return value of the last one.
    fn run_from(
        &mut self,
        from: usize,
        value: Dynamic,
        job: &Job<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let Some(script) = self.scripts.get_mut(from) else {
            return self.hand_on(&value, outputs);
        };
        let returned = match attempt::run(|| script.call(value, &self.context)) {
            Ok(returned) => returned,
            Err(error) => {
                // A limit may have interrupted Rhai before it restored the scope.
                script.scope.clear();
                return Err(self.failure_of_script(from, &error, job));
            }
        };
        let returned = frozen::into_plain(returned);
        let between = from + 1 < self.scripts.len();
        if between && returned.is_unit() {
            return Ok(());
        }
        if between && returned.is_array() {
            let elements = returned.into_array().unwrap_or_default();
            return elements.into_iter().try_for_each(|element| {
                let element = self.between_scripts(element)?;
                self.run_from(from + 1, element, job, outputs)
            });
        }
        let returned = if between { self.between_scripts(returned)? } else { returned };
        self.run_from(from + 1, returned, job, outputs)
    }

    /// The return value of a script, as the next one gets it.
    fn between_scripts(&self, returned: Dynamic) -> Result<Dynamic, Failure> {
        self.partial.between_scripts(returned).map_err(|error| self.failure_of_payload(&error))
    }

    /// Passes a job that no script handles on: to the next processor as it is, or to every output of the step.
    fn pass_on(&self, payload: &[u8], outputs: &mut Outputs) {
        match (self.outlet, outputs.get_mut(0)) {
            (ScriptOutlet::Next, Some(next)) => next.push(payload),
            _ if self.take == InputMode::Alts => outputs.push_to_all(inner(payload)),
            _ => outputs.push_to_all(payload),
        }
    }

    /// Writes the return value of the last script to its outputs.
    fn hand_on(&self, returned: &Dynamic, outputs: &mut Outputs) -> Result<(), Failure> {
        if let (true, Some(payloads)) = (self.entry.answers(), outputs.get_mut(0)) {
            return self.push_one(returned, payloads);
        }
        if outputs.bindings() == 0 || returned.is_unit() {
            return Ok(());
        }
        if self.outlet != ScriptOutlet::Named {
            return self.push(returned, 0, outputs);
        }
        if partial::is_partial(returned) {
            // The fields of the job are the names of the outputs.
            let whole = self.partial.whole(returned).map_err(|error| self.failure_of_payload(&error))?;
            return self.hand_on(&whole, outputs);
        }
        let Ok(map) = returned.as_map_ref() else {
            let message = format!(
                "the step has several outputs, so the script must return a map of them, not {}; for example `#{{ {}: job }}`",
                type_names::of(returned),
                outputs.names().next().unwrap_or_default()
            );
            return Err(Failure::new(FailureKind::Output, message));
        };
        if let Some(failure) = no_outputs(map.keys().map(AsRef::as_ref), outputs) {
            return Err(failure);
        }
        for (binding, value) in map.iter() {
            let position = binding_position(binding, outputs)?;
            self.push(value, position, outputs)?;
        }
        Ok(())
    }

    /// Writes the jobs of `emit`, in the order of the calls.
    fn hand_on_emitted(&self, outputs: &mut Outputs) -> Result<(), Failure> {
        for Emit { binding, job, due } in self.attempt.take_emitted() {
            let position = binding_position(&binding, outputs)?;
            match due {
                None => self.push(&job, position, outputs)?,
                Some(due) => {
                    if binding.is_empty() && self.outlet == ScriptOutlet::Next {
                        return Err(Failure::new(FailureKind::Output, NO_WAIT.to_owned()));
                    }
                    self.delay(&job, position, due, outputs)?;
                }
            }
        }
        Ok(())
    }

    /// As [`Self::push`], for outputs that wait until `due`.
    fn delay(
        &self,
        value: &Dynamic,
        position: usize,
        due: i64,
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        if value.is_unit() {
            return Ok(());
        }
        let delayed = outputs.delayed_mut();
        let mut one = |value: &Dynamic| {
            let before = delayed.payloads().byte_len();
            let write = |buffer: &mut Vec<u8>| self.partial.write(value, buffer, self.room());
            let pushed = memory::uncounted(|| delayed.push_with(position, due, write));
            pushed.map_err(|error| self.no_output(&error))?;
            self.take_room(delayed.payloads().byte_len() - before)
        };
        let value = &*frozen::plain(value);
        match value.as_array_ref() {
            Ok(elements) => elements.iter().try_for_each(one),
            Err(_) => one(value),
        }
    }

    /// One output, or one per element of an array, or none for `()`.
    fn push(&self, value: &Dynamic, position: usize, outputs: &mut Outputs) -> Result<(), Failure> {
        let Some(payloads) = outputs.get_mut(position) else { return Ok(()) };
        if value.is_unit() {
            return Ok(());
        }
        let value = &*frozen::plain(value);
        match value.as_array_ref() {
            Ok(elements) => elements.iter().try_for_each(|element| self.push_one(element, payloads)),
            Err(_) => self.push_one(value, payloads),
        }
    }

    fn push_one(&self, value: &Dynamic, payloads: &mut Payloads) -> Result<(), Failure> {
        let before = payloads.byte_len();
        let write = |buffer: &mut Vec<u8>| self.partial.write(value, buffer, self.room());
        memory::uncounted(|| payloads.push_with(write)).map_err(|error| self.no_output(&error))?;
        self.take_room(payloads.byte_len() - before)
    }

    /// The bytes that the job may still output.
    fn room(&self) -> usize {
        usize::try_from(self.room.get()).unwrap_or(usize::MAX)
    }

    /// Counts the bytes of an output.
    fn take_room(&self, bytes: usize) -> Result<(), Failure> {
        let left = self.room.get().checked_sub(bytes as u64).ok_or_else(|| self.outputs_too_large())?;
        self.room.set(left);
        Ok(())
    }

    fn outputs_too_large(&self) -> Failure {
        let most = format_size(self.limits.memory);
        let message = format!("the outputs of the job together exceed `limits.memory` of {most}");
        Failure::new(FailureKind::Limit, message)
    }

    fn no_output(&self, error: &WriteError) -> Failure {
        match error {
            WriteError::TooLarge(_) => self.outputs_too_large(),
            WriteError::Unsayable(why) => Failure::new(
                FailureKind::Output,
                format!("the return value of the script is not JSON: {why}"),
            ),
        }
    }
}

impl ScriptStep {
    /// Sets the lane of the next job: `ctx.lane`.
    pub fn set_lane(&self, lane: Option<&str>) {
        self.context.set_lane(lane);
    }

    /// Sets the provenance of the next job, and its index in each input: `ctx.meta` and `ctx.inputs`.
    pub fn set_origin(&self, carried: &str, indices: &[u64]) {
        self.context.set_origin(carried, indices);
    }

    /// As `process`, for an attempt that has only `left` of its `timeout`.
    ///
    /// # Errors
    /// As `process`.
    pub fn process_within(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        left: Option<Duration>,
    ) -> Result<(), Failure> {
        // Dropped last, after everything else of the attempt.
        let _running = self.attempt.begin(left);
        let processed = self.process_now(job, outputs);
        drop(self.attempt.take_emitted());
        processed
    }

    #[cfg(test)]
    pub(crate) fn parse_whole_jobs(&mut self) {
        self.used = None;
    }

    #[cfg(test)]
    pub(crate) fn parses_partial_jobs(&self) -> bool {
        self.used.is_some()
    }

    fn read(&mut self, payload: &[u8]) -> Result<Dynamic, Failure> {
        let partial = self.used.as_ref().and_then(|used| self.partial.read(payload, used));
        match partial {
            Some(value) => Ok(value),
            None => json::read(payload).map_err(|error| self.failure_of_payload(&error)),
        }
    }

    fn process_now(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        let mut value = self.read(job.payload)?;
        self.context.set(job);
        if let Some(filter) = &mut self.filter {
            match filter.passes(value) {
                Ok(Some(passed)) => value = passed,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let functions = self.functions(&error);
                    let circumstances = self.circumstances((&self.file, ""), &functions, true, job);
                    return Err(in_when(explain::failure(&error, circumstances)));
                }
            }
            if self.scripts.is_empty() {
                self.pass_on(job.payload, outputs);
                return Ok(());
            }
        }
        self.room.set(self.limits.memory);
        let ran = self.run_from(0, value, job, outputs);
        functions::log_left_out(&self.context);
        after_outputs(ran, || self.hand_on_emitted(outputs))
    }
}

impl Step for ScriptStep {
    fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        self.process_within(job, outputs, self.timeout)
    }
}

impl Loaded {
    fn call(&mut self, value: Dynamic, context: &ScriptContext) -> Result<Dynamic, Box<EvalAltResult>> {
        let Self { engine, compiled, top, scope, .. } = self;
        if let Some(top) = top {
            let (mut value, mut context) = (value, Dynamic::from(context.clone()));
            let mut arguments = [&mut value, &mut context];
            let count = if compiled.wants_context { 2 } else { 1 };
            return top.call(engine, scope, compiled.entry, &mut arguments[..count]);
        }
        let options = CallFnOptions::new().eval_ast(true).rewind_scope(true);
        if compiled.wants_context {
            let arguments = (value, context.clone());
            engine.call_fn_with_options(options, scope, &compiled.ast, compiled.entry, arguments)
        } else {
            engine.call_fn_with_options(options, scope, &compiled.ast, compiled.entry, (value,))
        }
    }
}

/// The parts of a job that the filter and the scripts use; `None` if that is the whole job. A script behind another one
/// may get the job, so its fields count, too.
fn used_fields(scripts: &[Loaded], filter: Option<UsedFields>, entry: EntryPoint) -> Option<UsedFields> {
    if !scripts.is_empty() && entry != EntryPoint::Process {
        return None;
    }
    let of_scripts = scripts.iter().map(|Loaded { compiled, .. }| {
        UsedFields::of_function(&compiled.ast, compiled.entry, if compiled.wants_context { 2 } else { 1 })
    });
    let mut used = of_scripts.chain(filter).reduce(UsedFields::and)?;
    used.shrink();
    matches!(used, UsedFields::Fields(_)).then_some(used)
}

/// The callable functions of the scripts, by name.
fn names_of_functions(scripts: &[Loaded]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for Loaded { engine, compiled, .. } in scripts {
        names.extend(engine.collect_fn_metadata(None, |info| Some(info.metadata.name.to_string()), true));
        names.extend(compiled.ast.iter_functions().map(|function| function.name.to_owned()));
    }
    names.into_iter().collect()
}

/// Lines and columns of the expression are relative to it, not to its file, so they are part of the message.
fn in_when(mut failure: Failure) -> Failure {
    let at = match failure.place.take() {
        Some(Place { line: 1, column: Some(column), .. }) => format!("in `when`, at column {column}: "),
        Some(Place { line, column: Some(column), .. }) => {
            format!("in `when`, at line {line}, column {column}: ")
        }
        _ => "in `when`: ".to_owned(),
    };
    failure.message.insert_str(0, &at);
    failure
}

/// The one job in a map that the runner wrote around it.
fn inner(wrapped: &[u8]) -> &[u8] {
    let from = memchr::memchr(b':', wrapped).map_or(0, |colon| colon + 1);
    wrapped.get(from..wrapped.len().saturating_sub(1)).unwrap_or(wrapped)
}

/// The error for a map whose keys are no outputs, and resemble none: most likely a job.
fn no_outputs<'a>(keys: impl Iterator<Item = &'a str> + Clone, outputs: &Outputs) -> Option<Failure> {
    let names: Vec<&str> = outputs.names().collect();
    let is_meant = |key: &str| names.contains(&key) || nearest(key, names.iter().copied()).is_some();
    if keys.clone().any(is_meant) {
        return None;
    }
    let mut given: Vec<&str> = keys.take(hints::SHOWN_FIELDS_MAX + 1).collect();
    if given.is_empty() {
        return None;
    }
    let more = if given.len() > hints::SHOWN_FIELDS_MAX { " and more" } else { "" };
    given.truncate(hints::SHOWN_FIELDS_MAX);
    let message = format!(
        "the returned map has no output of the step, but {}{more}: with the outputs {} the script returns a map of them, such as `#{{ {}: job }}`",
        listed(given, "and"),
        listed(names.iter().copied(), "and"),
        names.first().copied().unwrap_or_default()
    );
    Some(Failure::new(FailureKind::Output, message))
}

fn binding_position(binding: &str, outputs: &Outputs) -> Result<usize, Failure> {
    outputs.position(binding).ok_or_else(|| no_output(binding, outputs))
}

const NO_WAIT: &str = "a job cannot wait between two processors: only the last script of a step can delay an output without a name";

fn no_output(binding: &str, outputs: &Outputs) -> Failure {
    let names: Vec<&str> = outputs.names().filter(|name| !name.is_empty()).collect();
    let hint = match nearest(binding, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if outputs.bindings() == 0 => "it has no `to`".to_owned(),
        None if names.is_empty() => "its only output has no name: write `\"\"`".to_owned(),
        None => format!("its outputs are {}", listed(names, "and")),
    };
    let which = if binding.is_empty() { "without a name".to_owned() } else { format!("`{binding}`") };
    Failure::new(FailureKind::Output, format!("the step has no output {which}; {hint}"))
}
