//! Warnings about paths: find paths of sources and sinks that resemble templates or variables, and missing
//! files.
//!
//! None of them is an error: any name is valid, and a file may be created after the check.

use std::fs;
use std::path::{Path, PathBuf};

use crate::diagnostic::span_of::locate;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Configuration, SinkKind, SourceKind};
use crate::parse::context::{ParseContext, Placed};
use tidegate_model::Address;
use tidegate_model::suggest::nearest;

/// Extensions of compressed files.
const COMPRESSED: [&str; 5] = ["gz", "zst", "bz2", "xz", "zip"];

/// `$NAME`, which is a variable elsewhere, and literal here.
pub(crate) fn doubt_variable(reading: &mut ParseContext<'_>, path: &Placed<PathBuf>) {
    let Some(written) = reading.written(&path.place) else { return };
    let Some(name) = written.split('$').skip(1).map(variable).find(|name| !name.is_empty()) else { return };
    let message = format!("`${name}` in `path` is literal");
    let help = format!("for the variable, write `${{{name}}}`");
    reading.doubts.push(Diagnostic::warning_at(&path.place, message).help(help));
}

/// A path that requests a feature that sinks do not have.
pub(crate) fn doubt_name(reading: &mut ParseContext<'_>, path: &Placed<PathBuf>) {
    let Some(written) = reading.written(&path.place).and_then(shown) else { return };
    let mut doubt = |message: String, help: &str| {
        reading.doubts.push(Diagnostic::warning_at(&path.place, message).help(help));
    };
    if let Some(field) = template(written) {
        let help = "write a path without braces; for several files, let a fork lead to a sink for each";
        doubt(format!("the path of a sink is not a template: `{field}` is literal"), help);
    }
    let ending = path.value.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if COMPRESSED.contains(&ending) {
        doubt(format!("a sink does not compress: `{written}` will hold plain text"), "leave the ending out");
    }
}

/// A warning for every source whose file is missing, and every sink that could not write. For `check`: a run
/// reports them as errors.
pub fn check_disk(configuration: &Configuration, diagnostics: &mut Diagnostics) {
    let mut doubts = Vec::new();
    for source in &configuration.sources {
        let SourceKind::File(file) = &source.kind else { continue };
        if !file.follow {
            doubts.extend(at_path(
                configuration,
                diagnostics,
                "source",
                &source.address,
                &file.path,
                missing,
            ));
        }
    }
    for sink in &configuration.sinks {
        if let SinkKind::File(file) = &sink.kind {
            doubts.extend(at_path(configuration, diagnostics, "sink", &sink.address, &file.path, unwritable));
        }
    }
    diagnostics.extend(doubts);
}

/// Adds the warning of `doubt` about `path`, at its place in the file of the pipeline.
fn at_path(
    configuration: &Configuration,
    diagnostics: &Diagnostics,
    kind: &str,
    address: &Address,
    path: &Path,
    doubt: fn(&Path) -> Option<(String, String)>,
) -> Option<Diagnostic> {
    // The place takes another parse of the file, which may hold large tables.
    let (problem, help) = doubt(&Path::new(".").join(path))?;
    let pipeline = configuration.pipelines.iter().find(|pipeline| pipeline.name == address.pipeline)?;
    let text = diagnostics.files().get(&pipeline.file)?;
    let span = locate(text, &[kind, address.name.as_str(), "path"], false)?;
    let written = text.get(span.clone()).and_then(shown)?;
    if kind == "source" && written.contains(['*', '?', '[']) {
        return None;
    }
    let message = format!("`{written}` {problem}");
    Some(Diagnostic::warning(&*pipeline.file, span, message).help(help))
}

/// The problem of a path without a readable file, and its fix.
fn missing(path: &Path) -> Option<(String, String)> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let help = "push the output of a program with `… | tidegate queue push PIPELINE/QUEUE`";
        return Some(("is neither a regular file nor a folder".into(), help.into()));
    }
    if !matches!(path.try_exists(), Ok(false)) {
        return None;
    }
    let near = near_file(path).map(|near| format!("did you mean `{near}`?"));
    let help = near.unwrap_or_else(|| "make it before the run, or wait for it with `follow = true`".into());
    Some(("does not exist".into(), help))
}

fn unwritable(path: &Path) -> Option<(String, String)> {
    if path.is_dir() {
        return Some(("is a folder".into(), "name a file in it".into()));
    }
    let above = path.ancestors().skip(1).find(|above| above.exists())?;
    if above.is_dir() {
        return None;
    }
    let problem = "cannot be created: a parent of it is a file";
    Some((problem.into(), "name another path, or move that file away".into()))
}

/// The name at the start of a text.
fn variable(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let name = &text[..end];
    if name.starts_with(|c: char| c.is_ascii_digit()) { "" } else { name }
}

/// The first `{…}`.
fn template(text: &str) -> Option<&str> {
    let start = text.find('{')?;
    let length = text[start..].find('}')?;
    (length > 1).then(|| &text[start..=start + length])
}

/// The text of a value without its quotes; `None` if it has inserted values, which may be secrets.
fn shown(written: &str) -> Option<&str> {
    (!written.contains("${")).then(|| written.trim_matches(['"', '\'']))
}

/// The nearest entry beside `file`.
fn near_file(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let entries = fs::read_dir(file.parent()?).ok()?;
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
}
