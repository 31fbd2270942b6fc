//! Tests of standard streams: output and error are closed, full, or not read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Read as _};
use std::process::{Command, ExitStatus, Stdio};

use crate::project::{Project, ids, jobs};
use crate::running::Running;

/// A pipeline that logs a line per job, and continues until it is stopped.
fn talking(follow: bool) -> Project {
    Project::new()
        .file(
            "p.toml",
            format!(
                "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = {follow}\n\
                 [step.talk]\nfrom = \"in\"\nrun = \"talk.rhai\"\nto = \"out\"\n\
                 [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
            ),
        )
        .file("talk.rhai", "fn process(job) { print(`job ${job.id} \" + \"x\".len()`); job }")
        .file("in.ndjson", jobs(1..=50))
}

/// The writing end of a pipe without a reader.
fn gone() -> Stdio {
    let (_, writer) = io::pipe().expect("pipes can be made");
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("it is there").into()
}

#[test]
fn a_run_ends_well_though_standard_error_is_gone_or_full() {
    for stderr in [gone, full] {
        let project = talking(false);
        let status = project.command(&["run", "."]).stderr(stderr()).status().expect("it starts");
        assert_eq!(status.code(), Some(0));
        assert_eq!(ids(&project.read("out.ndjson")), (1..=50).collect::<Vec<_>>());
    }
}

#[test]
fn a_step_that_stops_is_a_failure_though_nobody_can_be_told() {
    for stderr in [gone, full] {
        let project = talking(false).file("talk.rhai", "fn process(job) { throw \"no\" }");
        let status = project.command(&["run", "."]).stderr(stderr()).status().expect("it starts");
        assert_eq!(status.code(), Some(1));
    }
}

#[test]
fn a_run_can_be_stopped_though_standard_error_is_gone_full_or_not_read() {
    let (_unread, writer) = io::pipe().expect("pipes can be made");
    for stderr in [gone(), full(), writer.into()] {
        // More than the size of a pipe.
        let project = talking(true).file("in.ndjson", jobs(1..=3000));
        let mut running = Running::start_with(project.path(), project.command(&["run", "."]), stderr);
        running.wait_until("all jobs", || project.read_if_there("out.ndjson").lines().count() == 3000);
        assert_eq!(running.stop().code, Some(0));
    }
}

#[test]
fn what_could_not_be_written_is_counted_before_what_gets_through_next() {
    let (mut reader, writer) = io::pipe().expect("pipes can be made");
    let project = talking(true).file("in.ndjson", jobs(1..=3000));
    let mut running = Running::start_with(project.path(), project.command(&["run", "."]), writer.into());
    running.wait_until("all jobs", || project.read_if_there("out.ndjson").lines().count() == 3000);
    let before = read_some(&mut reader);
    // Any job can be the first: workers run side by side.
    assert!(before.contains("tidegate::script: job "), "{before}");
    running.stop().done();
    let mut after = String::new();
    reader.read_to_string(&mut after).expect("it is text");
    let said = "could not be written to standard error: its reader does not read";
    assert_eq!(after.matches(said).count(), 1, "{after}");
    let (_, told) = after.split_once(said).expect("it was logged");
    assert!(told.contains("stopping: ") && told.contains("stopped: 3,000 jobs"), "{after}");
}

/// Reads at least the size of a pipe.
fn read_some(reader: &mut PipeReader) -> String {
    let mut some = vec![0; 32 << 10];
    reader.read_exact(&mut some).expect("the pipe is full");
    String::from_utf8_lossy(&some).into_owned()
}

fn printing(project: &Project, arguments: &[&str], stdout: Stdio) -> (ExitStatus, String) {
    let stderr = project.path().join("stderr");
    let into = File::create(&stderr).expect("files can be made");
    let status = project.command(arguments).stdout(stdout).stderr(into).status().expect("it starts");
    (status, fs::read_to_string(stderr).expect("it is text"))
}

#[test]
fn a_command_whose_output_cannot_be_written_has_failed_and_one_that_is_not_read_to_the_end_has_not() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"done\"\nerrors = \"failed\"\n\
         [step.on]\nfrom = \"done\"\nto = \"out\"\n[queue.done]\nretain = \"forever\"\n",
    )
    .file("in.ndjson", jobs(1..=3))
    .file("work.rhai", "fn process(job) { if job.id == 2 { reject(\"no\") } job }");
    project.run().done();
    for command in [
        "check .",
        "check . --format json",
        "graph",
        "graph --format json",
        "status",
        "status --format json",
        "queue list",
        "queue list --format json",
        "queue show p/done",
        "queue show p/done --format json",
        "errors list",
        "errors show p/failed/1",
        "delayed list",
        "job show p/in/1",
        "history",
        "history 1",
        "store verify",
        "store export -",
        "--help",
        "--version",
        "run --help",
    ] {
        let arguments: Vec<&str> = command.split(' ').collect();
        let (status, said) = printing(&project, &arguments, full());
        assert_eq!(status.code(), Some(1), "{command}: {said}");
        assert!(said.starts_with("error: cannot write "), "{command}: {said}");
        assert!(said.contains("No space left on device"), "{command}: {said}");
        if command != "store export -" {
            let (status, said) = printing(&project, &arguments, gone());
            assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{command}");
        }
    }
}

#[test]
fn a_stdout_sink_on_a_full_disk_waits_and_can_be_stopped() {
    let project = talking(false).file(
        "p.toml",
        "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
         [sink.out]\nfrom = \"in\"\ntype = \"stdout\"\n",
    );
    let mut command = Command::new("sh");
    let script = "exec \"$0\" run . > /dev/full";
    command.current_dir(project.path()).args(["-c", script, env!("CARGO_BIN_EXE_tidegate")]);
    let mut running = Running::start(project.path(), command);
    running.wait_until_it_says("the disk is full");
    running.stop().failed(1).says("cannot write to standard output: No space left on device");
}

#[test]
fn a_warning_says_that_the_jobs_of_a_stdout_sink_are_lost() {
    let warning = "standard output is `/dev/null` or was closed: the jobs of this sink are lost";
    for (redirect, is_lost) in
        [("> /dev/null", true), (">&-", true), ("> out", false), ("| cat > out", false)]
    {
        let project = Project::new().file("in.ndjson", jobs(1..=3)).file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"stdout\"\n",
        );
        let mut command = Command::new("sh");
        let script = format!("\"$0\" run . {redirect}");
        command.current_dir(project.path()).args(["-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches(warning).count(), usize::from(is_lost), "{redirect}: {said}");
    }
}
