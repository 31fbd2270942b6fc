//! Tests of filters: jobs that a step does not select are consumed, and counted.

use crate::project::{Project, ids};

/// `{"id": …}` with a `type` and `topics` that depend on the number.
fn job(id: u64) -> String {
    let kind = ["order", "refund", "ping"][usize::try_from(id % 3).expect("it is small")];
    let topics = ["[\"eu\",\"us\"]", "[\"us\"]"][usize::try_from(id % 2).expect("it is small")];
    format!("{{\"id\":{id},\"type\":\"{kind}\",\"topics\":{topics}}}\n")
}

/// Runs a step with this filter over thirty jobs. Returns those that pass.
fn pass(filter: &str) -> Vec<u64> {
    let project = Project::pipeline(&format!("[step.some]\nfrom = \"in\"\n{filter}\nto = \"out\"\n"))
        .file("in.ndjson", (1..=30).map(job).collect::<String>());
    project.run().done();
    let passed = ids(&project.read("out.ndjson"));
    let status = project.status("p/some", "p/in");
    assert_eq!(status["taken"], 30);
    assert_eq!(status["given"], passed.len());
    assert_eq!(status["filtered"], 30 - passed.len(), "{filter}");
    assert_eq!(status["failed"], 0);
    passed
}

fn some(wanted: impl Fn(&u64) -> bool) -> Vec<u64> {
    (1..=30).filter(wanted).collect()
}

#[test]
fn jobs_pass_by_their_type() {
    assert_eq!(pass("types = [\"order\", \"refund\"]"), some(|id| id % 3 != 2));
}

#[test]
fn jobs_pass_by_one_of_their_topics() {
    assert_eq!(pass("topics = [\"eu\", \"asia\"]"), some(|id| id % 2 == 0));
}

#[test]
fn jobs_pass_by_an_expression() {
    assert_eq!(pass("when = 'job.id > 10 && job.type != \"ping\"'"), some(|id| *id > 10 && id % 3 != 2));
}

#[test]
fn a_job_passes_only_where_all_filters_hold() {
    let passed = pass("types = [\"order\"]\ntopics = [\"eu\"]\nwhen = \"job.id < 20\"");
    assert_eq!(passed, some(|id| id % 3 == 0 && id % 2 == 0 && *id < 20));
}

#[test]
fn a_join_is_filtered_as_the_pair_that_it_is() {
    let project = Project::pipeline(
        "[step.give]\nfrom = \"in\"\nto = { a = \"a\", b = \"b\" }\n\
         [step.match]\njoin = { a = \"a\", b = \"b\" }\nwhen = \"job.a.id % 2 == 0 && job.b.id > 10\"\nrun = \"a.rhai\"\nto = \"out\"\n",
    )
    .file("a.rhai", "fn process(job) { job.a }")
    .file("in.ndjson", (1..=30).map(job).collect::<String>());
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), some(|id| id % 2 == 0 && *id > 10));
    assert_eq!(project.status("p/match", "p/a")["filtered"], 20);
}

#[test]
fn a_job_that_lacks_what_a_filter_looks_at_goes_to_the_error_queue() {
    let project = Project::pipeline(
        "[step.some]\nfrom = \"in\"\nwhen = \"job.amount > 3\"\nto = \"out\"\nerrors = \"failed\"\n",
    )
    .file("in.ndjson", "{\"id\":1,\"amount\":5}\n{\"id\":2}\n{\"id\":3,\"amount\":1}\n");
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
    let failed = project.queue("p/failed");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["index"], 2);
    let message = failed[0]["message"].as_str().expect("a text");
    assert!(message.contains("in `when`") && message.contains("amount"), "{message}");
    assert_eq!(project.status("p/some", "p/in")["filtered"], 1);
}
