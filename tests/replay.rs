//! Tests of `replay`: a step runs again from an earlier job on.

use crate::project::{Project, ids, jobs};

const SOURCE: &str =
    "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n";
const SINK: &str = "[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn project(toml: &str) -> Project {
    Project::new().file("p.toml", [SOURCE, toml, SINK].concat()).file("in.ndjson", jobs(1..=9))
}

fn run(project: &Project) {
    project.tidegate(&["run", ".", "--until-idle"]).done();
}

#[test]
fn a_step_runs_again_from_an_index_of_its_source() {
    let project = project("[step.same]\nfrom = \"in\"\nto = \"out\"\n");
    run(&project);
    let asked = project.tidegate(&["replay", "p/same", "--from", "7"]).failed(64);
    insta::assert_snapshot!(asked.stderr, @"error: p/same will run 3 jobs again (p/in 7 to 9), into p/out; its earlier deliveries stay there. Without a terminal this needs `--yes`");
    let replayed = project.tidegate(&["replay", "p/same", "--from", "7", "--yes"]).done();
    assert_eq!(replayed.stdout, "p/same runs 3 jobs again with the next `tidegate run`\n");
    run(&project);
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9]);
}

#[test]
fn a_running_runner_opens_its_source_again_and_goes_on_behind_it() {
    let project = project("[step.same]\nfrom = \"in\"\nto = \"out\"\n");
    let mut running = project.start(&["run", "."]);
    running.wait_until("the output", || project.len("out.ndjson") == jobs(1..=9).len() as u64);
    // They are in the file shortly before they are committed.
    running.wait_until("the commit", || {
        project.tidegate(&["status", "--format", "json"]).stdout.contains("\"watermark\": 9")
    });
    let replayed = project.tidegate(&["replay", "p/same", "--from", "7", "--yes"]).done();
    assert_eq!(replayed.stdout, "p/same runs 3 jobs again now\n");
    project.append("in.ndjson", jobs(10..=11));
    let expected = [1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9, 10, 11];
    let len = jobs(expected).len() as u64;
    running.wait_until("what is new", || project.len("out.ndjson") >= len);
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), expected);
}

#[test]
fn a_queue_knows_what_came_since_a_time() {
    let project = project(
        "[step.give]\nfrom = \"in\"\nto = \"given\"\n[queue.given]\nretain = \"forever\"\n\
         [step.take]\nfrom = \"given\"\nto = \"out\"\n",
    );
    run(&project);
    let replay =
        |since| project.tidegate(&["replay", "p/take", "--since", since, "--yes", "--format", "json"]);
    replay("9999-01-01T00:00:00Z").failed(1).says("`p/given` has no job since 9999-01-01");
    replay("yesterday").failed(64).says("`yesterday` is not a time");
    let replayed = replay("2h").done().stdout;
    let plan: serde_json::Value = serde_json::from_str(&replayed).expect("it is JSON");
    assert_eq!((&plan["jobs"], &plan["outputs"][0]), (&9.into(), &"p/out".into()), "{plan}");
    run(&project);
    assert_eq!(ids(&project.read("out.ndjson")), (1..=9).chain(1..=9).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_run_again_is_refused() {
    let project =
        project("[step.give]\nfrom = \"in\"\nto = \"given\"\n[step.take]\nfrom = \"given\"\nto = \"out\"\n");
    run(&project);
    for (arguments, code, answer) in [
        (
            &["p/take", "--from", "1"][..],
            1,
            "job 1 of `p/given` is no longer kept; the oldest kept job is 10",
        ),
        (&["p/give", "--from", "10"], 1, "`p/give` has read `p/in` up to 9"),
        (&["p/give", "--since", "2h"], 1, "`p/in` is a source"),
        (&["p/giv", "--from", "1"], 1, "did you mean `p/give`?"),
        (
            &["p/give", "--from", "1", "--input", "other"],
            1,
            "`p/give` has no input `other`; its inputs are `p/in`",
        ),
        (&["p/give"], 64, "--from"),
        (&["p/give", "--from", "0"], 64, "0"),
    ] {
        let arguments = [&["replay", "--yes"], arguments].concat();
        let said = project.tidegate(&arguments).failed(code).stderr;
        assert!(said.contains(answer), "{arguments:?}: {said}");
    }
}

/// Job 2 waits an hour for its second attempt.
const WAITS: &str =
    "fn process(job, ctx) { if job.id == 2 && ctx.attempt == 1 { retry_in(\"1h\", \"not yet\") } job }";

#[test]
fn a_job_that_waits_for_another_attempt_is_not_run_a_second_time_by_a_replay() {
    let fifo = "queuer = { strategy = \"fifo\" }\n";
    let ordered = "queuer = { strategy = \"fifo\", ordered = true }\n";
    let serial = "queuer = { strategy = \"serial\" }\n";
    // A step that takes its jobs one after the other goes on with the job that waits.
    let after: &[u64] = &[1, 2, 1, 3, 4, 5, 6];
    for (queuer, given, left, all) in [
        ("", vec![1], "1 that is", after),
        (serial, vec![1], "1 that is", after),
        (ordered, vec![1], "1 that is", &[1, 1, 2, 3, 4, 5, 6]),
        (fifo, vec![1, 3, 4, 5, 6], "1 that is", &[1, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6]),
    ] {
        let step = format!("[step.give]\nfrom = \"in\"\nrun = \"give.rhai\"\n{queuer}to = \"out\"\n");
        let project = project(&step).file("give.rhai", WAITS).file("in.ndjson", jobs(1..=6));
        // Picked jobs may run side by side.
        let so_far = || {
            let mut ids = project.ids_so_far("out.ndjson");
            if queuer == fifo {
                ids.sort_unstable();
            }
            ids
        };
        let mut running = project.started();
        running.wait_until("the first attempts", || {
            let status = project.status("p/give", "p/in");
            let is_held = queuer != ordered
                || project.json(&["job", "show", "p/in/6"]).to_string().contains("finished");
            status["delayed"] == 1 && so_far() == given && is_held
        });
        let replayed = project.tidegate(&["replay", "p/give", "--from", "1", "--yes"]).done().stdout;
        let expected = format!("; {left} not finished");
        assert!(replayed.contains(&expected), "{queuer}: {replayed}");
        let before = if after == all { 1 } else { all.len() - 1 };
        if queuer != ordered {
            running.wait_until("the replay", || so_far().len() >= before);
        }
        project.tidegate(&["delayed", "now", "p/give", "--yes"]).done();
        running.wait_until("all jobs", || so_far().len() >= all.len());
        running.stop().done();
        assert_eq!(so_far(), all, "{queuer}");
        project.assert_sound();
    }
}

#[test]
fn a_pending_job_stays_one_when_its_step_is_replayed() {
    let step = "[step.ask]\nfrom = \"in\"\nrun = \"ask.rhai\"\nto = \"out\"\n";
    let project = project(step)
        .file("ask.rhai", "fn process(job) { if job.id == 1 { pending(\"h\") } job }")
        .file("in.ndjson", jobs(1..=3));
    run(&project);
    let pending = || project.status("p/ask", "p/in")["pending"].as_u64();
    assert_eq!(pending(), Some(1));
    project.tidegate(&["replay", "p/ask", "--from", "1", "--yes"]).done();
    run(&project);
    assert_eq!((pending(), ids(&project.read("out.ndjson"))), (Some(1), vec![2, 3, 2, 3]));
    project.write("in.ndjson", jobs([1]));
    project.change("p.toml", "in.ndjson", "alone.ndjson");
    project.change("p.toml", "source.in", "source.alone");
    project.change("p.toml", "from = \"in\"", "from = \"alone\"");
    project.write("alone.ndjson", jobs([1]));
    run(&project);
    let refused = project.tidegate(&["replay", "p/ask", "--from", "1", "--yes"]).failed(1).stderr;
    let why = "nothing can run again: the jobs of `p/alone` from 1 on are not finished at `p/ask`";
    assert!(refused.contains(why), "{refused}");
    project.assert_sound();
}

#[test]
fn jobs_of_a_file_that_is_gone_cannot_run_again() {
    let project = project("[step.same]\nfrom = \"in\"\nto = \"out\"\n");
    let mut running = project.started();
    running.wait_until("the first file", || project.ids_so_far("out.ndjson").len() == 9);
    std::fs::rename(project.path().join("in.ndjson"), project.path().join("in.ndjson.1"))
        .expect("it is there");
    project.write("in.ndjson", jobs(10..=14));
    running.wait_until("the second file", || project.ids_so_far("out.ndjson").len() == 14);
    std::fs::remove_file(project.path().join("in.ndjson.1")).expect("it is there");
    let replay = |from| project.tidegate(&["replay", "p/same", "--from", from, "--yes"]);
    replay("4").failed(1).says("job 4 of `p/in` is no longer in the files of the source");
    replay("10").done();
    running.wait_until("the jobs that are there", || project.ids_so_far("out.ndjson").len() == 19);
    running.stop().done();
    project.assert_sound();
}

const OTHER: &str =
    "[source.other]\ntype = \"file\"\npath = \"other.ndjson\"\nformat = \"ndjson\"\nfollow = true\n";

#[test]
fn the_parts_of_a_join_go_back_together() {
    let toml =
        "[step.pair]\njoin = { left = \"in\", right = \"other\" }\nrun = \"pair.rhai\"\nto = \"out\"\n";
    let project = project(&[OTHER, toml].concat())
        .file("pair.rhai", "fn process(job) { #{ id: job.left.id * 100 + job.right.id } }")
        .file("other.ndjson", jobs(11..=16));
    run(&project);
    project.tidegate(&["replay", "p/pair", "--from", "5", "--yes"]).failed(1).says("several inputs");
    project.tidegate(&["replay", "p/pair", "--from", "5", "--input", "left", "--yes"]).done();
    run(&project);
    let expected = [111, 212, 313, 414, 515, 616, 515, 616];
    assert_eq!(ids(&project.read("out.ndjson")), expected);
}

#[test]
fn an_alternative_that_is_not_meant_stays_where_it_is() {
    let toml = "[step.any]\nalts = { left = \"in\", right = \"other\" }\nto = \"out\"\n";
    let project = project(&[OTHER, toml].concat()).file("other.ndjson", jobs(11..=16));
    let mut running = project.start(&["run", "."]);
    let all: Vec<u64> = (1..=9).chain(11..=16).collect();
    let len = |ids: &[u64]| jobs(ids.iter().copied()).len() as u64;
    running.wait_until("the output", || project.len("out.ndjson") == len(&all));
    running.wait_until("the commit", || {
        let status = project.tidegate(&["status", "--format", "json"]).stdout;
        status.contains("\"watermark\": 9") && status.contains("\"watermark\": 6")
    });
    project.append("other.ndjson", jobs(17..=17));
    project.tidegate(&["replay", "p/any", "--from", "6", "--input", "right", "--yes"]).done();
    project.append("other.ndjson", jobs(18..=18));
    project.append("in.ndjson", jobs(10..=10));
    running.wait_until("what is new", || {
        let last: Vec<u64> = project
            .read("out.ndjson")
            .lines()
            .filter_map(|line| line.strip_suffix('}')?.split(':').nth(1)?.parse().ok())
            .collect();
        last.contains(&18) && last.contains(&10)
    });
    running.stop().done();
    let mut delivered = ids(&project.read("out.ndjson"));
    delivered.sort_unstable();
    delivered.dedup();
    // Each once, except for those that ran again.
    assert_eq!(delivered, (1..=18).collect::<Vec<_>>());
    let delivered = ids(&project.read("out.ndjson"));
    assert!((1..=15).all(|id| delivered.iter().filter(|&&one| one == id).count() == 1), "{delivered:?}");
    assert_eq!(delivered.iter().filter(|&&id| id == 16).count(), 2, "{delivered:?}");
}
