//! Tests of `history`: the configurations that ran, and their files.

use crate::project::{Project, jobs};

fn project() -> Project {
    Project::pipeline("[step.work]\nfrom = \"in\"\nrun = \"lib/work.rhai\"\nto = \"out\"\n")
        .file("lib/work.rhai", "import \"more\" as more;\nfn process(job) { job }\n")
        .file("lib/more.rhai", "fn more(x) { x }\n")
        .file("in.ndjson", jobs(1..=3))
}

#[test]
fn each_configuration_that_runs_is_recorded_with_its_files() {
    let project = project();
    project.run().done();
    project.run().done();
    project.change("lib/more.rhai", "{ x }", "{ x + 1 }");
    project.run().done();
    // A comment is no new generation, but another text.
    project.change("p.toml", "[step.work]", "# why\n[step.work]");
    project.run().done();
    insta::assert_snapshot!(project.stable(&project.tidegate(&["history"]).done().stdout));
    insta::assert_snapshot!("files", project.stable(&project.tidegate(&["history", "1"]).done().stdout));
    assert!(project.tidegate(&["history", "2"]).done().stdout.contains("# why\n"));
    let entries = project.json(&["history"]);
    let generations: Vec<_> =
        entries["entries"].as_array().expect("a list").iter().map(|row| row["generation"].as_u64()).collect();
    assert_eq!(generations, [Some(1), Some(2), Some(2)]);
    assert_eq!(project.json(&["history", "1"])["files"][0]["text"], "fn more(x) { x }\n");
    project.assert_sound();
}

#[test]
fn a_removed_queue_keeps_its_jobs_until_it_is_dropped() {
    let project =
        Project::pipeline("[step.keep]\nfrom = \"in\"\nto = \"kept\"\n[queue.kept]\nretain = \"forever\"\n")
            .file("in.ndjson", jobs(1..=3));
    project.run().done();
    project.tidegate(&["queue", "drop", "p/kept", "--yes"]).failed(1).says("is in the configuration");
    project.tidegate(&["queue", "drop", "p/none", "--yes"]).failed(1).says("the store has no queue `p/none`");
    project.change("p.toml", "to = \"kept\"\n[queue.kept]\nretain = \"forever\"\n", "to = \"out\"\n");
    let effect = "orphaned with 3 jobs, until `tidegate queue drop p/kept`";
    let plan = project.tidegate(&["plan"]).failed(2).stdout;
    assert!(plan.contains(effect), "{plan}");
    // A person must confirm it.
    project.tidegate(&["queue", "drop", "p/kept"]).failed(64);
    project.change("p.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    let running = project.started();
    let dropped = project.tidegate(&["queue", "drop", "p/kept", "--yes"]).done().stdout;
    assert_eq!(dropped, "3 jobs of `p/kept` discarded\n");
    running.stop();
    project.assert_sound();
    let queues = project.json(&["queue", "list"]);
    let mut kept = queues.as_array().expect("a list").iter().filter(|queue| queue["queue"] == "p/kept");
    assert!(kept.next().is_none(), "{queues}");
}

#[test]
fn a_removed_pipeline_keeps_its_progress_and_its_jobs_until_it_is_dropped() {
    let project = Project::pipeline(
        "[step.wait]\nfrom = \"in\"\nrun = \"wait.rhai\"\nto = \"kept\"\nerrors = \"failed\"\n\
         retry = { backoff = \"fixed\", initial = \"1d\", jitter = \"none\" }\n\
         [queue.kept]\nretain = \"forever\"\n[step.pass]\nfrom = \"kept\"\nto = \"out\"\n",
    )
    .file("wait.rhai", "fn process(job) { if job.id == 2 { throw \"not today\" } job }")
    .file("in.ndjson", jobs(1..=3))
    .file(
        "q.toml",
        "[source.in]\ntype = \"file\"\npath = \"other.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
         [sink.none]\nfrom = \"in\"\ntype = \"null\"\n",
    );
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.tidegate(&["queue", "drop", "p", "--yes"]).failed(1).says("it is in the configuration");
    project.tidegate(&["queue", "drop", "p/wait", "--yes"]).failed(1).says("a step can be dropped once");
    let pipeline = project.read("p.toml");
    std::fs::remove_file(project.path().join("p.toml")).expect("the file is there");
    let running = project.started();
    project.tidegate(&["queue", "drop", "p"]).failed(64);
    let step = project.tidegate(&["queue", "drop", "p/pass", "--yes"]).done().stdout;
    assert_eq!(step, "the progress of step `p/pass` discarded\n");
    let dropped = project.json(&["queue", "drop", "p", "--yes"]);
    let expected = serde_json::json!({
        "queues": [{ "queue": "p/kept", "jobs": 1 }],
        "steps": [{ "step": "p/wait", "parked": 1 }],
    });
    assert_eq!(dropped, expected);
    project.tidegate(&["queue", "drop", "p", "--yes"]).failed(1).says("nothing of removed parts");
    running.stop().done();
    project.assert_sound();
    // The steps begin anew, and the queue continues its indices.
    project.write("p.toml", pipeline.replace("errors = \"failed\"", "errors = \"later\""));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    let kept = project.json(&["queue", "show", "p/kept"]);
    let kept: Vec<_> = kept.as_array().into_iter().flatten().collect();
    let kept: Vec<_> = kept.iter().map(|job| (job["index"].as_u64(), job["job"]["id"].as_u64())).collect();
    assert_eq!(kept, [(Some(2), Some(1))]);
    assert_eq!(project.ids_so_far("out.ndjson"), [1, 1]);
    project.assert_sound();
}

#[test]
fn the_history_is_read_while_the_files_have_mistakes() {
    let project = project();
    assert!(project.tidegate(&["history"]).failed(1).stderr.contains("does not exist yet"));
    project.run().done();
    project.write("p.toml", "[step.work\n");
    assert!(project.tidegate(&["history"]).done().stdout.contains("installed"));
    project.tidegate(&["history", "9"]).failed(1).says("the history has no generation 9");
}

/// A step `work` with a progress of 3 jobs, of which one waits for another attempt tomorrow.
fn working() -> Project {
    Project::pipeline(
        "follow = true\n[pipeline]\nerrors = \"failed\"\n[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n\
         retry = { backoff = \"fixed\", initial = \"1d\", jitter = \"none\" }\nqueuer = { strategy = \"fifo\" }\n",
    )
    .file("work.rhai", "fn process(job) { if job.id == 2 { throw \"not today\" } job }")
    .file("in.ndjson", jobs(1..=3))
}

/// In the order of their numbers: picked jobs run side by side.
fn written(project: &Project) -> Vec<u64> {
    let mut ids = project.ids_so_far("out.ndjson");
    ids.sort_unstable();
    ids
}

#[test]
fn a_renamed_step_keeps_its_progress_and_its_parked_jobs() {
    let project = working();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(written(&project), [1, 3]);
    project.tidegate(&["step", "pause", "p/work"]).done();
    project.change("p.toml", "[step.work]", "[step.toil]\nwas = \"work\"");
    insta::assert_snapshot!(project.tidegate(&["plan"]).failed(2).stdout);
    project.append("in.ndjson", jobs([4]));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    // The pause moved, too.
    assert_eq!(written(&project), [1, 3]);
    project.tidegate(&["step", "resume", "p/toil"]).done();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(written(&project), [1, 3, 4]);
    assert_eq!(project.status("p/toil", "p/in")["delayed"], 1);
    project.tidegate(&["delayed", "now", "p/toil", "--yes"]).done();
    project.write("work.rhai", "fn process(job) { job }");
    project.change("p.toml", "was = \"work\"\n", "");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(written(&project), [1, 2, 3, 4]);
    project.assert_sound();
}

#[test]
fn a_running_step_is_renamed_without_losing_or_repeating_a_job() {
    let project = working();
    project.change("p.toml", "run = \"work.rhai\"\n", "");
    project.change("p.toml", "retry = { backoff = \"fixed\", initial = \"1d\", jitter = \"none\" }\n", "");
    project.write("in.ndjson", jobs(1..=2000));
    let mut running = project.started();
    running.wait_until("the first jobs", || !written(&project).is_empty());
    let mut names = ["work", "toil", "labour", "work"].windows(2);
    let mut next = 2001;
    while let Some([from, to]) = names.next() {
        let text = project.read("p.toml").replace(&format!("[step.{from}]"), &format!("[step.{to}]"));
        let lines = text.lines().filter(|line| !line.starts_with("was = "));
        let text = lines.collect::<Vec<_>>().join("\n");
        let header = format!("[step.{to}]");
        project.write("p.toml", text.replace(&header, &format!("{header}\nwas = \"{from}\"")) + "\n");
        project.tidegate(&["reload"]).done();
        project.append("in.ndjson", jobs(next..next + 500));
        next += 500;
    }
    running.wait_until("all jobs", || written(&project).len() >= 3500);
    running.stop().done();
    let mut all = written(&project);
    all.sort_unstable();
    assert_eq!(all, (1..=3500).collect::<Vec<_>>());
    project.assert_sound();
}
