//! Tests of sinks: output files that were changed, and standard output.

use std::fs;
use std::process::Command;

use crate::project::{Project, jobs};

fn project(mismatch: &str) -> Project {
    Project::new()
        .file(
            "p.toml",
            format!(
                "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                 [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out/out.ndjson\"\n{mismatch}\n"
            ),
        )
        .file("in.ndjson", jobs(1..=10))
}

const APPEND: &str = "on_mismatch = \"append\"";
const OUT: &str = "out/out.ndjson";

/// A change of an output file with the jobs 1 to 10, and the content of the file after the next run with
/// [`APPEND`].
type Change = (&'static str, fn(&Project), &'static str);
const CHANGES: [Change; 4] = [
    ("appended to", |project| project.append(OUT, "mine\n"), "12345678910mine11"),
    ("cut short", |project| project.write(OUT, jobs(1..=4)), "123411"),
    ("changed", |project| project.write(OUT, project.read(OUT).replace("10", "77")), "1234567897711"),
    ("deleted", |project| fs::remove_file(project.path().join(OUT)).expect("it is there"), "11"),
];

/// The reason in the log why a step stopped.
fn reason(stderr: &str) -> &str {
    let (_, reason) = stderr.split_once("the step stops: ").expect("it is logged");
    reason.lines().next().unwrap_or_default()
}

#[test]
fn an_output_file_that_somebody_changed_is_refused_with_a_way_on() {
    let mut said = Vec::new();
    for (what, change, _) in CHANGES {
        let project = project("");
        project.run().done();
        change(&project);
        let before = fs::read(project.path().join(OUT)).ok();
        project.append("in.ndjson", jobs([11]));
        let outcome = project.run().failed(1);
        assert_eq!(fs::read(project.path().join(OUT)).ok(), before, "{what}: it is left alone");
        said.push(format!("{what}:\n{}", project.stable(reason(&outcome.stderr))));
        // The fix.
        project.write("p.toml", project.read("p.toml") + APPEND);
        project.run().done();
    }
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn an_output_file_that_somebody_changed_is_taken_as_it_is_where_that_is_wanted() {
    for (what, change, expected) in CHANGES {
        let project = project(APPEND);
        project.run().done();
        change(&project);
        project.append("in.ndjson", jobs([11]));
        project.run().done();
        let found = project.read(OUT).replace("{\"id\":", "").replace("}\n", "").replace('\n', "");
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_file_that_was_there_before_is_refused() {
    let project = project("").file(OUT, "mine\n");
    let outcome = project.run().failed(1);
    insta::assert_snapshot!(project.stable(reason(&outcome.stderr)), @r#"sink `p/out` cannot continue in `out/out.ndjson`: it holds 5 bytes that Tidegate did not write; move it away, or accept it with `on_mismatch = "append"` step=p/out"#);
    assert_eq!(project.read(OUT), "mine\n");
}

#[test]
fn a_sink_that_is_given_another_path_begins_anew_there() {
    let project = project("");
    project.run().done();
    project.write("p.toml", project.read("p.toml").replace(OUT, "out/new.ndjson"));
    project.append("in.ndjson", jobs(11..=12));
    project.run().done();
    assert_eq!(project.read(OUT), jobs(1..=10));
    assert_eq!(project.read("out/new.ndjson"), jobs(11..=12));
}

#[test]
fn a_sink_goes_on_in_a_file_that_was_moved_together_with_its_path() {
    let project = project("");
    project.run().done();
    project.write("p.toml", project.read("p.toml").replace(OUT, "out/new.ndjson"));
    fs::rename(project.path().join(OUT), project.path().join("out/new.ndjson")).expect("it is there");
    project.append("in.ndjson", jobs(11..=12));
    project.run().done();
    assert_eq!(project.read("out/new.ndjson"), jobs(1..=12));
}

/// The configuration, its state, its inputs and its outputs.
fn copied(project: &Project) -> Project {
    let copy = Project::new();
    let status = Command::new("cp").arg("-a").arg(project.path().join(".")).arg(copy.path()).status();
    assert!(status.expect("`cp` can be started").success());
    copy
}

#[test]
fn a_folder_that_is_copied_with_its_state_says_how_it_goes_on() {
    let project = project("");
    project.run().done();
    let copy = copied(&project);
    let refused = copy.run().failed(1);
    refused.says(
        "it is a copy of what Tidegate wrote at another path; a copied folder cannot continue elsewhere",
    );
    assert_eq!(copy.read(OUT), jobs(1..=10));
    // The fix of the message.
    for made in [".tidegate", "out"] {
        fs::remove_dir_all(copy.path().join(made)).expect("it is there");
    }
    copy.run().done().says("done: 10 jobs");
    // A moved folder, and one that was moved back, are no copies.
    let moved = Project::new();
    let (from, to) = (project.path().join("folder"), moved.path().join("folder"));
    for file in ["p.toml", "in.ndjson", ".tidegate", "out"] {
        fs::create_dir_all(&from).expect("folders can be made");
        fs::rename(project.path().join(file), from.join(file)).expect("it is there");
    }
    fs::rename(&from, &to).expect("both are on one disk");
    project.tidegate(&["run", &to.display().to_string()]).done().says("nothing to do");
    moved.append("folder/in.ndjson", jobs(11..=11));
    project.tidegate(&["run", &to.display().to_string()]).done().says("done: 1 job");
    let backup = copied(&moved);
    fs::remove_dir_all(&to).expect("it is there");
    fs::rename(backup.path().join("folder"), &to).expect("both are on one disk");
    project.tidegate(&["run", &to.display().to_string()]).done().says("nothing to do");
    assert_eq!(moved.read("folder/out/out.ndjson"), jobs(1..=11));
}

#[test]
fn one_sink_that_cannot_be_used_does_not_keep_the_others_from_their_jobs() {
    let project = project("").file(OUT, "a stranger's\n").file(
        "q.toml",
        "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
         [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out/good.ndjson\"\n",
    );
    project.run().failed(1).says("p/out stopped: ");
    assert_eq!(project.read(OUT), "a stranger's\n");
    assert_eq!(project.read("out/good.ndjson"), jobs(1..=10));
}

#[test]
fn jobs_go_to_standard_output_and_everything_else_to_standard_error() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"stdout\"\n",
        )
        .file("in.ndjson", jobs(1..=5000));
    let outcome = project.run().done().says("done: 5,000 jobs");
    assert_eq!(outcome.stdout, jobs(1..=5000));
    assert_eq!(project.run().done().stdout, "");
}

#[test]
fn a_reader_of_standard_output_that_goes_away_ends_the_run_with_a_reason() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"stdout\"\n",
        )
        .file("in.ndjson", jobs(1..=200_000));
    let mut command = project.command(&["run", "."]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the executable can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it can be waited for");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("standard output was closed by the program that read it"), "{stderr}");
}
