//! Crash guard: jobs that kill the process repeatedly are quarantined, and no others.

use std::fs;

use crate::project::{Project, ids, jobs};
use crate::running::Running;

const JOBS: u64 = 3000;
/// The job over which the process is killed.
const POISON: u64 = 1500;

/// Hangs on one job until the test kills it.
const HANGS: &str = "fn process(job) { if job.id == 1500 { loop { } } job }";
const MENDED: &str = "fn process(job) { job }";

const STEP: &str = "[step.work]\nfrom = \"in\"\nrun = \"work.rhai\"\nto = \"out\"\n\
                    limits = { operations = 1000000000000 }\ntimeout = \"10m\"\n";

/// Start of the workers' cells in the attempts file, and length of a cell, in bytes.
const WORKERS_AT: usize = 64 << 10;
const CELL_BYTES: usize = 64;

/// The jobs that a worker has recorded as attempted.
#[derive(Debug)]
struct Attempted {
    first: u64,
    jobs: u64,
    crashes: u32,
}

fn attempted(project: &Project) -> Vec<Attempted> {
    let bytes = fs::read(project.path().join(".tidegate/attempts")).unwrap_or_default();
    let number = |cell: &[u8], at: usize| {
        u64::from_le_bytes(cell[at..at + 8].try_into().expect("a cell is long enough"))
    };
    let cells = bytes.get(WORKERS_AT..).unwrap_or_default().chunks_exact(CELL_BYTES);
    cells
        .filter(|cell| number(cell, 0) != 0)
        .map(|cell| Attempted {
            first: number(cell, 24),
            jobs: number(cell, 32),
            crashes: u32::try_from(number(cell, 40) & u64::from(u32::MAX)).expect("it is cut to 32 bits"),
        })
        .collect()
}

/// The record of the only job on the error queue.
fn only_error(project: &Project) -> serde_json::Value {
    let shown = project.tidegate(&["queue", "show", "p/failed", "--format", "json"]).done();
    let errors: Vec<serde_json::Value> = serde_json::from_str(&shown.stdout).expect("it is a list");
    let [error] = &errors[..] else { panic!("not one error: {errors:?}") };
    error["job"].clone()
}

/// No attempt is recorded, and a next run would have no suspects.
fn is_clear(project: &Project) -> bool {
    let bytes = fs::read(project.path().join(".tidegate/attempts")).expect("the file is there");
    bytes.iter().all(|&byte| byte == 0)
}

/// Starts a run, and waits until it hangs on the job, alone or with its batch.
fn hang(project: &Project, alone: bool, crashes: u32) -> Running {
    let mut running = project.start(&["run", "."]);
    running.wait_until("the attempt that hangs", || {
        attempted(project).iter().any(|one| {
            let covers = (one.first..one.first + one.jobs).contains(&POISON);
            covers && (one.jobs == 1) == alone && one.crashes == crashes
        })
    });
    running
}

#[test]
fn a_job_over_which_the_process_died_three_times_is_set_aside_and_no_other_is() {
    let project = Project::pipeline(&format!("[pipeline]\nerrors = \"failed\"\n{STEP}"))
        .file("in.ndjson", jobs(1..=JOBS))
        .file("work.rhai", HANGS);
    for crash in 1..=3 {
        assert!(hang(&project, crash > 1, crash).kill());
    }
    project.run().done();
    let expected: Vec<u64> = (1..=JOBS).filter(|&id| id != POISON).collect();
    assert_eq!(ids(&project.read("out.ndjson")), expected);
    let error = only_error(&project);
    assert_eq!((&error["kind"], &error["job"]["id"]), (&"crashed".into(), &POISON.into()), "{error}");
    assert_eq!(error["attempt"], 3);
    assert_eq!(
        error["message"],
        "the process died 3 times in a row while this job was attempted, so it is no longer attempted"
    );
    assert!(is_clear(&project));
}

#[test]
fn a_joined_job_is_known_by_its_row_and_a_limit_of_one_needs_one_death() {
    let project = Project::new()
        .file(
            "p.toml",
            "[pipeline]\nerrors = \"failed\"\n\
             [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
             [source.other]\ntype = \"file\"\npath = \"other.ndjson\"\nformat = \"ndjson\"\n\
             [step.work]\njoin = { left = \"in\", right = \"other\" }\nrun = \"work.rhai\"\nto = \"out\"\n\
             limits = { operations = 1000000000000 }\ntimeout = \"10m\"\ncrash_limit = 1\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        )
        // The jobs of another worker at that moment would be suspects too.
        .file("tidegate.toml", "[runner]\nworkers = 1\n")
        .file("in.ndjson", jobs(1..=JOBS))
        .file("other.ndjson", jobs(10_001..=10_000 + JOBS))
        .file("work.rhai", "fn process(job) { if job.left.id == 1500 { loop { } } job.right }");
    assert!(hang(&project, true, 1).kill());
    project.run().done();
    let expected: Vec<u64> = (1..=JOBS).filter(|&id| id != POISON).map(|id| id + 10_000).collect();
    assert_eq!(ids(&project.read("out.ndjson")), expected);
    let error = only_error(&project);
    assert_eq!(
        (&error["kind"], &error["inputs"]["right"]["index"]),
        (&"crashed".into(), &POISON.into()),
        "{error}"
    );
    assert_eq!(
        error["message"],
        "the process died while this job was attempted, so it is no longer attempted"
    );
    assert!(is_clear(&project));
}

#[test]
fn without_an_error_queue_the_step_stops_and_tries_again_when_it_is_run_again() {
    let project = Project::pipeline(STEP).file("in.ndjson", jobs(1..=JOBS)).file("work.rhai", HANGS);
    for crash in 1..=3 {
        assert!(hang(&project, crash > 1, crash).kill());
    }
    project.run().failed(1).says("job 1500").says("the process died 3 times in a row").says("errors = ");
    assert_eq!(project.read("out.ndjson"), jobs(1..POISON));
    project.write("work.rhai", MENDED);
    project.run().done();
    assert_eq!(project.read("out.ndjson"), jobs(1..=JOBS));
    assert!(is_clear(&project));
}

#[test]
fn an_end_that_waits_no_longer_is_no_death_of_a_job() {
    let project = Project::pipeline(STEP)
        .file("tidegate.toml", "[runner]\nshutdown_timeout = \"10ms\"\n")
        .file("in.ndjson", jobs(1..=JOBS))
        .file("work.rhai", HANGS);
    for _ in 0..2 {
        hang(&project, false, 1).stop().done();
        assert!(is_clear(&project));
    }
}

#[test]
fn suspects_of_a_step_that_is_no_longer_guarded_or_not_there_are_forgotten_by_the_next_run() {
    for (from, to) in [
        ("[step.work]\n", "[step.work]\ncrash_limit = 0\n"),
        ("[step.work]\n", "[step.work]\ndelivery = \"at-most-once\"\n"),
        ("[step.work]\n", "[step.other]\n"),
    ] {
        let project = Project::pipeline(STEP).file("in.ndjson", jobs(1..=JOBS)).file("work.rhai", HANGS);
        assert!(hang(&project, false, 1).kill());
        assert!(!is_clear(&project));
        project.change("p.toml", from, to);
        project.write("work.rhai", MENDED);
        project.run().done();
        assert!(is_clear(&project), "{to}");
    }
}

#[test]
fn jobs_of_commands_start_together_again_after_a_kill() {
    start_together("\"builtin:exec\"");
}

#[test]
fn jobs_that_were_in_a_command_between_two_scripts_are_not_suspected() {
    start_together("[\"pass.rhai\", \"builtin:exec\", \"pass.rhai\"]");
}

fn start_together(run: &str) {
    let project = Project::pipeline(&format!(
        "[step.work]\nfrom = \"in\"\nto = \"out\"\nrun = {run}\n\
         exec = {{ command = [\"sh\", \"-c\", \"touch begun-$PPID-$$; while [ ! -e go ]; do sleep 0.01; done; cat\"] }}\n\
         timeout = \"10m\"\n",
    ))
    .file("pass.rhai", MENDED)
    .file("in.ndjson", jobs(1..=4));
    // Commands of a killed run end later.
    let begun = |run: u32| {
        let prefix = format!("begun-{run}-");
        let files = fs::read_dir(project.path()).expect("the folder is there").flatten();
        files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix)).count()
    };
    // More kills than the crash limit, over all jobs.
    for _ in 0..4 {
        let mut running = project.start(&["run", "."]);
        let pid = running.pid();
        running.wait_until("all jobs", || begun(pid) == 4);
        assert!(running.kill());
    }
    project.write("go", "");
    project.run().done();
    let mut out = ids(&project.read("out.ndjson"));
    out.sort_unstable();
    assert_eq!(out, [1, 2, 3, 4]);
    assert!(is_clear(&project));
}

#[test]
fn without_a_crash_limit_a_job_is_never_suspected_or_set_aside() {
    let project = Project::pipeline(&format!("[pipeline]\nerrors = \"failed\"\n{STEP}crash_limit = 0\n"))
        .file("in.ndjson", jobs(1..=JOBS))
        .file("work.rhai", HANGS.replace("loop", "log_info(\"hangs\"); loop"));
    for _ in 0..4 {
        let mut running = project.start(&["run", "."]);
        running.wait_until_it_says("hangs");
        assert!(is_clear(&project));
        assert!(running.kill());
    }
    project.write("work.rhai", MENDED);
    project.run().done();
    assert_eq!(ids(&project.read("out.ndjson")), (1..=JOBS).collect::<Vec<_>>());
}

#[test]
fn suspects_run_one_at_a_time_beside_everything_else() {
    // Jobs 1 and 2 never end, and there is one worker.
    let settings = "limits = { operations = 1000000000000 }\ntimeout = \"1h\"\n";
    let project = Project::new()
        .file("tidegate.toml", "[runner]\nworkers = 1\n")
        .file(
            "p.toml",
            format!(
                "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = true\n\
                 [step.work]\nfrom = \"in\"\nto = \"out\"\nrun = \"work.rhai\"\n{settings}\
                 queuer = {{ strategy = \"fifo\", max_processing = 4 }}\n\
                 [step.line]\nfrom = \"in\"\nto = \"other\"\nrun = \"pass.rhai\"\n\
                 [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n\
                 [sink.other]\ntype = \"file\"\npath = \"other.ndjson\"\n"
            ),
        )
        .file("in.ndjson", jobs(1..=10))
        .file("pass.rhai", MENDED)
        .file("work.rhai", "fn process(job) { while job.id <= 2 {} job }");
    let hanging = || attempted(&project).iter().filter(|one| one.first <= 2).count();
    let delivered = || (project.ids_so_far("out.ndjson").len(), project.ids_so_far("other.ndjson").len());
    let mut running = project.started();
    running
        .wait_until("both hang, and all others are delivered", || hanging() == 2 && delivered() == (8, 10));
    assert!(running.kill());
    project.append("in.ndjson", jobs(11..=20));
    let mut running = project.started();
    running.wait_until("one of them hangs, and all others are delivered", || {
        hanging() == 1 && delivered() == (18, 20)
    });
    let counted = attempted(&project).iter().filter(|one| one.first <= 2).map(|one| one.crashes).max();
    assert_eq!(counted, Some(2));
    assert!(running.kill());
    project.write("work.rhai", MENDED);
    let mut running = project.started();
    running.wait_until("the suspects", || delivered() == (20, 20));
    running.stop().done();
    assert!(is_clear(&project));
    project.assert_sound();
}
