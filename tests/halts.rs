//! Tests of halts: a script or a kind of failure stops its step, and `step resume` starts it again.

use crate::project::{Project, ids, jobs};

const FOLLOWED: &str = "[pipeline]\nerrors = \"failed\"\n\
                        [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                        [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn project(step: &str) -> Project {
    Project::new().file("p.toml", [FOLLOWED, step].concat()).file("in.ndjson", jobs(1..=5))
}

fn is_halted(project: &Project) -> bool {
    project.status("p/work", "p/in")["halted"]["why"].is_string()
}

#[test]
fn a_script_that_halts_stops_its_step_at_the_job_and_resume_takes_up_the_mended_script() {
    for queuer in ["", "queuer = { strategy = \"serial\" }\n"] {
        let step = format!("[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n{queuer}");
        let project = project(&step)
            .file("work.rhai", "fn process(job) { if job.id == 3 { halt(\"the key is wrong\") } job }");
        let mut running = project.start(&["run", ".", "--no-watch"]);
        running.wait_until_it_says("the step stops");
        running.wait_until("the halt", || is_halted(&project));
        running.wait_until("the jobs before it", || ids(&project.read_if_there("out.ndjson")) == [1, 2]);
        let status = project.tidegate(&["status"]).done().stdout;
        assert!(
            status.contains(": the key is wrong (./work.rhai:1:36); its code stops the step at it"),
            "{status}"
        );
        let show = project.tidegate(&["job", "show", "p/in/3"]).done().stdout;
        assert!(show.contains("`tidegate step resume p/work` starts it again: job 3"), "{show}");
        // Unchanged, it stops again.
        let resumed = project.tidegate(&["step", "resume", "p/work"]).done().stdout;
        assert_eq!(resumed, "`p/work` starts again\n");
        running.wait_until("the halt", || is_halted(&project));
        project.write("work.rhai", "fn process(job) { job }");
        let resumed = project.json(&["step", "resume", "p/work"]);
        assert_eq!((&resumed["restarted"], &resumed["changed"]), (&true.into(), &false.into()), "{resumed}");
        running.wait_until("the other jobs", || ids(&project.read("out.ndjson")) == [1, 2, 3, 4, 5]);
        running.stop().done();
        assert_eq!(project.tidegate(&["errors", "list", "--format", "json"]).done().stdout.trim(), "[]");
        project.assert_sound();
    }
}

#[test]
fn a_stopped_step_starts_again_without_changes_of_other_parts() {
    let other = "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n\
                 [step.other]\nfrom = \"in\"\nrun = \"other.rhai\"\n";
    let project = project(other)
        .file("work.rhai", "fn process(job) { if job.id == 3 { halt(\"no\") } job }")
        .file("other.rhai", "fn process(job) { }");
    let mut running = project.start(&["run", ".", "--no-watch"]);
    // The log is ahead of the requests.
    running.wait_until_it_says("the step stops");
    running.wait_until("the halt", || is_halted(&project));
    project.write("other.rhai", "fn process(job) { () }");
    let resumed = project.tidegate(&["step", "resume", "p/work"]).done().stdout;
    assert_eq!(
        resumed,
        "`p/work` starts again with the configuration in force, from which the files differ: `tidegate reload` takes \
         them up\n"
    );
    running.wait_until("the halt", || is_halted(&project));
    running.stop().failed(1).says("p/work stopped at job 3");
}

#[test]
fn some_kinds_of_failures_stop_the_step_and_others_are_set_aside() {
    let step = "[step.work]\nfrom = \"in\"\nrun = \"builtin:exec\"\nexec = { command = [\"sh\", \"work.sh\", \"{id}\"] }\n\
                retry = { on = [\"timeout\"], halt_on = [\"exit\", \"rejected\"], initial = \"1ms\" }\n\
                queuer = { strategy = \"serial\" }\nto = \"out\"\n";
    let project = project(step).file(
        "work.sh",
        "if [ $1 = 2 ]; then printf 'no JSON'; elif [ $1 = 4 ] && [ ! -e mended ]; then exit 3; else cat; fi\n",
    );
    let mut running = project.start(&["run", "."]);
    running.wait_until_it_says("the step stops");
    running.wait_until("the halt", || is_halted(&project));
    running.wait_until("the jobs before it", || ids(&project.read_if_there("out.ndjson")) == [1, 3]);
    let halted = project.status("p/work", "p/in")["halted"]["why"].to_string();
    assert!(halted.contains("exit code 3") && halted.contains("`halt_on`"), "{halted}");
    let errors = project.json(&["errors", "list"]);
    assert_eq!(
        (errors[0]["job"]["kind"].as_str(), errors[1].as_object()),
        (Some("output"), None),
        "{errors}"
    );
    project.write("mended", "");
    project.tidegate(&["step", "resume", "p/work"]).done();
    running.wait_until("the other jobs", || ids(&project.read("out.ndjson")) == [1, 3, 4, 5]);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn a_job_may_have_its_own_time_to_live_and_quick_attempts_come_in_rows() {
    let tests = "[step.work]\nfrom = \"in\"\nrun = \"builtin:exec\"\nexec = { command = [\"true\"] }\nto = \"out\"\n\
                 retry = { backoff = \"fixed\", initial = \"15s\", jitter = \"none\", max_attempts = 20, ttl_field = \"ttl\", ttl = \"1m\", quick = 3, quick_delay = \"1s\" }\n\
                 [[test]]\nname = \"rows\"\nstep = \"work\"\ngiven = [{ id = 1 }]\n\
                 mock = { \"builtin:exec\" = [{ error = \"busy\" }, { error = \"busy\" }, { error = \"busy\" }, { error = \"busy\" }, { output = 1 }] }\n\
                 expect = { out = [1], attempts = 5, elapsed = \"18s\" }\n\
                 [[test]]\nname = \"own\"\nstep = \"work\"\ngiven = [{ id = 1, ttl = \"1s\" }, { id = 2, ttl = 2000 }, { id = 3, ttl = \"soon\" }]\n\
                 mock = { \"builtin:exec\" = { error = \"busy\" } }\n\
                 expect = { attempts = 6, elapsed = \"2s\", errors = [\"its `ttl` is no duration like \\\"15m\\\", and no number of milliseconds: \\\"soon\\\"\", \"past the `ttl` of 1s\", \"past the `ttl` of 2s\"] }\n\
                 [[test]]\nname = \"halt\"\nstep = \"work\"\ngiven = [{ id = 1 }]\n\
                 mock = { \"builtin:exec\" = [{ halt = \"wrong key\" }] }\n\
                 expect = { halted = \"wrong key\" }\n";
    let project = project(tests);
    let tested = project.tidegate(&["test", "."]).done().stdout;
    assert!(tested.contains("3 tests passed"), "{tested}");
}
