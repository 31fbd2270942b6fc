//! Tests of `[reload] watch_errors`: a reload after which more attempts fail is rolled back.

use serde_json::{Value, json};

use super::{mark, says_generation, version_of, wait_for};
use crate::http_client::{Client, address};
use crate::project::{Project, ids, jobs};
use crate::running::Running;

/// The time is long: a busy machine may take its time.
const SETTINGS: &str =
    "[runner]\nlisten = \"127.0.0.1:0\"\n[reload]\nwatch_errors = { rate = 0.5, within = \"10m\" }\n";
const FAILING: &str = "fn process(job) { throw \"no\" }";

/// `errors`: with an error queue.
fn watched(errors: bool) -> Project {
    let pipeline = if errors { "[pipeline]\nerrors = \"failed\"\n" } else { "" };
    let toml = format!(
        "follow = true\n{pipeline}[step.mark]\nfrom = \"in\"\nrun = \"mark.rhai\"\nto = \"out\"\n\
         [step.other]\nfrom = \"in\"\nrun = \"other.rhai\"\nto = \"more\"\n[sink.more]\ntype = \"file\"\npath = \"more.ndjson\"\n"
    );
    Project::pipeline(&toml)
        .file("tidegate.toml", SETTINGS)
        .file("mark.rhai", mark(1))
        .file("other.rhai", "fn process(job) { job }")
        .file("in.ndjson", jobs([1]))
}

/// A runner that has delivered the first job and has taken over a script that fails, as generation 2.
fn broken(project: &Project) -> Running {
    let mut running = project.started();
    wait_for(project, &mut running, "out.ndjson", 1);
    project.write("mark.rhai", FAILING);
    says_generation(&mut running, 2);
    running
}

fn last(history: &Value, generation: u64) -> Value {
    let entries = history["entries"].as_array().expect("a list");
    entries.iter().rfind(|entry| entry["generation"] == generation).expect("its entry").clone()
}

#[test]
fn a_script_that_fails_after_a_save_is_rolled_back_and_everything_says_so() {
    let project = watched(true);
    let mut running = project.start(&["run", "."]);
    let port = address(&mut running);
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.write("mark.rhai", FAILING);
    says_generation(&mut running, 2);
    // Fewer attempts decide nothing.
    project.append("in.ndjson", jobs(2..=10));
    running.wait_until("the failures", || project.queue("p/failed").len() == 9);
    let status = project.json(&["status"]);
    assert_eq!(
        (&status["reload"]["generation"], &status["reload"]["rolled_back"]),
        (&json!(2), &Value::Null)
    );
    assert_eq!(status["reload"]["files_differ"], false, "{status}");

    project.append("in.ndjson", jobs([11]));
    let why = "10 of 10 attempts of `p/mark` failed since then, and 0 of 1 before";
    running
        .wait_until_it_says(&format!("generation 2 is rolled back: {why}; generation 1 is in force again"));
    assert_eq!(version_of(&project, &mut running, 12), 1);
    let status = project.json(&["status"]);
    let reload = &status["reload"];
    assert_eq!((&reload["generation"], &reload["files_differ"]), (&json!(3), &json!(true)), "{status}");
    let back = &reload["rolled_back"];
    let expected =
        json!({ "from": 2, "to": 1, "trigger": "watch_errors", "why": why, "since": back["since"] });
    assert_eq!(*back, expected);
    let text = project.tidegate(&["status"]).done().stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("generation 2 was rolled back at ") && text.contains(why), "{text}");
    assert_eq!(Client::new(&port).request("GET /reload", &[], "").body, *reload);
    let history = project.json(&["history"]);
    let replaced = last(&history, 2);
    assert_eq!((&replaced["outcome"], &replaced["why"]), (&json!("rolled back"), &json!(why)), "{history}");
    assert_eq!(last(&history, 3)["trigger"], "watch_errors", "{history}");

    // The files stay as they were saved, until they change again.
    assert_eq!(project.read("mark.rhai"), FAILING);
    project.write("mark.rhai", mark(4));
    says_generation(&mut running, 4);
    assert_eq!(version_of(&project, &mut running, 13), 4);
    let status = project.json(&["status"]);
    assert_eq!(
        (&status["reload"]["rolled_back"], &status["reload"]["files_differ"]),
        (&Value::Null, &json!(false))
    );
    // The other step has not changed: it failed nothing, and missed nothing.
    running
        .wait_until("the jobs of the other step", || project.len("more.ndjson") == project.len("in.ndjson"));
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_second_broken_save_right_after_a_rollback_is_rolled_back_too() {
    let project = watched(true).file("in.ndjson", jobs(1..=20));
    let mut running = project.started();
    wait_for(&project, &mut running, "out.ndjson", 20);
    project.write("mark.rhai", FAILING);
    says_generation(&mut running, 2);
    project.append("in.ndjson", jobs(21..=30));
    running
        .wait_until_it_says("generation 2 is rolled back: 10 of 10 attempts of `p/mark` failed since then");
    project.write("mark.rhai", "fn process(job) { throw \"still no\" }");
    says_generation(&mut running, 4);
    project.append("in.ndjson", jobs(31..=40));
    let why = "10 of 10 attempts of `p/mark` failed since then, and 0 of 20 before";
    running
        .wait_until_it_says(&format!("generation 4 is rolled back: {why}; generation 3 is in force again"));
    assert_eq!(version_of(&project, &mut running, 41), 1);
    running.stop().done();
}

#[test]
fn further_saves_during_the_watch_do_not_disarm_it_and_it_goes_back_to_the_last_proven_generation() {
    let project = watched(true);
    let mut running = broken(&project);
    project.append("in.ndjson", jobs(2..=10));
    running.wait_until("the failures", || project.queue("p/failed").len() == 9);
    project.write("mark.rhai", "fn process(job) { throw \"still no\" }");
    says_generation(&mut running, 3);
    project.append("in.ndjson", jobs(11..=19));
    running.wait_until("the failures", || project.queue("p/failed").len() == 18);
    // Neither another step nor a mistake ends the watch.
    project.write("other.rhai", "fn process(job) { job.other = true; job }");
    says_generation(&mut running, 4);
    project.write("other.rhai", "fn process(job) {");
    running.wait_until_it_says("the files have mistakes: the runner goes on with generation 4");
    project.append("in.ndjson", jobs([20]));
    let why = "10 of 10 attempts of `p/mark` failed since generation 3, and 0 of 1 before";
    running
        .wait_until_it_says(&format!("generation 4 is rolled back: {why}; generation 1 is in force again"));
    assert_eq!(version_of(&project, &mut running, 21), 1);
    let history = project.json(&["history"]);
    for generation in 2..=4 {
        let replaced = last(&history, generation);
        assert_eq!(
            (&replaced["outcome"], &replaced["why"]),
            (&json!("rolled back"), &json!(why)),
            "{history}"
        );
    }
    let back = &project.json(&["status"])["reload"]["rolled_back"];
    assert_eq!((&back["from"], &back["to"]), (&json!(4), &json!(1)), "{back}");
    running.stop().done();
}

#[test]
fn a_rollback_over_several_reloads_with_renames_gives_all_parts_their_names_back() {
    let project = watched(true);
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.change("p.toml", "[step.mark]", "[step.stamp]\nwas = \"mark\"");
    project.change("p.toml", "\"in\"", "\"orders\"");
    project.change("p.toml", "[source.in]", "[source.orders]\nwas = \"in\"");
    project.tidegate(&["reload"]).done();
    assert_eq!(version_of(&project, &mut running, 2), 1);
    for line in ["was = \"mark\"\n", "was = \"in\"\n"] {
        project.change("p.toml", line, "");
    }
    project.change("p.toml", "[pipeline]\n", "[pipeline]\nname = \"q\"\nwas = \"p\"\n");
    project.write("mark.rhai", FAILING);
    project.tidegate(&["reload"]).done();
    project.append("in.ndjson", jobs(3..=12));
    running
        .wait_until_it_says("generation 3 is rolled back: 10 of 10 attempts of `q/stamp` failed since then");
    running.wait_until_it_says("generation 1 is in force again");
    assert_eq!(version_of(&project, &mut running, 13), 1);
    running.wait_until("the other step", || project.ids_so_far("more.ndjson").len() == 13);
    // Errors of the later names are retried under the earlier ones.
    assert_eq!(project.queue("p/failed").len(), 10);
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    running.wait_until("the retried jobs", || project.ids_so_far("out.ndjson").len() == 13);
    running.stop().done();
    let mut written = project.ids_so_far("out.ndjson");
    assert_eq!(&written[..3], [1, 2, 13]);
    written.sort_unstable();
    assert_eq!(written, (1..=13).collect::<Vec<_>>());
    assert_eq!(project.ids_so_far("more.ndjson"), (1..=13).collect::<Vec<_>>());
    project.assert_sound();
}

#[test]
fn a_save_without_a_change_after_a_rollback_does_not_bring_the_files_into_force() {
    let project = watched(false);
    let mut running = broken(&project);
    project.append("in.ndjson", jobs([2]));
    running.wait_until_it_says("generation 2 is rolled back: ");
    project.write("mark.rhai", FAILING);
    running.wait_until_it_says("the saved files are those of generation 2, which was rolled back: ");
    let reload = &project.json(&["status"])["reload"];
    assert_eq!((&reload["generation"], &reload["rolled_back"]["from"]), (&json!(3), &json!(2)), "{reload}");
    assert_eq!(version_of(&project, &mut running, 3), 1);
    project.tidegate(&["reload"]).done();
    says_generation(&mut running, 4);
    running.stop().done();
}

#[test]
fn a_restart_goes_on_with_the_earlier_generation_until_the_files_change() {
    let project = watched(false);
    let mut running = broken(&project);
    project.append("in.ndjson", jobs([2]));
    running.wait_until_it_says("generation 2 is rolled back: ");
    wait_for(&project, &mut running, "out.ndjson", 2);
    running.stop().done();
    for id in [3, 4] {
        let mut running = project.started();
        running.wait_until_it_says(
            "generation 1 goes on: the files are those of generation 2, which was rolled back: 1 of 1 attempts of `p/mark`",
        );
        let reload = &project.json(&["status"])["reload"];
        assert_eq!((&reload["generation"], &reload["files_differ"]), (&json!(3), &json!(true)), "{reload}");
        assert_eq!((&reload["rolled_back"]["from"], &reload["rolled_back"]["to"]), (&json!(2), &json!(1)));
        assert_eq!(reload["rolled_back"]["trigger"], "watch_errors");
        assert_eq!(version_of(&project, &mut running, id), 1);
        running.stop().done();
    }
    // An operator brings the files into force, and the status still shows the rollback.
    let mut running = project.started_with(&["--from-files"]);
    running.wait_until_it_says("generation 2 of these files was rolled back: 1 of 1 attempts of `p/mark`");
    let before = &project.json(&["status"])["reload"]["rolled_back_before"];
    assert_eq!(before["generation"], 2, "{before}");
    project.write("mark.rhai", mark(5));
    says_generation(&mut running, 5);
    assert_eq!(project.json(&["status"])["reload"]["rolled_back_before"], Value::Null);
    running.stop().done();
    let running = project.started();
    let reload = &project.json(&["status"])["reload"];
    assert_eq!((&reload["generation"], &reload["rolled_back"]), (&json!(5), &Value::Null), "{reload}");
    running.stop().done();
}

#[test]
fn a_restart_with_changed_files_after_a_rollback_brings_them_into_force() {
    let project = watched(false);
    let mut running = broken(&project);
    project.append("in.ndjson", jobs([2]));
    running.wait_until_it_says("generation 2 is rolled back: ");
    running.stop().done();
    project.write("mark.rhai", mark(7));
    let mut running = project.started();
    assert_eq!(version_of(&project, &mut running, 3), 7);
    assert_eq!(project.json(&["status"])["reload"]["rolled_back"], Value::Null);
    running.stop().done();
}

#[test]
fn a_step_that_stops_after_a_save_is_rolled_back_at_once_and_goes_on() {
    let project = watched(false);
    let mut running = broken(&project);
    project.append("in.ndjson", jobs([2]));
    running.wait_until_it_says("generation 2 is rolled back: 1 of 1 attempts of `p/mark` failed");
    assert_eq!(version_of(&project, &mut running, 3), 1);
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3]);
    running.stop().done();
}

#[test]
fn failures_of_other_steps_and_after_a_manual_rollback_roll_nothing_back() {
    let project = watched(true).file("other.rhai", "fn process(job) { if job.id > 1 { throw \"no\" } job }");
    let mut running = project.started();
    wait_for(&project, &mut running, "more.ndjson", 1);
    project.write("mark.rhai", mark(2));
    says_generation(&mut running, 2);
    project.append("in.ndjson", jobs(2..=30));
    running.wait_until("the failures", || project.queue("p/failed").len() == 29);
    project.write("mark.rhai", "fn process(job) { if job.id > 45 { throw \"no\" } job.version = 3; job }");
    says_generation(&mut running, 3);
    assert_eq!(version_of(&project, &mut running, 31), 3);
    // Going on to a failing script by a rollback is the decision of an operator.
    project.write("mark.rhai", mark(4));
    says_generation(&mut running, 4);
    project.tidegate(&["rollback", "3"]).done();
    project.append("in.ndjson", jobs(46..=60));
    running.wait_until("the failures", || project.queue("p/failed").len() == 29 + 1 + 15 + 15);
    assert_eq!(project.json(&["status"])["reload"]["generation"], 5);
    running.stop().done();
}

#[test]
fn a_rollback_whose_sink_cannot_open_its_earlier_file_is_refused_and_shown() {
    let project = watched(true);
    let mut running = project.started();
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.write("mark.rhai", "fn process(job) { if job.id > 2 { throw \"no\" } job }");
    project.change("p.toml", "out.ndjson", "out2.ndjson");
    running.wait_until("both changes", || project.json(&["status"])["reload"]["files_differ"] == false);
    project.append("in.ndjson", jobs([2]));
    wait_for(&project, &mut running, "out2.ndjson", 2);
    std::fs::remove_file(project.path().join("out.ndjson")).expect("the runner has left the file");
    std::fs::create_dir(project.path().join("out.ndjson")).expect("folders can be made");
    project.append("in.ndjson", jobs(3..=20));
    running.wait_until_it_says("the reload cannot be rolled back: ");
    let refused = &project.json(&["status"])["reload"]["refused"];
    assert_eq!(refused["trigger"], "watch_errors", "{refused}");
    assert!(
        refused["why"].as_str().is_some_and(|why| why.contains("`p/out` cannot be opened: ")),
        "{refused}"
    );
    let manual = project.tidegate(&["rollback", "1"]).failed(1);
    assert!(manual.stderr.contains("`p/out` cannot be opened: "), "{}", manual.stderr);
    running.stop().done();
}
