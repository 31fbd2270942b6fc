//! Tests of `exec` sources in the real executable: printed lines become jobs, once, across kills, restarts and
//! reloads.

use std::path::Path;

use serde_json::json;

use crate::project::Project;

/// Prints the numbers behind its cursor up to `last`, and a cursor after each `step` of them.
const COUNTER: &str = r#"#!/bin/sh
last=$1; step=$2; at=${TIDEGATE_CURSOR:-0}
while [ "$at" -lt "$last" ]; do
  end=$((at + step))
  while [ "$at" -lt "$end" ]; do at=$((at + 1)); echo "{\"id\":$at}"; done
  echo "AT=$at"
done
"#;

/// A pipeline whose source runs this script, with these settings.
fn project(script: &str, settings: &str) -> Project {
    let toml = format!(
        "[pipeline]\nerrors = \"failed\"\n[source.in]\ntype = \"exec\"\n{settings}\n\
         [step.pass]\nfrom = \"in\"\nto = \"out\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
    );
    let project = Project::new().file("p.toml", toml);
    executable(&project, "print.sh", script);
    project
}

fn executable(project: &Project, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    // A rename replaces a script that runs now.
    project.write("new", script);
    let path = project.path().join("new");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions can be set");
    std::fs::rename(path, project.path().join(name)).expect("it can be renamed");
}

fn up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[test]
fn a_run_ends_when_the_command_has_ended_and_its_lines_are_delivered() {
    let script = "#!/bin/sh\necho '{\"id\":1}'\necho\nsleep 0.1\necho '{\"id\":2}'\nprintf '{\"id\":3}'\n";
    let project = project(script, "command = [\"./print.sh\"]");
    project.run().done();
    assert_eq!(project.ids_so_far("out.ndjson"), up_to(3));
    project.assert_sound();
}

#[test]
fn lines_and_csv_become_the_jobs_that_files_have() {
    let lines = project("#!/bin/sh\necho 'a \"b\"'\n", "command = [\"./print.sh\"]\nformat = \"lines\"");
    lines.run().done();
    assert_eq!(lines.read("out.ndjson"), "\"a \\\"b\\\"\"\n");
    let csv = project("#!/bin/sh\nprintf 'a,b\\n1,x\\n'\n", "command = [\"./print.sh\"]\nformat = \"csv\"");
    csv.run().done();
    assert_eq!(csv.read("out.ndjson"), "{\"a\":\"1\",\"b\":\"x\"}\n");
}

#[test]
fn a_command_with_a_cursor_loses_and_repeats_nothing_over_kills() {
    const LAST: u64 = 30_000;
    let settings = format!("command = [\"./print.sh\", \"{LAST}\", \"7\"]\ncursor_prefix = \"AT=\"");
    // The command does not end before the last run, so that a late kill still finds a runner.
    let counter = format!("{COUNTER}[ -e last ] || exec sleep 600\n");
    let project = project(&counter, &settings);
    for run in 1..=5 {
        let mut running = project.start(&["run", "."]);
        let wanted = run * LAST / 10;
        let so_far = || project.ids_so_far("out.ndjson").last().copied().unwrap_or(0);
        running.wait_until("jobs", || so_far() >= wanted);
        assert!(running.kill(), "it ended by itself");
    }
    project.write("last", "");
    project.run().done();
    // The command ends with a whole step.
    assert_eq!(project.ids_so_far("out.ndjson"), up_to(LAST.div_ceil(7) * 7));
    project.assert_sound();
}

#[test]
fn a_command_that_fails_starts_again_from_its_cursor() {
    // Every start prints two lines with cursors and one without, and fails.
    let script = r#"#!/bin/sh
at=${TIDEGATE_CURSOR:-0}
[ "$at" -ge 6 ] && exit 0
for n in 1 2; do at=$((at + 1)); echo "{\"id\":$at}"; echo "AT=$at"; done
echo '{"id":99}'
echo "the key is $KEY" >&2
exit 3
"#;
    let settings = "command = [\"./print.sh\"]\nenv = { KEY = \"${SECRET_KEY}\" }\ncursor_prefix = \"AT=\"\n\
                    retry = { backoff = \"fixed\", initial = \"1ms\", max_attempts = 2 }";
    let project = project(script, settings);
    let mut command = project.command(&["run", "."]);
    command.env("SECRET_KEY", "hunter2hunter2");
    let outcome = crate::running::Running::start(project.path(), command).outcome().done();
    assert_eq!(project.ids_so_far("out.ndjson"), up_to(6));
    outcome.says("the command `print.sh` ended with exit code 3: the key is …; it starts again at");
}

#[test]
fn a_field_of_each_job_can_be_the_cursor() {
    let script = "#!/bin/sh\nat=${TIDEGATE_CURSOR:-0}\necho \"{\\\"id\\\":$((at + 1))}\"\n";
    let project = project(script, "command = [\"./print.sh\"]\ncursor = \"id\"");
    for _ in 0..3 {
        project.run().done();
    }
    assert_eq!(project.ids_so_far("out.ndjson"), up_to(3));
    let status = project.json(&["status"]);
    assert_eq!(
        status["sources"],
        json!([{ "source": "p/in", "type": "exec", "state": null, "failures": 0, "cursor": "3" }])
    );
}

#[test]
fn a_source_stops_after_its_last_attempt_and_the_run_fails() {
    let settings =
        "command = [\"./print.sh\"]\nretry = { backoff = \"fixed\", initial = \"1ms\", max_attempts = 3 }";
    let failing = project("#!/bin/sh\necho 'no disk' >&2\nexit 1\n", settings);
    let outcome = failing.run().failed(1);
    outcome.says(
        "the source stops: the command `print.sh` ended with exit code 1: no disk (all 3 attempts failed)",
    );
    let once = project("#!/bin/sh\nexit 1\n", "command = [\"./print.sh\"]\nrestart = \"never\"");
    once.run().failed(1).says("the source stops: the command `print.sh` ended with exit code 1");
}

#[test]
fn a_line_that_is_no_job_is_on_the_error_queue() {
    let project =
        project("#!/bin/sh\necho '{\"id\":1}'\necho 'no'\necho '{\"id\":2}'\n", "command = [\"./print.sh\"]");
    project.run().done();
    assert_eq!(project.ids_so_far("out.ndjson"), up_to(2));
    let errors = project.queue("p/failed");
    assert_eq!(errors.len(), 1);
    let record = &errors[0];
    assert_eq!(
        (&record["kind"], &record["job_text"], &record["input"]),
        (&json!("payload"), &json!("no"), &json!("p/in"))
    );
    let message = record["message"].as_str().expect("a text");
    assert!(message.starts_with("line 2 of the output of the command: the line is not JSON: "), "{message}");
    let shown = project.tidegate(&["errors", "list"]).done();
    assert!(shown.stdout.contains("p/failed/1"), "{}", shown.stdout);
    project
        .tidegate(&["errors", "retry", "--yes", "p/failed/1"])
        .failed(1)
        .says("mend the line, and push it with `tidegate queue push p/in`");
}

#[test]
fn a_source_without_an_error_queue_stops_at_a_line_that_is_no_job() {
    let project =
        project("#!/bin/sh\necho '{\"id\":1}'\necho 'no'\necho '{\"id\":2}'\n", "command = [\"./print.sh\"]");
    project.change("p.toml", "[pipeline]\nerrors = \"failed\"\n", "");
    let outcome = project.run().failed(1);
    outcome.says("the source stops: the command `print.sh` printed a line that is no job (line 2)");
    assert_eq!(project.ids_so_far("out.ndjson"), up_to(1));
}

#[test]
fn a_command_that_is_faster_than_its_reader_is_held_back() {
    let settings =
        "command = [\"./print.sh\", \"200000\", \"100\"]\ncursor_prefix = \"AT=\"\nmax_waiting = 1000";
    // The command prints its first lines, and waits until the step is paused.
    let gated = "echo \"AT=$at\"; while [ ! -e go ]; do sleep 0.01; done";
    let project = project(&COUNTER.replace("echo \"AT=$at\"", gated), settings);
    let mut running = project.start(&["run", "."]);
    running.wait_until("a job", || project.len("out.ndjson") > 0);
    project.tidegate(&["step", "pause", "p/pass"]).done();
    project.write("go", "");
    let waiting = || project.status("p/pass", "p/in")["waiting"].as_u64().unwrap_or(0);
    running.wait_until("jobs", || waiting() >= 1000);
    // One more read, at most.
    let held = waiting();
    assert!(held < 150_000, "{held}");
    project.tidegate(&["step", "resume", "p/pass"]).done();
    running.outcome().done();
    assert_eq!(project.ids_so_far("out.ndjson"), up_to(200_000));
}

/// Whether a process with this number runs.
pub(crate) fn runs(pid: &str) -> bool {
    let state = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    state.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_stop_lets_the_command_print_its_last_lines_and_a_kill_leaves_no_process() {
    let script = "#!/bin/sh\ntrap 'echo \"{\\\"id\\\":2}\"; exit 0' TERM\necho $$ > pid\necho '{\"id\":1}'\nwhile :; do sleep 0.01; done\n";
    let stopped = project(script, "command = [\"./print.sh\"]");
    let mut running = stopped.start(&["run", "."]);
    running.wait_until("the first line", || stopped.ids_so_far("out.ndjson") == [1]);
    running.stop().done();
    assert!(!runs(stopped.read("pid").trim()));
    // The last line was committed after the last delivery.
    assert_eq!(stopped.queue("p/in").last(), Some(&json!({ "id": 2 })));

    let killed = project(script, "command = [\"./print.sh\"]");
    let mut running = killed.start(&["run", "."]);
    running.wait_until("the first line", || killed.ids_so_far("out.ndjson") == [1]);
    let pid = killed.read("pid");
    assert!(running.kill());
    while runs(pid.trim()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_reload_restarts_a_changed_command_at_its_cursor_and_no_other() {
    let script = r#"#!/bin/sh
echo "$1 $TIDEGATE_CURSOR" >> starts
at=${TIDEGATE_CURSOR:-0}
while :; do at=$((at + 1)); echo "{\"id\":$at}"; echo "AT=$at"; sleep 0.005; done
"#;
    let project = project(script, "command = [\"./print.sh\", \"first\"]\ncursor_prefix = \"AT=\"");
    let mut running = project.start(&["run", "."]);
    let so_far = || project.ids_so_far("out.ndjson").last().copied().unwrap_or(0);
    running.wait_until("jobs", || so_far() >= 20);
    // Another part changes.
    project.change("p.toml", "[step.pass]", "[step.pass]\ntimeout = \"9s\"");
    project.tidegate(&["reload"]).done();
    assert_eq!(project.read("starts").lines().count(), 1);
    project.change("p.toml", "\"first\"", "\"second\"");
    project.tidegate(&["reload"]).done();
    running.wait_until("the second command", || project.read("starts").lines().count() == 2);
    let from: u64 = project
        .read("starts")
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("second ")?.parse().ok())
        .expect("a cursor");
    running.wait_until("its jobs", || so_far() >= from + 20);
    let status = project.tidegate(&["status"]).done();
    assert!(status.stdout.contains("source p/in (exec): runs since "), "{}", status.stdout);
    running.stop().done();
    let ids = project.ids_so_far("out.ndjson");
    assert_eq!(ids, up_to(ids.len() as u64));
    assert!(ids.len() as u64 > from);
}

#[test]
fn plan_graph_and_tests_know_a_command() {
    let test =
        "\n[[test]]\nname = \"a line\"\ngiven = { in = [{ id = 7 }] }\nexpect = { out = [{ id = 7 }] }\n";
    let project = project("#!/bin/sh\ntouch started\n", "command = [\"./print.sh\"]");
    project.append("p.toml", test);
    project.tidegate(&["test"]).done();
    assert!(!project.path().join("started").exists(), "a test starts no command");
    assert!(project.tidegate(&["graph"]).done().stdout.contains("exec"));
    project.run().done();
    project.change("p.toml", "command = [\"./print.sh\"]", "command = [\"./print.sh\", \"more\"]");
    let plan = project.tidegate(&["plan"]).failed(2);
    assert!(plan.stdout.contains("source.command"), "{}", plan.stdout);
}
