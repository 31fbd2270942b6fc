//! Tests of monitors: they complete pending jobs of an external system.

use std::os::unix::fs::PermissionsExt as _;

use crate::project::{Project, ids, jobs};

/// A step `submit` whose jobs become pending. Their statuses are in the file `outside`; the last question is
/// written to `asked`.
fn submitting(lines: &str) -> Project {
    let project = Project::pipeline(&format!(
        "[step.submit]\nfrom = \"in\"\nto = \"out\"\nrun = \"submit.rhai\"\nerrors = \"failed\"\n\
         monitor = {{ run = \"builtin:exec\", exec = {{ command = [\"./outside.sh\"] }}, every = \"20ms\" }}\n{lines}\n",
    ))
    .file("submit.rhai", "fn process(job, ctx) { pending(`b-${job.id}-${ctx.attempt}`) }")
    .file("outside.sh", "#!/bin/sh\ncat > asked.new\nmv asked.new asked\ntr -d '\\n' < outside\n")
    .file("outside", "{}");
    let script = project.path().join("outside.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).expect("it is there");
    project
}

#[test]
fn emitted_jobs_are_delivered_once_when_their_job_becomes_pending() {
    let project = submitting("").file("in.ndjson", jobs(1..=3)).file(
        "submit.rhai",
        "fn process(job) {\n    emit(\"seen\", #{ id: job.id });\n    \
         emit_in(\"seen\", #{ id: job.id + 10 }, 1);\n    \
         if job.id == 3 { reject(\"refused\") }\n    pending(`b-${job.id}`)\n}",
    );
    project.change("p.toml", "to = \"out\"", "to = { out = \"out\", seen = \"seen\" }");
    project.append("p.toml", "[queue.seen]\nretain = \"forever\"\n");
    let mut running = project.started();
    running.wait_until("it asks for both", || {
        let asked = project.read_if_there("asked");
        asked.contains("b-1") && asked.contains("b-2")
    });
    let seen = || {
        let mut seen: Vec<_> = project.queue("p/seen").iter().map(|job| job["id"].clone()).collect();
        seen.sort_by_key(serde_json::Value::as_u64);
        seen
    };
    running.wait_until("the delayed ones are delivered", || seen().len() >= 4);
    assert!(running.kill());
    assert_eq!(seen(), [1, 2, 11, 12]);
    assert_eq!(project.read_if_there("out.ndjson"), "");
    let outcome = "{\"status\": \"committed\", \"result\": {\"out\": {\"id\": 7}}}";
    project.write("outside", format!("{{\"b-1\": {outcome}, \"b-2\": {outcome}}}"));
    project.run().done();
    assert_eq!(seen(), [1, 2, 11, 12]);
    assert_eq!(ids(&project.read("out.ndjson")), [7, 7]);
    let status = project.status("p/submit", "p/in");
    assert_eq!((&status["taken"], &status["given"], &status["failed"]), (&3.into(), &6.into(), &1.into()));
    project.assert_sound();
}

const OUTCOMES: &str = r#"{
    "b-1-1": {"status": "committed", "result": {"id": 1, "block": 7}},
    "b-2-1": "committed",
    "b-3-1": {"status": "invalid", "reason": "spent twice"},
    "b-4-1": "unknown",
    "b-4-2": "committed",
    "nobody": "valid"
}"#;

#[test]
fn what_the_outside_says_becomes_of_jobs_also_when_the_runner_was_killed() {
    let project = submitting("").file("in.ndjson", jobs(1..=4));
    let mut running = project.started();
    running.wait_until("it asks for all", || {
        let asked = project.read_if_there("asked");
        (1..=4).all(|id| asked.contains(&format!("b-{id}-1")))
    });
    assert!(running.kill());
    project.write("outside", OUTCOMES);
    let ran = project.run().done();
    let mut out: Vec<_> = project.read("out.ndjson").lines().map(str::to_owned).collect();
    out.sort();
    assert_eq!(out, [r#"{"id": 1, "block": 7}"#, r#"{"id":2}"#, r#"{"id":4}"#]);
    let failed = project.queue("p/failed");
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (&failed[0]["kind"], &failed[0]["message"], &failed[0]["attempt"], &failed[0]["job"]["id"]),
        (&"rejected".into(), &"spent twice".into(), &1.into(), &3.into())
    );
    assert!(ran.stderr.contains("answered for jobs that were not polled"), "{}", ran.stderr);
    // All jobs are finished.
    project.run().done();
    assert_eq!(project.read("out.ndjson").lines().count(), 3);
    assert_eq!(project.status("p/submit", "p/in")["taken"], 4);
    project.assert_sound();
}

#[test]
fn what_the_outside_forgets_does_not_go_there_again_at_most_once() {
    let project = submitting("delivery = \"at-most-once\"").file("in.ndjson", jobs(1..=2));
    project.write("outside", r#"{"b-1-1": "unknown", "b-2-1": "committed"}"#);
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [2]);
    let failed = project.queue("p/failed");
    assert_eq!(failed.len(), 1);
    assert_eq!((&failed[0]["attempt"], &failed[0]["job"]["id"]), (&1.into(), &1.into()));
    project.assert_sound();
}

#[test]
fn what_the_outside_forgets_goes_there_again_before_anything_else_of_its_lane() {
    let project = submitting("queuer = \"per-service\"\n[queuer.per-service]\nstrategy = \"one-round-serial\"\nlane = \"service\"\n")
        .file("in.ndjson", "{\"id\":1,\"service\":\"a\"}\n{\"id\":2,\"service\":\"a\"}\n{\"id\":3,\"service\":\"b\"}\n");
    let mut running = project.started();
    let asked = |what: &str| project.read_if_there("asked").contains(what);
    running.wait_until("both lanes are asked for", || asked("b-1-1") && asked("b-3-1"));
    assert!(!asked("b-2"));
    project.write("outside", r#"{"b-1-1": "unknown", "b-3-1": "valid"}"#);
    running.wait_until("the first goes out again", || asked("b-1-2"));
    assert!(!asked("b-2"));
    let status = project.status("p/submit", "p/in");
    assert_eq!((&status["pending"], &status["valid"]), (&2.into(), &1.into()), "{status}");
    project.write("outside", r#"{"b-1-2": "committed", "b-3-1": "committed", "b-2-1": "committed"}"#);
    running.outcome().done();
    let out = ids(&project.read("out.ndjson"));
    let place = |id| out.iter().position(|other| *other == id);
    assert_eq!(out.len(), 3);
    assert!(place(1) < place(2), "{out:?}");
}

#[test]
fn a_monitor_that_makes_no_sense_loses_nothing() {
    let project = submitting("").file("in.ndjson", jobs(1..=2)).file("outside", "[]");
    let mut running = project.started();
    running.wait_until_it_says("it answered for 0 jobs instead of");
    project.write("outside", r#"{"b-1-1": "comitted", "b-2-1": "committed"}"#);
    running.wait_until_it_says(
        "is an unknown status; use one of `pending`, `valid`, `committed`, `invalid`, `unknown`",
    );
    project.write("outside", r#"{"b-1-1": "committed"}"#);
    let ended = running.outcome().done();
    // Logged once for one job, perhaps, and once for both.
    assert!(ended.stderr.matches("it answered for 0 jobs").count() <= 2, "{}", ended.stderr);
    let mut out = ids(&project.read("out.ndjson"));
    out.sort_unstable();
    assert_eq!(out, [1, 2]);
    assert!(project.queue("p/failed").is_empty());
}

#[test]
fn a_job_of_a_source_whose_outside_died_is_taken_out_and_its_lane_goes_on() {
    let project = submitting("queuer = { strategy = \"serial\" }").file("in.ndjson", jobs(1..=2));
    let mut running = project.started();
    running.wait_until("the first is asked for", || project.read_if_there("asked").contains("b-1-1"));
    let not_yet = project.tidegate(&["job", "cancel", "p/in/2", "--yes", "--step", "p/submit"]).failed(1);
    not_yet.says("`p/in/2` waits nowhere: all steps that read it are done with it, or have not reached it");
    let cancelled = project.tidegate(&["job", "cancel", "p/in/1", "--yes"]).done().stdout;
    assert_eq!(cancelled, "1 job of p/submit cancelled: on the error queue p/failed\n");
    running.wait_until("the second is asked for", || project.read_if_there("asked").contains("b-2-1"));
    // A late status has no effect.
    project.write("outside", r#"{"b-1-1": "committed", "b-2-1": "committed"}"#);
    let ended = running.outcome().done();
    assert_eq!(ids(&project.read("out.ndjson")), [2]);
    assert_eq!(project.queue("p/failed")[0]["message"], "cancelled while pending (handle `b-1-1`)");
    assert!(ended.stderr.contains("answered for jobs that were not polled"), "{}", ended.stderr);
    project.assert_sound();
}

#[test]
fn a_service_that_hangs_holds_up_its_own_lane_only() {
    let lanes = "{\"id\":1,\"service\":\"a\"}\n{\"id\":2,\"service\":\"b\"}\n{\"id\":3,\"service\":\"c\"}\n";
    let project = submitting("queuer = { strategy = \"one-round-serial\", lane = \"service\" }")
        .file("in.ndjson", lanes)
        .file(
            "outside.sh",
            "#!/bin/sh\nasked=$(cat)\ncase \"$asked\" in *'\"a\"'*) exec sleep 600 ;; esac\n\
             echo \"$asked\" > asked.new\nmv asked.new asked\ntr -d '\\n' < outside\n",
        );
    project.change(
        "p.toml",
        "every = \"20ms\"",
        "every = \"20ms\", timeout = \"10m\", concurrency = 2, batch_by = \"lane\"",
    );
    let script = project.path().join("outside.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).expect("it is there");
    let mut running = project.started();
    let asked = |what: &str| project.read_if_there("asked").contains(what);
    running.wait_until("the second lane is asked for", || asked("b-2-1"));
    running.wait_until("the third lane is asked for", || asked("b-3-1"));
    // A batch is of one lane, and later polls have the other lanes again.
    running.wait_until("the second lane is asked for again", || asked("b-2-1") && !asked("b-3-1"));
    project.write("outside", r#"{"b-2-1": "committed", "b-3-1": "committed"}"#);
    running.wait_until("both are delivered", || project.read_if_there("out.ndjson").lines().count() == 2);
    let status = project.status("p/submit", "p/in");
    assert!(status["monitor"]["asked_since"].is_string(), "{status}");
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_monitor_that_fails_says_since_when_until_it_answers_well() {
    let project = submitting("").file("in.ndjson", jobs(1..=1)).file("outside", "[]");
    let mut running = project.started();
    let monitor = || project.status("p/submit", "p/in")["monitor"].clone();
    running.wait_until("it to fail", || monitor()["failing_since"].is_string());
    let failing = monitor();
    assert_eq!(failing["why"], "it answered for 0 jobs instead of 1: the answer is `[]`");
    let text = project.tidegate(&["status"]).done().stdout;
    assert!(text.contains("\n  monitor fails since 20"), "{text}");
    assert!(text.contains("), so jobs stay pending: it answered for 0 jobs"), "{text}");
    project.write("outside", r#"{"b-1-1": "comitted"}"#);
    let nonsense = "1 answer of the monitor cannot be read: `\"comitted\"` is an unknown status";
    running.wait_until("it to answer nonsense", || {
        monitor()["why"].as_str().is_some_and(|why| why.starts_with(nonsense))
    });
    assert_eq!(monitor()["failing_since"], failing["failing_since"]);
    project.write("outside", "{}");
    running.wait_until("it to answer well", || monitor()["failing_since"].is_null());
    running.stop().done();
}

#[test]
fn a_monitor_that_does_not_answer_is_told() {
    let project = submitting("").file("in.ndjson", jobs(1..=1));
    std::fs::remove_file(project.path().join("outside")).expect("it is there");
    // A reader blocks until a writer opens it.
    let made = std::process::Command::new("mkfifo").arg(project.path().join("outside")).status();
    assert!(made.expect("there is mkfifo").success());
    let mut running = project.started();
    let monitor = || project.status("p/submit", "p/in")["monitor"].clone();
    running.wait_until("it to be asked", || monitor()["asked_since"].is_string());
    assert!(monitor()["failing_since"].is_null());
    project.write("outside", r#"{"b-1-1": "committed"}"#);
    running.outcome().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
}

#[test]
fn a_job_that_is_pending_for_too_long_is_set_aside_or_submitted_again() {
    let step = |limits: &str, expect: &str| {
        format!(
            "[step.submit]\nfrom = \"in\"\nto = \"out\"\nrun = \"submit.rhai\"\nerrors = \"failed\"\n\
             [step.submit.monitor]\nrun = \"builtin:exec\"\nexec = {{ command = [\"true\"] }}\nevery = \"10s\"\n{limits}\n\
             [[test]]\nname = \"limit\"\nstep = \"submit\"\ngiven = [{{ id = 1 }}]\n\
             mock.submit.monitor = {{ \"builtin:exec\" = {{ outputs = [[\"pending\"]] }} }}\nfor = \"65s\"\n\
             expect = {expect}\n"
        )
    };
    let ttl = "it is still pending after the `ttl` of its monitor, 1m";
    let checks = "it is still pending after 3 checks, the `max_checks` of its monitor";
    for (limits, expect) in [
        (
            "ttl = \"1m\"",
            format!("{{ attempts = 1, errors = [{{ kind = \"rejected\", message = \"{ttl}\" }}] }}"),
        ),
        ("max_checks = 3", format!("{{ attempts = 1, elapsed = \"30s\", errors = [\"{checks}\"] }}")),
        ("ttl = \"25s\"\nthen = \"resubmit\"", "{ attempts = 3, waiting = 1 }".to_owned()),
        ("", "{ attempts = 1, waiting = 1 }".to_owned()),
    ] {
        let project = Project::pipeline(&step(limits, &expect))
            .file("submit.rhai", "fn process(job, ctx) { pending(`b-${job.id}-${ctx.attempt}`) }");
        project.tidegate(&["test", "."]).done().says("");
    }
}

#[test]
fn a_run_whose_sources_end_does_not_wait_for_a_halted_lane() {
    let queuer = "queuer = { strategy = \"one-round-serial\", lane = \"pool\", on_invalid = \"halt-lane\" }";
    let project = submitting(queuer)
        .file(
            "in.ndjson",
            "{\"id\":1,\"pool\":\"a\"}\n{\"id\":2,\"pool\":\"a\"}\n{\"id\":3,\"pool\":\"b\"}\n",
        )
        .file("outside", "{\"b-1-1\": \"invalid\", \"b-2-1\": \"committed\", \"b-3-1\": \"committed\"}");
    let ended = project.run().failed(1);
    let ended = ended.says("ended early, a lane has halted: ");
    ended.says("lane `a` has halted: `tidegate step resume p/submit --lane a` resumes it");
    assert_eq!(ids(&project.read("out.ndjson")), [3]);
    project.tidegate(&["step", "resume", "p/submit", "--lane", "a"]).done();
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [3, 2]);
    project.assert_sound();
}

#[test]
fn a_paused_monitor_is_not_asked_and_its_jobs_stay_pending() {
    let project =
        submitting("").file("in.ndjson", jobs(1..=2)).file("outside", "[\"committed\", \"committed\"]");
    project.change("p.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    let mut running = project.started();
    running.wait_until("they are committed", || project.read_if_there("out.ndjson").lines().count() == 2);
    running.stop().done();
    let paused = project.tidegate(&["step", "pause", "p/submit", "--monitor"]).done().stdout;
    assert_eq!(
        paused,
        "the monitor of `p/submit` is paused: it is asked nothing until `tidegate step resume p/submit --monitor`\n"
    );
    project.write("asked", "");
    project.append("in.ndjson", jobs(3..=4));
    let mut running = project.started();
    running.wait_until("they are pending", || project.status("p/submit", "p/in")["pending"] == 2);
    let status = project.tidegate(&["status"]).done().stdout;
    assert!(status.contains("monitor paused since "), "{status}");
    let shown = project.tidegate(&["job", "show", "p/in/3"]).done().stdout;
    assert!(
        shown.contains("its monitor is paused until `tidegate step resume p/submit --monitor`"),
        "{shown}"
    );
    // The step itself goes on, also after a restart.
    running.stop().done();
    let mut running = project.started();
    project.append("in.ndjson", jobs(5..=5));
    project.write("outside", "[\"committed\", \"committed\", \"committed\"]");
    running.wait_until("the next one", || project.status("p/submit", "p/in")["pending"] == 3);
    assert_eq!(project.read("asked"), "");
    let resumed = project.tidegate(&["step", "resume", "p/submit", "--monitor"]).done().stdout;
    assert_eq!(resumed, "the monitor of `p/submit` resumes\n");
    running.wait_until("all", || project.read_if_there("out.ndjson").lines().count() == 5);
    running.stop().done();
    project.assert_sound();
}
