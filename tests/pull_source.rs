//! Tests of logs behind HTTP in the real executable: each number of a service is a job, in order and once, across
//! kills and failures of the service.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;

use crate::outward::service::{Act, Asked, Service, answer};
use crate::project::Project;

/// The default of the source.
const CONCURRENCY: usize = 4;

/// The number that a request asks for.
fn number(asked: &Asked) -> u64 {
    let path = asked.line.split(' ').nth(1).expect("it has a path");
    path.rsplit('/').next().and_then(|number| number.parse().ok()).expect("it ends with a number")
}

fn block(number: u64) -> Act {
    Act::Say(answer("200 OK", "content-type: application/json\r\n", &format!("{{\"id\":{number}}}")))
}

fn missing() -> Act {
    Act::Say(answer("404 Not Found", "", "not yet"))
}

/// A service with the blocks up to `head`.
fn node(head: &Arc<AtomicU64>) -> Service {
    let head = Arc::clone(head);
    Service::start(move |asked, _| {
        let number = number(asked);
        if number <= head.load(Ordering::SeqCst) { block(number) } else { missing() }
    })
}

/// A pipeline that passes on the blocks of a service, with these settings of the source.
fn project(service: &Service, settings: &str) -> Project {
    let toml = format!(
        "[pipeline]\nerrors = \"failed\"\n[source.blocks]\ntype = \"http-pull\"\n\
         url = \"http://{}/blocks/{{index}}\"\nevery = \"5ms\"\n{settings}\n\
         [step.pass]\nfrom = \"blocks\"\nto = \"out\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        service.address
    );
    Project::new().file("p.toml", toml)
}

fn from_to(first: u64, last: u64) -> Vec<u64> {
    (first..=last).collect()
}

#[test]
fn a_bounded_log_is_read_in_order_and_the_run_ends() {
    // In the middle of the log the requests wait until as many as may be are in flight.
    let in_flight = Arc::new((Mutex::new(InFlight::default()), Condvar::new()));
    let counted = Arc::clone(&in_flight);
    let service = Service::start(move |asked, _| {
        let (count, changed) = &*counted;
        let mut count = count.lock().expect("no handler panics");
        count.now += 1;
        count.most = count.most.max(count.now);
        changed.notify_all();
        let few = |count: &mut InFlight| number(asked) > 200 && count.most < CONCURRENCY;
        let mut count = changed.wait_while(count, few).expect("no handler panics");
        count.now -= 1;
        block(number(asked))
    });
    let project =
        project(&service, "first = 101\nuntil = 300\nheaders = { authorization = \"Bearer open\" }");
    project.run().done();
    assert_eq!(project.ids_so_far("out.ndjson"), from_to(101, 300));
    assert_eq!(project.status("p/pass", "p/blocks")["watermark"], 200);
    let asked = service.asked();
    assert!(asked.iter().all(|asked| asked.header("authorization") == "Bearer open"));
    assert_eq!(asked.len(), 200, "each block is requested once");
    assert_eq!(in_flight.0.lock().expect("no handler panics").most, CONCURRENCY);
    // The pool may connect once more for a request while the connection of an answer is not idle yet.
    let connections = asked.iter().map(|asked| asked.connection).max();
    assert!(connections.is_some_and(|most| most <= 5 * CONCURRENCY), "{connections:?}");
    project.run().done();
    assert_eq!(service.asked().len(), 200, "all blocks are delivered");
}

/// Number of requests that a service handles at once, and the highest so far.
#[derive(Debug, Default)]
struct InFlight {
    now: usize,
    most: usize,
}

#[test]
fn a_log_that_grows_is_followed_over_kills() {
    const LAST: u64 = 2000;
    let head = Arc::new(AtomicU64::new(0));
    let service = node(&head);
    let project = project(&service, "concurrency = 8");
    let so_far = || project.ids_so_far("out.ndjson").last().copied().unwrap_or(0);
    for run in 1..=4 {
        let mut running = project.start(&["run", "."]);
        head.store(run * LAST / 4, Ordering::SeqCst);
        let wanted = run * LAST / 4 - LAST / 8;
        running.wait_until("blocks", || so_far() >= wanted);
        assert!(running.kill(), "it ended by itself");
    }
    project.tidegate(&["run", "--until-idle", "."]).done();
    assert_eq!(project.ids_so_far("out.ndjson"), from_to(1, LAST));
    project.assert_sound();
}

#[test]
fn a_failing_service_skips_no_number_and_is_in_the_status() {
    let fails = Arc::new(AtomicUsize::new(1));
    let failing = Arc::clone(&fails);
    let service = Service::start(move |asked, before| match number(asked) {
        3 if failing.load(Ordering::SeqCst) > 0 => match before % 3 {
            0 => Act::Say(answer("503 Service Unavailable", "", "busy with s3cr3t-key")),
            1 => Act::Close(Vec::new()),
            _ => Act::Say(answer("401 Unauthorized", "", "s3cr3t-key is wrong")),
        },
        number => block(number),
    });
    let settings = "until = 5\nheaders = { key = \"${KEY}\" }\n\
                    retry = { backoff = \"fixed\", initial = \"20ms\", jitter = \"none\", max_attempts = 0 }";
    let project = project(&service, settings);
    let mut command = project.command(&["run", "."]);
    command.env("KEY", "s3cr3t-key");
    let mut running = crate::running::Running::start(project.path(), command);
    let fails_again = || project.json(&["status"])["sources"][0]["failures"].as_u64().unwrap_or(0) > 2;
    running.wait_until_it_says("the next request is at");
    running.wait_until("failures", fails_again);
    // A request may be in progress at this moment.
    let mut status = String::new();
    running.wait_until("the time of the next request", || {
        status = project.tidegate(&["status"]).done().stdout;
        status.contains("source p/blocks (http-pull): asks again at ")
    });
    assert!(!status.contains("s3cr3t"), "{status}");
    assert_eq!(project.ids_so_far("out.ndjson"), from_to(1, 2));
    fails.store(0, Ordering::SeqCst);
    let outcome = running.outcome().done();
    assert!(!outcome.stderr.contains("s3cr3t"), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("the next request is at").count(), 1, "{}", outcome.stderr);
    outcome.says("the service answers again");
    assert_eq!(project.ids_so_far("out.ndjson"), from_to(1, 5));
}

#[test]
fn the_steps_of_a_service_stop_when_the_policy_gives_up() {
    let service = Service::answering("500 Internal Server Error", "", "no");
    let project = project(&service, "retry = { backoff = \"fixed\", initial = \"1ms\", max_attempts = 2 }");
    project.tidegate(&["run", "--exit-on-halt", "."]).failed(1).says("(all 2 attempts failed)");
}

#[test]
fn an_answer_that_is_no_job_is_on_the_error_queue_with_its_number() {
    let service = Service::start(|asked, _| match number(asked) {
        12 => Act::Say(answer("200 OK", "content-type: application/json\r\n", "{\"id\":")),
        13 => Act::Say(answer("200 OK", "", "[1,2]")),
        14 => Act::Say(answer("200 OK", "", "plain")),
        number => block(number),
    });
    let project = project(&service, "first = 11\nuntil = 15");
    project.run().done();
    let [one, list, text, last] =
        &project.read("out.ndjson").lines().map(str::to_owned).collect::<Vec<_>>()[..]
    else {
        panic!("{}", project.read("out.ndjson"))
    };
    assert_eq!([&**one, list, text, last], ["{\"id\":11}", "[1,2]", "\"plain\"", "{\"id\":15}"]);
    let errors = project.queue("p/failed");
    assert_eq!((errors.len(), &errors[0]["index"], &errors[0]["file"]["line"]), (1, &json!(2), &json!(12)));
}

#[test]
fn a_reload_keeps_the_progress_of_a_changed_source() {
    let head = Arc::new(AtomicU64::new(50));
    let service = node(&head);
    let project = project(&service, "");
    let mut running = project.start(&["run", "."]);
    running.wait_until("blocks", || project.ids_so_far("out.ndjson").len() == 50);
    project.change("p.toml", "every = \"5ms\"", "every = \"6ms\"\nconcurrency = 2");
    project.tidegate(&["reload"]).done();
    head.store(60, Ordering::SeqCst);
    running.wait_until("more blocks", || project.ids_so_far("out.ndjson").len() == 60);
    running.stop().done();
    assert_eq!(project.ids_so_far("out.ndjson"), from_to(1, 60));
}

#[test]
fn graph_job_and_tests_know_a_log_behind_http() {
    let service = node(&Arc::new(AtomicU64::new(3)));
    let test = "\n[[test]]\nname = \"a block\"\ngiven = { blocks = [{ id = 7 }] }\nexpect = { out = [{ id = 7 }] }\n";
    let project = project(&service, "first = 2\nuntil = 3");
    project.append("p.toml", test);
    project.tidegate(&["test"]).done();
    assert_eq!(service.asked().len(), 0, "a test makes no request");
    assert!(project.tidegate(&["graph"]).done().stdout.contains("http-pull"));
    project.run().done();
    let job = project.tidegate(&["job", "show", "p/blocks/2"]).done().stdout;
    assert!(job.contains(&format!("GET http://{}/blocks/3", service.address)), "{job}");
}
