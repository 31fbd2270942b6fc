//! Changed configurations: tests of a change between a crash and the next run.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::printing::{PADDING, numbered, print_and_kill, print_to_the_end};
use crate::project::{Project, ids, jobs, whole_lines};

const SOURCES: &str = "[source.a]\ntype = \"file\"\npath = \"a.ndjson\"\nformat = \"ndjson\"\n\
     [source.b]\ntype = \"file\"\npath = \"b.ndjson\"\nformat = \"ndjson\"\n\
     [sink.out]\ntype = \"stdout\"\n";
const JOBS: u64 = 500;

/// A step that prints its input and its delivery hash.
fn printer(takes: &str) -> Project {
    let step = format!("[step.print]\n{takes}\nrun = \"print.rhai\"\nto = \"out\"\n");
    Project::new()
        .file("p.toml", [SOURCES, &step].concat())
        .file("print.rhai", script(1))
        .file("a.ndjson", numbered(1..=JOBS))
        .file("b.ndjson", numbered(10_001..=10_000 + JOBS))
}

fn script(version: u32) -> String {
    format!(
        "fn process(job, ctx) {{\n    let given = job.get(\"b\") ?? job.get(\"a\") ?? job;\n    #{{ id: given.id, hash: ctx.hash, version: {version}, padding: given.padding }}\n}}"
    )
}

fn lines(printed: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    whole_lines(printed).lines().map(parse).collect()
}

/// The output of a run of a first version that is killed after `bytes` bytes, and of a run of the second. The
/// second one continues from the store, and its output is all that it printed.
fn killed_and_changed(project: &Project, bytes: usize) -> (Vec<Value>, Vec<Value>) {
    let before = lines(&print_and_kill(project, bytes));
    assert!(project.snapshots() > 0);
    project.write("print.rhai", script(2));
    let after = lines(&print_to_the_end(project));
    assert_eq!(project.snapshots(), 0);
    project.assert_sound();

    let begins = after.first().expect("something was left to do");
    let at = before.iter().position(|line| line["id"] == begins["id"]).unwrap_or(before.len());
    for (old, new) in before[at..].iter().zip(&after) {
        assert_eq!((&old["id"], &old["hash"]), (&new["id"], &new["hash"]), "the same again");
        assert_eq!((&old["version"], &new["version"]), (&1.into(), &2.into()));
    }
    (before[..at].to_vec(), after)
}

#[test]
fn changed_code_completes_what_older_code_has_begun_under_the_same_hashes() {
    let project = printer("from = \"a\"");
    let (before, after) = killed_and_changed(&project, 1);
    // No commit happened: the first batch is larger than a pipe.
    assert!(before.is_empty());
    let numbers: Vec<u64> = after.iter().filter_map(|line| line["id"].as_u64()).collect();
    assert_eq!(numbers, (1..=JOBS).collect::<Vec<_>>());
}

#[test]
fn alternatives_are_taken_again_in_the_order_in_which_they_were() {
    let project = printer("alts = { a = \"a\", b = \"b\" }");
    let (before, after) = killed_and_changed(&project, 400 * PADDING);
    let mut hashes = BTreeMap::new();
    for line in before.iter().chain(&after) {
        let id = line["id"].as_u64().expect("a number");
        assert!(hashes.insert(id, line["hash"].clone()).is_none(), "{id} was delivered twice");
    }
    assert!(hashes.keys().copied().eq((1..=JOBS).chain(10_001..=10_000 + JOBS)));
}

#[test]
fn a_join_is_made_of_the_same_jobs_again() {
    let project = printer("join = { a = \"a\", b = \"b\" }");
    let (before, after) = killed_and_changed(&project, 200 * PADDING);
    let numbers: Vec<u64> = before.iter().chain(&after).filter_map(|line| line["id"].as_u64()).collect();
    assert_eq!(numbers, (10_001..=10_000 + JOBS).collect::<Vec<_>>());
}

#[test]
fn a_step_that_is_renamed_is_told_where_its_progress_went_and_begins_with_the_oldest_job() {
    let project =
        Project::pipeline("[step.old]\nfrom = \"in\"\nto = \"out\"\n").file("in.ndjson", jobs(1..=10));
    project.run().done();
    let old = project.read("p.toml");
    project.write("p.toml", old.replace("step.old", "step.young"));
    let outcome = project.run().done().says("done: 10 jobs");
    let warning = outcome.stderr.lines().find(|line| line.contains("p/old")).expect("the warning is there");
    for said in
        ["no step of the configuration claims this progress; it is kept", "input=p/in", "watermark=10"]
    {
        assert!(warning.contains(said), "{warning}");
    }
    assert_eq!(ids(&project.read("out.ndjson")), (1..=10).chain(1..=10).collect::<Vec<_>>());
    assert_eq!(project.status("p/old", "p/in")["configured"], false);

    // It was kept.
    project.write("p.toml", old);
    project.append("in.ndjson", jobs([11]));
    project.run().done().says("done: 1 job");
}

#[test]
fn a_step_that_is_renamed_in_the_middle_of_something_completes_it_when_it_comes_back() {
    let project = printer("from = \"a\"");
    let before = lines(&print_and_kill(&project, 1));
    let snapshots = project.snapshots();
    let with_step = project.read("p.toml");
    project.write(
        "p.toml",
        with_step.replace("step.print", "step.other").replace("from = \"a\"", "from = \"b\""),
    );
    let outcome = project.run().done();
    let warning =
        outcome.stderr.lines().find(|line| line.contains("step=p/print")).expect("the warning is there");
    for said in
        ["the step is not in the configuration", "p/a from 1", "the attempt is repeated if the step returns"]
    {
        assert!(warning.contains(said), "{warning}");
    }
    assert_eq!(project.snapshots(), snapshots, "it is kept");

    project.write("p.toml", with_step);
    let after = lines(&print_to_the_end(&project));
    assert_eq!(before[..], after[..before.len()]);
    assert_eq!(after.len() as u64, JOBS);
    assert_eq!(project.snapshots(), 0);
}

#[test]
fn a_step_that_takes_from_elsewhere_in_the_middle_of_something_says_what_cannot_be_completed() {
    let project = printer("from = \"a\"");
    print_and_kill(&project, 1);
    project.write("p.toml", project.read("p.toml").replace("from = \"a\"", "from = \"b\""));
    let outcome = project.run().done();
    let warning =
        outcome.stderr.lines().find(|line| line.contains("interrupted")).expect("the warning is there");
    for said in ["step=p/print", "it no longer reads `p/a` in the same way", "Its progress is kept"] {
        assert!(warning.contains(said), "{warning}");
    }
    assert_eq!(project.snapshots(), 0);
    assert_eq!(ids(&outcome.stdout), (10_001..=10_000 + JOBS).collect::<Vec<_>>());
}

#[test]
fn what_was_begun_is_completed_from_the_file_where_it_stood_though_that_was_rotated() {
    let project = printer("from = \"a\"");
    print_and_kill(&project, 1);
    let file = project.path().join("a.ndjson");
    fs::rename(&file, file.with_extension("ndjson.1")).expect("it is there");
    project.write("a.ndjson", numbered(JOBS + 1..=JOBS + 10));
    assert_eq!(ids(&print_to_the_end(&project)), (1..=JOBS + 10).collect::<Vec<_>>());
    assert_eq!(project.snapshots(), 0);
}

#[test]
fn a_join_that_takes_an_input_more_says_where_it_begins_there() {
    let project = printer("join = { a = \"a\", b = \"b\" }");
    project.run().done();
    project.append("a.ndjson", numbered([501, 502]));
    project.append("b.ndjson", numbered([10_501]));
    project.write("c.ndjson", numbered([20_001, 20_002]));
    let join = "[source.c]\ntype = \"file\"\npath = \"c.ndjson\"\nformat = \"ndjson\"\n\
                [step.print]\njoin = { a = \"a\", b = \"b\", c = \"c\" }\nrun = \"print.rhai\"\nto = \"out\"\n";
    project.write("p.toml", [SOURCES, join].concat());
    let outcome = project.run().done();
    assert_eq!(ids(&outcome.stdout), [10_501]);
    let told: Vec<&str> =
        outcome.stderr.lines().filter(|line| line.contains("has never taken jobs of this input")).collect();
    let [told] = told[..] else { panic!("{}", outcome.stderr) };
    assert!(told.contains("input=p/c") && told.contains("from=1"), "{told}");
    assert!(!project.run().done().stderr.contains("has never taken jobs of this input"));
}

#[test]
fn a_step_whose_queuer_is_taken_away_runs_nothing_again_that_it_has_finished() {
    let step = "[step.one]\nfrom = \"in\"\nrun = \"one.rhai\"\nto = \"out\"\n";
    let queuer = "queuer = { strategy = \"priority\", priority = \"id\", max_processing = 1 }\n";
    let project = Project::pipeline(&[step, queuer].concat())
        .file("one.rhai", "fn process(job) { if job.id == 4 { throw \"not yet\" } job }")
        .file("in.ndjson", jobs(1..=10));
    project.run().failed(1);
    assert_eq!(ids(&project.read("out.ndjson")), [10, 9, 8, 7, 6, 5]);
    project.change("p.toml", queuer, "");
    project.write("one.rhai", "fn process(job) { job }");
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [10, 9, 8, 7, 6, 5, 1, 2, 3, 4]);
    project.run().done();
    project.assert_sound();
}

#[test]
fn a_file_that_a_killed_run_left_is_cut_back_though_no_sink_writes_it_now() {
    let toml = "follow = true\n[step.pass]\nfrom = \"in\"\nto = \"out\"\n";
    for (from, to) in [("out.ndjson", "other.ndjson"), ("out", "other")] {
        let project = Project::pipeline(toml).file("in.ndjson", jobs(1..=3));
        let mut running = project.start(&["run", "."]);
        running.wait_until("its jobs", || {
            project.read_if_there("out.ndjson") == jobs(1..=3)
                && project.status("p/pass", "p/in")["watermark"] == 3
        });
        assert!(running.kill());
        // The runner wrote this job, and died before the commit.
        project.append("out.ndjson", jobs([4]));
        project.append("in.ndjson", jobs([4]));
        project.change("p.toml", &format!("\"{from}\""), &format!("\"{to}\""));
        project.change(
            "p.toml",
            "[sink.out]",
            "[sink.other]\ntype = \"file\"\npath = \"third.ndjson\"\n[sink.out]",
        );
        project.change("p.toml", "follow = true\n", "");
        project.run().done();
        assert_eq!(project.read("out.ndjson"), jobs(1..=3), "{from}");
        let elsewhere = ["other.ndjson", "third.ndjson"].map(|file| project.read_if_there(file)).concat();
        assert_eq!(elsewhere, jobs([4]), "{from}");
    }
}
