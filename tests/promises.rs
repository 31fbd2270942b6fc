//! Tests of delivery guarantees: each holds on standard output, where printed lines cannot be undone.

use crate::printing::{PADDING, numbered, print_and_kill, print_to_the_end};
use crate::project::{Project, ids, jobs, whole_lines};
use crate::random::Random;

const JOBS: u64 = 3000;
const KILLS: usize = 8;
/// More jobs than these runs start, since a started and killed job is not repeated.
const JOBS_AT_MOST_ONCE: u64 = 20_000;

/// A step that prints `jobs` jobs, under this guarantee.
fn printer(delivery: &str, jobs: u64) -> Project {
    // The test causes the kills, so no job is to blame. Without a crash limit, suspects would not be played.
    Project::new()
        // The number of workers determines the number of jobs in flight.
        .file("tidegate.toml", "[runner]\nworkers = 2\n")
        .file(
            "p.toml",
            format!(
                "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                 [step.print]\nfrom = \"in\"\nrun = \"print.rhai\"\nto = \"out\"\ndelivery = \"{delivery}\"\n\
                 crash_limit = 1000\n\
                 [sink.out]\ntype = \"stdout\"\n"
            ),
        )
        .file("print.rhai", "fn process(job) { job }")
        .file("in.ndjson", numbered(1..=jobs))
}

/// The output of each run; all except the last are killed.
fn killed_again_and_again(project: &Project) -> Vec<Vec<u64>> {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for _ in 0..KILLS {
        let printed = print_and_kill(project, random.up_to(150 * PADDING));
        runs.push(ids(whole_lines(&printed)));
    }
    runs.push(ids(&print_to_the_end(project)));
    project.assert_sound();
    runs
}

#[test]
fn exactly_once_prints_everything_at_least_once_and_in_order_however_often_it_is_killed() {
    prints_all(&printer("exactly-once", JOBS));
}

#[test]
fn at_least_once_prints_everything_at_least_once_and_in_order_however_often_it_is_killed() {
    prints_all(&printer("at-least-once", JOBS));
}

fn prints_all(project: &Project) {
    let mut next = 1;
    for run in killed_again_and_again(project) {
        let Some(&first) = run.first() else { continue };
        assert!(first <= next, "{} to {} was never printed", next, first - 1);
        let last = first + run.len() as u64 - 1;
        assert_eq!(run, (first..=last).collect::<Vec<_>>());
        next = next.max(last + 1);
    }
    assert_eq!(next, JOBS + 1);
    assert_eq!(project.snapshots(), 0);
    assert_eq!(print_to_the_end(project), "");
}

#[test]
fn at_most_once_prints_nothing_twice_however_often_it_is_killed() {
    let project = printer("at-most-once", JOBS_AT_MOST_ONCE);
    let (mut last, mut printed) = (0, 0);
    for run in killed_again_and_again(&project) {
        for id in run {
            assert!(id > last, "{id} came after {last}");
            (last, printed) = (id, printed + 1);
        }
    }
    assert_eq!(last, JOBS_AT_MOST_ONCE);
    // The cost of the kills is counted: lost jobs include printed ones that were not committed.
    let status = project.status("p/print", "p/in");
    assert_eq!(status["watermark"], JOBS_AT_MOST_ONCE);
    let (taken, lost) = (status["taken"].as_u64(), status["lost"].as_u64());
    let (taken, lost) = (taken.expect("a number"), lost.expect("a number"));
    assert_eq!(taken + lost, JOBS_AT_MOST_ONCE);
    assert!(printed >= taken, "{printed} of {taken} were printed");
}

#[test]
fn what_at_most_once_has_lost_is_told_when_it_runs_again() {
    let project = printer("at-most-once", JOBS);
    print_and_kill(&project, 1);
    let outcome = project.run().done();
    let lost = project.status("p/print", "p/in")["lost"].as_u64().expect("a number");
    outcome.says("under `at-most-once` they are not attempted again").says(&format!("jobs={lost}"));
    assert!(project.tidegate(&["status"]).done().stdout.contains("lost"));
    assert!(!project.run().done().stderr.contains("under `at-most-once` they are not attempted again"));
}

#[test]
fn at_least_once_alone_keeps_no_record_of_what_it_begins() {
    for (delivery, records) in [("exactly-once", true), ("at-least-once", false), ("at-most-once", true)] {
        let project = printer(delivery, JOBS);
        // The first batches are larger than a pipe, so the run cannot have ended.
        print_and_kill(&project, 1);
        assert_eq!(project.snapshots() > 0, records, "{delivery}");
        project.run().done();
        assert_eq!(project.snapshots(), 0, "{delivery}");
    }
}

/// Every tenth job fails.
const FAILING: &str = "fn process(job) { if job.id % 10 == 0 { throw \"a ten\" } job }";

#[test]
fn at_most_once_drops_a_job_that_fails_where_there_is_no_error_queue_and_goes_on() {
    // A setting of a pipeline applies to its steps.
    let project = Project::new()
        .file(
            "p.toml",
            "[pipeline]\ndelivery = \"at-most-once\"\n\
             [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [step.ten]\nfrom = \"in\"\nrun = \"ten.rhai\"\nto = \"out\"\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("ten.rhai", FAILING)
        .file("in.ndjson", jobs(1..=100));
    let run = project.run().done();
    let run = run.says("job `p/in/10` failed and is dropped by `at-most-once`: a ten (");
    run.says("9 more jobs of `p/ten` failed in the last ").says("; the last, `p/in/100`: a ten (");
    assert_eq!(ids(&project.read("out.ndjson")), (1..=100).filter(|id| id % 10 != 0).collect::<Vec<_>>());
    let status = project.status("p/ten", "p/in");
    assert_eq!((&status["failed"], &status["given"]), (&10.into(), &90.into()));
    project.run().done().says("nothing to do");
}

#[test]
fn at_most_once_sets_a_job_that_fails_aside_where_there_is_an_error_queue() {
    let project = Project::pipeline(
        "[step.ten]\nfrom = \"in\"\nrun = \"ten.rhai\"\nto = \"out\"\ndelivery = \"at-most-once\"\nerrors = \"failed\"\n",
    )
    .file("ten.rhai", FAILING)
    .file("in.ndjson", jobs(1..=100));
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")).len(), 90);
    let failed: Vec<_> =
        project.queue("p/failed").iter().map(|record| record["job"]["id"].as_u64()).collect();
    assert_eq!(failed, (10..=100).step_by(10).map(Some).collect::<Vec<_>>());
}

#[test]
fn at_least_once_stops_at_a_job_that_fails_where_there_is_no_error_queue_and_loses_nothing() {
    let project = Project::pipeline(
        "[step.ten]\nfrom = \"in\"\nrun = \"ten.rhai\"\nto = \"out\"\ndelivery = \"at-least-once\"\n",
    )
    .file("ten.rhai", FAILING)
    .file("in.ndjson", jobs(1..=15));
    project.run().failed(1).says("p/ten stopped at");
    project.write("ten.rhai", "fn process(job) { job }");
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=15));
}
