//! Tests of `tidegate status`: the progress of each step, and its remarks.

use serde_json::Value;

use crate::project::{Project, jobs};
use crate::queuer::{backlog, pools};

const LANES: &str = "strategy = \"one-round-serial\", lane = \"pool\"";

fn work(project: &Project) -> Value {
    project.status("p/work", "p/jobs")
}

#[test]
fn a_step_tells_how_many_jobs_stand_where_and_how_long_the_oldest_has_waited() {
    let project = backlog(LANES, &pools(&["a:\"at\":\"1h\"", "a", "b", "a"]), "");
    let stopped = work(&project);
    assert_eq!((&stopped["waiting"], &stopped["oldest"]["job"]), (&4.into(), &"p/jobs/1".into()));
    assert!(stopped["oldest"]["age_seconds"].as_f64().is_some_and(|age| age < 600.0), "{stopped}");
    assert!(stopped["paused"].is_string());
    // Values that only a run knows are absent.
    for unknown in ["running", "rate", "closed", "halted", "read", "lanes"] {
        assert!(stopped.get(unknown).is_none(), "{unknown}: {stopped}");
    }
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until("the end of the runnable jobs", || {
        let status = work(&project);
        status["delayed"] == 1 && status["taken"] == 1
    });
    let told = work(&project);
    assert_eq!((&told["waiting"], &told["running"], &told["pending"]), (&2.into(), &0.into(), &0.into()));
    assert_eq!(told["oldest"]["job"], "p/jobs/2");
    assert!(told["rate"].as_f64().is_some_and(|rate| rate > 0.0), "{told}");
    running.stop().done();
    let stopped = work(&project);
    assert_eq!((&stopped["waiting"], &stopped["delayed"]), (&2.into(), &1.into()), "{stopped}");
    assert_eq!(stopped["oldest"]["since"], told["oldest"]["since"]);
}

#[test]
fn a_step_that_has_stopped_counts_the_jobs_that_it_had_read() {
    const JOBS: u64 = 500;
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [step.give]\nfrom = \"in\"\nto = \"jobs\"\n\
             [step.work]\nfrom = \"jobs\"\nrun = \"work.rhai\"\nto = \"end\"\n[sink.end]\ntype = \"null\"\n",
        )
        .file("work.rhai", "fn process(job) { if job.id == 3 { throw \"three\" } job }")
        .file("in.ndjson", jobs(1..=JOBS));
    let mut running = project.started();
    running.wait_until("the stop", || work(&project)["halted"].is_object());
    let shown = |project: &Project| work(project)["waiting"].clone();
    running.wait_until("all jobs on the queue", || {
        project.status("p/give", "p/in")["taken"] == JOBS && shown(&project) == JOBS - 2
    });
    running.stop();
    assert_eq!(shown(&project), JOBS - 2);
}

#[test]
fn lanes_are_told_where_they_are_asked_for_the_longest_first() {
    let project = backlog(LANES, &pools(&["a", "b:\"at\":\"1h\"", "b", "b", "c", "b"]), "");
    let lanes = |question: &[&str]| {
        let status = project.json(&[&["status"], question].concat());
        let steps = status["steps"].as_array().expect("a list");
        steps.iter().find(|step| step["step"] == "p/work").expect("it is there")["lanes"].clone()
    };
    assert_eq!(lanes(&[]), Value::Null);
    let all = lanes(&["--lanes"]);
    assert_eq!((&all["count"], all["top"].as_array().map(Vec::len)), (&3.into(), Some(3)));
    let first = lanes(&["--lanes=1"])["top"].clone();
    assert_eq!((&first[0]["lane"], &first[0]["waiting"]), (&"b".into(), &4.into()), "{first}");
    assert_eq!((&first[0]["oldest"]["job"], first[0].get("running")), (&"p/jobs/2".into(), None), "{first}");
    assert_eq!(first[1], Value::Null);
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until("two lanes to be through", || work(&project)["taken"] == 2);
    let held = lanes(&["--lanes"]);
    let lane = &held["top"][0];
    assert_eq!(
        (&held["count"], &lane["lane"], &lane["waiting"]),
        (&1.into(), &"b".into(), &3.into()),
        "{held}"
    );
    assert_eq!(
        (&lane["delayed"], &lane["running"], &lane["oldest"]["job"]),
        (&1.into(), &0.into(), &"p/jobs/3".into())
    );
    let text = project.tidegate(&["status", "--lanes"]).done().stdout;
    assert!(
        text.contains("\np/work: 1 lane\n  lane  waiting  delayed  oldest\n  b           3        1 "),
        "{text}"
    );
    running.stop().done();
}

#[test]
fn jobs_that_no_lane_is_written_in_are_told_without_a_name() {
    let queuer = format!("{LANES}, lane_missing = \"default\"");
    let project = backlog(&queuer, &jobs(1..=2), "");
    let text = project.tidegate(&["status", "--lanes"]).done().stdout;
    assert!(text.contains("\n  (no lane)        2 "), "{text}");
}

#[test]
fn a_step_behind_a_gate_tells_what_it_has_read_of_its_source_and_for_how_long() {
    let project = Project::pipeline(
        "[gate.never]\nrun = \"never.rhai\"\nevery = \"1h\"\n\
         [step.pay]\nfrom = \"in\"\nto = \"out\"\nrun = \"pay.rhai\"\ngate = \"never\"\n",
    )
    .file("never.rhai", "fn open(answer) { gate_closed(\"price 93\\n> 60\") }")
    .file("pay.rhai", "fn process(job) { job }")
    .file("in.ndjson", jobs(1..=5));
    let mut running = project.started();
    running.wait_until_it_says("the gate is closed: price 93\\n> 60");
    let told = project.status("p/pay", "p/in");
    assert_eq!((&told["waiting"], &told["read"], &told["running"]), (&Value::Null, &5.into(), &0.into()));
    assert_eq!((&told["oldest"]["job"], &told["oldest"]["at_least"]), (&"p/in/1".into(), &true.into()));
    assert_eq!((&told["closed"]["by"], &told["closed"]["why"]), (&"gate".into(), &"price 93\n> 60".into()));
    let text = project.tidegate(&["status"]).done().stdout;
    assert!(text.contains("\np/pay  in          5+ "), "{text}");
    assert!(text.contains("\n  gate closed since 20") && text.contains("): price 93\\n> 60\n"), "{text}");
    running.stop().done();
}

#[test]
fn an_ordered_step_counts_its_jobs_as_a_queued_one_does() {
    let project = Project::new()
        .file(
            "p.toml",
            "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
             [step.give]\nfrom = \"in\"\nto = \"jobs\"\n\
             [step.work]\nfrom = \"jobs\"\nto = \"done\"\nrun = \"work.rhai\"\n\
             [sink.out]\nfrom = \"done\"\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        .file("work.rhai", "fn process(job) { if job.id == 3 { throw \"no\" } job }")
        .file("in.ndjson", jobs(1..=1));
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.tidegate(&["step", "pause", "p/work"]).done();
    project.append("in.ndjson", jobs(2..=5));
    let mut running = project.started();
    running.wait_until("the jobs", || work(&project)["waiting"] == 4);
    let paused = work(&project);
    assert_eq!((&paused["running"], &paused["oldest"]["job"]), (&0.into(), &"p/jobs/2".into()), "{paused}");
    project.tidegate(&["step", "resume", "p/work"]).done();
    running.wait_until("its end", || work(&project)["halted"].is_object());
    let halted = work(&project);
    assert!(halted["halted"]["why"].as_str().is_some_and(|why| why.starts_with("job 3")), "{halted}");
    assert!(halted["halted"]["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{halted}");
    let text = project.tidegate(&["status"]).done().stdout;
    assert!(text.contains("\n  stopped since 20") && text.contains("): job 3"), "{text}");
    running.stop().failed(1);
    let stopped = work(&project);
    assert_eq!(
        (&stopped["waiting"], &stopped["oldest"]["job"]),
        (&3.into(), &"p/jobs/3".into()),
        "{stopped}"
    );
}

#[test]
fn pending_jobs_are_counted_on_a_stopped_store_too() {
    let monitor = "monitor = { run = \"monitor.rhai\", every = \"1h\" }\n";
    let project = backlog(LANES, &pools(&["a:\"handle\":\"tx-1\"", "a", "b:\"handle\":\"tx-2\""]), monitor);
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until("both lanes to be pending", || work(&project)["pending"] == 2);
    let told = work(&project);
    assert_eq!(
        (&told["waiting"], &told["delayed"], &told["running"]),
        (&1.into(), &0.into(), &0.into()),
        "{told}"
    );
    running.stop().done();
    let stopped = work(&project);
    assert_eq!(
        (&stopped["waiting"], &stopped["delayed"], &stopped["pending"]),
        (&1.into(), &0.into(), &2.into())
    );
    assert_eq!(stopped["begun"], 0);
}
