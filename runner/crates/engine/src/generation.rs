//! Generation: loads one immutable, checked configuration with its scripts and plugins.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use self::current::NumberedGeneration;
use self::source_files::SourceFiles;
use crate::error::EngineError;
use crate::load_plugins;
use crate::recovery::source_kinds;
use crate::runtime::priority::beside_jobs;
use tidegate_components::plugin::Plugins;
use tidegate_components::script;
use tidegate_components::script::{CompileError, EntryPoint, Mentions, NamedTable};
use tidegate_config::{
    AcceptScript, Configuration, ConfigurationDigest, Diagnostic, Diagnostics, Draft, Files, HttpSource,
    Invocation, Limits, LoadOptions, LookupTables, Position, ProbeConfig, Processor, Queue, Readings,
    RequestSchema, Script, SourceSpan, Step, read_text,
};
use tidegate_model::{Address, Name};
use tidegate_store::{ReadError, Store, Trigger};

/// Checked configuration, with scripts that compile and plugins that are loaded.
#[derive(Clone, Debug)]
pub struct Generation {
    pub configuration: Arc<Configuration>,
    /// Libraries of the configuration's plugins.
    pub plugins: Arc<Plugins>,
    /// Files that the configuration was read from.
    pub files: Arc<SourceFiles>,
    /// Warnings: the configuration runs, but its author should read them.
    pub warnings: Diagnostics,
    /// Worked out once, on first use.
    digest: Arc<OnceLock<Arc<ConfigurationDigest>>>,
}

impl Generation {
    /// Reads and checks all that a run needs, without touching any state. Plugins are loaded, so their code
    /// runs.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, Diagnostics> {
        let draft = Self::draft(path, options, &mut Readings::default());
        Self::of(draft, Self::given(path, options), true)
    }

    /// Reads the configuration of the generation `current` again. Files that mean the same as in the last load are not
    /// interpreted. After a save this yields to jobs. Otherwise, an operator waits for it.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub fn load_again(
        current: &NumberedGeneration,
        readings: &mut Readings,
        trigger: Trigger,
    ) -> Result<Self, Diagnostics> {
        let given = &current.configuration.given;
        let options = given.options();
        let yields = trigger == Trigger::Watch;
        let draft = yields.then(|| beside_jobs(|| Self::draft(&given.config, &options, readings)).ok());
        // Without a further thread it is done here.
        let draft = draft.flatten().unwrap_or_else(|| Self::draft(&given.config, &options, readings));
        // Plugins may start threads, which would yield, too.
        let next = Self::of(draft, given.clone(), true)?;
        if yields {
            // Otherwise it is worked out on first use.
            let _ = beside_jobs(|| next.digest_like(&current.digest));
        }
        Ok(next)
    }

    /// Reads and checks the configuration without its plugins: enough to inspect state.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub fn read(path: &Path, options: &LoadOptions) -> Result<Self, Diagnostics> {
        let draft = Self::draft(path, options, &mut Readings::default());
        Self::of(draft, Self::given(path, options), false)
    }

    /// A generation that was carried out.
    pub(crate) fn of_current(current: &NumberedGeneration) -> Self {
        let NumberedGeneration { configuration, plugins, files, .. } = current;
        let (plugins, files) = (Arc::clone(plugins), Arc::clone(files));
        Self { plugins, files, ..Self::from(Arc::clone(configuration)) }
    }

    /// The reasons for which a start on this store would be refused.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn refused_at_start(&self, store: &Store) -> Result<Vec<EngineError>, ReadError> {
        let renamed = renames::of(&self.configuration, None, store)?;
        let mut refused: Vec<EngineError> =
            renames::repeated(&renamed, store)?.into_iter().map(EngineError::from).collect();
        let changed = source_kinds::changed_framings(&self.configuration, None, &renamed, store)?;
        refused.extend(changed.into_iter().map(EngineError::from));
        Ok(refused)
    }

    /// The digests of all parts.
    #[must_use]
    pub fn digest(&self) -> &Arc<ConfigurationDigest> {
        self.digest.get_or_init(|| Arc::new(self.configuration.digest()))
    }

    /// The digests of all parts, shared with an earlier generation where they are the same.
    #[must_use]
    pub fn digest_like(&self, earlier: &ConfigurationDigest) -> &Arc<ConfigurationDigest> {
        self.digest.get_or_init(|| Arc::new(self.configuration.digest_like(earlier)))
    }

    /// SHA-256 of its plugins, by name.
    #[must_use]
    pub fn plugin_hashes(&self) -> BTreeMap<String, String> {
        history::plugins(&self.configuration)
    }

    /// Reads the valid part of the configuration, also if the rest has mistakes: enough to find its store and its
    /// runner.
    ///
    /// # Errors
    /// The mistakes, if no part can be read.
    pub fn valid_part(path: &Path, options: &LoadOptions) -> Result<Configuration, Diagnostics> {
        let mut configuration = tidegate_config::load(path, options).valid_part()?;
        configuration.given = Self::given(path, options);
        Ok(configuration)
    }

    /// Reads the configuration although a `${…}` has no value: enough to read state. Also returns which ones. `None`: it
    /// has other mistakes.
    #[must_use]
    pub fn without_unset(path: &Path, options: LoadOptions) -> Option<(Configuration, Vec<String>)> {
        let options = LoadOptions { keeps_unset: true, ..options };
        let (mut configuration, unset) = tidegate_config::load(path, &options).without_unset()?;
        configuration.given = Self::given(path, &options);
        Some((configuration, unset))
    }

    fn given(path: &Path, options: &LoadOptions) -> Invocation {
        Invocation { config: path.to_owned(), data: options.data.clone(), plugins: options.plugins.clone() }
    }

    fn draft(path: &Path, options: &LoadOptions, readings: &mut Readings) -> Draft {
        let mut draft = tidegate_config::load_again(path, options, readings);
        draft.check(|configuration, diagnostics| {
            let has_port = configuration.settings.listen.is_some();
            for step in &configuration.steps {
                check_step(step, has_port, diagnostics);
            }
            for source in configuration.queues.iter().filter_map(Queue::http_source) {
                check_schema(source, diagnostics);
                if let Some(AcceptScript { script, limits, .. }) = source.accept.as_deref() {
                    check_script(script, limits, EntryPoint::Accept, &LookupTables::new(), diagnostics);
                }
            }
            for gate in &configuration.gates {
                check_inquiry(&gate.inquiry, EntryPoint::Open, diagnostics);
            }
        });
        draft
    }

    fn of(mut draft: Draft, given: Invocation, with_plugins: bool) -> Result<Self, Diagnostics> {
        let loaded = if with_plugins { draft.check(load_plugins::load) } else { Plugins::default() };
        let files = draft.diagnostics.files().clone();
        let (mut configuration, mut warnings) = draft.finish()?;
        load_plugins::note(&mut configuration, &loaded);
        // Without the plugins it is unknown which steps have external effects.
        if with_plugins {
            tidegate_config::check_order(&configuration, &mut warnings);
        }
        if warnings.has_errors() {
            return Err(warnings);
        }
        configuration.given = given;
        let files = Arc::new(SourceFiles::new(&configuration, &files));
        let (plugins, digest) = (Arc::new(loaded), Arc::default());
        Ok(Self { configuration: Arc::new(configuration), plugins, files, warnings, digest })
    }
}

/// A generation without plugins, and without files that it was read from.
impl From<Arc<Configuration>> for Generation {
    fn from(configuration: Arc<Configuration>) -> Self {
        let warnings = Diagnostics::new(&configuration.root, Files::default());
        let (plugins, files, digest) = (Arc::default(), Arc::default(), Arc::default());
        Self { configuration, plugins, files, warnings, digest }
    }
}

fn check_step(step: &Step, has_port: bool, diagnostics: &mut Diagnostics) {
    let mut pending = None;
    let mut token = step.processors.iter().any(Processor::passes_token);
    for script in step.processors.iter().filter_map(Processor::script) {
        let mentions = check_script(script, &step.limits, EntryPoint::Process, &step.tables, diagnostics);
        pending = pending.or(mentions.pending.map(|place| (script, place)));
        token |= mentions.token;
    }
    if let (Some((script, place)), None) = (pending, &step.monitor)
        && !(token && has_port)
    {
        let doubt = never_finished(step, (script, place), token, diagnostics);
        diagnostics.push(doubt);
    }
    if let Some(monitor) = &step.monitor {
        check_inquiry(&monitor.inquiry, EntryPoint::Status, diagnostics);
    }
    if let Some((text, span)) = &step.filter.when {
        let errors = match script::check_expression(text, &step.limits) {
            Ok(named) => unknown_tables(&named, &step.tables),
            Err(error) => {
                let message = format!("the expression of `when` does not compile: {}", error.message);
                vec![CompileError { message, ..error }]
            }
        };
        for error in errors {
            let span = in_expression(text, span, &error);
            diagnostics.push(Diagnostic::error(&step.file, span, error.message).help_if(error.help));
        }
    }
}

/// Warning for a step whose pending jobs cannot be completed by their external system. `token`: the step
/// passes the token, and only the HTTP port is missing.
fn never_finished(
    step: &Step,
    (script, (line, column)): (&Script, (usize, usize)),
    token: bool,
    diagnostics: &mut Diagnostics,
) -> Diagnostic {
    let Address { name, .. } = &step.address;
    let monitor = format!("give the step a monitor, `[step.{name}.monitor]`");
    let (lacks, help) = if token {
        let open = "or open the port: `[runner] listen = \"127.0.0.1:8484\"`";
        ("no port is open on which an external system could complete them", format!("{monitor}, {open}"))
    } else {
        let pass = "or pass `ctx.token` to the external system, which completes the job with it";
        ("it passes no `ctx.token` to an external system", format!("{monitor}, {pass}"))
    };
    diagnostics.add_file(&script.path, Arc::clone(&script.text));
    let span = diagnostics.files().span_at(&script.path, Position { line, column });
    let message = format!("jobs of the step `{name}` stay pending: it has no monitor, and {lacks}");
    let named = SourceSpan { file: script.named_in.as_path().into(), span: script.named_at.clone() };
    Diagnostic::warning(&*script.path, span, message).related(named, "named here").help(help)
}

/// Checks the schema of an HTTP source.
fn check_schema(source: &HttpSource, diagnostics: &mut Diagnostics) {
    let Some(schema) = &source.schema else { return };
    let Err(error) = RequestSchema::compile(&schema.text) else { return };
    let place = error.place.map(|(line, column)| Position { line, column: column.max(1) });
    let span = place.and_then(|place| diagnostics.files().span_at(&schema.path, place));
    let named = SourceSpan { file: schema.named_in.as_path().into(), span: schema.named_at.clone() };
    let diagnostic = Diagnostic::error(&*schema.path, span, error.message).related(named, "named here");
    diagnostics.push(diagnostic.help_if(error.help.map(str::to_owned)));
}

/// Checks a gate or monitor: its last processor gives the answer.
fn check_inquiry(inquiry: &ProbeConfig, entry: EntryPoint, diagnostics: &mut Diagnostics) {
    let last = inquiry.run.len().saturating_sub(1);
    for (position, processor) in inquiry.run.iter().enumerate() {
        let entry = if position == last { entry } else { EntryPoint::Process };
        if let Some(script) = processor.script() {
            check_script(script, &Limits::default(), entry, &inquiry.tables, diagnostics);
        }
    }
}

/// Checks a script and returns the functions that it uses, or no functions if it does not compile.
fn check_script(
    script: &Script,
    limits: &Limits,
    entry: EntryPoint,
    tables: &LookupTables,
    diagnostics: &mut Diagnostics,
) -> Mentions {
    match script::check_script(script, limits, entry) {
        Ok(mentions) => {
            for mut error in unknown_tables(&mentions.tables, tables) {
                if entry == EntryPoint::Accept {
                    // To declare the table would not help.
                    "an `accept` script has no tables".clone_into(&mut error.message);
                    error.help = Some(
                        "decide by the job alone, or look the row up in a step behind the source".to_owned(),
                    );
                }
                let diagnostic = in_script(script, &error, diagnostics);
                diagnostics.push(diagnostic);
            }
            mentions
        }
        Err(error) => {
            let diagnostic = in_script(script, &error, diagnostics);
            diagnostics.push(diagnostic);
            Mentions::default()
        }
    }
}

/// Position in the file of a mistake in the expression at `span`. It is the whole span if the file has the
/// expression in another form, with escapes or `${…}`.
fn in_expression(text: &str, span: &Range<usize>, error: &CompileError) -> Range<usize> {
    let (Some(line), Some(column)) = (error.line, error.column) else { return span.clone() };
    if span.len() != text.len() {
        return span.clone();
    }
    let line_start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = text.get(line_start..).unwrap_or_default();
    match rest.char_indices().nth(column - 1) {
        Some((at, char)) => {
            let start = span.start + line_start + at;
            start..start + char.len_utf8()
        }
        // At the end of the expression the last character is marked.
        None => span.end - text.chars().next_back().map_or(0, char::len_utf8)..span.end,
    }
}

/// An error for each of the `named` tables that is unknown.
fn unknown_tables(named: &[NamedTable], tables: &LookupTables) -> Vec<CompileError> {
    let is_known = |name: &str| tables.keys().any(|other| other.as_str() == name);
    let unknown = named.iter().filter(|table| !is_known(&table.name));
    unknown
        .map(|NamedTable { name, line, column }| {
            let (message, help) = script::unknown_table(name, tables.keys().map(Name::as_str));
            let (line, column) = (Some(*line), Some(*column));
            CompileError { file: None, line, column, message, help: Some(help) }
        })
        .collect()
}

fn in_script(script: &Script, error: &CompileError, diagnostics: &mut Diagnostics) -> Diagnostic {
    let file = error.file.as_ref().map_or_else(|| script.path.clone(), Into::into);
    if file == script.path {
        diagnostics.add_file(&file, Arc::clone(&script.text));
    } else if let Ok(text) = read_text(&file) {
        diagnostics.add_file(&file, text);
    }
    let position = error.line.map(|line| Position { line, column: error.column.unwrap_or(1) });
    let span = position.and_then(|position| diagnostics.files().span_at(&file, position));
    let named = SourceSpan { file: script.named_in.as_path().into(), span: script.named_at.clone() };
    Diagnostic::error(file, span, error.message.clone())
        .related(named, "named here")
        .help_if(error.help.clone())
}

pub(crate) mod bindings;
pub(crate) mod current;
pub(crate) mod earlier;
pub(crate) mod history;
pub(crate) mod obstacles;
pub(crate) mod renames;
pub(crate) mod resumed;
pub(crate) mod source_files;
pub(crate) mod step_changes;
pub(crate) mod trial;

#[cfg(test)]
mod tests;
