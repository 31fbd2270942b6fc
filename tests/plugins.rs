//! Tests of native plugins: the plugins of the repository, and broken ones.

mod batches;
mod commands;
mod isolated;
mod libraries;
mod processes;
mod reloads;
mod setup;
mod steps;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::project::Project;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder with the plugins of the repository. `cargo test` does not leave them there, so they are built
/// once.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a file has a folder").to_owned();
        let profile = if folder.ends_with("release") { "release" } else { "dev" };
        let target = folder.parent().expect("a profile has a folder in the target folder");
        let status = Command::new(env!("CARGO"))
            .current_dir(root())
            .args(["build", "--quiet", "--profile", profile, "--target-dir"])
            .arg(target)
            .args(["-p", "uppercase", "-p", "flaky", "-p", "geo", "-p", "measure"])
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the plugins do not build");
        folder
    })
}

/// Compiles C into a library. Adds the `#include`s for plugins.
pub(crate) fn compile(source: &str, library: &Path, options: &[&str]) {
    let text = library.with_extension("c");
    fs::write(&text, source).expect("files can be written");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("plugin-api/include"))
        .arg("-o")
        .args([library, &text])
        .args(options)
        .status()
        .expect("there is a C compiler");
    assert!(status.success(), "{} does not compile", text.display());
}

pub(crate) fn c_count() -> String {
    fs::read_to_string(root().join("plugins/c-count/c_count.c")).expect("the plugin in C is there")
}

/// A step `p/work` of the plugins of the repository, with an error queue. A step with effects processes its
/// jobs one by one, and attempts each once.
fn project(step: &str) -> Project {
    let acts = if step.contains("flaky") || step.contains("${") {
        "retry = { max_attempts = 1 }\nqueuer = { strategy = \"serial\" }\n"
    } else {
        ""
    };
    Project::pipeline(&format!(
        "[pipeline]\nerrors = \"failed\"\n[step.work]\nfrom = \"in\"\nto = \"out\"\ntimeout = \"10s\"\n{acts}{step}\n"
    ))
    .file("tidegate.toml", format!("[runner]\nplugins = \"{}\"\n", folder().display()))
}

/// The reasons of failed jobs, one per line.
fn errors(project: &Project) -> Vec<String> {
    let listed = project.tidegate(&["errors", "list", ".", "--format", "json", "--limit", "100"]).done();
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("it is JSON");
    let mut lines = Vec::new();
    collect(&listed, &mut lines);
    lines
}

/// The messages in any form of a listing.
fn collect(value: &serde_json::Value, lines: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => match (fields.get("kind"), fields.get("message")) {
            (Some(kind), Some(message)) => {
                lines.push(format!("{}: {}", kind.as_str().unwrap_or("?"), message.as_str().unwrap_or("?")));
            }
            _ => fields.values().for_each(|value| collect(value, lines)),
        },
        serde_json::Value::Array(values) => values.iter().for_each(|value| collect(value, lines)),
        _ => {}
    }
}
