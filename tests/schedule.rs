//! Tests of schedules in the real executable: each tick occurs once and in order, across kills.

use serde_json::Value;

use crate::project::Project;

const EVERY: i64 = 50;

fn project(missed: &str) -> Project {
    let toml = format!(
        "[source.tick]\ntype = \"schedule\"\nevery = \"{EVERY}ms\"\nmissed = \"{missed}\"\npayload = {{ beat = 1 }}\n\
         [step.pass]\nfrom = \"tick\"\nto = \"out\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
    );
    Project::new().file("p.toml", toml)
}

/// The due times of the ticks in the output, in milliseconds.
fn dues(project: &Project) -> Vec<i64> {
    let due = |line: &str| {
        let job: Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!(job["beat"], 1);
        let due: jiff::Timestamp = job["due"].as_str().and_then(|due| due.parse().ok()).expect("a time");
        due.as_millisecond()
    };
    project.read_if_there("out.ndjson").lines().map(due).collect()
}

/// The ticks of several runs that are killed, and a last one that is stopped.
fn ticks_over_kills(missed: &str) -> Vec<i64> {
    let project = project(missed);
    let lines = || project.read_if_there("out.ndjson").lines().count();
    for run in 0..5 {
        let wanted = lines() + 3;
        let mut running = project.start(&["run", "."]);
        running.wait_until("ticks", || lines() >= wanted);
        if run < 4 {
            assert!(running.kill(), "it ended by itself");
        } else {
            running.stop().done();
        }
    }
    project.assert_sound();
    // Ticks in flight at the stop are delivered now; newer ones may wait.
    let waiting = project.status("p/pass", "p/tick")["waiting"].as_u64().expect("a number");
    let before = dues(&project).len() as u64;
    project.tidegate(&["run", "--until-idle", "."]).done();
    assert!(dues(&project).len() as u64 >= before + waiting);
    dues(&project)
}

#[test]
fn every_tick_comes_once_and_in_order_over_kills() {
    let dues = ticks_over_kills("all");
    assert_eq!(dues[0] % EVERY, 0);
    let gap = dues.windows(2).find(|pair| pair[1] - pair[0] != EVERY);
    assert_eq!(gap, None, "{dues:?}");
}

#[test]
fn a_schedule_that_changes_while_the_runner_runs_has_no_ticks_from_before() {
    let project = project("all");
    let often = project.read("p.toml");
    // The last tick is long ago.
    project.write("p.toml", often.replace("every = \"50ms\"", "every = \"24h\""));
    let mut running = project.started_with(&["--no-watch"]);
    running.wait_until("the start is recorded", || project.is_answered());
    for _ in 0..30 {
        project.tidegate(&["status"]).done();
    }
    let changed = jiff::Timestamp::now().as_millisecond();
    project.write("p.toml", &often);
    project.tidegate(&["reload", "."]).done();
    running.wait_until("ticks", || dues(&project).len() > 2);
    running.stop().done();
    let dues = dues(&project);
    assert!(dues[0] >= changed, "{dues:?} {changed}");
    assert!(dues.windows(2).all(|pair| pair[1] - pair[0] == EVERY), "{dues:?}");
}

#[test]
fn no_tick_comes_twice_where_missed_ones_are_left_out() {
    for missed in ["skip", "once"] {
        let dues = ticks_over_kills(missed);
        assert!(dues.iter().all(|due| due % EVERY == 0), "{missed}: {dues:?}");
        assert!(dues.is_sorted_by(|one, next| one < next), "{missed}: {dues:?}");
    }
}

#[test]
fn an_idle_run_delivers_what_was_missed_and_ends() {
    let project = project("once");
    // Eventually a tick is due between two runs.
    while project.len("out.ndjson") == 0 {
        project.tidegate(&["run", "--until-idle", "."]).done();
    }
    let dues = dues(&project);
    assert!(dues.is_sorted_by(|one, next| one < next), "{dues:?}");
}

#[test]
fn status_queues_and_graph_know_a_schedule() {
    let project = project("all");
    project.tidegate_given(&["queue", "push", "p/tick"], "{\"beat\":1}\n").done();
    assert_eq!(project.status("p/pass", "p/tick")["waiting"], 1);
    let queues = project.json(&["queue", "list"]);
    assert_eq!((&queues[0]["queue"], &queues[0]["jobs"]), (&"p/tick".into(), &1.into()));
    insta::assert_snapshot!(project.tidegate(&["graph", "."]).done().stdout, @"
    ▶  tick  schedule source
    ◆  pass  step
    ■  out   file sink
    ");
}
