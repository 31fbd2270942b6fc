//! Tests of `isolate = "process"`: the runner survives everything that a plugin does to its process.

use std::fs;

use super::{errors, project};
use crate::project::{Project, ids, jobs};

fn isolated(jobs: &str) -> Project {
    project("run = \"plugin:flaky\"\nisolate = \"process\"\nlimits = { memory = \"32MiB\" }")
        .file("in.ndjson", jobs)
}

#[test]
fn only_the_job_that_ends_the_process_fails() {
    let project = isolated(
        &(jobs(1..=3)
            + "{\"id\":4,\"do\":\"abort\"}\n"
            + jobs(5..=6).as_str()
            + "{\"id\":7,\"do\":\"abort\"}\n{\"id\":8,\"do\":\"abort\"}\n"
            + jobs(9..=9).as_str()),
    );
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 5, 6, 9]);
    assert_eq!(
        errors(&project),
        ["crashed: plugin `flaky`: its process was ended by signal 6 (SIGABRT), 3 times in a row"; 3]
    );
}

#[test]
fn a_job_that_hangs_is_ended_by_its_timeout() {
    let project = isolated(&(jobs(1..=1) + "{\"do\":\"hang\"}\n" + jobs(3..=3).as_str()));
    let toml = project.read("p.toml").replace("\"10s\"", "\"3s\"");
    project.write("p.toml", toml);
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3]);
    assert_eq!(
        errors(&project),
        ["timeout: plugin `flaky`: it exceeded its `timeout` of 3s; its process was killed"]
    );
}

#[test]
fn a_job_that_takes_too_much_memory_is_ended() {
    let project = isolated(
        "{\"id\":1}\n{\"do\":\"allocate\",\"mib\":64,\"ms\":5000}\n{\"id\":3,\"do\":\"allocate\",\"mib\":4}\n",
    );
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3]);
    let told = errors(&project);
    assert!(told[0].contains("its process exceeded `limits.memory` (32.0 MiB)"), "{told:?}");
}

#[test]
fn failures_logs_and_outputs_come_through_as_they_are() {
    let project = isolated(
        "{\"do\":\"fail\"}\n{\"do\":\"reject\"}\n{\"do\":\"panic\"}\n{\"do\":\"garble\"}\n{\"id\":5,\"do\":\"log\"}\n\
         {\"do\":\"retry\"}\n{\"do\":\"retry_in\"}\n",
    );
    project.run().done().says("job 5 asked for this");
    assert_eq!(ids(&project.read("out.ndjson")), [5]);
    insta::assert_snapshot!(errors(&project).join("\n"), @r"
    failed: plugin `flaky`: failed, as asked
    rejected: plugin `flaky`: rejected, as asked
    panicked: plugin `flaky` panicked: panicked, as asked
    output: plugin `flaky`: its output is not JSON: the text ends before a value, at column 8
    retry: plugin `flaky`: busy
    retry: plugin `flaky`: busy
    ");
}

#[test]
fn a_step_without_an_error_queue_stops_at_the_job_and_runs_none_after_it() {
    let project = isolated(&(jobs(1..=2) + "{\"id\":3,\"do\":\"abort\"}\n" + jobs(4..=4).as_str()));
    let toml = project.read("p.toml").replace("errors = \"failed\"", "");
    project.write("p.toml", toml);
    project.run().failed(1).says("its process was ended by signal 6");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
    // It is the first to run again.
    project.run().failed(1).says("job 3");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
}

#[test]
fn a_filter_and_scripts_around_it_change_nothing() {
    let project = project("run = [\"twice.rhai\", \"plugin:flaky\", \"id.rhai\"]\nwhen = \"job.id != 2\"\nisolate = \"process\"")
        .file("twice.rhai", "fn process(job) { if job.id == 3 { throw \"three\" } [job, job] }")
        .file("id.rhai", "fn process(job) { #{ id: job.id * 10 } }")
        .file("in.ndjson", jobs(1..=3) + "{\"id\":4,\"do\":\"abort\"}\n" + jobs(5..=5).as_str());
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [10, 10, 50, 50]);
    let told = errors(&project);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("three") && told[1].contains("SIGABRT"), "{told:?}");
}

#[test]
fn a_step_that_cannot_be_set_up_halts_and_says_why() {
    let project = isolated(&jobs(1..=1));
    let toml = project.read("p.toml").replace("[sink", "[step.work.config]\npanic_in_create = true\n[sink");
    project.write("p.toml", toml);
    project.run().failed(1).says("plugin `flaky` panicked while it was set up: create, as asked");
}

#[test]
fn what_a_plugin_prints_does_no_harm_and_no_process_is_left() {
    let project = Project::pipeline(
        "[step.print]\nfrom = \"in\"\nrun = \"plugin:print\"\nisolate = \"process\"\nto = \"out\"\n",
    )
    .file("in.ndjson", jobs(1..=3));
    let source = super::c_count()
        .replace("counter->seen++;", "counter->seen++; puts(\"printed\"); fflush(stdout); getchar();");
    super::compile(&source, &project.path().join("print.so"), &["-Wno-unused-result"]);
    project.tidegate(&["run", ".", "--plugins", "."]).done().says("printed");
    assert_eq!(project.read("out.ndjson").lines().count(), 3);
    let hosts = fs::read_dir("/proc").expect("there is /proc").filter(|entry| {
        let path = entry.as_ref().expect("it can be listed").path();
        let of = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
        of("cmdline").contains("plugin-host")
            && fs::read_link(path.join("cwd")).is_ok_and(|folder| folder == project.path())
    });
    assert_eq!(hosts.count(), 0);
}
