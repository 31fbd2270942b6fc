//! Tests of jobs that are pushed for later: they are appended to their queue at their due time, once.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::http_client::{Answer, Client, JSON, NDJSON, address};
use crate::project::{Project, ids};
use crate::random::Random;
use crate::running::Running;

const SETTINGS: &str = "[runner]\nlisten = \"127.0.0.1:0\"\nshutdown_timeout = \"5s\"\n";
const POST: &str = "POST /sources/p/requests";
/// Far beyond the end of a test.
const LATER: &str = "POST /sources/p/requests?delay=7d";

/// A source `requests` with these settings, and a sink for its jobs.
fn project(settings: &str) -> Project {
    let toml = format!(
        "[source.requests]\ntype = \"http\"\n{settings}\n[queue.requests]\nretain = \"forever\"\n\
         [sink.out]\nfrom = \"requests\"\ntype = \"file\"\npath = \"out.ndjson\"\n"
    );
    Project::new().file("tidegate.toml", SETTINGS).file("p.toml", toml)
}

fn started(project: &Project) -> (Running, Client) {
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    (running, Client::new(&place))
}

fn outcome(answer: &Answer) -> (u16, &Value) {
    (answer.status, &answer.body)
}

/// The late jobs as `delayed list` names them.
fn late(project: &Project) -> Vec<String> {
    let page = project.json(&["delayed", "list"]);
    let jobs = page["jobs"].as_array().expect("a list").iter();
    jobs.map(|job| job["jobs"][0].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_late_job_survives_kills_and_is_delivered_once() {
    let project = project("key = \"id\"");
    let (running, mut client) = started(&project);
    let answer = client.request(LATER, &[JSON], "{\"id\":1}");
    assert_eq!((answer.status, answer.body["job"].as_str()), (202, Some("p/requests/due/1")));
    assert_eq!(answer.header("location"), Some("/jobs/p/requests/due/1"));
    assert!(answer.body["due"].as_str().is_some_and(|due| due.ends_with('Z')), "{answer:?}");
    assert!(running.kill());

    let (running, mut client) = started(&project);
    let waits = client.job("p/requests/due/1");
    assert_eq!((&waits["status"], &waits["payload"]), (&json!("delayed"), &json!({ "id": 1 })), "{waits}");
    // The same key is taken once, also while the job is not on the queue.
    let again = client.request(POST, &[JSON], "{\"id\":1}");
    assert_eq!(outcome(&again), (200, &json!({ "job": "p/requests/due/1", "known": true })));
    assert_eq!(client.job("p/requests?key=1")["status"], "delayed");
    assert_eq!(late(&project), ["p/requests/due/1"]);
    assert!(running.kill());

    // Without a runner the store answers and changes.
    let shown = project.tidegate(&["job", "show", "p/requests/due/1"]).done().stdout;
    assert!(shown.starts_with("p/requests/due/1, appended to its queue at 20"), "{shown}");
    let hastened = project.tidegate(&["delayed", "now", "p/requests/due/1", "--yes"]).done().stdout;
    assert_eq!(hastened, "1 job of p/requests due with the next `tidegate run`\n");
    let (mut running, mut client) = started(&project);
    running.wait_until("the delivery", || {
        let job = client.job("p/requests/due/1");
        (&job["job"], &job["steps"][0]["status"]) == (&json!("p/requests/1"), &json!("done"))
    });
    let again = client.request(LATER, &[JSON], "{\"id\":1}");
    assert_eq!(outcome(&again), (200, &json!({ "job": "p/requests/1", "known": true })));
    assert!(running.kill());

    let (running, _) = started(&project);
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
    assert_eq!(late(&project), [""; 0]);
    project.assert_sound();
}

#[test]
fn late_jobs_that_arrive_all_the_time_are_delivered_once_whatever_is_killed_when() {
    const ROUNDS: u64 = 5;
    const BODIES: u64 = 40;
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let project = project("key = \"id\"\ndelay = \"wait\"");
    let mut again = String::new();
    for round in 0..ROUNDS {
        let (running, mut client) = started(&project);
        for body in 0..BODIES {
            // The outcome of the last body before a kill is unknown.
            let mut lines = std::mem::take(&mut again);
            for id in 0..10 {
                let (id, wait) = ((round * BODIES + body) * 10 + id, random.below(40) * 5);
                writeln!(lines, "{{\"id\":{id},\"wait\":{wait}}}").expect("a text takes every line");
            }
            let answer = client.request(POST, &[NDJSON], &lines);
            assert!([200, 202].contains(&answer.status), "{answer:?}");
            again = if random.below(4) == 0 { lines } else { again };
        }
        assert!(running.kill());
    }
    let (mut running, mut client) = started(&project);
    if !again.is_empty() {
        client.request(POST, &[NDJSON], &again);
    }
    let expected: Vec<u64> = (0..ROUNDS * BODIES * 10).collect();
    running.wait_until("all jobs", || {
        project.queue("p/requests").len() >= expected.len() && late(&project).is_empty()
    });
    running.stop().done();
    let mut delivered = ids(&project.read("out.ndjson"));
    delivered.sort_unstable();
    assert_eq!(delivered, expected, "seed {seed}");
    project.assert_sound();
}

#[test]
fn a_job_is_appended_when_its_time_comes() {
    let project = project("");
    let (mut running, mut client) = started(&project);
    // On a busy machine the second request comes later.
    assert_eq!(client.request("POST /sources/p/requests?delay=4s", &[JSON], "{\"id\":1}").status, 202);
    client.push("p/requests", "{\"id\":2}");
    running.wait_until("the output", || ids(&project.read_if_there("out.ndjson")) == [2, 1]);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_field_of_the_job_is_its_due_time() {
    let project = project("due = \"send.at\"\ndelay = \"send.after\"");
    let (mut running, mut client) = started(&project);
    let lines = "{\"id\":1,\"send\":{\"after\":\"7d\"}}\n{\"id\":2}\n\
                 {\"id\":3,\"send\":{\"at\":\"2999-01-01T00:00:00Z\"}}\n{\"id\":4,\"send\":{\"at\":0,\"after\":null}}\n";
    let answer = client.request(POST, &[NDJSON], lines);
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!((&answer.body["jobs"], &answer.body["first"]), (&json!(2), &json!(1)));
    let later = answer.body["late_lines"].as_array().expect("late lines");
    assert_eq!((&later[0]["line"], &later[0]["job"]), (&json!(1), &json!("p/requests/due/1")));
    let third = json!({ "line": 3, "job": "p/requests/due/2", "due": "2999-01-01T00:00:00.000Z" });
    assert_eq!((later.len(), &later[1]), (2, &third));
    running.wait_until("the output", || ids(&project.read_if_there("out.ndjson")) == [2, 4]);
    // The parameter is for jobs without such a field.
    let both = "{\"id\":5,\"send\":{\"after\":0}}\n{\"id\":6}\n";
    let answer = client.request(LATER, &[NDJSON], both);
    assert_eq!((&answer.body["jobs"], &answer.body["late_lines"][0]["line"]), (&json!(1), &json!(2)));
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_body_with_a_key_is_taken_once_with_its_late_lines() {
    let project = project("delay = \"after\"");
    let (running, mut client) = started(&project);
    let headers = [NDJSON, "idempotency-key: a"];
    let lines = "{\"id\":1}\n{\"id\":2,\"after\":\"7d\"}\n{\"id\":3,\"after\":\"7d\"}\n";
    assert_eq!(client.request(POST, &headers, lines).status, 202);
    let again = client.request(POST, &headers, lines);
    let late_lines = json!([{ "job": "p/requests/due/1" }, { "job": "p/requests/due/2" }]);
    let known = json!({
        "queue": "p/requests", "jobs": 1, "first": 1, "last": 1, "known": true, "late_lines": late_lines
    });
    assert_eq!(outcome(&again), (200, &known));
    let other = client.request(POST, &headers, "{\"id\":4}\n");
    assert_eq!((other.status, &other.body["job"]), (422, &json!("p/requests/1")));
    running.stop().done();
}

#[test]
fn a_wrong_due_time_is_refused_with_its_place() {
    let project = project("due = \"at\"\ndelay = \"after\"");
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    // The runner closes the connection after a refusal that comes before the body.
    let ask = |line: &str, headers: &[&str], body: &str| Client::new(&place).request(line, headers, body);
    let mut errors = Vec::new();
    for parameters in
        ["delay=soon", "delay=15", "due=tomorrow", "due=2026-01-01", "delay=1s&due=2026-01-01T00:00:00Z"]
    {
        let answer = ask(&format!("{POST}?{parameters}"), &[JSON], "{}");
        errors.push(format!("{parameters}: {} {}", answer.status, answer.error()));
    }
    for lines in [
        "{}\n{\"at\":\"noon\"}",
        "{\"after\":-5}",
        "{\"after\":\"5 years\"}",
        "{\"at\":1e9}",
        "{\"at\":[1]}",
        "{\"at\":0,\"after\":0}",
    ] {
        let answer = ask(POST, &[NDJSON], lines);
        errors.push(format!("{}: {} {}", lines.replace('\n', " | "), answer.status, answer.error()));
    }
    insta::assert_snapshot!(errors.join("\n"));
    running.stop().done();
    assert_eq!((late(&project), project.queue("p/requests")), (Vec::new(), Vec::new()));
}

#[test]
fn a_client_cancels_a_late_job() {
    let project = project("");
    let (running, mut client) = started(&project);
    client.request(LATER, &[JSON], "{\"id\":1}");
    let answer = client.request("DELETE /jobs/p/requests/due/1", &[], "");
    assert_eq!(outcome(&answer), (200, &json!({ "job": "p/requests/due/1", "status": "cancelled" })));
    assert_eq!(client.request("DELETE /jobs/p/requests/due/1", &[], "").status, 409);
    assert_eq!(client.request("GET /jobs/p/requests/due/2", &[], "").status, 404);
    running.stop().done();
    assert_eq!(late(&project), [""; 0]);
}

/// A bounded pipeline whose queue gets jobs by hand.
fn by_hand() -> Project {
    Project::new().file("p.toml", "[sink.out]\nfrom = \"jobs\"\ntype = \"file\"\npath = \"out.ndjson\"\n")
}

#[test]
fn a_bounded_run_waits_for_late_jobs_and_until_idle_does_not() {
    let project = by_hand();
    let push = |delay: &str, job: &str| {
        let pushed = project.tidegate_given(&["queue", "push", "p/jobs", "--delay", delay], job).done();
        assert!(pushed.stdout.starts_with("1 job pushed to p/jobs, due at 20"), "{}", pushed.stdout);
    };
    push("1s", "{\"id\":1}");
    project.tidegate(&["run", "."]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
    push("7d", "{\"id\":2}");
    let idle = project.tidegate(&["run", ".", "--until-idle"]).done();
    idle.says("nothing to do now: 1 due later\n\np/jobs: 1 due later\n");
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
    assert_eq!(late(&project), ["p/jobs/due/2"]);
    let queues = project.json(&["queue", "list"]);
    assert_eq!((&queues[0]["late"], &queues[0]["jobs"]), (&json!(1), &json!(0)), "{queues}");
    project.assert_sound();
}

#[test]
fn operators_hasten_and_drop_late_jobs_of_a_stopped_store_and_of_a_runner() {
    let project = project("");
    let jobs = "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n{\"id\":4}\n";
    project.tidegate_given(&["queue", "push", "p/requests", "--due", "2999-01-01T00:00:00Z"], jobs).done();
    let choose = |change: &str, jobs: &str, more: &[&str]| {
        project.tidegate(&[&["delayed", change, jobs, "--yes"], more].concat())
    };
    let refused = choose("cancel", "p/requests/due/1", &[]).failed(1);
    assert!(refused.stderr.contains("not on the queue yet; add `--drop`"), "{}", refused.stderr);
    let dropped = choose("cancel", "p/requests/due/1", &["--drop"]).done().stdout;
    assert_eq!(dropped, "1 job of p/requests dropped\n");
    let shown = project.tidegate(&["job", "show", "p/requests/due/1"]).done().stdout;
    assert_eq!(shown, "p/requests/due/1, cancelled\n");
    choose("now", "p/requests", &["--where", "job.id == 2"]).done();
    let (mut running, mut client) = started(&project);
    running.wait_until("the second job", || ids(&project.read_if_there("out.ndjson")) == [2]);
    choose("now", "p/requests/due/3", &[]).done();
    running.wait_until("the third job", || ids(&project.read_if_there("out.ndjson")) == [2, 3]);
    assert_eq!(client.job("p/requests/due/4")["until"], "2999-01-01T00:00:00.000Z");
    project.tidegate(&["job", "cancel", "p/requests/due/4", "--yes"]).failed(1);
    project.tidegate(&["job", "cancel", "p/requests/due/4", "--yes", "--drop"]).done();
    assert_eq!(late(&project), [""; 0]);
    let gone = choose("now", "p/requests/due/4", &[]).failed(1);
    assert!(gone.stderr.contains("waits to be appended"), "{}", gone.stderr);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_renamed_source_keeps_its_late_jobs() {
    let project = project("");
    project.tidegate_given(&["queue", "push", "p/requests", "--delay", "7d"], "{\"id\":1}\n").done();
    project.change("p.toml", "[source.requests]", "[source.orders]\nwas = \"requests\"");
    project.change("p.toml", "[queue.requests]", "[queue.orders]");
    project.change("p.toml", "from = \"requests\"", "from = \"orders\"");
    let (mut running, mut client) = started(&project);
    running.wait_until("the rename", || {
        client.request("GET /jobs/p/orders/due/1", &[], "").body["status"] == "delayed"
    });
    project.tidegate(&["delayed", "now", "p/orders", "--yes"]).done();
    running.wait_until("the output", || ids(&project.read_if_there("out.ndjson")) == [1]);
    running.stop().done();
    project.assert_sound();
}
