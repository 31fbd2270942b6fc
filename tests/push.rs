//! Tests of `queue push`: jobs from standard input are appended to a queue.

use crate::project::{Project, ids, jobs};

/// A queue that a sink reads; a followed source keeps the runner running.
const PIPELINE: &str = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                        [sink.rest]\nfrom = \"in\"\ntype = \"null\"\n\
                        [queue.orders]\nretain = \"forever\"\n\
                        [sink.out]\nfrom = \"orders\"\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn project() -> Project {
    Project::new().file("p.toml", PIPELINE).file("in.ndjson", "")
}

#[test]
fn what_is_pushed_to_a_running_runner_is_delivered_and_to_a_stopped_one_later() {
    let project = project();
    let mut running = project.started();
    let pushed = project.tidegate_given(&["queue", "push", "p/orders"], jobs(1..=3)).done();
    assert_eq!(pushed.stdout, "3 jobs pushed to p/orders\n");
    running.wait_until("the output", || project.read_if_there("out.ndjson") == jobs(1..=3));
    running.stop().done();
    let pushed =
        project.tidegate_given(&["queue", "push", "p/orders", "--format", "json"], jobs(4..=5)).done();
    assert_eq!(pushed.stdout, "{\n  \"pushed\": 2\n}\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=5));
}

#[test]
fn the_summary_counts_the_jobs_of_every_pushed_source_once() {
    let pipeline = "[source.left]\ntype = \"http\"\n[source.right]\ntype = \"http\"\n\
                    [sink.one]\nfrom = \"left\"\ntype = \"null\"\n\
                    [sink.two]\nfrom = \"right\"\ntype = \"null\"\n\
                    [sink.three]\nfrom = \"right\"\ntype = \"null\"\n";
    let project =
        Project::new().file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n").file("p.toml", pipeline);
    project.tidegate_given(&["queue", "push", "p/left"], jobs(1..=2)).done();
    project.tidegate_given(&["queue", "push", "p/right"], jobs(1..=3)).done();
    project.tidegate(&["run", ".", "--until-idle"]).done().says("done: 5 jobs");
}

#[test]
fn a_line_that_is_no_json_keeps_its_piece_off_the_queue_and_says_what_stands() {
    let project = project();
    let wrong = "{\"id\":1}\n\n{\"id\":\n";
    let refused = project.tidegate_given(&["queue", "push", "p/orders"], wrong).failed(1);
    assert!(refused.stderr.contains("line 3 is not JSON"), "{}", refused.stderr);
    assert!(refused.stderr.contains("; nothing was pushed"), "{}", refused.stderr);
    assert!(!project.path().join(".tidegate").exists());
    let wrong = [&jobs(1..=1500), "\nnonsense\n", &jobs(1..=1500)].concat();
    let refused = project.tidegate_given(&["queue", "push", "p/orders"], wrong).failed(1);
    assert!(refused.stderr.contains("line 1502 is not JSON"), "{}", refused.stderr);
    assert!(refused.stderr.contains("1,000 jobs, up to line 1,000"), "{}", refused.stderr);
    let shown = project.tidegate(&["queue", "show", "p/orders", "--from", "999"]).done().stdout;
    assert_eq!(shown.lines().count(), 3, "{shown}");
}

#[test]
fn many_and_large_jobs_can_be_pushed_to_a_running_runner() {
    let project = project();
    let mut running = project.started();
    let padding = "\\\"".repeat(200);
    let mut lines = String::new();
    for id in 1..=5000 {
        lines.extend(["{\"id\":", &id.to_string(), ",\"padding\":\"", &padding, "\"}\n"]);
    }
    lines.extend(["{\"id\":5001,\"padding\":\"", &"\\\"".repeat(3 << 20), "\"}\n"]);
    let pushed = project.tidegate_given(&["queue", "push", "p/orders"], &lines).done();
    assert_eq!(pushed.stdout, "5,001 jobs pushed to p/orders\n");
    running.wait_until("the output", || project.len("out.ndjson") == lines.len() as u64);
    running.stop().done();
    assert_eq!(ids(&project.read("out.ndjson")), (1..=5001).collect::<Vec<_>>());
}

#[test]
fn only_queues_of_the_configuration_can_be_pushed_to() {
    let project = project();
    for (queue, answer) in [
        ("p/order", "did you mean `p/orders`?"),
        ("p/in", "`p/in` is a source"),
        ("nonsense", "the configuration has no queue `nonsense`"),
    ] {
        project.tidegate_given(&["queue", "push", queue], jobs(1..=1)).failed(1).says(answer);
    }
}
