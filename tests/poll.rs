//! Tests of `POST /monitor`: an external system requests a poll at once.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::http_client::{Answer, Client, address};
use crate::project::{Project, jobs};
use crate::running::Running;

/// A step whose monitor polls only after an hour. Its answer is in the file `says`; each poll adds a line to
/// `asks`.
fn project() -> Project {
    let project = Project::pipeline(
        "[step.submit]\nfrom = \"in\"\nto = \"out\"\nrun = \"submit.rhai\"\nerrors = \"failed\"\n\
         monitor = { run = \"builtin:exec\", exec = { command = [\"./outside.sh\"] }, every = \"1h\" }\n\
         [step.look]\nfrom = \"in\"\nto = \"looked\"\n",
    )
    .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n")
    .file("in.ndjson", jobs(1..=1))
    .file("submit.rhai", "fn process(job, ctx) { pending(`b-${job.id}`) }")
    .file("outside.sh", "#!/bin/sh\nsays=$(cat says)\necho asked >> asks\nwhile [ -e wait ]; do sleep 0.01; done\necho \"$says\"\n")
    .file("says", "{}");
    let script = project.path().join("outside.sh");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(script, mode).expect("it is there");
    project
}

/// A runner with one pending job.
fn started(project: &Project) -> (Running, Client, String) {
    let mut running = project.started();
    let place = address(&mut running);
    running.wait_until("the job is pending", || project.status("p/submit", "p/in")["pending"] == 1);
    (running, Client::new(&place), place)
}

fn poll(client: &mut Client) -> Answer {
    client.request("POST /monitor/p/submit", &[], "")
}

fn asks(project: &Project) -> usize {
    project.read_if_there("asks").lines().count()
}

#[test]
fn a_poll_comes_at_once_and_the_next_one_when_a_second_has_passed() {
    let project = project();
    let (mut running, mut client, _) = started(&project);
    let begun = Instant::now();
    let answer = poll(&mut client);
    let now = json!({ "step": "p/submit", "pending": 1, "polls": "now" });
    assert_eq!((answer.status, answer.body), (202, now));
    running.wait_until("it asks", || asks(&project) == 1);
    project.write("says", "{\"b-1\": \"committed\"}");
    let answer = poll(&mut client);
    let polls = answer.body["polls"].as_str().expect("a text");
    let put_off = [", since a poll has just begun", "again after the poll in progress"];
    // A busy machine may send this request when the second has passed.
    let is_due = polls == "now" && begun.elapsed() >= Duration::from_secs(1);
    assert!(answer.status == 202 && (is_due || put_off.iter().any(|why| polls.ends_with(why))), "{polls}");
    running.outcome().done();
    assert_eq!((asks(&project), project.read("out.ndjson")), (2, jobs(1..=1)));
}

#[test]
fn any_number_of_requests_during_a_poll_cause_one_more_poll() {
    let project = project().file("wait", "");
    let (mut running, mut client, place) = started(&project);
    assert_eq!(poll(&mut client).status, 202);
    running.wait_until("it asks", || asks(&project) == 1);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let place = place.clone();
            thread::spawn(move || {
                let mut client = Client::new(&place);
                (0..10).map(|_| poll(&mut client).body["polls"].clone()).collect::<Vec<_>>()
            })
        })
        .collect();
    for said in threads.into_iter().flat_map(|thread| thread.join().expect("it answers")) {
        assert_eq!(said, "again after the poll in progress");
    }
    assert_eq!(asks(&project), 1);
    std::fs::remove_file(project.path().join("wait")).expect("it is there");
    running.wait_until("it asks again", || asks(&project) == 2);
    // These were all polls.
    project.write("says", "{\"b-1\": \"committed\"}");
    assert_eq!(poll(&mut client).status, 202);
    running.outcome().done();
    assert_eq!(asks(&project), 3);
}

#[test]
fn what_has_no_monitor_is_told_from_what_is_not_there() {
    let project = project();
    let (running, mut client, _) = started(&project);
    let mut said = Vec::new();
    let asked =
        ["POST /monitor/p/look", "POST /monitor/p/sumbit", "POST /monitor/q/submit", "POST /monitor/x/y"];
    for line in asked.into_iter().chain(["GET /monitor/p/submit", "POST /monitor/p"]) {
        let answer = client.request(line, &[], "");
        let allow = answer.header("allow").map(|allow| format!(" (allow: {allow})")).unwrap_or_default();
        said.push(format!("{line}\n  {} {}{allow}", answer.status, answer.error()));
    }
    insta::assert_snapshot!(said.join("\n"));
    assert_eq!(asks(&project), 0);
    running.stop().done();
}
