//! Tests of rollbacks: the runner, the files, and refusals.

use crate::project::{Outcome, Project, ids, jobs};
use crate::reload::{says_generation, version_of};

const TOML: &str = "follow = true\n[step.mark]\nfrom = \"in\"\nrun = \"mark.rhai\"\nto = \"out\"\n";

fn mark(version: u64) -> String {
    format!(
        "import \"lib/version\" as version;\nfn process(job) {{ job.version = {version} + version::zero(); job }}"
    )
}

fn marking() -> Project {
    Project::pipeline(TOML)
        .file("mark.rhai", mark(1))
        .file("lib/version.rhai", "fn zero() { 0 }\n")
        .file("in.ndjson", jobs([1]))
}

#[test]
fn the_runner_goes_back_until_a_file_changes_again() {
    let project = marking();
    let mut running = project.started();
    assert_eq!(version_of(&project, &mut running, 2), 1);
    // The new generation has a file more, and the earlier one's import is gone.
    project.write("mark.rhai", "fn process(job) { job.version = 2; job }");
    says_generation(&mut running, 2);
    std::fs::remove_file(project.path().join("lib/version.rhai")).expect("the file is there");
    assert_eq!(version_of(&project, &mut running, 3), 2);

    let told = project.tidegate(&["rollback"]).done().stdout;
    assert_eq!(told, "generation 3 is in force: it repeats generation 1\n");
    assert_eq!(version_of(&project, &mut running, 4), 1);
    let status = project.tidegate(&["status"]).done().stdout;
    assert!(status.contains("the files differ from the configuration in force"), "{status}");
    assert!(project.tidegate(&["plan"]).failed(2).stdout.contains("script mark.rhai"));
    insta::assert_snapshot!(project.stable(&project.tidegate(&["history"]).done().stdout));

    project.write("mark.rhai", "fn process(job) { job.version = 3; job }");
    says_generation(&mut running, 4);
    assert_eq!(version_of(&project, &mut running, 5), 3);
    assert!(!project.tidegate(&["status"]).done().stdout.contains("the files differ"));
    // Generation 2 was rolled back, so 3 is the one before.
    project.tidegate(&["rollback"]).done();
    assert_eq!(version_of(&project, &mut running, 6), 1);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn the_files_go_back_too_on_request() {
    let project = marking();
    let mut running = project.started();
    assert_eq!(version_of(&project, &mut running, 2), 1);
    let before = project.read("p.toml");
    project.write("mark.rhai", "fn process(job) { job.version = 2; job }");
    project.write("more.toml", "[step.again]\nfrom = \"p/again\"\n");
    says_generation(&mut running, 2);
    project.write("p.toml", "[step.mark\n");
    project.tidegate(&["reload"]).failed(78);
    running.wait_until("the refusal", || {
        let history = project.json(&["history"]);
        let refused = history["entries"].as_array().and_then(|entries| entries.last().cloned());
        let refused = refused.unwrap_or_default();
        refused["outcome"] == "failed" && refused["generation"].is_null()
    });
    project.tidegate(&["rollback", "1", "--write"]).failed(64).says("this needs `--yes`");
    let told = project.tidegate(&["rollback", "1", "--write", "--yes"]).done().stderr;
    assert!(told.contains("restored `p.toml`") && told.contains("restored `mark.rhai`"), "{told}");
    assert!(told.contains("renamed to `more.toml.rolled-back`"), "{told}");
    assert_eq!((project.read("p.toml"), project.read("mark.rhai")), (before, mark(1)));
    assert_eq!(version_of(&project, &mut running, 3), 1);
    project.tidegate(&["plan"]).done();
    running.stop().done();
}

#[test]
fn a_deleted_pipeline_comes_back_from_the_history() {
    let project = marking();
    let mut running = project.started();
    assert_eq!(version_of(&project, &mut running, 2), 1);
    let before = project.read("p.toml");
    std::fs::remove_file(project.path().join("p.toml")).expect("the file is there");
    running.wait_until_it_says("the folder has no pipeline");
    running.wait_until("the refusal", || {
        project.tidegate(&["status"]).done().stdout.contains("the folder has no pipeline")
    });
    assert_eq!(project.json(&["history"])["entries"][0]["generation"], 1);
    project.tidegate(&["rollback", "1"]).failed(1).says("generation 1 is in force already");
    let outcome = project.tidegate(&["rollback", "1", "--write", "--yes"]).done();
    assert!(outcome.stderr.contains("restored `p.toml`"), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "generation 1 stays in force, and its files are restored\n");
    assert_eq!(project.read("p.toml"), before);
    running.wait_until("no refusal", || project.json(&["status"])["reload"]["refused"].is_null());
    assert_eq!(version_of(&project, &mut running, 3), 1);
    running.stop().done();
    // A stopped store has the history, too.
    std::fs::remove_file(project.path().join("p.toml")).expect("the file is there");
    project.tidegate(&["run", "."]).failed(78).says("the folder has no pipeline");
    project.tidegate(&["rollback", "1", "--write", "--yes"]).done();
    assert_eq!(project.read("p.toml"), before);
    project.assert_sound();
}

#[test]
fn without_a_runner_the_files_go_back_alone() {
    let project = marking();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.write("mark.rhai", "fn process(job) { job.version = 2; job }");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.tidegate(&["rollback"]).failed(1).says("`--write` restores the files for the next run");
    let told = project.tidegate(&["rollback", "--write", "--yes"]).done().stdout;
    let files =
        "the files are those of generation 1: the next `tidegate run` uses them\n\nchanges by that run:\n";
    assert!(told.starts_with(&format!("{files}~ step p/mark\n")), "{told}");
    assert_eq!(project.read("mark.rhai"), mark(1));
    let told = project.json(&["rollback", "2", "--write", "--yes"]);
    assert_eq!((&told["generation"], told["plan"].is_object()), (&2.into(), true), "{told}");
    assert_ne!(project.read("mark.rhai"), mark(1));
}

#[test]
fn restored_files_that_have_mistakes_by_now_are_said_to_have_them() {
    let plain = "run = \"mark.rhai\"";
    let with_variable = format!("{plain}\nconfig = {{ side = \"${{SIDE}}\" }}");
    let project = marking();
    project.change("p.toml", plain, &with_variable);
    project.change("p.toml", "follow = true\n", "");
    let run = || -> Outcome {
        let mut command = project.command(&["run", ".", "--until-idle"]);
        command.env("SIDE", "left").output().expect("it starts").into()
    };
    run().done();
    project.change("p.toml", &with_variable, plain);
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let restored = project.tidegate(&["rollback", "1", "--write", "--yes"]).done();
    assert!(
        restored.stderr.contains("the restored files have mistakes, which `tidegate check` shows"),
        "{}",
        restored.stderr
    );
    assert!(!restored.stdout.contains("changes by that run"), "{}", restored.stdout);
    project.tidegate(&["check", "."]).failed(78).says("`SIDE` is not set");
    run().done();
}

#[test]
fn a_generation_that_cannot_return_is_refused() {
    let project = marking();
    let running = project.started();
    project.tidegate(&["rollback", "1"]).failed(1).says("generation 1 is in force already");
    project.tidegate(&["rollback", "7"]).failed(1).says("the history has no generation 7");
    project.tidegate(&["rollback"]).failed(1).says("no earlier generation");
    running.stop().done();
}

#[test]
fn a_renamed_step_gets_its_name_back_with_its_progress() {
    let project = marking();
    let mut running = project.started();
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.change("p.toml", "[step.mark]", "[step.sign]\nwas = \"mark\"");
    says_generation(&mut running, 2);
    version_of(&project, &mut running, 3);
    project.change("p.toml", "[step.sign]\nwas = \"mark\"", "[step.note]\nwas = \"sign\"");
    says_generation(&mut running, 3);
    version_of(&project, &mut running, 4);
    project.tidegate(&["rollback", "1"]).done();
    version_of(&project, &mut running, 5);
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4, 5]);
    // It is in the file shortly before it is committed.
    running.wait_until("the commit", || project.status("p/mark", "p/in")["watermark"] == 5);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn without_a_runner_a_renamed_step_begins_anew_and_that_is_said() {
    let project = marking();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.change("p.toml", "[step.mark]", "[step.sign]\nwas = \"mark\"");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let told = project.tidegate(&["rollback", "1", "--write", "--yes"]).done().stdout;
    let (files, plan) = told.split_once("\n\nchanges by that run:\n").expect("it has a plan");
    assert_eq!(files, "the files are those of generation 1: the next `tidegate run` uses them");
    assert!(plan.contains("+ step p/mark\n") && plan.contains("- step p/sign\n"), "{plan}");
}

#[test]
fn a_restart_after_a_rollback_goes_on_although_the_files_have_mistakes() {
    let project = marking();
    let mut running = project.started_with(&["--no-watch"]);
    assert_eq!(version_of(&project, &mut running, 2), 1);
    project.write("mark.rhai", mark(2));
    project.tidegate(&["reload"]).done();
    project.write("mark.rhai", "fn process(job) {");
    project.tidegate(&["reload"]).failed(78);
    project.tidegate(&["rollback"]).done();
    running.stop().done();
    let mut running = project.start(&["run", ".", "--no-watch"]);
    running.wait_until_it_says(
        "generation 1 goes on: the files are those of generation 2, which was rolled back",
    );
    assert_eq!(version_of(&project, &mut running, 3), 1);
    assert_eq!(project.json(&["status"])["reload"]["files_differ"], true);
    running.stop().done();
    project.tidegate(&["run", ".", "--from-files"]).failed(78);
    project.write("mark.rhai", "fn process(job) { let");
    project.tidegate(&["run", "."]).failed(78);
    project.write("mark.rhai", mark(3));
    let mut running = project.start(&["run", ".", "--no-watch"]);
    assert_eq!(version_of(&project, &mut running, 4), 3);
    running.stop().done();
}

#[test]
fn rollbacks_in_a_row_go_further_back_and_the_files_stay_rolled_back() {
    let project = marking();
    let mut running = project.started();
    for version in 2..=4 {
        project.write("mark.rhai", mark(version));
        says_generation(&mut running, version);
    }
    assert_eq!(version_of(&project, &mut running, 2), 4);
    for (id, expected) in [(3, 3), (4, 2), (5, 1)] {
        let said = project.tidegate(&["rollback"]).done().stdout;
        let generation = id + 2;
        assert_eq!(said, format!("generation {generation} is in force: it repeats generation {expected}\n"));
        assert_eq!(version_of(&project, &mut running, id), expected);
    }
    project.tidegate(&["rollback"]).failed(1).says("no earlier generation");
    // A save without a change, and a restart, do not bring the files into force.
    project.write("mark.rhai", mark(4));
    running.wait_until_it_says("the saved files are those of generation 4, which was rolled back");
    assert_eq!(version_of(&project, &mut running, 6), 1);
    running.stop().done();
    let mut running = project.started();
    running.wait_until_it_says(
        "generation 1 goes on: the files are those of generation 4, which was rolled back",
    );
    assert_eq!(version_of(&project, &mut running, 7), 1);
    project.write("mark.rhai", mark(5));
    says_generation(&mut running, 8);
    assert_eq!(version_of(&project, &mut running, 8), 5);
    running.stop().done();
}

#[test]
fn a_rollback_after_restored_files_lasts_over_a_restart_and_the_files_follow_it_without_a_runner() {
    let project = marking();
    let mut running = project.started();
    for version in 2..=4 {
        project.write("mark.rhai", mark(version));
        says_generation(&mut running, version);
    }
    project.tidegate(&["rollback", "--write", "--yes"]).done();
    assert_eq!(project.read("mark.rhai"), mark(3));
    let outcome = project.tidegate(&["rollback"]).done().stdout;
    assert_eq!(outcome, "generation 6 is in force: it repeats generation 2\n");
    running.stop().done();
    let mut running = project.started();
    running.wait_until_it_says(
        "generation 2 goes on: the files are those of generation 5, which was rolled back",
    );
    assert_eq!(version_of(&project, &mut running, 2), 2);
    running.stop().done();
    // The generation in force has the place of the one that it repeats.
    let outcome = project.tidegate(&["rollback", "--write", "--yes"]).done().stdout;
    assert!(outcome.starts_with("the files are those of generation 1:"), "{outcome}");
    assert_eq!(project.read("mark.rhai"), mark(1));
}

#[test]
fn files_that_an_operator_restores_after_several_rollbacks_are_in_force_at_the_next_start() {
    let project = marking();
    let mut running = project.started();
    for version in 2..=4 {
        project.write("mark.rhai", mark(version));
        says_generation(&mut running, version);
    }
    for _ in 0..2 {
        project.tidegate(&["rollback"]).done();
    }
    assert_eq!(version_of(&project, &mut running, 2), 2);
    running.stop().done();
    // The first rollback went back to it, and the second one from it.
    project.tidegate(&["rollback", "3", "--write", "--yes"]).done();
    let mut running = project.started();
    assert_eq!(version_of(&project, &mut running, 3), 3);
    running.stop().done();
}

#[test]
fn a_sink_returns_to_its_file_and_its_former_name_at_once() {
    let toml = |name: &str, was: &str, path: &str| {
        format!(
            "[pipeline]\nname = \"{name}\"\n{was}\n[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\n\
             format = \"ndjson\"\nfollow = true\n[sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"{path}\"\n"
        )
    };
    let project = Project::new().file("p.toml", toml("a", "", "first.ndjson")).file("in.ndjson", jobs([1]));
    let mut running = project.start(&["run", ".", "--no-watch"]);
    let mut delivers = |id: u64, path: &str, expected: &[u64]| {
        if id > 1 {
            project.append("in.ndjson", jobs([id]));
        }
        running.wait_until(path, || project.ids_so_far(path) == expected);
    };
    delivers(1, "first.ndjson", &[1]);
    project.write("p.toml", toml("b", "was = \"a\"", "second.ndjson"));
    project.tidegate(&["reload"]).done();
    delivers(2, "second.ndjson", &[2]);
    project.tidegate(&["rollback"]).done();
    delivers(3, "first.ndjson", &[1, 3]);
    // By a change of the files, too.
    project.write("p.toml", toml("c", "was = \"a\"", "second.ndjson"));
    project.tidegate(&["reload"]).done();
    delivers(4, "second.ndjson", &[2, 4]);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn restored_files_stay_links_and_no_older_copy_is_lost() {
    let project = marking();
    project.write("real/mark.rhai", mark(1));
    std::fs::remove_file(project.path().join("mark.rhai")).expect("the file is there");
    std::os::unix::fs::symlink("real/mark.rhai", project.path().join("mark.rhai"))
        .expect("links can be made");
    let running = project.started_with(&["--no-watch"]);
    let more = "[step.again]\nfrom = \"p/again\"\n";
    for (copy, generation) in [("more.toml.rolled-back", 2), ("more.toml.rolled-back-2", 4)] {
        project.write("mark.rhai", mark(generation));
        project.write("more.toml", format!("# {generation}\n{more}"));
        let reloaded = project.tidegate(&["reload"]).done().stdout;
        assert!(reloaded.starts_with(&format!("generation {generation} is in force")), "{reloaded}");
        project.tidegate(&["rollback", "1", "--write", "--yes"]).done().says(copy);
        assert!(project.read(copy).starts_with(&format!("# {generation}\n")));
        assert_eq!(project.read("real/mark.rhai"), mark(1));
        assert!(project.path().join("mark.rhai").is_symlink());
    }
    assert!(project.read("more.toml.rolled-back").starts_with("# 2\n"));
    running.stop().done();
}

#[test]
fn the_history_names_the_files_that_differ_from_the_generation_before() {
    let project = marking();
    let running = project.started_with(&["--no-watch"]);
    let toml = project.read("p.toml");
    project.write("p.toml", "[step.mark\n");
    project.tidegate(&["reload"]).failed(78);
    project.write("p.toml", toml);
    project.write("mark.rhai", mark(2));
    project.tidegate(&["reload"]).done();
    let history = project.json(&["history"]);
    let changed: Vec<&serde_json::Value> =
        history["entries"].as_array().expect("a list").iter().map(|entry| &entry["changed"]).collect();
    assert_eq!(changed[1], &serde_json::json!(["p.toml"]), "{history}");
    assert_eq!(changed[2], &serde_json::json!(["mark.rhai"]), "{history}");
    running.stop().done();
}

#[test]
fn a_changed_comment_is_in_the_history_and_comes_back_with_its_generation() {
    let project = marking();
    let mut running = project.started_with(&["--no-watch"]);
    let commented = format!("# for the auditors\n{}", project.read("p.toml"));
    project.write("p.toml", &commented);
    for _ in 0..2 {
        let said = project.tidegate(&["reload"]).done().stdout;
        assert_eq!(said, "nothing has changed: generation 1 stays in force\n");
    }
    running.wait_until("the entry", || {
        project.json(&["history"])["entries"].as_array().map_or(0, Vec::len) == 2
    });
    assert_eq!(project.json(&["history"])["entries"][1]["generation"], 1);
    project.write("mark.rhai", mark(2));
    project.tidegate(&["reload"]).done();
    // A generation that was rolled back has no entry that is still in order.
    project.tidegate(&["rollback"]).done();
    project.write("mark.rhai", mark(3));
    project.tidegate(&["reload"]).done();
    let restored = project.tidegate(&["rollback", "--write", "--yes"]).done();
    assert!(restored.stdout.contains("it repeats generation 3"), "{}", restored.stdout);
    assert_eq!(project.read("p.toml"), commented);
    assert_eq!(project.read("mark.rhai"), mark(1));
    running.stop().done();
}

#[test]
fn rollbacks_over_a_rename_go_further_back_and_last_over_restarts() {
    let project = marking();
    let mut running = project.started_with(&["--no-watch"]);
    project.write("mark.rhai", mark(2));
    project.tidegate(&["reload"]).done();
    project.change("p.toml", "[step.mark]", "[step.sign]\nwas = \"mark\"");
    project.write("mark.rhai", mark(3));
    project.tidegate(&["reload"]).done();
    assert_eq!(version_of(&project, &mut running, 2), 3);
    for (id, repeated) in [(3, 2), (4, 1)] {
        let said = project.tidegate(&["rollback"]).done().stdout;
        assert!(said.contains(&format!("it repeats generation {repeated}")), "{said}");
        assert_eq!(version_of(&project, &mut running, id), repeated);
    }
    for id in 5..=7 {
        running.stop().done();
        running = project.started_with(&["--no-watch"]);
        running.wait_until_it_says("generation 1 goes on: the files are those of generation 3");
        assert_eq!(version_of(&project, &mut running, id), 1);
    }
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4, 5, 6, 7]);
    project.assert_sound();
}
