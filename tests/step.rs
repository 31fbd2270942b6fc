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

/// As `project`, with lanes and without jobs.
fn with_lanes(queuer: &str) -> Project {
    with_lanes_of(&format!("queuer = {{ {queuer}, lane = \"pool\" }}\n"))
}

fn with_lanes_of(queuer: &str) -> Project {
    let project = Project::new()
        .file("p.toml", [PIPELINE, queuer].concat())
        .file("work.rhai", "fn process(job) { job }")
        .file("in.ndjson", "");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project
}

fn in_pools(jobs: &[(u64, &str)]) -> String {
    jobs.iter().flat_map(|(id, pool)| [format!("{{\"id\":{id},\"pool\":\"{pool}\"}}"), "\n".into()]).collect()
}

#[test]
fn a_paused_lane_takes_no_more_jobs_and_the_others_go_on() {
    let queuers = [
        "strategy = \"fifo\"",
        "strategy = \"fifo\", ordered = true",
        "strategy = \"one-round-serial\"",
        "strategy = \"one-round-parallel\", writes = \"pool\"",
        "strategy = \"priority\", priority = \"id\"",
        "strategy = \"rounds\"",
    ];
    for queuer in queuers {
        let project = with_lanes(queuer);
        let paused = project.tidegate(&["step", "pause", "p/work", "--lane", "a"]).done().stdout;
        assert_eq!(
            paused,
            "lane `a` of `p/work` is paused: it starts nothing until `tidegate step resume p/work --lane a`\n"
        );
        project.append("in.ndjson", in_pools(&[(1, "b"), (2, "a"), (3, "b"), (4, "c")]));
        let run = project.tidegate(&["run", ".", "--until-idle"]).done();
        run.says("lane `a` is paused: `tidegate step resume p/work --lane a` resumes it");
        let ordered = queuer.contains("ordered");
        let mut done = ids(&project.read("out.ndjson"));
        done.sort_unstable();
        // Results behind the job of the paused lane wait for it.
        assert_eq!(done, if ordered { vec![1] } else { vec![1, 3, 4] }, "{queuer}");
        let shown = project.tidegate(&["job", "show", "p/jobs/2"]).done().stdout;
        assert!(
            shown.contains("its lane `a` is paused until `tidegate step resume p/work --lane a`"),
            "{shown}"
        );
        assert!(project.tidegate(&["status"]).done().stdout.contains("lane `a` is paused since "));
        let held = project.status("p/work", "p/jobs")["held_lanes"].clone();
        assert_eq!((&held[0]["lane"], &held[1]), (&"a".into(), &serde_json::Value::Null), "{held}");

        let mut running = project.started();
        let again = project.tidegate(&["step", "pause", "p/work", "--lane", "a"]).done().stdout;
        assert_eq!(again, "lane `a` of `p/work` is already held\n");
        let paused = project.tidegate(&["step", "pause", "p/work", "--lane", "c d"]).done().stdout;
        assert!(paused.ends_with("--lane 'c d'`\n"), "{paused}");
        project.append("in.ndjson", in_pools(&[(5, "c d"), (6, "b")]));
        let resumed = project.tidegate(&["step", "resume", "p/work", "--lane", "a"]).done().stdout;
        assert_eq!(resumed, "lane `a` of `p/work` resumes\n");
        let count = if ordered { 4 } else { 5 };
        running.wait_until("the others", || project.read("out.ndjson").lines().count() == count);
        project.tidegate(&["step", "resume", "p/work", "--lane", "c d"]).done();
        running.wait_until("all", || project.read("out.ndjson").lines().count() == 6);
        let again = project.tidegate(&["step", "resume", "p/work", "--lane", "a"]).done().stdout;
        assert_eq!(again, "lane `a` of `p/work` is not paused\n");
        running.stop().done();
        project.assert_sound();
    }
}

#[test]
fn a_paused_lane_moves_with_its_step_and_with_the_store() {
    let project = with_lanes("strategy = \"fifo\"");
    project.tidegate(&["step", "pause", "p/work", "--lane", "a"]).done();
    project.change("p.toml", "[step.work]\n", "[step.labour]\nwas = \"work\"\n");
    project.append("in.ndjson", in_pools(&[(1, "a"), (2, "b")]));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(ids(&project.read("out.ndjson")), [2]);
    project.tidegate(&["store", "export", "all.ndjson"]).done();
    project.tidegate(&["store", "import", "all.ndjson", "--data", "other"]).done();
    let status = project.tidegate(&["status", "--data", "other"]).done().stdout;
    assert!(status.contains("lane `a` is paused"), "{status}");
}

#[test]
fn a_step_without_lanes_or_without_an_order_for_each_has_none_to_pause() {
    for queuer in ["", "queuer = { strategy = \"serial\", lane = \"pool\" }\n"] {
        let project = with_lanes_of(queuer);
        let refused = project.tidegate(&["step", "pause", "p/work", "--lane", "a"]).failed(1);
        refused.says("step `p/work` has no lanes that can be paused: its queuer needs `lane`, and another strategy than `serial`");
    }
    let project = project("");
    project
        .tidegate(&["step", "pause", "p/work", "--monitor"])
        .failed(1)
        .says("step `p/work` has no monitor");
}
