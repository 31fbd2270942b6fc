//! Tests of `tidegate job`: the outcome of one job, the reasons why it waits, and its cancellation.

use std::process::Command;

use serde_json::{Value, json};

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
        assert!(second.contains("    it waits for job 1 (due in "), "{second}");
        second
    };
    assert!(ask().contains("no runner is running"));
    let running = project.started();
    assert!(!ask().contains("no runner is running"));
    let json = project.json(&["job", "show", "p/jobs/2"]);
    assert_eq!((&json["steps"][0]["status"], &json["steps"][0]["before"]), (&"waiting".into(), &0.into()));
    running.stop().done();
    project.tidegate(&["step", "pause", "p/work"]).done();
    assert!(show("p/jobs/3").contains("the step is paused"));
    project.tidegate(&["job", "show", "p/jobs/4"]).failed(1).says("queue `p/jobs` has no job 4");
    project.tidegate(&["job", "show", "jobs"]).failed(64).says("write PIPELINE/QUEUE/INDEX");
}

#[test]
fn a_job_that_waits_for_a_step_which_was_removed_is_shown_with_its_payload() {
    let project = Project::new()
        .file("p.toml", [PIPELINE.replace("retain = \"forever\"", "").as_str(), SERIAL].concat())
        .file("work.rhai", LATER)
        .file("in.ndjson", jobs(1..=2));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let text = project.read("p.toml");
    let (rest, _) = text.split_once("[sink.out]").expect("there is a sink");
    project.write("p.toml", rest);
    let shown = project.json(&["job", "show", "p/jobs/1"]);
    assert_eq!((&shown["payload"], &shown["note"]), (&json!({ "id": 1 }), &Value::Null));
    let steps = shown["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 1, "{shown}");
    assert_eq!((&steps[0]["step"], &steps[0]["status"]), (&"p/work".into(), &"delayed".into()));
    assert_eq!(steps[0]["attempts"], 1);
    let text = project.tidegate(&["job", "show", "p/jobs/1"]).done().stdout;
    assert!(text.contains("    its step is not in the configuration\n"), "{text}");
    assert!(!text.contains("no longer kept") && !text.contains("no step reads it"), "{text}");
}

#[test]
fn a_waiting_job_is_taken_out_and_one_that_runs_is_left_alone() {
    let project = Project::new()
        .file(
            "p.toml",
            [
                PIPELINE,
                "run = \"builtin:exec\"\nqueuer = { strategy = \"fifo\", max_processing = 1 }\n\
                 exec = { command = [\"/bin/sh\", \"-c\", \"read line < gate; cat\"] }\ntimeout = \"10m\"\n",
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
    assert!(third.contains("the limit `max_processing` of running jobs is reached"), "{third}");
    let busy = project.tidegate(&["job", "cancel", "p/jobs/1", "--yes"]).failed(1);
    let busy = busy.says("error: an attempt of step `p/work` at it is running since ");
    busy.says("; wait for its end (its `timeout` is 10m), or stop the runner\nnothing was changed\n");
    let cancelled = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes"]).done().stdout;
    assert_eq!(cancelled, "1 job of p/work cancelled: on the error queue p/failed\n");
    project.tidegate(&["job", "cancel", "p/jobs/2", "--yes"]).failed(1).says("`p/jobs/2` waits nowhere");
    // A reader exists each time, since one runs until it is released.
    for done in 1..=3 {
        std::fs::write(&gate, "go\n").expect("a command reads it");
        running.wait_until("an output", || project.ids_so_far("out.ndjson").len() == done);
    }
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3, 4]);
    let errors = project.queue("p/failed");
    assert_eq!((&errors[0]["index"], &errors[0]["message"]), (&2.into(), &"cancelled".into()));
    project.assert_sound();
}

#[test]
fn a_job_whose_lane_is_full_is_told_which_jobs_run_in_it() {
    let project = Project::new()
        .file(
            "p.toml",
            [
                PIPELINE,
                "run = \"builtin:exec\"\nqueuer = { strategy = \"fifo\", lane = \"pool\", max_per_lane = 1 }\n\
                 exec = { command = [\"/bin/sh\", \"-c\", \"read line < gate; cat\"] }\ntimeout = \"10m\"\n",
            ]
            .concat(),
        )
        .file("in.ndjson", "{\"pool\":\"x\"}\n{\"pool\":\"x\"}\n");
    let gate = project.path().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().expect("`mkfifo` can be started").success());
    let mut running = project.started();
    running.wait_until("the reason", || {
        let shown = project.tidegate(&["job", "show", "p/jobs/2"]).stdout;
        shown.contains("\n    lane `x`: 1 of 1 runs (job 1), as `max_per_lane` allows\n")
    });
    for done in 1..=2 {
        std::fs::write(&gate, "go\n").expect("a command reads it");
        let lines = || project.read_if_there("out.ndjson").lines().count();
        running.wait_until("an output", || lines() == done);
    }
    running.stop().done();
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
    refused.says("step `p/work` takes its jobs in order");
    let shown = project.tidegate(&["job", "show", "p/jobs/1"]).done().stdout;
    assert!(shown.contains("p/work: done\n    made p/done/1"), "{shown}");
}

/// The views of a step that reads `p/jobs`, and of its first job. They are the waiting jobs in `status` and
/// `queue list`, the delayed and started ones, the reason in `delayed list`, and the status in `job show`.
fn views(project: &Project) -> Value {
    let status = project.status("p/work", "p/jobs");
    let queues = project.json(&["queue", "list"]);
    let queues = queues.as_array().expect("a list");
    let readers =
        queues.iter().find(|queue| queue["queue"] == "p/jobs").expect("it is there")["readers"].clone();
    let reader =
        readers.as_array().expect("a list").iter().find(|reader| reader["step"] == "p/work").cloned();
    let listed = project.json(&["delayed", "list"])["jobs"].clone();
    let shown = project.json(&["job", "show", "p/jobs/1"])["steps"][0].clone();
    json!({
        "waiting": [status["waiting"], reader.expect("it is there")["waiting"]],
        "delayed": status["delayed"],
        "begun": status["begun"],
        "oldest": status["oldest"]["job"],
        "listed": listed.as_array().expect("a list").iter().map(|job| job["waits_for"].clone()).collect::<Vec<_>>(),
        "shown": [shown["status"], shown["before"], shown["attempts"]],
    })
}

#[test]
fn a_job_that_found_its_gate_closed_waits_whoever_is_asked() {
    let project = crate::queuer::backlog(
        "strategy = \"serial\"",
        &crate::queuer::pools(&["a:\"closed\":\"price 93\"", "a"]),
        "",
    );
    let waits = json!({
        "waiting": [2, 2], "delayed": 0, "begun": 0, "oldest": "p/jobs/1", "listed": ["turn"],
        "shown": ["waiting", 0, 0],
    });
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until("it to be put back", || views(&project) == waits);
    let second = project.json(&["job", "show", "p/jobs/2"])["steps"][0].clone();
    assert_eq!((&second["status"], &second["before"]), (&"waiting".into(), &1.into()), "{second}");
    let text = project.tidegate(&["delayed", "list"]).done().stdout;
    assert!(text.contains("\nwaiting  p/work  p/jobs/1 "), "{text}");
    running.stop().done();
    assert_eq!(views(&project), waits);
    // Also if no job may start, and no runner checks it.
    project.tidegate(&["step", "pause", "p/work"]).done();
    let running = project.started();
    assert_eq!(views(&project), waits);
    running.stop().done();
}

#[test]
fn a_job_that_was_begun_when_the_runner_died_is_not_delayed() {
    let project = Project::new()
        .file(
            "p.toml",
            [
                PIPELINE,
                "run = \"builtin:exec\"\nqueuer = { strategy = \"fifo\", max_processing = 1 }\n\
                 exec = { command = [\"/bin/sh\", \"-c\", \"read line < gate; cat\"] }\ntimeout = \"10m\"\n",
            ]
            .concat(),
        )
        .file("in.ndjson", jobs(1..=2));
    let made = Command::new("mkfifo").arg(project.path().join("gate")).status();
    assert!(made.expect("`mkfifo` can be started").success());
    let mut running = project.started();
    running.wait_until("the first to run", || project.status("p/work", "p/jobs")["running"] == 1);
    let shown = project.json(&["job", "show", "p/jobs/1"]);
    assert_eq!(shown["steps"][0]["status"], "begun", "{shown}");
    assert!(running.kill());
    let begun = json!({
        "waiting": [1, 1], "delayed": 0, "begun": 1, "oldest": "p/jobs/2", "listed": ["attempt"],
        "shown": ["begun", null, 1],
    });
    assert_eq!(views(&project), begun);
    let text = project.tidegate(&["job", "show", "p/jobs/1"]).done().stdout;
    assert!(text.contains("  p/work: begun, after 1 attempt\n"), "{text}");
    // When it runs again, it waits as the first.
    project.tidegate(&["step", "pause", "p/work"]).done();
    let mut running = project.start(&["run", "."]);
    let status = || project.status("p/work", "p/jobs");
    running.wait_until("it to be asked", || status()["running"] == 0);
    let told = status();
    assert_eq!((&told["waiting"], &told["delayed"]), (&2.into(), &0.into()), "{told}");
    running.stop().done();
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
        let refused = refused.says("error: step `p/stream` takes its jobs in order");
        refused.says("nothing was changed; `--step p/more` or `--step p/work` cancels it there alone\n");
        assert_eq!(statuses("p/jobs/2"), ["p/more waiting", "p/stream waiting", "p/work waiting"]);
    }
    let one = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes", "--step", "p/work"]).done();
    assert_eq!(one.stdout, "1 job of p/work cancelled: on the error queue p/failed\n");
    let again = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes", "--step", "p/work"]).done();
    assert_eq!(again.stdout, "nothing of `p/jobs/2` waits at step `p/work`\n");
    project.write("p.toml", toml + pick);
    let others = project.tidegate(&["job", "cancel", "p/jobs/2", "--yes", "--drop"]).done();
    assert_eq!(others.stdout, "1 job of p/more dropped\n1 job of p/stream dropped\n");
    assert_eq!(statuses("p/jobs/2"), ["p/more cancelled", "p/stream cancelled", "p/work failed"]);
    project.assert_sound();
    for (step, answer) in [
        ("p/wrk", "step `p/wrk` is unknown, so it cannot read `p/jobs`; did you mean `p/work`?"),
        ("p/give", "step `p/give` does not read `p/jobs`; it is read by p/more, p/stream, p/work"),
        ("p/work", "`p/jobs/2` waits nowhere: all steps that read it are done with it"),
    ] {
        project.tidegate(&["job", "cancel", "p/jobs/2", "--yes", "--step", step]).failed(1).says(answer);
    }
}

#[test]
fn a_job_of_a_source_that_is_never_copied_says_what_it_is_and_where_it_stands() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [queue.done]\nretain = \"forever\"\n\
             [step.pass]\nfrom = \"in\"\nto = \"done\"\n\
             [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nerrors = \"failed\"\n\
             queuer = { strategy = \"serial\", max_search_ahead = 3 }\n",
        )
        .file(
            "work.rhai",
            "fn process(job) { if job.id == 1 { reject(\"no\") } retry_in(\"1h\", \"not yet\") }",
        )
        .file("in.ndjson", jobs(1..=7));
    let mut running = project.started();
    running.wait_until("the first two to be through", || {
        let work = project.status("p/work", "p/in");
        work["delayed"] == 1 && work["failed"] == 1 && project.status("p/pass", "p/in")["taken"] == 7
    });
    running.stop().done();
    let show = |index: u64| project.tidegate(&["job", "show", &format!("p/in/{index}")]).done().stdout;
    let failed = "p/in/1\n  {\"id\":1}\n  p/pass: done\n    made p/done/1\n    ended TIME\n  p/work: failed";
    let ahead = "past search-ahead: the step scans jobs up to 4 for now\n";
    let ask = || {
        assert!(project.stable(&show(1)).starts_with(failed), "{}", show(1));
        assert!(show(2).contains("\n  p/work: delayed until 20"), "{}", show(2));
        assert!(show(4).contains("\n  p/work: waiting, 1 job before it\n"), "{}", show(4));
        assert!(show(6).contains(ahead), "{}", show(6));
        project.tidegate(&["job", "show", "p/in/8"]).failed(1).says("source `p/in` has no job 8");
    };
    ask();
    let mut running = project.started();
    running.wait_until("its lane to wait", || show(4).contains("\n    it waits for job 2 (due in "));
    ask();
    // A job that no step has reached can be shown, too.
    project.tidegate(&["step", "pause", "p/work"]).done();
    project.append("in.ndjson", "{\"id\":8}\n");
    running.wait_until("it to be seen", || {
        project.tidegate(&["job", "show", "p/in/8"]).stdout.starts_with("p/in/8\n  {\"id\":8}\n")
    });
    running.stop().done();
    // A job that is gone from the file differs from one that never existed.
    project.write("in.ndjson", "");
    assert!(show(7).starts_with("p/in/7, no longer in the files of the source\n"), "{}", show(7));
    // Failed and waiting jobs are stored elsewhere too.
    assert!(show(1).starts_with("p/in/1\n  {\"id\":1}\n"), "{}", show(1));
    assert!(show(2).starts_with("p/in/2\n  {\"id\":2}\n"), "{}", show(2));
}

#[test]
fn a_job_of_a_join_says_what_it_goes_with_and_what_it_waits_for() {
    let project = Project::new()
        .file(
            "p.toml",
            "[queue.orders]\nretain = \"forever\"\n[queue.matched]\nretain = \"forever\"\n\
             [step.match]\njoin = { order = \"orders\", payment = \"payments\" }\nto = \"matched\"\nrun = \"match.rhai\"\n\
             errors = \"failed\"\n",
        )
        .file("match.rhai", "fn process(job) { if job.order.id == 2 { reject(\"no\") } job }");
    project.tidegate_given(&["queue", "push", "p/orders"], jobs(1..=3)).done();
    project.tidegate_given(&["queue", "push", "p/payments"], jobs(1..=2)).done();
    let show = |job: &str| project.tidegate(&["job", "show", job]).done().stdout;
    assert!(show("p/orders/2").contains("\n    goes with p/payments/2\n"), "{}", show("p/orders/2"));
    assert!(show("p/payments/1").contains("\n    goes with p/orders/1\n"), "{}", show("p/payments/1"));
    let waits = "\n    it waits for a partner on `payment`: `p/payments` has no job 3 yet\n";
    assert!(show("p/orders/3").contains(waits), "{}", show("p/orders/3"));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let joined = "p/match: done\n    joined with p/payments/1\n    made p/matched/1\n";
    assert!(show("p/orders/1").contains(joined), "{}", show("p/orders/1"));
    let failed = project.json(&["job", "show", "p/orders/2"])["steps"][0].clone();
    assert_eq!((&failed["status"], &failed["joined_with"]), (&"failed".into(), &json!(["p/payments/2"])));
    assert!(show("p/orders/3").contains(waits), "{}", show("p/orders/3"));
    let waiting = ["p/orders", "p/payments"].map(|input| project.status("p/match", input)["waiting"].clone());
    assert_eq!(waiting, [1, 0]);
}

#[test]
fn a_job_that_was_begun_again_keeps_why_the_attempt_before_failed() {
    let command = "if [ \"$TIDEGATE_ATTEMPT\" = 1 ]; then echo busy >&2; exit 1; fi; read line < gate";
    let step = format!(
        "run = \"builtin:exec\"\nqueuer = {{ strategy = \"fifo\" }}\n\
         retry = {{ backoff = \"fixed\", initial = \"1ms\", jitter = \"none\" }}\n\
         exec = {{ command = [\"/bin/sh\", \"-c\", '{command}'] }}\ntimeout = \"10m\"\n"
    );
    let project = Project::new().file("p.toml", [PIPELINE, &step].concat()).file("in.ndjson", jobs(1..=1));
    let made = Command::new("mkfifo").arg(project.path().join("gate")).status();
    assert!(made.expect("`mkfifo` can be started").success());
    let mut running = project.started();
    let step = || project.json(&["job", "show", "p/jobs/1"])["steps"][0].clone();
    running.wait_until("the job", || project.status("p/give", "p/in")["taken"] == 1);
    running.wait_until("the second attempt", || step()["status"] == "begun" && step()["attempts"] == 2);
    assert!(running.kill());
    let told = step();
    assert!(told["reason"].as_str().is_some_and(|reason| reason.contains("busy")), "{told}");
    let text = project.tidegate(&["job", "show", "p/jobs/1"]).done().stdout;
    assert!(text.contains("begun, after 2 attempts\n    the attempt before failed: "), "{text}");
}

#[test]
fn the_jobs_of_a_range_are_cancelled_together() {
    let queuer = "run = \"work.rhai\"\nqueuer = { strategy = \"fifo\" }\n";
    let project = Project::new()
        .file("p.toml", [PIPELINE, queuer].concat())
        .file("work.rhai", "fn process(job, ctx) { if ctx.attempt == 1 && job.id > 2 { retry_in(\"1h\", \"not yet\") } job }")
        .file("in.ndjson", jobs(1..=8));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    // The first two are finished, and passed over; the ninth does not exist.
    let cancel = |range: &str| project.tidegate(&["job", "cancel", range, "--yes"]);
    let stopped = cancel("p/jobs/1-4").done();
    assert_eq!(stopped.stdout, "2 jobs of p/work cancelled: on the error queue p/failed\n");
    let running = project.started();
    let dropped = project.tidegate(&["job", "cancel", "p/jobs/6-9", "--drop", "--yes"]).done();
    assert_eq!(dropped.stdout, "3 jobs of p/work dropped\n");
    running.stop().done();
    let left = project.json(&["delayed", "list"]);
    assert_eq!((&left["total"], &left["jobs"][0]["jobs"][0]), (&1.into(), &"p/jobs/5".into()));
    assert_eq!(project.queue("p/failed").len(), 2);
    let none = cancel("p/jobs/1-2").done().stdout;
    assert_eq!(none, "no job of p/jobs/1-2 waits: nothing was cancelled\n");
    cancel("p/jobs/100-200").failed(1).says("queue `p/jobs` has no job 100; its last one is 8");
    cancel("p/jbs/1-2").failed(1).says("queue `p/jbs` is unknown");
    cancel("p/jobs/5-4").failed(64).says("does not name jobs: the range is reversed; write `p/jobs/4-5`");
    cancel("p/jobs/1-100001").failed(64).says("at most 100,000 jobs");
    project.assert_sound();
}
