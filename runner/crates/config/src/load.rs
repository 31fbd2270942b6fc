//! `load`: reads a configuration from disk. It finds the files, reads them all, and checks the whole.
//!
//! It changes nothing: it creates no state and no folder, and opens no port.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::assemble::assemble;
use super::diagnostic::{Diagnostic, Diagnostics, Severity, without_repetitions};
use super::model::{Configuration, Invocation, LogFormat};
use crate::check::catalog::{Catalog, without_namesakes};
use crate::check::file_conflicts;
use crate::check::former_names;
use crate::check::graph::{Graph, loose_ends, mixed_events, never_begin};
use crate::check::joins;
use crate::check::lookups;
use crate::check::push_sources;
use crate::check::resolve::Wiring;
use crate::check::shared;
use crate::check::table_queues;
use crate::check::test_names;
use crate::diagnostic::files::{Lines, TextReadError};
use crate::parse::absolute_path::absolute;
use crate::parse::context::ParseContext;
use crate::parse::interpolate::{Environment, Lookup};
use crate::parse::syntax;
use crate::parse::text_reader::TextReader;
use crate::readings::{Answers, Reading, Readings};
use crate::sections::pipeline;
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::settings;
use crate::sections::settings::SettingsFile;
use crate::sections::shared_tables::SharedTables;
use tidegate_model::Secret;
use tidegate_model::suggest::nearest;

const SETTINGS: &str = "tidegate.toml";
const DATA: &str = ".tidegate";
/// How often a folder is listed if files are added or removed while it is read.
const LISTINGS_MAX: usize = 4;

/// The environment of a configuration besides its files.
pub struct LoadOptions {
    /// `--data`: the data folder, which overrides the files.
    pub data: Option<PathBuf>,
    /// `--plugins`: folders of plugins, after those of the files.
    pub plugins: Vec<PathBuf>,
    /// The environment variables for `${NAME}`.
    pub env: Box<Lookup>,
    /// The files of an earlier configuration, by path relative to its folder. They are read instead of those on
    /// disk; `${file:…}` reads the disk.
    pub recorded: Option<BTreeMap<String, String>>,
    /// A text with a `${…}` that has no value stays as it is written, and this is no error: enough to read state.
    pub keeps_unset: bool,
}

/// The valid part of a configuration, and its diagnostics so far. A higher crate checks the scripts of that
/// part, so that all errors are reported at once.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Without invalid parts.
    configuration: Option<Configuration>,
    pub diagnostics: Diagnostics,
    /// The `${…}` without a value that stay as they are written.
    unset: Vec<Diagnostic>,
}

impl Draft {
    /// Checks the valid part further.
    pub fn check<T: Default>(&mut self, check: impl FnOnce(&Configuration, &mut Diagnostics) -> T) -> T {
        self.configuration.as_ref().map(|valid| check(valid, &mut self.diagnostics)).unwrap_or_default()
    }

    /// The valid part alone, also if the rest has mistakes: enough to find its store and its runner.
    ///
    /// # Errors
    /// The mistakes, if no part can be read.
    pub fn valid_part(self) -> Result<Configuration, Diagnostics> {
        self.configuration.ok_or(self.diagnostics)
    }

    /// The valid part alone, if all its mistakes are texts with a `${…}` that has no value. These are named.
    #[must_use]
    pub fn without_unset(self) -> Option<(Configuration, Vec<String>)> {
        let Self { configuration, diagnostics, unset } = self;
        let follows = |mistake: &Diagnostic| {
            // A template names a part of the text.
            let within = |unset: &Diagnostic| match (&unset.span, &mistake.span) {
                (Some(whole), Some(part)) => whole.start <= part.start && part.end <= whole.end,
                (whole, part) => whole == part,
            };
            unset.iter().any(|unset| unset.file == mistake.file && within(unset))
        };
        let others = diagnostics.iter().any(|one| one.severity == Severity::Error && !follows(one));
        let named: BTreeSet<String> = unset.iter().map(|unset| unset.message.clone()).collect();
        configuration.filter(|_| !others && !named.is_empty()).map(|it| (it, named.into_iter().collect()))
    }

    /// The configuration, with its warnings.
    ///
    /// # Errors
    /// Every error of every file, together with the warnings.
    pub fn finish(self) -> Result<(Configuration, Diagnostics), Diagnostics> {
        match self.configuration {
            Some(configuration) if !self.diagnostics.has_errors() => Ok((configuration, self.diagnostics)),
            _ => Err(self.diagnostics),
        }
    }
}

/// Reads the configuration at `path`: a folder, or the `.toml` file of one pipeline.
#[must_use]
pub fn load(path: &Path, options: &LoadOptions) -> Draft {
    load_again(path, options, &mut Readings::default())
}

/// As [`load`], but files that mean the same as in the last reading are not interpreted again.
#[must_use]
pub fn load_again(path: &Path, options: &LoadOptions, readings: &mut Readings) -> Draft {
    let path: PathBuf = path.components().collect();
    let mut listings = 1..LISTINGS_MAX;
    loop {
        let (draft, is_outdated) = load_listed(&path, options, readings);
        if !is_outdated || listings.next().is_none() {
            return draft;
        }
    }
}

/// Lists the files and reads them. Also returns whether a file was added or removed meanwhile.
fn load_listed(path: &Path, options: &LoadOptions, readings: &mut Readings) -> (Draft, bool) {
    let mut loading = Loading::new(&options.env, readings);
    loading.keeps_unset = options.keeps_unset;
    let found = match &options.recorded {
        Some(recorded) => Some(loading.find_recorded(path, recorded)),
        None => find(path, &mut loading.diagnostics),
    };
    let Some(found) = found else {
        let diagnostics = loading.into_diagnostics(path);
        return (Draft { configuration: None, diagnostics, unset: Vec::new() }, false);
    };
    loading.names_missing = found.pipelines.is_empty();
    // Also one that is missing: it counts as soon as it is there.
    loading.files.seek(found.root.join(SETTINGS));
    let beside = found.settings.as_deref();
    let mut settings = beside.map(|file| loading.settings(file)).unwrap_or_default();
    for file in &found.pipelines {
        if found.single {
            settings = loading.single(file, settings, beside);
        } else {
            loading.pipeline(file);
        }
    }
    loading.readings.retain(&found.pipelines);
    settings.settings.plugins.extend(options.plugins.iter().map(|folder| absolute(folder)));
    let data = options.data.clone().or_else(|| settings.data.clone());
    let data = absolute(&data.unwrap_or_else(|| found.root.join(DATA)));
    let data_is_known = options.data.is_some() || !settings.data_is_unset;
    let configuration = Some(loading.check(found.root, data, settings, found.single));
    let unset = std::mem::take(&mut loading.unset);
    let configuration = configuration.filter(|_| data_is_known);
    // Files that were added or removed meanwhile are a part of one change: half of it may be valid.
    let now = if options.recorded.is_some() { None } else { find(path, &mut Vec::new()) };
    let is_same = now.is_none_or(|now| now.pipelines == found.pipelines && now.settings == found.settings);
    let is_outdated = loading.is_outdated || !is_same;
    (Draft { configuration, diagnostics: loading.into_diagnostics(path), unset }, is_outdated)
}

/// The state of the reading.
struct Loading<'a> {
    env: &'a Lookup,
    readings: &'a mut Readings,
    files: TextReader,
    diagnostics: Vec<Diagnostic>,
    pipelines: Vec<Arc<PipelineDeclaration>>,
    /// The values of all `${…}`.
    inserted: Vec<Secret>,
    /// Some names are invalid, so missing ones cannot be reported.
    names_missing: bool,
    log: LogFormat,
    keeps_unset: bool,
    /// The `${…}` without a value that stay as they are written.
    unset: Vec<Diagnostic>,
    /// A file that was found is not there any more.
    is_outdated: bool,
}

impl<'a> Loading<'a> {
    fn new(env: &'a Lookup, readings: &'a mut Readings) -> Self {
        Self {
            env,
            readings,
            files: TextReader::default(),
            diagnostics: Vec::new(),
            pipelines: Vec::new(),
            inserted: Vec::new(),
            names_missing: false,
            log: LogFormat::Text,
            keeps_unset: false,
            unset: Vec::new(),
            is_outdated: false,
        }
    }

    /// Finds the files among recorded ones, which are read from then on.
    fn find_recorded(&mut self, path: &Path, recorded: &BTreeMap<String, String>) -> Found {
        let single = path.extension().is_some_and(|end| end == "toml");
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let root = if single { parent.unwrap_or(Path::new(".")) } else { path };
        let texts: BTreeMap<PathBuf, String> =
            recorded.iter().map(|(name, text)| (root.join(name), text.clone())).collect();
        let is_own = |file: &&PathBuf| {
            file.parent() == Some(root) && file.extension().is_some_and(|end| end == "toml")
        };
        let settings = Some(root.join(SETTINGS)).filter(|file| texts.contains_key(file));
        let pipelines = texts.keys().filter(is_own).filter(|file| Some(*file) != settings.as_ref());
        let found =
            Found { root: root.to_path_buf(), pipelines: pipelines.cloned().collect(), settings, single };
        self.files = TextReader::recorded(texts);
        found
    }

    fn into_diagnostics(self, subject: &Path) -> Diagnostics {
        let mut diagnostics = Diagnostics::new(subject, self.files.into_files()).logged(self.log);
        diagnostics.extend(self.diagnostics);
        diagnostics
    }

    fn settings(&mut self, file: &Path) -> SettingsFile {
        let settings = self.read(file, settings::read).map(|(settings, _)| settings).unwrap_or_default();
        self.log = settings.log.format;
        settings
    }

    fn pipeline(&mut self, file: &Path) {
        if let Some(reading) = self.readings.take(file, &mut self.files, self.env) {
            self.pipelines.extend(reading.pipelines.iter().cloned());
            self.inserted.extend(reading.inserted.iter().cloned());
            self.readings.insert(file, reading);
            return;
        }
        let inserted = self.inserted.len();
        let Some((pipelines, answers)) = self.read(file, pipeline::read) else { return };
        let pipelines: Vec<_> = pipelines.into_iter().map(Arc::new).collect();
        if let Some(answers) = answers {
            let reading = Reading::new(answers, &pipelines, &self.inserted[inserted..]);
            self.readings.insert(file, reading);
        }
        self.pipelines.extend(pipelines);
    }

    /// The only pipeline, which may hold settings if no `tidegate.toml` is `beside` it.
    fn single(&mut self, file: &Path, settings: SettingsFile, beside: Option<&Path>) -> SettingsFile {
        let Some(((own, pipeline), _)) = self.read(file, pipeline::read_single) else { return settings };
        self.pipelines.extend(pipeline.into_iter().map(Arc::new));
        if let Some(beside) = beside {
            self.diagnostics.extend(settings::refuse_both(&own, &settings, beside));
            return settings;
        }
        self.log = own.log.format;
        own
    }

    /// Reads and parses one file, and passes the tree to `interpret`. Also returns what the file asked for, if its meaning
    /// can be kept.
    fn read<T>(
        &mut self,
        file: &Path,
        interpret: impl FnOnce(&mut ParseContext<'_>, &mut TextReader, &toml::Spanned<toml::de::DeTable<'_>>) -> T,
    ) -> Option<(T, Option<Answers>)> {
        let text = match self.files.read(file) {
            Ok(text) => text,
            Err(error) => {
                // A link without a target is there.
                self.is_outdated |= matches!(error, TextReadError::Missing)
                    && fs::symlink_metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
                self.diagnostics.push(Diagnostic::error(file, None, format!("the file {error}")));
                self.names_missing = true;
                self.files.take_read();
                return None;
            }
        };
        let env = Environment::new(self.env);
        let mut reading = ParseContext::new(Arc::from(file), &text, &env);
        reading.keeps_unset = self.keeps_unset;
        let parsed = syntax::parse(&mut reading, &text);
        let syntax = reading.diagnostics.split_off(0);
        let interpreted = interpret(&mut reading, &mut self.files, &parsed.tree);
        let names_missing = reading.names_missing || !syntax.is_empty();
        let says_nothing =
            reading.diagnostics.is_empty() && reading.doubts.is_empty() && reading.unset.is_empty();
        let is_kept = says_nothing && !names_missing && !reading.depends_on_disk;
        self.names_missing |= names_missing;
        self.inserted.append(&mut reading.secrets);
        self.unset.append(&mut reading.unset);
        for file in std::mem::take(&mut reading.sought) {
            self.files.seek(file);
        }
        if !parsed.garbled {
            let diagnostics = reading.diagnostics.into_iter().chain(reading.doubts).collect();
            self.diagnostics.extend(beyond(diagnostics, &syntax, &reading.lines));
        }
        self.diagnostics.extend(syntax);
        let read = self.files.take_read();
        Some((interpreted, is_kept.then(|| Answers::new(read, env.into_asked()))))
    }

    /// Checks the whole, and assembles it without invalid parts.
    fn check(&mut self, root: PathBuf, data: PathBuf, settings: SettingsFile, single: bool) -> Configuration {
        let count = self.pipelines.len();
        let pipelines = without_namesakes(std::mem::take(&mut self.pipelines), &mut self.diagnostics);
        self.names_missing |= pipelines.len() < count;
        let catalog = Catalog::of(&pipelines, &mut self.diagnostics);
        let before = self.diagnostics.len();
        let wiring = Wiring::of(&pipelines, &settings.shelves, &catalog, &mut self.diagnostics);
        self.names_missing |= self.diagnostics.len() > before;
        let graph = Graph::of(&pipelines, &wiring);
        let cycles = graph.cycles();
        let goes_round = !cycles.is_empty();
        self.diagnostics.extend(cycles);
        self.diagnostics.extend(mixed_events(&wiring));
        self.diagnostics.extend(joins::check(&wiring));
        self.diagnostics.extend(table_queues::check(&pipelines, &wiring));
        self.diagnostics.extend(file_conflicts::check(&pipelines));
        self.diagnostics.extend(push_sources::check(&pipelines, &settings));
        self.diagnostics.extend(former_names::check(&pipelines, &catalog, &wiring));
        self.diagnostics.extend(shared::mistakes(&pipelines, &settings.shelves));
        if !self.names_missing {
            // The pipelines beside a single file are not read, and may use the shared tables.
            let none = SharedTables::default();
            let shelves = if single { &none } else { &settings.shelves };
            self.diagnostics.extend(shared::unused(&pipelines, shelves));
            self.diagnostics.extend(lookups::unused(&pipelines, shelves));
            self.diagnostics.extend(pipelines.iter().filter_map(|pipeline| nothing_to_do(pipeline)));
            self.diagnostics.extend(loose_ends(&catalog, &wiring));
            // A forbidden cycle explains why its joins cannot start.
            if !goes_round {
                self.diagnostics.extend(never_begin(&catalog, &wiring));
            }
        }
        let mut unknown = Vec::new();
        let tests = test_names::resolve(&pipelines, &wiring, &settings.shelves, &mut unknown);
        if !self.names_missing {
            self.diagnostics.extend(unknown);
        }
        if pipelines.windows(2).any(|pair| pair[0].file == pair[1].file) {
            // The instances of a pipeline share the mistakes of their file.
            without_repetitions(&mut self.diagnostics);
        }
        let assembled = assemble(root, data, settings, &pipelines, &wiring, &graph);
        Configuration { tests, inserted: std::mem::take(&mut self.inserted), ..assembled }
    }
}

/// Diagnostics outside of lines with a syntax error, which they would repeat.
fn beyond(
    diagnostics: Vec<Diagnostic>,
    syntax: &[Diagnostic],
    lines: &Lines,
) -> impl Iterator<Item = Diagnostic> {
    let line = |diagnostic: &Diagnostic| diagnostic.span.as_ref().map(|span| lines.line(span.start));
    let wrong: BTreeSet<_> = syntax.iter().filter_map(line).collect();
    let keep: Vec<_> = diagnostics
        .iter()
        .map(|diagnostic| line(diagnostic).is_none_or(|line| !wrong.contains(&line)))
        .collect();
    diagnostics.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(diagnostic, _)| diagnostic)
}

fn nothing_to_do(pipeline: &PipelineDeclaration) -> Option<Diagnostic> {
    let works = !pipeline.steps.is_empty() || pipeline.sinks.iter().any(|sink| !sink.steps.is_empty());
    let message = "the pipeline has no step, and no sink with `from`";
    let help = "add a step: `[step.NAME] from = \"…\"`";
    (!works).then(|| Diagnostic::error(&*pipeline.file, None, message).help(help))
}

/// The files of a configuration.
struct Found {
    root: PathBuf,
    settings: Option<PathBuf>,
    /// In order of name.
    pipelines: Vec<PathBuf>,
    /// The file of a pipeline was named, not the folder.
    single: bool,
}

impl Found {
    /// The file of a pipeline, with the settings beside it.
    fn single(path: &Path, pipelines: Vec<PathBuf>) -> Self {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let root = parent.unwrap_or(Path::new(".")).to_path_buf();
        // A folder of this name has no settings, as in `toml_files`.
        let settings = Some(root.join(SETTINGS)).filter(|file| file.exists() && !file.is_dir());
        Self { root, settings, pipelines, single: true }
    }

    fn empty(folder: &Path) -> Self {
        Self { root: folder.to_path_buf(), settings: None, pipelines: Vec::new(), single: false }
    }
}

fn find(path: &Path, diagnostics: &mut Vec<Diagnostic>) -> Option<Found> {
    let mut refuse = |message: String, help: Option<String>| {
        diagnostics.push(Diagnostic::error(path, None, message).help_if(help));
        None
    };
    let is_toml = path.extension().is_some_and(|ending| ending == "toml");
    match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => {}
        Ok(_) if path.file_name().is_some_and(|name| name == SETTINGS) => {
            let help = "name its folder, or the file of a pipeline";
            return refuse("this file has settings but no pipeline".into(), Some(help.into()));
        }
        Ok(about) if about.is_file() && is_toml => {
            return Some(Found::single(path, vec![path.to_path_buf()]));
        }
        Ok(_) => {
            let help = "name a folder of `.toml` files, or one `.toml` file";
            return refuse("this is not a configuration".into(), Some(help.into()));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let value = path.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let help =
                value.map(|value| format!("write the value of an option with `=`, as in `--lanes={value}`"));
            let help = help.or_else(|| near_path(path));
            let _: Option<Found> = refuse("the file or folder does not exist".into(), help);
            // It may have been deleted beneath a runner, whose store is found all the same.
            return Some(if is_toml { Found::single(path, Vec::new()) } else { Found::empty(path) });
        }
        Err(error) => return refuse(format!("cannot be read: {error}"), None),
    }
    let mut files = match toml_files(path) {
        Ok(files) => files,
        Err(error) => return refuse(format!("the folder cannot be read: {error}"), None),
    };
    let settings = files.iter().position(|file| file.file_name().is_some_and(|name| name == SETTINGS));
    let settings = settings.map(|position| files.remove(position));
    if files.is_empty() {
        // Its files may have been deleted beneath a runner, whose store is found all the same.
        let help = "add a `.toml` file to it; each one except `tidegate.toml` is a pipeline";
        let _: Option<Found> = refuse("the folder has no pipeline".into(), Some(help.into()));
    }
    Some(Found { root: path.to_path_buf(), settings, pipelines: files, single: false })
}

/// The `.toml` files of a folder in order of name. Hidden ones, such as editors leave, are skipped.
fn toml_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = folder.join(entry?.file_name());
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|ending| ending == "toml") && !hidden && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The nearest entry beside `path`.
fn near_path(path: &Path) -> Option<String> {
    let parent = path.parent()?;
    let name = path.file_name()?.to_str()?;
    let entries = std::fs::read_dir(Path::new(".").join(parent)).ok()?;
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let near = nearest(name, names.iter().map(String::as_str))?;
    Some(format!("did you mean `{}`?", parent.join(near).display()))
}

impl Invocation {
    /// The options for reading the configuration again, with the environment of the process.
    #[must_use]
    pub fn options(&self) -> LoadOptions {
        let (data, plugins) = (self.data.clone(), self.plugins.clone());
        LoadOptions { data, plugins, ..LoadOptions::default() }
    }
}

impl Default for LoadOptions {
    /// The environment of the process, without `--data`.
    fn default() -> Self {
        Self {
            data: None,
            plugins: Vec::new(),
            env: Box::new(|name| std::env::var(name).ok()),
            recorded: None,
            keeps_unset: false,
        }
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("data", &self.data)
            .field("plugins", &self.plugins)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPELINE: &str = "[source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n[step.a]\nfrom = \"in\"\nto = \"${TO}\"\n\
         [sink.out]\ntype = \"null\"\n";

    #[test]
    fn a_file_that_is_removed_while_the_folder_is_read_is_no_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let removed = folder.path().join("b.toml");
        fs::write(folder.path().join("a.toml"), PIPELINE).unwrap();
        fs::write(&removed, PIPELINE).unwrap();
        let env = {
            let removed = removed.clone();
            move |_: &str| {
                // The file was listed before, and is read afterwards.
                let _ = fs::remove_file(&removed);
                Some("out".to_owned())
            }
        };
        let options = LoadOptions { env: Box::new(env), ..LoadOptions::default() };
        let (configuration, _) = load(folder.path(), &options).finish().unwrap_or_else(|all| panic!("{all}"));
        assert_eq!(configuration.pipelines.len(), 1);
        // A link without a target is there: another listing would find it again.
        std::os::unix::fs::symlink("nowhere", folder.path().join("c.toml")).unwrap();
        let (draft, is_outdated) = load_listed(folder.path(), &options, &mut Readings::default());
        assert!(draft.finish().is_err() && !is_outdated);
        fs::remove_file(folder.path().join("c.toml")).unwrap();
        // A file that was read before it is removed is no part of the configuration, too.
        fs::rename(folder.path().join("a.toml"), folder.path().join("z.toml")).unwrap();
        fs::write(&removed, PIPELINE.replace("${TO}", "out")).unwrap();
        let (configuration, _) = load(folder.path(), &options).finish().unwrap_or_else(|all| panic!("{all}"));
        assert_eq!(configuration.pipelines.len(), 1);
    }

    #[test]
    fn missing_files_that_are_no_texts_are_sought() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        for (line, missing) in [
            ("command = [\"./gone.sh\"]", "gone.sh"),
            ("command = [\"true\"]\ncwd = \"gone\"", "gone"),
            ("command = [\"${file:secret}\"]", "secret"),
        ] {
            fs::write(&file, format!("[source.in]\ntype = \"exec\"\n{line}\n")).unwrap();
            let draft = load(folder.path(), &LoadOptions::default());
            let missing = folder.path().join(missing);
            assert!(draft.diagnostics.files().sought().any(|sought| sought == missing), "{line}");
        }
    }

    #[test]
    fn the_store_of_a_configuration_that_is_gone_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidegate.toml"), "[runner]\ndata = \"state\"\n").unwrap();
        let gone = load(&folder.path().join("gone.toml"), &LoadOptions::default());
        assert!(gone.diagnostics.has_errors());
        assert_eq!(gone.valid_part().unwrap().data, folder.path().join("state"));
    }
}
