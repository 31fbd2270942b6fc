//! Tests of `[pipeline.each]`: one file is the pipeline of many tenants.

use crate::project::{Project, ids, jobs};

const PIPELINE: &str = r#"
[pipeline]
errors = "failed"

[pipeline.each]
eu = { most = 3, path = "eu/in.ndjson" }
us = { most = 5, path = "${HOME_OF_US:-us}/in.ndjson" }

[source.in]
type = "file"
path = "${each.path}"
format = "ndjson"

[step.work]
from = "in"
run = "work.rhai"
config = { most = "${each.most:int}", tenant = "${each}" }
to = "out"

[sink.out]
type = "file"
path = "out/${each}.ndjson"

[[test]]
name = "the bound holds"
step = "work"
given = [{ id = 4 }]
expect = { failed = ["too much for eu"] }
"#;

fn project() -> Project {
    Project::new()
        .file("shop.toml", PIPELINE)
        .file(
            "work.rhai",
            "fn process(job, ctx) {\n    let most = ctx.config.most;\n    \
             if job.id > most { reject(`too much for ${ctx.config.tenant}`) }\n    job\n}",
        )
        .file("eu/in.ndjson", jobs(1..=6))
        .file("us/in.ndjson", jobs(1..=6))
}

#[test]
fn one_file_runs_as_a_pipeline_of_each_instance() {
    let project = project();
    project.run().done();
    assert_eq!(ids(&project.read("out/eu.ndjson")), [1, 2, 3]);
    assert_eq!(ids(&project.read("out/us.ndjson")), [1, 2, 3, 4, 5]);
    assert_eq!(project.queue("shop-eu/failed").len(), 3);
    let status = project.tidegate(&["status"]).done().stdout;
    assert!(status.contains("shop-eu/work") && status.contains("shop-us/work"), "{status}");
    assert_eq!(project.status("shop-us/work", "shop-us/in")["failed"], 1);
    // Another instance is a new pipeline, and the others go on.
    project.change("shop.toml", "[source.in]", "ch = { most = 1, path = \"eu/in.ndjson\" }\n[source.in]");
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains("+ step shop-ch/work") && !plan.contains("shop-eu"), "{plan}");
    project.change("shop.toml", "most = 5", "most = 6");
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains("~ step shop-us/work") && !plan.contains("shop-eu"), "{plan}");
    project.run().done().says("done: 6 jobs");
    assert_eq!(ids(&project.read("out/ch.ndjson")), [1]);
    project.tidegate(&["errors", "retry", "shop-us/failed", "--yes"]).done();
    project.run().done();
    assert_eq!(ids(&project.read("out/us.ndjson")), [1, 2, 3, 4, 5, 6]);
    project.assert_sound();
}

#[test]
fn the_tests_of_a_file_run_for_each_instance_by_its_name() {
    let tested = project().tidegate(&["test", "."]).failed(1).stdout;
    assert!(tested.contains("ok    shop-eu/work: the bound holds"), "{tested}");
    assert!(tested.contains("FAIL  shop-us/work: the bound holds"), "{tested}");
}

#[test]
fn a_name_may_contain_the_instance() {
    let project = project();
    project.change("shop.toml", "[pipeline]\n", "[pipeline]\nname = \"${each}-shop\"\n");
    project.run().done();
    assert_eq!(project.queue("eu-shop/failed").len(), 3);
}
