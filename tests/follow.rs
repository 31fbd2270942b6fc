//! Tests of followed sources: appended lines arrive, across rotation and truncation.

use std::fs;

use crate::project::{Project, ids, jobs};
use crate::running::Running;

fn following() -> Project {
    Project::new().file(
        "p.toml",
        "[pipeline]\nerrors = \"failed\"\n\
         [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
         [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n",
    )
}

/// Waits until exactly these jobs are in the output.
fn wait_for(project: &Project, running: &mut Running, last: u64) {
    let path = project.path().join("out.ndjson");
    let is_there = || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        // A line may be half written at this moment.
        text.ends_with('\n') && ids(&text).last() == Some(&last)
    };
    running.wait_until(&format!("job {last}"), is_there);
    assert_eq!(ids(&project.read("out.ndjson")), (1..=last).collect::<Vec<_>>());
}

#[test]
fn lines_that_are_appended_arrive() {
    let project = following().file("in.ndjson", jobs(1..=3));
    let mut running = project.start(&["run", "."]);
    wait_for(&project, &mut running, 3);
    for last in [4, 5, 6] {
        project.append("in.ndjson", jobs([last]));
        wait_for(&project, &mut running, last);
    }
    // Half a line is no job yet.
    project.append("in.ndjson", "{\"id\":");
    project.append("in.ndjson", "7}\n{\"id\":8");
    wait_for(&project, &mut running, 7);
    project.append("in.ndjson", "}\n");
    wait_for(&project, &mut running, 8);
    running.stop().done().says("stopped: 8 jobs");
}

#[test]
fn a_file_that_is_not_there_yet_is_waited_for() {
    let project = following();
    let mut running = project.start(&["run", "."]);
    running.wait_until("its socket", || project.is_answered());
    project.write("in.ndjson", jobs(1..=2));
    wait_for(&project, &mut running, 2);
    running.stop().done();
}

#[test]
fn a_file_that_is_rotated_loses_nothing() {
    let project = following().file("in.ndjson", jobs(1..=3));
    let mut running = project.start(&["run", "."]);
    wait_for(&project, &mut running, 3);
    project.append("in.ndjson", jobs([4]));
    fs::rename(project.path().join("in.ndjson"), project.path().join("in.ndjson.1")).expect("renamed");
    // Another program still has the old file open.
    project.append("in.ndjson.1", jobs([5]));
    wait_for(&project, &mut running, 5);
    project.write("in.ndjson", jobs(6..=9));
    wait_for(&project, &mut running, 9);
    running.stop().done();
    // Also between two runs.
    project.append("in.ndjson", jobs([10]));
    fs::rename(project.path().join("in.ndjson"), project.path().join("in.ndjson.2")).expect("renamed");
    project.write("in.ndjson", jobs(11..=12));
    let mut running = project.start(&["run", "."]);
    wait_for(&project, &mut running, 12);
    running.stop().done();
}

#[test]
fn a_file_that_is_truncated_is_begun_anew() {
    let project = following().file("in.ndjson", jobs(1..=50));
    let mut running = project.start(&["run", "."]);
    wait_for(&project, &mut running, 50);
    project.write("in.ndjson", jobs(51..=52));
    wait_for(&project, &mut running, 52);
    project.append("in.ndjson", jobs([53]));
    wait_for(&project, &mut running, 53);
    running.stop().done();
}

#[test]
fn until_idle_ends_when_there_is_nothing_now() {
    let project = following().file("in.ndjson", jobs(1..=3000));
    project.tidegate(&["run", ".", "--until-idle"]).done().says("done: 3,000 jobs");
    project.tidegate(&["run", ".", "--until-idle"]).done().says("nothing to do");
    project.append("in.ndjson", jobs([3001]));
    project.tidegate(&["run", ".", "--until-idle"]).done().says("done: 1 job");
    assert_eq!(project.read("out.ndjson"), jobs(1..=3001));
}

#[test]
fn a_file_that_was_replaced_is_told_from_one_that_grew() {
    // Short when it was first read, long when it was replaced: only the beginning distinguishes them.
    let first = "{\"start\":1}\n".to_owned();
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("in.ndjson", &first);
    let until_idle = ["run", ".", "--until-idle"];
    project.tidegate(&until_idle).done();
    project.append("in.ndjson", jobs(1..=200));
    project.tidegate(&until_idle).done();
    let fresh = format!("{first}{}", jobs(1000..=1999));
    project.write("in.ndjson", &fresh);
    project.tidegate(&until_idle).done();
    assert_eq!(project.read("out.ndjson"), format!("{first}{}{fresh}", jobs(1..=200)));
}
