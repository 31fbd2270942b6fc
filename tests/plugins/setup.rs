//! Tests of failing setups: a plugin cannot be set up, at first or after it has run.

use super::errors;
use crate::project::{Project, ids, jobs};

/// A step of `plugin` that needs the file `there`. A step with effects processes its jobs one by one.
fn needy(plugin: &str, more: &str) -> Project {
    let queuer = if plugin == "flaky" { "queuer = { strategy = \"serial\" }\n" } else { "" };
    let project = Project::pipeline("").file("tidegate.toml", tidegate_toml());
    let (there, toml) = (project.path().join("there"), project.read("p.toml"));
    let step = format!(
        "[pipeline]\nerrors = \"failed\"\n{toml}\n[step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"plugin:{plugin}\"\n\
         retry = {{ backoff = \"list\", delays = [\"10ms\"], on = [\"timeout\"] }}\n{queuer}{more}\n\
         [step.work.config]\nneeds = \"{}\"\n",
        there.display()
    );
    project.write("p.toml", step);
    project
}

const HELD: &str = "the step is held back, and its setup is retried in ";

#[test]
fn a_plugin_that_cannot_be_made_again_holds_its_step_back_and_fails_no_other_job() {
    let cases = [
        ("flaky", "none", "panic_for_good"),
        ("flaky", "process", "abort_for_good"),
        ("flaky/calm", "none", "panic_for_good"),
        ("flaky/calm", "process", "panic_for_good"),
    ];
    for (plugin, isolate, act) in cases {
        let ends = format!("{{\"id\":3,\"do\":\"{act}\"}}\n");
        let project = needy(plugin, &format!("isolate = \"{isolate}\"\ncrash_limit = 1"))
            // Another worker may have an older instance, and use it.
            .file("tidegate.toml", tidegate_toml() + "workers = 1\n")
            .file("there", "")
            .file("in.ndjson", jobs(1..=2) + ends.as_str() + jobs(4..=900).as_str());
        let mut running = project.started();
        running.wait_until_it_says(HELD);
        // The setup is retried between two checks, and succeeds for a moment.
        let why = format!("plugin `{plugin}` while it was set up: the file that it needs is missing");
        running.wait_until("the reason in `status`", || {
            let closed = &project.status("p/work", "p/in")["closed"];
            closed["by"] == "setup" && closed["why"] == why.as_str()
        });
        running.wait_until("the reason in text", || {
            project.tidegate(&["status"]).done().stdout.contains("cannot be set up since")
        });
        project.write("there", "");
        let ended = running.outcome().done().says("the step resumes");
        // Each thread may detect it separately.
        assert!(ended.stderr.matches("the step is held back").count() <= 4, "{}", ended.stderr);
        let mut out = ids(&project.read("out.ndjson"));
        out.sort_unstable();
        assert_eq!(out, (1..=900).filter(|id| *id != 3).collect::<Vec<_>>(), "{isolate} {act} {plugin}");
        assert_eq!(errors(&project).len(), 1, "{isolate} {act} {plugin}");
    }
}

#[test]
fn deaths_of_a_job_are_counted_together_over_workers_and_over_failures_to_make_the_plugin_again() {
    let ends = "{\"id\":3,\"do\":\"abort_for_good\"}\n{\"id\":4,\"do\":\"abort_for_good\"}\n";
    let project = needy("flaky/calm", "isolate = \"process\"\ncrash_limit = 3")
        .file("there", "")
        .file("in.ndjson", jobs(1..=2) + ends + jobs(5..=900).as_str());
    project.change("p.toml", "needs = ", "without = \"gate_closed_once\"\nneeds = ");
    let ended = project.run().done().says(HELD);
    for death in ["(death 1 of at most 3)", "(death 2 of at most 3)"] {
        assert_eq!(ended.stderr.matches(death).count(), 2, "{}", ended.stderr);
    }
    let why = "crashed: plugin `flaky/calm`: its process was ended by signal 6 (SIGABRT), 3 times in a row";
    assert_eq!(errors(&project), [why; 2]);
    let mut out = ids(&project.read("out.ndjson"));
    out.sort_unstable();
    assert_eq!(out, (1..=900).filter(|id| ![3, 4].contains(id)).collect::<Vec<_>>());
}

#[test]
fn a_plugin_may_be_started_before_what_it_needs() {
    let cases = [
        ("flaky", "none", "gate_closed", "gate = \"open\""),
        ("flaky", "process", "retry", ""),
        ("flaky/calm", "none", "retry", ""),
        ("flaky/calm", "process", "retry_in", ""),
    ];
    for (plugin, isolate, without, gate) in cases {
        let open = "[gate.open]\nrun = \"open.rhai\"\nevery = \"10ms\"\n";
        let project = needy(plugin, &format!("isolate = \"{isolate}\"\n{gate}"))
            .file("tidegate.toml", tidegate_toml() + open)
            .file("open.rhai", "fn open(answer) { true }")
            .file("in.ndjson", jobs(1..=3));
        project.change("p.toml", "needs = ", &format!("without = \"{without}\"\nneeds = "));
        let mut running = project.started();
        running.wait_until_it_says("the file that it needs is missing");
        project.write("there", "");
        running.outcome().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3], "{plugin} {isolate} {without}");
        assert!(errors(&project).is_empty(), "{plugin} {isolate} {without}");
    }
}

#[test]
fn a_plugin_that_could_never_be_made_stops_its_step() {
    for (plugin, isolate) in [("flaky", "process"), ("flaky/calm", "none")] {
        let project = needy(plugin, &format!("isolate = \"{isolate}\"\n")).file("in.ndjson", jobs(1..=3));
        let why = format!(
            "): plugin `{plugin}` while it was set up: the file that it needs is missing; progress stays"
        );
        project.run().failed(1).says(&why);
        assert!(errors(&project).is_empty());
        project.write("there", "");
        project.run().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3], "{isolate} {plugin}");
    }
}

#[test]
fn a_step_that_is_held_back_ends_when_it_is_stopped_and_keeps_its_jobs() {
    let project = needy("flaky/calm", "").file("in.ndjson", jobs(1..=5));
    project.change("p.toml", "needs = ", "without = \"retry\"\nneeds = ");
    let mut running = project.started();
    running.wait_until_it_says(HELD);
    running.terminate();
    running.outcome().done();
    project.tidegate(&["run", ".", "--until-idle"]).done().says("held until it can be set up: plugin `");
    project.write("there", "");
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4, 5]);
}

fn tidegate_toml() -> String {
    format!("[runner]\nplugins = \"{}\"\n", super::folder().display())
}
