//! Tests of all wirings: a step reads from several inputs and writes to several outputs, each job once.

use serde_json::{Value, json};

use crate::project::{Project, ids, jobs};

/// A pipeline `p` with sources and sinks of these names, each with its own file, and further settings.
fn project(sources: &[&str], sinks: &[&str], toml: &str) -> Project {
    let files = |kind: &str, names: &[&str]| -> String {
        let file = |name| {
            format!("[{kind}.{name}]\ntype = \"file\"\npath = \"{name}.ndjson\"\nformat = \"ndjson\"\n")
        };
        names.iter().map(file).collect()
    };
    Project::new().file("p.toml", [&files("source", sources), &files("sink", sinks), toml].concat())
}

fn lines(project: &Project, name: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    project.read(name).lines().map(parse).collect()
}

/// One of `step` numbers, from the first to the last.
fn every(step: usize, first: u64, last: u64) -> Vec<u64> {
    (first..=last).step_by(step).collect()
}

#[test]
fn a_join_pairs_in_order_and_says_what_waits_for_its_other_half() {
    let project = project(
        &["a", "b"],
        &["out"],
        "[step.give]\nfrom = \"a\"\nto = \"orders\"\n[step.pay]\nfrom = \"b\"\nto = \"payments\"\n\
         [step.match]\njoin = { order = \"orders\", payment = \"payments\" }\nrun = \"match.rhai\"\nto = \"out\"\n",
    )
    .file("match.rhai", "fn process(job) { #{ order: job.order.id, payment: job.payment.id } }")
    .file("a.ndjson", jobs(1..=5000))
    .file("b.ndjson", jobs(10_001..=13_000));
    project.run().done().says("2,000 jobs on p/orders wait for a partner in p/match");
    let pairs: Vec<Value> = (1..=3000).map(|id| json!({ "order": id, "payment": id + 10_000 })).collect();
    assert_eq!(lines(&project, "out.ndjson"), pairs);
    assert_eq!(project.status("p/match", "p/orders")["waiting"], 2000);
    assert_eq!(project.status("p/match", "p/payments")["waiting"], 0);

    // The partners arrive.
    project.append("b.ndjson", jobs(13_001..=14_000));
    project.run().done();
    let pairs: Vec<Value> = (1..=4000).map(|id| json!({ "order": id, "payment": id + 10_000 })).collect();
    assert_eq!(lines(&project, "out.ndjson"), pairs);
    assert_eq!(project.status("p/match", "p/orders")["waiting"], 1000);
    let nothing = project.run().done().says("nothing to do: nothing can be delivered");
    nothing.says("1,000 jobs on p/orders wait for a partner in p/match");
    // The outputs of the join are counted once.
    let status = project.tidegate(&["status"]).done().stdout;
    let rows: Vec<Vec<&str>> = status.lines().map(|line| line.split_whitespace().collect()).collect();
    let told = |from: &[&str], to: &[&str]| rows.iter().any(|row| row.starts_with(from) && row.ends_with(to));
    assert!(told(&["p/match", "orders", "1,000"], &["4,000", "4,000", "0", "0"]), "{status}");
    assert!(rows.contains(&vec!["p/match", "payments", "0", "4,000"]), "{status}");
}

#[test]
fn a_join_takes_from_a_source_and_a_queue_and_hands_on_the_map_where_nothing_is_run() {
    let project = project(
        &["a", "b"],
        &["out"],
        "[step.give]\nfrom = \"b\"\nto = \"given\"\n\
         [step.match]\njoin = { left = \"a\", right = \"given\" }\nto = \"out\"\n",
    )
    .file("a.ndjson", jobs(1..=2000))
    .file("b.ndjson", jobs(5001..=7500));
    project.run().done();
    let pairs: Vec<Value> =
        (1..=2000).map(|id| json!({ "left": { "id": id }, "right": { "id": id + 5000 } })).collect();
    assert_eq!(lines(&project, "out.ndjson"), pairs);
    assert_eq!(project.status("p/match", "p/given")["waiting"], 500);
    project.append("a.ndjson", jobs(2001..=2500));
    project.run().done();
    assert_eq!(lines(&project, "out.ndjson").len(), 2500);
}

#[test]
fn a_join_of_three_waits_for_all_of_them() {
    let project = project(
        &["a", "b", "c"],
        &["out"],
        "[step.match]\njoin = { a = \"a\", b = \"b\", c = \"c\" }\nrun = \"match.rhai\"\nto = \"out\"\n",
    )
    .file("match.rhai", "fn process(job) { #{ id: job.a.id * 10000 + job.b.id * 100 + job.c.id } }")
    .file("a.ndjson", jobs(1..=9))
    .file("b.ndjson", jobs(1..=5))
    .file("c.ndjson", jobs(1..=7));
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), every(10_101, 10_101, 50_505));
}

#[test]
fn alternatives_are_told_apart_and_each_keeps_its_order() {
    let project = project(
        &["a", "b"],
        &["out"],
        "[step.give]\nfrom = \"b\"\nto = \"given\"\n\
         [step.either]\nalts = { old = \"a\", new = \"given\" }\nrun = \"either.rhai\"\nto = \"out\"\n",
    )
    .file(
        "either.rhai",
        "fn process(job) { let which = job.keys(); #{ id: job[which[0]].id, which: which } }",
    )
    .file("a.ndjson", jobs(1..=3000))
    .file("b.ndjson", jobs(5001..=9000));
    project.run().done();
    let out = lines(&project, "out.ndjson");
    let of = |which: &str| -> Vec<u64> {
        let of = out.iter().filter(|job| job["which"] == json!([which]));
        of.map(|job| job["id"].as_u64().expect("a number")).collect()
    };
    assert_eq!(of("old"), every(1, 1, 3000));
    assert_eq!(of("new"), every(1, 5001, 9000));
    assert_eq!(out.len(), 7000);
}

#[test]
fn alternatives_without_anything_to_run_are_handed_on_as_they_are() {
    let line = |id: u64| {
        let kind = if id.is_multiple_of(2) { "even" } else { "odd" };
        format!("{{ \"id\":{id},  \"type\":\"{kind}\" }}\n")
    };
    for (filter, step) in [("", 1), ("types = [\"odd\"]\n", 2)] {
        let project = project(
            &["a", "b"],
            &["out"],
            &["[step.either]\nalts = { a = \"a\", b = \"b\" }\nto = \"out\"\n", filter].concat(),
        )
        .file("a.ndjson", (1..=1000).map(line).collect::<String>())
        .file("b.ndjson", (2001..=3000).map(line).collect::<String>());
        project.run().done();
        let mut out: Vec<String> =
            project.read("out.ndjson").lines().map(|line| line.to_owned() + "\n").collect();
        // Sorted by the sink, since the order between both is open; each keeps its own order.
        out.sort_by_key(|line| ids(line)[0] > 2000);
        let expected = every(step, 1, 1000).into_iter().chain(every(step, 2001, 3000)).map(line);
        assert_eq!(out, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_join_forks_and_what_the_script_leaves_out_is_not_given() {
    let project = project(
        &["a", "b"],
        &["sums", "large"],
        "[step.add]\njoin = { a = \"a\", b = \"b\" }\nrun = \"add.rhai\"\nto = { sum = \"sums\", large = \"large\", twice = \"twice\" }\n\
         [queue.twice]\nretain = \"forever\"\n",
    )
    .file(
        "add.rhai",
        "fn process(job) {\n    let sum = #{ id: job.a.id + job.b.id };\n    if sum.id % 3 == 0 { return; }\n    let out = #{ sum: sum };\n    if sum.id > 1000 { out.large = sum; out.twice = [sum, sum]; }\n    out\n}",
    )
    .file("a.ndjson", jobs(1..=1000))
    .file("b.ndjson", jobs(1..=1000));
    project.run().done();
    let sums: Vec<u64> = every(2, 2, 2000).into_iter().filter(|sum| sum % 3 != 0).collect();
    let large: Vec<u64> = sums.iter().copied().filter(|&sum| sum > 1000).collect();
    assert_eq!(ids(&project.read("sums.ndjson")), sums);
    assert_eq!(ids(&project.read("large.ndjson")), large);
    let twice: Vec<Value> =
        large.iter().flat_map(|sum| [json!({ "id": sum }), json!({ "id": sum })]).collect();
    assert_eq!(project.queue("p/twice"), twice);
    // Jobs without an output are counted.
    assert_eq!(project.status("p/add", "p/a")["filtered"], 333);
}

#[test]
fn a_step_with_alternatives_forks_into_its_named_outputs() {
    let project = project(
        &["a", "b"],
        &["all", "of_a"],
        "[step.either]\nalts = { a = \"a\", b = \"b\" }\nrun = \"either.rhai\"\nto = { all = \"all\", of_a = \"of_a\" }\n",
    )
    .file(
        "either.rhai",
        "fn process(job) { if \"a\" in job { #{ all: job.a, of_a: [job.a] } } else { emit(\"all\", job.b); #{ of_a: () } } }",
    )
    .file("a.ndjson", jobs(1..=500))
    .file("b.ndjson", jobs(501..=1500));
    project.run().done();
    assert_eq!(ids(&project.read("of_a.ndjson")), every(1, 1, 500));
    let mut all = ids(&project.read("all.ndjson"));
    all.sort_unstable();
    assert_eq!(all, every(1, 1, 1500));
}

#[test]
fn a_source_goes_straight_to_sinks_and_a_queue_to_several() {
    let sink = |name: &str, from: &str| {
        format!("[sink.{name}]\ntype = \"file\"\npath = \"{name}.ndjson\"\nfrom = \"{from}\"\n")
    };
    let sinks =
        [sink("straight", "in"), sink("first", "given"), sink("second", "given"), sink("third", "given")];
    let project =
        project(&["in"], &[], &["[step.give]\nfrom = \"in\"\nto = \"given\"\n", &sinks.concat()].concat())
            .file("in.ndjson", jobs(1..=4000));
    project.run().done();
    for name in ["straight", "first", "second", "third"] {
        assert_eq!(project.read(format!("{name}.ndjson")), jobs(1..=4000), "{name}");
    }
}

#[test]
fn a_join_takes_from_queues_of_other_pipelines() {
    let give = |name: &str| {
        format!(
            "[source.in]\ntype = \"file\"\npath = \"{name}.ndjson\"\nformat = \"ndjson\"\n\
             [step.give]\nfrom = \"in\"\nto = \"given\"\n"
        )
    };
    let project = Project::new()
        .file("first.toml", give("first"))
        .file("second.toml", give("second"))
        .file(
            "third.toml",
            "[step.match]\njoin = { one = \"first/given\", two = \"second/given\" }\nto = \"fourth/matched\"\n",
        )
        .file("fourth.toml", "[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\nfrom = \"matched\"\n")
        .file("first.ndjson", jobs(1..=100))
        .file("second.ndjson", jobs(101..=200));
    project.run().done();
    let pairs: Vec<Value> =
        (1..=100).map(|id| json!({ "one": { "id": id }, "two": { "id": id + 100 } })).collect();
    assert_eq!(lines(&project, "out.ndjson"), pairs);
}

#[test]
fn jobs_go_round_a_cycle_that_is_allowed_until_they_are_done_and_so_is_the_run() {
    let toml = "[step.count]\nalts = { fresh = \"in\", again = \"again\" }\nrun = \"count.rhai\"\nto = { again = \"again\", done = \"done\" }\n";
    let script = "fn process(job) {\n    let job = if \"fresh\" in job { job.fresh } else { job.again };\n    job.rounds = (job.get(\"rounds\") ?? 0) + 1;\n    if job.rounds < job.id % 5 + 1 { #{ again: job } } else { #{ done: job } }\n}";
    let project =
        project(&["in"], &["done"], toml).file("count.rhai", script).file("in.ndjson", jobs(1..=1000));
    project.run().failed(78).says("allow_cycle");
    project.append("p.toml", "[queue.again]\nallow_cycle = true\n");
    project.run().done();
    let mut done = lines(&project, "done.ndjson");
    done.sort_by_key(|job| job["id"].as_u64());
    let expected: Vec<Value> = (1..=1000).map(|id| json!({ "id": id, "rounds": id % 5 + 1 })).collect();
    assert_eq!(done, expected);
    assert_eq!(project.status("p/count", "p/again")["waiting"], 0);
    project.run().done().says("nothing to do");
}
