//! Tests of `queuer preview`: the predicted order is the order of the run.

use serde_json::Value;

use crate::project::{Project, ids, jobs};

/// Each job determines its own outcome.
const WORK: &str = "fn process(job) {
    if `at` in job { retry_in(job.at, `later`) }
    if `closed` in job { gate_closed(job.closed) }
    if `handle` in job { pending(job.handle) }
    job
}";

/// A step `work` with this queuer and one worker, which reads a queue with the unstarted jobs of `in.ndjson`: the step was
/// paused when they arrived.
pub(crate) fn backlog(queuer: &str, jobs: &str, rest: &str) -> Project {
    let toml = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
         [step.give]\nfrom = \"in\"\nto = \"jobs\"\n[queue.jobs]\nretain = \"forever\"\n\
         [sink.out]\nfrom = \"done\"\ntype = \"file\"\npath = \"out.ndjson\"\n\
         [step.work]\nfrom = \"jobs\"\nto = \"done\"\nrun = \"work.rhai\"\nerrors = \"failed\"\n";
    let project = Project::new()
        .file("p.toml", format!("{toml}queuer = {{ {queuer} }}\n{rest}"))
        .file("tidegate.toml", "[runner]\nworkers = 1\n")
        .file("work.rhai", WORK)
        .file("never.rhai", "fn open(answer) { gate_closed(\"price 93\\n> 60\") }")
        .file("monitor.rhai", "fn status(jobs) { [] }")
        .file("in.ndjson", "");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.tidegate(&["step", "pause", "p/work"]).done();
    project.append("in.ndjson", jobs);
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project
}

/// `{"id": 1, "pool": "a", …}`, one per line, from words like `a` or `a:"urgent":3`.
pub(crate) fn pools(words: &[&str]) -> String {
    let line = |(id, word): (usize, &&str)| {
        let (pool, more) =
            word.split_once(':').map_or((*word, String::new()), |(pool, more)| (pool, format!(",{more}")));
        format!("{{\"id\":{id},\"pool\":\"{pool}\"{more}}}\n")
    };
    (1..).zip(words).map(line).collect()
}

fn preview(project: &Project) -> Value {
    project.json(&["queuer", "preview", "p/work", "--rounds", "100"])
}

/// The jobs of all rounds, in order.
fn order(preview: &Value) -> Vec<u64> {
    let rounds = preview["rounds"].as_array().expect("a list");
    let jobs = rounds.iter().flat_map(|round| round["jobs"].as_array().expect("a list"));
    jobs.map(|job| job.as_u64().expect("an index")).collect()
}

#[test]
fn what_is_previewed_on_a_stopped_store_is_what_the_runner_then_starts() {
    let urgent = ["a:\"urgent\":1", "a:\"urgent\":3", "b:\"urgent\":2", "a:\"urgent\":3", "b"];
    let keys = ["a:\"w\":[1]", "a:\"r\":[1]", "a:\"w\":[2]", "b:\"w\":[1]", "a:\"r\":[2,3]", "a:\"w\":[3]"];
    let lanes = ["a", "a", "b", "a", "c", "b", "a"];
    let cases: [(&str, &[&str], &[u64]); 6] = [
        ("strategy = \"fifo\", max_processing = 1", &lanes, &[1, 2, 3, 4, 5, 6, 7]),
        ("strategy = \"serial\"", &lanes, &[1, 2, 3, 4, 5, 6, 7]),
        (
            "strategy = \"one-round-serial\", lane = \"pool\", max_processing = 1",
            &lanes,
            &[1, 3, 5, 2, 6, 4, 7],
        ),
        (
            "strategy = \"one-round-parallel\", lane = \"pool\", reads = \"r\", writes = \"w\", keys_missing = \"none\", max_processing = 1",
            &keys,
            &[1, 3, 4, 2, 5, 6],
        ),
        ("strategy = \"priority\", priority = \"urgent\", max_processing = 1", &urgent, &[2, 4, 3, 1, 5]),
        ("strategy = \"rounds\", pause = \"1ms\", max_processing = 1", &lanes[..3], &[1, 2, 3]),
    ];
    for (queuer, words, expected) in cases {
        let project = backlog(queuer, &pools(words), "");
        let told = preview(&project);
        assert_eq!(order(&told), expected, "{queuer}: {told}");
        assert_eq!(project.read_if_there("out.ndjson"), "", "nothing was started");
        project.tidegate(&["step", "resume", "p/work"]).done();
        project.tidegate(&["run", ".", "--until-idle"]).done();
        assert_eq!(ids(&project.read("out.ndjson")), expected, "{queuer}");
    }
}

#[test]
fn a_job_without_the_keys_of_its_queuer_is_set_aside() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nto = \"out\"\nerrors = \"failed\"\n\
         queuer = { strategy = \"one-round-parallel\", lane = \"pool\", writes = \"keys\" }\n",
    )
    .file(
        "in.ndjson",
        "{\"id\":1,\"pool\":\"a\",\"keys\":\"x\"}\n{\"id\":2,\"pool\":\"a\",\"key\":[\"x\"]}\n\
         {\"id\":3,\"pool\":\"a\",\"keys\":[]}\n",
    );
    project.run().done();
    let mut done = ids(&project.read("out.ndjson"));
    done.sort_unstable();
    assert_eq!(done, [1, 3]);
    let failed = project.queue("p/failed");
    assert_eq!((failed.len(), &failed[0]["kind"], &failed[0]["index"]), (1, &"payload".into(), &2.into()));
    let why = failed[0]["message"].as_str().expect("a text");
    assert!(
        why.starts_with("the job has no keys: it has no list or text `keys`; did you mean `key`?"),
        "{why}"
    );
}

#[test]
fn a_preview_is_the_same_on_a_stopped_store_and_in_a_running_runner() {
    let queuer = "strategy = \"one-round-serial\", lane = \"pool\"";
    let project = backlog(queuer, &pools(&["a", "a:\"at\":\"1h\"", "b", "a", "c"]), "");
    let look = |format: &str| {
        let question = ["queuer", "preview", "p/work", "--rounds", "2", "--format", format];
        project.stable(&project.tidegate(&question).done().stdout)
    };
    let stopped = [look("text"), look("json")];
    let mut running = project.started();
    running.wait_until("the same preview", || look("text") == stopped[0]);
    assert_eq!(look("json"), stopped[1]);
    project.tidegate(&["step", "resume", "p/work"]).done();
    running.wait_until("the end of the runnable jobs", || {
        look("text").starts_with("p/work reads p/jobs: 1 waiting, 1 delayed\n  round 1, in ")
    });
    let held = preview(&project);
    running.stop().done();
    let mut out = ids(&project.read("out.ndjson"));
    out.sort_unstable();
    assert_eq!(out, [1, 3, 5]);
    assert_eq!(order(&held), [2, 4], "{held}");
    assert!(held["rounds"][0]["at"].is_string() && held["rounds"][1]["at"].is_string(), "{held}");
    assert_eq!(preview(&project), held);
    insta::assert_snapshot!(stopped.concat());
}

#[test]
fn a_preview_says_what_holds_a_step_and_what_it_did_not_look_at() {
    let limits = "strategy = \"fifo\", max_search_ahead = 3, rate = \"2/1h\"";
    let gate = "gate = \"never\"\n[gate.never]\nrun = \"never.rhai\"\nevery = \"1h\"\n";
    let project = backlog(limits, &jobs(1..=5), gate);
    let look = || project.tidegate(&["queuer", "preview", "p/work"]).done().stdout;
    let head = "p/work reads p/jobs: 3 waiting\n  \
                the step is paused; `tidegate step resume p/work` resumes it\n  \
                round 1, now: 2 jobs\n    1 2\n  round 2, in ";
    let tail = ": 1 job\n    3\n  \
                not scanned: 2 jobs; past search-ahead: the step scans jobs up to 3 for now\n";
    let told = look();
    assert!(told.starts_with(head) && told.ends_with(tail), "{told}");
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until_it_says("the gate is closed");
    let told = look();
    assert!(told.contains("\n  the gate `never` is closed (price 93\\n> 60) since "), "{told}");
    assert!(told.contains("; it is probed again in "), "{told}");
    running.stop().done();
    let source = project.tidegate(&["queuer", "preview", "p/give"]).failed(1);
    source.says("has no queuer and processes its jobs in order");
    project
        .tidegate(&["queuer", "preview", "p/wrok"])
        .failed(1)
        .says("no step `p/wrok`; did you mean `p/work`?");
    project.tidegate(&["queuer", "preview", "p/work", "--rounds", "0"]).failed(64);
}

#[test]
fn a_pending_lane_is_left_out_of_a_preview_and_so_is_what_a_source_still_holds() {
    let project = Project::pipeline(
        "[step.submit]\nfrom = \"in\"\nto = \"out\"\nrun = \"submit.rhai\"\nerrors = \"failed\"\n\
         monitor = { run = \"monitor.rhai\", every = \"1h\" }\n\
         queuer = { strategy = \"one-round-serial\", lane = \"pool\" }\n",
    )
    .file("submit.rhai", "fn process(job, ctx) { pending(`b-${job.id}`) }")
    .file("monitor.rhai", "fn status(jobs) { [] }")
    .file("in.ndjson", pools(&["a", "a", "b"]));
    let mut running = project.started();
    let look = || project.tidegate(&["queuer", "preview", "p/submit"]).done().stdout;
    let told = "p/submit reads p/in: 1 waiting, 2 pending, in 2 lanes\n  nothing would start\n";
    running.wait_until("both lanes are pending", || look() == told);
    running.stop().done();
    let unread = "  the jobs of its source are not known without a run\n";
    assert_eq!(look(), told.replace("1 waiting, ", "") + unread);
}

#[test]
fn a_held_lane_is_named_where_its_step_starts_nothing() {
    let project = backlog("strategy = \"one-round-serial\", lane = \"pool\"", &pools(&["a", "a"]), "");
    project.tidegate(&["step", "resume", "p/work"]).done();
    project.tidegate(&["step", "pause", "p/work", "--lane", "a"]).done();
    for question in [["queuer", "preview", "p/work"], ["step", "resume", "p/work"]] {
        let shown = project.tidegate(&question).done().stdout;
        assert!(shown.contains("lane `a` is paused: `tidegate step resume p/work --lane a"), "{shown}");
    }
}

#[test]
fn a_large_round_is_told_in_part_and_counted_as_far_as_it_goes() {
    let project = backlog("strategy = \"fifo\"", &jobs(1..=2_000), "");
    let told = preview(&project);
    let round = &told["rounds"][0];
    assert_eq!((round["jobs"].as_array().map(Vec::len), &round["more"]), (Some(1000), &1000.into()));
    let text = project.tidegate(&["queuer", "preview", "p/work"]).done().stdout;
    assert!(text.contains("  round 1, now: 2,000 jobs\n    1 2 3 "), "{text}");
    assert!(text.contains(" and 1,960 more\n"), "{text}");
}

#[test]
fn a_lane_with_thousands_of_jobs_takes_one_place_in_the_first_round_of_a_new_run() {
    let mut words = vec!["a"; 3_000];
    words.extend(["b", "c", "d", "e"]);
    let project = backlog("strategy = \"one-round-serial\", lane = \"pool\"", &pools(&words), "");
    let told = preview(&project);
    let first = [1, 3_001, 3_002, 3_003, 3_004];
    assert_eq!(order(&told)[..5], first);
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until("the first round", || project.read_if_there("out.ndjson").lines().count() > 5);
    running.stop().done();
    let lines = project.read("out.ndjson");
    let lines: Vec<&str> = lines.lines().take(5).collect();
    let mut started = ids(&lines.join("\n"));
    started.sort_unstable();
    assert_eq!(started, first);
}

#[test]
fn a_step_that_picks_and_has_nothing_to_run_hands_on_each_job_once() {
    for queuer in ["strategy = \"fifo\"", "strategy = \"rounds\"", "strategy = \"serial\""] {
        let toml = format!(
            "[step.pass]\nfrom = \"jobs\"\nto = \"out\"\nqueuer = {{ {queuer} }}\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
        );
        let project = Project::new().file("p.toml", toml);
        for index in 1..=3 {
            project.tidegate_given(&["queue", "push", "p/jobs"], jobs(index..=index)).done();
        }
        project.tidegate_given(&["queue", "push", "p/jobs"], jobs(4..=9)).done();
        project.tidegate(&["run", ".", "--until-idle"]).done();
        let mut passed = ids(&project.read("out.ndjson"));
        passed.sort_unstable();
        assert_eq!(passed, (1..=9).collect::<Vec<_>>(), "{queuer}");
        project.assert_sound();
    }
}

#[test]
fn slow_jobs_run_beside_each_other_and_each_is_delivered_when_it_has_run() {
    // Three jobs never end, and there is one worker.
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"work.rhai\"\ntimeout = \"1h\"\n\
         limits = { operations = 1000000000000 }\nqueuer = { strategy = \"fifo\", max_processing = 4 }\n",
    )
    .file("tidegate.toml", "[runner]\nworkers = 1\n")
    .file("work.rhai", "fn process(job) { while job.id <= 3 {} job }")
    .file("in.ndjson", jobs(1..=40));
    let mut running = project.started();
    running.wait_until("the others are delivered", || project.ids_so_far("out.ndjson").len() == 37);
    // They are in the file shortly before they are committed.
    running.wait_until("the commit", || project.status("p/work", "p/in")["running"] == 3);
    let status = project.status("p/work", "p/in");
    assert_eq!((&status["running"], &status["watermark"]), (&3.into(), &0.into()), "{status}");
    assert!(running.kill());
    project.assert_sound();
}

#[test]
fn a_step_whose_jobs_run_long_keeps_no_worker_from_others() {
    let file = |path: &str| format!("type = \"file\"\nformat = \"ndjson\"\npath = \"{path}\"\n");
    let pipeline = |name: &str, source: &str, step: &str| {
        let (source, sink) = (file(source), file(&format!("{name}-out.ndjson")));
        format!(
            "[source.in]\n{source}[step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"{name}.rhai\"\n{step}\
             [sink.out]\n{sink}"
        )
    };
    let slow = |queuer: &str| {
        let limits = format!("timeout = \"1h\"\nlimits = {{ operations = 1000000000000 }}\n{queuer}");
        Project::new()
            .file("tidegate.toml", "[runner]\nworkers = 2\n")
            .file(
                "quick.toml",
                pipeline("quick", "in.ndjson", "").replacen("[step", "follow = true\n[step", 1),
            )
            .file("quick.rhai", "fn process(job) { job }")
            .file("in.ndjson", "")
            .file("slow.toml", pipeline("slow", "jobs.ndjson", &limits))
            .file("slow.rhai", "fn process(job) { while job.id > 0 {} job }")
            .file("jobs.ndjson", jobs(1..=60))
    };
    for queuer in ["", "queuer = { strategy = \"fifo\" }\n"] {
        let project = slow(queuer);
        let mut running = project.started();
        for last in [1000, 2000] {
            project.append("in.ndjson", jobs(last - 999..=last));
            let done = usize::try_from(last).expect("few");
            running.wait_until("the quick jobs", || project.ids_so_far("quick-out.ndjson").len() == done);
        }
        assert_eq!(project.len("slow-out.ndjson"), 0);
        assert!(running.kill());
        // The script is mended, and nothing of the slow step is lost.
        project.write("slow.rhai", "fn process(job) { job }");
        project.tidegate(&["run", ".", "--until-idle"]).done();
        let mut worked = ids(&project.read("slow-out.ndjson"));
        worked.sort_unstable();
        assert_eq!(worked, (1..=60).collect::<Vec<_>>(), "{queuer}");
        project.assert_sound();
    }
}

#[test]
fn a_job_that_never_ends_keeps_no_worker_though_nothing_else_happens() {
    let step = |name: &str, script: &str| {
        format!(
            "[step.{name}]\nfrom = \"in\"\nto = \"{name}-out\"\nrun = \"{script}.rhai\"\ntimeout = \"1h\"\n\
             limits = {{ operations = 1000000000000 }}\n\
             [sink.{name}-out]\ntype = \"file\"\nformat = \"ndjson\"\npath = \"{name}.ndjson\"\n"
        )
    };
    let source = "[source.in]\ntype = \"file\"\nformat = \"ndjson\"\npath = \"in.ndjson\"\nfollow = true\n";
    let steps = [step("first", "pass"), step("middle", "endless"), step("last", "pass")].concat();
    let project = Project::new()
        .file("tidegate.toml", "[runner]\nworkers = 1\n")
        .file("p.toml", format!("{source}{steps}"))
        .file("pass.rhai", "fn process(job) { job }")
        .file("endless.rhai", "fn process(job) { while true {} }")
        .file("in.ndjson", jobs(1..=1));
    let mut running = project.started();
    for name in ["first", "last"] {
        running.wait_until(name, || project.ids_so_far(format!("{name}.ndjson")) == [1]);
    }
    assert!(running.kill());
}
