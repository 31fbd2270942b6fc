//! Memory does not grow with the backlog.

use std::fs;

use crate::project::{Project, ids, jobs};

const JOBS: u64 = 300_000;

#[test]
fn memory_stays_bounded_where_one_step_is_much_faster_than_the_next() {
    let project = Project::pipeline(
        "[step.quick]\nfrom = \"in\"\nto = \"between\"\n\
         [step.slow]\nfrom = \"between\"\nrun = \"slow.rhai\"\nto = \"out\"\n",
    )
    .file("slow.rhai", "fn process(job) { for i in 0..30 {} job }")
    .file("in.ndjson", jobs(1..=JOBS));
    let mut running = project.start(&["run", "."]);
    let status = format!("/proc/{}/status", running.pid());
    let mut peak_kib = 0;
    // The last look is the one that counts; the peak is the kernel's.
    while !running.has_ended() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
        peak_kib = peak.unwrap_or(peak_kib).max(peak_kib);
        running.pause();
    }
    running.outcome().done();
    assert_eq!(ids(&project.read("out.ndjson")).len() as u64, JOBS);
    assert!(peak_kib > 0, "the peak was never seen");
    println!("peak: {} MiB", peak_kib / 1024);
    assert!(peak_kib < 160 << 10, "the peak was {} MiB", peak_kib / 1024);
}
