//! Tests of cleared queues: readers skip the discarded jobs. `queue show --all` shows every queue.

use crate::project::{Project, ids, jobs};

/// `stuck` stops at its first job; `take` keeps up with the same queue.
fn project() -> Project {
    Project::pipeline(
        "[step.give]\nfrom = \"in\"\nto = \"between\"\n\
         [step.stuck]\nfrom = \"between\"\nrun = \"stuck.rhai\"\n\
         [step.take]\nfrom = \"between\"\nto = \"out\"\n",
    )
    .file("stuck.rhai", "fn process(job) { throw \"stuck\" }")
    .file("in.ndjson", jobs(1..=30))
}

#[test]
fn a_cleared_queue_is_empty_and_its_readers_continue_behind_it() {
    let project = project();
    project.run().failed(1);
    let cleared = project.tidegate(&["queue", "clear", "p/between", "--yes"]).done();
    assert_eq!(cleared.stdout, "30 jobs of `p/between` discarded\n");
    assert_eq!(project.queue("p/between").len(), 0);
    assert_eq!(project.status("p/stuck", "p/between")["waiting"], 0);
    project.write("stuck.rhai", "fn process(job) { if job.id < 31 { throw \"stuck\" } }");
    project.append("in.ndjson", jobs([31]));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=31));
    project.assert_sound();
}

#[test]
fn a_running_runner_clears_a_queue_and_its_readers_take_new_jobs() {
    let project = project();
    project.change("p.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    project.change("p.toml", "[step.take]", "[queue.between]\nretain = \"forever\"\n[step.take]");
    project.write("stuck.rhai", "fn process(job) { if job.id < 31 { throw \"stuck\" } }");
    let mut running = project.started();
    running.wait_until("all jobs", || project.ids_so_far("out.ndjson").len() == 30);
    running.wait_until_it_says("the step stops: job 1: stuck");
    project.tidegate(&["queue", "clear", "p/between", "--yes"]).done();
    assert_eq!(project.queue("p/between").len(), 0);
    project.append("in.ndjson", jobs([31]));
    running.wait_until("the new job", || {
        let stuck = project.status("p/stuck", "p/between");
        stuck["waiting"] == 0 && project.ids_so_far("out.ndjson").len() == 31
    });
    running.stop();
    project.assert_sound();
}

#[test]
fn a_running_runner_says_how_many_jobs_it_discarded_although_retention_deletes_them_first() {
    let project = project();
    project.change("p.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    let mut running = project.started();
    running.wait_until("all jobs", || project.ids_so_far("out.ndjson").len() == 30);
    running.wait_until_it_says("the step stops: job 1: stuck");
    let cleared = project.tidegate(&["queue", "clear", "p/between", "--yes"]).done();
    assert_eq!(cleared.stdout, "30 jobs of `p/between` discarded\n");
    running.stop();
    project.assert_sound();
}

#[test]
fn what_cannot_be_cleared_is_refused_with_a_reason() {
    let project = project();
    project.change(
        "p.toml",
        "[step.take]\nfrom = \"between\"",
        "[step.take]\nerrors = \"failed\"\njoin = { one = \"between\", two = \"in\" }",
    );
    let refused = |queue: &str, why: &str| {
        project.tidegate(&["queue", "clear", queue, "--yes"]).failed(1).says(why);
    };
    refused("p/between", "`p/between` cannot be cleared: `p/take` joins it");
    refused("p/failed", "`p/failed` is an error queue: use `errors drop p/failed`");
    refused(
        "p/other",
        "the configuration has no queue `p/other`; `queue drop` discards the jobs of a removed one",
    );
}

#[test]
fn the_last_jobs_of_every_queue_are_shown_in_one_look() {
    let project = project();
    project.change("p.toml", "[step.give]", "[pipeline]\nerrors = \"failed\"\n[step.give]");
    project.change("p.toml", "[step.take]", "[queue.between]\nretain = \"forever\"\n[step.take]");
    project.write("stuck.rhai", "fn process(job) { if job.id == 7 { reject(\"no seven\") } }");
    project.run().done();
    let shown = project.tidegate(&["queue", "show", "--all"]).done().stdout;
    assert!(shown.starts_with("p/between: 30 jobs kept\nindex  time"), "{shown}");
    assert!(shown.contains("\n   26  ") && !shown.contains("\n   25  "), "{shown}");
    assert!(shown.contains("\n\np/failed: 1 job kept\n"), "{shown}");
    let json = project.json(&["queue", "show", "--all", ".", "--limit", "2"]);
    let of: Vec<&str> =
        json.as_array().expect("a list").iter().filter_map(|job| job["queue"].as_str()).collect();
    assert_eq!(of, ["p/between", "p/between", "p/failed"]);
    project.tidegate(&["queue", "show"]).failed(64);
}

#[test]
fn jobs_that_a_killed_runner_had_begun_are_not_discarded() {
    let long = "fn process(job) { let x = 0; loop { x += 1 } }";
    let project = Project::new()
        .file(
            "p.toml",
            "[queue.between]\nretain = \"forever\"\n\
             [step.print]\nfrom = \"between\"\nrun = \"print.rhai\"\nto = \"out\"\ntimeout = \"1h\"\n\
             limits = { operations = 100000000000 }\n[sink.out]\ntype = \"stdout\"\n\
             [source.never]\ntype = \"schedule\"\nevery = \"1000h\"\n[step.never]\nfrom = \"never\"\n",
        )
        .file("print.rhai", long);
    let mut running = project.started();
    project.tidegate_given(&["queue", "push", "p/between"], jobs(1..=3)).done();
    let count = |name: &str| project.status("p/print", "p/between")[name].as_u64().unwrap_or_default();
    running.wait_until("the first attempts", || count("running") > 0);
    project.tidegate_given(&["queue", "push", "p/between"], jobs(4..=6)).done();
    running.kill();
    let begun = count("begun");
    assert!(begun > 0);
    project.tidegate(&["queue", "clear", "p/between", "--yes"]).done();
    assert_eq!(count("begun"), begun);
    project.tidegate_given(&["queue", "push", "p/between"], jobs(7..=7)).done();
    project.write("print.rhai", "fn process(job) { job }");
    let printed = project.tidegate(&["run", ".", "--until-idle"]).done().stdout;
    assert_eq!(ids(&printed), (1..=begun).chain([7]).collect::<Vec<_>>());
    assert_eq!(count("waiting"), 0);
    project.assert_sound();
}
