//! Clocks that are set back: jobs that wait for a time wait no longer because of it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tidegate_config::LoadOptions;
use tidegate_dispatch::RunOutcome;
use tidegate_engine::{Generation, Run, RunOptions};
use tidegate_model::{Address, Clock, SystemClock, Timestamp};
use tidegate_store::testing::FaultyDisk;
use tidegate_store::{Store, open_disk};

use crate::project::{Project, ids, jobs};

const DAY: i64 = 24 * 60 * 60 * 1000;
/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// The system's clock, and its shift.
struct Shifted(AtomicI64);

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::Acquire))
    }
}

/// A step that fails once, and then waits for `wait`; `queuer` is that of the step.
fn project(wait: &str, queuer: &str) -> Project {
    let retry = format!(
        "retry = {{ backoff = \"fixed\", initial = \"{wait}\", jitter = \"none\", max_attempts = 3 }}"
    );
    let toml = format!(
        "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
         [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n{retry}\n{queuer}\n\
         [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
    );
    Project::new().file("p.toml", toml).file("in.ndjson", jobs([1]))
}

struct Started {
    store: Store,
    handle: tidegate_engine::Handle,
    ended: mpsc::Receiver<RunOutcome>,
}

fn start(project: &Project, disk: &FaultyDisk, clock: Arc<Shifted>) -> Started {
    let loaded = Generation::load(project.path(), &LoadOptions::default());
    let configuration = loaded.expect("the configuration is right").configuration;
    let opened = open_disk(Box::new(disk.clone())).expect("the store opens");
    let store = opened.0.clone();
    let run = Run::new(configuration, opened, clock, RunOptions::default()).expect("the store can be read");
    let handle = run.handle();
    let (tell, ended) = mpsc::channel();
    thread::spawn(move || {
        let report = run.run().expect("the run goes well");
        let _ = tell.send(report.end);
    });
    Started { store, handle, ended }
}

impl Started {
    /// Waits until a job is delayed. Returns its due time.
    fn due(&self) -> Timestamp {
        let step = Address::parse("p/work").expect("an address");
        let start = std::time::Instant::now();
        loop {
            if let Some(due) = self.store.next_due(&step, Some(Timestamp(0))).expect("it can be read") {
                return due;
            }
            assert!(start.elapsed() < PATIENCE, "no job waits");
            thread::yield_now();
        }
    }
}

const FAILS_ONCE: &str = "fn process(job, ctx) { if ctx.attempt == 1 { throw \"once\" } job }";
const LATE: &str = "fn process(job) { emit_in(\"\", job, \"5s\"); }";

#[test]
fn a_wait_under_way_does_not_wait_for_the_clock_to_catch_up() {
    let cases = [
        (FAILS_ONCE, ""),
        (FAILS_ONCE, "queuer = { strategy = \"fifo\" }"),
        (FAILS_ONCE, "queuer = { strategy = \"serial\" }"),
        (LATE, ""),
        (LATE, "queuer = { strategy = \"fifo\" }"),
        (LATE, "queuer = { strategy = \"serial\" }"),
        (LATE, "queuer = { strategy = \"one-round-serial\", lane = \"id\" }"),
    ];
    thread::scope(|scope| {
        for (script, queuer) in cases {
            scope.spawn(move || {
                // Longer than a busy machine takes to see that the job waits.
                let project = project("5s", queuer).file("work.rhai", script);
                let clock = Arc::new(Shifted(AtomicI64::new(DAY)));
                let started = start(&project, &FaultyDisk::new(), Arc::clone(&clock));
                assert!(started.due().0 > SystemClock.now().0 + DAY / 2);
                clock.0.store(0, Ordering::Release);
                let end = started.ended.recv_timeout(PATIENCE).expect("it does not wait for a day");
                assert_eq!(end, RunOutcome::Drained, "{script} {queuer}");
                assert_eq!(ids(&project.read("out.ndjson")), [1]);
            });
        }
    });
}

#[test]
fn a_wait_is_no_longer_where_the_clock_was_set_back_between_two_runs() {
    let project = project("10m", "").file("work.rhai", FAILS_ONCE);
    let (disk, clock) = (FaultyDisk::new(), Arc::new(Shifted(AtomicI64::new(DAY))));
    let first = start(&project, &disk, Arc::clone(&clock));
    let due = first.due();
    first.handle.stop();
    first.ended.recv_timeout(PATIENCE).expect("it stops");
    clock.0.store(0, Ordering::Release);
    let second = start(&project, &disk, Arc::clone(&clock));
    let begun = std::time::Instant::now();
    let mut shifted = second.due();
    while shifted == due {
        assert!(begun.elapsed() < PATIENCE, "it waits for the clock");
        thread::yield_now();
        shifted = second.due();
    }
    let wait = shifted.0 - clock.now().0;
    assert!((0..=10 * 60 * 1000).contains(&wait), "{wait}");
    second.handle.stop();
    second.ended.recv_timeout(PATIENCE).expect("it stops");
}
