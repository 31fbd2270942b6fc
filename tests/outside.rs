//! Tests of completions: an external system completes pending jobs, and an answer of 200 is final.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::exec_source;
use crate::http_client::{Answer, Client, address};
use crate::project::{Project, ids, jobs};
use crate::running::Running;

/// The external system identifies a job by its token.
const SUBMIT: &str = "fn process(job, ctx) { pending(ctx.token) }";

/// A step `submit` with these settings, whose jobs arrive over HTTP.
pub(crate) fn project(settings: &str) -> Project {
    let toml = format!(
        "[source.in]\ntype = \"http\"\n[queue.in]\nretain = \"forever\"\n\
         [step.submit]\nfrom = \"in\"\nrun = \"submit.rhai\"\nto = \"out\"\nerrors = \"failed\"\n{settings}\n\
         [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
    );
    Project::new()
        .file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\nshutdown_timeout = \"5s\"\n")
        .file("p.toml", toml)
        .file("submit.rhai", SUBMIT)
}

pub(crate) fn started(project: &Project) -> (Running, Client, String) {
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    (running, Client::new(&place), place)
}

/// Pushes jobs with these ids.
pub(crate) fn push(client: &mut Client, ids: std::ops::RangeInclusive<u64>) {
    let lines = jobs(ids);
    assert_eq!(client.request("POST /sources/p/in", &[crate::http_client::NDJSON], &lines).status, 202);
}

/// Sends a completion of a job.
pub(crate) fn say(client: &mut Client, index: u64, token: &str, body: &str) -> Answer {
    let line = format!("POST /jobs/p/in/{index}/complete");
    client.request(&line, &[&format!("authorization: Bearer {token}")], body)
}

/// The outcome of a job at the step.
pub(crate) fn outcome(client: &mut Client, index: u64) -> Value {
    at_submit(&client.job(&format!("p/in/{index}")))
}

fn at_submit(job: &Value) -> Value {
    let steps = job["steps"].as_array().expect("a list");
    steps.iter().find(|step| step["step"] == "p/submit").expect("it reads the source").clone()
}

/// Waits until the job is pending. Returns its token.
pub(crate) fn token(running: &mut Running, client: &mut Client, index: u64) -> String {
    let mut handle = String::new();
    running.wait_until("it is pending", || {
        let outcome = outcome(client, index);
        outcome["handle"].as_str().unwrap_or_default().clone_into(&mut handle);
        outcome["status"] == "pending"
    });
    assert_eq!(handle.len(), 32, "{handle}");
    handle
}

/// The settings of an ordered and of a queued step.
const STEPS: [&str; 2] = ["", "queuer = { strategy = \"one-round-serial\", lane = \"id\" }"];

#[test]
fn what_the_outside_says_becomes_of_jobs() {
    for settings in STEPS {
        let project = project(settings);
        let (mut running, mut client, _) = started(&project);
        push(&mut client, 1..=4);
        let tokens: Vec<String> = (1..=4).map(|index| token(&mut running, &mut client, index)).collect();
        assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 4);
        assert!(outcome(&mut client, 1)["since"].is_string());
        // An empty body completes the job.
        let answer = say(&mut client, 1, &tokens[0], "");
        let stands = json!({ "job": "p/in/1", "step": "p/submit", "status": "committed" });
        assert_eq!((answer.status, answer.body), (200, stands));
        let result = r#"{"status": "committed", "result": {"id": 2, "block": 7}}"#;
        assert_eq!(say(&mut client, 2, &tokens[1], result).status, 200);
        let refused = r#"{"status": "invalid", "reason": "spent twice", "result": {"block": 7}}"#;
        assert_eq!(say(&mut client, 3, &tokens[2], refused).status, 200);
        // The external system has forgotten the job: it is submitted again, under the same token.
        assert_eq!(say(&mut client, 4, &tokens[3], "\"unknown\"").status, 200);
        running.wait_until("it is there again", || {
            let outcome = outcome(&mut client, 4);
            outcome["status"] == "pending" && outcome["attempts"] == 2
        });
        assert_eq!(token(&mut running, &mut client, 4), tokens[3]);
        assert_eq!(say(&mut client, 4, &tokens[3], "\"valid\"").body["status"], "valid");
        assert_eq!(outcome(&mut client, 4)["external_status"], "valid");
        let back = say(&mut client, 4, &tokens[3], "\"pending\"");
        assert_eq!((back.status, back.error()), (409, "job p/in/4 is valid and cannot become pending"));
        assert_eq!(say(&mut client, 4, &tokens[3], "\"committed\"").status, 200);
        running.wait_until("all are through", || project.read_if_there("out.ndjson").lines().count() == 3);
        running.wait_until("one has failed", || outcome(&mut client, 3)["status"] == "failed");
        assert_eq!(outcome(&mut client, 3)["reason"], "spent twice");
        running.stop().done();
        let mut out: Vec<_> = project.read("out.ndjson").lines().map(str::to_owned).collect();
        out.sort();
        assert_eq!(out, [r#"{"id": 2, "block": 7}"#, r#"{"id":1}"#, r#"{"id":4}"#]);
        let failed = project.queue("p/failed");
        assert_eq!(
            (failed.len(), &failed[0]["kind"], &failed[0]["attempt"]),
            (1, &json!("rejected"), &json!(1))
        );
        assert_eq!(failed[0]["result"], json!({ "block": 7 }));
        project.assert_sound();
    }
}

#[test]
fn a_repeated_completion_is_taken_once_and_a_different_one_is_refused() {
    for settings in STEPS {
        let project = project(settings);
        let (mut running, mut client, _) = started(&project);
        push(&mut client, 1..=1);
        let token = token(&mut running, &mut client, 1);
        let mut said = |body| {
            let answer = say(&mut client, 1, &token, body);
            (answer.status, answer.body["known"] == true, answer.body["error"].as_str().map(str::to_owned))
        };
        assert_eq!(said("\"valid\""), (200, false, None));
        assert_eq!(said("\"valid\""), (200, true, None));
        assert_eq!(said("{\"status\":\"committed\"}"), (200, false, None));
        let otherwise = "job p/in/1 was already completed as `committed`";
        // It may be delivered, or not yet: that makes no difference.
        for _ in 0..2 {
            assert_eq!(said("{\"status\":\"committed\"}"), (200, true, None));
            assert_eq!(said(""), (200, true, None));
            assert_eq!(said("\"invalid\""), (409, false, Some(otherwise.to_owned())));
            assert_eq!(said("{\"status\":\"committed\",\"result\":1}").0, 409);
            running.wait_until("it is delivered", || project.read_if_there("out.ndjson") == jobs(1..=1));
        }
        // Nor does a restart.
        running.stop().done();
        let (running, mut client, _) = started(&project);
        assert_eq!(say(&mut client, 1, &token, "").body["known"], true);
        assert_eq!(say(&mut client, 1, &token, "\"unknown\"").status, 409);
        running.stop().done();
        assert_eq!(project.read("out.ndjson"), jobs(1..=1));
        assert!(project.queue("p/failed").is_empty());
    }
}

#[test]
fn what_many_say_at_the_same_moment_is_taken_once() {
    const JOBS: u64 = 40;
    for settings in STEPS {
        let project = project(settings);
        let (mut running, mut client, place) = started(&project);
        push(&mut client, 1..=JOBS);
        let tokens: Vec<_> =
            (1..=JOBS).map(|index| (index, token(&mut running, &mut client, index))).collect();
        let (tokens, taken) = (Arc::new(tokens), Arc::new(AtomicUsize::new(0)));
        let callers = (0..8).map(|caller| {
            let (tokens, taken, mut client) = (Arc::clone(&tokens), Arc::clone(&taken), Client::new(&place));
            thread::spawn(move || {
                for at in 0..tokens.len() {
                    // Half of the callers use the reverse order.
                    let at = if caller % 2 == 0 { at } else { tokens.len() - 1 - at };
                    let (index, token) = &tokens[at];
                    let mut answer = say(&mut client, *index, token, "");
                    while answer.header("retry-after").is_some() {
                        answer = say(&mut client, *index, token, "");
                    }
                    assert_eq!(answer.status, 200, "{answer:?}");
                    taken.fetch_add(usize::from(answer.body["known"].is_null()), Ordering::Relaxed);
                }
            })
        });
        callers.collect::<Vec<_>>().into_iter().for_each(|caller| caller.join().expect("nothing failed"));
        assert_eq!(taken.load(Ordering::Relaxed) as u64, JOBS);
        running.wait_until("all are through", || project.read_if_there("out.ndjson").lines().count() >= 40);
        running.stop().done();
        let mut out = ids(&project.read("out.ndjson"));
        out.sort_unstable();
        assert_eq!(out, (1..=JOBS).collect::<Vec<_>>());
        project.assert_sound();
    }
}

#[test]
fn only_a_token_opens_and_what_is_said_has_to_mean_something() {
    let project = project("config = { fork = true }")
        .file("submit.rhai", "fn process(job, ctx) { if job.id == 2 { reject(\"no\") } pending(ctx.token) }");
    let (mut running, mut client, place) = started(&project);
    push(&mut client, 1..=2);
    let token = token(&mut running, &mut client, 1);
    let mut told = Vec::new();
    let mut post = |path: &str, header: &str, body: &str| {
        // A refusal may close the connection.
        let answer = Client::new(&place).request(path, &[header], body);
        let more = answer.header("allow").map(|allow| format!(" (allow: {allow})")).unwrap_or_default();
        let shown = format!("{path} {body}").replace(&token, "TOKEN");
        told.push(format!("{shown}\n  {} {}{more}", answer.status, answer.error()));
    };
    let right = format!("authorization: Bearer {token}");
    let wrong = format!("authorization: Bearer {}", token.replace(&token[..1], "x"));
    let path = "POST /jobs/p/in/1/complete";
    post(path, "a: b", "");
    post(path, &wrong, "");
    post(&format!("{path}?token={token}x"), "a: b", "");
    // It does not reveal which jobs exist.
    for other in ["p/in/2", "p/in/99", "p/im/1", "q/in/1", "p/in/0"] {
        post(&format!("POST /jobs/{other}/complete"), &right, "");
    }
    post("GET /jobs/p/in/1/complete", &right, "");
    for body in
        ["{\n  \"status\": done\n}", "\"done\"", "{}", "null", "{\"status\":\"committed\",\"result\":}"]
    {
        post(path, &right, body);
    }
    insta::assert_snapshot!(told.join("\n"));
    let mut large = Client::new(&place);
    large
        .send(
            format!("{path} HTTP/1.1\r\nhost: localhost\r\n{right}\r\ncontent-length: 2147483648\r\n\r\n")
                .as_bytes(),
        )
        .expect("it listens");
    let answer = large.answer().expect("it answers without reading that");
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")), "{answer:?}");
    assert_eq!(outcome(&mut client, 1)["status"], "pending");
    // Some systems accept only a URL.
    assert_eq!(client.request(&format!("{path}?token={token}"), &[], "").status, 200);
    running.wait_until("it is delivered", || project.read_if_there("out.ndjson") == jobs(1..=1));
    running.stop().done();
}

#[test]
fn what_is_said_too_soon_can_be_said_again() {
    let project = project("exec = { command = [\"./hand.sh\"] }\ntimeout = \"10m\"\n")
        .file("hand.sh", "#!/bin/sh\necho $TIDEGATE_TOKEN > token.new\nmv token.new token\nwhile [ ! -e go ]; do sleep 0.01; done\ncat\n");
    make_executable(&project, "hand.sh");
    let toml = project.read("p.toml").replace("\"submit.rhai\"", "[\"builtin:exec\", \"submit.rhai\"]");
    project.write("p.toml", toml);
    let (mut running, mut client, _) = started(&project);
    push(&mut client, 1..=1);
    running.wait_until("it is handed on", || !project.read_if_there("token").is_empty());
    let token = project.read("token").trim().to_owned();
    let early = say(&mut client, 1, &token, "");
    assert_eq!((early.status, early.header("retry-after")), (409, Some("1")), "{early:?}");
    insta::assert_snapshot!(early.error(), @"job p/in/1 is begun at step `p/submit`, and not pending yet: send the completion again");
    project.write("go", "");
    assert_eq!(self::token(&mut running, &mut client, 1), token);
    assert_eq!(say(&mut client, 1, &token, "").status, 200);
    running.wait_until("it is delivered", || project.read_if_there("out.ndjson") == jobs(1..=1));
    running.stop().done();
}

#[test]
fn what_is_said_of_a_job_that_was_forgotten_can_be_said_when_it_is_there_again() {
    for settings in STEPS {
        let project = project(settings).file(
            "submit.rhai",
            "fn process(job, ctx) { if ctx.attempt == 2 { retry_in(\"1h\", \"busy\") } pending(ctx.token) }",
        );
        let (mut running, mut client, _) = started(&project);
        push(&mut client, 1..=1);
        let token = token(&mut running, &mut client, 1);
        assert_eq!(say(&mut client, 1, &token, "\"unknown\"").status, 200);
        running.wait_until("it waits", || outcome(&mut client, 1)["status"] == "delayed");
        let early = say(&mut client, 1, &token, "");
        assert_eq!((early.status, early.header("retry-after")), (409, Some("1")), "{early:?}");
        assert_eq!(
            early.error(),
            "job p/in/1 is delayed at step `p/submit`, and not pending yet: send the completion again"
        );
        project.tidegate(&["delayed", "now", "p/in/1", "--yes"]).done();
        assert_eq!(self::token(&mut running, &mut client, 1), token);
        assert_eq!(say(&mut client, 1, &token, "").status, 200);
        running.wait_until("it is delivered", || project.read_if_there("out.ndjson") == jobs(1..=1));
        // Now the completion is final.
        let late = say(&mut client, 1, &token, "\"unknown\"");
        assert_eq!((late.status, late.header("retry-after")), (409, None), "{late:?}");
        running.stop().done();
    }
}

fn make_executable(project: &Project, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path().join(script), mode).expect("it is there");
}

#[test]
fn what_was_taken_survives_a_kill_right_after_the_answer_and_is_delivered_once() {
    const JOBS: u64 = 40;
    for settings in STEPS {
        let project = project(settings);
        let (mut running, mut client, place) = started(&project);
        push(&mut client, 1..=JOBS);
        let tokens: Vec<(u64, String)> =
            (1..=JOBS).map(|index| (index, token(&mut running, &mut client, index))).collect();
        let answered = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = tokens
            .chunks(10)
            .map(|some| {
                let (some, place, answered) = (some.to_vec(), place.clone(), Arc::clone(&answered));
                thread::spawn(move || {
                    let mut client = Client::new(&place);
                    let mut taken = Vec::new();
                    for (index, token) in some {
                        let line = format!("POST /jobs/p/in/{index}/complete?token={token}");
                        let Ok(answer) = client.try_request(&line, &[], b"") else { break };
                        assert_eq!(answer.status, 200, "{answer:?}");
                        taken.push(index);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    taken
                })
            })
            .collect();
        while answered.load(Ordering::Relaxed) < 15 {
            running.pause();
        }
        assert!(running.kill());
        let taken: Vec<u64> =
            threads.into_iter().flat_map(|thread| thread.join().expect("none is wrong")).collect();
        // Accepted completions need no repetition.
        let (mut running, mut client, _) = started(&project);
        running.wait_until("accepted completions are delivered", || {
            let out: BTreeSet<u64> = project.ids_so_far("out.ndjson").into_iter().collect();
            taken.iter().all(|id| out.contains(id))
        });
        // Every completion is sent again, with or without an answer before.
        for (index, token) in &tokens {
            assert_eq!(say(&mut client, *index, token, "").status, 200);
        }
        running.wait_until("all are delivered", || project.read("out.ndjson").lines().count() as u64 >= JOBS);
        running.stop().done();
        let mut out = ids(&project.read("out.ndjson"));
        out.sort_unstable();
        assert_eq!(out, (1..=JOBS).collect::<Vec<_>>());
        assert_eq!(project.status("p/submit", "p/in")["taken"], JOBS);
        project.assert_sound();
    }
}

#[test]
fn a_monitor_that_answers_at_the_same_moment_changes_nothing() {
    const JOBS: u64 = 60;
    let project = project(
        "monitor = { run = \"builtin:exec\", exec = { command = [\"./outside.sh\"] }, every = \"5ms\" }\n",
    )
    // One line per job of the question, with the next question still unread.
    .file("outside.sh", "#!/bin/sh\nif [ -e go ]; then sed 's/{\"handle\"/\\n&/g' | grep -c '\"handle\"' | awk '{ printf \"[\"; for (i = 1; i <= $1; i++) printf \"%s\\\"committed\\\"\", i > 1 ? \",\" : \"\"; print \"]\" }'; else echo '{}'; fi\n");
    make_executable(&project, "outside.sh");
    let (mut running, mut client, _) = started(&project);
    push(&mut client, 1..=JOBS);
    let tokens: Vec<String> = (1..=JOBS).map(|index| token(&mut running, &mut client, index)).collect();
    project.write("go", "");
    for (token, index) in tokens.iter().zip(1..) {
        let answer = say(&mut client, index, token, "");
        // One of the two was first.
        assert!([200, 409].contains(&answer.status), "{answer:?}");
    }
    running
        .wait_until("all are through", || project.read_if_there("out.ndjson").lines().count() as u64 >= JOBS);
    let ended = running.stop().done();
    let mut out = ids(&project.read("out.ndjson"));
    out.sort_unstable();
    assert_eq!(out, (1..=JOBS).collect::<Vec<_>>());
    assert_eq!(project.status("p/submit", "p/in")["taken"], JOBS);
    assert!(!ended.stderr.contains("the step stops"), "{}", ended.stderr);
    project.assert_sound();
}

#[test]
fn a_job_that_is_shown_as_pending_can_be_completed_at_once() {
    for settings in STEPS {
        let project = project(settings);
        let (mut running, mut client, _) = started(&project);
        for index in 1..=100 {
            push(&mut client, index..=index);
            let token = token(&mut running, &mut client, index);
            let answer = say(&mut client, index, &token, "");
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        running.wait_until("all", || project.read_if_there("out.ndjson").lines().count() == 100);
        running.stop().done();
    }
}

#[test]
fn a_job_of_a_join_is_finished_by_its_token_under_any_of_its_inputs() {
    let toml = "[source.in]\ntype = \"http\"\n[source.other]\ntype = \"http\"\n\
        [step.submit]\njoin = { a = \"in\", b = \"other\" }\nrun = \"submit.rhai\"\nto = { left = \"left\", right = \"right\" }\n\
        errors = \"failed\"\n\
        [sink.left]\ntype = \"file\"\npath = \"left\"\n[sink.right]\ntype = \"file\"\npath = \"right\"\n";
    let project = project("").file("p.toml", toml);
    let (mut running, mut client, _) = started(&project);
    push(&mut client, 1..=2);
    client.push("p/other", "{\"id\":9}");
    let token = token(&mut running, &mut client, 1);
    let path = format!("POST /jobs/p/other/1/complete?token={token}");
    let mut post = |body: &str| {
        let answer = client.request(&path, &[], body);
        (answer.status, answer.body["error"].as_str().map(str::to_owned))
    };
    let (status, error) = post(r#"{"status": "committed", "result": {"middle": 1}}"#);
    assert_eq!(status, 400);
    insta::assert_snapshot!(error.expect("a reason"), @"the `result` has the unknown output `middle`; nothing was accepted");
    let result = r#"{"status": "committed", "result": {"left": {"id":1}}}"#;
    assert_eq!(post(result), (200, None));
    running.wait_until("it is delivered", || project.read_if_there("left") == jobs(1..=1));
    assert_eq!(post(result), (200, None));
    assert_eq!(post("").0, 409);
    running.stop().done();
    assert_eq!(project.read_if_there("right"), "");
}

#[test]
fn a_job_whose_outside_died_is_taken_out_and_what_that_says_afterwards_is_refused() {
    for settings in STEPS {
        let project = project(settings);
        let (mut running, mut client, _) = started(&project);
        push(&mut client, 1..=5);
        let tokens: Vec<String> = (1..=5).map(|index| token(&mut running, &mut client, index)).collect();
        // A cancellation of many pending jobs must be explicit.
        let left = project.tidegate(&["delayed", "cancel", "p/submit", "--yes"]).failed(1);
        left.says("5 jobs of p/submit unchanged: pending in an external system; add `--pending`");
        let cancel = |job: &str, drop: &[&str]| {
            let arguments = [&["job", "cancel", job, "--yes"], drop].concat();
            project.tidegate(&arguments).done().stdout
        };
        assert_eq!(cancel("p/in/1", &[]), "1 job of p/submit cancelled: on the error queue p/failed\n");
        assert_eq!(cancel("p/in/2", &["--drop"]), "1 job of p/submit dropped\n");
        let late = say(&mut client, 1, &tokens[0], "");
        assert_eq!((late.status, late.header("retry-after")), (409, None), "{late:?}");
        assert_eq!(late.error(), "job p/in/1 is already failed at step `p/submit`");
        assert_eq!(say(&mut client, 2, &tokens[1], "\"invalid\"").status, 409);
        assert_eq!(outcome(&mut client, 1)["status"], "failed");
        // The others are still pending.
        assert_eq!(say(&mut client, 3, &tokens[2], "").status, 200);
        running.wait_until("it is delivered", || project.read_if_there("out.ndjson") == jobs(3..=3));
        running.stop().done();
        // The same on a stopped store.
        assert_eq!(cancel("p/in/4", &[]), "1 job of p/submit cancelled: on the error queue p/failed\n");
        let many = project.tidegate(&["delayed", "cancel", "p/submit", "--pending", "--yes"]).done().stdout;
        assert_eq!(many, "1 job of p/submit cancelled: on the error queue p/failed\n");
        let (running, mut client, _) = started(&project);
        for (index, token) in (1..).zip(&tokens).filter(|(index, _)| *index != 3) {
            assert_eq!(say(&mut client, index, token, "").status, 409, "{index}");
        }
        running.stop().done();
        assert_eq!(project.read("out.ndjson"), jobs(3..=3));
        let failed = project.queue("p/failed");
        let of = |error: &Value| (error["index"].clone(), error["kind"].clone(), error["attempt"].clone());
        assert_eq!(
            failed.iter().map(of).collect::<Vec<_>>(),
            [1, 4, 5].map(|index| (json!(index), json!("rejected"), json!(1)))
        );
        let why = format!("cancelled while pending (handle `{}`)", tokens[0]);
        assert_eq!(failed[0]["message"], json!(why));
        assert_eq!(project.status("p/submit", "p/in")["taken"], 5);
        project.assert_sound();
        // From there it can be retried like any other.
        project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
        let (mut running, mut client, _) = started(&project);
        running.wait_until("it is there again", || outcome(&mut client, 1)["attempts"] == 2);
        assert_eq!(token(&mut running, &mut client, 1), tokens[0]);
        assert_eq!(say(&mut client, 1, &tokens[0], "").status, 200);
        running.wait_until("it is delivered", || project.read("out.ndjson").lines().count() == 2);
        running.stop().done();
    }
}

#[test]
fn a_paused_step_takes_what_is_said_and_delivers_it_when_it_goes_on() {
    let project = project(STEPS[1]);
    let (mut running, mut client, _) = started(&project);
    push(&mut client, 1..=1);
    let token = token(&mut running, &mut client, 1);
    project.tidegate(&["step", "pause", "p/submit"]).done();
    assert_eq!(say(&mut client, 1, &token, "").status, 200);
    let outcome = outcome(&mut client, 1);
    assert_eq!(
        (&outcome["status"], &outcome["external_status"]),
        (&json!("pending"), &json!("committed")),
        "{outcome}"
    );
    // It is not polled again, nor cancelled, nor lost.
    let left = project.tidegate(&["job", "cancel", "p/in/1", "--yes"]).failed(1);
    left.says("at step `p/submit`, the external system has finished it, and its result is being delivered");
    let told = || {
        let status = project.status("p/submit", "p/in");
        assert_eq!((&status["pending"], &status["delayed"]), (&json!(1), &json!(0)), "{status}");
        let shown = project.tidegate(&["job", "show", "p/in/1"]).done().stdout;
        let headline =
            "\n  p/submit: `committed` in the external system, and not delivered yet, after 1 attempt\n";
        assert!(shown.contains(headline), "{shown}");
        let listed = &project.json(&["delayed", "list"])["jobs"][0];
        assert_eq!(
            (&listed["waits_for"], &listed["external_status"]),
            (&json!("outside"), &json!("committed"))
        );
        let text = project.tidegate(&["delayed", "list"]).done().stdout;
        assert!(text.contains("\ncommitted as `"), "{text}");
    };
    told();
    running.stop().done();
    told();
    project.tidegate(&["delayed", "cancel", "p/submit", "--pending", "--yes"]).failed(1);
    project.tidegate(&["step", "resume", "p/submit"]).done();
    // Also by a run with `--until-idle`.
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=1));
}

#[test]
fn a_handle_that_is_too_long_is_told_and_no_job_is_lost() {
    let project = project("").file(
        "submit.rhai",
        "fn process(job, ctx) {\n\
         if job.id == 1 { let long = \"xxxxxxxxxx\"; for i in 0..20 { long += long; } pending(long) }\n\
         job }",
    );
    let (mut running, mut client, _) = started(&project);
    push(&mut client, 1..=2);
    running.wait_until("the other is delivered", || project.read_if_there("out.ndjson") == jobs(2..=2));
    running.wait_until("it is logged", || outcome(&mut client, 1)["status"] == "failed");
    let reason = outcome(&mut client, 1)["reason"].clone();
    assert_eq!(reason, "the handle of the pending job has 10.0 MiB, which exceeds 64.0 KiB");
    running.stop().done();
    assert_eq!(project.queue("p/failed")[0]["job"]["id"], 1);
}

#[test]
fn whoever_is_asked_and_never_answers_holds_up_nobody_else_and_no_stop() {
    // It accepts a connection, and does not answer.
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let asks = format!(
        "http = {{ url = \"http://{}/\" }}, every = \"10ms\", timeout = \"10m\"",
        hangs.local_addr().expect("it has an address")
    );
    let project = project(&format!(
        "monitor = {{ run = \"builtin:http\", {asks} }}\n\
         [gate.slow]\nrun = [\"builtin:http\", \"open.rhai\"]\n{}\n\
         [step.gated]\nfrom = \"in\"\ngate = \"slow\"\nto = \"gated\"\n",
        asks.replace(", every", "\nevery").replace(", timeout", "\ntimeout")
    ))
    .file("open.rhai", "fn open(answer) { true }");
    let (mut running, mut client, _) = started(&project);
    push(&mut client, 1..=2);
    let token = token(&mut running, &mut client, 1);
    let asked: Vec<_> = (0..2).map(|_| hangs.accept().expect("both are asked")).collect();
    assert_eq!(say(&mut client, 1, &token, "").status, 200);
    running.wait_until("it is delivered", || project.read_if_there("out.ndjson") == jobs(1..=1));
    let since = std::time::Instant::now();
    running.stop().done();
    // Ten minutes are the timeout.
    assert!(since.elapsed() < std::time::Duration::from_mins(1), "{:?}", since.elapsed());
    drop(asked);
    project.assert_sound();
    // The job is still pending.
    let shown = project.json(&["job", "show", "p/in/2"]);
    assert_eq!(at_submit(&shown)["status"], "pending", "{shown}");
}

#[test]
fn a_command_that_hangs_when_the_runner_ends_is_killed() {
    let settings = "monitor = { run = \"builtin:exec\", exec = { command = [\"./hang.sh\"] }, every = \"10ms\", timeout = \"10m\" }";
    let project =
        project(settings).file("hang.sh", "#!/bin/sh\necho $$ > pid.new\nmv pid.new pid\nexec sleep 600\n");
    make_executable(&project, "hang.sh");
    let (mut running, mut client, _) = started(&project);
    push(&mut client, 1..=1);
    running.wait_until("it is asked for", || !project.read_if_there("pid").is_empty());
    running.stop().done();
    let process = project.read("pid");
    let since = std::time::Instant::now();
    // The system may take a moment to end it.
    while exec_source::runs(process.trim()) {
        assert!(since.elapsed() < std::time::Duration::from_mins(1), "{process} runs on");
        thread::yield_now();
    }
}

#[test]
fn a_valid_job_makes_way_for_the_next_one_of_its_lane_if_the_queuer_lets_it() {
    let lanes = "queuer = { strategy = \"one-round-serial\", lane = \"pool\", free_lane_at = \"valid\" }";
    let project = project(lanes);
    let (mut running, mut client, _) = started(&project);
    let lines = "{\"id\":1,\"pool\":\"a\"}\n{\"id\":2,\"pool\":\"a\"}\n{\"id\":3,\"pool\":\"a\"}\n";
    assert_eq!(client.request("POST /sources/p/in", &[crate::http_client::NDJSON], lines).status, 202);
    let first = token(&mut running, &mut client, 1);
    assert_eq!(outcome(&mut client, 2)["status"], "waiting");
    assert_eq!(say(&mut client, 1, &first, "\"valid\"").status, 200);
    let second = token(&mut running, &mut client, 2);
    // The first one is still pending, and the second one holds the lane.
    assert_eq!(outcome(&mut client, 1)["external_status"], "valid");
    assert_eq!(outcome(&mut client, 3)["status"], "waiting");
    // The status is durable, so a restart does not take the lane back.
    running.kill();
    let (mut running, mut client, _) = started(&project);
    assert_eq!(say(&mut client, 2, &second, "").status, 200);
    let third = token(&mut running, &mut client, 3);
    // Each is delivered before the next one ends.
    for (outputs, index, token) in [(2, 3, third), (3, 1, first)] {
        assert_eq!(say(&mut client, index, &token, "").status, 200);
        running.wait_until("the output", || project.read_if_there("out.ndjson").lines().count() == outputs);
    }
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), [2, 3, 1]);
    project.assert_sound();
}

#[test]
fn a_lane_halts_at_an_invalid_job_until_it_is_resumed_and_the_others_go_on() {
    let strategies = ["strategy = \"one-round-serial\"", "strategy = \"fifo\", max_per_lane = 1"];
    for strategy in strategies {
        let project =
            project(&format!("queuer = {{ {strategy}, lane = \"pool\", on_invalid = \"halt-lane\" }}"));
        let (mut running, mut client, _) = started(&project);
        let lines: String = [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
            .iter()
            .flat_map(|(id, pool)| [format!("{{\"id\":{id},\"pool\":\"{pool}\"}}"), "\n".into()])
            .collect();
        assert_eq!(client.request("POST /sources/p/in", &[crate::http_client::NDJSON], &lines).status, 202);
        let first = token(&mut running, &mut client, 1);
        let third = token(&mut running, &mut client, 3);
        let invalid = "{\"status\":\"invalid\",\"reason\":\"no money\"}";
        assert_eq!(say(&mut client, 1, &first, invalid).status, 200);
        assert_eq!(say(&mut client, 3, &third, "").status, 200);
        // The other lane goes on.
        let fourth = token(&mut running, &mut client, 4);
        running.wait_until("the record", || project.queue("p/failed").len() == 1);
        assert_eq!(outcome(&mut client, 2)["status"], "waiting");
        let why = "job p/in/1 is invalid: no money";
        let shown = project.tidegate(&["job", "show", "p/in/2"]).done().stdout;
        let reason =
            "its lane `a` has halted at an invalid job until `tidegate step resume p/submit --lane a`";
        assert!(shown.contains(reason) && shown.contains(why), "{shown}");
        let status = project.tidegate(&["status"]).done().stdout;
        assert!(status.contains("lane `a` has halted since ") && status.contains(why), "{status}");
        assert_eq!(project.status("p/submit", "p/in")["held_lanes"][0]["halted"], why);
        // The halt is durable.
        running.kill();
        let (mut running, mut client, _) = started(&project);
        assert_eq!(say(&mut client, 4, &fourth, "").status, 200);
        running.wait_until("the other lane", || project.read_if_there("out.ndjson").lines().count() == 2);
        assert_eq!(outcome(&mut client, 2)["status"], "waiting");
        // The job that is tried again waits with its lane, and goes first.
        project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
        project.tidegate(&["step", "resume", "p/submit", "--lane", "a"]).done();
        let again = token(&mut running, &mut client, 1);
        assert_eq!(say(&mut client, 1, &again, "").status, 200);
        let second = token(&mut running, &mut client, 2);
        assert_eq!(say(&mut client, 2, &second, "").status, 200);
        running.wait_until("all", || project.read_if_there("out.ndjson").lines().count() == 4);
        assert_eq!(project.status("p/submit", "p/in")["held_lanes"], Value::Null);
        running.stop().done();
        project.assert_sound();
    }
}
