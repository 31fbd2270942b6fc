//! Tests of payloads: `job show` reads the payload of a job from any place.

use std::process::Command;

use serde_json::{Value, json};

use crate::http_client::{Client, address};
use crate::project::{Project, jobs};

const SETTINGS: &str = "[runner]\nlisten = \"127.0.0.1:0\"\n";
/// Its queue deletes consumed jobs.
const SOURCE: &str = "[pipeline]\nerrors = \"failed\"\n[source.requests]\ntype = \"http\"\n\
    [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n[step.work]\nfrom = \"requests\"\nto = \"out\"\n";

/// The output of `job show`, as text and as JSON.
fn shown(project: &Project, job: &str) -> (String, Value) {
    let text = project.tidegate(&["job", "show", job]).done().stdout;
    (text, project.json(&["job", "show", job]))
}

#[test]
fn a_job_that_waits_is_shown_whole_though_its_queue_keeps_it_no_longer() {
    let script = "fn process(job) {\n    if job.id == 1 { retry_in(\"1h\", \"no\") }\n    if job.id == 2 { pending(\"h\") }\n    \
        if job.id == 4 { reject(\"never\") }\n    job\n}";
    let project = Project::new()
        .file("tidegate.toml", SETTINGS)
        .file("p.toml", [SOURCE, "run = \"work.rhai\"\nqueuer = { strategy = \"fifo\" }\n"].concat())
        .file("work.rhai", script);
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    let mut client = Client::new(&place);
    let pushed =
        [1, 2, 4, 3].map(|id| client.push("p/requests", &format!("{{\"id\":{id},\"of\":\"acme\"}}")));
    running.wait_until("the last to be done", || project.read_if_there("out.ndjson").contains("\"id\":3"));
    for (job, status) in pushed.iter().zip(["delayed", "pending", "failed"]) {
        running.wait_until("it to wait", || shown(&project, job).1["steps"][0]["status"] == status);
        let told = client.job(job);
        assert_eq!(told["payload"]["of"], "acme", "{told}");
        assert_eq!(told.get("note"), None, "{told}");
    }
    running.wait_until("its end to be committed", || client.job(&pushed[3])["payload"].is_null());
    let gone = client.job(&pushed[3]);
    assert_eq!(
        (&gone["payload"], &gone["note"]),
        (&Value::Null, &"no longer kept (retain)".into()),
        "{gone}"
    );
    assert!(gone.as_object().expect("an object").contains_key("payload"), "{gone}");
    let look = || {
        for job in &pushed[..3] {
            let (text, told) = shown(&project, job);
            assert!(text.contains("\n  {\"id\":"), "{text}");
            assert!(!text.contains("kept"), "{text}");
            assert_eq!(told["payload"]["of"], "acme", "{told}");
        }
        let (text, told) = shown(&project, &pushed[3]);
        let first = text.lines().next().unwrap_or_default();
        assert_eq!(first, "p/requests/4, deleted by retention (see `retain` of its queue)");
        assert_eq!(told["note"], "no longer kept (retain)", "{told}");
    };
    look();
    running.stop().done();
    look();
}

#[test]
fn a_job_that_is_only_in_memory_is_shown_from_there() {
    let exec = "run = \"builtin:exec\"\ndelivery = \"at-most-once\"\n\
        exec = { command = [\"/bin/sh\", \"-c\", \"read line < gate; cat\"] }\ntimeout = \"10m\"\n";
    let project = Project::new().file("tidegate.toml", SETTINGS).file("p.toml", [SOURCE, exec].concat());
    let gate = project.path().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().expect("`mkfifo` can be started").success());
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    let mut client = Client::new(&place);
    let job = client.push("p/requests", "{\"id\":1,\"of\":\"acme\"}");
    running.wait_until("the attempt", || shown(&project, &job).1["steps"][0]["status"] == "begun");
    assert_eq!(client.job(&job)["payload"], json!({ "id": 1, "of": "acme" }));
    assert_eq!(shown(&project, &job).1["payload"]["of"], "acme");
    std::fs::write(&gate, "go\n").expect("the command reads it");
    running.wait_until("the output", || !project.read_if_there("out.ndjson").is_empty());
    running.wait_until("its end", || client.job(&job)["steps"][0]["status"] == "done");
    assert_eq!(client.job(&job)["payload"], Value::Null);
    running.stop().done();
}

#[test]
fn a_part_of_a_join_that_waits_is_shown_by_itself() {
    let project = Project::pipeline(
        "[step.left]\nfrom = \"in\"\nto = \"lefts\"\n[step.right]\nfrom = \"in\"\nto = \"rights\"\n\
         [step.pair]\njoin = { a = \"lefts\", b = \"rights\" }\nrun = \"pair.rhai\"\nto = \"out\"\n",
    )
    .file("pair.rhai", "fn process(job) { retry_in(\"1h\", \"no\") }")
    .file("in.ndjson", jobs(7..=7));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let (text, told) = shown(&project, "p/lefts/1");
    assert_eq!(told["payload"], json!({ "id": 7 }), "{text}");
    assert_eq!(told["steps"][0]["joined_with"], json!(["p/rights/1"]));
}
