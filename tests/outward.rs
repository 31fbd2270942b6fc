//! Tests of external calls: steps and sinks call HTTP services and run commands.

pub(crate) mod service;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use self::service::{Act, Service, answer};
use crate::project::{Outcome, Project, ids, jobs};

/// A step `charge` with these lines, whose failed jobs go to `p/failed`.
fn charging(lines: &str) -> Project {
    Project::pipeline(&format!(
        "[step.charge]\nfrom = \"in\"\nto = \"out\"\nerrors = \"failed\"\n\
         retry = {{ max_attempts = 1 }}\n{lines}\n"
    ))
}

fn id_of(path: &str) -> u64 {
    path.rsplit('/').next().and_then(|id| id.parse().ok()).expect("it ends with a number")
}

#[test]
fn a_script_judges_what_a_service_answered() {
    let service = Service::start(|asked, _| {
        let id = id_of(&asked.line);
        Act::Say(match id {
            3 => answer("404 Not Found", "", "no such order"),
            _ => answer("200 OK", "", &format!("{{\"id\":{id},\"price\":{}}}", 90 + id)),
        })
    });
    let project = charging(&format!(
        "run = [\"builtin:http\", \"judge.rhai\"]\nhttp = {{ url = \"http://{}/order/{{id}}\" }}",
        service.address
    ))
    .file("judge.rhai", "fn process(answer) { if answer.price > 92 { answer } else { () } }")
    .file("in.ndjson", jobs(1..=4));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), "{\"id\":4,\"price\":94}\n");
    let failed = project.queue("p/failed");
    assert_eq!(failed.len(), 1);
    assert_eq!((&failed[0]["kind"], &failed[0]["job"]["id"]), (&"http 404".into(), &3.into()));
    assert_eq!(failed[0]["context"], serde_json::json!({ "status": 404, "body": "no such order" }));
    let message =
        failed[0]["message"].as_str().expect("a text").replace(&service.address.to_string(), "HOST");
    assert_eq!(message, "404 Not Found: no such order (GET http://HOST/order/3)");
    // Each request is sent once, under the hash of its delivery.
    project.run().done();
    let asked = service.asked();
    assert_eq!(asked.len(), 4);
    let hash = failed[0]["hash"].as_str().expect("a text");
    assert!(asked.iter().any(|asked| asked.line.ends_with("/3") && asked.header("idempotency-key") == hash));
}

#[test]
fn a_host_is_chosen_by_the_job_out_of_a_table_and_an_unknown_one_fails_the_job() {
    let say = |name: &'static str| {
        Service::start(move |_, _| Act::Say(answer("200 OK", "", &format!("{{\"by\":\"{name}\"}}"))))
    };
    let (one, other) = (say("one"), say("other"));
    let project = charging(&format!(
        "run = \"builtin:http\"\nhttp = {{ url = \"/pay/{{id}}\", host = \"{{service}}\", \
         hosts = {{ a = \"http://{}/v1\", b = \"http://{}\" }} }}",
        one.address, other.address
    ))
    .file(
        "in.ndjson",
        "{\"id\":1,\"service\":\"a\"}\n{\"id\":2,\"service\":\"b\"}\n{\"id\":3,\"service\":\"evil.example/\"}\n{\"id\":4}\n",
    );
    project.run().done();
    let out = project.read("out.ndjson");
    assert_eq!(out.lines().collect::<BTreeSet<_>>(), ["{\"by\":\"one\"}", "{\"by\":\"other\"}"].into());
    assert_eq!(one.asked()[0].line, "GET /v1/pay/1");
    assert_eq!(other.asked()[0].line, "GET /pay/2");
    let failed = project.queue("p/failed");
    let mut messages: Vec<&str> = failed.iter().filter_map(|failed| failed["message"].as_str()).collect();
    messages.sort_unstable();
    assert_eq!(messages[0], "`host`: `evil.example/` is not one of `hosts`, which has `a` and `b`");
    assert!(messages[1].starts_with("`host`: "), "{messages:?}");
    assert_eq!(messages.len(), 2);
}

#[test]
fn a_service_over_tls_is_asked_if_somebody_trusted_vouches_for_it() {
    let service = Service::secured(|_, _| Act::Say(answer("200 OK", "", "{\"paid\":true}")));
    let asks = format!(
        "run = \"builtin:http\"\nhttp = {{ url = \"https://localhost:{}/pay/{{id}}\" }}",
        service.address.port()
    );
    let authority = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/outward/tls/authority.pem");
    let trusting = charging(&asks).file("in.ndjson", jobs(1..=2));
    let run = trusting.command(&["run", "."]).env("SSL_CERT_FILE", authority).output();
    Outcome::from(run.expect("the executable can be started")).done();
    assert_eq!(trusting.read("out.ndjson"), "{\"paid\":true}\n{\"paid\":true}\n");
    assert_eq!(service.asked().len(), 2);

    let wary = charging(&asks).file("in.ndjson", jobs(1..=1));
    wary.run().done();
    let failed = wary.queue("p/failed");
    assert_eq!(failed[0]["kind"], "connection");
    let message = failed[0]["message"].as_str().expect("a text");
    assert!(message.contains("invalid peer certificate: UnknownIssuer"), "{message}");
    assert_eq!(service.asked().len(), 2);
}

#[test]
fn a_sink_of_a_queue_tries_again_and_keeps_the_order_of_its_lanes() {
    // Each job is refused once.
    let service = Service::start(|_, before| {
        Act::Say(answer(if before % 2 == 0 { "503 Service Unavailable" } else { "200 OK" }, "", ""))
    });
    let project = Project::new()
        .file(
            "p.toml",
            format!(
                "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                 [sink.hook]\nfrom = \"in\"\ntype = \"http\"\nurl = \"http://{}/{{id}}\"\nerrors = \"failed\"\n\
                 retry = {{ backoff = \"fixed\", initial = \"1ms\", jitter = \"none\", max_attempts = 2 }}\n\
                 queuer = {{ strategy = \"one-round-serial\", lane = \"lane\", max_processing = 1 }}\ngate = \"ready\"\n\
                 [gate.ready]\nrun = \"ready.rhai\"\nevery = \"1ms\"\n",
                service.address
            ),
        )
        .file("ready.rhai", "fn open(answer, ctx) { true }")
        .file("in.ndjson", "{\"id\":1,\"lane\":\"a\"}\n{\"id\":2,\"lane\":\"a\"}\n{\"id\":3,\"lane\":\"a\"}\n");
    project.run().done();
    let lines: Vec<_> = service.asked().iter().map(|asked| asked.line.clone()).collect();
    assert_eq!(lines, ["POST /1", "POST /1", "POST /2", "POST /2", "POST /3", "POST /3"]);
    assert!(project.queue("p/failed").is_empty());
}

#[test]
fn a_step_without_processors_passes_the_jobs_of_its_filter_to_every_output() {
    let service = Service::start(|_, _| Act::Say(answer("200 OK", "", "")));
    let project = Project::pipeline(&format!(
        "[step.fork]\nfrom = \"in\"\nwhen = \"job.id > 1\"\nto = {{ hook = \"hook\", kept = \"out\" }}\n\
         [sink.hook]\ntype = \"http\"\nurl = \"http://{}/{{id}}\"\n",
        service.address
    ))
    .file("in.ndjson", jobs(1..=3));
    project.run().done();
    let sent: BTreeSet<_> = service.asked().iter().map(|asked| id_of(&asked.line)).collect();
    let kept: BTreeSet<_> = ids(&project.read("out.ndjson")).into_iter().collect();
    assert_eq!((sent, kept), ([2, 3].into(), [2, 3].into()));
}

#[test]
fn a_step_without_processors_sends_the_job_of_an_alternative_without_its_name() {
    let service = Service::start(|_, _| Act::Say(answer("200 OK", "", "")));
    let project = Project::pipeline(&format!(
        "[step.give]\nfrom = \"in\"\nto = {{ a = \"a\", b = \"b\", out = \"out\" }}\n\
         [step.some]\nalts = {{ a = \"a\", b = \"b\" }}\nwhen = '\"a\" in job && job.a.id > 1'\nto = \"hook\"\n\
         [sink.hook]\ntype = \"http\"\nurl = \"http://{}/{{id}}\"\n",
        service.address
    ))
    .file("in.ndjson", jobs(1..=2));
    project.run().done();
    let bodies: Vec<_> =
        service.asked().iter().map(|asked| (asked.line.clone(), asked.body.clone())).collect();
    assert_eq!(bodies, [("POST /2".to_owned(), "{\"id\":2}".to_owned())]);
}

#[test]
fn a_request_that_is_due_later_needs_a_queue_and_is_never_left_out() {
    let service = Service::start(|_, _| Act::Say(answer("200 OK", "", "")));
    let toml = format!(
        "[pipeline]\nerrors = \"failed\"\n\
         [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
         [step.remind]\nfrom = \"in\"\nrun = \"remind.rhai\"\nto = {{ later = \"hook\" }}\n\
         [sink.hook]\ntype = \"http\"\nurl = \"http://{}/{{id}}\"\n",
        service.address
    );
    let project = Project::new()
        .file("p.toml", &toml)
        .file("remind.rhai", "fn process(job) { if job.id == 2 { emit_in(\"later\", job, 20); } else { emit(\"later\", job); } () }")
        .file("in.ndjson", jobs(1..=3));
    project.run().done();
    let lines = || service.asked().iter().map(|asked| asked.line.clone()).collect::<BTreeSet<_>>();
    assert_eq!(lines(), ["POST /1", "POST /3"].map(str::to_owned).into());
    let failed = project.queue("p/failed");
    assert_eq!((failed.len(), &failed[0]["kind"]), (1, &"rejected".into()));
    let why =
        "the output `later` cannot be delayed, because it goes to an HTTP sink: put a queue between them";
    assert_eq!(failed[0]["message"], why);
    let sink = toml
        .replace("later = \"hook\"", "later = \"reminders\"")
        .replace("[sink.hook]", "[sink.hook]\nfrom = \"reminders\"");
    project.write("p.toml", sink);
    project.tidegate(&["errors", "retry", "p/failed/1", "--yes"]).done();
    project.run().done();
    assert_eq!(lines(), ["POST /1", "POST /2", "POST /3"].map(str::to_owned).into());
    assert_eq!(service.asked().len(), 3);
}

#[test]
fn a_service_is_a_sink_of_a_queue_and_of_a_fork() {
    let service = Service::start(|asked, _| {
        let refused = asked.body.contains("\"id\":2");
        Act::Say(answer(if refused { "422 Unprocessable Entity" } else { "202 Accepted" }, "", "noted"))
    });
    let project = Project::new()
        .file(
            "p.toml",
            format!(
                "[pipeline]\nerrors = \"failed\"\n\
                 [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                 [step.split]\nfrom = \"in\"\nrun = \"split.rhai\"\nto = {{ kept = \"kept\", told = \"hook\" }}\n\
                 [sink.hook]\ntype = \"http\"\nurl = \"http://{0}/hook\"\n\
                 [sink.later]\nfrom = \"kept\"\ntype = \"http\"\nmethod = \"PUT\"\nurl = \"http://{0}/later/{{id}}\"\n",
                service.address
            ),
        )
        .file("split.rhai", "fn process(job) { #{ kept: job, told: [#{ id: job.id, n: 1 }, #{ id: job.id, n: 2 }] } }")
        .file("in.ndjson", jobs(1..=3));
    project.run().done();
    let asked = service.asked();
    let mut lines: Vec<_> = asked.iter().map(|asked| format!("{} {}", asked.line, asked.body)).collect();
    lines.sort();
    // A batch is refused as a whole, and is not kept either.
    assert_eq!(
        lines,
        [
            "POST /hook {\"id\":1,\"n\":1}",
            "POST /hook {\"id\":1,\"n\":2}",
            "POST /hook {\"id\":2,\"n\":1}",
            "POST /hook {\"id\":3,\"n\":1}",
            "POST /hook {\"id\":3,\"n\":2}",
            "PUT /later/1 {\"id\":1}",
            "PUT /later/3 {\"id\":3}",
        ]
    );
    let mut keys: Vec<_> = asked.iter().map(|asked| asked.header("idempotency-key").to_owned()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), asked.len(), "{keys:?}");
    assert_eq!(project.queue("p/failed").len(), 1);
    let drawn = project.tidegate(&["graph", "."]).done().stdout;
    assert!(drawn.contains("http sink"), "{drawn}");
    project.run().done();
    assert_eq!(service.asked().len(), asked.len());
}

#[test]
fn requests_of_finished_jobs_that_wait_in_order_are_made_once_though_the_runner_dies() {
    let is_open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&is_open);
    let service = Service::start(move |asked, _| {
        while asked.body.contains("\"id\":1") && !gate.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        Act::Say(answer("202 Accepted", "", "noted"))
    });
    let project = Project::new()
        .file(
            "p.toml",
            format!(
                "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                 [step.split]\nfrom = \"in\"\nrun = \"split.rhai\"\nto = {{ kept = \"kept\", hook = \"hook\" }}\n\
                 timeout = \"1h\"\nqueuer = {{ strategy = \"fifo\", max_processing = 8, ordered = true }}\n\
                 [sink.kept]\ntype = \"file\"\npath = \"kept.ndjson\"\n\
                 [sink.hook]\ntype = \"http\"\nurl = \"http://{}/hook\"\n",
                service.address
            ),
        )
        .file("split.rhai", "fn process(job) { #{ kept: job, hook: job } }")
        .file("in.ndjson", jobs(1..=4));
    let mut running = project.started();
    for job in ["p/in/2", "p/in/3", "p/in/4"] {
        running.wait_until("the end of a job behind the first one", || {
            project
                .tidegate(&["job", "show", job])
                .stdout
                .contains("it is finished, and delivered in the order")
        });
    }
    assert!(running.kill());
    is_open.store(true, Ordering::Relaxed);
    project.run().done();
    assert_eq!(ids(&project.read("kept.ndjson")), [1, 2, 3, 4]);
    let mut asked: Vec<u64> = service.asked().iter().flat_map(|asked| ids(&asked.body)).collect();
    asked.sort_unstable();
    assert_eq!(asked, [1, 1, 2, 3, 4]);
    assert_eq!(project.status("p/split", "p/in")["given"], 8);
    project.assert_sound();
}

#[test]
fn what_was_asked_when_the_runner_died_is_asked_again_under_the_same_hash() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let service = Service::start(move |_, before| {
        let _ = tell.lock().expect("no thread panics with it").send(());
        if before == 0 { Act::Hang(Vec::new()) } else { Act::Say(answer("200 OK", "", "{\"id\":1}")) }
    });
    let lines = format!(
        "run = \"builtin:http\"\nhttp = {{ url = \"http://{}/\", method = \"POST\" }}\ntimeout = \"60s\"",
        service.address
    );
    let project = charging(&lines).file("in.ndjson", jobs(1..=1));
    let running = project.start(&["run", "."]);
    told.recv().expect("it is asked");
    drop(running);
    assert_eq!(project.begun("p/charge"), 1);
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
    let asked = service.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"));
    assert_eq!(asked[0].body, asked[1].body);
    project.assert_sound();
}

#[test]
fn what_was_asked_when_the_runner_died_is_run_though_the_step_asks_nobody_any_more() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let service = Service::start(move |_, _| {
        let _ = tell.lock().expect("no thread panics with it").send(());
        Act::Hang(Vec::new())
    });
    let lines = format!(
        "run = \"builtin:http\"\nhttp = {{ url = \"http://{}/\", method = \"POST\" }}\ntimeout = \"60s\"",
        service.address
    );
    let project =
        charging(&lines).file("in.ndjson", jobs(1..=3)).file("pass.rhai", "fn process(job) { job }");
    let running = project.start(&["run", "."]);
    told.recv().expect("it is asked");
    drop(running);
    assert!(project.begun("p/charge") > 0);
    project.change("p.toml", &lines, "run = \"pass.rhai\"");
    project.run().done();
    let mut through = ids(&project.read("out.ndjson"));
    through.sort_unstable();
    assert_eq!(through, [1, 2, 3]);
    project.assert_sound();
}

#[test]
fn a_secret_reaches_the_service_and_nobody_else() {
    let service = Service::start(|asked, _| {
        Act::Say(answer("401 Unauthorized", "", &format!("{} does not do", asked.header("authorization"))))
    });
    let project = charging(&format!(
        "run = \"builtin:http\"\nhttp = {{ url = \"http://{}/${{file:key}}\", headers = {{ authorization = \"Bearer ${{file:key}}\" }} }}",
        service.address
    ))
    .file("key", "hunter2-hunter2\n")
    .file("in.ndjson", jobs(1..=1));
    let ran = project.run().done();
    assert_eq!(service.asked()[0].line, "GET /hunter2-hunter2");
    assert_eq!(service.asked()[0].header("authorization"), "Bearer hunter2-hunter2");
    let failed = project.queue("p/failed");
    let shown = project.tidegate(&["graph", ".", "--format", "json"]).done().stdout;
    let all = format!("{}{}{failed:?}{shown}", ran.stdout, ran.stderr);
    assert!(all.contains("Bearer … does not do") && !all.contains("hunter2"), "{all}");
}

const COMMAND: &str = r#"#!/bin/sh
read -r job
[ "$1" = 2 ] && { echo "no $1 here" >&2; exit 3; }
[ "$1" = 3 ] && { echo "{\"id\":$1,\"half\":"; exit 0; }
echo "{\"id\":$1,\"job\":$job,\"hash\":\"$TIDEGATE_HASH\",\"attempt\":$TIDEGATE_ATTEMPT}"
echo "{\"id\":$1,\"folder\":\"$(basename "$PWD")\"}"
"#;

#[test]
fn a_command_beside_the_file_that_names_it_runs_for_each_job() {
    let project = charging(
        "run = \"builtin:exec\"\nexec = { command = [\"./bin/charge.sh\", \"{id}\"], cwd = \"work\" }",
    )
    .file("bin/charge.sh", COMMAND)
    .file("work/x", "")
    .file("in.ndjson", jobs(1..=3));
    let path = project.path().join("bin/charge.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    // Also from another folder.
    let elsewhere = tempfile::TempDir::new().expect("a temporary folder can be made");
    let folder = project.path().display().to_string();
    let mut command = project.command(&["run", &folder]);
    command.current_dir(elsewhere.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let ran = command.output().expect("the executable can be started");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let failed = project.queue("p/failed");
    let mut told: Vec<_> = failed.iter().map(|failed| (&failed["kind"], &failed["message"])).collect();
    // They ran in parallel.
    told.sort_by_key(|(kind, _)| kind.as_str());
    insta::assert_debug_snapshot!(told);
    let given = project.read("out.ndjson");
    let hash = given.split("\"hash\":\"").nth(1).and_then(|rest| rest.get(..32)).expect("it has a hash");
    assert_eq!(
        given.replace(hash, "HASH"),
        "{\"id\":1,\"job\":{\"id\":1},\"hash\":\"HASH\",\"attempt\":1}\n{\"id\":1,\"folder\":\"work\"}\n"
    );
}

#[test]
fn a_command_of_a_file_that_is_named_without_a_folder_runs_in_the_current_one() {
    let script = "#!/bin/sh\necho \"{\\\"folder\\\":\\\"$(basename \"$PWD\")\\\"}\"\n";
    let project = Project::new().file("bin/where.sh", script).file("in.ndjson", jobs([1])).file(
        "p.toml",
        "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
         [source.lines]\ntype = \"exec\"\ncommand = [\"bin/where.sh\"]\nformat = \"ndjson\"\n\
         [step.charge]\nfrom = \"in\"\nrun = \"builtin:exec\"\nexec = { command = [\"bin/where.sh\"] }\nto = \"out\"\n\
         retry = { max_attempts = 1 }\n\
         [step.pass]\nfrom = \"lines\"\nto = \"out\"\n\
         [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
    );
    let path = project.path().join("bin/where.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut command = project.command(&["run", "p.toml"]);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let ran = command.output().expect("the executable can be started");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let name = project.path().file_name().expect("it has a name").to_string_lossy().into_owned();
    let there = format!("{{\"folder\":\"{name}\"}}\n");
    assert_eq!(project.read("out.ndjson"), there.repeat(2));
}

#[test]
fn a_command_that_hangs_fails_its_job_and_no_other() {
    let script = "if [ $1 = 2 ]; then sleep 1000; else echo $1; fi";
    let project = charging(&format!(
        "run = \"builtin:exec\"\nexec = {{ command = [\"/bin/sh\", \"-c\", \"{script}\", \"sh\", \"{{id}}\"] }}\ntimeout = \"5s\""
    ))
    .file("in.ndjson", jobs(1..=3));
    let mut command = project.command(&["run", "."]);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let ran = command.output().expect("the executable can be started");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let mut given: Vec<_> = project.read("out.ndjson").lines().map(str::to_owned).collect();
    given.sort();
    assert_eq!(given, ["1", "3"]);
    let failed = project.queue("p/failed");
    assert_eq!(
        (failed.len(), &failed[0]["kind"], &failed[0]["job"]["id"]),
        (1, &"timeout".into(), &2.into())
    );
}

/// Number of requests that a service holds at once.
const CALLS: u64 = 300;

#[test]
fn calls_are_bounded_by_max_processing_alone_and_keep_no_thread_each() {
    // While other tests keep the processors busy, more threads start the calls, and stay. A thread of each call would be
    // there in every run.
    assert!((0..3).any(|_| threads_of_held_calls() < CALLS / 3), "many threads, in three runs");
}

/// Runs as many calls at once as `max_processing` allows, and a few more afterwards. Returns the number of threads
/// while the service holds them.
fn threads_of_held_calls() -> u64 {
    let go = Arc::new((Mutex::new(false), Condvar::new()));
    let gate = Arc::clone(&go);
    let service = Service::start(move |asked, _| {
        let (open, opened) = &*gate;
        let open = open.lock().expect("no thread panics with it");
        drop(opened.wait_while(open, |open| !*open).expect("no thread panics with it"));
        Act::Say(answer("200 OK", "", &format!("{{\"id\":{}}}", id_of(&asked.line))))
    });
    // A script before the request, and one behind it.
    let project = charging(&format!(
        "run = [\"pass.rhai\", \"builtin:http\", \"pass.rhai\"]\ntimeout = \"10m\"\n\
         http = {{ url = \"http://{}/{{id}}\" }}\nqueuer = {{ strategy = \"fifo\", max_processing = {CALLS} }}",
        service.address
    ))
    .file("pass.rhai", "fn process(job) { job }")
    .file("in.ndjson", jobs(1..=CALLS + 20));
    let mut running = project.start(&["run", "."]);
    running.wait_until("all calls", || service.asked().len() as u64 == CALLS);
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).expect("it runs");
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("a line");
    let threads: u64 = threads.trim().parse().expect("a number");
    println!("{threads} threads");
    assert_eq!(service.asked().len() as u64, CALLS);
    *go.0.lock().expect("no thread panics with it") = true;
    go.1.notify_all();
    running.outcome().done();
    let mut out = ids(&project.read("out.ndjson"));
    out.sort_unstable();
    assert_eq!(out, (1..=CALLS + 20).collect::<Vec<_>>());
    threads
}

#[test]
fn each_piece_of_a_job_is_a_call_and_each_answer_goes_on() {
    let service = Service::start(|asked, _| {
        Act::Say(answer("200 OK", "", &format!("{{\"id\":{}}}", id_of(&asked.line))))
    });
    let address = service.address;
    let project = Project::new()
        .file(
            "p.toml",
            format!(
                "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                 [sink.hook]\ntype = \"http\"\nurl = \"http://{address}/hook/{{id}}\"\n\
                 [step.charge]\nfrom = \"in\"\nto = \"hook\"\n\
                 run = [\"split.rhai\", \"builtin:http\", \"double.rhai\"]\n\
                 http = {{ url = \"http://{address}/{{id}}\" }}\n"
            ),
        )
        .file("split.rhai", "fn process(job) { [#{ id: 10 * job.id }, #{ id: 10 * job.id + 1 }] }")
        .file("double.rhai", "fn process(job) { job.id *= 2; job }")
        .file("in.ndjson", jobs(1..=2));
    project.run().done();
    let asked = service.asked();
    let mut lines: Vec<&str> = asked.iter().map(|asked| &*asked.line).collect();
    lines.sort_unstable();
    let (gets, posts) = lines.split_at(4);
    assert_eq!(gets, ["GET /10", "GET /11", "GET /20", "GET /21"]);
    assert_eq!(posts, ["POST /hook/20", "POST /hook/22", "POST /hook/40", "POST /hook/42"]);
    let keys: BTreeSet<_> = asked.iter().map(|asked| asked.header("idempotency-key")).collect();
    assert_eq!(keys.len(), 8);
}
