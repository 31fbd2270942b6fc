//! Files as read: keep the files of a configuration, to find those that have changed on disk. Contents are compared. A
//! file is not read again as long as its stamp is that of a comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_config::{Configuration, FileStamp, Files, Processor, Script, Step, read_text};
use tidegate_model::sync::Mutex;
use tidegate_model::{Address, Name, Timestamp};

/// Settings that all pipelines share.
const SHARED: &str = "tidegate.toml";

/// Texts by path: pipelines, scripts, and imported scripts.
#[derive(Debug, Default)]
pub struct SourceFiles {
    texts: BTreeMap<PathBuf, Arc<str>>,
    /// File of each pipeline. A renamed file that means the same leaves the configuration as it is.
    pipelines: BTreeMap<Name, PathBuf>,
    /// Stamps of files that had these texts.
    same: Mutex<BTreeMap<PathBuf, FileStamp>>,
}

impl SourceFiles {
    /// `files`: texts of the configuration.
    #[must_use]
    pub fn new(configuration: &Configuration, files: &Files) -> Self {
        let texts = files.texts().map(|(path, text)| (path.to_owned(), Arc::clone(text)));
        let pipelines = configuration.pipelines.iter();
        let pipelines = pipelines.map(|pipeline| (pipeline.name.clone(), pipeline.file.clone()));
        Self { texts: texts.collect(), pipelines: pipelines.collect(), same: Mutex::default() }
    }

    /// Whether both have the same files with the same texts.
    pub(crate) fn has_texts_of(&self, other: &Self) -> bool {
        self.texts == other.texts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Files that were read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.texts.keys().map(PathBuf::as_path)
    }

    /// Text of the file with this name, in any folder.
    #[cfg(test)]
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.texts.iter().find(|(path, _)| path.ends_with(name)).map(|(_, text)| &**text)
    }

    /// All texts, by path relative to `root`.
    pub(crate) fn relative(&self, root: &Path) -> Vec<(String, Arc<str>)> {
        let texts = self.texts.iter();
        let texts = texts.map(|(path, text)| {
            let path = path.strip_prefix(root).unwrap_or(path);
            (path.display().to_string(), Arc::clone(text))
        });
        texts.collect()
    }

    /// Recognizes the files that an earlier configuration recognized, and that have the same text in both.
    pub(crate) fn recognize(&self, earlier: &Self) {
        let known = earlier.same.lock().clone();
        let is_same = |path: &PathBuf| earlier.texts.get(path) == self.texts.get(path);
        self.same.lock().extend(known.into_iter().filter(|(path, _)| is_same(path)));
    }

    /// Whether a text on disk differs, or a file was added.
    #[must_use]
    pub(crate) fn differ(&self, configuration: &Configuration, now: Timestamp) -> bool {
        let mut same = self.same.lock();
        let is_other = |(path, text): (&PathBuf, &Arc<str>)| !is_same(path, text, &mut same, now);
        let is_new = |path: &PathBuf| !self.texts.contains_key(path);
        self.texts.iter().any(is_other) || listed(configuration).iter().any(is_new)
    }

    /// Changed files of these steps of the configuration, in order.
    #[must_use]
    pub(crate) fn changed(&self, configuration: &Configuration, steps: &[Address]) -> Vec<PathBuf> {
        let steps = configuration.steps.iter().filter(|step| steps.contains(&step.address));
        let paths: BTreeSet<PathBuf> = steps.flat_map(|step| self.files_of(configuration, step)).collect();
        let is_changed = |path: &PathBuf| {
            self.texts.get(path).is_some_and(|text| !read_text(path).is_ok_and(|found| found == **text))
        };
        paths.into_iter().filter(is_changed).collect()
    }

    /// Files that a step depends on.
    fn files_of(&self, configuration: &Configuration, step: &Step) -> Vec<PathBuf> {
        let mut files = vec![configuration.root.join(SHARED)];
        files.extend(self.pipelines.get(&step.address.pipeline).cloned());
        for script in scripts(configuration, step) {
            files.push(script.path.clone());
            files.extend(script.imports.iter().map(|import| import.path.clone()));
        }
        files
    }
}

/// Whether the file has this text. `same`: stamps of files that had their text, and have rested.
fn is_same(path: &Path, text: &str, same: &mut BTreeMap<PathBuf, FileStamp>, now: Timestamp) -> bool {
    let stamp = FileStamp::of(path);
    if stamp.is_some() && stamp.as_ref() == same.get(path) {
        return true;
    }
    let is_same = read_text(path).is_ok_and(|found| found == text);
    if is_same && let Some(stamp) = stamp.filter(|stamp| stamp.is_settled(now)) {
        same.insert(path.to_owned(), stamp);
    }
    is_same
}

/// Pipelines in the folder of the configuration. For a single pipeline, the settings beside it.
fn listed(configuration: &Configuration) -> Vec<PathBuf> {
    if !configuration.given.config.is_dir() {
        return vec![configuration.root.join(SHARED)].into_iter().filter(|file| file.is_file()).collect();
    }
    let Ok(entries) = fs::read_dir(&configuration.root) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let is_read = |name: &OsString| {
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        Path::new(name).extension().is_some_and(|end| end == "toml") && !is_hidden
    };
    names.filter(is_read).map(|name| configuration.root.join(name)).collect()
}

fn scripts<'c>(configuration: &'c Configuration, step: &'c Step) -> impl Iterator<Item = &'c Script> {
    let asked = configuration.probes(step).flat_map(|probe| &probe.run);
    step.processors.iter().chain(asked).filter_map(Processor::script)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_config::LoadOptions;
    use tidegate_model::{Clock as _, SystemClock};

    use super::*;
    use crate::generation::Generation;

    #[test]
    fn a_renamed_pipeline_file_that_means_the_same_is_compared_under_its_new_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = "[pipeline]\nname = \"p\"\n[source.in]\ntype = \"file\"\npath = \"in\"\n\
                    format = \"lines\"\n[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n[sink.out]\ntype = \"null\"\n";
        fs::write(at("a.toml"), text).unwrap();
        fs::write(at("work.rhai"), "fn process(job) { job }").unwrap();
        let read = || Generation::read(folder.path(), &LoadOptions::default()).unwrap();
        let before = read();
        let step = [Address::parse("p/work").unwrap()];
        fs::rename(at("a.toml"), at("b.toml")).unwrap();
        let after = read();
        assert_eq!(before.digest(), after.digest());
        assert_eq!(after.files.changed(&before.configuration, &step), [] as [PathBuf; 0]);
        fs::write(at("b.toml"), "").unwrap();
        fs::write(at("work.rhai"), "").unwrap();
        assert_eq!(after.files.changed(&before.configuration, &step), [at("b.toml"), at("work.rhai")]);
    }

    #[test]
    fn files_with_another_text_than_before_are_compared_again() {
        let files = |texts: [(&str, &str); 2]| {
            let texts = texts.into_iter().map(|(path, text)| (path.into(), text.into()));
            SourceFiles { texts: texts.collect(), ..SourceFiles::default() }
        };
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        let stamp = FileStamp::of(&folder.path().join("file")).unwrap();
        let (before, after) = (files([("a", "1"), ("b", "1")]), files([("b", "2"), ("a", "1")]));
        before.same.lock().extend([("a".into(), stamp), ("b".into(), stamp)]);
        after.recognize(&before);
        assert!(after.same.lock().keys().eq([Path::new("a")]));
    }

    #[test]
    fn a_text_of_the_same_length_is_another_one_also_right_after_a_comparison() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rhai");
        fs::write(&path, "one").unwrap();
        let now = SystemClock.now();
        let mut same = BTreeMap::new();
        assert!(is_same(&path, "one", &mut same, now) && same.is_empty());
        fs::write(&path, "two").unwrap();
        assert!(!is_same(&path, "one", &mut same, now));
        // A file that has rested is recognized by its stamp, until it is replaced.
        assert!(is_same(&path, "two", &mut same, now + Duration::from_mins(1)) && same.len() == 1);
        assert!(is_same(&path, "not read again", &mut same, now));
        fs::write(folder.path().join("b.rhai"), "one").unwrap();
        fs::rename(folder.path().join("b.rhai"), &path).unwrap();
        assert!(is_same(&path, "one", &mut same, now) && !is_same(&path, "two", &mut same, now));
    }
}
