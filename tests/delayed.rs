//! Tests of delayed jobs: they are listed, made due, and cancelled. The results are the same on a stopped
//! store and in a runner, for ordered and queued steps.

use serde_json::Value;

use crate::project::{Project, ids, jobs};

const PIPELINE: &str = "[pipeline]\nerrors = \"failed\"\n\
                        [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                        [step.give]\nfrom = \"in\"\nto = \"jobs\"\n[queue.jobs]\nretain = \"forever\"\n\
                        [sink.out]\nfrom = \"done\"\ntype = \"file\"\npath = \"out.ndjson\"\n\
                        [step.work]\nfrom = \"jobs\"\nrun = \"work.rhai\"\nto = \"done\"\n";
const WAYS: [&str; 2] = ["", FIFO];
/// Waiting jobs are parked, so that several of them are in the store at once.
const FIFO: &str = "queuer = { strategy = \"fifo\" }\n";
const SERIAL: &str = "queuer = { strategy = \"serial\" }\n";
/// One lane for all jobs.
const LANES: &str =
    "queuer = { strategy = \"one-round-serial\", lane = \"lane\", lane_missing = \"default\" }\n";
/// All jobs except the third wait an hour for their second attempt.
const LATER: &str = "fn process(job, ctx) {\n    if ctx.attempt == 1 && job.id != 3 { retry_in(\"1h\", \"not yet\") }\n    job\n}";

/// A run that has left the jobs 1 and 2 waiting.
fn project() -> Project {
    let project = Project::new()
        .file("p.toml", [PIPELINE, FIFO].concat())
        .file("work.rhai", LATER)
        .file("in.ndjson", jobs(1..=3));
    let run = project.tidegate(&["run", ".", "--until-idle"]).done();
    run.says("done: 3 jobs in ").says("\np/work: 2 delayed\n");
    assert_eq!(ids(&project.read("out.ndjson")), [3]);
    project
}

fn delayed(project: &Project) -> Vec<String> {
    let page = project.json(&["delayed", "list"]);
    let jobs = page["jobs"].as_array().expect("a list");
    assert_eq!(page["total"], jobs.len());
    let name = |job: &Value| job["jobs"][0].as_str().expect("a name").to_owned();
    let mut names: Vec<String> = jobs.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn a_wait_longer_than_any_calendar_ends_in_the_year_9999() {
    for way in WAYS {
        let wait = "retry = { backoff = \"fixed\", initial = \"100000000000d\", jitter = \"none\" }\n";
        let project = Project::new()
            .file("p.toml", [PIPELINE, wait, way].concat())
            .file("work.rhai", "fn process(job) { if job.id == 1 { throw \"no\" } job }")
            .file("in.ndjson", jobs(1..=2));
        project.tidegate(&["run", ".", "--until-idle"]).done();
        let page = project.json(&["delayed", "list"]);
        assert_eq!(page["jobs"][0]["due"], "9999-12-30T22:00:00.000Z", "{page}");
        project.tidegate(&["delayed", "now", "p/jobs/1", "--yes"]).done();
        project.assert_sound();
    }
}

#[test]
fn a_run_that_leaves_jobs_waiting_does_not_say_that_everything_is_delivered() {
    let project = project();
    let run = project.tidegate(&["run", ".", "--until-idle"]).done();
    run.says("nothing to do now: 2 delayed\n\np/work: 2 delayed\n");
    project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
    project.tidegate(&["run", ".", "--until-idle"]).done().says("done: ");
    let run = project.tidegate(&["run", ".", "--until-idle"]).done();
    run.says("nothing to do: everything is delivered\n");
}

#[test]
fn until_idle_ends_though_a_retry_and_a_late_output_are_due_soon() {
    let script = "fn process(job, ctx) {
        if ctx.attempt == 1 && job.id == 1 { retry_in(\"20s\", \"not yet\") }
        if job.id == 2 { emit_in(\"\", job, \"20s\"); return }
        job
    }";
    let of = |way: &str| {
        Project::new()
            .file("p.toml", [PIPELINE, way].concat())
            .file("work.rhai", script)
            .file("in.ndjson", jobs(1..=3))
    };
    let project = of(FIFO);
    project.tidegate(&["run", ".", "--until-idle"]).done().says("\np/work: 2 delayed\n");
    assert_eq!(ids(&project.read("out.ndjson")), [3]);
    // The next run starts them.
    project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let mut delivered = ids(&project.read("out.ndjson"));
    delivered.sort_unstable();
    assert_eq!(delivered, [1, 2, 3]);
    // Without a queuer the others keep their place behind the first.
    of("").tidegate(&["run", ".", "--until-idle"]).done().says("\np/work: 1 delayed, 2 waiting\n");
}

#[test]
fn jobs_of_a_step_that_is_gone_are_kept_and_shown() {
    let project = project();
    project.change("p.toml", "[step.work]", "[step.other]");
    project.write("work.rhai", "fn process(job) { job }");
    let gone = || {
        let status = project.status("p/work", "p/jobs");
        assert_eq!((&status["delayed"], &status["configured"]), (&2.into(), &false.into()), "{status}");
        assert_eq!(delayed(&project), ["p/jobs/1", "p/jobs/2"]);
        assert_eq!(project.json(&["delayed", "list", "--step", "p/work"])["total"], 2);
    };
    gone();
    project.tidegate(&["run", ".", "--until-idle"]).done().says("done: 3 jobs in ");
    gone();
    for change in ["now", "cancel"] {
        let refused = project.tidegate(&["delayed", change, "p/work", "--yes"]).failed(1);
        assert!(refused.stderr.contains("`p/work` is not in the configuration"), "{}", refused.stderr);
    }
    gone();
    project.change("p.toml", "[step.other]", "[step.work]");
    project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let mut delivered = ids(&project.read("out.ndjson"));
    delivered.sort_unstable();
    assert_eq!(delivered, [1, 1, 2, 2, 3, 3]);
    project.assert_sound();
}

#[test]
fn a_run_that_has_only_failed_says_what_waits_for_another_attempt() {
    let project = Project::new()
        .file("p.toml", [PIPELINE, FIFO, "[sink.none]\nfrom = \"in\"\ntype = \"null\"\n"].concat())
        .file("work.rhai", "fn process(job) { retry_in(\"1h\", \"no\") }")
        .file("in.ndjson", jobs(1..=2));
    project.tidegate(&["run", ".", "--until-idle"]).done().says("\np/work: 2 delayed\n");
}

#[test]
fn jobs_that_are_hastened_run_at_once_and_once() {
    let project = project();
    assert_eq!(delayed(&project), ["p/jobs/1", "p/jobs/2"]);
    let list = project.tidegate(&["delayed", "list", "--step", "p/work"]).done().stdout;
    assert!(list.contains("p/jobs/1") && list.contains("not yet"), "{list}");
    let now = project.tidegate(&["delayed", "now", "p/jobs/1", "--yes"]).done().stdout;
    assert_eq!(now, "1 job of p/work due with the next `tidegate run`\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [3, 1]);
    let mut running = project.started();
    let now = project.tidegate(&["delayed", "now", "p/work", "--yes"]).done().stdout;
    assert_eq!(now, "1 job of p/work due now\n");
    running.wait_until("the output", || ids(&project.read("out.ndjson")).len() == 3);
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [3, 1, 2]);
    assert!(delayed(&project).is_empty());
    project.assert_sound();
}

#[test]
fn jobs_that_are_cancelled_stand_on_the_error_queue_and_can_be_retried() {
    let project = project();
    let mut running = project.started();
    let cancelled = project.tidegate(&["delayed", "cancel", "p/jobs/1", "--yes"]).done().stdout;
    assert_eq!(cancelled, "1 job of p/work cancelled: on the error queue p/failed\n");
    assert_eq!(delayed(&project), ["p/jobs/2"]);
    let errors = project.queue("p/failed");
    assert_eq!(errors.len(), 1);
    assert_eq!((&errors[0]["kind"], &errors[0]["attempt"]), (&"rejected".into(), &1.into()));
    let why = errors[0]["message"].as_str().expect("a message");
    assert!(why.starts_with("cancelled; before that, its last attempt failed: not yet ("), "{why}");
    project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
    running.wait_until("the output", || ids(&project.read("out.ndjson")) == [3, 1]);
    running.stop().done();
    let dropped = project.tidegate(&["delayed", "cancel", "p/work", "--drop", "--yes"]).done().stdout;
    assert_eq!(dropped, "1 job of p/work dropped\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [3, 1]);
    assert!(delayed(&project).is_empty());
    project.assert_sound();
}

#[test]
fn nothing_is_moved_unless_it_is_said_what_and_somebody_agrees() {
    let project = project();
    for (arguments, code, answer) in [
        (&["delayed", "now", "p/jobs/1"][..], 64, "1 job of p/work will be due at once. Without a terminal"),
        (&["delayed", "cancel", "p/work"], 64, "2 jobs of p/work will go to the error queue."),
        (&["delayed", "cancel", "p/work", "--drop"], 64, "2 jobs of p/work will be discarded."),
        (&["delayed", "now", "work", "--yes"], 64, "does not name delayed jobs"),
        (&["delayed", "now", "p/wrk", "--yes"], 1, "has no step `p/wrk`; did you mean `p/work`?"),
        (&["delayed", "now", "p/jobs/3", "--yes"], 1, "`tidegate job show p/jobs/3` shows its outcome"),
        (&["delayed", "now", "p/job/3", "--yes"], 1, "no step reads `p/job`; did you mean `p/jobs`?"),
        (&["delayed", "list", "--step", "p/wrk"], 1, "has no step `p/wrk`; did you mean `p/work`?"),
        (&["step", "pause", "p/wrk"], 1, "has no step `p/wrk`; did you mean `p/work`?"),
    ] {
        project.tidegate(arguments).failed(code).says(answer);
    }
    assert_eq!(delayed(&project).len(), 2);
}

#[test]
fn without_an_error_queue_a_job_can_only_be_dropped() {
    let project = project();
    project.write("p.toml", PIPELINE.replace("[pipeline]\nerrors = \"failed\"\n", "") + FIFO);
    let refused = project.tidegate(&["delayed", "cancel", "p/work", "--yes"]).failed(1);
    refused.says("step `p/work` has no error queue for cancelled jobs");
    assert_eq!(delayed(&project).len(), 2);
    project.tidegate(&["delayed", "cancel", "p/work", "--yes", "--drop"]).done();
    assert!(delayed(&project).is_empty());
}

#[test]
fn an_output_that_is_due_later_comes_at_once_or_is_dropped() {
    for way in WAYS {
        let project = Project::new()
            .file("p.toml", [&PIPELINE.replace("to = \"done\"", "to = { later = \"done\" }"), way].concat())
            .file("work.rhai", "fn process(job) { emit_in(\"later\", job, \"1h\"); () }")
            .file("in.ndjson", jobs(1..=2));
        project.tidegate(&["run", ".", "--until-idle"]).done();
        let kept = project.tidegate(&["delayed", "cancel", "p/jobs/2", "--yes"]).failed(1);
        kept.says("1 output of p/work unchanged: already made and due later; add `--drop` to discard them");
        let mut running = project.started();
        project.tidegate(&["delayed", "cancel", "p/jobs/2", "--yes", "--drop"]).done();
        project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
        running.wait_until("the output", || !project.read_if_there("out.ndjson").is_empty());
        running.stop().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1]);
        assert!(delayed(&project).is_empty());
    }
}

#[test]
fn a_run_that_waits_for_nothing_else_ends_when_its_last_job_is_taken_out() {
    let project = Project::new()
        .file("p.toml", [&PIPELINE.replace("follow = true\n", ""), FIFO].concat())
        .file("work.rhai", LATER)
        .file("in.ndjson", jobs(1..=3));
    let mut running = project.started();
    running.wait_until("the jobs", || delayed(&project).len() == 2);
    project.tidegate(&["delayed", "cancel", "p/jobs/1", "--yes"]).done();
    assert!(!running.has_ended());
    project.tidegate(&["delayed", "cancel", "p/jobs/2", "--yes"]).done();
    running.outcome().done();
    assert_eq!(project.queue("p/failed").len(), 2);
    project.assert_sound();
}

#[test]
fn a_job_with_an_output_that_is_due_later_counts_once_as_taken_and_is_not_filtered() {
    let outputs = [("{ later = \"done\" }", "later"), ("\"done\"", "")];
    for (way, (to, name)) in WAYS.iter().flat_map(|way| outputs.map(|output| (way, output))) {
        let project = Project::new()
            .file("p.toml", [&PIPELINE.replace("to = \"done\"", &format!("to = {to}")), *way].concat())
            .file("work.rhai", format!("fn process(job) {{ emit_in(\"{name}\", job, 1); () }}"))
            .file("in.ndjson", jobs(1..=2));
        let mut running = project.started();
        running.wait_until("the outputs", || project.ids_so_far("out.ndjson").len() == 2);
        running.stop().done();
        let status = project.status("p/work", "p/jobs");
        let counts = ["taken", "given", "filtered"].map(|count| status[count].as_u64());
        assert_eq!(counts, [Some(2), Some(2), Some(0)], "{status}");
    }
}

#[test]
fn an_output_that_is_due_later_stands_there_though_others_of_its_job_are_known_already() {
    for way in WAYS {
        let toml = [&PIPELINE.replace("to = \"done\"", "to = { done = \"done\" }"), way].concat();
        let project = Project::new()
            .file("p.toml", toml + "[queue.done]\ndedupe = \"7d\"\n")
            .file(
                "work.rhai",
                "fn process(job) { emit_in(\"done\", #{ id: job.id + 10 }, 20); #{ done: job } }",
            )
            .file("in.ndjson", jobs(1..=2));
        let mut running = project.started();
        running.wait_until("the outputs", || project.ids_so_far("out.ndjson").len() == 4);
        running.stop().done();
    }
}

#[test]
fn a_late_output_is_left_alone_with_the_right_reason_and_is_cancelled_once_it_is_dropped() {
    for way in WAYS {
        let project = Project::new()
            .file("p.toml", [PIPELINE, way].concat())
            .file(
                "work.rhai",
                "fn process(job) { emit_in(\"\", job, \"1h\"); if job.id == 2 { return job; } }",
            )
            .file("in.ndjson", jobs(1..=2));
        project.tidegate(&["run", ".", "--until-idle"]).done();
        let left = project.tidegate(&["job", "cancel", "p/jobs/1", "--yes"]).failed(1);
        left.says(
            "error: step `p/work` has already made an output from it, which is due later; `--drop` discards it\n\
             nothing was changed\n",
        );
        let show = |job: &str| {
            let text = project.tidegate(&["job", "show", job]).done().stdout;
            (text, project.json(&["job", "show", job])["steps"][0]["status"].clone())
        };
        assert_eq!(show("p/jobs/1").1, "delayed");
        for job in ["p/jobs/1", "p/jobs/2"] {
            let dropped = project.tidegate(&["job", "cancel", job, "--drop", "--yes"]).done();
            assert_eq!(dropped.stdout, "1 job of p/work dropped\n");
        }
        let (text, status) = show("p/jobs/1");
        assert_eq!(status, "cancelled", "{text}");
        let what = "p/work: cancelled: an output of it that was due later was dropped\n";
        assert!(text.contains(what), "{text}");
        // Its other outputs are there.
        assert_eq!(ids(&project.read("out.ndjson")), [2]);
        project.assert_sound();
    }
}

#[test]
fn a_job_that_was_dropped_reads_as_cancelled() {
    let project = project();
    project.tidegate(&["delayed", "cancel", "p/jobs/1", "--drop", "--yes"]).done();
    let shown = project.tidegate(&["job", "show", "p/jobs/1"]).done().stdout;
    assert!(shown.contains("p/work: cancelled: it was dropped\n"), "{shown}");
    let running = project.started();
    project.tidegate(&["job", "cancel", "p/jobs/2", "--drop", "--yes"]).done();
    let shown = project.json(&["job", "show", "p/jobs/2"]);
    assert_eq!(shown["steps"][0]["status"], "cancelled", "{shown}");
    assert_eq!(project.json(&["job", "show", "p/jobs/3"])["steps"][0]["status"], "done");
    running.stop().done();
    project.assert_sound();
}

#[test]
fn an_output_that_is_due_later_waits_for_no_other_job() {
    // The second job holds all others in an ordered step, and its lane in one with lanes.
    let script = "fn process(job, ctx) {
        if job.id == 1 { emit_in(\"\", job, \"1h\"); return }
        if job.id == 2 && ctx.attempt == 1 { retry_in(\"1h\", \"not yet\") }
        job
    }";
    for (way, others) in [("", &[][..]), (FIFO, &[3]), (SERIAL, &[]), (LANES, &[])] {
        let project = Project::new()
            .file("p.toml", [PIPELINE, way].concat())
            .file("work.rhai", script)
            .file("in.ndjson", jobs(1..=3));
        project.tidegate(&["run", ".", "--until-idle"]).done();
        assert_eq!(project.ids_so_far("out.ndjson"), others, "{way}");
        let mut running = project.started();
        let now = project.tidegate(&["delayed", "now", "p/jobs/1", "--yes"]).done().stdout;
        assert_eq!(now, "1 job of p/work due now\n");
        running.wait_until("the output", || project.ids_so_far("out.ndjson").contains(&1));
        running.stop().done();
        assert_eq!(ids(&project.read("out.ndjson")), [others, &[1]].concat(), "{way}");
        assert_eq!(delayed(&project), ["p/jobs/2"], "{way}");
        project.assert_sound();
    }
}

#[test]
fn outputs_that_are_due_later_keep_the_order_of_their_times_where_the_step_keeps_order() {
    // The last job is due first. The jobs exceed one batch.
    const JOBS: u64 = 600;
    let script = "fn process(job) { emit_at(\"\", job, 4_000_000_000_000 - job.id * 1000); }";
    let reversed: Vec<u64> = (1..=JOBS).rev().collect();
    for (way, live) in [("", false), ("", true), (SERIAL, false), (SERIAL, true)] {
        let project = Project::new()
            .file("p.toml", [PIPELINE, way].concat())
            .file("work.rhai", script)
            .file("in.ndjson", jobs(1..=JOBS));
        project.tidegate(&["run", ".", "--until-idle"]).done();
        let running = live.then(|| project.started());
        project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
        let mut running = running.unwrap_or_else(|| project.started());
        let out = || project.ids_so_far("out.ndjson");
        running.wait_until("the outputs", || out().len() as u64 == JOBS);
        running.stop().done();
        assert_eq!(out(), reversed, "{way} {live}");
        project.assert_sound();
    }
}

#[test]
fn delayed_jobs_are_chosen_by_lane_and_by_their_content() {
    let lane = "queuer = { strategy = \"fifo\", lane = \"site\" }\n";
    let project = Project::new().file("p.toml", [PIPELINE, lane].concat()).file("work.rhai", LATER);
    let sites = ["a", "b", "", "a", "b", "a"];
    let lines: Vec<String> =
        (1..).zip(sites).map(|(id, site)| format!("{{\"id\":{id},\"site\":\"{site}\"}}\n")).collect();
    project.write("in.ndjson", lines.concat());
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let listed = |arguments: &[&str]| {
        let page = project.json(&[&["delayed", "list"], arguments].concat());
        let jobs = page["jobs"].as_array().expect("a list").iter();
        let mut names: Vec<_> = jobs.map(|job| job["jobs"][0].as_str().expect("a name").to_owned()).collect();
        assert!(page["jobs"][0].get("payload").is_none(), "{page}");
        names.sort();
        names
    };
    assert_eq!(listed(&["--lane", "a"]), ["p/jobs/1", "p/jobs/4", "p/jobs/6"]);
    assert_eq!(
        listed(&["--lane", "a", "--where", "job.id > 1", "--step", "p/work"]),
        ["p/jobs/4", "p/jobs/6"]
    );
    assert_eq!(listed(&["--where", "job.id < 3"]), ["p/jobs/1", "p/jobs/2"]);
    assert_eq!(listed(&["--where", "job.id > 3", "--limit", "1"]).len(), 1);
    project.tidegate(&["delayed", "list", "--where", "job."]).failed(64).says("does not compile");
    // The same with a runner.
    let mut running = project.started();
    assert_eq!(listed(&["--lane", "b"]), ["p/jobs/2", "p/jobs/5"]);
    let now = project.tidegate(&["delayed", "now", "p/work", "--lane", "b", "--yes"]).done();
    assert_eq!(now.stdout, "2 jobs of p/work due now\n");
    running.wait_until("both", || project.ids_so_far("out.ndjson").len() == 3);
    running.stop().done();
    let cancelled = ["delayed", "cancel", "p/work", "--lane", "a", "--where", "job.id == 4", "--yes"];
    project.tidegate(&cancelled).done();
    assert_eq!(delayed(&project), ["p/jobs/1", "p/jobs/6"]);
    assert_eq!(project.queue("p/failed").len(), 1);
}
