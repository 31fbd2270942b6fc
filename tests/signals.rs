//! Tests of signals: the first stops a run in order, the second ends it at once.

use std::fs;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::printing::numbered;
use crate::project::{Project, jobs};
use crate::running::Running;

fn following() -> Project {
    Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("in.ndjson", jobs(1..=3))
}

/// Runs a shell that becomes the runner.
fn shell(project: &Project, before: &str) -> Running {
    let mut command = std::process::Command::new("sh");
    let script = format!("{before}; exec \"$0\" run .");
    command.current_dir(project.path()).args(["-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
    Running::start(project.path(), command)
}

#[test]
fn a_hangup_reloads_and_ends_nothing() {
    let project = following();
    // The tests themselves may run with hang-ups ignored, as under `nohup`.
    let mut command = std::process::Command::new("env");
    let run = ["--default-signal=HUP", env!("CARGO_BIN_EXE_tidegate"), "run", "."];
    command.current_dir(project.path()).args(run);
    let mut running = Running::start(project.path(), command);
    running.wait_until("the jobs", || project.read_if_there("out.ndjson") == jobs(1..=3));
    project.change("p.toml", "follow = true", "follow = true\nmax_line = \"2MiB\"");
    running.signal("HUP");
    running.wait_until_it_says("the changed configuration is in force");
    project.append("in.ndjson", jobs(4..=4));
    running.wait_until("one more", || project.read_if_there("out.ndjson") == jobs(1..=4));
    running.stop().done().says("stopped: 4 jobs");
    project.assert_sound();
}

#[test]
fn a_hangup_that_was_ignored_from_the_start_stays_ignored() {
    let project = following();
    let mut running = shell(&project, "trap '' HUP");
    running.wait_until("the jobs", || project.read_if_there("out.ndjson") == jobs(1..=3));
    running.signal("HUP");
    project.append("in.ndjson", jobs(4..=4));
    running.wait_until("one more", || project.read_if_there("out.ndjson") == jobs(1..=4));
    running.stop().done().says("stopped: 4 jobs");
}

#[test]
fn a_signal_ends_a_runner_in_order_from_its_first_moment_on() {
    for _ in 0..20 {
        let project = following();
        let running = project.start(&["run", "."]);
        let status = format!("/proc/{}/status", running.pid());
        // The 15th bit: SIGTERM is handled.
        let is_handled = |line: &str| {
            let mask = line.strip_prefix("SigCgt:")?;
            Some(u64::from_str_radix(mask.trim(), 16).ok()? >> 14 & 1 == 1)
        };
        while !fs::read_to_string(&status).is_ok_and(|text| text.lines().find_map(is_handled) == Some(true)) {
            thread::yield_now();
        }
        running.stop().done();
    }
}

#[test]
fn a_second_signal_ends_the_commands_that_run_too() {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nrun = \"builtin:exec\"\n\
         exec = { command = [\"sh\", \"-c\", \"sleep 600 & echo $$ $! > pids.new; mv pids.new pids; wait\"] }\n\
         timeout = \"10m\"\nto = \"out\"\n",
    )
    .file("in.ndjson", jobs([1]));
    let mut command = project.command(&["run", "."]);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let mut running = Running::start(project.path(), command);
    running.wait_until("the command", || !project.read_if_there("pids").is_empty());
    let pids = project.read("pids");
    let pids = pids.split_whitespace().map(|pid| pid.parse().ok().and_then(Pid::from_raw).expect("a pid"));
    let processes: Vec<_> = pids.map(|pid| pidfd_open(pid, PidfdFlags::empty()).expect("it runs")).collect();
    assert_eq!(processes.len(), 2);
    running.terminate();
    running.wait_until_it_says("stopping: ");
    running.stop().failed(143);
    for process in &processes {
        // Readable when the process has ended.
        let mut ends = [PollFd::new(process, PollFlags::IN)];
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut ends, Some(&patience)), Ok(1), "it runs on");
    }
}

#[test]
fn a_limit_of_the_size_of_files_is_a_full_disk_and_no_end() {
    let project = following().file("in.ndjson", numbered(1..=6000));
    // In blocks of 512 bytes.
    let mut running = shell(&project, "ulimit -f 8192");
    running.wait_until_it_says("the disk is full");
    // Some jobs could not be committed.
    running.stop().failed(1).says("File too large");
    let mut again = project.start(&["run", ".", "--until-idle"]);
    again.wait_until("the rest", || project.len("out.ndjson") == project.len("in.ndjson"));
    again.outcome().done();
}
