//! Times of jobs: the delivery record keeps them, and the number of attempts, when the job itself is gone.

use serde_json::{Value, json};

use crate::http_client::{Client, JSON, address};
use crate::project::{Project, jobs};

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

/// A join by position that prints, which keeps records, without retention.
const JOIN: &str = r#"
[source.orders]
type = "http"

[source.payments]
type = "http"

[step.work]
join = { order = "orders", payment = "payments" }
run = "work.rhai"
to = "out"
errors = "failed"
retry = { backoff = "list", delays = ["1ms", "1ms"], jitter = "none", max_attempts = 3 }

[sink.out]
type = "stdout"
"#;

#[test]
fn the_times_and_attempts_of_a_tuple_are_kept_after_its_end_and_after_a_kill() {
    let work = WORK.replace("job.kind", "job.order.kind");
    let project = project().file("p.toml", JOIN).file("work.rhai", work);
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    client.request("POST /steps/p/work/pause", &[], "");
    let kinds = ["plain", "busy", "wrong", "pending", "pending"];
    for kind in kinds {
        client.push("p/orders", &json!({ "kind": kind }).to_string());
    }
    for _ in kinds {
        client.push("p/payments", "{}");
    }
    let of = |client: &mut Client, input: &str, index: u64| client.job(&format!("p/{input}/{index}"));
    // The payment of each tuple is younger than its order.
    let created: Vec<_> = (1..=5).map(|index| of(&mut client, "payments", index)["time"].clone()).collect();
    client.request("POST /steps/p/work/resume", &[], "");
    for (index, status) in [(1, "done"), (2, "done"), (3, "failed"), (4, "pending"), (5, "pending")] {
        running.wait_until(status, || step(&of(&mut client, "orders", index))["status"] == status);
    }
    let pending = of(&mut client, "payments", 4);
    assert_eq!(step(&pending)["created"], created[3], "{pending}");
    let token = format!("authorization: Bearer {}", step(&pending)["handle"].as_str().expect("a handle"));
    let complete = "POST /jobs/p/orders/4/complete";
    assert_eq!(client.request(complete, &[JSON, &token], r#"{"status":"committed"}"#).status, 200);
    running.wait_until("its end", || step(&of(&mut client, "orders", 4))["status"] == "done");
    assert_eq!(client.request("DELETE /jobs/p/payments/5?drop=true", &[], "").status, 200);

    let all = |client: &mut Client| {
        let inputs = ["orders", "payments"].into_iter();
        inputs
            .flat_map(|input| (1..=5).map(move |index| (input, index)))
            .map(|(input, index)| of(client, input, index))
            .collect::<Vec<_>>()
    };
    let ended = all(&mut client);
    let attempted = vec!["first_attempt", "ended"];
    let submitted = vec!["first_attempt", "submitted", "ended"];
    let expected = [
        ("done", 1, attempted.clone()),
        ("done", 3, attempted.clone()),
        ("failed", 1, attempted),
        ("done", 1, submitted.clone()),
        ("cancelled", 1, submitted),
    ];
    let expected = expected.map(|(status, attempts, times)| (json!(status), json!(attempts), times));
    for (of_input, partners) in [(&ended[..5], "payments"), (&ended[5..], "orders")] {
        for (at, (job, expected)) in of_input.iter().zip(&expected).enumerate() {
            let (status, attempts, mut known) = facts(job);
            known.retain(|name| *name != "time");
            assert_eq!((status, attempts, known), *expected, "{job}");
            assert_eq!(step(job)["created"], created[at], "{job}");
            assert!(created[at].as_str() <= step(job)["first_attempt"].as_str(), "{job}");
            assert_eq!(step(job)["joined_with"], json!([format!("p/{partners}/{}", at + 1)]), "{job}");
        }
    }
    assert_eq!(ended[0]["time"], Value::Null, "the record has the time of the tuple");

    running.stop().done();
    let names = ["orders", "payments"].into_iter();
    let names = names.flat_map(|input| (1..=5).map(move |index| format!("p/{input}/{index}")));
    let shown: Vec<_> = names.map(|job| project.json(&["job", "show", &job])).collect();
    assert_eq!(shown, ended, "on the stopped store");
    for _ in 0..2 {
        let mut running = project.start(&["run", "."]);
        let mut client = Client::new(&address(&mut running));
        assert_eq!(all(&mut client), ended, "in a later run");
        assert!(running.kill());
    }
    let shown = project.tidegate(&["job", "show", "p/payments/2"]).done().stdout;
    insta::assert_snapshot!(project.stable(&shown), @r"
    p/payments/2, deleted by retention (see `retain` of its queue)
      p/work: done, after 3 attempts
        joined with p/orders/2
        tuple created TIME, first attempt TIME, ended TIME
    ");
    // A retry goes on with the number of attempts, and keeps the time of creation.
    project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    let mut again = Value::Null;
    running.wait_until("the attempt after the retry", || {
        again = of(&mut client, "orders", 3);
        step(&again)["status"] == "failed" && step(&again)["attempts"] == 2
    });
    assert_eq!(step(&again)["created"], created[2], "{again}");
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_tuple_that_is_gone_is_found_from_each_of_its_jobs_also_when_one_input_is_ahead() {
    let pipeline = "[queue.as]\n[queue.bs]\n[step.pair]\njoin = { a = \"as\", b = \"bs\" }\nto = \"out\"\n\
                    begin_at = \"newest\"\n[sink.out]\ntype = \"stdout\"\n";
    let project = Project::new().file("p.toml", pipeline);
    let push = |queue: &str, ids| project.tidegate_given(&["queue", "push", queue], jobs(ids)).done();
    push("p/as", 1..=2);
    project.run().done();
    push("p/as", 3..=5);
    push("p/bs", 1..=2);
    project.run().done();
    for (job, partner) in [("as/3", "bs/1"), ("as/4", "bs/2"), ("bs/1", "as/3"), ("bs/2", "as/4")] {
        let shown = project.json(&["job", "show", &format!("p/{job}")]);
        let (status, attempts, times) = facts(&shown);
        assert_eq!((status, attempts), (json!("done"), json!(1)), "{shown}");
        assert!(times.ends_with(&["first_attempt", "ended"]), "{shown}");
        assert_eq!(step(&shown)["joined_with"], json!([format!("p/{partner}")]), "{shown}");
        assert!(step(&shown)["created"].is_string() && step(&shown)["outputs"].is_null(), "{shown}");
    }
    let before = project.json(&["job", "show", "p/as/2"]);
    assert_eq!(facts(&before), (json!("before"), Value::Null, vec![]), "{before}");
    project.assert_sound();
}
