//! Tests of HTTP sources: an accepted job is on disk, each once, and its outcome can be queried.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::http_client::{Client, JSON, NDJSON, address};
use crate::project::{Project, jobs};
use crate::running::Running;

const SETTINGS: &str = "[runner]\nlisten = \"127.0.0.1:0\"\nshutdown_timeout = \"5s\"\n";
pub(crate) const SINK: &str = "[sink.out]\nfrom = \"requests\"\ntype = \"file\"\npath = \"out.ndjson\"\n";

/// A source `requests` with these settings, whose jobs are kept, and further settings.
pub(crate) fn project(settings: &str, rest: &str) -> Project {
    let toml = format!(
        "[source.requests]\ntype = \"http\"\n{settings}\n[queue.requests]\nretain = \"forever\"\n{rest}"
    );
    Project::new().file("tidegate.toml", SETTINGS).file("p.toml", toml)
}

/// A runner, its address, and a connection to it.
pub(crate) fn started(project: &Project) -> (Running, String, Client) {
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    let client = Client::new(&place);
    (running, place, client)
}

#[test]
fn a_job_that_was_taken_is_delivered_and_the_run_goes_on() {
    let project = project("", SINK);
    let (mut running, _, mut client) = started(&project);
    let answer = client.request("POST /sources/p/requests", &[JSON], " {\"id\":1}\n");
    assert_eq!((answer.status, &answer.body), (202, &json!({ "job": "p/requests/1" })));
    assert_eq!(answer.header("location"), Some("/jobs/p/requests/1"));
    let answer = client.request("POST /sources/p/requests", &[NDJSON], "{\"id\":2}\n\n{\"id\":3}\n");
    let many = json!({ "queue": "p/requests", "jobs": 2, "first": 2, "last": 3 });
    assert_eq!((answer.status, answer.body), (202, many));
    running.wait_until("the output", || project.read_if_there("out.ndjson") == jobs(1..=3));
    assert_eq!(client.request("GET /healthz", &[], "").body, json!({ "status": "ok" }));
    running.stop().done();
    project.assert_sound();
    assert_eq!(project.queue("p/requests").len(), 3);
}

#[test]
fn a_key_is_forgotten_after_its_time_also_if_nothing_else_is_taken() {
    let project = project("key = \"id\"\ndedupe = \"1s\"", SINK);
    let (mut running, _, mut client) = started(&project);
    let mut push = |job: &str| client.request("POST /sources/p/requests", &[JSON], job).status;
    assert_eq!((push("{\"id\":1}"), push("{\"id\":1}")), (202, 200));
    running.wait_until("the time of the key", || push("{\"id\":1,\"other\":true}") == 202);
    assert_eq!(push("{\"id\":1,\"other\":true}"), 200);
    running.wait_until("both jobs", || project.read_if_there("out.ndjson").lines().count() == 2);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn what_was_taken_survives_a_kill_right_after_the_answer_and_stands_there_once() {
    let project = project("key = \"id\"", "[sink.out]\nfrom = \"requests\"\ntype = \"null\"\n");
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..5_u64 {
        let (running, place, _) = started(&project);
        let answered = Arc::new(AtomicU64::new(0));
        // The last ids of the round before are sent again, since the outcome of requests in flight is
        // unknown.
        let ids = (round * 40).saturating_sub(20)..round * 40 + 40;
        let expected = 8 * (ids.end - ids.start);
        let threads: Vec<_> = (0..8_u64)
            .map(|number| {
                let (place, ids, answered) = (place.clone(), ids.clone(), Arc::clone(&answered));
                thread::spawn(move || {
                    let (mut client, mut answers) = (Client::new(&place), Vec::new());
                    for id in ids {
                        let id = format!("{number}-{id}");
                        let job = json!({ "id": id }).to_string();
                        let answer = client.try_request("POST /sources/p/requests", &[JSON], job.as_bytes());
                        let Ok(answer) = answer else { break };
                        assert!([200, 202].contains(&answer.status), "{answer:?}");
                        answers.push((answer.job(), id));
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    answers
                })
            })
            .collect();
        // Every second time before the end.
        let enough = if round % 2 == 1 { expected / 2 } else { expected };
        while answered.load(Ordering::Relaxed) < enough {
            assert!(!threads.iter().all(thread::JoinHandle::is_finished) || enough == expected);
            running.pause();
        }
        assert!(running.kill());
        note(threads.into_iter().flat_map(|thread| thread.join().expect("no answer is wrong")), &mut taken);
    }
    project.assert_sound();
    let mut stands: BTreeMap<String, u64> = BTreeMap::new();
    for (job, index) in project.queue("p/requests").iter().zip(1..) {
        let id = job["id"].as_str().expect("an id").to_owned();
        assert_eq!(stands.insert(id.clone(), index), None, "{id} occurs twice");
    }
    assert!(taken.len() >= 8 * 100, "{}", taken.len());
    for (id, index) in taken {
        assert_eq!(stands.get(&id), Some(&index), "{id} was taken as {index}");
    }
}

/// Every answer about an id names the same job.
fn note(answers: impl Iterator<Item = (String, String)>, taken: &mut BTreeMap<String, u64>) {
    for (job, id) in answers {
        let index: u64 = job.rsplit('/').next().and_then(|index| index.parse().ok()).expect("an index");
        assert_eq!(*taken.entry(id.clone()).or_insert(index), index, "{id}");
    }
}

#[test]
fn the_outcome_of_a_job_follows_its_outputs_through_all_steps() {
    let project = project(
        "",
        "[step.first]\nfrom = \"requests\"\nrun = \"double.rhai\"\nto = \"middle\"\n\
         [step.second]\nfrom = \"middle\"\nrun = \"second.rhai\"\nto = \"last\"\nerrors = \"failed\"\n\
         [sink.out]\nfrom = \"last\"\ntype = \"file\"\npath = \"out.ndjson\"\n\
         [queue.middle]\nretain = \"forever\"\n[queue.last]\nretain = \"forever\"\n\
         [source.lines]\ntype = \"file\"\npath = \"lines.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
         [step.copy]\nfrom = \"lines\"\nto = \"middle\"\n",
    )
    .file("lines.ndjson", "{\"n\":7}\n")
    .file("double.rhai", "fn process(job) { [#{ n: job.id }, #{ n: job.id + 1 }] }")
    .file("second.rhai", "fn process(job) { if job.n == 2 { reject(\"two\") } job }");
    let (mut running, _, mut client) = started(&project);
    // A job of a source of files, and one of a queue that no source fills, are followed as well.
    running.wait_until("the line", || project.read_if_there("out.ndjson").lines().count() == 1);
    for job in ["p/lines/1", "p/middle/1"] {
        running.wait_until(job, || {
            let body = client.request(&format!("GET /jobs/{job}"), &[], "").body;
            let mut outputs = &body["steps"][0]["outputs"][0];
            if job == "p/lines/1" {
                outputs = &outputs["steps"][0]["outputs"][0];
            }
            outputs["steps"][0]["step"] == "p/out" && outputs["steps"][0]["status"] == "done"
        });
    }
    client.request("POST /sources/p/requests", &[JSON], "{\"id\":1}");
    let mut body = Value::Null;
    running.wait_until("the end of both", || {
        body = client.request("GET /jobs/p/requests/1", &[], "").body;
        let outputs = &body["steps"][0]["outputs"];
        let last = &outputs[0]["steps"][0]["outputs"][0]["steps"][0];
        last["status"] == "done" && outputs[1]["steps"][0]["status"] == "failed"
    });
    let outputs = &body["steps"][0]["outputs"];
    assert_eq!(
        (&outputs[0]["job"], &outputs[1]["job"]),
        (&json!("p/middle/2"), &json!("p/middle/3")),
        "{body}"
    );
    let (one, other) = (&outputs[0]["steps"][0], &outputs[1]["steps"][0]);
    assert_eq!((&one["step"], &one["status"]), (&json!("p/second"), &json!("done")), "{body}");
    assert_eq!(one["outputs"][0]["steps"][0]["step"], "p/out", "{body}");
    assert_eq!(other["reason"], "two", "{body}");
    running.stop().done();
}

#[test]
fn what_is_answered_while_the_runner_ends_is_true() {
    let project = project("", "[sink.out]\nfrom = \"requests\"\ntype = \"null\"\n");
    let (running, place, _) = started(&project);
    let answered = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (place, answered) = (place.clone(), Arc::clone(&answered));
            thread::spawn(move || {
                let (mut client, mut jobs) = (Client::new(&place), Vec::new());
                while let Ok(answer) = client.try_request("POST /sources/p/requests", &[JSON], b"{\"id\":1}")
                {
                    if answer.status != 202 {
                        assert_eq!(answer.status, 503, "{answer:?}");
                        break;
                    }
                    jobs.push(answer.job());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                jobs
            })
        })
        .collect();
    while answered.load(Ordering::Relaxed) < 100 {
        running.pause();
    }
    running.stop().done();
    let mut taken: Vec<String> =
        threads.into_iter().flat_map(|thread| thread.join().expect("no wrong answer")).collect();
    taken.sort();
    taken.dedup();
    project.assert_sound();
    // Each client may have one job that was accepted without an answer.
    let stands = project.json(&["queue", "list"])[0]["last"].as_u64().expect("a number");
    let taken = taken.len() as u64;
    assert!((taken..=taken + 4).contains(&stands), "{taken} were confirmed, {stands} are on the queue");
}

#[test]
fn a_key_is_taken_once_however_many_bring_it_at_the_same_time() {
    let project = project("key = \"order.id\"", SINK);
    let (running, place, mut client) = started(&project);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let place = place.clone();
            thread::spawn(move || {
                let mut client = Client::new(&place);
                let job = |id: u64| format!("{{\"order\":{{\"id\":{id}}}}}");
                let path = "POST /sources/p/requests";
                (0..50).map(|id| client.request(path, &[JSON], &job(id))).collect::<Vec<_>>()
            })
        })
        .collect();
    let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("it answers")).collect();
    for id in 0..50 {
        let of_id: Vec<_> = answers.iter().map(|answers| &answers[id]).collect();
        assert!(of_id.iter().all(|answer| answer.job() == of_id[0].job()));
        assert_eq!(of_id.iter().filter(|answer| answer.status == 202).count(), 1);
        assert_eq!(of_id.iter().filter(|answer| answer.body["known"] == true).count(), 7);
    }
    let other = client.request("POST /sources/p/requests", &[JSON], r#"{"order":{"id":7},"more":1}"#);
    assert_eq!((other.status, other.job()), (422, answers[0][7].job()));
    running.stop().done();
    assert_eq!(project.queue("p/requests").len(), 50);
}

#[test]
fn an_idempotency_key_stands_for_a_whole_body() {
    let project = project("", SINK);
    let (running, _, mut client) = started(&project);
    let mut post = |kind, key, body| {
        let answer = client.request("POST /sources/p/requests", &[kind, key], body);
        (answer.status, answer.body)
    };
    let (one, two) = ("idempotency-key: one", "Idempotency-Key: two");
    assert_eq!(post(JSON, one, "{\"id\":1}"), (202, json!({ "job": "p/requests/1" })));
    assert_eq!(post(JSON, one, "{\"id\":1}\n"), (200, json!({ "job": "p/requests/1", "known": true })));
    let lines = "{\"id\":2}\n{\"id\":3}\n";
    let many = json!({ "queue": "p/requests", "jobs": 2, "first": 2, "last": 3 });
    assert_eq!(post(NDJSON, two, lines), (202, many));
    let known = json!({ "queue": "p/requests", "jobs": 2, "first": 2, "last": 3, "known": true });
    assert_eq!(post(NDJSON, two, lines), (200, known));
    let (status, body) = post(JSON, one, "{\"id\":9}");
    assert_eq!((status, &body["job"]), (422, &json!("p/requests/1")));
    assert_eq!(post(JSON, "idempotency-key: three", "{\"id\":1}").0, 202);
    assert_eq!(post(JSON, "idempotency-key:", "{\"id\":1}").0, 400);
    running.stop().done();
    assert_eq!(project.queue("p/requests").len(), 4);
}

#[test]
fn keys_in_lines_are_known_again_one_by_one() {
    let project = project("key = \"id\"", SINK);
    let (running, _, mut client) = started(&project);
    let mut post = |body: &str| {
        let answer = client.request("POST /sources/p/requests", &[NDJSON], body);
        (answer.status, answer.body)
    };
    assert_eq!(post(&jobs(1..=2)).0, 202);
    let (status, body) = post("{\"id\":3}\n{\"id\":2}\n\n{\"id\":4}\n{\"id\":3}\n");
    let known = json!([{ "line": 2, "job": "p/requests/2" }, { "line": 5, "job": "p/requests/3" }]);
    let said = json!({ "queue": "p/requests", "jobs": 2, "first": 3, "last": 4, "known_lines": known });
    assert_eq!((status, body), (202, said));
    let (status, body) = post(&jobs(1..=2));
    assert_eq!((status, &body["jobs"], &body["first"]), (200, &json!(0), &Value::Null));
    // One changed job makes the whole request fail.
    let (status, body) = post("{\"id\":5}\n{\"id\":4,\"more\":1}\n");
    assert_eq!((status, &body["job"]), (422, &json!("p/requests/4")));
    let (status, body) = post("{\"id\":5}\n{\"id\":5,\"more\":1}\n");
    assert_eq!((status, body["error"].as_str().expect("an error").contains("line 2")), (422, true));
    running.stop().done();
    assert_eq!(project.queue("p/requests").len(), 4);
}

#[test]
fn what_cannot_be_taken_is_refused_with_the_reason_and_keeps_nobody_else() {
    let project = project("key = \"id\"\nmax_body = \"1KiB\"\ntoken = \"${file:token}\"", SINK)
        .file("token", "secret\n");
    let (running, place, mut client) = started(&project);
    let token = "authorization: Bearer secret";
    let post = |path: &str, headers: &[&str], body: &str| {
        let answer = Client::new(&place).request(path, headers, body);
        format!("{path} {body:.30}\n  {} {}", answer.status, answer.error())
    };
    let source = "POST /sources/p/requests";
    let too_long = format!("{{\"id\":\"{}\"}}", "x".repeat(2000));
    let told = [
        post(source, &[JSON], "{\"id\":1}"),
        post(source, &[JSON, "authorization: Bearer public"], "{\"id\":1}"),
        post("GET /jobs/p/requests/1", &[], ""),
        post(source, &[JSON, token], "{\"id\": tru}"),
        post(source, &[JSON, token], ""),
        post(source, &[JSON, token], "{\"other\":1}"),
        post(source, &[NDJSON, token], "{\"id\":1}\n{\"id\":\n{\"id\":3}"),
        post(source, &[token], "{\"id\":1}"),
        post(source, &["content-type: application/x-www-form-urlencoded", token], "{\"id\":1}"),
        post(source, &[JSON, token], &too_long),
        post("PUT /sources/p/requests", &[JSON, token], "{\"id\":1}"),
        post("POST /jobs/p/requests/1", &[JSON, token], ""),
        post("POST /sources/p/request", &[JSON, token], "{\"id\":1}"),
        post("GET /jobs/p/requests/9", &[token], ""),
        post("GET /jobs/p/out/1", &[token], ""),
        post("GET /jobs/p/out/1", &[], ""),
        post("GET /", &[token], ""),
    ];
    insta::assert_snapshot!(told.join("\n"));
    // The unaffected connection still works.
    let answer = client.request(source, &[JSON, token], "{\"id\":1}");
    assert_eq!((answer.status, answer.job().as_str()), (202, "p/requests/1"));
    running.stop().done();
}

#[test]
fn a_body_that_is_far_too_large_is_refused_before_it_is_read() {
    let project = project("", SINK);
    let (running, place, mut client) = started(&project);
    let head = "POST /sources/p/requests HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    client.send(format!("{head}content-length: 2147483648\r\n\r\n{{").as_bytes()).expect("it listens");
    assert_eq!(client.answer().expect("it answers").status, 413);
    // The same without an announced length.
    let mut client = Client::new(&place);
    client.send(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).expect("it listens");
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    // It stops reading at some point.
    let sent = (0..2048).take_while(|_| client.send(chunk.as_bytes()).is_ok()).count();
    assert!(sent < 200, "{sent} MiB were read");
    running.stop().done();
}

#[test]
fn silent_clients_keep_no_other_client_waiting() {
    let project = project("", SINK);
    let (running, place, mut client) = started(&project);
    let head = "POST /sources/p/requests HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut hanging: Vec<_> = (0..200).map(|_| Client::new(&place)).collect();
    for (number, hanging) in hanging.iter_mut().enumerate() {
        let whole = format!("{head}content-length: 100\r\n\r\n{{");
        let sent = if number % 2 == 0 { &whole } else { &whole[..20 + number % 50] };
        hanging.send(sent.as_bytes()).expect("it listens");
    }
    assert_eq!(client.push("p/requests", "{\"id\":1}"), "p/requests/1");
    running.stop().done();
}

#[test]
fn clients_that_bring_too_much_are_put_off_until_the_steps_catch_up() {
    let step = "[step.work]\nfrom = \"requests\"\nrun = \"work.rhai\"\n";
    let project =
        project("max_waiting = 10", step).file("work.rhai", "fn process(job) { throw \"not now\"; }");
    // The step stops at its first job, and the run with it.
    let stuck = "[source.ticks]\ntype = \"http\"\n[sink.other]\nfrom = \"ticks\"\ntype = \"null\"\n";
    project.append("p.toml", stuck);
    let (mut running, _, mut client) = started(&project);
    for id in 1..=10 {
        client.push("p/requests", &format!("{{\"id\":{id}}}"));
    }
    let answer = client.request("POST /sources/p/requests", &[JSON], "{\"id\":11}");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{answer:?}");
    assert!(answer.error().contains("10 jobs"), "{}", answer.error());
    running.wait_until_it_says("the step stops");
    running.stop().failed(1);
    project.write("work.rhai", "fn process(job) { job }");
    let (mut running, place, _) = started(&project);
    running.wait_until("room", || {
        Client::new(&place).request("POST /sources/p/requests", &[JSON], "{\"id\":11}").status == 202
    });
    running.stop().done();
}

#[test]
fn a_job_says_what_every_step_has_made_of_it() {
    let steps = "[queue.failed]\nretain = \"forever\"\n[queue.priced]\nretain = \"forever\"\n\
                 [step.price]\nfrom = \"requests\"\nrun = \"price.rhai\"\nerrors = \"failed\"\nto = \"priced\"\n\
                 [step.stuck]\nfrom = \"requests\"\nrun = \"stuck.rhai\"\n";
    let price = "fn process(job) {
        if job.id == 2 { reject(\"no price\"); }
        job.price = job.id * 10;
        [job, job.id]
    }";
    let project = project("", steps)
        .file("price.rhai", price)
        .file("stuck.rhai", "fn process(job) { if job.id == 2 { throw \"stuck\"; } }");
    let (mut running, _, mut client) = started(&project);
    for id in 1..=3 {
        client.push("p/requests", &format!("{{\"id\":{id}}}"));
    }
    let status = |client: &mut Client, id: u64| client.job(&format!("p/requests/{id}"));
    let is_done =
        |client: &mut Client, id: u64, step: usize| status(client, id)["steps"][step]["status"] == "done";
    running.wait_until("the outcome", || is_done(&mut client, 3, 0) && is_done(&mut client, 1, 1));
    let told: Vec<String> = (1..=3)
        .map(|id| {
            let told = serde_json::to_string_pretty(&status(&mut client, id)).expect("it can be written");
            project.stable(&told)
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"));
    running.wait_until_it_says("the step stops");
    running.stop().failed(1);
}

#[test]
fn a_source_that_tells_jobs_apart_takes_none_by_hand() {
    let project = project("key = \"id\"", SINK);
    project
        .tidegate_given(&["queue", "push", "p/requests"], jobs(1..=1))
        .failed(1)
        .says("push them over HTTP");
    let project = self::project("", SINK);
    project.tidegate_given(&["queue", "push", "p/requests"], jobs(1..=1)).done();
    assert_eq!(project.queue("p/requests").len(), 1);
}

#[test]
fn a_port_that_is_taken_is_told_before_anything_runs() {
    let project = project("", SINK);
    let (running, taken, _) = started(&project);
    let second = self::project("", SINK).file("tidegate.toml", format!("[runner]\nlisten = \"{taken}\"\n"));
    second.tidegate(&["run", "."]).failed(1).says(&format!("cannot listen on {taken}"));
    running.stop().done();
}

#[test]
fn status_queues_and_graph_know_a_pushed_source() {
    let project = project("", SINK);
    project.tidegate_given(&["queue", "push", "p/requests"], jobs(1..=2)).done();
    assert_eq!(project.status("p/out", "p/requests")["waiting"], 2);
    assert_eq!(project.json(&["queue", "list"])[0]["jobs"], 2);
    let graph = project.tidegate(&["graph", "."]).done().stdout;
    insta::assert_snapshot!(graph, @"
    ▶  requests  http source
    ■  out       file sink
    ");
}

#[test]
fn the_same_content_is_the_same_however_it_is_written() {
    let project = project("key = \"id\"", SINK);
    let (running, _, mut client) = started(&project);
    let push = |client: &mut Client, headers: &[&str], body: &str| {
        let answer = client.request("POST /sources/p/requests", headers, body);
        (answer.status, answer.body["job"].clone())
    };
    let first = push(&mut client, &[JSON], "{\"id\":1,\"of\":{\"a\":1,\"b\":\"x\"}}");
    assert_eq!(first, (202, "p/requests/1".into()));
    let again = push(&mut client, &[JSON], "{ \"of\" : {\"b\":\"\\u0078\", \"a\":1}, \"id\" : 1 }");
    assert_eq!(again, (200, "p/requests/1".into()));
    assert_eq!(push(&mut client, &[JSON], "{\"id\":1,\"of\":{\"a\":1.0,\"b\":\"x\"}}").0, 422);
    let keyed = |form| [form, "idempotency-key: seven"];
    let lines = "{\"id\":2,\"n\":1}\n{\"id\":3}\n";
    assert_eq!(push(&mut client, &keyed(NDJSON), lines).0, 202);
    assert_eq!(push(&mut client, &keyed(NDJSON), "{\"n\":1, \"id\":2}\n\n{\"id\":3 }").0, 200);
    assert_eq!(push(&mut client, &keyed(NDJSON), "{\"id\":3}\n{\"id\":2,\"n\":1}\n").0, 422);
    running.stop().done();
}

#[test]
fn a_job_that_was_rejected_is_put_back_with_another_payload_and_keeps_its_key() {
    let step = "[pipeline]\nerrors = \"failed\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n\
        [step.work]\nfrom = \"requests\"\nrun = \"work.rhai\"\nto = \"out\"\n";
    let script = "fn process(job, ctx) { if job.get(\"poison\") == true { reject(\"poison\") } job.hash = ctx.hash; job }";
    let project = project("key = \"id\"", step).file("work.rhai", script);
    let (mut running, _, mut client) = started(&project);
    let bad = "{\"id\":29,\"poison\":true}";
    client.push("p/requests", bad);
    running.wait_until("the error", || project.queue("p/failed").len() == 1);
    let hash = project.queue("p/failed")[0]["hash"].clone();
    let retry = ["errors", "retry", "p/failed/1", "--payload", "-", "--yes"];
    project.tidegate_given(&retry, "{\"id\": 29}\n").done();
    running.wait_until("the output", || !project.read_if_there("out.ndjson").is_empty());
    assert_eq!(project.read("out.ndjson"), format!("{{\"id\":29,\"hash\":{hash}}}\n"));
    let again = client.request("POST /sources/p/requests", &[JSON], bad);
    assert_eq!((again.status, again.job()), (200, "p/requests/1".to_owned()));
    running.stop().done();
    assert_eq!(project.read("out.ndjson").lines().count(), 1);
    project.assert_sound();
}

#[test]
fn an_answer_carries_the_job_for_a_client_that_prefers_it() {
    let project = project(
        "key = \"id\"",
        "[step.work]\nfrom = \"requests\"\nrun = \"work.rhai\"\nto = \"out\"\n\
        [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
    )
    .file("work.rhai", "fn process(job) { job }");
    let (running, _, mut client) = started(&project);
    let post = "POST /sources/p/requests";
    let prefer = "prefer: respond-async, return=representation";
    let answer = client.request(post, &[JSON, prefer], r#"{"id":1}"#);
    assert_eq!((answer.status, answer.job()), (202, "p/requests/1".to_owned()));
    assert_eq!(answer.header("preference-applied"), Some("return=representation"));
    assert_eq!(answer.header("location"), Some("/jobs/p/requests/1"));
    assert_eq!(answer.body["payload"], json!({ "id": 1 }));
    assert_eq!(answer.body["steps"][0]["step"], "p/work");
    // A duplicate is answered with the job as it is now.
    let again = client.request(post, &[JSON, prefer], r#"{"id":1}"#);
    assert_eq!((again.status, &again.body["payload"]), (200, &json!({ "id": 1 })));
    let plain = client.request(post, &[JSON, "prefer: return=minimal"], r#"{"id":2}"#);
    assert_eq!(plain.header("preference-applied"), None);
    assert_eq!(plain.body, json!({ "job": "p/requests/2" }));
    running.stop().done();
}
