//! One job: what has become of it, why it does not run, and taking it out.

use std::process::Command;

use crate::project::{Project, ids, jobs};

const PIPELINE: &str = "[pipeline]\nerrors = \"failed\"\n\
                        [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                        [step.give]\nfrom = \"in\"\nto = \"jobs\"\n[queue.jobs]\nretain = \"forever\"\n\
                        [sink.out]\nfrom = \"done\"\ntype = \"file\"\npath = \"out.ndjson\"\n\
                        [step.work]\nfrom = \"jobs\"\nto = \"done\"\n";
const SERIAL: &str = "run = \"work.rhai\"\nqueuer = { strategy = \"serial\" }\n";
const LATER: &str = "fn process(job, ctx) { if ctx.attempt == 1 { retry_in(\"1h\", \"not yet\") } job }";

#[test]
fn a_job_says_what_it_waits_for_on_a_stopped_store_and_in_a_running_runner() {
    let project = Project::new()
        .file("p.toml", [PIPELINE, SERIAL].concat())
        .file("work.rhai", LATER)
        .file("in.ndjson", jobs(1..=3));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let show = |job: &str| project.tidegate(&["job", "show", job]).done().stdout;
    let ask = || {
        let first = show("p/jobs/1");
        assert!(first.contains("p/work: delayed until "), "{first}");
        assert!(first.contains(", after 1 attempt\n    its last attempt failed: not yet ("), "{first}");
        assert!(first.contains("    it is due in "), "{first}");
        let second = show("p/jobs/2");
        assert!(second.contains("p/work: waiting, the first\n"), "{second}");
        assert!(second.contains("    its lane waits for job 1 (due in "), "{second}");
        second
    };
    assert!(ask().contains("nothing runs now"));
    let running = project.started();
    assert!(!ask().contains("nothing runs now"));
    let json = project.json(&["job", "show", "p/jobs/2"]);
    assert_eq!((&json["steps"][0]["status"], &json["steps"][0]["before"]), (&"waiting".into(), &0.into()));
    running.stop().done();
    project.tidegate(&["step", "pause", "p/work"]).done();
    assert!(show("p/jobs/3").contains("the step is paused"));
    project.tidegate(&["job", "show", "p/jobs/4"]).failed(1).says("queue `p/jobs` has no job 4");
    project.tidegate(&["job", "show", "jobs"]).failed(64).says("write PIPELINE/QUEUE/INDEX");
}

#[test]
fn a_waiting_job_is_taken_out_and_one_that_runs_is_left_alone() {
    let project = Project::new()
        .file(
            "p.toml",
            [
                PIPELINE,
                "run = \"builtin:exec\"\nqueuer = { strategy = \"fifo\", max_processing = 1 }\n\
                 exec = { command = [\"/bin/sh\", \"-c\", \"read line < gate; cat\"] }\n",
            ]
            .concat(),
        )
        .file("in.ndjson", jobs(1..=4));
    let gate = project.path().join("gate");
    let made = Command::new("mkfifo").arg(&gate).status().expect("`mkfifo` can be started");
    assert!(made.success());
    let mut running = project.started();
    running.wait_until("the first attempt", || {
        let page = project.tidegate(&["delayed", "list", "--format", "json"]).stdout;
        page.contains("\"attempt\"") && project.tidegate(&["job", "show", "p/jobs/4"]).code == Some(0)
    });
    let third = project.tidegate(&["job", "show", "p/jobs/3"]).done().stdout;
    assert!(third.contains("as many run as `max_processing` lets"), "{third}");
    let busy = project.tidegate(&["job", "cancel", "p/jobs/1", "--yes"]).failed(1);
    busy.says("error: an attempt of step `p/work` at it is running\nnothing was changed\n");
    let cancelled = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes"]).done().stdout;
    assert_eq!(cancelled, "1 job of p/work cancelled: on the error queue p/failed\n");
    project.tidegate(&["job", "cancel", "p/jobs/2", "--yes"]).failed(1).says("nothing waits for `p/jobs/2`");
    // A reader must be there each time, and is, since one runs until it was told to go on.
    for done in 1..=3 {
        std::fs::write(&gate, "go\n").expect("a command reads it");
        running.wait_until("an output", || ids(&project.read_if_there("out.ndjson")).len() == done);
    }
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3, 4]);
    let errors = project.queue("p/failed");
    assert_eq!((&errors[0]["index"], &errors[0]["message"]), (&2.into(), &"cancelled".into()));
    project.assert_sound();
}

#[test]
fn a_step_that_takes_its_jobs_as_they_come_says_that_one_cannot_be_taken_out() {
    let project = Project::new()
        .file("p.toml", [PIPELINE, "run = \"work.rhai\"\n[queue.done]\nretain = \"forever\"\n"].concat())
        .file("work.rhai", "fn process(job) { job }")
        .file("in.ndjson", jobs(1..=1));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.tidegate(&["step", "pause", "p/work"]).done();
    project.append("in.ndjson", jobs(2..=2));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let refused = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes"]).failed(1);
    refused.says("step `p/work` takes its jobs as they come, in order");
    let shown = project.tidegate(&["job", "show", "p/jobs/1"]).done().stdout;
    assert!(shown.contains("p/work: done\n    made p/done/1"), "{shown}");
}

#[test]
fn a_job_is_taken_out_of_all_steps_that_read_it_or_of_none() {
    let pick = "queuer = { strategy = \"serial\" }\n";
    let others =
        "[step.more]\nfrom = \"jobs\"\nto = \"done\"\n[step.stream]\nfrom = \"jobs\"\nto = \"done\"\n";
    let toml = [PIPELINE, pick, others].concat().replace("[step.stream]", &[pick, "[step.stream]"].concat());
    let project = Project::new().file("p.toml", &toml).file("in.ndjson", jobs(1..=2));
    for step in ["p/work", "p/more", "p/stream"] {
        project.tidegate_given(&["queue", "push", "p/jobs"], jobs(1..=1)).done();
        project.tidegate(&["step", "pause", step]).done();
    }
    let statuses = |job: &str| -> Vec<String> {
        let shown = project.json(&["job", "show", job]);
        let steps = shown["steps"].as_array().expect("a list").iter();
        steps.map(|step| format!("{} {}", step["step"], step["status"]).replace('"', "")).collect()
    };
    for drop in [&["--yes"][..], &["--yes", "--drop"]] {
        let refused = project.tidegate(&[&["job", "cancel", "p/jobs/2"], drop].concat()).failed(1);
        let refused = refused.says("error: step `p/stream` takes its jobs as they come");
        refused.says("nothing was changed; `--step p/more` or `--step p/work` takes it out there alone\n");
        assert_eq!(statuses("p/jobs/2"), ["p/more waiting", "p/stream waiting", "p/work waiting"]);
    }
    let one = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes", "--step", "p/work"]).done();
    assert_eq!(one.stdout, "1 job of p/work cancelled: on the error queue p/failed\n");
    project.write("p.toml", toml + pick);
    let others = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes", "--drop"]).done();
    assert_eq!(others.stdout, "1 job of p/more dropped\n1 job of p/stream dropped\n");
    assert_eq!(statuses("p/jobs/2"), ["p/more done", "p/stream done", "p/work failed"]);
    project.assert_sound();
    for (step, answer) in [
        ("p/wrk", "step `p/wrk` is not there, to read `p/jobs`; did you mean `p/work`?"),
        ("p/give", "step `p/give` does not read `p/jobs`; it is read by p/more, p/stream, p/work"),
        ("p/work", "nothing waits for `p/jobs/2`: whatever reads it is through with it"),
    ] {
        project.tidegate(&["job", "cancel", "p/jobs/2", "--yes", "--step", step]).failed(1).says(answer);
    }
}
