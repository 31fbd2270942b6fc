//! Tests of reloads: a running runner follows its files, and loses and repeats nothing.

mod files;
mod kills;
mod sinks;
mod watch_errors;
mod watched;

use std::fs;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::http_client::{Client, JSON, address};
use crate::project::{Project, jobs};
use crate::running::Running;

/// A step `mark` writes each job with the version of its script.
const TOML: &str = "follow = true\n[pipeline]\nerrors = \"failed\"\n\
                    [step.mark]\nfrom = \"in\"\nrun = \"mark.rhai\"\nto = \"out\"\n";

fn mark(version: u64) -> String {
    format!("fn process(job) {{ job.version = {version}; job }}")
}

fn marking() -> Project {
    Project::pipeline(TOML).file("mark.rhai", mark(1)).file("in.ndjson", jobs([1]))
}

/// As [`marking`], and compares its files once an hour: events of the file system have to be enough.
fn marking_by_events() -> Project {
    marking().file("tidegate.toml", "[reload]\npoll = \"1h\"\n")
}

/// Appends a job and waits until the output has it. Returns its version.
pub(crate) fn version_of(project: &Project, running: &mut Running, id: u64) -> u64 {
    project.append("in.ndjson", jobs([id]));
    wait_for(project, running, "out.ndjson", id)
}

/// Waits until the output has the job. Returns its version; 0 if it has none.
fn wait_for(project: &Project, running: &mut Running, output: &str, id: u64) -> u64 {
    let mut version = 0;
    running.wait_until(&format!("job {id}"), || {
        let text = project.read_if_there(output);
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = lines.into_iter().find(|job| job["id"] == id);
        version = found.as_ref().map_or(0, |job| job["version"].as_u64().unwrap_or(0));
        found.is_some()
    });
    version
}

pub(crate) fn says_generation(running: &mut Running, generation: u64) {
    running.wait_until_it_says(&format!("the changed configuration is in force generation={generation} "));
}

/// Both halves are valid: without the last line, jobs would pass unchanged.
#[test]
#[cfg(target_os = "linux")]
fn a_half_written_file_is_not_read_while_its_writer_has_it_open() {
    let project = marking_by_events();
    let mut running = project.started();
    assert_eq!(wait_for(&project, &mut running, "out.ndjson", 1), 1);
    project.write("other.rhai", mark(2));
    let step = "[step.mark]\nfrom = \"in\"\nrun = \"mark.rhai\"\nto = \"out\"\n";
    let others = project.read("p.toml").replace(step, "");
    let mut file = fs::File::create(project.path().join("p.toml")).unwrap();
    write!(file, "{others}{}", step.replace("run = \"mark.rhai\"\n", "")).unwrap();
    for id in 2..=30 {
        assert_eq!(version_of(&project, &mut running, id), 1);
    }
    writeln!(file, "run = \"other.rhai\"").unwrap();
    drop(file);
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 31), 2);
    running.stop().done();
}

#[test]
fn a_saved_script_runs_with_the_next_job() {
    let project = marking_by_events();
    let mut running = project.started();
    assert_eq!(wait_for(&project, &mut running, "out.ndjson", 1), 1);
    project.write("mark.rhai", mark(2));
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 2), 2);
    // Editors write another file and rename it.
    project.write("mark.rhai.new", mark(3));
    fs::rename(project.path().join("mark.rhai.new"), project.path().join("mark.rhai")).unwrap();
    says_generation(&mut running, 3);
    assert_eq!(version_of(&project, &mut running, 3), 3);
    running.stop().done().says("stopped: 3 jobs");
}

#[test]
fn a_link_to_a_folder_that_is_replaced_as_kubernetes_does_it_is_followed() {
    let project = marking();
    project.write("v1/p.toml", project.read("p.toml"));
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, project.path().join(from)).unwrap();
    project.write("v1/mark.rhai", mark(1));
    project.write("v2/p.toml", project.read("v1/p.toml"));
    project.write("v2/mark.rhai", mark(2));
    fs::create_dir(project.path().join("etc")).unwrap();
    link("../v1", "etc/..data");
    link("..data/p.toml", "etc/p.toml");
    link("..data/mark.rhai", "etc/mark.rhai");
    project.write("etc/tidegate.toml", "[reload]\npoll = \"1h\"\n");
    project.write("etc/in.ndjson", jobs([1]));
    let mut running = project.start(&["run", "etc"]);
    assert_eq!(wait_for(&project, &mut running, "etc/out.ndjson", 1), 1);
    link("../v2", "etc/..new");
    fs::rename(project.path().join("etc/..new"), project.path().join("etc/..data")).unwrap();
    says_generation(&mut running, 2);
    project.append("etc/in.ndjson", jobs([2]));
    assert_eq!(wait_for(&project, &mut running, "etc/out.ndjson", 2), 2);
    running.stop().done();
}

#[test]
fn files_with_mistakes_leave_the_runner_as_it_is_until_they_are_mended() {
    let project = marking();
    let mut running = project.started();
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.write("mark.rhai", "fn process(job) { job. }");
    running.wait_until_it_says("the files have mistakes: the runner goes on with generation 1");
    assert_eq!(version_of(&project, &mut running, 2), 1);
    let status = project.tidegate(&["status", "."]).done();
    let shown = status.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("so generation 1 stays in force: ./mark.rhai:1:24: "), "{shown}");
    let refused = project.tidegate(&["reload", "."]).failed(78);
    assert!(refused.stderr.contains("mark.rhai:1:"), "{}", refused.stderr);
    let reload = &project.json(&["status"])["reload"];
    assert_eq!((&reload["generation"], &reload["files_differ"]), (&json!(1), &json!(true)), "{reload}");
    assert_eq!(reload["refused"]["trigger"], "watch", "{reload}");
    assert!(
        reload["refused"]["why"].as_str().is_some_and(|why| why.starts_with("./mark.rhai:1:24: ")),
        "{reload}"
    );
    project.write("mark.rhai", mark(3));
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 3), 3);
    let status = project.tidegate(&["status", "."]).done();
    assert!(!status.stdout.contains("stays in force"), "{}", status.stdout);
    let reload = &project.json(&["status"])["reload"];
    assert_eq!((&reload["files_differ"], &reload["refused"]), (&json!(false), &Value::Null), "{reload}");
    running.stop().done();
}

#[test]
fn a_script_that_only_the_refused_files_name_is_mended_without_a_change_of_another_file() {
    let project = marking_by_events();
    let mut running = project.started();
    wait_for(&project, &mut running, "out.ndjson", 1);
    let why = |running: &mut Running, part: &str| {
        running.wait_until(part, || {
            let refused = &project.json(&["status"])["reload"]["refused"]["why"];
            refused.as_str().is_some_and(|why| why.contains(part))
        });
    };
    project.change("p.toml", "mark.rhai", "sign.rhai");
    why(&mut running, "the script `sign.rhai` does not exist");
    project.write("sign.rhai", "import \"lib/two\" as two;\nfn process(job) {");
    why(&mut running, "sign.rhai:2:");
    project
        .write("sign.rhai", "import \"lib/two\" as two;\nfn process(job) { job.version = two::two(); job }");
    why(&mut running, "lib/two");
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.write("lib/two.rhai", "fn two() { 2 }");
    // The folder is new, so it is found by the next comparison, or by a reload.
    project.tidegate(&["reload"]).done();
    assert_eq!(version_of(&project, &mut running, 3), 2);
    project.write("lib/two.rhai", "fn two() { 3 }");
    says_generation(&mut running, 3);
    assert_eq!(version_of(&project, &mut running, 4), 3);
    running.stop().done();
}

#[test]
fn a_script_that_only_the_files_of_a_rolled_back_generation_name_brings_them_into_force() {
    for restarts in [false, true] {
        let project = marking_by_events();
        let mut running = project.started();
        wait_for(&project, &mut running, "out.ndjson", 1);
        project.write("sign.rhai", mark(2));
        project.change("p.toml", "mark.rhai", "sign.rhai");
        says_generation(&mut running, 2);
        project.tidegate(&["rollback"]).done();
        assert_eq!(version_of(&project, &mut running, 2), 1);
        if restarts {
            running.stop().done();
            running = project.started();
        }
        project.write("sign.rhai", mark(3));
        says_generation(&mut running, 4);
        assert_eq!(version_of(&project, &mut running, 3), 3);
        running.stop().done();
    }
}

#[test]
fn a_change_without_an_event_is_found_by_comparison() {
    // The folder of the script is not watched, as no folder of a network file system is.
    let elsewhere = tempfile::tempdir().expect("a folder can be made");
    let script = elsewhere.path().join("mark.rhai");
    fs::write(&script, mark(1)).expect("files can be written");
    let project = Project::pipeline(TOML)
        .file("in.ndjson", jobs([1]))
        .file("tidegate.toml", "[reload]\npoll = \"100ms\"\n");
    std::os::unix::fs::symlink(&script, project.path().join("mark.rhai")).expect("links can be made");
    let mut running = project.started();
    wait_for(&project, &mut running, "out.ndjson", 1);
    fs::write(&script, mark(2)).expect("files can be written");
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 2), 2);
    running.stop().done();
}

#[test]
fn a_changed_lookup_table_is_taken_over_and_one_with_mistakes_is_refused() {
    let rows = |version: u64| format!("name,version\nmark,{version}\n");
    let project =
        Project::pipeline(&format!("{TOML}[table.versions]\npath = \"versions.csv\"\nkey = \"name\"\n"));
    project.write(
        "mark.rhai",
        "fn process(job) { job.version = parse_int(lookup(\"versions\", \"mark\").version); job }",
    );
    project.write("in.ndjson", jobs([1]));
    project.write("versions.csv", rows(1));
    // Only events of the file system announce changes.
    project.write("tidegate.toml", "[reload]\npoll = \"1h\"\n");
    let mut running = project.started();
    assert_eq!(wait_for(&project, &mut running, "out.ndjson", 1), 1);
    project.write("versions.csv.new", rows(2));
    fs::rename(project.path().join("versions.csv.new"), project.path().join("versions.csv")).unwrap();
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 2), 2);
    project.write("versions.csv", "name,version\nmark\n");
    let refused = project.tidegate(&["reload", "."]).failed(78);
    assert!(refused.stderr.contains("versions.csv:2:1"), "{}", refused.stderr);
    assert_eq!(version_of(&project, &mut running, 3), 2);
    project.write("versions.csv", rows(4));
    says_generation(&mut running, 3);
    assert_eq!(version_of(&project, &mut running, 4), 4);
    running.stop().done();
}

#[test]
fn a_change_is_in_force_only_if_the_tests_of_its_steps_pass() {
    let test = "[[test]]\nname = \"a job has its version\"\nstep = \"mark\"\ngiven = [{ id = 1 }]\n\
                expect = { out = [{ id = 1, version = 2 }] }\n\
                [[test]]\nname = \"another step\"\nstep = \"other\"\ngiven = [1]\nexpect = { there = [] }\n";
    let project = marking().file("tidegate.toml", "[reload]\ntests = true\n");
    project.append("p.toml", format!("[step.other]\nfrom = \"here\"\nto = \"there\"\n{test}"));
    let mut running = project.started_with(&["--no-watch"]);
    // A start runs no tests: the first one would fail.
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.write("mark.rhai", mark(3));
    // The configuration has no mistake.
    let refused = project.tidegate(&["reload", "."]).failed(1);
    for part in ["the test `p/mark: a job has its version` fails", "`out` differs", "p.toml:"] {
        assert!(refused.stderr.contains(part), "`{part}` is missing in\n{}", refused.stderr);
    }
    assert!(!refused.stderr.contains("another step"), "{}", refused.stderr);
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.write("mark.rhai", mark(2));
    assert_eq!(project.tidegate(&["reload", "."]).done().stdout, "generation 2 is in force\n");
    assert_eq!(version_of(&project, &mut running, 3), 2);
    running.stop().done();
}

#[test]
fn a_command_and_a_signal_reload_and_without_watching_nothing_else_does() {
    let project = marking();
    project.tidegate(&["reload", "."]).failed(1);
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.write("mark.rhai", mark(2));
    assert_eq!(version_of(&project, &mut running, 2), 1);
    assert_eq!(project.tidegate(&["reload", "."]).done().stdout, "generation 2 is in force\n");
    assert_eq!(version_of(&project, &mut running, 3), 2);
    assert_eq!(
        project.tidegate(&["reload", "."]).done().stdout,
        "nothing has changed: generation 2 stays in force\n"
    );
    project.write("mark.rhai", mark(4));
    running.signal("HUP");
    says_generation(&mut running, 3);
    assert_eq!(version_of(&project, &mut running, 4), 4);
    project.change("p.toml", "[pipeline]", "# A comment.\n[pipeline]");
    assert_eq!(
        project.tidegate(&["reload", "."]).done().stdout,
        "nothing has changed: generation 3 stays in force\n"
    );
    // The comment is recorded after the answer.
    running.wait_until("all entries", || {
        let history = project.json(&["history"]);
        let entries = history["entries"].as_array().unwrap();
        let triggers: Vec<&str> = entries.iter().map(|entry| entry["trigger"].as_str().unwrap()).collect();
        triggers == ["start", "reload", "signal", "reload"]
    });
    running.stop().done();
}

#[test]
fn a_step_takes_its_jobs_over_a_new_queue_and_a_removed_one_goes_on_where_it_was() {
    let project = marking();
    let mut running = project.started();
    wait_for(&project, &mut running, "out.ndjson", 1);
    let before = project.read("p.toml");
    // The sink stays the same file, and another step writes to it.
    let between =
        before.replace("to = \"out\"", "to = \"middle\"") + "[step.pass]\nfrom = \"middle\"\nto = \"out\"\n";
    project.write("p.toml", &between);
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.change("p.toml", "[step.mark]\nfrom = \"in\"\nrun = \"mark.rhai\"\nto = \"middle\"\n", "");
    says_generation(&mut running, 3);
    project.append("in.ndjson", jobs([3]));
    project.write("p.toml", &between);
    says_generation(&mut running, 4);
    wait_for(&project, &mut running, "out.ndjson", 3);
    project.write("p.toml", &before);
    says_generation(&mut running, 5);
    version_of(&project, &mut running, 4);
    assert_eq!(crate::project::ids(&project.read("out.ndjson")), [1, 2, 3, 4]);
    running.stop().done();
}

#[test]
fn a_stopped_step_is_taken_up_again_when_its_script_is_mended() {
    // No other step keeps the run from ending.
    let toml = TOML.replace("errors = \"failed\"\n", "");
    let project = Project::pipeline(&toml)
        .file("mark.rhai", "fn process(job) { if job.id == 2 { throw \"no\" } job }")
        .file("in.ndjson", jobs(1..=3));
    let mut running = project.started();
    running.wait_until_it_says("the step stops: job 2");
    project.write("mark.rhai", mark(2));
    wait_for(&project, &mut running, "out.ndjson", 3);
    assert_eq!(crate::project::ids(&project.read("out.ndjson")), [1, 2, 3]);
    running.stop().done();
}

#[test]
fn a_request_to_the_port_reloads_and_new_sources_take_jobs_from_then_on() {
    let source = |name: &str| {
        format!("[source.{name}]\ntype = \"http\"\n[step.of_{name}]\nfrom = \"{name}\"\nto = \"out\"\n")
    };
    let out = "[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";
    let project = Project::new()
        .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n[reload]\nwatch = false\n")
        .file("p.toml", source("one") + out);
    let mut running = project.start(&["run", "."]);
    // A refused body closes its connection.
    let place = address(&mut running);
    let request = |what: &str, body: &str| Client::new(&place).request(what, &[JSON], body);
    assert_eq!(request("POST /sources/p/two", "{\"id\":1}").status, 404);
    project.write("p.toml", format!("{}{}{out}", source("one"), source("two")));
    let reloaded = request("POST /reload", "");
    assert_eq!((reloaded.status, &reloaded.body["generation"]), (200, &json!(2)));
    assert_eq!(request("POST /sources/p/two", "{\"id\":1}").status, 202);
    project.write("p.toml", source("two") + out);
    assert_eq!(request("POST /reload", "").status, 200);
    assert_eq!(request("POST /sources/p/one", "{\"id\":2}").status, 404);
    project.write("p.toml", "[source.two]");
    let refused = request("POST /reload", "");
    assert_eq!(refused.status, 422);
    assert_eq!(request("POST /sources/p/two", "{\"id\":3}").status, 202);
    wait_for(&project, &mut running, "out.ndjson", 3);
    let current = request("GET /reload", "");
    assert_eq!((current.status, &current.body["generation"]), (200, &json!(3)));
    assert_eq!(current.body["files_differ"], true, "{}", current.body);
    assert!(current.body["refused"]["since"].is_string(), "{}", current.body);
    assert_eq!(current.body["refused"]["place"], "./p.toml", "{}", current.body);
    project.write("p.toml", "[source.two\n");
    assert_eq!(request("POST /reload", "").status, 422);
    assert_eq!(request("GET /reload", "").body["refused"]["place"], "./p.toml:1:12");
    assert_eq!(request("PUT /reload", "").status, 405);
    running.stop().done();
}

#[test]
fn a_setting_that_waits_for_a_restart_is_named_until_then() {
    let settings = |workers: &str| format!("[runner]\nlisten = \"127.0.0.1:0\"\nworkers = {workers}\n");
    let project = marking().file("tidegate.toml", settings("2"));
    let mut running = project.started_with(&["--no-watch"]);
    let names =
        |command: &[&str]| project.tidegate(command).stdout.contains("takes effect when the runner restarts");
    assert!(!names(&["status"]));
    let place = address(&mut running);
    let restart = || Client::new(&place).request("GET /reload", &[], "").body["restart"].clone();
    assert_eq!(restart(), json!([]));
    project.write("tidegate.toml", settings("3"));
    let told = project.tidegate(&["reload"]).done().stdout;
    assert!(told.contains("`workers` takes effect when the runner restarts"), "{told}");
    assert!(names(&["status"]));
    assert_eq!(project.json(&["status"])["reload"]["restart"], json!(["workers"]));
    assert_eq!(restart(), json!(["workers"]));
    let plan = project.tidegate(&["plan"]).done().stdout;
    let note =
        "note: `workers` was changed by an earlier reload, and takes effect when the runner restarts\n";
    assert!(plan.starts_with(note), "{plan}");
    // Another reload does not make it forgotten, and the old value needs no restart.
    project.write("mark.rhai", mark(2));
    assert!(project.tidegate(&["reload"]).done().stdout.contains("`workers` takes effect"));
    project.write("tidegate.toml", settings("2"));
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains("workers") && !plan.contains("next start"), "{plan}");
    assert!(!project.tidegate(&["reload"]).done().stdout.contains("takes effect"));
    assert!(!names(&["status"]) && !names(&["plan"]));
    assert_eq!(restart(), json!([]));
    assert_eq!(version_of(&project, &mut running, 2), 2);
    running.stop().done();
}

#[test]
fn a_sink_that_cannot_be_opened_leaves_the_runner_as_it_is() {
    let project = marking().file("other.ndjson", "not written by this sink\n");
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    let before = project.read("p.toml");
    for path in ["other.ndjson", "mark.rhai/out.ndjson"] {
        project.write("p.toml", before.replace("out.ndjson", path));
        let refused = project.tidegate(&["reload", "."]).failed(1);
        assert!(refused.stderr.contains("`p/out` cannot be opened: "), "{}", refused.stderr);
        // The place of the sink in the file.
        let line = before.lines().position(|line| line == "[sink.out]").expect("it has a sink") + 1;
        assert!(refused.stderr.contains(&format!("p.toml:{line}:")), "{}", refused.stderr);
    }
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.write("p.toml", before.replace("out.ndjson", "new/out.ndjson"));
    project.tidegate(&["reload", "."]).done();
    project.append("in.ndjson", jobs([3]));
    assert_eq!(wait_for(&project, &mut running, "new/out.ndjson", 3), 1);
    running.stop().done();
}

#[test]
fn a_sink_that_takes_the_file_of_a_running_sink_is_refused_before_it_takes_over() {
    let project = marking();
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    let before = project.read("p.toml");
    let renamed = before.replace("to = \"out\"", "to = \"lines\"").replace("[sink.out]", "[sink.lines]");
    std::os::unix::fs::symlink("out.ndjson", project.path().join("link.ndjson")).unwrap();
    let by_link = renamed.replace("path = \"out.ndjson\"", "path = \"link.ndjson\"");
    let append = |text: &str| text.replace("[sink.lines]", "[sink.lines]\non_mismatch = \"append\"");
    let refusal = |text: &str| {
        project.write("p.toml", text);
        // A plan knows the reason beforehand.
        let plan = project.tidegate(&["plan"]).failed(1).stdout;
        let why =
            plan.lines().find_map(|line| line.strip_prefix("refused: ")).expect("the plan has the reason");
        let said = project.tidegate(&["reload", "."]).failed(1).stderr;
        assert!(said.contains(why), "{plan}\n{said}");
        said
    };
    for text in [&renamed, &by_link] {
        let said = refusal(text);
        assert!(said.contains("has the lines of sink `p/out`, which is in force"), "{said}");
    }
    let said = refusal(&append(&by_link));
    assert!(said.contains("sink `p/out` writes the same file as"), "{said}");
    let both = format!("{before}[sink.lines]\ntype = \"file\"\npath = \"link.ndjson\"\nfrom = \"in\"\n");
    let said = refusal(&both);
    assert!(said.contains("sink `p/out` writes the same file by another path"), "{said}");
    // The steps of the earlier sink go on.
    assert_eq!(version_of(&project, &mut running, 2), 1);
    // Another spelling of its own path is the same file.
    project.write("p.toml", before.replace("path = \"out.ndjson\"", "path = \"link.ndjson\""));
    project.tidegate(&["reload", "."]).done();
    assert_eq!(version_of(&project, &mut running, 3), 1);
    project.write("p.toml", append(&by_link));
    project.tidegate(&["reload", "."]).done();
    assert_eq!(version_of(&project, &mut running, 4), 1);
    assert_eq!(crate::project::ids(&project.read("out.ndjson")), [1, 2, 3, 4]);
    // The earlier sink cannot return behind these lines.
    let rollback = project.tidegate(&["rollback", "--yes"]).failed(1);
    assert!(rollback.stderr.contains("has the lines of sink `p/lines`"), "{}", rollback.stderr);
    running.stop().done();
}

#[test]
fn a_step_that_hangs_holds_up_no_reload_and_the_status_says_why_it_lingers() {
    let project = Project::pipeline(
        "follow = true\n[pipeline]\nerrors = \"failed\"\n[step.wait]\nfrom = \"in\"\nrun = \"builtin:exec\"\n\
         exec = { command = [\"sh\", \"-c\", \"touch begun; read line < gate; cat\"] }\ntimeout = \"1h\"\nto = \"out\"\n\
         [step.mark]\nfrom = \"in\"\nrun = \"mark.rhai\"\nto = \"marked\"\n\
         [sink.marked]\ntype = \"file\"\npath = \"marked.ndjson\"\n",
    )
    .file("mark.rhai", mark(1))
    .file("in.ndjson", jobs([1]));
    let made = std::process::Command::new("mkfifo").arg(project.path().join("gate")).status();
    assert!(made.expect("mkfifo can be started").success());
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "marked.ndjson", 1);
    running.wait_until("the attempt", || project.path().join("begun").exists());
    let why_it_lingers = || {
        let lingering = &project.json(&["status"])["reload"]["lingering"];
        let step = lingering.as_array().and_then(|steps| steps.iter().find(|step| step["step"] == "p/wait"));
        step.map(|step| step["why"].clone())
    };
    assert_eq!(why_it_lingers(), None);
    // The attempt keeps the time that it was begun with, and no other step waits for it.
    project.change("p.toml", "timeout = \"1h\"", "timeout = \"2h\"");
    assert!(!project.tidegate(&["reload"]).done().stdout.contains("p/wait"));
    assert_eq!(why_it_lingers(), Some("1 job of the earlier generation is not committed".into()));
    project.write("mark.rhai", mark(2));
    project.change(
        "p.toml",
        "[sink.out]",
        "[queue.ready]\n[step.pass]\nfrom = \"ready\"\nto = \"out\"\n[sink.out]",
    );
    project.change("p.toml", "timeout = \"2h\"\nto = \"out\"", "timeout = \"2h\"\nto = \"ready\"");
    let reloaded = project.tidegate(&["reload"]).done().stdout;
    assert!(reloaded.contains("p/wait"), "{reloaded}");
    project.append("in.ndjson", jobs([2]));
    assert_eq!(wait_for(&project, &mut running, "marked.ndjson", 2), 2);
    assert_eq!(why_it_lingers(), Some("1 job of the earlier generation is not committed".into()));
    let text = project.tidegate(&["status"]).done().stdout;
    assert!(text.contains("step p/wait does not follow it with all jobs yet"), "{text}");
    // The job goes to the output of its generation, and the next one to the new queue.
    fs::write(project.path().join("gate"), "go\n").expect("the command reads it");
    running.wait_until("the first job", || project.ids_so_far("out.ndjson") == [1]);
    fs::write(project.path().join("gate"), "go\n").expect("the command reads it");
    running.wait_until("the second job", || project.ids_so_far("out.ndjson") == [1, 2]);
    assert_eq!(project.json(&["status"])["reload"]["lingering"], json!([]));
    running.stop().done();
}

#[test]
fn a_pipeline_that_was_removed_returns_while_its_last_job_still_runs() {
    let project = Project::pipeline("follow = true\n[step.copy]\nfrom = \"in\"\nto = \"out\"\n")
        .file("slow.toml", SLOW)
        .file("slow.ndjson", jobs([0, 1]));
    let made = std::process::Command::new("mkfifo").arg(project.path().join("gate")).status();
    assert!(made.expect("mkfifo can be started").success());
    let mut running = project.started_with(&["--no-watch"]);
    running.wait_until("the attempt", || project.path().join("begun").exists());
    fs::remove_file(project.path().join("slow.toml")).expect("it is there");
    let reloaded = project.tidegate(&["reload"]).done().stdout;
    assert!(reloaded.contains("slow/wait"), "{reloaded}");
    project.write("slow.toml", SLOW);
    project.append("slow.ndjson", jobs([2]));
    project.tidegate(&["reload"]).done();
    for expected in [&[0, 1][..], &[0, 1, 2]] {
        fs::write(project.path().join("gate"), "go\n").expect("the command reads it");
        running.wait_until("a job", || project.ids_so_far("slow-out.ndjson") == expected);
    }
    running.stop().done();
}

/// A step that waits at a gate with each job but the first.
const SLOW: &str = "
[source.in]
type = \"file\"
path = \"slow.ndjson\"
format = \"ndjson\"
follow = true
[step.wait]
from = \"in\"
run = \"builtin:exec\"
exec = { command = [\"sh\", \"-c\", \"read job; case $job in *:0*) ;; *) touch begun; read line < gate;; esac; echo $job\"] }
timeout = \"1h\"
to = \"out\"
[sink.out]
type = \"file\"
path = \"slow-out.ndjson\"
";

#[test]
fn a_folder_that_vanishes_and_comes_back_is_followed() {
    let project = Project::pipeline(&TOML.replace("mark.rhai", "lib/mark.rhai"))
        .file("lib/mark.rhai", mark(1))
        .file("in.ndjson", jobs([1]))
        .file("tidegate.toml", "[reload]\npoll = \"100ms\"\n");
    let mut running = project.started();
    wait_for(&project, &mut running, "out.ndjson", 1);
    fs::rename(project.path().join("lib"), project.path().join("away")).expect("folders can be renamed");
    running.wait_until_it_says("the files have mistakes: ");
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.write("lib/mark.rhai", mark(2));
    says_generation(&mut running, 2);
    assert_eq!(version_of(&project, &mut running, 3), 2);
    project.write("lib/mark.rhai", mark(3));
    says_generation(&mut running, 3);
    running.stop().done();
}

#[test]
fn a_command_that_names_another_configuration_than_the_runner_reads_gets_a_warning() {
    let project = marking();
    let running = project.started_with(&["--no-watch"]);
    project.write("next/p.toml", project.read("p.toml"));
    project.write("next/mark.rhai", mark(2));
    let other = |command: &[&str]| project.tidegate(&[command, &["next", "--data", ".tidegate"]].concat());
    for outcome in [other(&["plan"]).done(), other(&["reload"]).done()] {
        assert!(outcome.stderr.contains("the runner reads `/"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("`, and not `next`"), "{}", outcome.stderr);
    }
    let written =
        project.tidegate(&["rollback", "1", "--write", "--yes", "--config", "next", "--data", ".tidegate"]);
    written.failed(1).says("give this path to restore its files");
    assert_eq!(project.read("next/mark.rhai"), mark(2));
    let own = project.tidegate(&["plan"]).done();
    assert!(!own.stderr.contains("the runner reads"), "{}", own.stderr);
    running.stop().done();
}

#[test]
fn the_summary_names_the_steps_and_sinks_that_the_last_reload_left() {
    let project = marking();
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.change("p.toml", "[step.mark]", "[step.more]\nfrom = \"in\"\nto = \"next\"\n[step.mark]");
    project.change(
        "p.toml",
        "[sink.out]",
        "[sink.next]\ntype = \"file\"\npath = \"next.ndjson\"\n[sink.out]",
    );
    project.tidegate(&["reload"]).done();
    wait_for(&project, &mut running, "next.ndjson", 1);
    let stopped = running.stop().done();
    assert!(stopped.stderr.contains("more") && stopped.stderr.contains("next.ndjson"), "{}", stopped.stderr);
}
