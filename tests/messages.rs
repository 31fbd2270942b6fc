//! Tests of messages: commands name the error of the operator and its fix.

use crate::project::{Project, jobs};

/// A configuration in the folder `conf`, which leaves errors and a queue that keeps its jobs.
const PIPELINE: &str = "[pipeline]\nerrors = \"failed\"\n\
    [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
    [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"done\"\n[queue.done]\nretain = \"forever\"\n\
    [step.late]\nfrom = \"done\"\nto = \"out\"\nqueuer = { strategy = \"serial\" }\n\
    [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn project(script: &str) -> Project {
    Project::new()
        .file("conf/p.toml", PIPELINE)
        .file("conf/work.rhai", script)
        .file("conf/in.ndjson", jobs(1..=3))
}

const GOOD: &str = "fn process(job) { job }";
const BAD: &str = "fn process(job) { throw \"no\" }";

#[test]
fn hints_name_the_configuration_as_the_operator_did() {
    let project = project(BAD);
    project.tidegate(&["run", "conf"]).done().says("p/failed (see `tidegate errors list conf`)");
    let hint = "`tidegate step resume p/late conf` resumes it";
    let paused = project.tidegate(&["step", "pause", "p/late", "conf"]).done().stdout;
    assert_eq!(paused, "`p/late` is paused: it starts nothing until `tidegate step resume p/late conf`\n");
    let status = project.tidegate(&["status", "conf"]).done().stdout;
    assert!(status.contains(hint), "{status}");
    project
        .tidegate(&["run", "conf/", "--until-idle"])
        .done()
        .says("`tidegate step resume p/late conf/` resumes it");
    project.tidegate_given(&["queue", "push", "p/done", "conf"], jobs(1..=1)).done();
    let shown = project.tidegate(&["job", "show", "p/done/1", "--config", "conf"]).done().stdout;
    assert!(shown.contains(&format!("the step is paused; {hint}")), "{shown}");
    let none = project.tidegate(&["status", "conf", "--data", "elsewhere"]).failed(1);
    none.says(
        "error: the store `elsewhere` does not exist yet: `tidegate run conf --data elsewhere` creates it",
    );
}

#[test]
fn names_that_are_not_quite_right_are_told_the_right_one() {
    let project = project(GOOD);
    project.tidegate(&["run", "conf"]).done();
    let slips: [(&[&str], i32, &str); 12] = [
        (&["queue", "show", "done"], 1, "queue `done` is unknown; did you mean `p/done`?"),
        (&["queue", "show", "p/out"], 1, "`p/out` is a sink and keeps no jobs"),
        (
            &["queue", "show", "p/in"],
            1,
            "`p/in` is a source, whose jobs stay in its files; `job show` shows one of them",
        ),
        (&["errors", "list", "--queue", "failed"], 1, "queue `failed` is unknown; did you mean `p/failed`?"),
        (&["errors", "list", "--queue", "p/done"], 1, "`p/done` is not an error queue"),
        (&["errors", "show", "p/failed/9"], 1, "queue `p/failed` has no job 9: it is empty"),
        (
            &["replay", "work", "--from", "1"],
            1,
            "the configuration has no step `work`; did you mean `p/work`?",
        ),
        (&["replay", "p/late", "--from", "abc"], 64, "an index is a number, from 1"),
        (&["queue", "show", "p/done", "--to", "abc"], 64, "an index is a number, from 1"),
        (&["status", "--json"], 64, "did you mean `--format json`?"),
        (&["queue", "push", "p/failed"], 1, "`p/failed` is an error queue and has error records, not jobs"),
        (&["queue", "push", "done"], 1, "did you mean `p/done`?"),
    ];
    for (command, code, what) in slips {
        let said = project.tidegate(&[command, &["--config", "conf"]].concat()).failed(code);
        said.says(what);
    }
    project.tidegate(&["status", "--lanes", "50"]).failed(64).says("write `--lanes=50`");
    let empty = project.tidegate(&["errors", "list", "conf", "--queue", "p/failed"]).done().stdout;
    assert_eq!(empty, "no errors\n");
    project.tidegate(&["errors", "retry", "p/failed", "--yes", "--config", "conf"]).done();
}

#[test]
fn an_empty_queue_has_no_first_job() {
    let project = project(GOOD);
    project.write("conf/p.toml", PIPELINE.replace("retain = \"forever\"", "retain = \"consumed\""));
    project.tidegate(&["run", "conf"]).done();
    let listed = project.tidegate(&["queue", "list", "conf"]).done().stdout;
    let row: Vec<&str> = listed.lines().last().unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..4], ["p/done", "-", "3", "0"], "{listed}");
}

#[test]
fn jobs_that_are_no_longer_kept_are_told_from_jobs_that_never_came() {
    let project = project(GOOD);
    project.write("conf/p.toml", PIPELINE.replace("retain = \"forever\"", "retain = \"consumed\""));
    project.tidegate(&["run", "conf"]).done();
    let replay = |arguments: &[&str]| {
        project.tidegate(&[&["replay", "p/late", "--yes", "--config", "conf"], arguments].concat())
    };
    let gone = replay(&["--since", "1h"]).failed(1);
    gone.says(
        "error: the jobs of `p/done` up to 3 are no longer kept (see `retain` of the queue), so no job since",
    );
    project.tidegate(&["step", "pause", "p/late", "conf"]).done();
    project.tidegate_given(&["queue", "push", "p/done", "conf"], jobs(4..=5)).done();
    project.tidegate(&["run", "conf", "--until-idle"]).done();
    project.write("conf/p.toml", PIPELINE);
    project.tidegate(&["step", "resume", "p/late", "conf"]).done();
    project.tidegate(&["run", "conf"]).done();
    let some = replay(&["--since", "1h"]).done();
    assert_eq!(some.stdout, "p/late runs 2 jobs again with the next `tidegate run`\n");
    some.says("warning: jobs of `p/done` up to 3 are no longer kept, and some of them may be of that time\n");
}

#[test]
fn an_export_overwrites_only_an_older_one_and_only_if_it_is_forced() {
    let project = project(GOOD).file("kept.ndjson", "mine\n").file("empty", "");
    project.tidegate(&["run", "conf"]).done();
    let export = |file: &str| project.tidegate(&["store", "export", file, "conf"]);
    let forced = |file: &str| project.tidegate(&["store", "export", file, "conf", "--force"]);
    let refused = export("kept.ndjson").failed(1);
    let exists = "already exists: name another file, or overwrite an older export with `--force`";
    refused.says(&format!("error: `kept.ndjson` {exists}\n"));
    let store = std::fs::read(project.path().join("conf/.tidegate/store.redb")).unwrap();
    for other in ["kept.ndjson", "conf/p.toml", "conf/.tidegate/store.redb"] {
        let refused = forced(other).failed(1);
        refused.says(&format!(
            "error: `{other}` is not an export, so it is not overwritten: name another file\n"
        ));
    }
    assert_eq!(project.read("kept.ndjson"), "mine\n");
    assert_eq!(std::fs::read(project.path().join("conf/.tidegate/store.redb")).unwrap(), store);
    for special in ["conf", "/dev/full"] {
        let why = "is not a regular file: name another one, or `-` for standard output";
        forced(special).failed(1).says(&format!("error: `{special}` {why}\n"));
    }
    std::os::unix::fs::symlink("older.ndjson", project.path().join("link")).unwrap();
    export("older.ndjson").done();
    export("link").failed(1).says(&format!("error: `link` {exists}\n"));
    for older in ["older.ndjson", "link", "empty"] {
        forced(older).done();
    }
    assert!(project.path().join("link").is_symlink());
    let printed = project.tidegate(&["store", "export", "-", "conf"]).done();
    for export in ["older.ndjson", "empty"] {
        assert_eq!(printed.stdout, project.read(export));
    }
}
