//! Sinks whose files change hands: no committed line is cut off.

use super::{mark, marking, version_of, wait_for};
use crate::project::{Project, ids, jobs};
use crate::running::Running;

const APPEND: &str = "on_mismatch = \"append\"\n";

/// The same pipeline, whose sink has another name and the same file.
fn with_other_sink(text: &str) -> String {
    text.replace("to = \"out\"", "to = \"lines\"").replace("[sink.out]", "[sink.lines]")
}

/// A pipeline whose sink accepts other lines.
fn accepting() -> (Project, String) {
    let project = marking();
    let text = project.read("p.toml").replace("[sink.out]\n", &format!("[sink.out]\n{APPEND}"));
    project.write("p.toml", &text);
    (project, text)
}

/// A runner whose sink has written a job, and whose sink of another name has written the next one to the same file. With
/// the text of the first configuration.
fn handed_over() -> (Project, String, Running) {
    let (project, text) = accepting();
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.write("p.toml", with_other_sink(&text));
    project.tidegate(&["reload", "."]).done();
    version_of(&project, &mut running, 2);
    (project, text, running)
}

#[test]
fn a_sink_that_returns_to_its_file_keeps_the_lines_of_another_sink() {
    for way in ["rollback", "reload", "stop", "kill"] {
        let (project, text, mut running) = handed_over();
        if way == "rollback" {
            project.tidegate(&["rollback", "--yes"]).done();
        } else {
            project.write("p.toml", &text);
        }
        running = match way {
            "reload" => {
                project.tidegate(&["reload", "."]).done();
                running
            }
            "stop" => {
                running.stop().done();
                project.started_with(&["--no-watch"])
            }
            "kill" => {
                assert!(running.kill());
                project.started_with(&["--no-watch"])
            }
            _ => running,
        };
        version_of(&project, &mut running, 3);
        running.stop().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3], "{way}");
    }
}

#[test]
fn a_sink_that_accepts_no_other_lines_names_the_sink_that_wrote_them_and_cuts_nothing_off() {
    let project = marking();
    let text = project.read("p.toml");
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    let other = with_other_sink(&text).replace("[sink.lines]\n", &format!("[sink.lines]\n{APPEND}"));
    project.write("p.toml", other);
    project.tidegate(&["reload", "."]).done();
    version_of(&project, &mut running, 2);
    for kills in [false, true] {
        if kills {
            assert!(running.kill());
        } else {
            running.stop().done();
        }
        project.write("p.toml", &text);
        running = project.started_with(&["--no-watch"]);
        running.wait_until_it_says("it has the lines of sink `p/lines`; write to another path");
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
    }
    running.stop().failed(1);
}

#[test]
fn lines_of_another_program_in_a_file_that_a_sink_had_left_are_kept() {
    let (project, text) = accepting();
    let elsewhere = text.replace("path = \"out.ndjson\"", "path = \"other.ndjson\"");
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, "out.ndjson", 1);
    project.write("p.toml", elsewhere);
    project.tidegate(&["reload", "."]).done();
    project.append("out.ndjson", jobs([70]));
    project.write("p.toml", text.replace(APPEND, ""));
    let refused = project.tidegate(&["reload", "."]).failed(1);
    assert!(refused.stderr.contains("it was extended by another program"), "{}", refused.stderr);
    project.write("mark.rhai", mark(2));
    project.write("p.toml", &text);
    project.tidegate(&["reload", "."]).done();
    assert_eq!(version_of(&project, &mut running, 2), 2);
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 70, 2]);
}

/// The sink of the other name has begun to write and committed nothing when the runner dies.
#[test]
fn lines_that_a_sink_did_not_commit_to_the_file_of_another_one_are_cut_off_by_both() {
    for returns in [false, true] {
        // The first write is announced by a commit of its own.
        let (project, text, mut running) = handed_over();
        assert!(running.kill());
        project.append("out.ndjson", "{\"id\":7");
        if returns {
            project.write("p.toml", &text);
        }
        running = project.started_with(&["--no-watch"]);
        version_of(&project, &mut running, 3);
        running.stop().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3], "returns: {returns}");
    }
}
