//! Tests of the values that steps share: `config` of a pipeline and of the runner.

use crate::project::{Project, jobs};

const SCRIPT: &str = "fn process(job, ctx) { ctx.config }";

fn project() -> Project {
    Project::pipeline(
        "[pipeline]\nconfig = { vat = 0.2, unit = \"pipeline\", bank = { name = \"south\" } }\n\
         [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\nconfig = { unit = \"step\" }\n",
    )
    .file(
        "tidegate.toml",
        "[runner.config]\nvat = 0.1\nunit = \"runner\"\nregion = \"eu\"\nbank = { name = \"north\", hours = 8 }\n",
    )
    .file("work.rhai", SCRIPT)
    .file("in.ndjson", jobs(1..=1))
}

#[test]
fn the_keys_of_a_step_win_over_those_of_its_pipeline_and_these_over_those_of_the_runner() {
    let project = project();
    project.run().done();
    let seen: serde_json::Value = serde_json::from_str(&project.read("out.ndjson")).expect("it is JSON");
    let merged =
        serde_json::json!({ "vat": 0.2, "unit": "step", "region": "eu", "bank": { "name": "south" } });
    assert_eq!(seen, merged);
}

#[test]
fn a_changed_value_of_the_runner_changes_the_steps_that_see_it() {
    let project = project();
    project.change(
        "p.toml",
        "[sink.out]",
        "[step.own]\nfrom = \"in\"\nrun = \"work.rhai\"\nconfig = { region = \"us\" }\n\
         [step.plain]\nfrom = \"in\"\n[sink.out]",
    );
    project.run().done();
    project.change("tidegate.toml", "\"eu\"", "\"asia\"");
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains("p/work") && plan.contains("config.region"), "{plan}");
    assert!(!plan.contains("p/own") && !plan.contains("p/plain") && !plan.contains("runner"), "{plan}");
}

#[test]
fn gates_see_shared_values_and_those_of_all_pipelines_the_runners_alone() {
    let project = project();
    for (gate, declared) in [("own", "p.toml"), ("common", "tidegate.toml")] {
        let table = format!("\n[gate.{gate}]\nrun = \"{gate}.rhai\"\nevery = \"1h\"\n");
        project.write(declared, project.read(declared) + table.as_str());
        let step = format!(
            "[queue.{gate}]\nretain = \"forever\"\n\
             [step.{gate}]\nfrom = \"in\"\nto = \"{gate}\"\ngate = \"{gate}\"\n[step.work]"
        );
        project.change("p.toml", "[step.work]", &step);
    }
    project
        .write("own.rhai", "fn open(answer, ctx) { ctx.config.vat == 0.2 && ctx.config.region == \"eu\" }");
    project.write("common.rhai", "fn open(answer, ctx) { ctx.config.vat == 0.1 }");
    project.run().done();
    assert_eq!((project.queue("p/own").len(), project.queue("p/common").len()), (1, 1));
}

#[test]
fn a_shared_secret_is_not_shown() {
    let project = project().file("token", "swordfish");
    project.change("tidegate.toml", "\"eu\"", "\"${file:token}\"");
    project.write("work.rhai", "fn process(job, ctx) { throw `no entry with ${ctx.config.region}` }");
    let ended = project.run().failed(1);
    assert!(!ended.stderr.contains("swordfish"), "{}", ended.stderr);
    ended.says("no entry with …");
}
