//! Tests of a full disk: the run reports it once, waits, and resumes when the disk has room.

use std::io;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tidegate_dispatch::RunOutcome;
use tidegate_store::testing::{DiskFailure, FaultyDisk};

use crate::http_client::{Client, JSON, address};
use crate::project::{Project, jobs};
use crate::random::Random;
use crate::small_run::SmallRun;

/// The log of all runs of this process, one line each with the number of the thread.
static LOG: LazyLock<Mutex<Vec<u8>>> = LazyLock::new(|| {
    tracing_subscriber::fmt().with_ansi(false).with_thread_ids(true).with_writer(|| ToLog).init();
    Mutex::default()
});

struct ToLog;

impl io::Write for ToLog {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The threads that logged this message, once per line.
fn who_said(what: &str) -> Vec<String> {
    let log = String::from_utf8_lossy(&LOG.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    let lines = log.lines().filter(|line| line.contains(what));
    let thread =
        |line: &str| line.split_whitespace().find(|word| word.starts_with("ThreadId")).map(str::to_owned);
    lines.filter_map(thread).collect()
}

#[test]
fn a_run_waits_for_room_in_the_store_says_so_once_and_goes_on_by_itself() {
    LazyLock::force(&LOG);
    let (run, image) = (SmallRun::new(), SmallRun::image());
    let disk = FaultyDisk::with(image.clone());
    run.run(&disk).expect("nothing fails");
    let expected = run.left(&disk);
    let mut struck = 0;
    for operation in 1.. {
        run.begin_anew();
        let disk = FaultyDisk::with(image.clone());
        disk.fail(DiskFailure::FullFrom(operation));
        // Opening writes, too; a run that cannot start is a different case.
        let Ok(started) = run.start(&disk) else { continue };
        let mut ended = None;
        while !disk.struck() && ended.is_none() {
            ended = started.has_ended();
            thread::yield_now();
        }
        if !disk.struck() {
            assert!(matches!(ended, Some(Ok(RunOutcome::Drained))), "{ended:?}");
            break;
        }
        struck += 1;
        // Some attempts fail.
        let tried = disk.operations() + 20;
        while ended.is_none() && disk.operations() < tried {
            ended = started.has_ended();
            thread::yield_now();
        }
        disk.heal();
        let end = ended.unwrap_or_else(|| started.end());
        assert!(matches!(end, Ok(RunOutcome::Drained)), "operation {operation}: {end:?}");
        run.left(&disk).assert_is(&expected, &format!("operation {operation}"));
    }
    let said = who_said("the disk is full; no job is lost, and the run resumes when the disk has room");
    let mut threads = said.clone();
    threads.sort();
    threads.dedup();
    assert_eq!(threads.len(), said.len(), "a run logged it twice");
    assert!(threads.len() > 10 && struck > 20, "{} of {struck} runs logged it", threads.len());
}

#[test]
fn a_run_that_is_stopped_while_it_waits_for_room_ends_and_loses_nothing() {
    let (run, image) = (SmallRun::new(), SmallRun::image());
    let disk = FaultyDisk::with(image.clone());
    run.run(&disk).expect("nothing fails");
    let expected = run.left(&disk);
    for operation in 1.. {
        run.begin_anew();
        let disk = FaultyDisk::with(image.clone());
        disk.fail(DiskFailure::FullFrom(operation));
        let Ok(started) = run.start(&disk) else { continue };
        let mut ended = None;
        while !disk.struck() && ended.is_none() {
            ended = started.has_ended();
            thread::yield_now();
        }
        if !disk.struck() {
            break;
        }
        started.handle.stop();
        let end = ended.unwrap_or_else(|| started.end());
        let told = end.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(end.is_ok() || told.contains("no room") || told.contains("cannot use the store"), "{end:?}");
        let disk = FaultyDisk::with(disk.bytes());
        assert!(matches!(run.run(&disk), Ok(RunOutcome::Drained)), "operation {operation}");
        run.left(&disk).assert_is(&expected, &format!("operation {operation}"));
    }
}

#[test]
fn a_sink_without_room_is_told_once_and_a_stop_ends_the_wait() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"/dev/full\"\n",
        )
        .file("tidegate.toml", "[runner]\nshutdown_timeout = \"50ms\"\n")
        .file("in.ndjson", jobs(1..=5000));
    let mut running = project.start(&["run", "."]);
    running.wait_until_it_says("the disk is full");
    let outcome = running.stop();
    assert_eq!(outcome.stderr.matches("the disk is full").count(), 1, "{}", outcome.stderr);
    insta::assert_snapshot!(project.stable(&outcome.stderr), @"
    TIME ERROR tidegate::engine: the disk is full; no job is lost, and the run resumes when the disk has room error=cannot write to `/dev/full` at byte 0: No space left on device (os error 28)
    TIME  INFO tidegate: stopping: running jobs are finished first; a second signal ends the process at once
    error: cannot write to `/dev/full` at byte 0: No space left on device (os error 28)
    ");
    // No job was delivered: with another path every job arrives.
    project.write("p.toml", project.read("p.toml").replace("/dev/full", "out.ndjson"));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=5000));
}

#[test]
fn while_a_disk_is_full_the_port_refuses_at_once_and_everything_can_be_looked_at() {
    let project = Project::new().file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n").file(
        "p.toml",
        "[source.requests]\ntype = \"http\"\n[queue.requests]\nretain = \"forever\"\n\
             [sink.out]\nfrom = \"requests\"\ntype = \"null\"\n",
    );
    let mut running = project.start(&["run", "."]);
    let address = address(&mut running);
    let get = |line: &str| Client::new(&address).request(line, &[], "");
    // Incompressible data.
    let mut random = Random::new(1);
    let mut push = || {
        let text = (0..4_000).map(|_| format!("{:x}", random.below(u64::MAX))).collect::<Vec<_>>().concat();
        Client::new(&address).request("POST /sources/p/requests", &[JSON], &format!("\"{text}\""))
    };
    assert_eq!(push().status, 202);
    let pid = i32::try_from(running.pid()).ok().and_then(Pid::from_raw).expect("a pid");
    let limit = |bytes: Option<u64>| {
        let limit = Rlimit { current: bytes, ..getrlimit(Resource::Fsize) };
        prlimit(Some(pid), Resource::Fsize, limit).expect("one's own child can be limited");
    };
    // The file of the store cannot grow.
    limit(Some(project.len(".tidegate/store.redb")));
    let mut taken = 1;
    let begun = loop {
        let begun = Instant::now();
        match push().status {
            202 => taken += 1,
            status => {
                assert_eq!(status, 503);
                break begun;
            }
        }
    };
    // A refusal that waited for the commit would take thirty seconds.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let answer = get("GET /healthz");
    assert_eq!((answer.status, &answer.body["status"]), (503, &"full".into()));
    let why = answer.body["error"].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("the disk is full: the disk of the store is full"), "{why}");
    let answer = push();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert!(
        answer.body["error"].as_str().is_some_and(|why| why.contains("nothing was accepted")),
        "{}",
        answer.body
    );
    let status = project.tidegate(&["status"]).done().stdout;
    assert!(status.contains("\nthe disk is full: the disk of the store is full"), "{status}");
    let status = project.tidegate(&["status", "--format", "json"]).done().stdout;
    assert!(status.contains("\"full\": \"the disk of the store is full"), "{status}");
    for _ in 0..20 {
        for command in ["status", "queue list", "queue show p/requests", "job show p/requests/1"] {
            let arguments: Vec<&str> = command.split(' ').collect();
            project.tidegate(&arguments).done();
        }
        // The store is reopened again and again meanwhile, between and during these.
        for _ in 0..20 {
            assert_eq!(get("GET /jobs/p/requests/1").status, 200);
            assert_eq!(get("GET /jobs/p/requests").status, 200);
        }
    }
    let pause = project.tidegate(&["step", "pause", "p/out"]).failed(1);
    assert!(pause.stderr.contains("the disk is full, so nothing was changed"), "{}", pause.stderr);
    limit(None);
    running.wait_until("room", || get("GET /healthz").status == 200);
    assert_eq!(push().status, 202);
    running.stop().done().says("the disk has room again; the run resumes");
    project.assert_sound();
    // The request with the unknown outcome occurs once.
    assert_eq!(project.queue("p/requests").len() as u64, taken + 2);
}
