//! Tests of early ends: a run is stopped by a signal, or a step has to stop.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::printing::{numbered, print_and_stop_unread, print_to_the_end};
use crate::project::{Project, ids, jobs, whole_lines};

const STEP: &str = "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"between\"\n\
                    [step.more]\nfrom = \"between\"\nrun = \"more.rhai\"\nto = \"out\"\n";

#[test]
fn a_run_that_is_asked_to_end_commits_what_runs_and_goes_on_next_time() {
    let slow = "fn process(job) { let sum = 0; for i in 0..200 { sum += i; } job }";
    let project = Project::pipeline(STEP)
        .file("in.ndjson", jobs(1..=60_000))
        .file("work.rhai", slow)
        .file("more.rhai", "fn process(job) { job }");
    let mut stopped = 0;
    loop {
        let before = project.len("out.ndjson");
        let mut running = project.start(&["run", "."]);
        running.wait_until("some output", || project.len("out.ndjson") > before + 100_000 || stopped >= 3);
        let outcome = if stopped < 3 { running.stop() } else { running.outcome() }.done();
        if outcome.stderr.contains("done:") {
            break;
        }
        assert!(outcome.stderr.contains("stopped:"), "{}", outcome.stderr);
        stopped += 1;
    }
    assert!(stopped > 0);
    assert_eq!(project.read("out.ndjson"), jobs(1..=60_000));
}

#[test]
fn a_throw_without_an_error_queue_stops_the_step_and_progress_stays_before_the_job() {
    let project = Project::pipeline(STEP)
        .file("in.ndjson", jobs(1..=5000))
        .file(
            "work.rhai",
            "fn process(job) {\n    if job.id == 3500 {\n        throw \"no such pool\";\n    }\n    job\n}",
        )
        .file("more.rhai", "fn process(job) { job }");
    let outcome = project.run().failed(1);
    for part in ["p/work", "work.rhai:3", "no such pool", "job 3500", "in.ndjson:3500", "errors = "] {
        assert!(outcome.stderr.contains(part), "`{part}` is missing in\n{}", outcome.stderr);
    }
    // Earlier jobs are delivered, also through the later step.
    assert_eq!(project.read("out.ndjson"), jobs(1..=3499));
    // The second run gives the same, and no more.
    project.run().failed(1);
    assert_eq!(project.read("out.ndjson"), jobs(1..=3499));
    project.write("work.rhai", "fn process(job) { job }");
    project.run().done().says("done: 1,501 jobs");
    assert_eq!(project.read("out.ndjson"), jobs(1..=5000));
}

#[test]
fn a_policy_that_stops_its_step_is_named_as_the_one_that_does() {
    for (most, tried) in [(1, "its only attempt failed"), (2, "all 2 attempts failed")] {
        let retry = format!("{{ max_attempts = {most}, initial = \"1ms\", then = \"halt\" }}");
        let step =
            format!("[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\nretry = {retry}\n");
        let project = Project::pipeline(&(step + "errors = \"failed\"\n"))
            .file("in.ndjson", jobs(1..=3))
            .file("work.rhai", "fn process(job) { if job.id == 2 { throw \"no such pool\" } job }");
        let outcome = project.run().failed(1);
        let why = format!("no such pool ({tried}) (./work.rhai:1:36)");
        let outcome = outcome.says(&why).says("p/work stopped at job 2");
        let outcome = outcome.says("; the step stops at it because its retry policy has `then = \"halt\"` (");
        assert!(!outcome.stderr.contains("no error queue"), "{}", outcome.stderr);
        project.write("work.rhai", "fn process(job) { job }");
        project.run().done();
        let mut out = ids(&project.read("out.ndjson"));
        out.sort_unstable();
        assert_eq!(out, [1, 2, 3]);
    }
}

#[test]
fn a_step_that_stops_does_not_stop_the_others() {
    let project = Project::pipeline(
        "[step.bad]\nfrom = \"in\"\nrun = \"bad.rhai\"\nto = \"nowhere\"\n\
         [step.good]\nfrom = \"in\"\nto = \"out\"\n[sink.nowhere]\ntype = \"null\"\n",
    )
    .file("in.ndjson", jobs(1..=5000))
    .file("bad.rhai", "fn process(job) { if job.id == 2 { throw \"bad\" } job }");
    project.run().failed(1);
    assert_eq!(ids(&project.read("out.ndjson")).len(), 5000);
}

#[test]
fn a_limit_that_strikes_names_itself_and_the_job() {
    let endless = "fn process(job) {\n    loop { }\n}";
    let limits = [
        ("operations", "limits = { operations = 10000 }", endless),
        ("timeout", "timeout = \"50ms\"\nlimits = { operations = 1000000000 }", endless),
        (
            "memory",
            "limits = { memory = \"64KiB\" }",
            "fn process(job) {\n    let s = \"x\";\n    loop { s += s; }\n}",
        ),
    ];
    for (what, limit, script) in limits {
        let project = Project::pipeline(&format!(
            "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n{limit}\n"
        ))
        .file("in.ndjson", jobs([1]))
        .file("work.rhai", script);
        let outcome = project.run().failed(1);
        for part in ["p/work stopped at job 1", "in.ndjson:1", what] {
            assert!(outcome.stderr.contains(part), "`{part}` is missing in\n{}", outcome.stderr);
        }
    }
}

#[test]
fn asking_a_run_to_end_does_not_hide_that_a_step_had_stopped() {
    let project = Project::pipeline("[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n")
        .file("in.ndjson", jobs(1..=1))
        .file("work.rhai", "fn process(job) { throw \"no\"; }")
        .file(
            "q.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"q.ndjson\"\n",
        );
    let mut running = project.start(&["run", "."]);
    running.wait_until_it_says("the step stops");
    running.wait_until("the other pipeline's job", || project.len("q.ndjson") > 0);
    running.stop().failed(1).says("p/work stopped at job 1");
}

#[test]
fn a_run_ends_in_time_though_nobody_reads_what_it_prints() {
    let project = Project::new()
        .file("tidegate.toml", "[runner]\nshutdown_timeout = \"50ms\"\n")
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"stdout\"\n",
        )
        // More than the size of a pipe.
        .file("in.ndjson", numbered(1..=500));
    let (printed, code) = print_and_stop_unread(&project);
    assert_eq!(code, Some(0));
    let before = ids(whole_lines(&printed));
    assert!(before.len() < 500, "it had printed everything");
    // Uncommitted jobs are printed again, and none is left out.
    let after = ids(&print_to_the_end(&project));
    assert!(after[0] <= before.len() as u64 + 1, "{after:?} after {before:?}");
    assert_eq!(after, (after[0]..=500).collect::<Vec<_>>());
    project.assert_sound();
}

#[test]
fn a_command_that_runs_longer_than_a_stop_waits_is_killed_with_its_children_and_its_job_runs_again() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nrun = \"builtin:exec\"\nexec = { command = [\"./work.sh\"] }\n\
         timeout = \"10m\"\nto = \"out\"\n",
    )
    .file("tidegate.toml", "[runner]\nshutdown_timeout = \"50ms\"\n")
    .file("in.ndjson", jobs([1]))
    // It waits for its child.
    .file("work.sh", "#!/bin/sh\nsleep 600 &\necho $$ $! > pids.new\nmv pids.new pids\nwait\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path().join("work.sh"), executable).expect("it is there");
    let mut running = project.start(&["run", "."]);
    running.wait_until("the command", || !project.read_if_there("pids").is_empty());
    let pids = project.read("pids");
    let pids = pids.split_whitespace().map(|pid| pid.parse().ok().and_then(Pid::from_raw).expect("a pid"));
    let processes: Vec<_> = pids.map(|pid| pidfd_open(pid, PidfdFlags::empty()).expect("it runs")).collect();
    assert_eq!(processes.len(), 2);
    running.stop().done().says("stopped:");
    for process in &processes {
        // Readable when the process has ended.
        let mut ends = [PollFd::new(process, PollFlags::IN)];
        let patience = Timespec::try_from(Duration::from_mins(1)).expect("it is short");
        assert_eq!(poll(&mut ends, Some(&patience)), Ok(1), "it runs on");
    }
    assert_eq!(project.read_if_there("out.ndjson"), "");
    project.write("work.sh", "#!/bin/sh\ncat\n");
    for _ in 0..2 {
        project.run().done();
        assert_eq!(project.read("out.ndjson"), jobs([1]));
    }
    project.assert_sound();
}

#[test]
fn a_stopped_store_says_at_which_job_a_step_stopped_and_why() {
    for queuer in ["", "queuer = { strategy = \"serial\" }\n"] {
        let step = format!("[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n{queuer}");
        for bad in [1, 52] {
            let project = Project::pipeline(&step).file("in.ndjson", jobs(1..=60)).file(
                "work.rhai",
                format!("fn process(job) {{ if job.id == {bad} {{ throw \"no such pool\" }} job }}"),
            );
            project.run().failed(1);
            let status = project.tidegate(&["status"]).done().stdout;
            let file = project.path().join("in.ndjson");
            let at = format!("\n  stopped at job {bad} ({}:{bad}) in the last run (2", file.display());
            assert!(status.contains(&at), "{status}");
            assert!(status.contains(" ago): no such pool ("), "{status}");
            let halted = &project.status("p/work", "p/in")["halted"];
            assert_eq!((&halted["last_run"], halted["since"].is_string()), (&true.into(), true), "{halted}");
            let show =
                |index: u64| project.tidegate(&["job", "show", &format!("p/in/{index}")]).done().stdout;
            assert!(show(bad).contains("\n    the step stopped at it in the last run: no such pool ("));
            let other = format!(
                "\n    the step stopped at job {bad} ({}:{bad}) in the last run: no such pool (",
                file.display()
            );
            assert!(show(bad + 1).contains(&other), "{}", show(bad + 1));
            project.assert_sound();
            project.write("work.rhai", "fn process(job) { job }");
            project.run().done();
            assert!(!project.tidegate(&["status"]).done().stdout.contains("stopped"));
        }
    }
}

#[test]
fn a_stopped_store_says_why_a_sink_stopped() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nto = \"queue\"\n[sink.null]\nfrom = \"queue\"\ntype = \"null\"\n",
    )
    .file("in.ndjson", jobs(1..=3))
    .file("out.ndjson", "another program\n");
    project.change("p.toml", "path = \"out.ndjson\"", "path = \"out.ndjson\"\nfrom = \"queue\"");
    project.run().failed(1);
    let status = project.tidegate(&["status"]).done().stdout;
    assert!(status.contains("\n  stopped in the last run (2"), "{status}");
    assert!(status.contains("out.ndjson"), "{status}");
    assert_eq!(project.status("p/null", "p/queue").get("halted"), None);
    let shown = project.tidegate(&["job", "show", "p/queue/1"]).done().stdout;
    assert!(shown.contains("\n    the step stopped in the last run: "), "{shown}");
}

#[test]
fn a_step_in_order_reports_the_first_of_the_jobs_at_which_it_stops() {
    let project = Project::pipeline("[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n")
        .file("in.ndjson", format!("{}nothing\n{}nothing\nnothing\n", jobs(1..=2), jobs(4..=900)))
        .file("work.rhai", "fn process(job) { job }");
    let outcome = project.run().failed(1);
    let (printed, said) = (outcome.stdout, outcome.stderr);
    let stops = |text: &str| text.matches("p/work stopped at job").count();
    assert_eq!(stops(&printed) + stops(&said), 1, "{printed}\n{said}");
    assert!(
        printed.contains("p/work stopped at job 3 (") || said.contains("p/work stopped at job 3 ("),
        "{said}"
    );
    assert!(said.contains("the step stops: job 3 ("), "{said}");
}
