//! Tests of gates: they hold the jobs of a step, and release them.

use std::os::unix::fs::PermissionsExt;

use crate::project::{Project, ids, jobs};

/// A step `pay` with a gate that runs a command and a script for the price of gas, which is in the file
/// `price`.
fn paying() -> Project {
    let toml = "[gate.gas]\nrun = [\"builtin:exec\", \"gas.rhai\"]\nexec = { command = [\"./price.sh\"] }\n\
         every = \"20ms\"\nconfig = { most = 60 }\n\
         [step.pay]\nfrom = \"in\"\nto = \"out\"\nrun = \"pay.rhai\"\ngate = \"gas\"\nerrors = \"failed\"\n";
    let project = Project::pipeline(toml)
        .file("gas.rhai", GAS)
        .file("pay.rhai", "fn process(job) { job }")
        .file("price.sh", "#!/bin/sh\nread -r job\n[ \"$job\" = null ] && cat price\n")
        .file("in.ndjson", jobs(1..=5));
    let script = project.path().join("price.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).expect("it is there");
    project
}

const GAS: &str = "fn open(price, ctx) {
    if type_of(price) != `i64` { throw `no price: ${price}` }
    if price > ctx.config.most { gate_closed(`price ${price} > ${ctx.config.most}`) }
    true
}";

/// The jobs that came through, sorted: a step with a gate delivers each when it is through.
fn paid(project: &Project) -> Vec<u64> {
    let mut ids = ids(&project.read("out.ndjson"));
    ids.sort_unstable();
    ids
}

#[test]
fn a_closed_gate_holds_jobs_back_and_fails_none() {
    let project = paying().file("price", "93");
    let mut running = project.started();
    running.wait_until_it_says("the gate is closed: price 93 > 60");
    let status = project.status("p/pay", "p/in");
    assert_eq!(
        (&status["taken"], &status["closed"]["why"]),
        (&0.into(), &"price 93 > 60".into()),
        "{status}"
    );
    assert!(status["closed"]["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{status}");
    let told = project.tidegate(&["status"]).done().stdout;
    assert!(told.contains("price 93 > 60"), "{told}");
    project.write("price", "40");
    let ended = running.outcome().done();
    assert!(ended.stderr.contains("the gate is open"), "{}", ended.stderr);
    assert_eq!(paid(&project), [1, 2, 3, 4, 5]);
    assert!(project.queue("p/failed").is_empty());
    // It was probed several times, and logged once.
    assert_eq!(ended.stderr.matches("the gate is closed").count(), 1, "{}", ended.stderr);
}

#[test]
fn a_run_until_idle_says_what_it_leaves_behind_a_gate() {
    let closed = "behind the gate `never`, which is closed: price 93\n";
    let gate = "run = \"pay.rhai\"\ngate = \"never\"\n[gate.never]\nrun = \"never.rhai\"\nevery = \"1h\"\n";
    let give = "[step.give]\nfrom = \"in\"\nto = \"jobs\"\n";
    let [queue, source] = ["jobs", "in"].map(|from| {
        let pay = format!("[step.pay]\nfrom = \"{from}\"\nto = \"out\"\n{gate}");
        let give = if from == "jobs" { give } else { "" };
        Project::pipeline(&[give, &pay].concat())
            .file("never.rhai", "fn open(answer) { gate_closed(\"price 93\") }")
            .file("pay.rhai", "fn process(job) { job }")
            .file("in.ndjson", jobs(1..=3))
    });
    for said in ["done: 3 jobs", "nothing to do now: 3 waiting\n"] {
        let run = queue.tidegate(&["run", ".", "--until-idle"]).done().says(said);
        run.says(&format!("\np/pay: 3 waiting, {closed}"));
    }
    // The number of further jobs is unknown.
    let run = source.tidegate(&["run", ".", "--until-idle"]).done();
    run.says("nothing to do now: steps are held\n").says(&format!("\np/pay: {closed}"));
}

#[test]
fn a_gate_that_cannot_be_asked_is_closed_and_says_why_once() {
    let project = paying();
    let mut running = project.started();
    running.wait_until_it_says("counts as closed: the command `price.sh` ended with exit code 1");
    project.write("price", "\"many\"");
    running.wait_until_it_says("no price: many");
    project.write("price", "1");
    let ended = running.outcome().done();
    assert_eq!(ended.stderr.matches("counts as closed: the command").count(), 1, "{}", ended.stderr);
    assert_eq!(paid(&project), [1, 2, 3, 4, 5]);
    project.assert_sound();
}

#[test]
fn what_waits_for_a_gate_waits_through_a_kill() {
    let project = paying().file("price", "93");
    let mut running = project.started();
    running.wait_until_it_says("the gate is closed");
    assert!(running.kill());
    // Waiting jobs do not keep the run going.
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(project.read_if_there("out.ndjson"), "");
    project.write("price", "60");
    project.run().done();
    assert_eq!(paid(&project), [1, 2, 3, 4, 5]);
    project.assert_sound();
}

#[test]
fn a_job_that_finds_the_gate_closed_goes_back_first_and_uncounted() {
    let project = Project::pipeline(
        "[gate.always]\nrun = \"always.rhai\"\nevery = \"10ms\"\n\
         [queuer.line]\nstrategy = \"serial\"\n\
         [step.pay]\nfrom = \"in\"\nto = \"out\"\nrun = [\"builtin:exec\", \"pay.rhai\"]\ngate = \"always\"\n\
         exec = { command = [\"./price.sh\", \"{id}\"] }\nqueuer = \"line\"\nerrors = \"failed\"\n",
    )
    .file("always.rhai", "fn open(answer) { answer == () }")
    .file(
        "pay.rhai",
        "fn process(paid, ctx) {
            if paid.price > 60 { gate_closed(`price ${paid.price} > 60`) }
            paid.attempt = ctx.attempt;
            paid
        }",
    )
    .file("price.sh", "#!/bin/sh\necho \"{\\\"id\\\": $1, \\\"price\\\": $(cat price)}\"\n")
    .file("price", "93")
    .file("in.ndjson", jobs(1..=3));
    let script = project.path().join("price.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).expect("it is there");
    let mut running = project.started();
    running.wait_until_it_says("held back by one of its jobs: price 93 > 60");
    project.write("price", "40");
    running.outcome().done();
    let out = project.read("out.ndjson");
    assert_eq!(ids(&out), [1, 2, 3]);
    assert_eq!(out.matches("\"attempt\":1").count(), 3, "{out}");
    assert!(project.queue("p/failed").is_empty());
}

#[test]
fn a_gate_script_that_has_no_answer_is_refused() {
    let project = Project::pipeline(
        "[gate.gas]\nrun = \"gas.rhai\"\nevery = \"1s\"\n\
         [step.pay]\nfrom = \"in\"\nto = \"out\"\nrun = \"pay.rhai\"\ngate = \"gas\"\n\
         monitor = { run = \"status.rhai\", every = \"1s\" }\n",
    )
    .file("gas.rhai", "fn process(answer) { true }\n")
    .file("status.rhai", "\nfn statsu(jobs) { [] }\n")
    .file("pay.rhai", "fn process(job) { job }")
    .file("in.ndjson", "");
    let told = project.tidegate(&["check", "."]).failed(78);
    insta::assert_snapshot!(project.stable(&told.stderr));
}

#[test]
fn a_gate_that_does_not_answer_is_told_until_it_does() {
    let project = Project::pipeline(
        "[gate.gas]\nrun = [\"builtin:exec\", \"gas.rhai\"]\nexec = { command = [\"./price.sh\"] }\n\
         every = \"1h\"\ntimeout = \"1h\"\n\
         [step.give]\nfrom = \"in\"\nto = \"jobs\"\n\
         [step.pay]\nfrom = \"jobs\"\nto = \"out\"\nrun = \"pay.rhai\"\ngate = \"gas\"\nerrors = \"failed\"\n",
    )
    .file("gas.rhai", "fn open(price, ctx) { price == 1 }")
    .file("pay.rhai", "fn process(job) { job }")
    .file("price.sh", "#!/bin/sh\ncat price\n")
    .file("in.ndjson", jobs(1..=2));
    let script = project.path().join("price.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).expect("it is there");
    // A reader blocks until a writer opens it.
    let made = std::process::Command::new("mkfifo").arg(project.path().join("price")).status();
    assert!(made.expect("there is mkfifo").success());
    let mut running = project.started();
    let pay = || project.status("p/pay", "p/jobs");
    running.wait_until("the gate to be asked", || pay()["gate"]["asked_since"].is_string());
    let told = pay();
    assert_eq!((&told["gate"]["name"], &told["waiting"]), (&"gas".into(), &2.into()), "{told}");
    assert!(told["gate"]["failing_since"].is_null(), "{told}");
    let shown = project.tidegate(&["job", "show", "p/jobs/2"]).done().stdout;
    assert!(shown.contains("\n    the gate `gas` has not answered for "), "{shown}");
    project.write("price", "1");
    let ended = running.outcome().done();
    assert_eq!(paid(&project), [1, 2], "{}", ended.stderr);
}

#[test]
fn a_gate_that_fails_says_since_when_until_it_answers_well() {
    let project = paying();
    let mut running = project.started();
    let pay = || project.status("p/pay", "p/in");
    running.wait_until("the gate to fail", || pay()["gate"]["failing_since"].is_string());
    let told = pay();
    assert_eq!(told["closed"]["by"], "failure");
    assert!(told["gate"]["why"].as_str().is_some_and(|why| why.contains("exit code 1")), "{told}");
    let since = &told["gate"]["failing_since"];
    project.write("price", "\"many\"");
    running.wait_until("it to fail otherwise", || {
        pay()["gate"]["why"].as_str().is_some_and(|why| why.contains("no price: many"))
    });
    assert_eq!(&pay()["gate"]["failing_since"], since);
    project.write("price", "93");
    running.wait_until("it to be closed", || pay()["closed"]["by"] == "gate");
    assert!(pay()["gate"]["failing_since"].is_null());
    running.stop().done();
}
