//! Tests of what a runner watches: a refused change is in force as soon as nothing is wrong with it, and a configuration
//! that is gone can be restored.

use std::fs;
use std::os::unix::fs::symlink;

use crate::project::{Project, jobs};

use super::{TOML, mark, marking, marking_by_events, says_generation, version_of, wait_for};

#[test]
fn a_link_without_a_target_refuses_changes_until_it_is_removed() {
    let project = marking_by_events();
    let mut running = project.started();
    assert_eq!(wait_for(&project, &mut running, "out.ndjson", 1), 1);
    symlink("nowhere", project.path().join("x.toml")).unwrap();
    running.wait_until_it_says("the files have mistakes: ");
    project.write("mark.rhai", mark(2));
    assert_eq!(version_of(&project, &mut running, 2), 1);
    fs::remove_file(project.path().join("x.toml")).unwrap();
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 3), 2);
    running.stop().done();
}

#[test]
fn a_secret_and_the_jobs_of_a_test_that_a_refused_change_lacks_bring_it_into_force() {
    let project = marking_by_events();
    let mut running = project.started();
    assert_eq!(wait_for(&project, &mut running, "out.ndjson", 1), 1);
    let secret = "config = { version = \"${file:secret}\" }\nrun = ";
    let with_secret = project.read("p.toml").replace("run = ", secret);
    project.write("mark.rhai", "fn process(job, ctx) { job.version = parse_int(ctx.config.version); job }");
    project.write("p.toml", with_secret);
    running.wait_until_it_says("the file `secret` does not exist");
    project.write("secret", "7\n");
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 2), 7);
    let test =
        "[[test]]\nname = \"a job\"\nstep = \"mark\"\ngiven = \"given.ndjson\"\nexpect = { out = [] }\n";
    project.append("p.toml", test);
    running.wait_until_it_says("the file of `given` does not exist");
    project.write("given.ndjson", "");
    running.wait_until_it_says("the files have no mistakes any more");
    running.stop().done();
}

#[test]
fn settings_that_appear_beside_a_single_pipeline_are_in_force() {
    let project = Project::pipeline(TOML).file("in.ndjson", jobs([1]));
    project
        .write("mark.rhai", "fn process(job, ctx) { job.version = ctx.config.get(\"version\") ?? 1; job }");
    let mut unwatched = project.start(&["run", "p.toml", "--no-watch"]);
    assert_eq!(wait_for(&project, &mut unwatched, "out.ndjson", 1), 1);
    let differ = || project.json(&["status", "p.toml"])["reload"]["files_differ"].clone();
    assert_eq!(differ(), false);
    project.write("tidegate.toml", "");
    assert_eq!(differ(), true);
    unwatched.stop().done();
    fs::remove_file(project.path().join("tidegate.toml")).unwrap();
    let mut running = project.start(&["run", "p.toml"]);
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.write("tidegate.toml", "[runner.config]\nversion = 2\n");
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 3), 2);
    running.stop().done();
}

#[test]
fn a_configuration_that_is_gone_beneath_its_runner_is_restored_at_its_path_and_nowhere_else() {
    let project = marking();
    let pipeline = project.read("p.toml").replace("\"in.ndjson\"", "\"../in.ndjson\"");
    project.write("conf/p.toml", pipeline.replace("\"out.ndjson\"", "\"../out.ndjson\""));
    project.write("conf/mark.rhai", mark(1));
    project.write("other/q.toml", "");
    fs::remove_file(project.path().join("p.toml")).unwrap();
    let mut running = project.start(&["run", "conf", "--data", "state"]);
    assert_eq!(wait_for(&project, &mut running, "out.ndjson", 1), 1);
    fs::rename(project.path().join("conf"), project.path().join("moved")).unwrap();
    let restore = |config: &str| {
        project.tidegate(&["rollback", "1", "--write", "--yes", "--config", config, "--data", "state"])
    };
    restore("other").failed(1).says("/conf`: give this path to restore its files");
    restore("mistyped").failed(78).says("the file or folder does not exist");
    assert_eq!(project.read("other/q.toml"), "");
    let status = project.tidegate(&["status", "conf", "--data", "state"]).done();
    assert!(status.stdout.contains("mark"), "{}", status.stdout);
    project.tidegate(&["status", "mistyped", "--data", "state"]).failed(78);
    restore("conf").done();
    assert_eq!(project.read("conf/p.toml"), project.read("moved/p.toml"));
    assert_eq!(project.read("conf/mark.rhai"), mark(1));
    assert_eq!(version_of(&project, &mut running, 2), 1);
    running.stop().done();
    // Now the history decides.
    restore("other").failed(1).says("has none of the pipelines in `other`");
    assert_eq!(project.read("other/q.toml"), "");
    project.write("conf/mark.rhai", mark(2));
    restore("conf").done();
    assert_eq!(project.read("conf/mark.rhai"), mark(1));
    fs::remove_dir_all(project.path().join("conf")).unwrap();
    restore("conf").done();
    assert_eq!(project.read("conf/p.toml"), project.read("moved/p.toml"));
}
