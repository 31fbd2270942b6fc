//! Tests of the port and the local socket: they refuse foreign requests, and bound the cost of idle clients.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tidegate_config::LoadOptions;
use tidegate_dispatch::RunOutcome;
use tidegate_engine::{Generation, Run, RunOptions};
use tidegate_model::{Address, SystemClock};
use tidegate_store::open_disk;
use tidegate_store::testing::FaultyDisk;

use crate::http_client::{Client, JSON, NDJSON, address};
use crate::project::{Project, jobs};
use crate::running::{Running, in_a_process};

const SETTINGS: &str = "[runner]\nlisten = \"127.0.0.1:0\"\nhosts = [\"Tide.example\"]\n";

/// A source `in`, whose jobs are kept, and further settings.
fn project(rest: &str) -> Project {
    let toml = format!("[source.in]\ntype = \"http\"\n{rest}\n[queue.in]\nretain = \"forever\"\n{SINK}");
    Project::new().file("tidegate.toml", SETTINGS).file("p.toml", toml)
}

const SINK: &str = "[sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n";

/// Starts a runner under a limit of open files that it cannot raise.
fn started_with_files(project: &Project, files: u32) -> (Running, String) {
    let script = format!("ulimit -n {files} && exec \"$0\" run .");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
    command.current_dir(project.path()).env_clear().stdin(Stdio::null());
    let mut running = Running::start(project.path(), command);
    let place = address(&mut running);
    (running, place)
}

fn started(project: &Project) -> (Running, String) {
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    (running, place)
}

/// Sends one request unchanged, on a connection of its own. Returns its status and its error.
fn ask(place: &str, head: &str, body: &str) -> (u16, String) {
    let mut client = Client::new(place);
    let length = body.len();
    client.send(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).expect("it listens");
    let answer = client.answer().expect("it answers");
    (answer.status, answer.body["error"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_page_that_had_its_name_lead_here_is_refused() {
    let project = project("");
    let (running, place) = started(&project);
    let port = place.rsplit(':').next().expect("a port");
    let post = |headers: &str| {
        let head = format!("POST /sources/p/in HTTP/1.1\r\n{JSON}\r\n{headers}");
        ask(&place, &head, r#"{"id":1}"#)
    };
    let evil = post("host: evil.example\r\norigin: http://evil.example\r\n");
    assert_eq!(
        (evil.0, evil.1.starts_with("`evil.example` is not a host of this port")),
        (421, true),
        "{evil:?}"
    );
    let foreign = post(&format!("host: 127.0.0.1:{port}\r\norigin: http://evil.example\r\n"));
    assert_eq!((foreign.0, foreign.1.contains("`http://evil.example`")), (403, true), "{foreign:?}");
    for path in ["/jobs/p/in/1", "/healthz"] {
        let get = |headers: &str| ask(&place, &format!("GET {path} HTTP/1.1\r\n{headers}"), "").0;
        assert_eq!(get("host: evil.example\r\n"), 421, "{path}");
        assert_eq!(get("host: localhost\r\norigin: null\r\n"), 403, "{path}");
    }
    assert!(!project.path().join("out.ndjson").exists(), "no job was accepted");
    let own = [
        format!("host: 127.0.0.1:{port}\r\n"),
        format!("host: localhost:{port}\r\norigin: http://localhost:{port}\r\n"),
        "host: tide.example\r\norigin: https://tide.example\r\n".to_owned(),
    ];
    for headers in own {
        assert_eq!(post(&headers).0, 202, "{headers}");
    }
    running.stop().done();
}

#[test]
fn a_host_that_is_none_is_told_with_its_place() {
    let settings =
        "[runner]\nlisten = \"127.0.0.1:0\"\nhosts = [\"https://tide.example\", \"a.example:80\", \"b\"]\n";
    let project = project("").file("tidegate.toml", settings);
    let told = project.tidegate(&["check", "."]).failed(78);
    assert_eq!(told.stderr.matches("in `hosts` is not a name of a host").count(), 2, "{}", told.stderr);
    assert!(told.stderr.contains("tidegate.toml:3:10"), "{}", told.stderr);
}

#[test]
fn a_job_has_one_address_and_parameters_are_not_passed_over() {
    let project = project("");
    let (running, place) = started(&project);
    let mut client = Client::new(&place);
    client.push("p/in", r#"{"id":1}"#);
    for path in ["+1", "01", "1/", "0x1"] {
        assert_eq!(client.request(&format!("GET /jobs/p/in/{path}"), &[], "").status, 404, "{path}");
    }
    let refused = client.request("POST /sources/p/in?wait=5s", &[JSON], r#"{"id":2}"#);
    assert_eq!((refused.status, refused.error()), (400, "parameter `wait` is unknown"));
    running.stop().done();
    assert_eq!(project.queue("p/in").len(), 1);
}

#[test]
fn a_list_for_a_source_with_keys_is_told_to_come_as_lines() {
    let project = project("key = \"id\"");
    let (running, place) = started(&project);
    let mut client = Client::new(&place);
    let list = client.request("POST /sources/p/in", &[JSON], r#"[{"id":1},{"id":2}]"#);
    let error = "a list is one job and has no `id`: send one job per line as `application/x-ndjson`";
    assert_eq!((list.status, list.error()), (400, error));
    let line = client.request("POST /sources/p/in", &[NDJSON], "{\"id\":1}\n[2]\n");
    assert_eq!((line.status, line.error().starts_with("line 2: a list is one job")), (400, true), "{line:?}");
    running.stop().done();
}

#[test]
fn a_client_that_sends_all_before_it_reads_gets_the_answer() {
    let project = project("token = \"secret\"\nmax_body = \"1KiB\"");
    let (running, place) = started(&project);
    let body = "x".repeat(8 << 20);
    let token = "authorization: Bearer secret";
    let cases = [
        (401, format!("{JSON}\r\n")),
        (413, format!("{JSON}\r\n{token}\r\n")),
        (415, format!("{token}\r\n")),
    ];
    for (status, headers) in cases {
        for _ in 0..4 {
            let head = format!("POST /sources/p/in HTTP/1.1\r\nhost: localhost\r\n{headers}");
            assert_eq!(ask(&place, &head, &body).0, status);
        }
    }
    running.stop().done();
}

#[test]
fn silent_connections_are_cut_when_places_are_short_and_fail_no_job() {
    let steps = "[step.work]\nfrom = \"in\"\nrun = \"builtin:exec\"\nexec = { command = [\"cat\"] }\nto = \"done\"\n\
                 [queue.done]\nretain = \"forever\"\n";
    let project = project("").file(
        "q.toml",
        "[source.lines]\ntype = \"file\"\npath = \"lines.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
         [sink.copies]\nfrom = \"lines\"\ntype = \"file\"\npath = \"lines.out\"\n",
    );
    project.append("p.toml", steps);
    project.write("lines.ndjson", "");
    let (mut running, place) = started_with_files(&project, 80);
    let half = "POST /sources/p/in HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let silent: Vec<TcpStream> = (0..40)
        .map(|number| {
            let mut stream = TcpStream::connect(&place).expect("it listens");
            let sent = match number % 3 {
                0 => String::new(),
                1 => half.to_owned(),
                _ => format!("{half}content-length: 10\r\n\r\n{{"),
            };
            stream.write_all(sent.as_bytes()).expect("it is sent");
            stream
        })
        .collect();
    let mut client = Client::new(&place);
    assert_eq!(client.request("GET /healthz", &[], "").status, 200);
    client.push("p/in", r#"{"id":1}"#);
    project.append("lines.ndjson", jobs([7]));
    running.wait_until("both", || project.read_if_there("lines.out") == jobs([7]));
    running.wait_until("the command", || client.job("p/in/1")["steps"][0]["status"] == "done");
    project.tidegate(&["status"]).done();
    // The first of them were closed.
    let mut first = &silent[0];
    assert_eq!(first.read(&mut [0]).expect("it is closed"), 0);
    let stopped = running.stop().done();
    assert!(!stopped.stderr.contains("Too many open files"), "{}", stopped.stderr);
}

#[test]
fn a_source_that_finds_too_many_files_open_waits_and_goes_on() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"ndjson\"\nfollow = true\n\
             [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("in/1.ndjson", jobs([1]));
    let mut running = project.started();
    running.wait_until("the first", || project.read_if_there("out.ndjson") == jobs([1]));
    let pid = i32::try_from(running.pid()).ok().and_then(Pid::from_raw);
    let few = Rlimit { current: Some(3), maximum: None };
    let before = prlimit(pid, Resource::Nofile, few).or_else(|_| {
        // Only root may raise the hard limit again.
        let own = rustix::process::getrlimit(Resource::Nofile);
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(3), ..own })
    });
    let before = before.expect("a limit can be set");
    project.write("in/2.ndjson", jobs([2]));
    running.wait_until_it_says("too many files are open; the source waits");
    prlimit(pid, Resource::Nofile, before).expect("the limit can be set back");
    running.wait_until("the second", || project.ids_so_far("out.ndjson") == [1, 2]);
    running.stop().done();
}

/// The log of a run, line by line.
#[derive(Clone)]
struct Lines(mpsc::Sender<String>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The test may have ended.
        let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Opens files until none is free. A thread of an earlier run may close its files late, so one call is not enough.
fn take_all_handles(taken: &mut Vec<fs::File>) {
    taken.extend((0..200).map_while(|_| fs::File::open("/dev/null").ok()));
}

/// Runs in a process of its own, without a free file handle: see the test below.
#[test]
#[ignore = "is run by another test"]
fn a_source_waits_where_the_process_has_too_many_files_open_at_its_start() {
    let own = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..own }).expect("it is less");
    let (lines, said) = mpsc::channel();
    let lines = Lines(lines);
    tracing_subscriber::fmt().with_writer(move || lines.clone()).init();
    let waits = || said.try_iter().any(|line| line.contains("too many files are open; the source waits"));
    for (path, begin_at, stop) in [
        ("in", "oldest", false),
        ("in/*.ndjson", "oldest", false),
        ("in/1.ndjson", "oldest", false),
        ("in/1.ndjson", "newest", false),
        ("in/1.ndjson", "newest", true),
    ] {
        let toml = format!(
            "[source.in]\ntype = \"file\"\npath = \"{path}\"\nformat = \"ndjson\"\n\
             [step.copy]\nfrom = \"in\"\nto = \"out\"\nbegin_at = \"{begin_at}\"\n\
             [queue.out]\nretain = \"forever\"\n"
        );
        let project = Project::new().file("p.toml", toml).file("in/1.ndjson", jobs([1, 2]));
        let loaded = Generation::load(project.path(), &LoadOptions::default());
        let configuration = loaded.expect("the configuration is right").configuration;
        let disk = FaultyDisk::new();
        let opened = open_disk(Box::new(disk.clone())).expect("the store opens");
        let run = Run::new(configuration, opened, Arc::new(SystemClock), RunOptions::default())
            .expect("the store can be read");
        let handle = run.handle();
        let mut others = Vec::new();
        take_all_handles(&mut others);
        let running = thread::spawn(move || run.run());
        while !running.is_finished() && !waits() {
            take_all_handles(&mut others);
            thread::yield_now();
        }
        if stop {
            handle.stop();
        } else {
            drop(others);
        }
        let report = running.join().expect("it does not panic").expect("the run goes well");
        assert!(report.halts.is_empty(), "{path} {begin_at}: {:?}", report.halts);
        assert_eq!(
            report.end,
            if stop { RunOutcome::Stopped } else { RunOutcome::Drained },
            "{path} {begin_at}"
        );
        let (store, _writer) = open_disk(Box::new(disk)).expect("the store opens");
        let out = store.queue(&Address::parse("p/out").expect("an address")).expect("it can be read");
        let copied = if begin_at == "oldest" { 2 } else { 0 };
        assert_eq!(out.map_or(0, |out| out.head), copied, "{path} {begin_at}");
        let step = Address::parse("p/copy").expect("an address");
        let source = Address::parse("p/in").expect("an address");
        let progress = store.progress(&step, &source).expect("it can be read");
        assert_eq!(progress.map(|progress| progress.position()), (!stop).then_some(2), "{path} {begin_at}");
    }
}

#[test]
fn a_source_that_finds_too_many_files_open_at_the_start_waits_and_goes_on_too() {
    in_a_process("doors::a_source_waits_where_the_process_has_too_many_files_open_at_its_start");
}

/// Runs in a process of its own, without a free file handle: see the test below.
#[test]
#[ignore = "is run by another test"]
fn a_sink_waits_where_the_process_has_too_many_files_open_at_its_start() {
    let own = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..own }).expect("it is less");
    let (lines, said) = mpsc::channel();
    let lines = Lines(lines);
    tracing_subscriber::fmt().with_writer(move || lines.clone()).init();
    let waits = || said.try_iter().any(|line| line.contains("the sink waits until fewer files are open"));
    let filled = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                  [step.fill]\nfrom = \"in\"\nto = \"middle\"\n[queue.middle]\nretain = \"forever\"\n";
    let drained = "[queue.middle]\nretain = \"forever\"\n\
                   [step.drain]\nfrom = \"middle\"\nto = \"out\"\nbegin_at = \"oldest\"\n\
                   [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";
    let project = Project::new().file("in.ndjson", jobs([1, 2]));
    let disk = FaultyDisk::new();
    let prepared = |toml: &str| {
        project.write("p.toml", toml);
        let loaded = Generation::load(project.path(), &LoadOptions::default());
        let configuration = loaded.expect("the configuration is right").configuration;
        let opened = open_disk(Box::new(disk.clone())).expect("the store opens");
        Run::new(configuration, opened, Arc::new(SystemClock), RunOptions::default())
            .expect("the store can be read")
    };
    prepared(filled).run().expect("the run goes well");
    let run = prepared(drained);
    let mut others = Vec::new();
    take_all_handles(&mut others);
    let running = thread::spawn(move || run.run());
    while !running.is_finished() && !waits() {
        take_all_handles(&mut others);
        thread::yield_now();
    }
    drop(others);
    let report = running.join().expect("it does not panic").expect("the run goes well");
    assert!(report.halts.is_empty(), "{:?}", report.halts);
    assert_eq!(project.read("out.ndjson"), jobs([1, 2]));
}

#[test]
fn a_sink_that_finds_too_many_files_open_at_the_start_waits_and_goes_on() {
    in_a_process("doors::a_sink_waits_where_the_process_has_too_many_files_open_at_its_start");
}

#[test]
fn silent_clients_of_the_local_socket_keep_no_command_out() {
    let project = project("");
    let (mut running, _) = started_with_files(&project, 256);
    let socket = project.path().join(".tidegate/control.sock");
    // The port opens before the local socket.
    running.wait_until("the local socket", || socket.exists());
    // More than its 16 places. A client without a place waits in the backlog until a silent one is closed, after
    // two seconds. A command waits for ten.
    let silent: Vec<UnixStream> =
        (0..24).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    project.tidegate(&["status"]).done();
    drop(silent);
    running.stop().done();
}

#[test]
fn the_soft_limit_of_open_files_is_raised_for_the_runner_and_not_for_its_commands() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nrun = \"builtin:exec\"\nexec = { command = [\"./limit.sh\"] }\nto = \"out\"\n",
    )
    .file("in.ndjson", jobs([1]))
    .file("limit.sh", "#!/bin/sh\nread job\nprintf '{\"files\":%s}\\n' \"$(ulimit -Sn)\"\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(project.path().join("limit.sh"), executable).expect("it is our own");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 200 && exec \"$0\" run .", env!("CARGO_BIN_EXE_tidegate")]);
    command.current_dir(project.path()).stdin(Stdio::null());
    Running::start(project.path(), command).outcome().done();
    assert_eq!(project.read("out.ndjson"), "{\"files\":200}\n");
}
