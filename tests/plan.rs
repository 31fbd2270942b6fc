//! Tests of `plan`: against a stopped store, a running runner, and files with mistakes.

use serde_json::Value;

use crate::project::{Project, jobs};

/// `work` rejects each job; each waits for another attempt on the next day.
fn project() -> Project {
    Project::new()
        .file(
            "shop.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [step.take]\nfrom = \"in\"\nto = \"taken\"\n\
             [step.work]\nfrom = \"taken\"\nrun = \"work.rhai\"\nerrors = \"failed\"\n\
             retry = { backoff = \"fixed\", initial = \"1d\", jitter = \"none\" }\n\
             queuer = { strategy = \"fifo\", lane = \"id\" }\n\
             [queue.taken]\nretain = \"forever\"\n",
        )
        .file("work.rhai", "fn process(job) { throw \"not today\" }\n")
        .file("in.ndjson", jobs(1..=3))
}

#[test]
fn without_a_change_the_exit_code_is_0_and_with_one_it_is_2() {
    let project = project();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(project.tidegate(&["plan"]).done().stdout, "nothing changes\n");
    project.change("shop.toml", "[step.take]", "# a comment\n\n[step.take]");
    assert_eq!(project.tidegate(&["plan"]).done().stdout, "nothing changes\n");
    project.change("shop.toml", "\"1d\"", "\"2d\"");
    project.change("shop.toml", "lane = \"id\"", "lane = \"pool\"");
    project.write("work.rhai", "fn process(job) { job }\n");
    insta::assert_snapshot!(project.tidegate(&["plan"]).failed(2).stdout);
}

#[test]
fn a_running_runner_and_its_stopped_store_plan_the_same() {
    let project = project();
    project.change("shop.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    let mut running = project.start(&["run", ".", "--no-watch"]);
    running.wait_until("its socket", || project.path().join(".tidegate/control.sock").exists());
    running.wait_until("three delayed jobs", || project.status("shop/work", "shop/taken")["delayed"] == 3);
    project.change("shop.toml", "[step.work]", "[step.toil]");
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    running.stop();
    assert_eq!(project.tidegate(&["plan"]).failed(2).stdout, plan);
    insta::assert_snapshot!(plan);
}

#[test]
fn programs_read_the_plan_as_json() {
    let project = project();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.change("shop.toml", "\"1d\"", "\"2d\"");
    let json = project.tidegate(&["plan", "--format", "json"]).failed(2).stdout;
    let plan: Value = serde_json::from_str(&json).expect("it is JSON");
    let change = &plan["changes"][0];
    assert_eq!((&change["kind"], &change["name"]), (&"step".into(), &"shop/work".into()));
    assert_eq!(change["effects"], serde_json::json!(["3 delayed jobs will use the new retry policy"]));
    assert_eq!(change["settings"][0]["new"], "2d");
}

#[test]
fn mistakes_are_reported_as_check_does() {
    let project = project();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.write("work.rhai", "fn process(job) { job +\n");
    let planned = project.tidegate(&["plan"]).failed(78);
    assert_eq!(planned.stderr, project.tidegate(&["check", "."]).failed(78).stderr);
    let json = project.tidegate(&["plan", "--format", "json"]).failed(78).stdout;
    let checked = project.tidegate(&["check", ".", "--format", "json"]).failed(78).stdout;
    let read = |json: &str| -> Value { serde_json::from_str(json).expect("it is JSON") };
    assert_eq!(read(&json), read(&checked));
}

#[test]
fn before_the_first_run_everything_is_added() {
    let project = project();
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    insta::assert_snapshot!(plan);
    assert!(!project.path().join(".tidegate").exists());
}
