//! Demonstration of withdrawals that wait for the price of gas: checks its description sentence by sentence,
//! also across kills.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http_client::{Client, JSON, NDJSON, address, own_address};
use crate::project::Project;
use crate::random::Random;
use crate::running::Running;

const KILLS: u64 = 12;
const POST: &str = "POST /sources/withdrawals/requests";
/// A running withdrawal waits for the file `go`; `log` records its start and end.
const SLOW: &str = "#!/bin/sh\necho \"begin $2 $1\" >> log\nwhile [ ! -e go ]; do sleep 0.01; done\n\
                    echo \"end $2 $1\" >> log\n[ \"$3\" -gt 1000 ] && exit 1\necho \"{\\\"id\\\": $1}\"\n";

/// The demonstration on a port of its own, with this pause between runs, and this interval of the price
/// check.
fn demonstration(pause: &str, every: &str) -> Project {
    let project = Project::demonstration("withdrawals");
    project.change("tidegate.toml", "127.0.0.1:8484", "127.0.0.1:0");
    project.change("withdrawals.toml", "pause = \"5s\"", &format!("pause = \"{pause}\""));
    project.change("withdrawals.toml", "every = \"5s\"", &format!("every = \"{every}\""));
    // A command that the test holds back must not run into a timeout.
    project.change("withdrawals.toml", "queuer = \"runs\"", "queuer = \"runs\"\ntimeout = \"10m\"");
    project
}

/// Replaces the sending script.
fn sending(project: &Project, script: &str) {
    project.write("send.sh", script);
    let path = project.path().join("send.sh");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is there");
}

fn started(project: &Project) -> (Running, Client) {
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    (running, Client::new(&place))
}

fn withdrawal(id: u64, pool: &str, amount: u64) -> String {
    json!({ "id": id, "pool": pool, "amount": amount }).to_string()
}

/// The pool of every third withdrawal.
fn pool(id: u64) -> &'static str {
    match id % 3 {
        0 => "a",
        1 => "b",
        _ => "c",
    }
}

fn schedule(client: &mut Client, id: u64, pool: &str, amount: u64) -> String {
    client.push("withdrawals/requests", &withdrawal(id, pool, amount))
}

/// The record of a withdrawal.
fn record(client: &mut Client, job: &str) -> Value {
    client.job(job)["steps"][0].clone()
}

fn wait_for(running: &mut Running, project: &Project, file: &str, lines: usize) {
    running.wait_until(file, || project.read_if_there(file).lines().count() == lines);
}

/// The commit time of the job at a position of a queue, from 0 on.
fn time_of(project: &Project, queue: &str, position: usize) -> Timestamp {
    let shown = project.json(&["queue", "show", queue]);
    let time = shown.as_array().and_then(|jobs| jobs.get(position)?["time"].as_str());
    time.and_then(|time| time.parse().ok()).expect("a job with a time")
}

#[test]
fn a_large_withdrawal_without_an_approval_is_refused() {
    let project = demonstration("1ms", "10ms");
    let (running, mut client) = started(&project);
    let mut large = json!({ "id": 1, "pool": "a", "amount": 10001 });
    let refused = client.request(POST, &[JSON], &large.to_string());
    assert_eq!((refused.status, &refused.body["places"][0]["at"]), (422, &json!("/approved_by")));
    large["approved_by"] = json!("b");
    assert_eq!(client.request(POST, &[JSON], &large.to_string()).status, 202);
    running.stop().done();
}

#[test]
fn a_withdrawal_for_later_waits_until_then_and_holds_up_no_other() {
    let project = demonstration("1ms", "10ms");
    sending(&project, "#!/bin/sh\necho \"{\\\"id\\\": $1}\"\n");
    project.write("gas.json", "{\"price\": 1}");
    let (mut running, mut client) = started(&project);
    let later = json!({ "id": 1, "pool": "a", "amount": 5, "not_before": "2999-01-01T00:00:00Z" });
    let answer = client.request(POST, &[JSON], &later.to_string());
    assert_eq!((answer.status, &answer.body["due"]), (202, &json!("2999-01-01T00:00:00.000Z")));
    schedule(&mut client, 2, "a", 5);
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 1);
    project.tidegate(&["delayed", "now", "withdrawals/requests", "--yes"]).done();
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 2);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_post_answers_at_once_and_the_record_gets_the_result_or_a_reason() {
    let project = demonstration("1ms", "10ms");
    project.write("gas.json", "{ \"price\": 93 }");
    let (mut running, mut client) = started(&project);
    let good = schedule(&mut client, 1, "a", 500);
    let bad = schedule(&mut client, 2, "a", 5000);
    for job in [&good, &bad] {
        let record = record(&mut client, job);
        assert_eq!(record["status"], "waiting", "{record}");
        assert!(record.get("outputs").is_none() && record.get("reason").is_none(), "{record}");
    }
    project.write("gas.json", "{ \"price\": 60 }");
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 1);
    running.wait_until("the failure", || !project.queue("withdrawals/failed").is_empty());
    let paid = record(&mut client, &good);
    assert_eq!(
        (&paid["status"], &paid["outputs"][0]["result"]["id"]),
        (&json!("done"), &json!("1")),
        "{paid}"
    );
    assert!(paid["outputs"][0]["result"]["transaction"].is_string(), "{paid}");
    let failed = record(&mut client, &bad);
    assert_eq!((&failed["status"], &failed["attempts"]), (&json!("failed"), &json!(1)), "{failed}");
    assert!(failed["reason"].as_str().is_some_and(|why| why.contains("pool a has not got 5000")), "{failed}");
    // A repeated request returns the existing job.
    let again = client.request(POST, &[JSON], &withdrawal(1, "a", 500));
    assert_eq!((again.status, again.job()), (200, good));
    running.stop().done();
    project.assert_sound();
}

#[test]
fn the_scheduled_withdrawal_is_the_answer_and_a_mistaken_one_is_refused_with_its_places() {
    let project = demonstration("1ms", "10ms");
    project.write("gas.json", "{ \"price\": 93 }");
    let (running, mut client) = started(&project);
    let answer = client.request(POST, &[JSON, "prefer: return=representation"], &withdrawal(1, "a", 500));
    assert_eq!(answer.status, 202);
    assert_eq!(answer.body["payload"], json!({ "amount": 500, "id": 1, "pool": "a" }));
    assert_eq!(answer.body["steps"][0]["status"], "waiting");
    let refused = client.request(POST, &[JSON], r#"{"id": 2, "pool": "", "amount": 1}"#);
    assert_eq!((refused.status, &refused.body["places"][0]["at"]), (422, &json!("/pool")), "{refused:?}");
    running.stop().done();
}

#[test]
fn withdrawals_run_in_order_of_creation_one_at_a_time_of_each_pool() {
    let project = demonstration("1ms", "10ms").file("go", "");
    sending(&project, SLOW);
    let (mut running, mut client) = started(&project);
    let all: Vec<_> = (1..=24).map(|id| withdrawal(id, pool(id), 1)).collect();
    client.request(POST, &[NDJSON], &all.join("\n"));
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 24);
    running.stop().done();
    for (pool, first) in [("a", 3), ("b", 1), ("c", 2)] {
        let log = project.read("log");
        let log: Vec<_> = log.lines().filter(|line| line.contains(&format!(" {pool} "))).collect();
        let ids = (first..=24).step_by(3);
        let one_by_one: Vec<_> =
            ids.flat_map(|id| [format!("begin {pool} {id}"), format!("end {pool} {id}")]).collect();
        assert_eq!(log, one_by_one);
    }
}

#[test]
fn a_busy_pool_does_not_slow_the_others() {
    let project = demonstration("1ms", "10ms");
    sending(&project, &SLOW.replace("while", "[ \"$2\" = busy ] && while"));
    let (mut running, mut client) = started(&project);
    let pools = ["busy", "busy", "busy", "a", "a", "b", "a", "b"];
    let all: Vec<_> = (1..).zip(pools).map(|(id, pool)| withdrawal(id, pool, 1)).collect();
    client.request(POST, &[NDJSON], &all.join("\n"));
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 5);
    assert!(!project.read("log").contains("end busy"));
    project.write("go", "");
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 8);
    running.stop().done();
}

#[test]
fn a_run_stops_where_gas_is_too_dear_and_goes_on_there_without_a_failure() {
    let project = demonstration("1ms", "1ms");
    // The first one raises the price too far.
    sending(
        &project,
        "#!/bin/sh\n[ $1 = 1 ] && echo '{ \"price\": 61 }' > gas.json\necho \"{\\\"id\\\": $1}\"\n",
    );
    let (mut running, mut client) = started(&project);
    let all: Vec<_> = (1..=4).map(|id| withdrawal(id, "a", 1)).collect();
    client.request(POST, &[NDJSON], &all.join("\n"));
    running.wait_until_it_says("the gate is closed: price 61 > 60");
    let second = record(&mut client, "withdrawals/requests/2");
    assert_eq!((&second["status"], &second["before"]), (&json!("waiting"), &json!(0)), "{second}");
    let status = project.status("withdrawals/withdraw", "withdrawals/requests");
    assert_eq!(status["closed"]["why"], "price 61 > 60", "{status}");
    // It waits across a kill, too.
    assert!(running.kill());
    let mut running = project.start(&["run", "."]);
    running.wait_until_it_says("the gate is closed: price 61 > 60");
    assert_eq!(project.queue("withdrawals/withdrawn"), [json!({ "id": 1 })]);
    project.write("gas.json", "{ \"price\": 60 }");
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 4);
    running.stop().done();
    assert_eq!(project.queue("withdrawals/withdrawn"), [1, 2, 3, 4].map(|id| json!({ "id": id })));
    assert!(project.queue("withdrawals/failed").is_empty());
}

#[test]
fn other_failures_store_their_reason_and_are_not_tried_again() {
    let project = demonstration("1ms", "10ms");
    sending(&project, "#!/bin/sh\necho $1 >> log\necho \"the chain refuses $1\" >&2\nexit 1\n");
    let (mut running, mut client) = started(&project);
    for id in 1..=3 {
        schedule(&mut client, id, "a", 1);
    }
    running.wait_until("the failures", || project.queue("withdrawals/failed").len() == 3);
    running.stop().done();
    let (running, mut client) = started(&project);
    for id in 1..=3_u64 {
        let failed = record(&mut client, &format!("withdrawals/requests/{id}"));
        let why = failed["reason"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("the chain refuses {id}")), "{failed}");
    }
    running.stop().done();
    assert_eq!(project.read("log"), "1\n2\n3\n");
}

#[test]
fn one_instance_processes_however_many_are_started() {
    let project = demonstration("1ms", "10ms");
    let (mut running, mut client) = started(&project);
    project.run().failed(1).says("only one runner can open it");
    schedule(&mut client, 1, "a", 1);
    wait_for(&mut running, &project, "out/withdrawn.ndjson", 1);
    running.stop().done();
}

#[test]
fn what_is_scheduled_during_a_run_belongs_to_the_next_after_a_pause_whether_it_succeeded_or_failed() {
    for (amount, queue) in [(1, "withdrawals/withdrawn"), (5000, "withdrawals/failed")] {
        let project = demonstration("300ms", "10ms");
        sending(&project, &SLOW.replace("while", "[ \"$1\" = 1 ] && while"));
        let (mut running, mut client) = started(&project);
        schedule(&mut client, 1, "a", amount);
        wait_for(&mut running, &project, "log", 1);
        schedule(&mut client, 2, "a", 1);
        // Another pool has runs of its own.
        schedule(&mut client, 3, "b", 1);
        wait_for(&mut running, &project, "out/withdrawn.ndjson", 1);
        let before = project.queue(queue).len();
        project.write("go", "");
        running.wait_until("the end of the run", || project.queue(queue).len() > before);
        let ended = time_of(&project, queue, before);
        let withdrawn = if amount == 1 { 3 } else { 2 };
        wait_for(&mut running, &project, "out/withdrawn.ndjson", withdrawn);
        running.stop().done();
        let next = time_of(&project, "withdrawals/withdrawn", withdrawn - 1);
        let pause = next.duration_since(ended);
        assert!(pause.as_millis() >= 300, "{pause}");
        assert_eq!(project.read("log").lines().last(), Some("end a 2"));
    }
}

#[test]
fn of_several_instances_one_processes_and_another_takes_over_the_port_and_the_rest() {
    let project = demonstration("1ms", "10ms");
    let run = ["run", ".", "--wait-for-lock", "--no-watch"];
    // All instances have the same port.
    let place = own_address().to_string();
    project.change("tidegate.toml", "127.0.0.1:0", &place);
    let mut first = project.start(&run);
    assert_eq!(address(&mut first), place);
    let mut client = Client::new(&place);
    project.write("gas.json", "{ \"price\": 93 }");
    let held = schedule(&mut client, 1, "a", 500);
    let mut second = project.start(&run);
    second.wait_until_it_says("waiting for the store");
    assert!(first.kill());
    assert_eq!(address(&mut second), place);
    let mut client = Client::new(&place);
    schedule(&mut client, 2, "b", 500);
    project.write("gas.json", "{ \"price\": 40 }");
    wait_for(&mut second, &project, "out/withdrawn.ndjson", 2);
    second.wait_until("the record", || record(&mut client, &held)["status"] == "done");
    second.stop().done();
    project.assert_sound();
}

#[test]
fn killed_again_and_again_every_withdrawal_is_made_once_or_has_its_reason() {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let project = demonstration("1ms", "5ms");
    // The test kills the process, not a withdrawal.
    project.change("withdrawals.toml", "queuer = \"runs\"", "queuer = \"runs\"\ncrash_limit = 100");
    let (mut next, mut killed) = (1_u64, 0);
    for kill in 0..=KILLS {
        let (mut running, mut client) = started(&project);
        // Some requests of the killed runner are repeated, since their outcome is unknown.
        for id in next.saturating_sub(3).max(1)..next + 10 {
            let amount = if id % 10 == 0 { 5000 } else { id };
            let answer = client.request(POST, &[JSON], &withdrawal(id, pool(id), amount));
            assert!([200, 202].contains(&answer.status), "{answer:?}");
        }
        next += 10;
        let price = if random.below(4) == 0 { 93 } else { 40 };
        project.write("gas.json", json!({ "price": price }).to_string());
        if kill < KILLS {
            let (lines, until) = (random.up_to(10), Instant::now() + Duration::from_millis(random.below(80)));
            let before = project.read_if_there("out/chain").lines().count();
            while project.read_if_there("out/chain").lines().count() <= before + lines
                && Instant::now() < until
            {
                std::thread::yield_now();
            }
            assert!(!running.stderr().contains("panic"), "kill {kill}, seed {seed}:\n{}", running.stderr());
            killed += u64::from(running.kill());
        } else {
            project.write("gas.json", "{ \"price\": 40 }");
            let all = || project.status("withdrawals/withdraw", "withdrawals/requests")["taken"] == next - 1;
            running.wait_until("all of them", all);
            running.stop().done();
        }
    }
    assert_eq!(killed, KILLS);
    project.assert_sound();
    assert_accounted_for(&project, next - 1);
}

/// Each withdrawal has either its transaction or its reason, and each pool reached the chain in order.
fn assert_accounted_for(project: &Project, all: u64) {
    let id = |job: &Value| job["id"].as_u64().or_else(|| job["id"].as_str()?.parse().ok()).expect("an id");
    let withdrawn = project.queue("withdrawals/withdrawn");
    let failed = project.queue("withdrawals/failed");
    let paid: BTreeSet<u64> = withdrawn.iter().map(id).collect();
    let refused: BTreeSet<u64> = failed.iter().map(|error| id(&error["job"])).collect();
    assert_eq!((paid.len(), refused.len()), (withdrawn.len(), failed.len()), "one occurs twice");
    assert_eq!(refused, (1..=all).filter(|id| id % 10 == 0).collect());
    assert_eq!(paid, (1..=all).filter(|id| id % 10 != 0).collect());
    // A chain recognizes a repetition by its hash.
    let mut chain: BTreeMap<String, (String, u64)> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for line in project.read("out/chain").lines() {
        let [hash, pool, id, _] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (pool, id) = (pool.to_owned(), id.parse().expect("a number"));
        if let Some(known) = chain.insert(hash.to_owned(), (pool.clone(), id)) {
            assert_eq!(known, (pool, id));
        } else {
            assert!(last.insert(pool, id).is_none_or(|before| before < id), "{line}");
        }
    }
    assert_eq!(chain.into_values().map(|(_, id)| id).collect::<BTreeSet<_>>(), paid);
}
