//! Tests of reasons: `job show` explains why a job does not run.

use crate::project::Project;
use crate::queuer::{backlog, pools};
use crate::running::Running;

fn show(project: &Project, index: u64) -> String {
    project.tidegate(&["job", "show", &format!("p/jobs/{index}")]).done().stdout
}

/// Runs the jobs as far as they can, and waits until the explanation of a job contains this text.
fn says(project: &Project, index: u64, what: &str) -> Running {
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until(what, || show(project, index).contains(&format!("\n    {what}")));
    running
}

/// With this queuer, the explanation of a job of `words` contains `what` in a runner. Returns the explanation
/// of a stopped store.
fn holds(queuer: &str, words: &[&str], index: u64, what: &str) -> String {
    let project = backlog(queuer, &pools(words), "");
    says(&project, index, what).stop().done();
    show(&project, index)
}

#[test]
fn job_show_names_the_job_that_holds_the_lane() {
    let serial = "strategy = \"one-round-serial\", lane = \"pool\"";
    let stopped = holds(serial, &["a:\"at\":\"1h\"", "b", "a"], 3, "its lane waits for job 1 (due in ");
    assert!(stopped.contains("its lane waits for job 1 (due in "), "{stopped}");
}

#[test]
fn job_show_names_the_job_that_has_keys_in_common() {
    let parallel = "strategy = \"one-round-parallel\", lane = \"pool\", reads = \"r\", writes = \"w\", keys_missing = \"none\"";
    let words = ["a:\"w\":[1],\"at\":\"1h\"", "a:\"r\":[1]"];
    let stopped = holds(parallel, &words, 2, "it shares keys with job 1 (due in ");
    assert!(stopped.contains(", which goes first\n"), "{stopped}");
}

#[test]
fn job_show_names_the_due_time() {
    let stopped = holds("strategy = \"fifo\"", &["a:\"at\":\"1h\""], 1, "it is due in ");
    assert!(stopped.contains("    it is due in "), "{stopped}");
}

#[test]
fn job_show_names_the_bound_of_search_ahead() {
    let ahead = "strategy = \"fifo\", lane = \"pool\", lane_rate = \"1/1h\", max_search_ahead = 2";
    let what = "past search-ahead: the step scans jobs up to 2 for now";
    let stopped = holds(ahead, &["a:\"at\":\"1h\"", "a", "a", "b"], 4, what);
    assert!(stopped.contains(what), "{stopped}");
}

#[test]
fn job_show_names_a_rate_that_is_used_up() {
    let rate = "strategy = \"fifo\", rate = \"1/1h\"";
    holds(rate, &["a", "a"], 2, "the `rate` of the step is used up; the next start is possible in ");
    let rate = "strategy = \"fifo\", lane = \"pool\", lane_rate = \"1/1h\"";
    holds(rate, &["a", "a"], 2, "the `lane_rate` of its lane is used up; the next start is possible in ");
}

#[test]
fn job_show_names_the_wait_for_the_next_round() {
    let project = backlog("strategy = \"rounds\", pause = \"1h\"", &pools(&["a", "a"]), "");
    project.tidegate(&["step", "resume", "p/work"]).done();
    let mut running = project.started();
    running.wait_until("the first round", || {
        project.read_if_there("out.ndjson").lines().count() == 2
            && project.status("p/work", "p/jobs")["running"] == 0
    });
    project.append("in.ndjson", "{\"id\":3,\"pool\":\"a\"}\n");
    running.wait_until("the third job", || {
        let shown = project.tidegate(&["job", "show", "p/jobs/3"]);
        shown.stdout.contains("    the next round begins in ")
    });
    running.stop().done();
}

#[test]
fn job_show_names_the_pause_of_the_step() {
    let project = backlog("strategy = \"fifo\"", &pools(&["a"]), "");
    let why = "    the step is paused; `tidegate step resume p/work` resumes it\n";
    assert!(show(&project, 1).contains(why));
    let running = project.started();
    let shown = show(&project, 1);
    running.stop().done();
    assert!(shown.contains(why), "{shown}");
    assert!(!shown.contains("nothing holds it"), "{shown}");
}

#[test]
fn job_show_names_a_closed_gate_with_its_time_and_reason() {
    let gate = "gate = \"never\"\n[gate.never]\nrun = \"never.rhai\"\nevery = \"1h\"\n";
    let project = backlog("strategy = \"fifo\"", &pools(&["a", "a"]), gate);
    let running = says(&project, 2, "the gate `never` is closed (price 93\\n> 60) since ");
    let shown = show(&project, 2);
    assert!(shown.contains("; it is probed again in "), "{shown}");
    running.stop().done();
    let stopped = show(&project, 2);
    assert!(stopped.contains("    only the gate `never`, which is probed first, holds it: "), "{stopped}");
    project.write("never.rhai", "fn open(answer) { throw \"no price\" }");
    let running = says(&project, 1, "the gate `never` cannot be probed (");
    running.stop().done();
}

#[test]
fn job_show_names_the_gate_that_the_job_found_closed() {
    let words = ["a:\"closed\":\"price 93 > 60\"", "a"];
    let what = "a job has closed the gate (price 93 > 60): the step starts nothing until it opens again, in ";
    holds("strategy = \"serial\"", &words, 2, what);
}

#[test]
fn job_show_names_the_pending_job_ahead() {
    let monitor = "monitor = { run = \"monitor.rhai\", every = \"1h\" }\n";
    let serial = "strategy = \"one-round-serial\", lane = \"pool\"";
    let words = ["a:\"handle\":\"tx\\n9\"", "a"];
    let project = backlog(serial, &pools(&words), monitor);
    let running = says(&project, 2, "its lane waits for job 1 (pending since ");
    let pending = show(&project, 1);
    assert!(pending.contains("p/work: pending in an external system, after 1 attempt\n"), "{pending}");
    assert!(pending.contains("    it is pending in an external system since "), "{pending}");
    assert!(pending.contains(" as `tx\\n9`\n"), "{pending}");
    let listed = project.tidegate(&["delayed", "list"]).done().stdout;
    assert!(listed.contains("pending as `tx\\n9`"), "{listed}");
    running.stop().done();
    let stopped = show(&project, 2);
    assert!(stopped.contains("its lane waits for job 1 (pending since "), "{stopped}");
    assert!(stopped.ends_with("no runner is running; this is the state in the store\n"), "{stopped}");
}

#[test]
fn job_show_names_the_job_that_stopped_the_step() {
    let project = backlog("strategy = \"serial\"", &pools(&["a:\"at\":{}", "a"]), "");
    let pipeline = project.read("p.toml").replace("errors = \"failed\"\n", "");
    project.write("p.toml", pipeline);
    let what = "the step has stopped, and `tidegate step resume p/work` starts it again: job 1: ";
    let running = says(&project, 2, what);
    let shown = show(&project, 2);
    assert!(shown.contains("\n    it waits for job 1 ("), "{shown}");
    running.stop().failed(1);
}
