//! Claims: a run whose jobs act outside is killed at random moments. Jobs that were claimed and not begun cost no
//! attempt.

use std::collections::{BTreeMap, BTreeSet};

use crate::moment::kills;
use crate::outward::service::Service;
use crate::project::{Project, ids, jobs};
use crate::random::Random;

const KILLS: u64 = 12;
/// Jobs between two kills, on average.
const JOBS_A_KILL: u64 = 150;
/// Jobs that run at once: a kill comes between their beginnings and their requests.
const AT_ONCE: u64 = 8;

/// Attempts by hash, in the order in which the service saw them.
fn attempts(service: &Service) -> BTreeMap<String, Vec<u64>> {
    let mut attempts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for asked in service.asked() {
        let number = asked.header("x-attempt").parse().expect("it is a number");
        attempts.entry(asked.header("idempotency-key").to_owned()).or_default().push(number);
    }
    attempts
}

#[test]
fn a_run_that_acts_outside_counts_only_begun_attempts_however_often_it_is_killed() {
    let queuer = format!("strategy = \"fifo\", max_processing = {AT_ONCE}");
    kill_often(&queuer, AT_ONCE);
}

#[test]
fn a_job_of_serial_is_attempted_when_the_result_before_it_is_durable_however_often_the_run_is_killed() {
    let service = kill_often("strategy = \"serial\"", 1);
    let indices = service
        .asked()
        .into_iter()
        .map(|asked| asked.header("x-index").parse::<u64>().expect("it is a number"));
    let indices: Vec<u64> = indices.collect();
    assert!(indices.is_sorted(), "a job was attempted again after a later one: {indices:?}");
}

/// Kills a run at random moments, and checks its attempts. At most `at_once` jobs run at once.
fn kill_often(queuer: &str, at_once: u64) -> Service {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let kills = kills(KILLS);
    let all = JOBS_A_KILL * (kills + 2);
    let service = Service::answering("200 OK", "", "{}");
    let pipeline = format!(
        "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
         [step.read]\nfrom = \"in\"\nto = \"queue\"\n\
         [step.act]\nfrom = \"queue\"\nrun = [\"builtin:http\", \"pass.rhai\"]\nto = \"out\"\n\
         queuer = {{ {queuer} }}\n\
         retry = {{ backoff = \"fixed\", initial = \"10ms\", max_attempts = 1000000 }}\n\
         [step.act.http]\nurl = \"http://{}/\"\nmethod = \"POST\"\nheaders = {{ x-attempt = \"{{ctx.attempt}}\", \
         x-index = \"{{ctx.index}}\" }}\n\
         [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        service.address
    );
    let project = Project::new()
        .file("p.toml", pipeline)
        .file("pass.rhai", "fn process(answer, ctx) { #{ id: ctx.index } }")
        .file("in.ndjson", jobs(1..=all));
    for kill in 0..kills {
        let before = service.asked().len() as u64;
        let more = 1 + random.below(2 * JOBS_A_KILL - 1);
        let mut running = project.start(&["run", "."]);
        running.wait_until("it acts", || service.asked().len() as u64 >= (before + more).min(all * 9 / 10));
        assert!(running.kill(), "it ended before kill {kill}");
    }
    project.run().done();
    let delivered = ids(&project.read("out.ndjson"));
    assert_eq!(delivered.len() as u64, all);
    assert_eq!(delivered.iter().collect::<BTreeSet<_>>().len() as u64, all);
    let attempts = attempts(&service);
    assert_eq!(attempts.len() as u64, all, "each job has one hash");
    let (mut repeated, mut counted) = (0, 0);
    for (hash, numbers) in &attempts {
        assert!(numbers.is_sorted_by(|one, next| one < next), "{hash} was attempted as {numbers:?}");
        repeated += numbers.len() as u64 - 1;
        counted += numbers.last().copied().unwrap_or_default() - 1;
    }
    println!("{repeated} attempts were repeated, and {counted} counted, in {kills} kills");
    let unseen = counted - repeated;
    assert!(unseen <= kills * at_once, "{unseen} attempts count that were never made, after {kills} kills");
    project.assert_sound();
    service
}
