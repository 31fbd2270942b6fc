//! `tidegate plugin`

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{compile, folder, root};
use crate::project::Project;

#[test]
fn inspect_shows_what_a_library_offers() {
    let project = Project::new();
    let geo = folder().join("libgeo.so").display().to_string();
    let shown = project.tidegate(&["plugin", "inspect", &geo]).done().stdout;
    let shown = shown.replace(&folder().display().to_string(), "FOLDER");
    let sha256 = shown.lines().find_map(|line| line.strip_prefix("sha256 ")).expect("it is there");
    insta::assert_snapshot!(shown.replace(sha256, "SHA256"));
    let json = project.tidegate(&["plugin", "inspect", &geo, "--format", "json"]).done().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(
        (&json["name"], &json["interface"], &json["sha256"]),
        (&"geo".into(), &1.into(), &sha256.into())
    );
    assert_eq!(json["steps"][0]["schema"]["properties"]["lat"]["default"], "lat");
}

#[test]
fn inspect_shows_several_steps_and_those_without_a_schema() {
    let project = Project::new();
    let shown = project
        .tidegate(&["plugin", "inspect", &folder().join("libmeasure.so").display().to_string()])
        .done();
    assert!(
        shown.stdout.contains("step pass: hands jobs on as they are\ntakes any config\n"),
        "{}",
        shown.stdout
    );
    let flaky =
        project.tidegate(&["plugin", "inspect", &folder().join("libflaky.so").display().to_string()]).done();
    assert!(flaky.stdout.contains("can be seen outside"), "{}", flaky.stdout);
}

#[test]
fn inspect_says_why_a_file_is_none() {
    let project = Project::new().file("text.so", "text");
    project.tidegate(&["plugin", "inspect", "text.so"]).failed(1).says("`text.so` is no shared library");
    project.tidegate(&["plugin", "inspect", "none.so"]).failed(1).says("`none.so` cannot be read");
    compile("int other(void) { return 1; }\n", &project.path().join("other.so"), &[]);
    project.tidegate(&["plugin", "inspect", "other.so"]).failed(1).says("exports no function");
}

#[test]
fn a_new_plugin_builds_passes_its_test_and_runs() {
    let project = Project::new();
    project.tidegate(&["plugin", "new", "word-count"]).done();
    project.tidegate(&["plugin", "new", "word-count"]).failed(1).says("is there already");
    project.tidegate(&["plugin", "new", "Word Count"]).failed(64).says("is no name for a plugin");
    let crate_folder = project.path().join("word-count");
    // The versions that the repository uses are there already.
    fs::copy(root().join("Cargo.lock"), crate_folder.join("Cargo.lock")).expect("files can be copied");
    let target =
        Path::new(env!("CARGO_BIN_EXE_tidegate")).ancestors().nth(2).expect("there is a target folder");
    for command in ["test", "build"] {
        let output = Command::new(env!("CARGO"))
            .current_dir(&crate_folder)
            .args([command, "--quiet", "--target-dir"])
            .arg(target)
            .output()
            .expect("cargo can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let project = project
        .file("p.toml", "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n[step.count]\nfrom = \"in\"\nrun = \"plugin:word-count\"\nto = \"out\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n")
        .file("in.ndjson", "{\"text\":\"to be or not\"}\n");
    let plugins = target.join("debug").display().to_string();
    project.tidegate(&["run", "p.toml", "--plugins", &plugins]).done();
    assert_eq!(project.read("out.ndjson"), "{\"words\":4}\n");
}
