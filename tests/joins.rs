//! Tests of joins by key: jobs that belong together meet in any order, each in one tuple.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::moment::Moment;
use crate::project::Project;
use crate::random::Random;

/// Sources `a` and `b`, each a file, and a step `match` with these keys that reads them through queues.
fn project(step: &str) -> Project {
    let source = |name| {
        format!(
            "[source.{name}]\ntype = \"file\"\npath = \"{name}.ndjson\"\nformat = \"ndjson\"\n\
             [step.give-{name}]\nfrom = \"{name}\"\nto = \"{name}s\"\n"
        )
    };
    let sink = "[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\nformat = \"ndjson\"\n";
    let matching =
        format!("[step.match]\njoin = {{ order = \"as\", payment = \"bs\" }}\nto = \"out\"\n{step}\n");
    let text = [
        "[pipeline]\nerrors = \"failed\"\n[queue_defaults]\nretain = \"forever\"\n",
        &source("a"),
        &source("b"),
        sink,
        &matching,
    ]
    .concat();
    Project::new().file("p.toml", text)
}

fn tuples(project: &Project) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    project.read_if_there("out.ndjson").lines().map(parse).collect()
}

fn ndjson(jobs: &[Value]) -> String {
    jobs.iter().flat_map(|job| [job.to_string(), "\n".to_owned()]).collect()
}

/// The tuples, in the order of their keys.
fn by_key(mut tuples: Vec<Value>) -> Vec<Value> {
    tuples.sort_by_key(|tuple| tuple["order"]["id"].as_u64());
    tuples
}

const KEYS: &str = "on = { order = \"id\", payment = \"order.id\" }";

#[test]
fn jobs_meet_by_their_key_in_any_order_and_those_without_a_partner_wait_for_later_runs() {
    let orders = [json!({"id": 1}), json!({"id": 2}), json!({"id": 3}), json!({"id": 2, "n": 2})];
    let payments = [json!({"order": {"id": "2"}}), json!({"order": {"id": 9}}), json!({"order": {"id": 1}})];
    let project = project(KEYS).file("a.ndjson", ndjson(&orders)).file("b.ndjson", ndjson(&payments));
    let ended = project.run().done();
    let ended = ended.says("2 jobs on p/as wait for a partner in p/match-join");
    ended.says("1 job on p/bs waits for a partner in p/match-join");
    let pairs = [
        json!({"order": {"id": 1}, "payment": {"order": {"id": 1}}}),
        // A number and a text with the same letters are one key, and the first job is paired first.
        json!({"order": {"id": 2}, "payment": {"order": {"id": "2"}}}),
    ];
    assert_eq!(by_key(tuples(&project)), pairs);
    assert_eq!(project.status("p/match-join", "p/as")["unmatched"], 2);
    assert_eq!(project.status("p/match-join", "p/bs")["unmatched"], 1);
    let waiting = &project.json(&["delayed", "list"])["jobs"];
    let first = waiting.as_array().unwrap().iter().find(|job| job["jobs"] == json!(["p/as/3"])).unwrap();
    assert_eq!(first["waits_for"], "partner");
    assert_eq!(first["last_error"], "no partner yet: it waits for a job of `payment` with the key `3`");
    assert!(project.tidegate(&["delayed", "list"]).done().stdout.contains("a partner"));
    let refused = project.tidegate(&["delayed", "now", "p/as/3", "--yes"]).failed(1);
    refused.says("1 job of p/match-join unchanged: waiting for a partner without a time limit");
    let taken = |input: &str| project.status("p/match-join", input)["taken"].clone();
    assert_eq!((taken("p/as"), taken("p/bs")), (json!(4), json!(0)), "all counters are with the first input");
    let shown = |arguments: &[&str]| project.tidegate(arguments).done().stdout;
    let waits = shown(&["job", "show", "p/as/3"]);
    assert!(waits.contains("waits for a partner\n") && !waits.contains("attempt"), "{waits}");
    project
        .tidegate(&["job", "cancel", "p/as/1-3", "--step", "p/match", "--yes"])
        .failed(1)
        .says("p/match-join");
    assert!(waits.contains("no partner yet: it waits for a job of `payment` with the key `3`"), "{waits}");
    let paired = shown(&["job", "show", "p/as/1"]);
    assert!(paired.contains("p/bs/3") && paired.contains("p/match-joined/"), "{paired}");
    let graph = shown(&["graph"]);
    assert!(graph.lines().any(|line| line.contains("match-join ") && line.contains("join ")), "{graph}");

    project.append("a.ndjson", ndjson(&[json!({"id": 9})]));
    project.append("b.ndjson", ndjson(&[json!({"order": {"id": 2}}), json!({"order": {"id": 7}})]));
    project.run().done();
    let pairs = [
        json!({"order": {"id": 2, "n": 2}, "payment": {"order": {"id": 2}}}),
        json!({"order": {"id": 9}, "payment": {"order": {"id": 9}}}),
    ];
    assert_eq!(by_key(tuples(&project)[2..].to_vec()), pairs);
    project.assert_sound();

    project.tidegate(&["delayed", "cancel", "p/as/3", "--yes"]).done();
    assert_eq!(project.status("p/match-join", "p/as")["unmatched"], Value::Null);
    let failed = project.queue("p/failed");
    assert_eq!(failed[0]["job"], json!({"order": {"id": 3}}), "{failed:?}");

    // A job that is retried waits once more.
    project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
    project.append("b.ndjson", ndjson(&[json!({"order": {"id": 3}})]));
    project.run().done();
    assert_eq!(tuples(&project).last(), Some(&json!({"order": {"id": 3}, "payment": {"order": {"id": 3}}})));
    project.assert_sound();
}

#[test]
fn a_job_without_a_key_fails_and_says_which_field_it_lacks() {
    let orders = [json!({"ident": 1}), json!({"id": null}), json!({"id": [1]}), json!({"id": true})];
    let project = project(KEYS)
        .file("a.ndjson", ndjson(&orders))
        .file("b.ndjson", ndjson(&[json!({"order": {"id": "true"}})]));
    project.run().done();
    assert_eq!(tuples(&project), [json!({"order": {"id": true}, "payment": {"order": {"id": "true"}}})]);
    let messages: Vec<Value> =
        project.queue("p/failed").iter().map(|record| record["message"].clone()).collect();
    let expected = [
        "it has no key `id`",
        "its key `id` must be a text, a number or a truth value, but is null",
        "its key `id` must be a text, a number or a truth value, but is [1]",
    ];
    assert!(messages[0].as_str().unwrap().starts_with(expected[0]), "{messages:?}");
    assert_eq!(messages[1..], expected[1..]);
    project.assert_sound();
}

#[test]
fn a_job_without_a_partner_fails_when_its_time_is_over_or_goes_on_alone() {
    let project = Project::new().file(
        "p.toml",
        r#"
[step.match]
join = { order = "orders", payment = "payments", parcel = "parcels" }
on = "id"
within = "1h"
left = "order"
errors = "failed"
types = ["sale"]
to = "matched"

[[test]]
name = "an order leaves after an hour with the partners that are there"
step = "match"
given = { order = [{ id = 1, type = "sale" }, { id = 2, type = "sale" }, { id = 3 }], payment = [{ id = 2 }], parcel = [] }
expect = { matched = [{ order = { id = 1, type = "sale" } }, { order = { id = 2, type = "sale" }, payment = { id = 2 } }], failed = [], elapsed = "1h" }

[[test]]
name = "a payment without an order fails after an hour"
step = "match"
given = { payment = [{ id = 7 }], order = [], parcel = [] }
expect = { matched = [], failed = [{ kind = "rejected", message = "no partner within 1h: it waited for a job of `order` and `parcel` with the key `7`", job = { payment = { id = 7 } } }], elapsed = "1h" }

[[test]]
name = "three meet, the last one just in time"
step = "match"
given = { parcel = [{ id = 1 }], order = [], payment = [] }
later = [{ after = "30m", given = { payment = [{ id = 1 }] } }, { after = "59m", given = { order = [{ id = 1, type = "sale" }] } }]
expect = { matched = [{ order = { id = 1, type = "sale" }, parcel = { id = 1 }, payment = { id = 1 } }], failed = [], elapsed = "59m" }

[[test]]
name = "a job that comes after the hour waits for a partner of its own"
step = "match"
given = { payment = [{ id = 1 }], order = [], parcel = [] }
later = [{ after = "61m", given = { order = [{ id = 1, type = "sale" }] } }]
expect = { matched = [{ order = { id = 1, type = "sale" } }], failed = [{ kind = "rejected" }], elapsed = "2h1m" }
"#,
    );
    project.tidegate(&["test", "."]).done();
}

#[test]
fn an_input_with_too_many_jobs_without_a_partner_is_not_read_until_some_leave() {
    let project = project(&format!("{KEYS}\nmax_waiting = 10"));
    let orders: Vec<Value> = (1..=60_000).map(|id| json!({"id": id})).collect();
    let project = project.file("a.ndjson", ndjson(&orders)).file("b.ndjson", "");
    project.run().done();
    let status = project.status("p/match-join", "p/as");
    let (unmatched, waiting) = (status["unmatched"].as_u64().unwrap(), status["waiting"].as_u64().unwrap());
    assert_eq!((unmatched + waiting, waiting > 0), (60_000, true), "{status}");
    let shown = project.tidegate(&["status"]).done().stdout;
    assert!(shown.contains("(`max_waiting`)"), "{shown}");

    let payments: Vec<Value> = (1..=60_000).rev().map(|id| json!({"order": {"id": id}})).collect();
    project.append("b.ndjson", ndjson(&payments));
    // The payments of the last orders come first: they wait in turn, until both inputs are full. Nothing can make room,
    // so the run ends.
    project.run().done();
    project.change("p.toml", "max_waiting = 10", "max_waiting = 100000");
    project.run().done();
    let found: Vec<u64> =
        by_key(tuples(&project)).iter().map(|tuple| tuple["order"]["id"].as_u64().unwrap()).collect();
    assert_eq!(found, (1..=60_000).collect::<Vec<u64>>());
    project.assert_sound();
}

#[test]
fn a_new_key_pairs_jobs_that_wait_already() {
    let project = project("on = \"id\"")
        .file("a.ndjson", ndjson(&[json!({"id": 1, "ref": 5}), json!({"id": 2, "ref": 6})]))
        .file("b.ndjson", ndjson(&[json!({"id": 3, "ref": 6})]));
    project.run().done();
    assert_eq!(tuples(&project), [] as [Value; 0]);
    project.change("p.toml", "on = \"id\"", "on = \"ref\"");
    let plan = project.tidegate(&["plan", "."]);
    assert!(
        plan.stdout.contains("3 jobs without a partner will be paired by the new key"),
        "{}",
        plan.stdout
    );
    project.run().done();
    assert_eq!(tuples(&project), [json!({"order": {"id": 2, "ref": 6}, "payment": {"id": 3, "ref": 6}})]);
    assert_eq!(project.status("p/match-join", "p/as")["unmatched"], 1);
    project.assert_sound();
}

#[test]
fn a_waiting_job_that_has_no_key_any_more_fails_at_once() {
    let project = project("on = \"id\"")
        .file("a.ndjson", ndjson(&[json!({"id": 1})]))
        .file("b.ndjson", ndjson(&[json!({"id": 2, "ref": 3})]));
    project.run().done();
    project.change("p.toml", "on = \"id\"", "on = \"ref\"");
    project.run().done();
    let failed = project.queue("p/failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["job"], json!({"order": {"id": 1}}));
    assert!(failed[0]["message"].as_str().unwrap().starts_with("it has no key `ref`"), "{failed:?}");
    assert_eq!(project.status("p/match-join", "p/as")["unmatched"], Value::Null);
    assert_eq!(project.status("p/match-join", "p/bs")["unmatched"], 1);
    project.assert_sound();
}

#[test]
fn a_job_waits_for_partners_of_its_binding_although_that_names_another_input_now() {
    let project = project(KEYS)
        .file("a.ndjson", ndjson(&[json!({"id": 1}), json!({"id": 2})]))
        .file("b.ndjson", ndjson(&[json!({"order": {"id": 8}})]));
    project.run().done();
    project.change("p.toml", "order = \"as\", payment = \"bs\"", "order = \"others\", payment = \"bs\"");
    project.append("b.ndjson", ndjson(&[json!({"order": {"id": 2}})]));
    let other = |job: Value| project.tidegate_given(&["queue", "push", "p/others"], job.to_string()).done();
    other(json!({"id": 9}));
    project.run().done();
    other(json!({"id": 1, "n": 2}));
    // Jobs of both inputs wait over a restart, and are paired in the order of their arrival.
    let payments = [json!({"order": {"id": 9}}), json!({"order": {"id": 1}}), json!({"order": {"id": 1}})];
    project.append("b.ndjson", ndjson(&payments));
    project.run().done();
    let orders: Vec<Value> = tuples(&project).iter().map(|tuple| tuple["order"].clone()).collect();
    let mut expected = vec![json!({"id": 2}), json!({"id": 9}), json!({"id": 1}), json!({"id": 1, "n": 2})];
    for order in orders {
        expected.retain(|one| *one != order);
    }
    assert_eq!(expected, [] as [Value; 0]);
    assert_eq!(tuples(&project).len(), 4);
    project.assert_sound();
}

#[test]
fn a_running_join_takes_a_new_key_and_a_new_time_and_its_waiting_jobs_keep_theirs() {
    let follows = |name: &str| {
        (format!("path = \"{name}.ndjson\""), format!("path = \"{name}.ndjson\"\nfollow = true"))
    };
    let project = project("on = \"id\"\nwithin = \"1h\"")
        .file("a.ndjson", ndjson(&[json!({"id": 1, "ref": 5}), json!({"id": 2, "ref": 6})]))
        .file("b.ndjson", ndjson(&[json!({"id": 3, "ref": 6})]));
    for (from, to) in ["a", "b"].map(follows) {
        project.change("p.toml", &from, &to);
    }
    let mut running = project.started();
    running.wait_until("the jobs wait", || {
        project.status("p/match-join", "p/as")["unmatched"] == 2
            && project.status("p/match-join", "p/bs")["unmatched"] == 1
    });
    let due = |project: &Project| {
        let jobs = project.json(&["delayed", "list"])["jobs"].as_array().unwrap().clone();
        jobs.iter().find(|job| job["jobs"] == json!(["p/as/1"])).unwrap()["due"].clone()
    };
    let before = due(&project);
    assert!(before.is_string(), "{before}");
    let shown = project.tidegate(&["status"]).done().stdout;
    assert!(!shown.contains("tried again"), "it has not failed: {shown}");
    project.change("p.toml", "on = \"id\"\nwithin = \"1h\"", "on = \"ref\"\nwithin = \"2h\"");
    running.wait_until("the waiting jobs are paired by the new key", || tuples(&project).len() == 1);
    assert_eq!(tuples(&project), [json!({"order": {"id": 2, "ref": 6}, "payment": {"id": 3, "ref": 6}})]);
    assert_eq!(due(&project), before);
    project.append("b.ndjson", ndjson(&[json!({"id": 4, "ref": 5})]));
    running.wait_until("a new job is paired by the new key", || tuples(&project).len() == 2);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn dedupe_holds_back_replayed_tuples_and_not_those_that_a_replayed_join_makes_anew() {
    let project = project(KEYS)
        .file("a.ndjson", ndjson(&[json!({"id": 1})]))
        .file("b.ndjson", ndjson(&[json!({"order": {"id": 1}})]));
    project.change("p.toml", "to = \"out\"", "to = \"paid\"");
    project.change("p.toml", "[sink.out]\n", "[queue.paid]\ndedupe = \"7d\"\n[sink.out]\nfrom = \"paid\"\n");
    project.run().done();
    assert_eq!(tuples(&project).len(), 1);
    project.tidegate(&["replay", "p/match", "--from", "1", "--yes"]).done();
    project.run().done();
    assert_eq!(tuples(&project).len(), 1);
    for input in ["order", "payment"] {
        project.tidegate(&["replay", "p/match-join", "--input", input, "--from", "1", "--yes"]).done();
    }
    project.run().done();
    assert_eq!(tuples(&project).len(), 2);
    assert_eq!(project.queue("p/match-joined").len(), 2);
    project.assert_sound();
}

#[test]
fn a_join_that_is_replayed_pairs_the_same_jobs_again() {
    let project = project(KEYS)
        .file("a.ndjson", ndjson(&[json!({"id": 1}), json!({"id": 2})]))
        .file("b.ndjson", ndjson(&[json!({"order": {"id": 2}}), json!({"order": {"id": 1}})]));
    project.run().done();
    assert_eq!(tuples(&project).len(), 2);
    // One half alone finds no partner: the first time has used them.
    project.tidegate(&["replay", "p/match-join", "--input", "order", "--from", "1", "--yes"]).done();
    project.run().done();
    assert_eq!(tuples(&project).len(), 2);
    assert_eq!(project.status("p/match-join", "p/as")["unmatched"], 2);
    project.tidegate(&["replay", "p/match-join", "--input", "payment", "--from", "2", "--yes"]).done();
    project.run().done();
    assert_eq!(tuples(&project)[2], json!({"order": {"id": 1}, "payment": {"order": {"id": 1}}}));
    assert_eq!(project.status("p/match-join", "p/as")["unmatched"], 1);
    // The tuples themselves can be replayed.
    project.tidegate(&["replay", "p/match", "--from", "1", "--yes"]).done();
    project.run().done();
    assert_eq!(tuples(&project).len(), 6);
    project.assert_sound();
}

#[test]
fn a_renamed_join_keeps_its_jobs_without_a_partner() {
    let project = project(KEYS).file("a.ndjson", ndjson(&[json!({"id": 1})])).file("b.ndjson", "");
    project.run().done();
    project.change("p.toml", "[step.match]\n", "[step.pay]\nwas = \"match\"\n");
    project.append("b.ndjson", ndjson(&[json!({"order": {"id": 1}})]));
    project.run().done();
    assert_eq!(tuples(&project), [json!({"order": {"id": 1}, "payment": {"order": {"id": 1}}})]);
    project.assert_sound();
}

#[test]
fn a_run_that_is_killed_puts_each_job_into_one_tuple() {
    const JOBS: u64 = 40_000;
    const KILLS: u64 = 12;
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let orders: Vec<Value> = (1..=JOBS).map(|id| json!({"id": id})).collect();
    // The payments come in another order, and in pairs with one key.
    let payment = |at: u64| json!({"order": {"id": at * 7919 % JOBS + 1}, "n": at});
    let payments: Vec<Value> = (0..JOBS).map(payment).collect();
    let project = project(KEYS).file("a.ndjson", ndjson(&orders)).file("b.ndjson", ndjson(&payments));
    let bytes: u64 = JOBS * 60;
    for kill in 0..KILLS {
        let ahead = project.len("out.ndjson") > bytes * 3 / 4 * (kill + 5) / (KILLS + 5);
        let moment = Moment::choose(&mut random, bytes / KILLS, ahead);
        let mut running = project.start(&["run", "."]);
        moment.wait(&project, "out.ndjson", &mut running);
        let said = running.stderr();
        if !running.kill() {
            break;
        }
        assert!(!said.contains("error") && !said.contains("panic"), "after kill {kill}:\n{said}");
    }
    project.run().done();
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for tuple in tuples(&project) {
        assert_eq!(tuple["order"]["id"], tuple["payment"]["order"]["id"], "seed {seed}: {tuple}");
        *seen.entry(tuple["order"]["id"].as_u64().unwrap()).or_default() += 1;
    }
    let wrong: Vec<_> = seen.iter().filter(|(_, count)| **count != 1).take(5).collect();
    assert_eq!((seen.len() as u64, wrong.len()), (JOBS, 0), "seed {seed}: {wrong:?}");
    assert_eq!(project.status("p/match-join", "p/as")["unmatched"], Value::Null);
    project.assert_sound();
}

#[test]
fn a_join_in_order_is_filtered_by_the_types_and_topics_of_its_inputs() {
    let project = project("types = [\"sale\"]\ntopics = [\"eu\"]")
        .file(
            "a.ndjson",
            ndjson(&[json!({"id": 1, "type": "sale"}), json!({"id": 2}), json!({"id": 3, "type": "sale"})]),
        )
        .file(
            "b.ndjson",
            ndjson(&[json!({"topics": ["eu"]}), json!({"topics": ["eu"]}), json!({"topics": ["us"]})]),
        );
    project.run().done();
    assert_eq!(
        tuples(&project),
        [json!({"order": {"id": 1, "type": "sale"}, "payment": {"topics": ["eu"]}})]
    );
    assert_eq!(project.status("p/match", "p/as")["filtered"], 2);
}
