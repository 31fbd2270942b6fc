//! Tests of `tidegate step`: paused steps start no jobs until they are resumed.

use crate::project::{Project, ids, jobs};

const PIPELINE: &str = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                        [step.give]\nfrom = \"in\"\nto = \"jobs\"\n\
                        [sink.out]\nfrom = \"done\"\ntype = \"file\"\npath = \"out.ndjson\"\n\
                        [step.work]\nfrom = \"jobs\"\nrun = \"work.rhai\"\nto = \"done\"\n";

fn project(way: &str) -> Project {
    let project = Project::new()
        .file("p.toml", [PIPELINE, way].concat())
        .file("work.rhai", "fn process(job) { job }")
        .file("in.ndjson", jobs(1..=2));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
    project
}

#[test]
fn a_paused_step_starts_nothing_until_it_is_resumed() {
    for way in ["", "queuer = { strategy = \"fifo\" }\n"] {
        let project = project(way);
        let paused = project.tidegate(&["step", "pause", "p/work"]).done().stdout;
        assert_eq!(paused, "`p/work` is paused: it starts nothing until `tidegate step resume p/work`\n");
        let again = project.tidegate(&["step", "pause", "p/work"]).done().stdout;
        assert_eq!(again, "`p/work` is already paused\n");
        project.append("in.ndjson", jobs(3..=4));
        let run = project.tidegate(&["run", ".", "--until-idle"]).done();
        run.says("the step is paused")
            .says("\np/work: 2 waiting, paused: `tidegate step resume p/work` resumes it\n");
        let idle = project.tidegate(&["run", ".", "--until-idle"]).done();
        idle.says("nothing to do now: 2 waiting\n");
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
        let status = project.tidegate(&["status"]).done().stdout;
        assert!(status.contains("paused since "), "{status}");
        assert_eq!(project.status("p/work", "p/jobs")["waiting"], 2);
        let mut running = project.started();
        let resumed = project.tidegate(&["step", "resume", "p/work"]).done().stdout;
        assert_eq!(resumed, "`p/work` resumes\n");
        running.wait_until("the output", || ids(&project.read("out.ndjson")) == [1, 2, 3, 4]);
        project.tidegate(&["step", "pause", "p/work"]).done();
        project.append("in.ndjson", jobs(5..=5));
        running.wait_until("the job", || project.status("p/work", "p/jobs")["waiting"] == 1);
        running.stop().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4]);
        let resumed = project.tidegate(&["step", "resume", "p/work"]).done().stdout;
        assert_eq!(resumed, "`p/work` resumes with the next `tidegate run`\n");
        project.tidegate(&["run", ".", "--until-idle"]).done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4, 5]);
        project.assert_sound();
    }
}

#[test]
fn a_pause_moves_with_the_store() {
    let project = project("");
    project.tidegate(&["step", "pause", "p/work"]).done();
    project.tidegate(&["store", "export", "all.ndjson"]).done();
    project.tidegate(&["store", "import", "all.ndjson", "--data", "other"]).done();
    let status = project.json(&["status", "--data", "other"]);
    assert!(status["steps"][1]["paused"].is_string(), "{status}");
}

#[test]
fn only_steps_can_be_paused() {
    let project = project("");
    project.tidegate(&["step", "pause", "p/jobs"]).failed(1).says("the configuration has no step `p/jobs`");
    project.tidegate(&["step", "pause", "work"]).failed(64).says("write PIPELINE/STEP");
    assert_eq!(project.tidegate(&["step", "resume", "p/work"]).done().stdout, "`p/work` is not paused\n");
}
