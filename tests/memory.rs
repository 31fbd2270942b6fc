//! Memory: it does not grow with the backlog.

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
    let peak = running.peak_mib();
    running.outcome().done();
    assert_eq!(ids(&project.read("out.ndjson")).len() as u64, JOBS);
    println!("peak: {peak} MiB");
    assert!(peak < 160, "the peak was {peak} MiB");
}
