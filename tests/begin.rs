//! Tests of `begin_at`: the first job of a step that has not accounted for any.

use serde_json::json;

use crate::http_client::{Client, NDJSON, address};
use crate::project::{Project, ids, jobs};

/// A step `take` with these lines, from the source `in` to the sink `out`.
fn project(lines: &str) -> Project {
    Project::pipeline(&format!("[step.take]\nfrom = \"in\"\nto = \"out\"\n{lines}\n"))
        .file("in.ndjson", jobs(1..=10))
}

/// The settings of an ordered and of a queued step.
const STEPS: [&str; 2] = ["", "\nqueuer = { strategy = \"serial\" }"];

fn out(project: &Project) -> Vec<u64> {
    project.ids_so_far("out.ndjson")
}

#[test]
fn a_step_begins_with_the_job_at_an_index_and_goes_on_from_its_progress() {
    for step in STEPS {
        let project = project(&format!("begin_at = 4{step}"));
        project.run().done().says("the step starts at this job");
        assert_eq!(out(&project), [4, 5, 6, 7, 8, 9, 10]);
        // A later change of the key has no effect.
        for other in ["1", "\"oldest\"", "\"newest\"", "100"] {
            project.write(
                "p.toml",
                project.read("p.toml").replace("begin_at = 4", &format!("begin_at = {other}")),
            );
            project.run().done().says("nothing to do");
        }
        project.append("in.ndjson", jobs(11..=12));
        project.run().done();
        assert_eq!(out(&project), [4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let status = project.status("p/take", "p/in");
        assert_eq!((&status["watermark"], &status["taken"]), (&json!(12), &json!(9)));
        project.assert_sound();
    }
}

#[test]
fn a_job_to_begin_with_that_does_not_exist_yet_is_waited_for() {
    for step in STEPS {
        let project = project(&format!("begin_at = 15{step}"));
        project.run().done();
        project.append("in.ndjson", jobs(11..=13));
        // It was recorded at the first start of the step.
        project.write("p.toml", project.read("p.toml").replace("begin_at = 15", "begin_at = 3"));
        project.run().done();
        assert_eq!(out(&project), [0; 0]);
        project.append("in.ndjson", jobs(14..=17));
        project.run().done();
        assert_eq!(out(&project), [15, 16, 17]);
        project.append("in.ndjson", jobs(18..=18));
        project.run().done();
        assert_eq!(out(&project), [15, 16, 17, 18]);
        project.assert_sound();
    }
}

#[test]
fn the_newest_is_what_comes_after_the_first_start_whatever_is_killed_when() {
    for step in STEPS {
        let project = project(&format!("begin_at = \"newest\"{step}"));
        project
            .write("p.toml", project.read("p.toml").replacen("[source.in]", "[source.in]\nfollow = true", 1));
        let mut running = project.start(&["run", "."]);
        running.wait_until_it_says("the step starts at this job");
        running.wait_until("that is on disk", || {
            let status = project.json(&["status"]);
            status["steps"][0]["watermark"] == 10
        });
        assert!(running.kill());
        project.append("in.ndjson", jobs(11..=12));
        let mut running = project.start(&["run", "."]);
        running.wait_until("later jobs are delivered", || out(&project) == [11, 12]);
        project.append("in.ndjson", jobs(13..=13));
        running.wait_until("new jobs are delivered", || out(&project) == [11, 12, 13]);
        running.stop().done();
        project.assert_sound();
    }
}

#[test]
fn a_source_that_is_there_in_part_is_read_by_another_step_beside_it() {
    let project = project("begin_at = \"newest\"");
    project.append("p.toml", "[sink.all]\ntype = \"file\"\nfrom = \"in\"\npath = \"all.ndjson\"\n");
    project.run().done();
    project.append("in.ndjson", jobs(11..=20));
    project.run().done();
    assert_eq!(out(&project), (11..=20).collect::<Vec<_>>());
    assert_eq!(ids(&project.read("all.ndjson")), (1..=20).collect::<Vec<_>>());
    project.assert_sound();
}

#[test]
fn a_new_reader_of_a_queue_begins_where_it_says() {
    for (begin_at, first, waiting) in
        [("\"oldest\"", 1, 10), ("7", 7, 4), ("\"newest\"", 11, 0), ("13", 13, 0)]
    {
        let project =
            Project::pipeline("[step.give]\nfrom = \"in\"\nto = \"q\"\n[queue.q]\nretain = \"forever\"\n")
                .file("in.ndjson", jobs(1..=10));
        project.run().done();
        project.append("p.toml", format!("from = \"q\"\nbegin_at = {begin_at}\n"));
        // Also before its first start.
        assert_eq!(project.status("p/out", "p/q")["waiting"], waiting, "{begin_at}");
        let shown = project.json(&["job", "show", "p/q/1"]);
        let status = if first == 1 { "waiting" } else { "before" };
        assert_eq!(shown["steps"][0]["status"], status, "{begin_at}: {shown}");
        project.run().done();
        assert_eq!(project.status("p/out", "p/q")["waiting"], 0, "{begin_at}");
        project.append("in.ndjson", jobs(11..=15));
        project.run().done();
        assert_eq!(out(&project), (first..=15).collect::<Vec<_>>(), "{begin_at}");
        project.assert_sound();
    }
}

#[test]
fn a_job_that_is_taken_out_before_the_first_start_does_not_move_where_the_step_begins() {
    let project =
        Project::pipeline("[step.give]\nfrom = \"in\"\nto = \"q\"\n[queue.q]\nretain = \"forever\"\n")
            .file("in.ndjson", jobs(1..=10));
    project.run().done();
    let step = "[step.take]\nfrom = \"q\"\nto = \"out\"\nqueuer = { strategy = \"serial\" }\nbegin_at = 7\n";
    project.append("p.toml", step);
    project.tidegate(&["job", "cancel", "p/q/9", ".", "--drop", "--yes"]).done();
    project.run().done();
    assert_eq!(out(&project), [7, 8, 10]);
    project.assert_sound();
}

#[test]
fn where_the_job_to_begin_with_is_gone_the_oldest_one_is_taken_and_that_is_told() {
    let project = Project::pipeline(
        "[step.give]\nfrom = \"in\"\nto = \"q\"\n[sink.first]\ntype = \"null\"\nfrom = \"q\"\n",
    )
    .file("in.ndjson", jobs(1..=10));
    project.run().done();
    project.append("p.toml", "from = \"q\"\nbegin_at = 2\n");
    let of_out = |index: u64| {
        let shown = project.json(&["job", "show", &format!("p/q/{index}")]);
        let steps = shown["steps"].as_array().expect("a list").clone();
        let own = steps.into_iter().find(|step| step["step"] == "p/out").expect("it reads the queue");
        own["status"].as_str().expect("a word").to_owned()
    };
    assert_eq!(of_out(3), "before");
    project.append("in.ndjson", jobs(11..=12));
    project.run().done().says("the job that `begin_at` names has been deleted by retention");
    assert_eq!(out(&project), [11, 12]);
    assert_eq!([1, 3, 10, 11].map(of_out), ["before", "before", "before", "done"]);
    project.assert_sound();
}

#[test]
fn what_came_before_a_step_began_is_let_go_of_and_told() {
    let project = Project::new().file("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n").file(
        "p.toml",
        "[source.in]\ntype = \"http\"\n[step.take]\nfrom = \"in\"\nto = \"out\"\nbegin_at = 4\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
    );
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    assert_eq!(client.request("POST /sources/p/in", &[NDJSON], &jobs(1..=2)).status, 202);
    assert_eq!(client.job("p/in/2")["steps"], json!([{ "step": "p/take", "status": "before" }]));
    let shown = project.tidegate(&["job", "show", "p/in/1", "."]).done().stdout;
    assert!(shown.contains("p/take: skipped: the step began at a later job"), "{shown}");
    assert_eq!(project.status("p/take", "p/in")["waiting"], 0);
    assert!(running.kill());
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    assert_eq!(client.request("POST /sources/p/in", &[NDJSON], &jobs(3..=5)).status, 202);
    running.wait_until("the rest is taken", || out(&project) == [4, 5]);
    running.stop().done();
    let queues = project.json(&["queue", "list"]);
    assert_eq!((&queues[0]["first"], &queues[0]["jobs"]), (&json!(6), &json!(0)));
    project.assert_sound();
}

#[test]
fn a_join_of_what_comes_from_now_on_pairs_that() {
    let project = Project::pipeline(
        "[step.give]\nfrom = \"in\"\nto = { a = \"as\", b = \"bs\" }\nrun = \"both.rhai\"\n\
         [queue.as]\nretain = \"forever\"\n[queue.bs]\nretain = \"forever\"\n",
    )
    .file("both.rhai", "fn process(job) { if job.id == 1 { #{ a: job } } else { #{ a: job, b: job } } }")
    .file("pair.rhai", "fn process(job) { #{ id: job.a.id * 100 + job.b.id } }")
    .file("in.ndjson", jobs(1..=10));
    project.run().done();
    project.append(
        "p.toml",
        "[step.pair]\njoin = { a = \"as\", b = \"bs\" }\nrun = \"pair.rhai\"\nto = \"out\"\nbegin_at = \"newest\"\n",
    );
    project.run().done();
    project.append("in.ndjson", jobs(11..=12));
    project.run().done();
    assert_eq!(out(&project), [1111, 1212]);
    project.assert_sound();
}

#[test]
fn what_came_before_can_be_run_after_all() {
    let project = project("begin_at = 9");
    project.run().done();
    assert_eq!(out(&project), [9, 10]);
    project.tidegate(&["replay", "p/take", ".", "--from", "3", "--yes"]).done();
    project.run().done();
    assert_eq!(out(&project), [9, 10, 3, 4, 5, 6, 7, 8, 9, 10]);
    project.assert_sound();
}

#[test]
fn where_a_step_begins_survives_an_export() {
    let project = project("begin_at = 12");
    project.run().done();
    let lines = project.tidegate(&["store", "export", "-", "."]).done().stdout;
    let other = self::project("begin_at = \"newest\"");
    other.tidegate_given(&["store", "import", "-", "."], lines).done();
    other.append("in.ndjson", jobs(11..=13));
    other.run().done();
    assert_eq!(out(&other), [12, 13]);
}
