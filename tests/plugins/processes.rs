//! Processes of plugins: tests that their closed descriptors, children, stray writes and deaths affect no
//! other job, and do not outlive the runner.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{compile, errors, root};
use crate::project::{Outcome, Project, ids, jobs};
use crate::running::Running;

/// A step whose plugin executes `lab.c`, in a process of its own.
fn lab(settings: &str, jobs: &str) -> Project {
    let project = Project::pipeline(&format!(
        "[pipeline]\nerrors = \"failed\"\n[step.work]\nfrom = \"in\"\nrun = \"plugin:lab\"\nto = \"out\"\n\
         isolate = \"process\"\n{settings}\n"
    ))
    .file("tidegate.toml", "[runner]\nplugins = \".\"\nworkers = 1\n")
    .file("in.ndjson", jobs);
    let source = fs::read_to_string(root().join("tests/plugins/lab.c")).expect("the plugin is there");
    compile(&source, &project.path().join("lab.so"), &["-pthread"]);
    project
}

/// A job with this request, between two without a request.
fn between(act: &str) -> String {
    format!("{{\"id\":1}}\n{{\"id\":2,\"do\":\"{act}\"}}\n{{\"id\":3}}\n")
}

/// The processes that run plugins for a runner in this folder.
pub(crate) fn hosts(folder: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("there is /proc").filter_map(|entry| {
        let path = entry.expect("it can be listed").path();
        let is_host = fs::read_to_string(path.join("cmdline")).ok()?.contains("plugin-host");
        let is_here = fs::read_link(path.join("cwd")).ok()? == folder;
        let number = path.file_name()?.to_str()?.parse().ok()?;
        (is_host && is_here).then_some(number)
    });
    processes.collect()
}

/// Whether a process has ended; it may still be a zombie.
fn is_gone(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.is_empty() || status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// Waits until these processes have ended: the system may take a moment to end what was killed.
pub(crate) fn wait_until_gone(processes: &[u32], act: &str) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !processes.iter().all(|process| is_gone(*process)) {
        assert!(Instant::now() < deadline, "{act}: still there: {processes:?}");
        thread::yield_now();
    }
}

/// The process that the plugin has started.
fn started(project: &Project) -> u32 {
    project.read("started").trim().parse().expect("it is a number")
}

fn signal(name: &str, process: u32) {
    let status = Command::new("sh").args(["-c", "kill -$0 $1", name, &process.to_string()]).status();
    assert!(status.expect("a shell can be started").success());
}

fn wait_for_job(project: &Project) -> Running {
    let mut running = project.start(&["run", "."]);
    running.wait_until("the job", || project.path().join("running").exists());
    running
}

#[test]
fn a_signal_to_all_processes_of_a_service_lets_the_job_finish() {
    for name in ["TERM", "INT", "HUP", "QUIT"] {
        let project = lab("", &between("wait"));
        let running = wait_for_job(&project);
        let hosts = hosts(project.path());
        assert_eq!(hosts.len(), 1);
        signal(name, hosts[0]);
        running.terminate();
        project.write("go", "");
        running.outcome().done();
        let again = project.run().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3], "{name}");
        assert!(!again.stderr.contains("run again alone"), "{name}: {}", again.stderr);
    }
}

#[test]
fn a_process_that_dies_while_the_runner_ends_costs_the_job_nothing() {
    let project = lab("crash_limit = 1\ngate = \"open\"", &between("wait_and_abort"))
        .file("open.rhai", "fn open(answer) { true }");
    project.append("p.toml", "[gate.open]\nrun = \"open.rhai\"\nevery = \"10ms\"\n");
    let mut running = wait_for_job(&project);
    running.terminate();
    running.wait_until_it_says("stopping");
    project.write("go", "");
    running.outcome().done();
    assert_eq!(errors(&project), [""; 0]);
    project.write("spared", "");
    project.run().done();
    let mut through = ids(&project.read("out.ndjson"));
    through.sort_unstable();
    assert_eq!(through, [1, 2, 3]);
    assert_eq!(errors(&project), [""; 0]);
}

#[test]
fn a_job_that_takes_processes_down_is_run_again_alone_up_to_the_crash_limit() {
    let project = lab("", &between("abort_twice"));
    project.run().done().says("at job 2, which is run again alone (death 2 of at most 3)");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3]);
    assert_eq!(errors(&project), [""; 0]);

    for (settings, often, deaths) in
        [("", ", 3 times in a row", 3), ("crash_limit = 1", "", 1), ("delivery = \"at-most-once\"", "", 1)]
    {
        let project = lab(settings, &between("count_and_abort"));
        project.run().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 3]);
        let why = format!("crashed: plugin `lab`: its process was ended by signal 6 (SIGABRT){often}");
        assert_eq!(errors(&project), [why]);
        assert_eq!(project.len("deaths"), deaths, "{settings}");
    }
}

#[test]
fn without_a_crash_limit_a_job_takes_any_number_of_processes_down_and_is_run_again() {
    // More deaths than the default limit.
    let project = lab("crash_limit = 0", &between("abort_five_times"));
    project.run().done().says("at job 2, which is run again alone (death 5 of any number)");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3]);
    assert_eq!(errors(&project), [""; 0]);
}

#[test]
fn a_timeout_holds_whatever_the_process_does_to_itself() {
    let killed = "timeout: plugin `lab`: it exceeded its `timeout` of 3s; its process was killed";
    let closed = "crashed: plugin `lab`: its process closed its connection to the runner without ending; it was killed";
    for (act, why) in [
        ("close_and_hang", closed),
        ("shut_and_hang", closed),
        ("exec", closed),
        ("stop", killed),
        ("start_and_hang", killed),
    ] {
        let project = lab("timeout = \"3s\"\ncrash_limit = 1", &between(act));
        project.run().done();
        assert_eq!(ids(&project.read("out.ndjson")), [1, 3], "{act}");
        assert_eq!(errors(&project), [why], "{act}");
        assert_eq!(hosts(project.path()), [0; 0], "{act}");
    }
}

#[test]
fn what_a_process_has_started_ends_with_it() {
    let project = lab("timeout = \"3s\"", &between("start_and_hang"));
    project.run().done();
    wait_until_gone(&[started(&project)], "start_and_hang");
}

#[test]
fn a_process_that_dies_is_noticed_though_one_that_it_started_holds_its_connection() {
    let project = lab("timeout = \"1h\"\ncrash_limit = 1", &between("fork_and_abort"));
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3]);
    assert_eq!(errors(&project), ["crashed: plugin `lab`: its process was ended by signal 6 (SIGABRT)"]);
}

#[test]
fn no_process_outlives_a_runner_that_is_killed() {
    for act in ["start_and_hang", "stop"] {
        let project = lab("timeout = \"1h\"", &between(act));
        let mut running = project.start(&["run", "."]);
        running.wait_until("its process", || match act {
            "stop" => hosts(project.path()).first().is_some_and(|host| {
                let status = fs::read_to_string(format!("/proc/{host}/status")).unwrap_or_default();
                status.contains("State:\tT")
            }),
            _ => project.path().join("started").exists(),
        });
        let mut left = hosts(project.path());
        assert_eq!(left.len(), 1);
        left.extend(project.path().join("started").exists().then(|| started(&project)));
        assert!(running.kill());
        wait_until_gone(&left, act);
    }
}

#[test]
fn bytes_that_a_plugin_writes_anywhere_fail_the_job_that_runs_and_no_other() {
    let project = lab("crash_limit = 1", &between("write_everywhere"));
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 3]);
    let why = "crashed: plugin `lab`: its process wrote invalid data into its connection to the runner, \
               and was killed";
    assert_eq!(errors(&project), [why]);
}

#[test]
fn what_is_logged_between_batches_and_at_the_end_arrives() {
    let project = lab("", "{\"id\":1,\"do\":\"start_thread\"}\n");
    project.change("p.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    let mut running = project.start(&["run", "."]);
    running.wait_until("the job", || project.len("out.ndjson") > 0);
    project.write("go", "");
    running.wait_until_it_says("logged by a thread");
    running.stop().done().says("logged at the end");
}

#[test]
fn a_step_that_does_not_end_is_killed_and_that_is_told() {
    let project = lab("", "{\"id\":1,\"do\":\"hang_at_the_end\"}\n");
    project.run().done().says("its process did not end within 1s of the end of the step, and was killed");
    assert_eq!(ids(&project.read("out.ndjson")), [1]);
}

#[test]
fn a_panic_at_the_end_of_a_process_is_told() {
    let project =
        super::project("run = \"plugin:flaky\"\nisolate = \"process\"\nconfig = { panic_in_drop = true }")
            .file("in.ndjson", jobs(1..=1));
    project.run().done().says("the plugin did not end as it should: drop, as asked");
}

#[test]
fn a_step_that_does_not_end_in_the_process_holds_the_run_no_longer_than_its_shutdown_timeout() {
    let project = super::project("run = \"plugin:flaky\"\nconfig = { slow_drop_ms = 600000 }")
        .file("in.ndjson", jobs(1..=2));
    project.write("tidegate.toml", project.read("tidegate.toml") + "shutdown_timeout = \"100ms\"\n");
    project
        .run()
        .done()
        .says("plugin `flaky` was being ended for step `p/work`, which exceeded `shutdown_timeout` (100ms)");
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2]);
}

/// The plugin in C with this code before its description.
fn unruly(code: &str) -> String {
    super::c_count().replace(
        "static const TidegateStep steps[]",
        &format!("#include <signal.h>\n#include <unistd.h>\n{code}\nstatic const TidegateStep steps[]"),
    )
}

/// The outputs of `check` and `plugin inspect` for a plugin built from this C code.
fn told(source: &str) -> (Outcome, Outcome) {
    let project = Project::pipeline(
        "[step.work]\nfrom = \"in\"\nrun = \"plugin:unruly\"\nisolate = \"process\"\nto = \"out\"\n",
    )
    .file("tidegate.toml", "[runner]\nplugins = \".\"\n");
    compile(source, &project.path().join("unruly.so"), &[]);
    let inspected = project.tidegate(&["plugin", "inspect", "unruly.so", "--format", "json"]);
    (project.tidegate(&["check", "."]), inspected)
}

#[test]
fn a_library_that_takes_its_process_down_is_a_mistake_at_its_place() {
    let constructor = "__attribute__((constructor)) static void begin(void)";
    for (code, why) in [
        (format!("{constructor} {{ abort(); }}"), "its process was ended by signal 6 (SIGABRT)"),
        (format!("{constructor} {{ exit(0); }}"), "its process ended with exit code 0"),
        (
            format!("{constructor} {{ puts(\"no licence\"); exit(3); }}"),
            "exit code 3 instead of describing itself; it printed `no licence`",
        ),
        (format!("{constructor} {{ kill(getpid(), 9); }}"), "signal 9 (SIGKILL)"),
    ] {
        let (checked, inspected) = told(&unruly(&code));
        let checked = checked.failed(78).says(why).says("p.toml:");
        assert!(checked.stderr.contains("`unruly.so` cannot be used: its process"), "{}", checked.stderr);
        inspected.failed(1).says(why);
    }
    let schema = c_count_schema("abort();");
    told(&schema).0.failed(78).says("signal 6 (SIGABRT)");
}

fn c_count_schema(code: &str) -> String {
    super::c_count().replace(
        "answer->say(answer->target, text(\"{",
        &format!("{code} answer->say(answer->target, text(\"{{"),
    )
}

#[test]
fn what_a_library_prints_never_stands_before_what_a_command_says() {
    let (checked, inspected) = told(&unruly(
        "__attribute__((constructor)) static void begin(void) { puts(\"hello\\n\\033[31mthere\"); }",
    ));
    checked.done().says("plugin `unruly` prints while it is loaded: `hello  [31mthere`");
    let inspected = inspected.done().says("prints while it is loaded");
    let shown: serde_json::Value = serde_json::from_str(&inspected.stdout).expect("it is JSON");
    assert_eq!(shown["name"], "c-count");
}

#[test]
fn a_library_that_never_says_what_it_offers_is_a_mistake() {
    let (checked, _) =
        told(&unruly("__attribute__((constructor)) static void begin(void) { for (;;) pause(); }"));
    checked.failed(78).says("it did not describe itself within 10s, and its process was killed");
}

#[test]
fn a_library_finds_what_stands_beside_it_and_nothing_stays_there() {
    let project = Project::pipeline("[step.work]\nfrom = \"in\"\nrun = \"plugin:needy\"\nto = \"out\"\n")
        .file("in.ndjson", jobs(1..=1))
        .file("tidegate.toml", "[runner]\nplugins = \"plugins\"\n")
        .file("plugins/readme", "");
    let plugins = project.path().join("plugins");
    compile("const char *beside(void) { return \"beside\"; }\n", &plugins.join("libdep.so"), &[]);
    let source = super::c_count()
        .replace("#include <stdio.h>", "#include <stdio.h>\nconst char *beside(void);")
        .replace("counter->seen++;", "counter->seen += beside()[0] == 'b';");
    let folder = plugins.display().to_string();
    let options = ["-L", &folder, "-ldep", "-Wl,-rpath,$ORIGIN"];
    compile(&source, &plugins.join("needy.so"), &options);
    for isolate in ["none", "process"] {
        project.change(
            "p.toml",
            "run = \"plugin:needy\"\n",
            &format!("run = \"plugin:needy\"\nisolate = \"{isolate}\"\n"),
        );
        project.append("in.ndjson", jobs(2..=2));
        project.run().done();
        project.change("p.toml", &format!("isolate = \"{isolate}\"\n"), "");
    }
    assert_eq!(project.read("out.ndjson").lines().count(), 3);
    let mut left: Vec<_> = fs::read_dir(&plugins)
        .expect("it is there")
        .map(|entry| entry.expect("it can be listed").file_name().into_string().expect("it is text"))
        .collect();
    left.sort();
    assert_eq!(left, ["libdep.c", "libdep.so", "needy.c", "needy.so", "readme"]);
}

#[test]
fn a_plugin_that_changes_the_working_folder_moves_nothing() {
    let project = lab("", &between("move")).file("elsewhere/readme", "");
    project.change("p.toml", "isolate = \"process\"\n", "");
    project.run().done();
    project.append("in.ndjson", jobs(4..=4));
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), [1, 2, 3, 4]);
    let left: Vec<_> = fs::read_dir(project.path().join("elsewhere")).expect("it is there").collect();
    assert_eq!(left.len(), 1);
    assert!(!project.path().join(".tidegate/control.sock").exists());
    project.assert_sound();
}

/// A step whose plugin in C runs `made` at its creation and `job` for each job, unless the file `calm` exists.
/// It runs in the process of the runner.
pub(crate) fn rash(made: &str, job: &str) -> Project {
    let project = Project::pipeline(
        "[pipeline]\nerrors = \"failed\"\n[step.work]\nfrom = \"in\"\nrun = \"plugin:rash\"\nto = \"out\"\n",
    )
    .file("tidegate.toml", "[runner]\nplugins = \".\"\nworkers = 1\n")
    .file("in.ndjson", jobs(1..=3));
    let unless_calm = |code: &str| format!("if (access(\"calm\", F_OK) != 0) {{ {code} }}\n");
    let source = unruly(
        "#include <pthread.h>\nstatic void *end(void *how) { if (how) abort(); exit(0); }\n\
         static pthread_t thread;",
    );
    // The code must precede its uses.
    let (begin, rest) = source.split_once("struct counter {").expect("the plugin is there");
    let (before, after) = rest.split_once("#include <signal.h>").expect("it was put there");
    let (code, steps) = after.split_once("static const TidegateStep").expect("it is there");
    let source =
        format!("{begin}#include <signal.h>{code}struct counter {{{before}static const TidegateStep{steps}");
    let source = source
        .replace(
            "counter->host = setup->host;",
            &format!("(void)thread; (void)end; {}counter->host = setup->host;", unless_calm(made)),
        )
        .replace("counter->seen++;", &format!("{}counter->seen++;", unless_calm(job)));
    compile(&source, &project.path().join("rash.so"), &["-pthread"]);
    project
}

#[test]
fn a_plugin_that_ends_the_process_is_named_and_the_run_has_failed() {
    for (made, job, whose) in [
        ("exit(0);", "", "while plugin `rash` was being created for step `p/work`"),
        ("", "exit(0);", "while plugin `rash` ran job 1 for step `p/work`"),
        (
            "",
            "pthread_create(&thread, NULL, end, NULL); for (;;) pause();",
            "on a thread that no step runs on",
        ),
    ] {
        let project = rash(made, job);
        let told = format!("error: code of a plugin ended the process with `exit`, {whose}");
        project.run().failed(1).says(&told);
        project.write("calm", "");
        project.run().done();
        assert_eq!(ids_seen(&project), 3, "{whose}");
    }
}

#[test]
fn the_next_run_says_which_plugin_took_the_last_one_down() {
    for (made, job, at) in [
        ("abort();", "", "while plugin `rash` was being created for step `p/work`"),
        ("", "abort();", "while plugin `rash` ran jobs 1 to 3 of `p/in`"),
        (
            "",
            "pthread_create(&thread, NULL, end, (void *)1); for (;;) pause();",
            "while plugin `rash` ran jobs 1 to 3 of `p/in`",
        ),
    ] {
        let project = rash(made, job);
        assert_eq!(project.run().code, None);
        project.write("calm", "");
        project.run().done().says(&format!("the last run was killed or crashed {at}"));
        let again = project.run().done();
        assert!(!again.stderr.contains("the last run"), "{}", again.stderr);
        assert_eq!(ids_seen(&project), 3);
    }
}

#[test]
fn a_plugin_that_cannot_be_made_without_a_death_stops_its_step_alone() {
    let project = rash("abort();", "");
    for _ in 0..3 {
        assert_eq!(project.run().code, None);
    }
    let why = "the process died 3 times in a row while plugin `rash` was being created for step `p/work`; the next \
               run tries it again";
    project.run().failed(1).says(why).says("(3 runs in a row)");
    assert_eq!(project.run().code, None);
    project.write("calm", "");
    project.run().done();
    assert_eq!(ids_seen(&project), 3);
}

#[test]
fn without_a_crash_limit_a_plugin_is_made_again_after_any_number_of_deaths() {
    let project = rash("abort();", "");
    project.change("p.toml", "[step.work]\n", "[step.work]\ncrash_limit = 0\n");
    // More deaths than the default limit.
    for _ in 0..5 {
        assert_eq!(project.run().code, None);
    }
    project.write("calm", "");
    project.run().done();
    assert_eq!(ids_seen(&project), 3);
}

pub(crate) fn ids_seen(project: &Project) -> usize {
    project.read("out.ndjson").lines().count()
}
