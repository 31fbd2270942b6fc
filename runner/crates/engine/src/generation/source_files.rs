//! Files as read: keep the files of a configuration, to find those that have changed on disk. Contents are
//! compared, not times.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tidegate_config::{Configuration, Files, GateRef, Processor, Script, Step, read_text};
use tidegate_model::Address;

/// Settings that all pipelines share.
const SHARED: &str = "tidegate.toml";

/// Texts by path: pipelines, scripts, and imported scripts.
#[derive(Debug, Default)]
pub struct SourceFiles {
    texts: BTreeMap<PathBuf, String>,
    /// Files that each step depends on.
    steps: BTreeMap<Address, BTreeSet<PathBuf>>,
}

impl SourceFiles {
    /// `files`: texts of the configuration. Imported scripts are read from disk.
    #[must_use]
    pub fn new(configuration: &Configuration, files: &Files) -> Self {
        let mut all = Self::default();
        for step in &configuration.steps {
            let mut paths = BTreeSet::new();
            for path in [step.file.clone(), configuration.root.join(SHARED)] {
                if let Some(text) = files.get(&path) {
                    all.texts.insert(path.clone(), text.to_owned());
                    paths.insert(path);
                }
            }
            for script in scripts(configuration, step) {
                all.texts.insert(script.path.clone(), script.text.clone());
                paths.insert(script.path.clone());
                all.add_imports(&script.path, &script.text, &mut paths);
            }
            all.steps.insert(step.address.clone(), paths);
        }
        all
    }

    /// Changed files of these steps, in order.
    #[must_use]
    pub fn changed(&self, steps: &[Address]) -> Vec<PathBuf> {
        let paths: BTreeSet<&PathBuf> =
            steps.iter().filter_map(|step| self.steps.get(step)).flatten().collect();
        let is_same = |path: &PathBuf| read_text(path).ok().as_ref() == self.texts.get(path);
        paths.into_iter().filter(|path| !is_same(path)).cloned().collect()
    }

    /// Adds the imports of a script, direct and indirect.
    fn add_imports(&mut self, script: &Path, text: &str, paths: &mut BTreeSet<PathBuf>) {
        for name in imports(text) {
            let mut file = script.with_file_name(name).into_os_string();
            file.push(".rhai");
            let path = PathBuf::from(file);
            let Some(text) = read_text(&path).ok().filter(|_| paths.insert(path.clone())) else {
                continue;
            };
            self.add_imports(&path, &text, paths);
            self.texts.insert(path, text);
        }
    }
}

fn scripts<'c>(configuration: &'c Configuration, step: &'c Step) -> impl Iterator<Item = &'c Script> {
    let gate = step.gate.map(|GateRef(gate)| &configuration.gates[gate].inquiry);
    let monitor = step.monitor.as_ref().map(|monitor| &monitor.inquiry);
    let asked = gate.into_iter().chain(monitor).flat_map(|inquiry| &inquiry.run);
    step.processors.iter().chain(asked).filter_map(Processor::script)
}

/// Names in `import "name"`. An import in a comment counts, too; that file is usually imported anyway.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("import").filter_map(|(at, word)| {
        let (before, rest) = (text.get(..at)?, text.get(at + word.len()..)?);
        let is_word = !before.ends_with(|last: char| last.is_alphanumeric() || "_\"".contains(last));
        let name = rest.trim_start().strip_prefix('"').filter(|_| is_word)?;
        name.split('"').next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_wherever_they_stand() {
        let text = "import \"a\" as a;\nfn process(job) { import  \"b/c\"\n as c; important(); \"import\" }";
        assert_eq!(imports(text).collect::<Vec<_>>(), ["a", "b/c"]);
    }
}
