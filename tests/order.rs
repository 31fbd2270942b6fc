//! Order: without a queuer it holds, also if jobs fail and are retried.

use std::fmt::Write as _;

use serde_json::Value;

use crate::project::{Project, ids, jobs};

const SOURCE: &str = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n";
const SINK: &str = "[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

#[test]
fn a_join_pairs_what_belongs_together_though_jobs_are_tried_again() {
    let toml = "[step.a]\nfrom = \"in\"\nrun = \"a.rhai\"\nto = \"l\"\n\
                retry = { backoff = \"fixed\", initial = \"5ms\", max_attempts = 5 }\n\
                [step.b]\nfrom = \"in\"\nto = \"r\"\n\
                [step.meet]\njoin = { l = \"l\", r = \"r\" }\nrun = \"m.rhai\"\nto = \"out\"\n\
                retry = { backoff = \"fixed\", initial = \"1ms\", max_attempts = 5 }\n";
    let project = Project::new()
        .file("p.toml", [SOURCE, SINK, toml].concat())
        .file("a.rhai", "fn process(job, ctx) { if job.id % 3 == 0 && ctx.attempt < 3 { throw \"not yet\" } job }")
        .file("m.rhai", "fn process(job, ctx) { if job.l.id % 5 == 0 && ctx.attempt == 1 { throw \"once\" } #{ l: job.l.id, r: job.r.id } }")
        .file("in.ndjson", jobs(1..=100));
    project.tidegate(&["run", "."]).done();
    let expected = (1..=100).fold(String::new(), |mut text, id| {
        writeln!(text, "{{\"l\":{id},\"r\":{id}}}").unwrap();
        text
    });
    assert_eq!(project.read("out.ndjson"), expected);
    project.assert_sound();
}

/// Job 2 of five waits an hour for its second attempt.
fn waiting() -> Project {
    let toml = "[pipeline]\nerrors = \"failed\"\n[step.give]\nfrom = \"in\"\nto = \"jobs\"\n\
                [queue.jobs]\nretain = \"forever\"\n\
                [step.work]\nfrom = \"jobs\"\nrun = \"work.rhai\"\nto = \"out\"\n";
    let project = Project::new()
        .file("p.toml", [toml, SOURCE, "follow = true\n", SINK].concat())
        .file("work.rhai", "fn process(job, ctx) { if ctx.attempt == 1 && job.id == 2 { retry_in(\"1h\", \"not yet\") } job }")
        .file("in.ndjson", jobs(1..=5));
    let run = project.tidegate(&["run", ".", "--until-idle"]).done();
    run.says("p/work: 1 delayed");
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
    project
}

#[test]
fn what_comes_behind_a_job_that_waits_is_delivered_after_it() {
    let project = waiting();
    let page = project.json(&["delayed", "list"]);
    assert_eq!((&page["total"], &page["jobs"][0]["jobs"][0]), (&1.into(), &"p/jobs/2".into()));
    // A run with `--until-idle` gets no further.
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
    let mut running = project.started();
    project.tidegate(&["delayed", "now", "p/jobs/2", "--yes"]).done();
    running.wait_until("the output", || ids(&project.read("out.ndjson")).len() == 5);
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4, 5]);
    project.assert_sound();
}

#[test]
fn what_is_held_back_goes_on_when_the_job_that_waits_is_taken_out() {
    for arguments in
        [&["delayed", "cancel", "p/jobs/2", "--yes"][..], &["job", "cancel", "p/jobs/2", "--yes"]]
    {
        let project = waiting();
        let mut running = project.started();
        project.tidegate(arguments).done();
        running.wait_until("the output", || ids(&project.read("out.ndjson")).len() == 4);
        running.stop().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 3, 4, 5]);
        assert_eq!(project.queue("p/failed").len(), 1);
        project.assert_sound();
    }
    let project = waiting();
    project.tidegate(&["delayed", "cancel", "p/work", "--drop", "--yes"]).done();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3, 4, 5]);
}

#[test]
fn a_job_that_waited_goes_on_with_its_attempts_after_a_restart() {
    let toml = "[pipeline]\nerrors = \"failed\"\n[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n\
                retry = { backoff = \"list\", delays = [\"1h\", \"1ms\"], jitter = \"none\", max_attempts = 3 }\n";
    let project = Project::new()
        .file("p.toml", [toml, SOURCE, SINK].concat())
        .file("work.rhai", "fn process(job, ctx) { if job.id == 2 { throw `attempt ${ctx.attempt}` } job }")
        .file("in.ndjson", jobs(1..=3));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
    project.tidegate(&["run", "."]).done();
    let errors = project.queue("p/failed");
    assert_eq!(errors[0]["attempt"], 3, "{errors:?}");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3]);
}

#[test]
fn a_gate_that_a_script_finds_closed_changes_no_order() {
    for delivery in ["exactly-once", "at-least-once", "at-most-once"] {
        let step = format!(
            "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\ndelivery = \"{delivery}\"\n"
        );
        let project = Project::new()
            .file("p.toml", [SOURCE, SINK, &step].concat())
            .file("work.rhai", "fn process(job) { if job.id > 2 { gate_closed(\"later\") } job }")
            .file("in.ndjson", jobs(1..=50));
        project.tidegate(&["run", ".", "--until-idle"]).done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2], "{delivery}");
        project.write("work.rhai", "fn process(job) { job }");
        project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
        project.tidegate(&["run", "."]).done();
        assert_eq!(ids(&project.read("out.ndjson")), (1..=50).collect::<Vec<_>>(), "{delivery}");
        project.assert_sound();
    }
}

#[test]
fn the_graph_says_which_steps_deliver_as_jobs_finish() {
    let toml = "[step.keeps]\nfrom = \"in\"\nto = \"kept\"\n[step.picks]\nfrom = \"kept\"\nto = \"out\"\n\
                queuer = { strategy = \"fifo\" }\n";
    let project = Project::new().file("p.toml", [SOURCE, SINK, toml].concat()).file("in.ndjson", "");
    let graph = project.json(&["graph", "."]);
    let order = |name: &str| {
        let nodes = graph["nodes"].as_array().expect("a list");
        let node = nodes.iter().find(|node| node["kind"] == "step" && node["name"] == name);
        node.map_or(Value::Null, |node| node["order"].clone())
    };
    assert_eq!((order("keeps"), order("picks")), ("in order".into(), "as finished".into()));
}

#[test]
fn a_job_that_is_held_behind_another_one_says_so_and_when_that_is_tried_again() {
    let project = waiting();
    let why = |job: &str| project.json(&["job", "show", job])["steps"][0]["why"].clone();
    let held = "it is delivered after job 2, whose next attempt is in ";
    let look = |live: bool| {
        for job in ["p/jobs/3", "p/jobs/5"] {
            let why = why(job);
            let time = why[0].as_str().and_then(|why| why.strip_prefix(held));
            assert!(time.is_some_and(|time| time == "1h" || time.starts_with("59m")), "{job}, {live}: {why}");
        }
        let own = project.json(&["job", "show", "p/jobs/2"])["steps"][0].clone();
        assert_eq!((&own["status"], &own["why"]), (&"delayed".into(), &Value::Null), "{live}");
        assert_eq!(why("p/jobs/1"), Value::Null, "{live}");
        let held_behind = project.status("p/work", "p/jobs")["held_behind"].clone();
        assert_eq!(
            (&held_behind["job"], &held_behind["until"]),
            (&"p/jobs/2".into(), &own["until"]),
            "{live}"
        );
        let status = project.tidegate(&["status"]).done().stdout;
        let remark = "\n  jobs behind p/jobs/2 wait for it; its next attempt is in ";
        assert!(status.contains(remark), "{live}: {status}");
    };
    look(false);
    let running = project.started();
    look(true);
    let text = project.tidegate(&["job", "show", "p/jobs/4"]).done().stdout;
    assert!(text.contains(held), "{text}");
    running.stop().done();
}

#[test]
fn a_backlog_over_many_lanes_that_no_buffer_holds_runs_to_its_end() {
    // 25 MB: more than a step keeps in memory, so jobs of one batch come from memory and from the store.
    let pad = "x".repeat(450);
    let line = |id: u64| format!("{{\"id\":{id},\"lane\":\"l{}\",\"pad\":\"{pad}\"}}\n", id * 7919 % 5000);
    let fill = [SOURCE, "[step.fill]\nfrom = \"in\"\nto = \"backlog\"\n"].concat();
    let drain = "[step.drain]\nfrom = \"backlog\"\nto = \"out\"\n\
                 queuer = { strategy = \"one-round-serial\", lane = \"lane\" }\n";
    let project = Project::new()
        .file("p.toml", format!("{fill}[queue.backlog]\nretain = \"forever\"\n"))
        .file("in.ndjson", (1..=50_000).map(line).collect::<String>());
    project.run().done();
    project.write("p.toml", format!("{fill}{drain}{SINK}"));
    project.run().done();
    let mut delivered = ids(&project.read("out.ndjson"));
    delivered.sort_unstable();
    assert!(delivered.into_iter().eq(1..=50_000));
}
