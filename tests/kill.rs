//! Kills: the executable is killed repeatedly, at random moments, during one run.

use crate::moment::{Moment, kills};
use crate::project::{Project, ids};
use crate::random::Random;

const KILLS: u64 = 40;
/// Jobs between two kills, on average.
const JOBS_A_KILL: u64 = 1000;
/// One of this many jobs is rejected.
const REJECTED: u64 = 997;
/// Bytes of padding in each job.
const PADDING: usize = 300;
/// Approximate bytes of a job in the output.
const OUTPUT_BYTES: u64 = PADDING as u64 + 35;

/// The crash limit is above the kills: the test causes them, so no job is to blame. Without a limit, suspects
/// would not be played.
const PIPELINE: &str = r#"
[pipeline]
errors = "failed"
[source.in]
type = "file"
path = "in.ndjson"
format = "ndjson"
[step.first]
from = "in"
run = "first.rhai"
crash_limit = 1000
to = "between"
[step.second]
from = "between"
run = "second.rhai"
crash_limit = 1000
to = "out"
[sink.out]
type = "file"
path = "out/out.ndjson"
"#;

/// Jobs that are large enough for a batch to hold at most a few hundred of them.
fn input(jobs: u64) -> String {
    let padding = "x".repeat(PADDING);
    let mut lines = String::new();
    for id in 1..=jobs {
        lines.extend(["{\"id\":", &id.to_string(), ",\"padding\":\"", &padding, "\"}\n"]);
    }
    lines
}

#[test]
fn a_run_that_is_killed_again_and_again_delivers_each_job_once_and_in_order() {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let kills = kills(KILLS);
    let jobs = kills * JOBS_A_KILL;
    let bytes = jobs * OUTPUT_BYTES;
    let project = Project::new()
        .file("p.toml", PIPELINE)
        .file(
            "first.rhai",
            format!("fn process(job) {{ if job.id % {REJECTED} == 0 {{ reject(\"no\") }} job }}"),
        )
        .file(
            "second.rhai",
            "fn process(job) { let sum = 0; for i in 0..20 { sum += i; } job.sum = sum; job }",
        )
        .file("in.ndjson", input(jobs));

    let mut cut_back = 0;
    for kill in 0..kills {
        let ahead = project.len("out/out.ndjson") > bytes * 3 / 4 * (kill + 10) / (kills + 10);
        let moment = Moment::choose(&mut random, bytes / kills, ahead);
        let mut running = project.start(&["run", "."]);
        moment.wait(&project, "out/out.ndjson", &mut running);
        let said = running.stderr();
        assert!(running.kill(), "it ended before kill {kill}, {moment:?}:\n{said}");
        cut_back += u64::from(said.contains("cuts off uncommitted bytes"));
        assert!(!said.contains("error") && !said.contains("panic"), "after kill {kill}:\n{said}");
    }
    println!("{cut_back} times something had to be cut off");
    assert!(cut_back > 0, "no kill came between the output file and the store");
    let rest = project.run().done();

    let expected: Vec<u64> = (1..=jobs).filter(|id| id % REJECTED != 0).collect();
    let delivered = ids(&project.read("out/out.ndjson"));
    if let Some(at) =
        (0..expected.len().max(delivered.len())).find(|&at| expected.get(at) != delivered.get(at))
    {
        panic!("seed {seed}: line {} is {:?} and not {:?}", at + 1, delivered.get(at), expected.get(at));
    }
    let shown =
        project.tidegate(&["queue", "show", "p/failed", "--limit", "10000", "--format", "json"]).done();
    let records: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
    let rejected: Vec<Option<u64>> = records
        .as_array()
        .expect("a list")
        .iter()
        .map(|record| record["job"]["job"]["id"].as_u64())
        .collect();
    let expected: Vec<Option<u64>> = (1..=jobs).filter(|id| id % REJECTED == 0).map(Some).collect();
    assert_eq!(rejected, expected, "seed {seed}");
    assert!(rest.stderr.contains("done:"), "the last run had something to do:\n{}", rest.stderr);
}
