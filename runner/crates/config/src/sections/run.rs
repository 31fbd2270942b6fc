//! `run`: parses the processors of a step, a gate or a monitor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::builtin;
use super::plugin;
use crate::diagnostic::Diagnostic;
use crate::model::{ImportedScript, Processor, Script};
use crate::parse::context::{ParseContext, Text};
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::suggest::nearest;

/// The processors of `run` in `section`, whose attempts have this `timeout`; without invalid ones.
pub(crate) fn run(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    section: &TableReader<'_>,
    timeout: Duration,
) -> Vec<Processor> {
    let texts = section.field("run").and_then(|field| field.text_or_texts(reading)).unwrap_or_default();
    builtin::check(reading, section, &texts);
    texts.iter().filter_map(|text| processor(reading, files, section, text, timeout)).collect()
}

fn processor(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    section: &TableReader<'_>,
    run: &Text,
    timeout: Duration,
) -> Option<Processor> {
    if builtin::is_one(&run.value) {
        return builtin::processor(reading, section, run, timeout);
    }
    if plugin::is_one(&run.value) {
        return plugin::processor(reading, run).map(Processor::Plugin);
    }
    if !is_script(&run.value) {
        let message = format!("{} in `run` is not a processor", run.quoted());
        let help =
            "use a script, whose name ends in `.rhai`, or `plugin:NAME`, `builtin:http` or `builtin:exec`";
        reading.report(Diagnostic::error_at(&run.place, message).help(help));
        return None;
    }
    script(reading, files, run).map(Processor::Script)
}

/// The script that `named` names, with its imports.
pub(crate) fn script(reading: &mut ParseContext<'_>, files: &mut TextReader, named: &Text) -> Option<Script> {
    let path = reading.folder().join(&named.value);
    match files.read(&path) {
        Ok(text) => {
            let imports = imports(files, &path, &text);
            let (named_in, named_at) = (reading.file.to_path_buf(), named.place.span.clone());
            Some(Script { path, text, imports, named_in, named_at })
        }
        Err(error) => {
            let quoted = if named.secret { "named here".into() } else { named.quoted() };
            let message = format!("the script {quoted} {error}");
            let help = if named.secret { None } else { near_script(reading.folder(), &named.value) };
            reading.report(Diagnostic::error_at(&named.place, message).help_if(help));
            None
        }
    }
}

pub(crate) fn is_script(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "rhai")
}

/// The imports of the script at `path`, direct and indirect, in order of path. A missing one is reported when the
/// script is compiled.
fn imports(files: &mut TextReader, path: &Path, text: &str) -> Vec<ImportedScript> {
    let mut found: BTreeMap<PathBuf, Arc<str>> = BTreeMap::new();
    let mut texts: Vec<Arc<str>> = vec![Arc::from(text)];
    while let Some(text) = texts.pop() {
        for name in imported(&text) {
            // An import of an import is in the folder of the script too.
            let mut file = path.with_file_name(name).into_os_string();
            file.push(".rhai");
            let file = PathBuf::from(file);
            if file == path || found.contains_key(&file) {
                continue;
            }
            if let Ok(text) = files.read(&file) {
                texts.push(Arc::clone(&text));
                found.insert(file, text);
            }
        }
    }
    found.into_iter().map(|(path, text)| ImportedScript { path, text }).collect()
}

/// Names in `import "name"`. An import in a comment counts, too; that file is usually imported anyway.
fn imported(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("import").filter_map(|(at, word)| {
        let (before, rest) = (text.get(..at)?, text.get(at + word.len()..)?);
        let is_word = !before.ends_with(|last: char| last.is_alphanumeric() || "_\"".contains(last));
        let name = rest.trim_start().strip_prefix('"').filter(|_| is_word)?;
        name.split('"').next()
    })
}

/// The script that was probably meant: the nearest name in the folder of the path.
fn near_script(folder: &Path, run: &str) -> Option<String> {
    let written = Path::new(run);
    let inner = written.parent().unwrap_or(Path::new(""));
    let entries = std::fs::read_dir(Path::new(".").join(folder).join(inner)).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // Compared without the extension, which would make all short names similar.
    let stems: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".rhai")?.to_owned())).collect();
    let wanted = written.file_stem()?.to_string_lossy();
    let found = nearest(&wanted, stems.iter().map(String::as_str))?;
    Some(format!("did you mean `{}`?", inner.join(format!("{found}.rhai")).display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_wherever_they_stand() {
        let text = "import \"a\" as a;\nfn process(job) { import  \"b/c\"\n as c; important(); \"import\" }";
        assert_eq!(imported(text).collect::<Vec<_>>(), ["a", "b/c"]);
    }
}
