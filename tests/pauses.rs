//! Tests of pauses over HTTP: steps, lanes and monitors are paused and resumed as by `tidegate step`.

use serde_json::{Value, json};

use crate::http_client::{Answer, Client, address};
use crate::project::Project;
use crate::running::Running;

const PIPELINE: &str = r#"
[source.jobs]
type = "http"

[step.work]
from = "jobs"
queuer = { strategy = "one-round-serial", lane = "of" }
run = "work.rhai"
to = "out"

[step.work.monitor]
run = "status.rhai"
every = "10ms"

[sink.out]
type = "file"
path = "out.ndjson"
format = "ndjson"
"#;

fn project() -> Project {
    Project::new()
        .file("p.toml", PIPELINE)
        .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n")
        .file("work.rhai", "fn process(job) { if job.of == \"bad\" { halt(\"bad\") } if \"waits\" in job { pending(job.id) } job }")
        .file("status.rhai", "fn status(jobs, ctx) { jobs.map(|job| \"committed\") }")
}

fn started(project: &Project) -> (Running, Client) {
    let mut running = project.start(&["run", "."]);
    let client = Client::new(&address(&mut running));
    (running, client)
}

fn post(client: &mut Client, path: &str) -> Answer {
    client.request(&format!("POST /steps/{path}"), &[], "")
}

fn written(project: &Project) -> Vec<u64> {
    let mut ids = project.ids_so_far("out.ndjson");
    ids.sort_unstable();
    ids
}

#[test]
fn a_step_a_lane_and_a_monitor_are_paused_and_resumed_over_http() {
    let project = project();
    let (mut running, mut client) = started(&project);
    let paused = post(&mut client, "p/work/pause");
    let answer = json!({ "step": "p/work", "paused": true, "changed": true, "restarted": false });
    assert_eq!((paused.status, paused.body), (200, answer));
    let again = post(&mut client, "p/work/pause");
    assert_eq!((again.status, &again.body["changed"]), (200, &Value::Bool(false)));
    client.push("p/jobs", r#"{"id":1,"of":"a"}"#);
    running.wait_until("the job", || project.status("p/work", "p/jobs")["waiting"] == 1);
    assert!(project.tidegate(&["status"]).done().stdout.contains("`tidegate step resume p/work` resumes it"));
    let resumed = post(&mut client, "p/work/resume");
    let answer = json!({ "step": "p/work", "paused": false, "changed": true, "restarted": false });
    assert_eq!((resumed.status, resumed.body), (200, answer));
    running.wait_until("the output", || written(&project) == [1]);

    let lane = post(&mut client, "p/work/pause?lane=a%20b");
    let answer =
        json!({ "step": "p/work", "lane": "a b", "paused": true, "changed": true, "restarted": false });
    assert_eq!((lane.status, lane.body), (200, answer));
    client.push("p/jobs", r#"{"id":2,"of":"a b"}"#);
    client.push("p/jobs", r#"{"id":3,"of":"c"}"#);
    running.wait_until("the other lane", || written(&project) == [1, 3]);
    assert_eq!(post(&mut client, "p/work/resume?lane=a+b").status, 200);
    running.wait_until("the lane", || written(&project) == [1, 2, 3]);

    let monitor = post(&mut client, "p/work/pause?monitor=true");
    assert_eq!((monitor.status, &monitor.body["monitor"]), (200, &Value::Bool(true)));
    client.push("p/jobs", r#"{"id":4,"of":"a","waits":true}"#);
    running.wait_until("the pending job", || project.status("p/work", "p/jobs")["pending"] == 1);
    // A pause is durable.
    running.stop().done();
    let (mut running, mut client) = started(&project);
    assert_eq!(project.status("p/work", "p/jobs")["pending"], 1);
    assert_eq!(post(&mut client, "p/work/resume?monitor=true").body["changed"], Value::Bool(true));
    running.wait_until("the pending job", || written(&project) == [1, 2, 3, 4]);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_held_lane_of_a_step_without_lanes_is_neither_shown_nor_forgotten_silently() {
    let project = project();
    let (mut running, mut client) = started(&project);
    assert_eq!(post(&mut client, "p/work/pause?lane=a").status, 200);
    client.push("p/jobs", r#"{"id":1,"of":"a"}"#);
    client.push("p/jobs", r#"{"id":2,"of":"b"}"#);
    running.wait_until("the other lane", || written(&project) == [2]);
    assert!(project.tidegate(&["status"]).done().stdout.contains("lane `a`"));
    project.change("p.toml", "strategy = \"one-round-serial\", lane = \"of\"", "strategy = \"fifo\"");
    running.wait_until("the held job", || written(&project) == [1, 2]);
    running.wait_until_it_says(
        "lanes are held, but the step has no lanes that can be held any more: their jobs start",
    );
    assert!(!project.tidegate(&["status"]).done().stdout.contains("lane `a`"));
    running.stop().done();
}

#[test]
fn a_stopped_step_is_started_again_over_http() {
    let project = project();
    let (mut running, mut client) = started(&project);
    client.push("p/jobs", r#"{"id":1,"of":"bad"}"#);
    let since =
        |project: &Project| project.status("p/work", "p/jobs")["halted"]["since"].as_str().map(str::to_owned);
    running.wait_until("the stop", || since(&project).is_some());
    let stopped = since(&project).expect("it has stopped");
    let resumed = post(&mut client, "p/work/resume");
    assert_eq!((resumed.status, &resumed.body["restarted"]), (200, &Value::Bool(true)), "{resumed:?}");
    // Its job stops it once more.
    running.wait_until("the second stop", || since(&project).is_some_and(|since| since != stopped));
    running.stop().failed(1);
}

#[test]
fn what_cannot_be_paused_is_refused_with_a_reason() {
    let project = project();
    let (running, mut client) = started(&project);
    let refused = |client: &mut Client, path: &str, status: u16, why: &str| {
        let answer = post(client, path);
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.error().contains(why), "{answer:?}");
    };
    refused(&mut client, "p/wrk/pause", 404, "step `p/wrk` is unknown; did you mean `p/work`?");
    refused(&mut client, "p/work/pause?lane=a&monitor=true", 400, "`lane` and `monitor` exclude each other");
    refused(&mut client, "p/work/pause?monitor=yes", 400, "`yes` is not a value of `monitor`");
    refused(&mut client, "p/jobs/pause", 404, "step `p/jobs` is unknown");
    // Such a refusal closes the connection.
    let mut client = Client::new(&address_of(&running));
    refused(&mut client, "p/work/pause?lanes=a", 400, "parameter `lanes` is unknown; did you mean `lane`?");
    let mut client = Client::new(&address_of(&running));
    assert_eq!(client.request("GET /steps/p/work/pause", &[], "").status, 405);
    running.stop().done();
    project.change("p.toml", "queuer = { strategy = \"one-round-serial\", lane = \"of\" }\n", "");
    project.change(
        "p.toml",
        "[source.jobs]\ntype = \"http\"",
        "[source.jobs]\ntype = \"http\"\ntoken = \"secret\"",
    );
    let (running, mut client) = started(&project);
    refused(&mut client, "p/work/pause", 401, "a token is missing");
    let mut client = Client::new(&address_of(&running));
    let token = "authorization: Bearer secret";
    let lane = client.request("POST /steps/p/work/pause?lane=a", &[token], "");
    assert_eq!(lane.status, 409, "{lane:?}");
    assert!(lane.error().contains("has no lanes"), "{lane:?}");
    assert_eq!(client.request("POST /steps/p/work/pause", &[token], "").status, 200);
    running.stop().done();
}

fn address_of(running: &Running) -> String {
    let said = running.stderr();
    let address = said.split("listening address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    address.expect("the address is logged").to_owned()
}
