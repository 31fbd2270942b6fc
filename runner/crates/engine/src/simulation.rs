//! Simulation: runs whole pipelines with crashes and compares the results with a plain model.
//!
//! Graphs, jobs, failures and requests are random. A run has one thread, and its disk loses or tears writes
//! that were not synced. After each run all queues and sinks must have the jobs that a plain evaluation of
//! the graph gives. In some seeds inputs, outputs, names, sinks and error queues change, parts are removed and return,
//! whole pipelines among them, and earlier generations come back. Plans of changes are compared with their effects.
//!
//! Everything follows from a seed. The test prints a seed that fails, and this command repeats it:
//!
//! ```sh
//! TIDEGATE_SIM_SEED=4711 cargo test -p tidegate-engine --lib simulation
//! ```
//!
//! `TIDEGATE_SIM_SEEDS` sets the number of seeds, and `TIDEGATE_SIM_FIRST` the first one. Many seeds run faster
//! with `--release`.
//!
//! | module | content |
//! | --- | --- |
//! | `dice` | seeded random numbers |
//! | `twin` | the scripts' behaviour, in Rhai and in Rust |
//! | `blueprint` | a graph, as files |
//! | `drawing` | a random graph |
//! | `changes` | changes of a graph between two generations |
//! | `history` | the durable state that was observed |
//! | `pass` | a step, as long as it is wired in the same way |
//! | `planned` | effects of a plan, compared with what happens |
//! | `requests` | requests of operators |
//! | `effects` | effects that external systems can see |
//! | `stage` | one run, with random choices instead of threads |
//! | `workers`, `tally` | state that lasts over the runs, and counts of events |
//! | `world` | state of a seed: store, files and configuration, with changes between runs |
//! | `outcome` | perils of a run, and its end |
//! | `play` | one seed: runs, crashes, and the comparison between them |
//! | `jobs` | a single step that retries, delays and picks its jobs |
//! | `waiting` | a single step that waits: gates, monitors, pushes, schedules, requests to move its jobs, changed queuers |
//! | `joins` | a single join by key, whose jobs leave and whose settings change |
//! | `model` | expected results of a step |
//! | `compare`, `outlets`, `records`, `check` | the comparison with a target, with all sinks, with delivery records, and with everything |

pub(crate) mod blueprint;
pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod dice;
pub(crate) mod drawing;
pub(crate) mod effects;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod joins;
pub(crate) mod model;
pub(crate) mod outcome;
pub(crate) mod outlets;
pub(crate) mod pass;
pub(crate) mod planned;
pub(crate) mod play;
pub(crate) mod records;
pub(crate) mod requests;
pub(crate) mod stage;
pub(crate) mod tally;
pub(crate) mod twin;
pub(crate) mod waiting;
pub(crate) mod workers;
pub(crate) mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tally::Tally;

/// Number of seeds in a plain `cargo test`.
const SEEDS: u64 = 80;
/// Number of seeds of the graphs that change, which compile many scripts.
const CHANGING_SEEDS: u64 = 40;
/// Number of seeds of the graphs whose sources change, too.
const CHANGING_SOURCES_SEEDS: u64 = 40;
/// Number of seeds of the graphs whose pipelines are removed and return, too.
const CHANGING_PIPELINES_SEEDS: u64 = 40;
/// Number of seeds of the step that waits, which take longer.
const WAITING_SEEDS: u64 = 60;
/// Number of seeds of the step that claims jobs and runs them one after the other.
const CLAIMS_IN_TURN_SEEDS: u64 = 40;
/// Number of seeds of the step whose lanes are held.
const HELD_LANE_SEEDS: u64 = 40;
/// Number of seeds of the step whose queuer, gate and monitor change.
const CHANGING_RULES_SEEDS: u64 = 40;
/// Number of seeds of the join by key.
const JOIN_SEEDS: u64 = 60;
/// Number of seeds that cause every event.
const EVERY_EVENT: u64 = 40;
/// Stack size of a worker thread, which deeply nested steps need.
const STACK: usize = 16 << 20;

#[test]
fn whole_graphs_keep_their_promise_whatever_crashes_when() {
    let (tally, count) = play_all(play::play, SEEDS);
    let Tally { crashes, again, retries, request_outcome, jobs, lost, reloads, replaced, found, .. } = tally;
    let all = [crashes, again, retries, request_outcome, jobs, lost, reloads, replaced, found];
    let all_happened = all.iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn graphs_keep_their_promise_whatever_changes_in_them() {
    let (tally, count) = play_all(play::play_changes, CHANGING_SEEDS);
    let Tally { crashes, again, jobs, reloads, rollbacks, replaced, counts, .. } = tally;
    let all = [crashes, again, jobs, reloads, rollbacks, replaced, counts];
    let all_happened = all.iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn graphs_keep_their_promise_whatever_changes_in_their_sources() {
    let (tally, count) = play_all(play::play_changing_sources, CHANGING_SOURCES_SEEDS);
    let Tally { crashes, again, jobs, reloads, replaced, .. } = tally;
    let all_happened = [crashes, again, jobs, reloads, replaced].iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn graphs_keep_their_promise_whatever_pipelines_are_removed_and_return() {
    let (tally, count) = play_all(play::play_changing_pipelines, CHANGING_PIPELINES_SEEDS);
    let Tally { crashes, jobs, reloads, rollbacks, orphaned, returned, .. } = tally;
    let all_happened = [crashes, jobs, reloads, rollbacks, orphaned, returned].iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn jobs_that_are_retried_delayed_and_picked_end_exactly_once_whatever_crashes_when() {
    let (Tally { crashes, jobs, .. }, count) = play_all(play::play_jobs, SEEDS);
    assert!(crashes > 0 && jobs > 0 || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn jobs_that_wait_for_the_outside_end_exactly_once_whatever_crashes_when() {
    let (tally, count) = play_all(play::play_waiting, WAITING_SEEDS);
    let Tally { crashes, request_outcome, jobs, held, forgotten, completions, moved, ticks, .. } = tally;
    let all = [crashes, request_outcome, jobs, held, forgotten, completions, moved, ticks];
    let all_happened = all.iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn jobs_that_are_claimed_and_run_one_after_the_other_keep_their_order_whatever_crashes_when() {
    let (tally, count) = play_all(play::play_claims_in_turn, CLAIMS_IN_TURN_SEEDS);
    let Tally { crashes, request_outcome, jobs, forgotten, completions, moved, claimed_together, .. } = tally;
    let all = [crashes, request_outcome, jobs, forgotten, completions, moved, claimed_together];
    let all_happened = all.iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn a_lane_that_is_paused_or_has_halted_starts_nothing_until_it_is_resumed() {
    let (tally, count) = play_all(play::play_held_lanes, HELD_LANE_SEEDS);
    let Tally { crashes, request_outcome, jobs, moved, halted_lanes, .. } = tally;
    let all_happened = [crashes, request_outcome, jobs, moved, halted_lanes].iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn a_step_whose_queuer_gate_and_monitor_change_ends_each_job_exactly_once_whatever_crashes_when() {
    let (tally, count) = play_all(play::play_changing_rules, CHANGING_RULES_SEEDS);
    let Tally {
        crashes, request_outcome, jobs, held, forgotten, completions, moved, reloads, replaced, ..
    } = tally;
    let all = [crashes, request_outcome, jobs, held, forgotten, completions, moved, reloads, replaced];
    let all_happened = all.iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn jobs_of_a_join_by_key_are_in_one_tuple_or_wait_or_fail_whatever_crashes_when() {
    let (tally, count) = play_all(play::play_joins, JOIN_SEEDS);
    let Tally { crashes, request_outcome, jobs, moved, reloads, .. } = tally;
    let all_happened = [crashes, request_outcome, jobs, moved, reloads].iter().all(|&times| times > 0);
    assert!(all_happened || count < EVERY_EVENT, "{count} seeds should cause every event");
}

#[test]
fn seeds_of_waiting_jobs_that_once_failed_pass() {
    const SEEDS: [u64; 28] = [
        113, 146, 248, 349, 402, 415, 420, 442, 881, 890, 1292, 1417, 1521, 1868, 2468, 2721, 2905, 6233,
        6680, 7010, 9449, 11_717, 12_214, 16_583, 16_618, 16_694, 17_291, 18_766,
    ];
    for seed in SEEDS {
        play::play_waiting(seed);
    }
}

#[test]
fn seeds_of_retried_and_picked_jobs_that_once_failed_pass() {
    play::play_jobs(11_456);
}

#[test]
fn seeds_of_held_lanes_that_once_failed_pass() {
    for seed in [2254, 2273] {
        play::play_held_lanes(seed);
    }
}

#[test]
fn seeds_of_steps_whose_queuer_changes_and_once_failed_pass() {
    for seed in [1814, 1980, 3458, 11_869, 14_508, 16_008] {
        play::play_changing_rules(seed);
    }
}

#[test]
fn seeds_of_joins_by_key_that_once_failed_pass() {
    for seed in [5723, 10_061, 10_380, 11_446, 12_933, 14_710] {
        play::play_joins(seed);
    }
}

#[test]
fn seeds_of_graphs_that_once_failed_pass() {
    for seed in [306, 421, 3827, 15_047] {
        play::play(seed);
    }
}

#[test]
fn seeds_of_graphs_that_change_and_once_failed_pass() {
    const SEEDS: [u64; 31] = [
        112, 163, 234, 280, 288, 350, 436, 515, 600, 608, 727, 1893, 2067, 2072, 2513, 2930, 3107, 3843,
        3993, 4532, 5429, 8379, 8709, 10_685, 11_243, 11_624, 12_056, 12_242, 14_102, 15_294, 19_861,
    ];
    for seed in SEEDS {
        play::play_changes(seed);
    }
}

#[test]
fn seeds_of_graphs_whose_sources_change_and_once_failed_pass() {
    for seed in [1010, 2031, 3910, 8780, 10_401, 11_873, 18_904] {
        play::play_changing_sources(seed);
    }
}

/// Runs the requested seeds, or `seeds` of them. Returns the counts of events and of seeds.
fn play_all(play: fn(u64) -> Tally, seeds: u64) -> (Tally, u64) {
    let (first, count) = match number("TIDEGATE_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (number("TIDEGATE_SIM_FIRST").unwrap_or(1), number("TIDEGATE_SIM_SEEDS").unwrap_or(seeds)),
    };
    (play_seeds(play, first, count), count)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Runs `count` seeds. Returns the counts of events.
fn play_seeds(play: fn(u64) -> Tally, first: u64, count: u64) -> Tally {
    let next = AtomicU64::new(first);
    let failed = AtomicU64::new(0);
    let tally = Mutex::new(Tally::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failed.load(Ordering::Relaxed) >= 10 {
                return;
            }
            match catch_unwind(AssertUnwindSafe(|| play(seed))) {
                Ok(played) => tally.lock().unwrap().add(&played),
                Err(_) => {
                    eprintln!("seed {seed} failed: repeat it with TIDEGATE_SIM_SEED={seed}");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).unwrap();
        }
    });
    let tally = tally.into_inner().unwrap();
    eprintln!("{count} seeds from {first} on: {tally:?}");
    assert_eq!(failed.into_inner(), 0, "seeds failed: see the commands above");
    tally
}

#[test]
fn recovery_may_be_interrupted_at_every_step_of_itself() {
    let steps: Vec<u64> = (1..).filter_map(play::interrupt).take(2).collect();
    assert!(steps.iter().all(|&steps| steps > 10), "{steps:?}");
}

#[test]
fn a_reload_may_be_interrupted_at_every_operation_between_its_swap_and_the_last_step_that_follows() {
    // A small graph: two runs follow each operation. Larger ones take seconds each.
    let operations = play::interrupt_reload(3);
    assert!(operations.is_some_and(|operations| operations > 5), "{operations:?}");
    if let Some(count) = number("TIDEGATE_SIM_INTERRUPTED") {
        let first = number("TIDEGATE_SIM_FIRST").unwrap_or(1);
        play_seeds(play::play_interrupted_reload, first, count);
    }
}
