//! Tests of provenance: defaults of queues, queues without it, places in files, and `ctx.meta`.

use serde_json::{Value, json};

use crate::project::{Project, jobs};

/// Steps that write the provenance of their jobs, behind two queues.
fn project() -> Project {
    Project::pipeline(
        "meta = [\"place\", \"index\"]\n\
         [step.first]\nfrom = \"in\"\nto = \"between\"\n\
         [step.second]\nfrom = \"between\"\nto = \"last\"\n\
         [step.third]\nfrom = \"last\"\nrun = \"meta.rhai\"\nto = \"out\"\n",
    )
    .file("meta.rhai", "fn process(job, ctx) { #{ id: job.id, meta: ctx.meta } }")
    .file("in.ndjson", jobs(1..=2))
}

/// The provenance of the first job.
fn meta(project: &Project) -> Value {
    project.run().done();
    let text = project.read("out.ndjson");
    let first: Value = serde_json::from_str(text.lines().next().expect("a job")).expect("it is JSON");
    first["meta"].clone()
}

#[test]
fn a_job_of_a_file_knows_its_line() {
    let project = project();
    let place = json!({ "path": project.path().join("in.ndjson"), "line": 1, "index": 1 });
    assert_eq!(meta(&project), json!({ "p/in": place }));
    let shown = project.tidegate(&["check", "."]).done();
    assert!(shown.stderr.is_empty(), "{}", shown.stderr);
}

#[test]
fn defaults_of_a_pipeline_are_for_all_its_queues_and_win_over_those_of_the_runner() {
    let project =
        project().file("tidegate.toml", "[queue_defaults]\nmeta = [\"tx\"]\nretain = \"forever\"\n");
    project.change(
        "p.toml",
        "[step.first]",
        "[queue_defaults]\nmeta = [\"index\"]\n[queue.last]\nmeta = [\"time\"]\n[step.first]",
    );
    let meta = meta(&project);
    assert_eq!(meta["p/between"], json!({ "index": 1 }));
    let keys: Vec<&String> = meta["p/last"].as_object().expect("a map").keys().collect();
    assert_eq!(keys, ["time"]);
    // The retention is the runner's, also of a queue that is declared nowhere.
    assert_eq!((project.queue("p/between").len(), project.queue("p/last").len()), (2, 2));
}

#[test]
fn a_queue_without_meta_drops_what_its_jobs_carried() {
    let project = project();
    project.change("p.toml", "[step.first]", "[queue_defaults]\nmeta = [\"index\"]\n[queue.last]\nmeta = false\nretain = \"forever\"\n[step.first]");
    assert_eq!(meta(&project), json!({}));
    let shown = project.json(&["queue", "show", "p/last"]);
    assert!(shown[0].get("meta").is_none(), "{shown}");
}

#[test]
fn a_job_that_waited_for_another_attempt_has_its_provenance() {
    let project = project();
    project.change(
        "p.toml",
        "run = \"meta.rhai\"",
        "run = \"meta.rhai\"\nretry = { backoff = \"fixed\", initial = \"1ms\", jitter = \"none\", max_attempts = 2 }",
    );
    project.write(
        "meta.rhai",
        "fn process(job, ctx) { if ctx.attempt == 1 { retry(\"once more\") } #{ meta: ctx.meta } }",
    );
    assert_eq!(meta(&project)["p/in"]["line"], 1);
}

#[test]
fn a_joined_job_has_the_index_of_each_input() {
    let project = project();
    project.change("p.toml", "from = \"last\"", "join = { left = \"last\", right = \"in\" }");
    project.write("meta.rhai", "fn process(job, ctx) { #{ meta: [ctx.inputs, ctx.outputs] } }");
    assert_eq!(meta(&project), json!([{ "left": 1, "right": 1 }, [""]]));
}

#[test]
fn an_alternative_has_only_the_input_that_came() {
    let project = project();
    project.change("p.toml", "from = \"last\"", "alts = { left = \"last\", right = \"never\" }");
    project.write("meta.rhai", "fn process(job, ctx) { #{ meta: ctx.inputs } }");
    project.run().done();
    assert!(project.read("out.ndjson").starts_with("{\"meta\":{\"left\":1}}\n"));
}
