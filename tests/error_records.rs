//! Tests of error records: the inputs and the provenance of a joined job.

use serde_json::{Value, json};

use crate::project::{Project, ids, jobs};

/// Two sources, each with a queue and a step that adds its name, and a join of them.
const PIPELINE: &str = r#"
[pipeline]
errors = "failed"
[source.in]
type = "file"
path = "in.ndjson"
format = "ndjson"
[source.other]
type = "file"
path = "other.ndjson"
format = "ndjson"
[step.left]
from = "in"
to = "lefts"
[queue.lefts]
meta = ["index", "time", "tx"]
[step.on]
from = "lefts"
to = "rights"
when = "job.id > 100"
[queue.rights]
meta = ["index"]
[step.more]
from = "other"
to = "others"
[queue.others]
meta = ["tx"]
[step.match]
join = { one = "rights", two = "others" }
run = "match.rhai"
to = "out"
[sink.out]
type = "file"
path = "out.ndjson"
"#;

const SCRIPT: &str = r#"fn process(job, ctx) {
    if job.one.id == 101 { reject("they do not fit", #{ hash: ctx.hash, sizes: [1, 2] }); }
    if job.one.id == 102 {
        throw #{ message: "out of order", expected: job.two.id, found: #{ id: 102 } };
    }
    if job.one.id == 103 { throw "just so" }
    job.one
}"#;

fn project() -> Project {
    Project::new()
        .file("p.toml", PIPELINE)
        .file("match.rhai", SCRIPT)
        .file("in.ndjson", jobs(1..=110))
        .file("other.ndjson", jobs(901..=910))
}

fn shown(project: &Project, index: u64) -> Value {
    project.json(&["errors", "show", &format!("p/failed/{index}")])["job"].clone()
}

fn time(of: &Value) -> jiff::Timestamp {
    of["time"].as_str().expect("a text").parse().expect("a time")
}

#[test]
fn an_error_record_names_all_jobs_of_a_join_and_the_reason_of_the_author() {
    let project = project();
    project.run().done();
    let rejected = shown(&project, 1);
    assert_eq!(rejected["kind"], "rejected");
    assert_eq!(rejected["message"], "they do not fit");
    assert_eq!(rejected["context"], json!({ "hash": rejected["hash"], "sizes": [1, 2] }));
    assert_eq!(
        rejected["inputs"],
        json!({ "one": { "from": "p/rights", "index": 1 }, "two": { "from": "p/others", "index": 1 } })
    );
    assert_eq!(rejected["job"], json!({ "one": { "id": 101 }, "two": { "id": 901 } }));
    assert_eq!(rejected["at"]["line"], 2);
    assert_eq!((&rejected["step"], &rejected["attempt"]), (&"match".into(), &1.into()));

    let thrown = shown(&project, 2);
    assert_eq!(thrown["message"], "out of order");
    assert_eq!(thrown["context"], json!({ "expected": 902, "found": { "id": 102 } }));
    assert_eq!(thrown["inputs"]["two"], json!({ "from": "p/others", "index": 2 }));
    assert_eq!(thrown["at"]["line"], 4);
    assert_ne!(thrown["hash"], rejected["hash"]);

    let plain = shown(&project, 3);
    assert_eq!(plain["message"], "just so");
    assert!(plain.get("context").is_none(), "{plain}");
}

#[test]
fn an_error_record_names_each_queue_that_the_jobs_have_passed() {
    let project = project();
    project.run().done();
    let meta = shown(&project, 2)["meta"].clone();
    let keys: Vec<&String> = meta.as_object().expect("a map").keys().collect();
    assert_eq!(keys, ["p/lefts", "p/others", "p/rights"]);
    assert_eq!(meta["p/rights"], json!({ "index": 2 }));
    let left = &meta["p/lefts"];
    assert_eq!(left["index"], 102);
    assert!(time(left) <= time(&shown(&project, 2)), "{meta}");
    assert!(left["tx"].as_u64() > Some(0), "{meta}");
    assert_eq!(meta["p/others"].as_object().map(serde_json::Map::len), Some(1), "{meta}");

    // A later commit has a greater number.
    let before = left["tx"].as_u64();
    project.append("in.ndjson", jobs([103]));
    project.append("other.ndjson", jobs([911]));
    project.run().done();
    let later = shown(&project, 4)["meta"].clone();
    assert_eq!(later["p/lefts"]["index"], 111);
    assert!(later["p/lefts"]["tx"].as_u64() > before, "{later}");
    assert!(later["p/others"]["tx"].as_u64() > meta["p/others"]["tx"].as_u64(), "{later}");
}

#[test]
fn an_error_record_names_the_generation_of_the_configuration_that_failed() {
    let project = Project::pipeline(
        "[step.fail]\nfrom = \"in\"\nrun = \"fail.rhai\"\nto = \"out\"\nerrors = \"failed\"\n",
    );
    for (round, script) in [(1, "one"), (2, "one"), (3, "two"), (4, "one")] {
        project.write("fail.rhai", format!("fn process(job) {{ throw \"{script}\" }}"));
        project.append("in.ndjson", jobs([round]));
        project.run().done();
    }
    let generations: Vec<Value> =
        project.queue("p/failed").iter().map(|record| record["generation"].clone()).collect();
    assert_eq!(generations, [1, 1, 2, 3]);
}

/// A list of texts, whose JSON exceeds the limit of a reason.
const LONG: &str = r#"fn long() {
    let text = "";
    for n in 0..5000 { text += "é"; }
    [text, text, text, text]
}
"#;

#[test]
fn of_a_long_reason_eight_kibibytes_are_kept_and_the_number_of_bytes_left_out() {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[step.fails]\nfrom = \"in\"\nrun = \"throws.rhai\"\n\
         [step.waits]\nfrom = \"in\"\nrun = \"throws.rhai\"\n\
         retry = { backoff = \"list\", delays = [\"1h\"] }\n\
         [step.rejects]\nfrom = \"in\"\nrun = \"rejects.rhai\"\nto = \"out\"\n",
    )
    .file("throws.rhai", format!("{LONG}fn process(job) {{ throw long() }}"))
    .file("rejects.rhai", format!("{LONG}fn process(job) {{ reject(\"why\", long()) }}"))
    .file("in.ndjson", jobs([1]));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let records = [shown(&project, 1), shown(&project, 2)];
    let of = |step: &str| records.iter().find(|record| record["step"] == step).expect("it failed");
    let context: &Value = &of("rejects")["context"];
    let waits = project.json(&["delayed", "list"]);
    let waits = waits.to_string();
    assert!(waits.len() < 20_000, "{}", waits.len());
    let as_json = 4 * (10_000 + 2) + 3 + 2;
    for reason in [&of("fails")["message"], context] {
        let reason = reason.as_str().expect("a text");
        let (kept, left_out) = reason.rsplit_once("… ").expect("something is left out");
        let left_out = left_out.strip_suffix(" more bytes left out").expect("bytes").replace(',', "");
        assert!(reason.len() <= 8 << 10, "{}", reason.len());
        assert_eq!(kept.len() + left_out.parse::<usize>().expect("a number"), as_json);
    }
    assert!(waits.contains(" more bytes left out"), "{waits}");
}

#[test]
fn an_error_record_has_the_configuration_of_its_step_without_secrets() {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[step.fails]\nfrom = \"in\"\nrun = [\"first.rhai\", \"fails.rhai\"]\n\
         config = { key = \"${file:key}\", limit = 60, deep = [{ url = \"https://a?key=${file:key}\" }] }\n",
    )
    .file("key", "s3cret!")
    .file("first.rhai", "fn process(job) { job }")
    .file("fails.rhai", "fn process(job) { throw \"no\" }")
    .file("in.ndjson", jobs([1]));
    project.run().done();
    let record = shown(&project, 1);
    assert_eq!(
        record["configuration"],
        json!({
            "run": ["first.rhai", "fails.rhai"],
            "config": { "key": "…", "limit": 60, "deep": [{ "url": "https://a?key=…" }] },
        })
    );
    let page = project.tidegate(&["errors", "show", "p/failed/1"]).done().stdout;
    assert!(page.contains("\nconfig      {") && page.contains("\"limit\":60"), "{page}");
    assert!(!project.tidegate(&["store", "export", "-"]).done().stdout.contains("s3cret"));
}

#[test]
fn an_error_queue_with_a_reader_keeps_its_records_for_a_retry() {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[step.fails]\nfrom = \"in\"\nrun = \"fails.rhai\"\nto = \"out\"\n\
         [sink.report]\nfrom = \"failed\"\ntype = \"file\"\npath = \"failed.ndjson\"\n",
    )
    .file("fails.rhai", "fn process(job) { throw \"no\" }")
    .file("in.ndjson", jobs(1..=3));
    project.run().done();
    assert_eq!(project.read("failed.ndjson").lines().count(), 3);
    project.write("fails.rhai", "fn process(job) { job }");
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).done();
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=3));
    project.assert_sound();
}

#[test]
fn errors_of_a_queue_that_the_configuration_has_no_more_are_listed_counted_and_retried() {
    let pipeline = "follow = false\n[pipeline]\nerrors = \"failed\"\n\
                    [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n";
    let project = Project::pipeline(pipeline)
        .file("in.ndjson", jobs(1..=3))
        .file("work.rhai", "fn process(job) { if job.id < 3 { throw \"no\" } job }");
    project.run();
    project.change("p.toml", "errors = \"failed\"", "errors = \"trouble\"");
    project.write("work.rhai", "fn process(job) { job }");
    let listed = project.tidegate(&["errors", "list"]).done().stdout;
    assert!(listed.contains("p/failed/1") && listed.contains("p/failed/2"), "{listed}");
    assert_eq!(project.status("p/work", "p/in")["errors"], 2);
    project.tidegate(&["errors", "retry", "--step", "p/work", "--yes"]).done();
    project.run();
    assert_eq!(project.tidegate(&["errors", "list"]).done().stdout, "no errors\n");
    assert_eq!(ids(&project.read("out.ndjson")), [3, 1, 2]);
}
