//! Tests of a runner under a supervisor: it answers whether it is ready, and ends at a halt if asked.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::http_client::{Client, JSON, address};
use crate::project::{Project, jobs};
use crate::running::Running;

const SETTINGS: &str = "[runner]\nlisten = \"127.0.0.1:0\"\n";

/// A step that stops at a job without an id, and one beside it. Their source never ends.
fn halting() -> Project {
    let toml = "[source.requests]\ntype = \"http\"\n\
        [step.check]\nfrom = \"requests\"\nrun = \"check.rhai\"\nto = \"out\"\n\
        [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n\
        [sink.all]\nfrom = \"requests\"\ntype = \"file\"\npath = \"all.ndjson\"\n";
    let script = "fn process(job) { if job.id == 2 { throw \"no price\" } job }";
    Project::new().file("tidegate.toml", SETTINGS).file("p.toml", toml).file("check.rhai", script)
}

fn started(project: &Project, arguments: &[&str]) -> (Running, Client) {
    let mut running = project.start(&[&["run", "."], arguments].concat());
    let client = Client::new(&address(&mut running));
    (running, client)
}

#[test]
fn a_run_with_a_stopped_step_lives_but_is_not_ready_and_names_the_step() {
    let project = halting();
    let (mut running, mut client) = started(&project, &[]);
    running.wait_until("it is ready", || client.request("GET /ready", &[], "").status == 200);
    assert_eq!(client.request("GET /ready", &[], "").body, json!({ "status": "ok" }));
    client.push("p/requests", r#"{"id":1}"#);
    client.push("p/requests", r#"{"id":2}"#);
    running.wait_until("the stop", || client.request("GET /ready", &[], "").status == 503);
    let answer = client.request("GET /ready", &[], "");
    assert_eq!(answer.body["status"], "stopped");
    assert_eq!(answer.body["steps"][0]["step"], "p/check");
    assert!(answer.body["steps"][0]["since"].is_string(), "{answer:?}");
    // The reason may show parts of a job, and the client has shown no token.
    assert!(!answer.body.to_string().contains("price"), "{answer:?}");
    assert_eq!(client.request("GET /healthz", &[], "").status, 200);
    // The other step goes on.
    client.push("p/requests", r#"{"id":3}"#);
    running.wait_until("the others", || project.read_if_there("all.ndjson") == jobs(1..=3));
    assert_eq!(client.request("POST /ready", &[JSON], "").status, 405);
    running.stop().failed(1).says("p/check");
    assert_eq!(project.read("out.ndjson"), jobs(1..=1));
}

#[test]
fn a_mended_step_is_ready_again() {
    let project = halting();
    let (mut running, mut client) = started(&project, &[]);
    client.push("p/requests", r#"{"id":2}"#);
    running.wait_until("the stop", || client.request("GET /ready", &[], "").status == 503);
    project.write("check.rhai", "fn process(job) { job }");
    running.wait_until("it is ready", || client.request("GET /ready", &[], "").status == 200);
    running.wait_until("the job", || project.read_if_there("out.ndjson") == jobs(2..=2));
    running.stop().done();
}

#[test]
fn exit_on_halt_ends_a_run_whose_source_never_ends() {
    let project = halting();
    let (running, mut client) = started(&project, &["--exit-on-halt"]);
    client.push("p/requests", r#"{"id":1}"#);
    client.push("p/requests", r#"{"id":2}"#);
    let outcome = running.outcome().failed(1);
    let outcome = outcome.says("stopping because a step has stopped (`--exit-on-halt`)");
    outcome.says("p/check stopped at job 2");
    assert_eq!(project.read("out.ndjson"), jobs(1..=1));
    project.assert_sound();
    // Beside a source that ends, it ends, too.
    let project = Project::pipeline("[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n")
        .file("work.rhai", "fn process(job) { if job.id == 2 { throw \"no\" } job }")
        .file("in.ndjson", jobs(1..=3));
    project.tidegate(&["run", ".", "--exit-on-halt"]).failed(1).says("p/work stopped at job 2");
}

/// A service manager that receives notifications.
struct Manager(UnixDatagram);

impl Manager {
    fn new(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_mins(1))).expect("time-outs can be set");
        Self(socket)
    }

    /// The lines of the next notification.
    fn next(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).expect("a notification");
        let text = str::from_utf8(&buffer[..length]).expect("it is text");
        text.lines().map(str::to_owned).collect()
    }
}

/// `tidegate run .` with its standard signals, for the service manager at this address.
fn service(project: &Project, notify: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Running {
    let mut command = Command::new("env");
    command.current_dir(project.path()).env_clear().env("NOTIFY_SOCKET", notify);
    command.envs(variables.iter().copied());
    // The tests themselves may run with hang-ups ignored, as under `nohup`.
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_tidegate"), "run", "."]).args(arguments);
    Running::start(project.path(), command)
}

#[test]
fn a_service_manager_learns_that_the_run_is_ready_reloads_and_stops() {
    let project = halting();
    let path = project.path().join("notify.sock");
    let manager = Manager::new(UnixDatagram::bind(&path).expect("a socket can be made"));
    let mut running = service(&project, path.to_str().expect("it is text"), &[], &["--no-watch"]);
    assert_eq!(manager.next(), ["READY=1", "STATUS=generation 1 runs"]);
    // Jobs are taken by then.
    let mut client = Client::new(&address(&mut running));
    client.push("p/requests", r#"{"id":1}"#);
    project.write("check.rhai", "fn process(job) { job.more = 1; job }");
    let before = monotonic_micros();
    running.signal("HUP");
    let [reloading, since] = &manager.next()[..] else { panic!("two lines") };
    assert_eq!(reloading, "RELOADING=1");
    let since: u64 =
        since.strip_prefix("MONOTONIC_USEC=").and_then(|text| text.parse().ok()).expect("a time");
    assert!(since >= before, "{since} {before}");
    assert_eq!(manager.next(), ["READY=1", "STATUS=generation 2 runs"]);
    // Mistakes leave it ready.
    project.write("check.rhai", "fn process(job) {");
    project.tidegate(&["reload"]).failed(78);
    assert_eq!(manager.next()[0], "RELOADING=1");
    assert_eq!(manager.next(), ["READY=1", "STATUS=the files have mistakes: generation 2 goes on"]);
    running.terminate();
    assert_eq!(manager.next()[0], "STOPPING=1");
    running.outcome().done();
    project.assert_sound();
}

#[test]
fn a_watchdog_gets_signs_of_life_on_an_abstract_socket() {
    let project = halting();
    // The folder of the test makes the name unique.
    let name = format!("tidegate{}", project.path().display());
    let address = SocketAddr::from_abstract_name(&name).expect("it is a name");
    let manager = Manager::new(UnixDatagram::bind_addr(&address).expect("a socket can be made"));
    let watchdog = [("WATCHDOG_USEC", "30000")];
    let running = service(&project, &format!("@{name}"), &watchdog, &[]);
    let (mut ready, mut signs) = (false, 0);
    while !ready || signs < 3 {
        match &manager.next()[0][..] {
            "READY=1" => ready = true,
            "WATCHDOG=1" => signs += u32::from(ready),
            other => panic!("{other}"),
        }
    }
    running.terminate();
    while manager.next()[0] != "STOPPING=1" {}
    running.outcome().done();
}

fn monotonic_micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).expect("it is positive")
}

#[test]
fn a_stand_by_takes_over_with_the_files_as_they_are_then() {
    let project = halting();
    let (first, mut client) = started(&project, &["--no-watch"]);
    client.push("p/requests", r#"{"id":1}"#);
    let path = project.path().join("notify.sock");
    let manager = Manager::new(UnixDatagram::bind(&path).expect("a socket can be made"));
    let mut second = service(&project, path.to_str().expect("it is text"), &[], &["--wait-for-lock"]);
    assert_eq!(manager.next(), ["READY=1", "STATUS=waiting for the store of another runner"]);
    second.wait_until_it_says("waiting for the store, which is in use by");
    let holder = format!("process {}", first.pid());
    assert!(second.stderr().contains(&holder), "{}", second.stderr());
    project.change("p.toml", "path = \"out.ndjson\"", "path = \"later.ndjson\"");
    assert!(first.kill());
    second.wait_until_it_says("taking over the store");
    assert_eq!(manager.next(), ["READY=1", "STATUS=generation 2 runs"]);
    let mut client = Client::new(&address(&mut second));
    client.push("p/requests", r#"{"id":3}"#);
    second.wait_until("the job", || project.read_if_there("later.ndjson").contains('3'));
    second.stop().done();
    project.assert_sound();
    let mut all = project.read_if_there("all.ndjson");
    assert_eq!(all.split_off(all.len() - 9), jobs(3..=3));
}

#[test]
fn a_stand_by_that_is_stopped_ends_without_a_run() {
    let project = halting();
    let (first, _) = started(&project, &[]);
    let mut second = project.start(&["run", ".", "--wait-for-lock"]);
    second.wait_until_it_says("waiting for the store");
    second.stop().done().says("stopped before the run began");
    first.stop().done();
    // Without another runner, it begins at once.
    let (third, _) = started(&project, &["--wait-for-lock"]);
    let outcome = third.stop().done();
    assert!(!outcome.stderr.contains("waiting"), "{}", outcome.stderr);
}
