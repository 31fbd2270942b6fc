//! Tests of `events`: the queue of the events of a step.

use serde_json::{Value, json};

use crate::project::{Project, jobs};
use crate::random::Random;

/// Events of the job at `index`, as words; those of `step` only.
fn of_job(events: &[Value], index: u64) -> Vec<String> {
    let of_it = events.iter().filter(|event| event["index"] == index && event["event"] != "watermark");
    of_it.map(word).collect()
}

/// Word of an event, with the outcome of an end.
fn word(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    match text("outcome") {
        "" => text("event").to_owned(),
        outcome => format!("{} {outcome}", text("event")),
    }
}

fn watermarks(events: &[Value]) -> Vec<u64> {
    let moved = events.iter().filter(|event| event["event"] == "watermark");
    moved.filter_map(|event| event["index"].as_u64()).collect()
}

/// Events of the step, from their queue.
fn events(project: &Project) -> Vec<Value> {
    project.queue("p/history")
}

#[test]
fn the_events_of_a_job_name_its_attempts_and_its_end() {
    let script = "fn process(job, ctx) {\n\
                  if job.id == 2 && ctx.attempt == 1 { retry_in(\"10ms\", \"busy\") }\n\
                  if job.id == 3 { reject(\"no such account\") }\n\
                  if job.id == 4 { return () }\njob }";
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"work.rhai\"\nerrors = \"failed\"\nevents = \"history\"\n",
    )
    .file("in.ndjson", jobs(1..=4))
    .file("work.rhai", script);
    project.run().done();
    let events = events(&project);
    assert_eq!(of_job(&events, 1), ["done delivered"]);
    assert_eq!(of_job(&events, 2), ["failed", "delayed", "done delivered"]);
    assert_eq!(of_job(&events, 3), ["failed", "done set-aside"]);
    assert_eq!(of_job(&events, 4), ["done consumed"]);
    assert_eq!(watermarks(&events).last(), Some(&4));
    let of_second: Vec<&Value> = events.iter().filter(|event| event["index"] == 2).collect();
    assert_eq!(
        (&of_second[0]["pipeline"], &of_second[0]["step"], &of_second[0]["input"]),
        (&json!("p"), &json!("work"), &json!("p/in"))
    );
    assert_eq!((&of_second[0]["attempt"], &of_second[0]["reason"]), (&json!(1), &json!("busy")));
    assert!(of_second[1]["due"].as_str() >= of_second[0]["time"].as_str(), "{of_second:?}");
    assert_eq!(of_second.iter().find(|event| event["event"] == "done").expect("an end")["attempt"], 2);
    let rejected = events.iter().find(|event| event["kind"] == "rejected").expect("a failed attempt");
    assert_eq!(rejected["reason"], "no such account");
    project.assert_sound();
}

#[test]
fn requests_of_operators_have_events() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"work.rhai\"\nerrors = \"failed\"\nevents = \"history\"\n",
    )
    .file("in.ndjson", jobs(1..=2))
    .file("work.rhai", "fn process(job) { if job.id == 1 { reject(\"no\") } retry_in(\"1h\", \"busy\") }");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.tidegate(&["job", "cancel", "p/in/2", "--yes"]).done();
    project.write("work.rhai", "fn process(job) { job }");
    project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
    project.run().done();
    let events = events(&project);
    assert_eq!(of_job(&events, 1), ["failed", "done set-aside", "retried", "done delivered"]);
    assert_eq!(of_job(&events, 2), ["failed", "delayed", "done set-aside"]);
    project.assert_sound();
}

#[test]
fn a_stop_of_the_step_is_an_event() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"work.rhai\"\nevents = \"history\"\n",
    )
    .file("in.ndjson", jobs(1..=3))
    .file("work.rhai", "fn process(job) { if job.id == 3 { halt(\"the ledger is closed\") } job }");
    project.tidegate(&["run", "."]).failed(1);
    let events = events(&project);
    let halted = events.iter().find(|event| event["event"] == "halted").expect("a stop");
    assert_eq!(halted["index"], 3, "{halted}");
    assert!(halted["reason"].as_str().is_some_and(|why| why.contains("the ledger is closed")), "{halted}");
    let pushed = project.tidegate_given(&["queue", "push", "p/history"], "{}\n").failed(1);
    pushed.says(
        "`p/history` is a queue for events and has events, not jobs: push to the queue that the step reads",
    );
    assert_eq!((of_job(&events, 2), watermarks(&events)), (vec!["done delivered".to_owned()], vec![2]));
}

#[test]
fn a_job_of_several_inputs_names_each_of_them() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.left]\ntype = \"file\"\npath = \"left.ndjson\"\nformat = \"ndjson\"\n\
             [source.right]\ntype = \"file\"\npath = \"right.ndjson\"\nformat = \"ndjson\"\n\
             [step.pair]\njoin = { l = \"left\", r = \"right\" }\nto = \"pairs\"\nevents = \"history\"\n\
             [sink.pairs]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("left.ndjson", jobs(1..=2))
        .file("right.ndjson", jobs(1..=2));
    project.run().done();
    let events = events(&project);
    let first = &events[0];
    let given = json!({ "l": { "from": "p/left", "index": 1 }, "r": { "from": "p/right", "index": 1 } });
    assert_eq!((&first["event"], &first["inputs"], &first["index"]), (&json!("done"), &given, &Value::Null));
    let moved = events.iter().rfind(|event| event["event"] == "watermark").expect("a watermark");
    assert_eq!(moved["inputs"]["l"]["index"], 2, "{moved}");
}

#[test]
fn a_kill_neither_loses_an_event_nor_repeats_one() {
    const JOBS: u64 = 900;
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let project = Project::pipeline(
        "follow = true\n[step.call]\nfrom = \"in\"\nto = \"out\"\nrun = [\"check.rhai\", \"builtin:exec\"]\nerrors = \"failed\"\n\
         exec = { command = [\"cat\"] }\nevents = \"history\"\n\
         queuer = { strategy = \"one-round-serial\", lane = \"id\" }\n\
         retry = { backoff = \"fixed\", initial = \"5ms\", max_attempts = 100 }\n",
    )
    .file("in.ndjson", jobs(1..=JOBS))
    .file(
        "check.rhai",
        "fn process(job, ctx) { if job.id % 5 == 0 && ctx.attempt < 3 { throw \"busy\" } if job.id == 7 { reject(\"no\") } job }",
    );
    for _ in 0..10 {
        let mut running = project.started();
        let (seen, more) = (events(&project).len(), 1 + random.up_to(12));
        running.wait_until("more events", || {
            let now = events(&project).len();
            now >= seen + more || now >= 2 * usize::try_from(JOBS).expect("it is small")
        });
        assert!(running.kill(), "seed {seed}: a run that follows its source does not end");
    }
    project.change("p.toml", "follow = true\n", "");
    project.run().done();
    let events = events(&project);
    for index in 1..=JOBS {
        let of_it: Vec<&Value> =
            events.iter().filter(|event| event["index"] == index && event["event"] != "watermark").collect();
        let ends = of_it.iter().filter(|event| event["event"] == "done").count();
        let last = of_it.last().map(|event| word(event)).unwrap_or_default();
        let expected = if index == 7 { "done set-aside" } else { "done delivered" };
        assert_eq!((ends, &*last), (1, expected), "seed {seed}: {of_it:#?}");
        // Each beginning has the next number, or that of an attempt that a kill has cut off.
        let begun: Vec<u64> = of_it
            .iter()
            .filter(|event| event["event"] == "begun")
            .filter_map(|event| event["attempt"].as_u64())
            .collect();
        assert!(begun.is_sorted() && begun.first() == Some(&1), "seed {seed}: {of_it:#?}");
        let failed = of_it.iter().filter(|event| event["event"] == "failed").count();
        let end = of_it.last().and_then(|event| event["attempt"].as_u64());
        assert!(begun.len() >= failed && begun.last().copied() == end, "seed {seed}: {of_it:#?}");
        assert!(
            of_it.iter().all(|event| event["lane"].as_str().map(str::parse) == Some(Ok(index))),
            "{of_it:#?}"
        );
    }
    let moved = watermarks(&events);
    assert!(moved.is_sorted() && moved.last() == Some(&JOBS), "seed {seed}: {moved:?}");
    project.assert_sound();
}
