//! Tests of lookup tables of queues: the newest job of a key is its row, across kills, reloads and renames.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::http_client::{Client, JSON, address};
use crate::project::Project;
use crate::random::Random;
use crate::running::Running;

/// Jobs of the source `jobs` get the row of their host from the table `hosts`, whose rows come by a source of this name.
const PIPELINE: &str = r#"
[pipeline]
errors = "failed"

[source.hosts]
type = "http"

[source.jobs]
type = "http"

[step.find]
from = "jobs"
run = "find.rhai"
to = "out"

[sink.out]
type = "file"
path = "out.ndjson"
format = "ndjson"

[table.hosts]
queue = "hosts"
key = "host"
tombstone = "gone"
"#;

fn project() -> Project {
    Project::new()
        .file("p.toml", PIPELINE)
        .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n")
        .file("find.rhai", "fn process(job) { job.n = lookup(\"hosts\", job.host)?.n; job }")
}

/// A runner that reloads on request only.
fn started(project: &Project) -> (Running, Client) {
    let mut running = project.start(&["run", ".", "--no-watch"]);
    let client = Client::new(&address(&mut running));
    (running, client)
}

fn found(project: &Project) -> Vec<Value> {
    let text = project.read_if_there("out.ndjson");
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a job")).collect()
}

/// The row that the next job finds for this host.
fn look(project: &Project, running: &mut Running, client: &mut Client, host: &str) -> Value {
    let before = found(project).len();
    client.push("p/jobs", &json!({ "host": host }).to_string());
    running.wait_until("the job", || found(project).len() > before);
    found(project)[before]["n"].clone()
}

fn row(host: &str, n: u64) -> String {
    json!({ "host": host, "n": n }).to_string()
}

#[test]
fn a_job_finds_the_newest_committed_row_and_a_tombstone_removes_it() {
    let project = project();
    let (mut running, mut client) = started(&project);
    assert_eq!(look(&project, &mut running, &mut client, "a"), Value::Null);
    for n in 1..=30 {
        client.push("p/hosts", &row("a", n));
        assert_eq!(look(&project, &mut running, &mut client, "a"), n);
    }
    client.push("p/hosts", &row("b", 7));
    client.push("p/hosts", &json!({ "host": "a", "gone": true }).to_string());
    assert_eq!(look(&project, &mut running, &mut client, "a"), Value::Null);
    running.stop().done();
    // The jobs that were read in the last run are still the rows.
    let (mut running, mut client) = started(&project);
    assert_eq!(look(&project, &mut running, &mut client, "a"), Value::Null);
    assert_eq!(look(&project, &mut running, &mut client, "b"), 7);
    running.stop().done();
    assert_eq!(project.queue("p/hosts").len(), 32);
    project.assert_sound();
}

#[test]
fn a_kill_loses_no_row_whose_push_was_answered() {
    let seed = Random::seed();
    println!("TIDEGATE_TEST_SEED={seed} repeats it");
    let mut random = Random::new(seed);
    let project = project();
    let (mut acknowledged, mut sent) = (BTreeMap::<String, u64>::new(), 0);
    for _ in 0..6 {
        let (mut running, mut client) = started(&project);
        for host in ["a", "b", "c"] {
            let n = look(&project, &mut running, &mut client, host).as_u64().unwrap_or(0);
            let least = acknowledged.get(host).copied().unwrap_or(0);
            // The last push before a kill may be durable without an answer.
            assert!((least..=sent).contains(&n), "{host}: {n} is not in {least}..={sent}");
        }
        for _ in 0..=random.below(40) {
            let host = ["a", "b", "c"][random.up_to(2)];
            sent += 1;
            client.push("p/hosts", &row(host, sent));
            acknowledged.insert(host.to_owned(), sent);
        }
        sent += 1;
        let body = row("a", sent);
        let head = format!(
            "POST /sources/p/hosts HTTP/1.1\r\nhost: x\r\n{JSON}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        client.send(head.as_bytes()).expect("it is sent");
        assert!(running.kill(), "it ended by itself");
    }
    project.assert_sound();
}

#[test]
fn steps_fill_a_table_and_filters_gates_and_other_pipelines_read_it() {
    let project = Project::new()
        .file(
            "rows.toml",
            "[source.in]\ntype = \"http\"\n[step.tidy]\nfrom = \"in\"\nrun = \"tidy.rhai\"\nto = \"states\"\n",
        )
        .file("tidy.rhai", "fn process(job) { #{ of: #{ id: job.id }, open: job.open } }")
        .file(
            "p.toml",
            "[source.jobs]\ntype = \"http\"\n\
             [step.known]\nfrom = \"jobs\"\nwhen = 'lookup(\"states\", job.id) != ()'\ngate = \"open\"\nto = \"out\"\n\
             [gate.open]\nrun = \"open.rhai\"\nevery = \"20ms\"\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\nformat = \"ndjson\"\n",
        )
        .file("open.rhai", "fn open(answer, ctx) { lookup(\"states\", \"door\")?.open ?? false }")
        .file(
            "tidegate.toml",
            "[runner]\nlisten = \"127.0.0.1:0\"\n[table.states]\nqueue = \"rows/states\"\nkey = \"of.id\"\n",
        );
    project.tidegate(&["check", "."]).done();
    let (mut running, mut client) = started(&project);
    client.push("p/jobs", "{\"id\":1}");
    running.wait_until("the closed gate", || project.status("p/known", "p/jobs")["closed"] != Value::Null);
    client.push("rows/in", "{\"id\":1,\"open\":true}");
    client.push("rows/in", "{\"id\":\"door\",\"open\":true}");
    running.wait_until("the job", || found(&project).len() == 1);
    // A job without a row is filtered away.
    client.push("p/jobs", "{\"id\":2}");
    client.push("p/jobs", "{\"id\":1,\"n\":2}");
    running.wait_until("the second job", || found(&project).len() == 2);
    assert_eq!(found(&project), [json!({ "id": 1 }), json!({ "id": 1, "n": 2 })]);
    let graph = project.tidegate(&["graph"]).done().stdout;
    assert!(graph.contains("table ← states: rows/states"), "{graph}");
    let edges = project.json(&["graph"])["edges"].clone();
    let edge =
        json!({ "from": "queue:rows/states", "to": "step:p/known", "kind": "table", "binding": "states" });
    assert!(edges.as_array().expect("a list").contains(&edge), "{edges}");
    let queues = project.tidegate(&["queue", "list"]).done().stdout;
    assert!(queues.contains("table states"), "{queues}");
    running.stop().done();
}

#[test]
fn a_changed_key_builds_the_table_anew_and_a_renamed_queue_keeps_it() {
    let project = project();
    let (mut running, mut client) = started(&project);
    for (host, n) in [("a", 1), ("b", 2)] {
        client.push("p/hosts", &row(host, n));
    }
    assert_eq!(look(&project, &mut running, &mut client, "a"), 1);
    project.change("p.toml", "key = \"host\"", "key = \"n\"");
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains("table hosts key"), "{plan}");
    project.tidegate(&["reload"]).done();
    assert_eq!(look(&project, &mut running, &mut client, "2"), 2);
    assert_eq!(look(&project, &mut running, &mut client, "b"), Value::Null);
    project.change("p.toml", "key = \"n\"", "key = \"host\"");
    project.change("p.toml", "[source.hosts]", "[source.machines]\nwas = \"hosts\"");
    project.change("p.toml", "queue = \"hosts\"", "queue = \"machines\"");
    project.tidegate(&["reload"]).done();
    assert_eq!(look(&project, &mut running, &mut client, "b"), 2);
    client.push("p/machines", &row("b", 3));
    assert_eq!(look(&project, &mut running, &mut client, "b"), 3);
    running.stop().done();
    let (mut running, mut client) = started(&project);
    assert_eq!(look(&project, &mut running, &mut client, "a"), 1);
    assert_eq!(look(&project, &mut running, &mut client, "b"), 3);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_table_that_exceeds_its_limit_fails_the_jobs_that_read_it_until_the_limit_is_raised() {
    let project = project();
    project.change("p.toml", "tombstone = \"gone\"", "max_size = \"1KiB\"");
    let (mut running, mut client) = started(&project);
    for n in 1..=5 {
        client.push("p/hosts", &row(&format!("h{n}"), n));
    }
    assert_eq!(look(&project, &mut running, &mut client, "h3"), 3);
    for n in 6..=20 {
        client.push("p/hosts", &row(&format!("h{n}"), n));
    }
    running.wait_until_it_says("the table exceeds its `max_size`");
    client.push("p/jobs", "{\"host\":\"h3\"}");
    running.wait_until("the error", || project.queue("p/failed").len() == 1);
    let message = project.queue("p/failed")[0]["message"].to_string();
    assert!(message.contains("the table `hosts` exceeds its `max_size` of 1.0 KiB"), "{message}");
    let status = project.tidegate(&["status"]).done().stdout;
    assert!(
        status.contains("table hosts (p/hosts by `host`): it exceeds its `max_size` of 1.0 KiB"),
        "{status}"
    );
    project.change("p.toml", "max_size = \"1KiB\"", "max_size = \"1MiB\"");
    project.tidegate(&["reload"]).done();
    assert_eq!(look(&project, &mut running, &mut client, "h20"), 20);
    running.stop().done();
}

#[test]
fn jobs_without_the_key_are_counted_and_a_cleared_queue_has_no_rows() {
    let project = project();
    let (mut running, mut client) = started(&project);
    for job in ["{\"n\":1}", "[1]", "{\"host\":null,\"n\":1}", "{\"host\":\"a\",\"n\":1}"] {
        client.push("p/hosts", job);
    }
    assert_eq!(look(&project, &mut running, &mut client, "a"), 1);
    running.wait_until_it_says("jobs without the key are no rows of the table");
    let table = project.json(&["status"])["tables"][0].clone();
    assert_eq!(
        (&table["rows"], &table["ignored"], &table["steps"]),
        (&json!(1), &json!(3), &json!(["p/find"]))
    );
    project.tidegate(&["queue", "clear", "p/hosts", "--yes"]).done();
    assert_eq!(look(&project, &mut running, &mut client, "a"), Value::Null);
    client.push("p/hosts", &row("a", 2));
    assert_eq!(look(&project, &mut running, &mut client, "a"), 2);
    running.stop().done();
    let stopped = project.tidegate(&["status"]).done().stdout;
    assert!(
        stopped.contains("table hosts (p/hosts by `host`): a runner builds it at its start"),
        "{stopped}"
    );
    project.assert_sound();
}

#[test]
fn a_table_begins_with_the_jobs_that_its_queue_has_kept_and_reads_past_the_cache_of_new_jobs() {
    let project = project();
    let table = "[table.hosts]\nqueue = \"hosts\"\nkey = \"host\"\ntombstone = \"gone\"\n";
    project.change("p.toml", table, "");
    project.change(
        "p.toml",
        "[step.find]",
        "[step.first]\nfrom = \"hosts\"\nto = \"seen\"\n[sink.seen]\ntype = \"null\"\n[step.find]",
    );
    project.write("find.rhai", "fn process(job) { job }");
    let (running, mut client) = started(&project);
    client.push("p/hosts", &row("a", 1));
    drop(client);
    running.stop().done();
    // `retain = "consumed"` has deleted the first job.
    project.append("p.toml", table);
    project.write("find.rhai", "fn process(job) { job.n = lookup(\"hosts\", job.host)?.n; job }");
    let (mut running, mut client) = started(&project);
    assert_eq!(look(&project, &mut running, &mut client, "a"), Value::Null);
    let lines: String = (0..20_000).map(|n| row(&format!("h{}", n % 5000), n) + "\n").collect();
    let pushed = client.request("POST /sources/p/hosts", &[crate::http_client::NDJSON], &lines);
    assert_eq!(pushed.status, 202, "{pushed:?}");
    assert_eq!(look(&project, &mut running, &mut client, "h4999"), 19_999);
    running.stop().done();
    let (mut running, mut client) = started(&project);
    assert_eq!(look(&project, &mut running, &mut client, "h0"), 15_000);
    assert_eq!(look(&project, &mut running, &mut client, "h4999"), 19_999);
    assert_eq!(project.json(&["status"])["tables"][0]["rows"], 5000);
    running.stop().done();
}
