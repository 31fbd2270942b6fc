//! Whole graphs under crashes: random graphs, jobs, failures and requests, on one thread, over a disk
//! that loses and tears what was not synced; afterwards every queue and sink holds what a plain
//! evaluation of the graph says.
//!
//! Everything follows from a seed. A seed that fails says so and is played again with
//! `TIDEGATE_SIM_SEED=… cargo test -p tidegate-engine --lib simulation`; `TIDEGATE_SIM_SEEDS=…` plays so many,
//! which goes faster with `--release`, and `TIDEGATE_SIM_FIRST=…` says where to begin.
//!
//! | room | what it knows |
//! | --- | --- |
//! | `dice` | chance |
//! | `twin` | what the scripts do, in Rhai and in Rust |
//! | `blueprint` | a graph, as files |
//! | `drawing` | a random one |
//! | `history` | what was seen to be durable |
//! | `requests` | what somebody asks from outside |
//! | `effects` | what was seen outside |
//! | `stage` | one run, with chance in the place of threads |
//! | `workers`, `tally` | what is kept from run to run, and how much was played |
//! | `world` | the state of a seed: store, files, configuration, and what changes between runs |
//! | `outcome` | what may befall a run, and how it ends |
//! | `play` | a seed: runs, crashes, and the comparison between them |
//! | `jobs` | what is played beside graphs: a step that retries, delays and picks its jobs |
//! | `waiting` | the same of one that waits: gates, monitors, pushes, schedules, and whoever moves its jobs |
//! | `model` | what a step must have come to |
//! | `compare`, `outlets`, `check` | the comparison: with a place, with all sinks, with everything |

mod blueprint;
mod check;
mod compare;
mod dice;
mod drawing;
mod effects;
mod history;
mod jobs;
mod model;
mod outcome;
mod outlets;
mod play;
mod requests;
mod stage;
mod tally;
mod twin;
mod waiting;
mod workers;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tally::Tally;

/// So many seeds in a plain `cargo test`.
const SEEDS: u64 = 300;
/// The same where it waits, which takes longer.
const WAITING_SEEDS: u64 = 150;
/// A batch of steps that nest deeply needs it, as in a run.
const STACK: usize = 16 << 20;

#[test]
fn whole_graphs_keep_their_promise_whatever_crashes_when() {
    let (tally, count) = play_all(play::play, SEEDS);
    let Tally { crashes, again, retries, granted, jobs, lost, .. } = tally;
    let all_happened = [crashes, again, retries, granted, jobs, lost].iter().all(|&times| times > 0);
    assert!(all_happened || count < 100, "so many seeds should see everything");
}

#[test]
fn jobs_that_are_retried_delayed_and_picked_end_exactly_once_whatever_crashes_when() {
    let (Tally { crashes, jobs, .. }, count) = play_all(play::play_jobs, SEEDS);
    assert!(crashes > 0 && jobs > 0 || count < 100, "so many seeds should see everything");
}

#[test]
fn jobs_that_wait_for_the_outside_end_exactly_once_whatever_crashes_when() {
    let (tally, count) = play_all(play::play_waiting, WAITING_SEEDS);
    let Tally { crashes, granted, jobs, held, forgotten, told, moved, ticks, .. } = tally;
    let all = [crashes, granted, jobs, held, forgotten, told, moved, ticks];
    let all_happened = all.iter().all(|&times| times > 0);
    assert!(all_happened || count < 100, "so many seeds should see everything");
}

#[test]
fn what_once_failed_holds() {
    for seed in [248, 349, 402, 415, 420, 442, 890, 1292, 1417, 1868, 6233, 9449, 18_766] {
        play::play_waiting(seed);
    }
}

#[test]
fn graphs_that_once_failed_hold() {
    for seed in [306, 421] {
        play::play(seed);
    }
}

/// Plays the seeds that were asked for, or so many; answers what was played, and how many.
fn play_all(play: fn(u64) -> Tally, seeds: u64) -> (Tally, u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (first, count) = match number("TIDEGATE_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (number("TIDEGATE_SIM_FIRST").unwrap_or(1), number("TIDEGATE_SIM_SEEDS").unwrap_or(seeds)),
    };
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
                    eprintln!("seed {seed} failed; play it again with TIDEGATE_SIM_SEED={seed}");
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
    assert_eq!(failed.into_inner(), 0, "seeds failed; each says above how it is played again");
    (tally, count)
}

#[test]
fn recovery_may_be_interrupted_at_every_step_of_itself() {
    let steps: Vec<u64> = (1..).filter_map(play::interrupt).take(2).collect();
    assert!(steps.iter().all(|&steps| steps > 10), "{steps:?}");
}
