//! Tests of queries: commands give the same answers on a stopped store and from a runner.

use crate::project::{Outcome, Project, jobs};

/// A followed source, a queue with a backlog that a halted step leaves, and errors.
fn project() -> Project {
    Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [step.sort]\nfrom = \"in\"\nrun = \"sort.rhai\"\nto = \"sorted\"\nerrors = \"failed\"\n\
             [queue.sorted]\nretain = \"forever\"\n\
             [sink.out]\nfrom = \"sorted\"\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file(
            "sort.rhai",
            "fn process(job) {\n    if job.id == 3 { reject(\"it is three\"); }\n    if job.id == 5 { throw \"it is five\"; }\n    if job.id != 4 { job }\n}",
        )
        .file("in.ndjson", jobs(1..=8))
}

const QUESTIONS: [&[&str]; 15] = [
    &["queue", "list"],
    &["queue", "list", "--format", "json"],
    &["queue", "show", "p/sorted"],
    &["queue", "show", "p/sorted", "--from", "2", "--limit", "2", "--format", "json"],
    &["queue", "show", "p/sorted", "--where", "job.id > 6"],
    &["queue", "show", "p/sorted", "--from", "9"],
    &["store", "verify"],
    &["store", "verify", "--format", "json"],
    &["errors", "list", "--all"],
    &["errors", "list"],
    &["errors", "list", "--format", "json"],
    &["errors", "show", "p/failed/1"],
    &["errors", "show", "p/failed/2", "--format", "json"],
    &["queue", "show", "p/sorte"],
    &["errors", "show", "p/failed/9"],
];

/// All queries with their answers, and exit codes other than 0. Parts that depend on the length of a time or
/// a path are left out.
fn ask(project: &Project) -> String {
    let queues = project.tidegate(&["queue", "list", "--format", "json"]).done().stdout;
    let queues: serde_json::Value = serde_json::from_str(&queues).expect("it is JSON");
    let bytes = queues[0]["bytes"].as_u64().expect("a size");
    let all_bytes = bytes + queues[1]["bytes"].as_u64().expect("a size");
    let mut answers = String::new();
    for question in QUESTIONS {
        let outcome = project.tidegate(question);
        let code = outcome.code.filter(|&code| code != 0).map(|code| format!(" (exit {code})"));
        let code = code.unwrap_or_default();
        let mut answer = [outcome.stdout, outcome.stderr].concat();
        if question.starts_with(&["errors", "list"]) && !question.contains(&"json") {
            answer = answer
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
                .collect();
        }
        answers += &["$ tidegate ", &question.join(" "), &code, "\n", &answer, "\n"].concat();
    }
    let answers = answers
        .replace(&format!("{bytes} B"), "SIZE B")
        .replace(&format!("{all_bytes} B"), "SIZE B")
        .replace(&format!("\"bytes\": {bytes}"), "\"bytes\": SIZE")
        .replace(&format!("\"bytes\": {all_bytes}"), "\"bytes\": SIZE");
    project.stable(&answers)
}

#[test]
fn a_stopped_store_and_a_running_runner_give_the_same_answers() {
    let project = project();
    let mut running = project.start(&["run", "."]);
    running.wait_until("the output", || project.len("out.ndjson") == jobs([1, 2, 6, 7, 8]).len() as u64);
    // The jobs are in the file shortly before they are committed.
    running.wait_until("the commit", || {
        let status = project.tidegate(&["status", "--format", "json"]).stdout;
        serde_json::from_str::<serde_json::Value>(&status)
            .is_ok_and(|steps| steps["steps"][1]["waiting"] == 0 && steps["steps"][1]["running"] == 0)
    });
    let from_runner = ask(&project);
    running.stop().done();
    let from_store = ask(&project);
    assert_eq!(from_runner, from_store);
    insta::assert_snapshot!(from_store);
}

#[test]
fn where_nothing_has_run_yet_it_says_so_and_makes_nothing() {
    let project = project();
    for question in [&["status"][..], &["queue", "list"], &["errors", "list"]] {
        project.tidegate(question).failed(1).says("does not exist yet");
    }
    assert!(!project.path().join(".tidegate").exists());
}

#[test]
fn commands_that_look_wait_for_each_other_and_a_runner_for_them() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"null\"\n",
        )
        .file("in.ndjson", jobs(1..=10));
    project.run().done();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| project.tidegate(&["status", "."]).done());
        }
        for _ in 0..4 {
            project.run().done();
        }
    });
}

#[test]
fn a_job_that_no_json_reader_takes_can_be_looked_at() {
    let project = Project::new()
        .file(
            "p.toml",
            "[pipeline]\nerrors = \"failed\"\n\
             [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [sink.out]\nfrom = \"in\"\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("in.ndjson", format!("\"\\ud800\"\n{}{}\n[1]\n", "[".repeat(500), "]".repeat(500)));
    project.run().done();
    assert_eq!(project.read("out.ndjson"), "[1]\n");
    let list = project.tidegate(&["errors", "list", "."]).done().stdout;
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.lines().skip(1).all(|line| line.contains("the job is not JSON")), "{list}");
    let shown = project.tidegate(&["errors", "show", "p/failed/1", "."]).done().stdout;
    assert!(shown.ends_with("\n\"\\ud800\"\n"), "{shown}");
}

#[test]
fn what_became_of_a_job_is_found_however_many_were_before_it() {
    let fill = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
         [step.fill]\nfrom = \"in\"\nto = \"backlog\"\n[queue.backlog]\nretain = \"forever\"\n";
    let work = "[step.work]\nfrom = \"backlog\"\nrun = \"work.rhai\"\nto = \"done\"\nerrors = \"failed\"\n\
         [queue.done]\nretain = \"forever\"\n";
    let project = Project::new()
        .file("p.toml", fill)
        .file("work.rhai", "fn process(job) { if job.id % 2 == 0 { reject(\"it is even\") } job }")
        .file("in.ndjson", jobs(1..=90_000));
    project.run().done();
    project.append("p.toml", work);
    project.run().done();
    let step = |index: u64| {
        let job = project.json(&["job", "show", &format!("p/backlog/{index}")]);
        job["steps"][0].clone()
    };
    for index in [1_u64, 44_999, 89_999] {
        let made = step(index);
        assert_eq!((&made["status"], &made["outputs"][0]["result"]["id"]), (&"done".into(), &index.into()));
    }
    for index in [2_u64, 45_000, 90_000] {
        let made = step(index);
        assert_eq!((&made["status"], &made["reason"]), (&"failed".into(), &"it is even".into()), "{index}");
    }
}

#[test]
fn that_a_job_has_failed_is_known_for_longer_than_its_error_is_kept() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [step.fill]\nfrom = \"in\"\nto = \"backlog\"\n[queue.backlog]\nretain = \"forever\"\n\
             [step.work]\nfrom = \"backlog\"\nrun = \"builtin:http\"\nretry = { max_attempts = 1 }\n\
             http = { url = \"http://127.0.0.1:1/\" }\nto = \"done\"\nerrors = \"failed\"\n\
             [queue.failed]\nretain = \"consumed\"\n\
             [sink.done]\ntype = \"null\"\n[sink.tidy]\nfrom = \"failed\"\ntype = \"null\"\n",
        )
        .file("in.ndjson", jobs(1..=1));
    project.run().done();
    assert!(project.queue("p/failed").is_empty());
    let shown = project.json(&["job", "show", "p/backlog/1"]);
    assert_eq!(shown["steps"][0]["status"], "failed", "{shown}");
}

/// A project whose files need variables, after a run with them.
fn with_variables() -> Project {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n\
         [step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n\
         timeout = \"${TIMEOUT}\"\nconfig = { most = \"${MOST:int}\", login = \"${LOGIN}\" }\n",
    )
    .file("work.rhai", "fn process(job, ctx) { if job.id > ctx.config.most { reject(\"too much\") } job }")
    .file("in.ndjson", jobs(1..=3));
    let mut run = project.command(&["run", "."]);
    run.envs([("TIMEOUT", "5s"), ("MOST", "2"), ("LOGIN", "x"), ("DATA", "kept")]);
    Outcome::from(run.output().expect("the executable can be started")).done();
    project
}

#[test]
fn commands_that_look_work_though_variables_are_not_set() {
    let project = with_variables();
    let status = project.tidegate(&["status"]).done().says(
        "warning: the configuration is read without its values: the variable `LOGIN` is not set; \
         the variable `MOST` is not set; the variable `TIMEOUT` is not set",
    );
    assert_eq!(status.stderr.matches("warning").count(), 1, "{}", status.stderr);
    assert!(status.stdout.contains("p/work"), "{}", status.stdout);
    assert!(project.tidegate(&["errors", "list"]).done().stdout.contains("too much"));
    assert_eq!(project.queue("p/failed").len(), 1);
    assert!(project.tidegate(&["job", "show", "p/in/3"]).done().stdout.contains("p/work"));
    // A change needs the whole configuration.
    project.tidegate(&["errors", "retry", "p/failed", "--yes"]).failed(78).says("`MOST` is not set");
    project.tidegate(&["step", "pause", "p/work"]).failed(78);
    // Any other mistake is one.
    project.change("p.toml", "errors = \"failed\"", "errors = \"failed\"\nerors = 1");
    project.tidegate(&["status"]).failed(78).says("erors");
}

#[test]
fn mistakes_beside_a_variable_that_is_not_set_are_counted() {
    let project = with_variables();
    project.append("p.toml", "[step.more]\nfrom = \"in\"\nrun = \"broken.rhai\"\nto = \"out2\"\n");
    project.write("broken.rhai", "fn process(job) { job +++ }");
    project
        .tidegate(&["status"])
        .done()
        .says("the variable `TIMEOUT` is not set; it has another mistake, which `tidegate check` shows\n");
}

#[test]
fn commands_that_look_work_though_a_template_is_not_whole() {
    let project = with_variables();
    let step = "[step.send]\nfrom = \"in\"\nrun = \"builtin:http\"\nhttp = { method = \"POST\", \
                url = \"http://127.0.0.1:1/x\", headers = { authorization = \"Bearer ${TOKEN}\" } }\n";
    project.append("p.toml", step);
    project.tidegate(&["status"]).done().says("the variable `TOKEN` is not set");
}

#[test]
fn a_graph_is_drawn_though_variables_are_not_set() {
    let project = with_variables();
    let drawn = project.tidegate(&["graph"]).done().says("the variable `MOST` is not set");
    assert!(drawn.stdout.contains("work"), "{}", drawn.stdout);
    project.change("p.toml", "errors = \"failed\"", "errors = \"failed\"\nerors = 1");
    project.tidegate(&["graph"]).failed(78).says("erors");
}

#[test]
fn commands_that_look_work_though_the_file_of_a_table_is_not_set() {
    let project = with_variables();
    project.append("p.toml", "[table.hosts]\npath = \"${HOSTS}\"\nkey = \"host\"\n");
    project.tidegate(&["status"]).done().says("the variable `HOSTS` is not set");
}

#[test]
fn a_data_folder_that_is_not_set_has_to_be_named() {
    let project = with_variables();
    project.write("tidegate.toml", "[runner]\ndata = \"${DATA}\"\n");
    project.tidegate(&["status"]).failed(78).says("the variable `DATA` is not set");
    project.tidegate(&["status", "--data", ".tidegate"]).done();
}
