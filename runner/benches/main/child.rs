//! `Figures`: one measurement, in a process of its own, printed as one line.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_config::LoadOptions;
use tidegate_dispatch::RunOutcome;
use tidegate_engine::{Generation, Run, RunOptions, Stats};
use tidegate_model::SystemClock;
use tidegate_store::{CrashGuard, Store};

use crate::{calls, effects, floor, paths, plugins, reloads, waiting};

/// The output of a child.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) jobs: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The file of the store at the end.
    pub(crate) store_bytes: u64,
    /// Bytes written to the disk.
    pub(crate) written_bytes: u64,
    /// Largest number of threads.
    pub(crate) threads: u64,
}

const LATENCY_JOBS: u64 = 2000;
/// The folder of this process in `/proc`.
pub(crate) const OWN: &str = "/proc/self";

pub(crate) fn run(path: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let mut figures = Figures::default();
    let threads = effects::Threads::count();
    match path {
        "caller" => return calls::call(folder),
        "spawner" => return calls::spawn(folder),
        "floor" => figures.jobs = floor::floor(folder)?,
        "follow" => follow(folder, &mut figures)?,
        "idle" => {
            waiting::watch(folder, &mut figures)?;
            return print(&figures);
        }
        "parts" => effects::parts(folder, &mut figures)?,
        "reloaded" => {
            reloads::work(folder, &mut figures)?;
            return print(&figures);
        }
        "changed" => {
            reloads::change(folder, &mut figures)?;
            return print(&figures);
        }
        "quick" => {
            effects::quick(folder, &mut figures)?;
            print(&figures)?;
            std::process::abort();
        }
        "view" => {
            waiting::view(folder, &mut figures)?;
            print(&figures)?;
            std::process::abort();
        }
        "backlog" => {
            // From the start of the process to the first durable delivery.
            figures.seconds = first_delivery(folder, started)?;
            print(&figures)?;
            std::process::abort();
        }
        _ => {
            figures.jobs = drain(folder)?;
            figures.store_bytes = fs::metadata(folder.join(".tidegate/store.redb"))?.len();
        }
    }
    figures.seconds = started.elapsed().as_secs_f64();
    (figures.cpu_seconds, figures.peak_bytes) = own_usage()?;
    (figures.written_bytes, figures.threads) = (effects::written_bytes()?, threads.most());
    print(&figures)?;
    if path == "fill" {
        // The next measurement starts after a crash.
        std::process::abort();
    }
    Ok(())
}

fn print(figures: &Figures) -> Result<(), Box<dyn Error>> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(figures)?)?;
    Ok(output.flush()?)
}

/// A run over `folder`, and a second handle on its store.
pub(crate) fn prepare(folder: &Path) -> Result<(Run, Store), Box<dyn Error>> {
    let options = LoadOptions { plugins: vec![plugins::folder()?], ..LoadOptions::default() };
    let generation = Generation::load(&folder.join("bench.toml"), &options)
        .map_err(|diagnostics| diagnostics.render(false))?;
    let opened = tidegate_store::open(&generation.configuration.data)?;
    let store = opened.0.clone();
    let attempts = CrashGuard::open(&generation.configuration.data, generation.configuration.guarded_steps());
    let run = Run::new(generation, opened, Arc::new(SystemClock), RunOptions::default())?;
    Ok((run.with_attempts(attempts), store))
}

fn drain(folder: &Path) -> Result<u64, Box<dyn Error>> {
    let (run, _) = prepare(folder)?;
    let stats = run.stats();
    let report = run.run()?;
    assert_eq!(report.end, RunOutcome::Drained);
    Ok(stats.steps().iter().map(|step| step.counters().taken).max().unwrap_or(0))
}

/// Appends one job, waits until it is durably delivered, and again.
fn follow(folder: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let (run, _) = prepare(folder)?;
    let (stats, handle) = (run.stats(), run.handle());
    let runner = thread::spawn(move || run.run().map(|report| report.end).map_err(|error| error.to_string()));
    let mut input = OpenOptions::new().append(true).open(folder.join("in.ndjson"))?;
    let mut latencies = Vec::new();
    for id in 1..=LATENCY_JOBS {
        let line = paths::job(id) + "\n";
        let begun = Instant::now();
        input.write_all(line.as_bytes())?;
        wait_for(&stats, id);
        latencies.push(begun.elapsed());
    }
    handle.stop();
    runner.join().map_err(|_| "the run panicked")??;
    let delivered = fs::read_to_string(folder.join("out.ndjson"))?.lines().count() as u64;
    assert_eq!(delivered, LATENCY_JOBS);
    // The first ones run in a cold process.
    latencies.drain(..50);
    latencies.sort_unstable();
    let at = |share: usize| latencies[latencies.len() * share / 100].as_secs_f64() * 1000.0;
    (figures.jobs, figures.p50_ms, figures.p99_ms) = (LATENCY_JOBS, at(50), at(99));
    Ok(())
}

fn wait_for(stats: &Stats, jobs: u64) {
    while stats.step(0).counters().taken < jobs {
        // Yields the core to the runner; the latency is measured.
        thread::yield_now();
    }
}

fn first_delivery(folder: &Path, started: Instant) -> Result<f64, Box<dyn Error>> {
    let (run, _) = prepare(folder)?;
    let stats = run.stats();
    thread::spawn(move || run.run().map(|report| report.end).map_err(|error| error.to_string()));
    let drain = stats.steps().len() - 1;
    while stats.step(drain).counters().taken == 0 {
        if started.elapsed() > Duration::from_mins(1) {
            return Err("nothing is delivered".into());
        }
        thread::yield_now();
    }
    Ok(started.elapsed().as_secs_f64())
}

/// CPU seconds of this process, and its largest resident size in bytes, as Linux counts them.
fn own_usage() -> Result<(f64, u64), Box<dyn Error>> {
    // Fields 14 and 15 of `/proc/self/stat`, in hundredths of a second. The second field is a name with any
    // characters, and ends with the last parenthesis.
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    #[expect(clippy::cast_precision_loss, reason = "hundredths of a second are far below 2^52")]
    Ok((ticks as f64 / 100.0, peak_bytes()?))
}

/// The largest resident size of this process in bytes, as Linux counts it.
pub(crate) fn peak_bytes() -> Result<u64, Box<dyn Error>> {
    status_bytes(Path::new(OWN), "VmHWM:")
}

/// The resident size of a process now, by its folder in `/proc`.
pub(crate) fn held_bytes(process: &Path) -> Result<u64, Box<dyn Error>> {
    status_bytes(process, "VmRSS:")
}

fn status_bytes(process: &Path, of: &str) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string(process.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap_or("0 kB");
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// CPU time of the running threads of this process.
pub(crate) fn nanoseconds_of_cpu() -> Result<u64, Box<dyn Error>> {
    nanoseconds_of(Path::new(OWN))
}

/// The same of another process, by its folder in `/proc`.
pub(crate) fn nanoseconds_of(process: &Path) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for thread in fs::read_dir(process.join("task"))? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += times.split_whitespace().next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(sum)
}
