//! Quick start: runs as for a new user.

use std::fs;
use std::path::Path;

use crate::project::Project;

fn quickstart() -> Project {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart");
    let project = Project::new();
    for name in ["quakes.toml", "classify.rhai", "alert.rhai", "data/earthquakes.ndjson"] {
        let text = fs::read(original.join(name)).expect("the quick start is there");
        project.write(Path::new("quickstart").join(name), text);
    }
    project
}

#[test]
fn the_quick_start_ends_by_itself_and_delivers_every_earthquake() {
    let project = quickstart();
    let outcome = project.tidegate(&["run", "quickstart"]).done();
    assert!(outcome.stderr.contains("done: 1,707 jobs"), "{}", outcome.stderr);
    assert_eq!(project.read("quickstart/out/catalogue.ndjson").lines().count(), 1679);
    assert_eq!(project.read("quickstart/out/alerts.ndjson").lines().count(), 85);
}

#[test]
fn a_second_run_of_the_quick_start_changes_nothing() {
    let project = quickstart();
    project.tidegate(&["run", "quickstart"]).done();
    let before =
        [project.read("quickstart/out/catalogue.ndjson"), project.read("quickstart/out/alerts.ndjson")];
    let status = project.tidegate(&["status", "quickstart", "--format", "json"]).done().stdout;
    let outcome = project.tidegate(&["run", "quickstart"]).done();
    assert!(outcome.stderr.contains("nothing to do"), "{}", outcome.stderr);
    let after =
        [project.read("quickstart/out/catalogue.ndjson"), project.read("quickstart/out/alerts.ndjson")];
    assert_eq!(before, after);
    assert_eq!(project.tidegate(&["status", "quickstart", "--format", "json"]).done().stdout, status);
}

#[test]
fn only_lines_that_were_added_are_processed() {
    let project = quickstart();
    project.tidegate(&["run", "quickstart"]).done();
    let mut lines = project.read("quickstart/data/earthquakes.ndjson");
    lines.push_str(
        r#"{"id":"new","type":"earthquake","mag":7.5,"place":"here","lon":1,"lat":2,"depth_km":3,"tsunami":1}"#,
    );
    lines.push('\n');
    project.write("quickstart/data/earthquakes.ndjson", lines);
    let outcome = project.tidegate(&["run", "quickstart"]).done();
    assert!(outcome.stderr.contains("done: 1 job"), "{}", outcome.stderr);
    assert_eq!(project.read("quickstart/out/catalogue.ndjson").lines().count(), 1680);
    let alerts = project.read("quickstart/out/alerts.ndjson");
    assert!(alerts.lines().last().expect("there are alerts").contains("magnitude 7.5: here"), "{alerts}");
}
