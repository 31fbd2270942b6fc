//! Tests of retention: queues delete old jobs, and the store stays small.

use crate::project::{Project, jobs};
use crate::random::Random;

/// A queue with these settings between two steps.
fn project(queue: &str) -> Project {
    Project::pipeline(&format!(
        "[step.give]\nfrom = \"in\"\nto = \"between\"\n[queue.between]\n{queue}\n[step.take]\nfrom = \"between\"\nto = \"out\"\n"
    ))
}

/// The first kept index of the queue, and the number of kept jobs.
fn kept(project: &Project) -> (u64, u64) {
    let queues = project.json(&["queue", "list"]);
    let queue = queues.as_array().expect("a list").iter().find(|queue| queue["queue"] == "p/between");
    let queue = queue.expect("there is a queue");
    (queue["first"].as_u64().expect("a number"), queue["jobs"].as_u64().expect("a number"))
}

#[test]
fn what_is_consumed_goes_at_once_and_for_ever_keeps_everything() {
    for (retain, first, left) in [("consumed", 5001, 0), ("forever", 1, 5000), ("1h", 1, 5000)] {
        let project = project(&format!("retain = \"{retain}\"")).file("in.ndjson", jobs(1..=5000));
        project.run().done();
        assert_eq!(kept(&project), (first, left), "{retain}");
        assert_eq!(project.read("out.ndjson"), jobs(1..=5000));
    }
}

#[test]
fn what_is_older_than_it_should_be_goes_with_the_next_jobs() {
    let project = project("retain = \"1ms\"").file("in.ndjson", jobs(1..=5000));
    project.run().done();
    project.append("in.ndjson", jobs([5001]));
    project.run().done();
    let (first, _) = kept(&project);
    assert!(first > 5000, "the jobs from {first} on were kept");
}

#[test]
fn what_is_older_than_it_should_be_goes_though_nothing_else_happens() {
    let project = project("retain = \"1ms\"").file("in.ndjson", jobs(1..=50));
    project.run().done();
    // No job is left to process.
    project.run().done();
    assert_eq!(kept(&project), (51, 0));
}

#[test]
fn the_slowest_reader_holds_what_is_consumed() {
    let project = project("retain = \"consumed\"").file("in.ndjson", jobs(1..=5000));
    project.append("p.toml", "[step.stuck]\nfrom = \"between\"\nrun = \"stuck.rhai\"\n");
    project.write("stuck.rhai", "fn process(job) { if job.id == 4000 { throw \"stuck\" } }");
    project.run().failed(1);
    assert_eq!(project.read("out.ndjson"), jobs(1..=5000));
    let (first, left) = kept(&project);
    assert!(first <= 4000 && first + left == 5001, "from {first} on {left} were kept");
    assert_eq!(project.status("p/stuck", "p/between")["waiting"], 1001);

    project.write("stuck.rhai", "fn process(job) { }");
    project.run().done();
    assert_eq!(kept(&project), (5001, 0));
}

#[test]
fn an_endless_run_does_not_make_the_store_grow() {
    for (queue, most) in [
        ("retain = \"consumed\"", 0),
        ("retain = \"forever\"\nmax_size = \"256KiB\"", 256 << 10),
        ("retain = \"7d\"\nmax_size = \"256KiB\"", 256 << 10),
    ] {
        assert_stays_bounded(queue, most);
    }
}

/// Passes several times the limit of the store through one run, and checks its size after each round.
fn assert_stays_bounded(queue: &str, most: u64) {
    const ROUNDS: u64 = 20;
    let project = project(queue).file("in.ndjson", "");
    project.write("p.toml", project.read("p.toml").replacen("[source.in]", "[source.in]\nfollow = true", 1));
    let mut random = Random::new(7);
    let (mut running, mut sizes, mut fed) = (project.start(&["run", "."]), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let round = incompressible(&mut random, 1 << 20);
        fed += round.len() as u64;
        project.append("in.ndjson", round);
        running.wait_until("the output", || project.len("out.ndjson") == fed);
        sizes.push(project.len(".tidegate/store.redb"));
    }
    running.stop().done();
    // The first rounds allocate the space that later ones reuse; the size depends on the distance between the
    // two steps. redb doubles a small file that has no room, and shrinks one that has too much.
    let most_at_first = sizes[..=sizes.len() / 2].iter().copied().max().unwrap_or_default();
    let last = sizes[sizes.len() - 1];
    println!(
        "{queue:?}: {most_at_first} bytes in the first half, {last} at the end, of {fed} that went through"
    );
    assert!(last < 2 * most_at_first + fed / ROUNDS && last < fed / 4, "{queue}: {sizes:?}");
    let queues = project.json(&["queue", "list"]);
    let bytes = queues[0]["bytes"].as_u64().expect("a size");
    // Values are deleted as a whole, and a commit is one.
    assert!(bytes <= most + (512 << 10), "{queue}: {bytes}");
    assert!(most == 0 || bytes > 0, "{queue}: something is kept");
    project.assert_sound();
}

/// Jobs of `bytes` bytes without repetition.
fn incompressible(random: &mut Random, bytes: usize) -> String {
    let mut lines = String::new();
    while lines.len() < bytes {
        let numbers: Vec<String> = (0..16).map(|_| random.below(u64::MAX).to_string()).collect();
        lines.extend(["{\"numbers\":[", &numbers.join(","), "]}\n"]);
    }
    lines
}
