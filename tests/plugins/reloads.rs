//! Tests of plugins in a runner whose configuration changes: a plugin is set up before its generation takes over, and
//! ends when it is not needed any more.

use super::processes::{hosts, ids_seen, rash, wait_until_gone};
use super::{c_count, compile, project};
use crate::project::{Project, ids, jobs};
use crate::running::Running;

fn flaky(isolates: bool) -> Project {
    let isolate = if isolates { "isolate = \"process\"\n" } else { "" };
    let project = project(&format!("run = \"plugin:flaky\"\n{isolate}config = {{}}"));
    project.change("p.toml", "[source.in]", "[source.in]\nfollow = true");
    project.file("in.ndjson", jobs(1..=1))
}

fn wait_for(project: &Project, running: &mut Running, expected: &[u64]) {
    running.wait_until("the jobs", || project.ids_so_far("out.ndjson") == expected);
}

#[test]
fn a_plugin_that_cannot_be_set_up_leaves_the_runner_as_it_is() {
    for isolates in [false, true] {
        let project = flaky(isolates);
        let mut running = project.started_with(&["--no-watch"]);
        wait_for(&project, &mut running, &[1]);
        for (config, why) in [
            ("fail_in_create = true", "not created, as asked"),
            ("panic_in_create = true", "panicked while it was set up: create, as asked"),
        ] {
            project.change("p.toml", "config = {}", &format!("config = {{ {config} }}"));
            let refused = project.tidegate(&["reload"]).failed(1).says(why);
            assert!(
                refused.stderr.contains("`p/work` cannot be set up: plugin `flaky`"),
                "{}",
                refused.stderr
            );
            assert!(refused.stderr.contains("p.toml:"), "{}", refused.stderr);
            let refused = &project.json(&["status"])["reload"]["refused"]["why"];
            assert!(refused.as_str().is_some_and(|text| text.contains(why)), "{refused}");
            project.change("p.toml", &format!("config = {{ {config} }}"), "config = {}");
        }
        project.append("in.ndjson", jobs(2..=2));
        wait_for(&project, &mut running, &[1, 2]);
        // The same goes for a new step, for a gate and for a monitor.
        let broken = "run = \"plugin:flaky\"\nconfig = { fail_in_create = true }\n";
        let before = project.read("p.toml");
        for part in [
            format!("[step.more]\nfrom = \"in\"\nto = \"out\"\n{broken}"),
            format!(
                "[step.more]\nfrom = \"in\"\nto = \"out\"\ngate = \"open\"\n[gate.open]\nevery = \"1h\"\n{broken}"
            ),
            format!(
                "[step.more]\nfrom = \"in\"\nto = \"out\"\n[step.more.monitor]\nevery = \"1h\"\n{broken}"
            ),
        ] {
            project.write("p.toml", format!("{before}\n{part}"));
            project.tidegate(&["reload"]).failed(1).says("`p/more` cannot be set up: plugin `flaky`");
        }
        project.write("p.toml", &before);
        project.tidegate(&["reload"]).done();
        assert_eq!(project.json(&["status"])["reload"]["generation"], 1);
        running.stop().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
    }
}

#[test]
fn a_stop_while_a_plugin_hangs_in_its_trial_ends_the_run_in_order() {
    let project = rash("if (symlink(\"here\", \"begun\") == 0) for (;;) pause();", "");
    project.write("calm", "");
    project.change("p.toml", "[source.in]", "[source.in]\nfollow = true");
    let mut running = project.started_with(&["--no-watch"]);
    running.wait_until("the jobs", || project.path().join("out.ndjson").exists() && ids_seen(&project) == 3);
    std::fs::remove_file(project.path().join("calm")).expect("the file is there");
    project.change("p.toml", "to = \"out\"", "to = \"out\"\ntimeout = \"1h\"");
    let reload = project.start(&["reload"]);
    running.wait_until("the trial", || project.path().join("begun").is_symlink());
    running.stop().done().says("stopped");
    assert_eq!(reload.outcome().code, Some(1));
    // The hanging trial is no crash.
    project.write("calm", "");
    let next = project.tidegate(&["run", ".", "--until-idle"]).done();
    assert!(!next.stderr.contains("the last run"), "{}", next.stderr);
    assert_eq!(ids_seen(&project), 3);
}

#[test]
fn a_process_ends_when_its_step_has_changed_or_is_gone_and_has_no_further_job() {
    let project = flaky(true);
    let mut running = project.started_with(&["--no-watch"]);
    wait_for(&project, &mut running, &[1]);
    let place = project.path().canonicalize().expect("the folder is there");
    let first = hosts(&place);
    assert!(!first.is_empty());
    project.change("p.toml", "config = {}", "config = { slow_drop_ms = 1 }");
    let changed = project.tidegate(&["reload"]).done();
    wait_until_gone(&first, &changed.stdout);
    project.append("in.ndjson", jobs(2..=2));
    wait_for(&project, &mut running, &[1, 2]);
    let second = hosts(&place);
    assert!(!second.is_empty());
    project.change(
        "p.toml",
        "run = \"plugin:flaky\"\nisolate = \"process\"\nconfig = { slow_drop_ms = 1 }",
        "",
    );
    let changed = project.tidegate(&["reload"]).done();
    wait_until_gone(&second, &changed.stdout);
    project.append("in.ndjson", jobs(3..=3));
    wait_for(&project, &mut running, &[1, 2, 3]);
    // A pipeline that is added and removed.
    project.write(
        "q.toml",
        "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
         [step.work]\nfrom = \"in\"\nrun = \"plugin:flaky\"\nisolate = \"process\"\nto = \"out\"\n\
         queuer = { strategy = \"serial\" }\n\
         [sink.out]\ntype = \"file\"\npath = \"other.ndjson\"\n",
    );
    project.tidegate(&["reload"]).done();
    running.wait_until("the jobs", || project.ids_so_far("other.ndjson") == [1, 2, 3]);
    let third = hosts(&place);
    assert!(!third.is_empty());
    std::fs::remove_file(project.path().join("q.toml")).expect("the file is there");
    let removed = project.tidegate(&["reload"]).done();
    wait_until_gone(&third, &removed.stdout);
    assert_eq!(hosts(&place), [0; 0]);
    running.stop().done();
}

#[test]
fn each_replaced_library_takes_one_open_file() {
    const REPLACED: u64 = 12;
    let project = Project::pipeline(
        "follow = true\n[step.work]\nfrom = \"in\"\nrun = \"plugin:c_count\"\nto = \"out\"\n",
    )
    .file("tidegate.toml", "[runner]\nplugins = \".\"\nworkers = 1\n")
    .file("in.ndjson", jobs(1..=1));
    let library = |version: u64| {
        let source = format!("{}\nconst int version_of_this_file = {version};\n", c_count());
        compile(&source, &project.path().join("new.so"), &[]);
        std::fs::rename(project.path().join("new.so"), project.path().join("c_count.so"))
            .expect("it is there");
    };
    library(0);
    let mut running = project.started_with(&["--no-watch"]);
    let open = |running: &Running| {
        std::fs::read_dir(format!("/proc/{}/fd", running.pid())).expect("it runs").count() as u64
    };
    wait_for_lines(&project, &mut running, 1);
    let before = open(&running);
    for version in 1..=REPLACED {
        library(version);
        project.tidegate(&["reload"]).done();
        project.append("in.ndjson", jobs(version + 1..=version + 1));
        wait_for_lines(&project, &mut running, version + 1);
    }
    let after = open(&running);
    // docs/plugins.md: one open file for each replacement.
    assert!(after <= before + REPLACED + 4, "{before} open files, and {after} after {REPLACED} replacements");
    running.stop().done();
}

fn wait_for_lines(project: &Project, running: &mut Running, lines: u64) {
    running.wait_until("the lines", || project.read_if_there("out.ndjson").lines().count() as u64 == lines);
}
