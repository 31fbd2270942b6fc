//! Times of jobs: the delivery record keeps them, and the number of attempts, when the job itself is gone.

use serde_json::{Value, json};

use crate::http_client::{Client, JSON, address};
use crate::project::Project;

/// A step that acts outside, without retention: a job that is delivered is gone.
const PIPELINE: &str = r#"
[source.requests]
type = "http"

[step.work]
from = "requests"
run = "work.rhai"
to = "out"
errors = "failed"
queuer = { strategy = "fifo" }
retry = { backoff = "list", delays = ["1ms", "1ms"], jitter = "none", max_attempts = 3 }

[step.work.monitor]
run = "status.rhai"
every = "1h"

[sink.out]
type = "file"
path = "out.ndjson"
"#;

const WORK: &str = r#"
fn process(job, ctx) {
    if job.kind == "busy" && ctx.attempt < 3 { retry("busy") }
    if job.kind == "wrong" { reject("wrong") }
    if job.kind == "pending" { pending(ctx.token) }
    job
}
"#;

fn project() -> Project {
    Project::new()
        .file("p.toml", PIPELINE)
        .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n")
        .file("work.rhai", WORK)
        .file("status.rhai", "fn status(jobs) { jobs.map(|job| \"pending\") }")
}

/// The one step of a job.
fn step(job: &Value) -> &Value {
    &job["steps"][0]
}

/// The status, the number of attempts, and the times that are known, which are in order.
fn facts(job: &Value) -> (Value, Value, Vec<&'static str>) {
    let step = step(job);
    let times = [
        ("time", &job["time"]),
        ("first_attempt", &step["first_attempt"]),
        ("submitted", &step["submitted"]),
        ("ended", &step["ended"]),
    ];
    let known: Vec<_> = times.into_iter().filter_map(|(name, time)| Some((name, time.as_str()?))).collect();
    assert!(known.is_sorted_by_key(|(_, time)| *time), "{job}");
    (step["status"].clone(), step["attempts"].clone(), known.into_iter().map(|(name, _)| name).collect())
}

#[test]
fn the_times_and_attempts_of_a_job_are_kept_after_its_end_and_after_a_kill() {
    let project = project();
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    let kinds = ["plain", "busy", "pending", "wrong", "pending", "plain"];
    for kind in &kinds[..5] {
        client.push("p/requests", &json!({ "kind": kind }).to_string());
    }
    let state = |client: &mut Client, index| client.job(&format!("p/requests/{index}"));
    for (index, status) in [(1, "done"), (2, "done"), (3, "pending"), (4, "failed"), (5, "pending")] {
        running.wait_until(status, || step(&state(&mut client, index))["status"] == status);
    }
    let pending = state(&mut client, 3);
    assert_eq!(facts(&pending).2, ["time", "first_attempt", "submitted"]);
    let token = format!("authorization: Bearer {}", step(&pending)["handle"].as_str().expect("a handle"));
    let complete = "POST /jobs/p/requests/3/complete";
    assert_eq!(client.request(complete, &[JSON, &token], r#"{"status":"committed"}"#).status, 200);
    running.wait_until("its end", || step(&state(&mut client, 3))["status"] == "done");
    assert_eq!(client.request("DELETE /jobs/p/requests/5", &[], "").status, 200);
    // A job that is dropped before its first attempt.
    client.request("POST /steps/p/work/pause", &[], "");
    client.push("p/requests", &json!({ "kind": kinds[5] }).to_string());
    assert_eq!(client.request("DELETE /jobs/p/requests/6?drop=true", &[], "").status, 200);
    client.request("POST /steps/p/work/resume", &[], "");

    let all = |client: &mut Client| (1..=6).map(|index| state(client, index)).collect::<Vec<_>>();
    let ended = all(&mut client);
    let attempted = vec!["time", "first_attempt", "ended"];
    let submitted = vec!["time", "first_attempt", "submitted", "ended"];
    let expected = [
        ("done", 1, attempted.clone()),
        ("done", 3, attempted.clone()),
        ("done", 1, submitted.clone()),
        ("failed", 1, attempted),
        ("failed", 1, submitted),
        ("cancelled", 0, vec!["time", "ended"]),
    ];
    let expected = expected.map(|(status, attempts, times)| (json!(status), json!(attempts), times));
    assert_eq!(ended.iter().map(facts).collect::<Vec<_>>(), expected);
    assert_eq!(ended[0]["note"], "no longer kept (retain)");
    for job in [&ended[2], &ended[4]] {
        assert!(step(&pending)["submitted"].is_string() && step(job)["since"].is_null(), "{job}");
    }
    assert_eq!(step(&pending)["submitted"], step(&ended[2])["submitted"]);

    running.stop().done();
    let shown = |index: u64| project.json(&["job", "show", &format!("p/requests/{index}")]);
    assert_eq!((1..=6).map(shown).collect::<Vec<_>>(), ended, "on the stopped store");
    for _ in 0..2 {
        let mut running = project.start(&["run", "."]);
        let mut client = Client::new(&address(&mut running));
        assert_eq!(all(&mut client), ended, "in a later run");
        assert!(running.kill());
    }
    let shown = project.tidegate(&["job", "show", "p/requests/3"]).done().stdout;
    insta::assert_snapshot!(project.stable(&shown), @r"
    p/requests/3, committed TIME, deleted by retention (see `retain` of its queue)
      p/work: done, after 1 attempt
        first attempt TIME, submitted TIME, ended TIME
    ");
    let shown = project.tidegate(&["job", "show", "p/requests/2"]).done().stdout;
    insta::assert_snapshot!(project.stable(&shown), @r"
    p/requests/2, committed TIME, deleted by retention (see `retain` of its queue)
      p/work: done, after 3 attempts
        first attempt TIME, ended TIME
    ");
    project.assert_sound();
}

#[test]
fn a_job_that_a_kill_interrupts_keeps_its_first_attempt() {
    let project =
        project().file("work.rhai", "fn process(job, ctx) { if ctx.attempt < 3 { retry(\"busy\") } job }");
    project.change("p.toml", "[\"1ms\", \"1ms\"]", "[\"1h\"]");
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    client.push("p/requests", "{}");
    let mut before = Value::Null;
    running.wait_until("the first attempt", || {
        before = client.job("p/requests/1");
        step(&before)["status"] == "delayed"
    });
    assert!(running.kill());
    for attempts in [2, 3] {
        project.tidegate(&["delayed", "now", "p/work", "--yes"]).done();
        let mut running = project.start(&["run", "."]);
        let mut client = Client::new(&address(&mut running));
        let mut after = Value::Null;
        running.wait_until("the next attempt", || {
            after = client.job("p/requests/1");
            step(&after)["attempts"] == attempts && step(&after)["status"] != "begun"
        });
        assert_eq!(after["time"], before["time"]);
        assert_eq!(step(&after)["first_attempt"], step(&before)["first_attempt"], "{after}");
        assert!(running.kill());
    }
}
