//! Tests of `tidegate plugin`: inspection, and creation of plugins.

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
        shown.stdout.contains("step pass: passes jobs on unchanged\ntakes any config\n"),
        "{}",
        shown.stdout
    );
    let flaky =
        project.tidegate(&["plugin", "inspect", &folder().join("libflaky.so").display().to_string()]).done();
    assert!(flaky.stdout.contains("with external effects"), "{}", flaky.stdout);
}

#[test]
fn inspect_says_why_a_file_is_none() {
    let project = Project::new().file("text.so", "text");
    project.tidegate(&["plugin", "inspect", "text.so"]).failed(1).says("`text.so` is not a shared library");
    project.tidegate(&["plugin", "inspect", "none.so"]).failed(1).says("`none.so` cannot be read");
    compile("int other(void) { return 1; }\n", &project.path().join("other.so"), &[]);
    project.tidegate(&["plugin", "inspect", "other.so"]).failed(1).says("exports no function");
}

#[test]
fn a_new_plugin_builds_from_what_the_program_brings_passes_its_test_and_runs() {
    let project = Project::new();
    project.tidegate(&["plugin", "new", "word-count"]).done();
    project.tidegate(&["plugin", "new", "word-count"]).failed(1).says("already exists");
    project.tidegate(&["plugin", "new", "Word Count"]).failed(64).says("is not a valid plugin name");
    // The same in another folder.
    let crate_folder = project.path().join("elsewhere/word-count");
    fs::create_dir(project.path().join("elsewhere")).expect("folders can be made");
    fs::rename(project.path().join("word-count"), &crate_folder).expect("folders can be moved");
    let own = |text: &str| text.contains(env!("CARGO_MANIFEST_DIR")) || text.contains("/plugin-api\"");
    let manifest = fs::read_to_string(crate_folder.join("Cargo.toml")).expect("it is there");
    assert!(!own(&manifest), "{manifest}");
    // The versions of the repository are already downloaded.
    fs::copy(root().join("Cargo.lock"), crate_folder.join("Cargo.lock")).expect("files can be copied");
    let target =
        Path::new(env!("CARGO_BIN_EXE_tidegate")).ancestors().nth(2).expect("there is a target folder");
    for command in ["test", "build"] {
        let output = Command::new(env!("CARGO"))
            .current_dir(&crate_folder)
            .args([command, "--offline", "--target-dir"])
            .arg(target)
            .output()
            .expect("cargo can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("warning"), "{said}");
    }
    let project = project
        .file("p.toml", "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n[step.count]\nfrom = \"in\"\nrun = \"plugin:word-count\"\nto = \"out\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n")
        .file("in.ndjson", "{\"text\":\"to be or not\"}\n");
    let plugins = target.join("debug").display().to_string();
    project.tidegate(&["run", "p.toml", "--plugins", &plugins]).done();
    assert_eq!(project.read("out.ndjson"), "{\"words\":4}\n");
}

#[test]
fn a_new_plugin_in_c_builds_from_what_the_program_brings_and_runs() {
    let project = Project::pipeline("[pipeline]\nerrors = \"failed\"\n[step.pass]\nfrom = \"in\"\nrun = \"plugin:my-pass\"\nto = \"out\"\n")
        .file("in.ndjson", "\"a\"\n\"\"\n");
    let said = project.tidegate(&["plugin", "new", "--c", "my-pass"]).done().stdout;
    let line = said.lines().find_map(|line| line.strip_prefix("    ")).expect("it names the build command");
    let built =
        Command::new("sh").current_dir(project.path()).args(["-c", line]).output().expect("there is a shell");
    assert!(built.status.success() && built.stderr.is_empty(), "{}", String::from_utf8_lossy(&built.stderr));
    project.tidegate(&["run", ".", "--plugins", "my-pass"]).done();
    assert_eq!(project.read("out.ndjson"), "\"a\"\n");
    let header = project.tidegate(&["plugin", "header"]).done().stdout;
    assert_eq!(header, project.read("my-pass/tidegate_plugin.h"));
}

#[test]
fn a_folder_that_is_not_the_crate_is_told() {
    let project = Project::new().file("other/Cargo.toml", "[package]\nname = \"other\"\n");
    let with = |api: &str| project.tidegate(&["plugin", "new", "it", "--api", api]).failed(1);
    with("/nonexistent").says(
        "`--api /nonexistent` is not a folder of the crate `tidegate-plugin`: `/nonexistent/Cargo.toml`",
    );
    with("other").says(
        "`--api other` is not the crate `tidegate-plugin`: its Cargo.toml does not name `tidegate-plugin`",
    );
    assert!(!project.path().join("it").exists());
    let api = root().join("plugin-api").display().to_string();
    project.tidegate(&["plugin", "new", "it", "--api", &api]).done();
    assert!(!project.path().join("it/tidegate-plugin").exists());
}

#[test]
fn the_header_can_be_read_twice_and_by_every_dialect() {
    let project = Project::new();
    let header = project.tidegate(&["plugin", "header"]).done().stdout;
    let twice = "#include \"tidegate_plugin.h\"\n#include \"tidegate_plugin.h\"\n";
    project.write("tidegate_plugin.h", header);
    project.write("twice.c", twice);
    project.write("twice.cpp", twice);
    for (compiler, dialect, file) in
        [("cc", "-std=c99", "twice.c"), ("cc", "-std=gnu89", "twice.c"), ("c++", "-std=c++11", "twice.cpp")]
    {
        let status = Command::new(compiler)
            .current_dir(project.path())
            .args([dialect, "-Wall", "-Wextra", "-Werror", "-Wredundant-decls", "-fsyntax-only", file])
            .status()
            .expect("there is a compiler");
        assert!(status.success(), "{compiler} {dialect}");
    }
}
