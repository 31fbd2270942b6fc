//! File conflicts: finds files that two sinks write, or that a sink writes and a source reads.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::sections::pipeline::PipelineDeclaration;

/// An error for every sink whose file another sink writes or a source reads.
pub(crate) fn check(pipelines: &[Arc<PipelineDeclaration>]) -> Vec<Diagnostic> {
    let sources: Vec<(PathBuf, &SourceSpan)> = (pipelines.iter().flat_map(|pipeline| &pipeline.sources))
        .filter_map(|source| source.path.as_ref())
        .map(|path| (plain(&path.value), &path.place))
        .collect();
    let mut sinks: BTreeMap<PathBuf, &SourceSpan> = BTreeMap::new();
    let mut diagnostics = Vec::new();
    for path in pipelines.iter().flat_map(|pipeline| &pipeline.sinks).filter_map(|sink| sink.path.as_ref()) {
        let file = plain(&path.value);
        if let Some((_, source)) = sources.iter().find(|(source, _)| reads(source, &file)) {
            diagnostics.push(
                Diagnostic::error_at(&path.place, "this sink writes a file that a source reads")
                    .related((*source).clone(), "read here")
                    .help("write to another path; between steps, use a queue"),
            );
        }
        if let Some(first) = sinks.get(&file) {
            diagnostics.push(
                Diagnostic::error_at(&path.place, "two sinks write the same file")
                    .related((*first).clone(), "written here too")
                    .help("let both steps name one sink in `to`, or give this one another path"),
            );
        } else {
            sinks.insert(file, &path.place);
        }
    }
    diagnostics
}

/// Whether a source with this path (a file, a folder, a glob) reads `file`.
fn reads(source: &Path, file: &Path) -> bool {
    let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
    let by_glob = || {
        let pattern = source.to_str().and_then(|source| glob::Pattern::new(source).ok());
        pattern.is_some_and(|pattern| pattern.matches_path_with(file, options))
    };
    source == file || file.parent() == Some(source) || by_glob()
}

/// The path without `.` and `..`, computed without the disk.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_same_by_any_way_round() {
        for path in ["a/b", "./a/b", "a/./b", "a/x/../b", "x/../a/b", "a//b"] {
            assert_eq!(plain(Path::new(path)), Path::new("a/b"), "{path}");
        }
        assert_eq!(plain(Path::new("../a")), Path::new("../a"));
    }

    #[test]
    fn a_source_reads_its_file_its_folder_and_its_glob() {
        let reads = |source: &str, file: &str| reads(Path::new(source), Path::new(file));
        assert!(reads("in/a", "in/a") && reads("in", "in/a") && reads("in/*.json", "in/a.json"));
        assert!(!reads("in/a", "in/b") && !reads("in", "in/x/a") && !reads("in/*.json", "in/x/a.json"));
    }
}
