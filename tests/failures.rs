//! Tests of final failures: they are logged at a bounded rate, and shown in `status`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::project::{Outcome, Project, jobs};

const FAILING: &str = "[pipeline]\nerrors = \"failed\"\n\
    [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"done\"\n\
    [step.more]\nfrom = \"done\"\nrun = \"more.rhai\"\nto = \"out\"\n";

/// The log lines about failed jobs, without their times.
fn lines(run: &Outcome) -> Vec<String> {
    let of_failures = run.stderr.lines().filter(|line| line.contains("WARN") && line.contains(" failed"));
    of_failures.map(str::to_owned).collect()
}

#[test]
fn the_first_failed_job_of_a_cause_is_logged_at_once_and_the_others_are_counted() {
    let project = Project::pipeline(FAILING)
        .file("work.rhai", "fn process(job) { if job.id <= 12 { throw \"no \" + job.id } if job.id == 13 { reject(\"never\") } job }")
        .file("more.rhai", "fn process(job) { job }")
        .file("in.ndjson", jobs(1..=20));
    let lines = lines(&project.run().done());
    let [first, rejected, others] = &lines[..] else { panic!("{lines:?}") };
    assert!(first.contains("job `p/in/1` failed and is on `p/failed`: no 1 ("), "{first}");
    assert!(rejected.contains("job `p/in/13` failed and is on `p/failed`: never ("), "{rejected}");
    assert!(others.contains("11 more jobs of `p/work` failed in the last "), "{others}");
    assert!(others.contains(" and are on `p/failed`; the last, `p/in/12`: no 12 ("), "{others}");
}

#[test]
fn jobs_that_a_policy_drops_do_not_flood_the_log() {
    let drop = "run = \"work.rhai\"\nretry = { max_attempts = 1, then = \"drop\" }\n";
    let project = Project::pipeline(&FAILING.replace("run = \"work.rhai\"\n", drop))
        .file("work.rhai", "fn process(job) { throw \"no\" }")
        .file("more.rhai", "fn process(job) { job }")
        .file("in.ndjson", jobs(1..=5000));
    let run = project.run().done();
    let lines = lines(&run);
    let [first, others] = &lines[..] else { panic!("{lines:?}") };
    assert!(first.contains("job `p/in/1` failed and is dropped by its retry policy: no ("), "{first}");
    assert!(others.contains("4999 more jobs of `p/work` failed in the last "), "{others}");
    let summary = run.says("5,000 jobs of p/work failed and are dropped").stderr;
    assert!(!summary.contains("failed → p/failed"), "{summary}");
}

#[test]
fn attempts_that_fail_are_logged_and_shown_before_their_job_is_given_up() {
    // A job that waits holds the others back without a queuer, and steps aside with one.
    for (queuer, held) in [("", true), ("queuer = { strategy = \"fifo\" }\n", false)] {
        let again = format!(
            "run = \"work.rhai\"\nretry = {{ backoff = \"list\", delays = [\"1ms\", \"1h\"] }}\n{queuer}"
        );
        let project = Project::pipeline(&FAILING.replace("run = \"work.rhai\"\n", &again))
            .file("work.rhai", "fn process(job) { if job.id == 2 { throw \"no answer\" } job }")
            .file("more.rhai", "fn process(job) { job }")
            .file("in.ndjson", jobs(1..=3));
        let run = project.tidegate(&["run", ".", "--until-idle"]).done();
        let lines = lines(&run);
        let [first, more] = &lines[..] else { panic!("{lines:?}") };
        assert!(first.contains("job `p/in/2` failed, and attempt 2 is due at 20"), "{first}");
        assert!(first.contains("Z: no answer ("), "{first}");
        assert!(more.contains("1 more attempt of `p/work` failed in the last "), "{more}");
        assert!(
            more.contains(
                ", and their jobs are tried again; the last was `p/in/2`, and attempt 3 is due at 20"
            ),
            "{more}"
        );
        let retry = &project.status("p/work", "p/in")["retry"];
        assert_eq!((&retry["job"], &retry["attempts"]), (&"p/in/2".into(), &2.into()), "{retry}");
        assert!(retry["why"].as_str().is_some_and(|why| why.starts_with("no answer (")), "{retry}");
        let text = project.tidegate(&["status"]).done().stdout;
        let said = if held {
            [
                "\n  jobs behind p/in/2 wait for it; its next attempt is in ",
                "; it failed 2 times: no answer (",
            ]
        } else {
            ["\n  p/in/2 failed 2 times, and is tried again in ", ": no answer ("]
        };
        assert!(said.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn status_counts_the_errors_of_each_step_that_are_open() {
    let project = Project::pipeline(FAILING)
        .file("work.rhai", "fn process(job) { if job.id <= 4 { throw \"no\" } job }")
        .file("more.rhai", "fn process(job) { if job.id > 8 { throw \"no\" } job }")
        .file("in.ndjson", jobs(1..=10));
    project.run().done();
    let errors = || -> [Value; 2] {
        [("p/work", "p/in"), ("p/more", "p/done")]
            .map(|(step, input)| project.status(step, input)["errors"].clone())
    };
    assert_eq!(errors(), [4, 2].map(Value::from));
    project.tidegate(&["errors", "drop", "p/failed/1", "--yes"]).done();
    project.tidegate(&["errors", "retry", "--step", "more", "--yes"]).done();
    assert_eq!(errors(), [3, 0].map(Value::from));
    let text = project.tidegate(&["status"]).done().stdout;
    let head = text.lines().next().unwrap_or_default();
    assert!(head.ends_with("failed  errors"), "{text}");
    project.tidegate(&["errors", "drop", "p/failed", "--yes"]).done();
    assert!(!project.tidegate(&["status"]).done().stdout.contains("errors"));
}

#[test]
fn the_summary_says_how_many_errors_of_the_run_are_still_open() {
    for (retried, said) in [
        ("p/failed/1", "2 failed → p/failed, 1 still open (see `"),
        ("p/failed", "2 failed → p/failed, none still open\n"),
    ] {
        let project = Project::new()
            .file(
                "p.toml",
                "[pipeline]\nerrors = \"failed\"\n\
                 [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                 [step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"builtin:exec\"\n\
                 retry = { max_attempts = 1 }\nexec = { command = [\"./work.sh\"] }\n\
                 [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
            )
            .file("work.sh", "#!/bin/sh\ntest -e mended && cat\n")
            .file("in.ndjson", jobs(1..=2));
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(project.path().join("work.sh"), executable).expect("it is our own");
        let mut running = project.started();
        let errors = || project.json(&["errors", "list"]);
        running
            .wait_until("both have failed", || errors().as_array().is_some_and(|errors| errors.len() == 2));
        project.write("mended", "");
        project.tidegate(&["errors", "retry", retried, "--yes"]).done();
        let expected = if retried == "p/failed/1" { 1 } else { 2 };
        running.wait_until("it runs well", || project.ids_so_far("out.ndjson").len() == expected);
        running.stop().done().says(said);
    }
}

#[test]
fn a_list_that_is_piped_is_not_cut_and_its_times_are_as_wide() {
    let why = "because ".repeat(60) + "it was so";
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n\
         queuer = { strategy = \"fifo\" }\n",
    )
    .file(
        "work.rhai",
        format!("fn process(job) {{ if job.id == 1 {{ retry_in(\"1h\", \"{why}\") }} reject(\"{why}\") }}"),
    )
    .file("in.ndjson", jobs(1..=30));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    for list in ["errors", "delayed"] {
        let listed = project.tidegate(&[list, "list"]).done().stdout;
        assert!(listed.lines().nth(1).is_some_and(|line| line.contains(&why)), "{listed}");
    }
    let errors = project.queue("p/failed");
    assert_eq!(errors.len(), 29);
    for error in errors {
        let time = error["time"].as_str().unwrap_or_default();
        assert_eq!(time.len(), "2026-01-31T12:00:00.120Z".len(), "{time}");
    }
}

#[test]
fn a_step_may_drop_its_failed_jobs_which_are_counted_and_logged() {
    for (pipeline, step) in [("", "errors = \"drop\"\n"), ("[pipeline]\nerrors = \"drop\"\n", "")] {
        let project = Project::new()
            .file(
                "p.toml",
                [
                    pipeline,
                    "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                     [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n\
                     [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n",
                    step,
                ]
                .concat(),
            )
            .file("work.rhai", "fn process(job) { if job.id < 3 { reject(\"too small\") } job }")
            .file("in.ndjson", jobs(1..=4));
        let mut running = project.started();
        running.wait_until("the output", || project.ids_so_far("out.ndjson") == [3, 4]);
        // The jobs are in the file shortly before they are committed.
        running.wait_until("the commit", || project.status("p/work", "p/in")["failed"] == 2);
        let status = project.tidegate(&["status"]).done().stdout;
        assert!(status.contains("\n  failed jobs dropped in this run: 2\n"), "{status}");
        assert_eq!(project.status("p/work", "p/in")["failed"], 2);
        let ended = running.stop().done();
        let ended = ended.says("job `p/in/1` failed and is dropped by `errors = \"drop\"`: too small");
        ended.says("2 jobs of p/work failed and are dropped");
        assert!(project.json(&["queue", "list"]).as_array().is_some_and(Vec::is_empty));
        project.assert_sound();
    }
}
