//! Tests of wiring: sources, queues, steps and sinks are connected, also in changing ways.

use crate::project::{Project, ids, jobs};

const SOURCE: &str = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n";

fn sink(name: &str, from: &str) -> String {
    format!("[sink.{name}]\ntype = \"file\"\npath = \"{name}.ndjson\"\n{from}\n")
}

fn step(name: &str, from: &str, to: &str) -> String {
    format!("[step.{name}]\nfrom = \"{from}\"\nrun = \"{name}.rhai\"\nto = \"{to}\"\n")
}

#[test]
fn two_steps_read_one_source_and_two_read_one_queue_each_at_its_own_pace() {
    let project = Project::new()
        .file(
            "p.toml",
            [
                SOURCE,
                &step("slow", "in", "middle"),
                &step("quick", "in", "quick_out"),
                &step("left", "middle", "left_out"),
                &step("right", "middle", "right_out"),
                &sink("quick_out", ""),
                &sink("left_out", ""),
                &sink("right_out", ""),
            ]
            .concat(),
        )
        .file("in.ndjson", jobs(1..=20_000))
        .file("slow.rhai", "fn process(job) { for i in 0..50 {} job }")
        .file("quick.rhai", "fn process(job) { job }")
        .file("left.rhai", "fn process(job) { if job.id % 2 == 0 { job } }")
        .file("right.rhai", "fn process(job) { for i in 0..50 {} if job.id % 2 == 1 { job } }");
    project.run().done().says("done: 20,000 jobs");
    assert_eq!(ids(&project.read("quick_out.ndjson")), (1..=20_000).collect::<Vec<_>>());
    assert_eq!(ids(&project.read("left_out.ndjson")), (2..=20_000).step_by(2).collect::<Vec<_>>());
    assert_eq!(ids(&project.read("right_out.ndjson")), (1..=20_000).step_by(2).collect::<Vec<_>>());
}

#[test]
fn a_queue_can_lead_from_one_pipeline_to_another() {
    let project = Project::new()
        .file("first.toml", [SOURCE, "[step.give]\nfrom = \"in\"\nto = \"given\"\n"].concat())
        .file("second.toml", sink("out", "from = \"first/given\""))
        .file("in.ndjson", jobs(1..=3000));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=3000));
}

#[test]
fn a_sink_takes_from_several_sources_and_queues() {
    let project = Project::new()
        .file(
            "p.toml",
            [
                SOURCE,
                "[source.other]\ntype = \"file\"\npath = \"other.ndjson\"\nformat = \"ndjson\"\n",
                "[step.give]\nfrom = \"other\"\nto = \"given\"\n",
                &sink("out", "from = [\"in\", \"given\"]"),
            ]
            .concat(),
        )
        .file("in.ndjson", jobs(1..=2000))
        .file("other.ndjson", jobs(2001..=4000));
    project.run().done();
    let delivered = ids(&project.read("out.ndjson"));
    // Each input keeps its own order.
    let (low, high): (Vec<u64>, Vec<u64>) = delivered.into_iter().partition(|&id| id <= 2000);
    assert_eq!((low, high), ((1..=2000).collect::<Vec<_>>(), (2001..=4000).collect::<Vec<_>>()));
}

#[test]
fn a_fork_delivers_to_each_binding_what_is_meant_for_it() {
    let project = Project::pipeline(
        "[step.fork]\nfrom = \"in\"\nrun = \"fork.rhai\"\nto = { even = \"even\", all = \"out\" }\n",
    )
    .file(
        "fork.rhai",
        "fn process(job) { #{ all: job, even: if job.id % 2 == 0 { [job, job] } else { [] } } }",
    )
    .file("in.ndjson", jobs(1..=1000));
    project.append("p.toml", sink("even", ""));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=1000));
    let twice = (2..=1000).step_by(2).flat_map(|id| [id, id]);
    assert_eq!(ids(&project.read("even.ndjson")), twice.collect::<Vec<_>>());
}

#[test]
fn a_step_that_is_new_to_a_source_reads_it_from_its_start() {
    let project =
        Project::pipeline("[step.first]\nfrom = \"in\"\nto = \"out\"\n").file("in.ndjson", jobs(1..=5000));
    project.run().done();
    project.append("p.toml", ["[step.second]\nfrom = \"in\"\nto = \"more\"\n", &sink("more", "")].concat());
    project.run().done().says("done: 5,000 jobs");
    assert_eq!(project.read("out.ndjson"), jobs(1..=5000));
    assert_eq!(project.read("more.ndjson"), jobs(1..=5000));
}

#[test]
fn a_step_that_is_new_to_a_queue_begins_with_the_oldest_job_that_is_kept() {
    for (retain, oldest) in [("forever", 1), ("consumed", 5001)] {
        let queue = format!("[queue.between]\nretain = \"{retain}\"\n");
        let steps = "[step.first]\nfrom = \"in\"\nto = \"between\"\n[step.second]\nfrom = \"between\"\nto = \"out\"\n";
        let project = Project::pipeline(&[&queue, steps].concat()).file("in.ndjson", jobs(1..=5000));
        project.run().done();
        project.append(
            "p.toml",
            ["[step.third]\nfrom = \"between\"\nto = \"more\"\n", &sink("more", "")].concat(),
        );
        project.append("in.ndjson", jobs(5001..=6000));
        project.run().done();
        assert_eq!(project.read("out.ndjson"), jobs(1..=6000));
        assert_eq!(project.read("more.ndjson"), jobs(oldest..=6000), "{retain}");
    }
}

#[test]
fn a_queue_that_nobody_reads_keeps_its_jobs_for_a_later_reader() {
    let project = Project::new()
        .file("p.toml", [SOURCE, "[step.give]\nfrom = \"in\"\nto = \"given\"\n"].concat())
        .file("in.ndjson", jobs(1..=3000));
    project.run().done();
    project.append("p.toml", sink("out", "from = \"given\""));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=3000));
}
