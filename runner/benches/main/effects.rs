//! Jobs with outside effects: measures a plugin that does nothing, declares effects, and drains a queue.
//!
//! Each step drains a queue that another process has filled. The rows compare it with itself, with the bare loop,
//! or with the `fdatasync` calls that the disk makes in a second.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::child::{self, Figures};
use crate::report::{Row, measure};
use crate::{http, paths, plugins};

/// Time for which the syncs of the disk are counted.
const SYNCED: Duration = Duration::from_secs(1);
/// Steps that run side by side.
const STEPS: u64 = 10;
/// Delay of a failed job, and its number of failures.
const DELAY: &str = "1s";
const DELAYS: f64 = 2.0;
/// Parts of a backlog; the first and the last one are compared.
const PARTS: u64 = 10;
/// Jobs of a step that takes a second for each.
const SLOW_JOBS: u64 = 20_000;
const SPIN: &str = "fn process(job) { let sum = 0; for number in 0..5000000 { sum += number % 7; } job }";

const FILL: &str = "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                    [step.fill]\nfrom = \"events\"\nto = \"backlog\"\n\
                    [sink.none]\ntype = \"null\"\n";

/// A step over the filled queue, with a processor and more settings.
fn step(name: &str, run: &str, settings: &str) -> String {
    format!("[step.{name}]\nfrom = \"backlog\"\nrun = \"{run}\"\nto = \"none\"\n{settings}\n")
}

/// A no-op with effects.
const ACT: &str = "plugin:measure/act";

fn at_once(jobs: u64) -> String {
    format!("queuer = {{ strategy = \"fifo\", max_processing = {jobs} }}")
}

/// A folder whose queue is filled with jobs.
struct Filled(TempDir);

impl Filled {
    /// Fills the queue in a process that crashes at the end.
    fn new(folder: &Path, jobs: u64) -> Result<Self, Box<dyn Error>> {
        plugins::build()?;
        let filled = Self(TempDir::new_in(folder)?);
        paths::write_input(&filled.0.path().join("in.ndjson"), jobs)?;
        paths::write_configuration(filled.0.path(), "fill")?;
        fs::write(filled.0.path().join("bench.toml"), FILL)?;
        measure("fill", filled.0.path())?;
        Ok(filled)
    }

    /// Drains the queue through these steps, which are new to it.
    fn drain(&self, steps: &str, path: &str) -> Result<Figures, Box<dyn Error>> {
        fs::write(self.0.path().join("bench.toml"), format!("{FILL}{steps}"))?;
        measure(path, self.0.path())
    }
}

fn rate(figures: &Figures) -> f64 {
    as_float(figures.jobs) / figures.seconds
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs, bytes and syncs are far below 2^52")]
fn as_float(count: u64) -> f64 {
    count as f64
}

/// A step with the default settings, which runs 16 jobs at once.
pub(crate) fn default(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let figures = Filled::new(folder, jobs)?.drain(&step("act", ACT, ""), "drain")?;
    let micros = figures.cpu_seconds / as_float(figures.jobs) * 1e6;
    Ok(vec![
        Row {
            path: "no-op with effects, 16 at once",
            figure: format!("{:.0} jobs/s", rate(&figures)),
            target: "≥ 60,000 jobs/s",
            met: rate(&figures) >= 60_000.0,
        },
        Row {
            path: "  its CPU time",
            figure: format!("{micros:.1} µs per job"),
            target: "≤ 20 µs per job",
            met: micros <= 20.0,
        },
    ])
}

/// A step that runs 1,000 jobs at once.
pub(crate) fn thousand(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let figures = Filled::new(folder, jobs)?.drain(&step("act", ACT, &at_once(1000)), "drain")?;
    let bytes = as_float(figures.written_bytes) / as_float(figures.jobs);
    Ok(vec![
        Row {
            path: "no-op with effects, 1,000 at once",
            figure: format!("{:.0} jobs/s", rate(&figures)),
            target: "≥ 100,000 jobs/s",
            met: rate(&figures) >= 100_000.0,
        },
        Row {
            path: "  its threads",
            figure: figures.threads.to_string(),
            target: "≤ 40",
            met: figures.threads <= 40,
        },
        Row {
            path: "  bytes written",
            figure: format!("{bytes:.0} per job of 105 bytes"),
            target: "≤ 600",
            met: bytes <= 600.0,
        },
    ])
}

/// Ten steps that each read the queue, beside one that reads ten times as many jobs.
pub(crate) fn steps(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let one = Filled::new(folder, jobs)?.drain(&step("act", ACT, &at_once(16 * STEPS)), "drain")?;
    let all: String = (1..=STEPS).map(|number| step(&format!("act{number}"), ACT, &at_once(16))).collect();
    let ten = Filled::new(folder, jobs / STEPS)?.drain(&all, "drain")?;
    let all = as_float(jobs / STEPS * STEPS) / ten.seconds;
    let ratio = all / rate(&one);
    Ok(vec![Row {
        path: "ten steps with effects, 16 at once each, against one with 160",
        figure: format!("{ratio:.2} × ({all:.0} jobs/s)"),
        target: "≥ 0.9 ×",
        met: ratio >= 0.9,
    }])
}

/// A step that runs one job at a time, and a client that pushes over one connection.
pub(crate) fn one(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let syncs = syncs_a_second(folder)?;
    let figures = Filled::new(folder, jobs)?.drain(&step("act", ACT, &at_once(1)), "drain")?;
    Ok(vec![of_syncs("no-op with effects, 1 at once", rate(&figures), syncs)])
}

/// A client that pushes one job after the other over one connection.
pub(crate) fn push(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let syncs = syncs_a_second(folder)?;
    Ok(vec![of_syncs("jobs over HTTP, one connection, durable", http::single(folder, jobs)?, syncs)])
}

fn of_syncs(path: &'static str, rate: f64, syncs: f64) -> Row {
    let ratio = rate / syncs;
    Row {
        path,
        figure: format!("{ratio:.2} × ({rate:.0} jobs/s)"),
        target: "≥ 0.35 × the syncs of the disk",
        met: ratio >= 0.35,
    }
}

/// Latency of a job that is alone in the runner.
pub(crate) fn latency(folder: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    plugins::build()?;
    let folder = TempDir::new_in(folder)?;
    let folder = folder.path();
    fs::write(folder.join("tidegate.toml"), http::SETTINGS)?;
    let p50 = |run: &str| -> Result<f64, Box<dyn Error>> {
        let pipeline = format!(
            "[source.requests]\ntype = \"http\"\n[sink.none]\ntype = \"null\"\n\
             [step.act]\nfrom = \"requests\"\nrun = \"{run}\"\nto = \"none\"\n"
        );
        fs::write(folder.join("p.toml"), pipeline)?;
        fs::write(folder.join("add.rhai"), paths::SCRIPT)?;
        Ok(http::latency(folder)?.0)
    };
    let (effects, pure) = (p50(ACT)?, p50("add.rhai")?);
    let sync = 1000.0 / syncs_a_second(folder)?;
    let row = |path, p50, target, most| Row {
        path,
        figure: format!("{p50:.2} ms (a sync takes {sync:.2} ms)"),
        target,
        met: p50 <= most,
    };
    Ok(vec![
        row("one job alone, pushed → delivered with effects, p50", effects, "≤ 1.0 ms", 1.0),
        row("  by a script, p50", pure, "≤ 0.7 ms", 0.7),
    ])
}

/// Quick jobs beside those of a slow step: without effects, where the slow step would use each core, and with effects.
pub(crate) fn beside(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let ratio = |path, alone: f64, beside: f64| {
        let ratio = beside / alone;
        let figure = format!("{ratio:.2} × ({beside:.0} jobs/s)");
        Row { path, figure, target: "≥ 0.8 ×", met: ratio >= 0.8 }
    };
    let slow = |run: &str, settings: &str| {
        format!(
            "[source.slow]\ntype = \"file\"\npath = \"slow.ndjson\"\nformat = \"ndjson\"\n\
             [step.slow]\nfrom = \"slow\"\nrun = \"{run}\"\nto = \"none\"\n{settings}\n"
        )
    };
    let rates = |slow: &str, quick: &str| -> Result<(f64, f64), Box<dyn Error>> {
        let mut rates = Vec::new();
        for slow_jobs in [0, SLOW_JOBS] {
            let filled = Filled::new(folder, jobs)?;
            let folder = filled.0.path();
            paths::write_input(&folder.join("slow.ndjson"), slow_jobs)?;
            fs::write(folder.join("spin.rhai"), SPIN)?;
            rates.push(rate(&filled.drain(&format!("{slow}{quick}"), "quick")?));
        }
        Ok((rates[0], rates[1]))
    };
    let spin = slow("spin.rhai", "limits = { operations = 1000000000 }\ntimeout = \"1m\"");
    let (alone, beside) = rates(&spin, &step("add", "add.rhai", ""))?;
    let pure = ratio("a quick script beside one that takes a second a job, against alone", alone, beside);
    let (alone, beside) = rates(&slow("plugin:measure/pause", &at_once(300)), &step("act", ACT, ""))?;
    let effects =
        ratio("quick jobs with effects beside 300 that take a second, against alone", alone, beside);
    Ok(vec![pure, effects])
}

/// In a process of its own: the jobs of the quickest step, and the time from the first job to its last one.
pub(crate) fn quick(folder: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let (run, _) = child::prepare(folder)?;
    let stats = run.stats();
    let input = fs::read_to_string(folder.join("in.ndjson"))?.lines().count() as u64;
    let runner = thread::spawn(move || run.run().map(|report| report.end).map_err(|error| error.to_string()));
    let wait_for = |jobs: u64| loop {
        let taken = stats.steps().iter().map(|step| step.counters().taken).max().unwrap_or(0);
        if taken >= jobs {
            return Ok(taken);
        }
        if runner.is_finished() {
            return Err("the run ended before its jobs");
        }
        thread::sleep(Duration::from_millis(1));
    };
    let (first, begun) = (wait_for(1)?, Instant::now());
    figures.jobs = wait_for(input)? - first;
    figures.seconds = begun.elapsed().as_secs_f64();
    Ok(())
}

/// Jobs that run one after the other.
pub(crate) fn serial(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let filled = Filled::new(folder, jobs)?;
    let serial = "queuer = { strategy = \"serial\" }";
    let (act, add) = (step("act", ACT, serial), step("add", "add.rhai", serial));
    let floor = rate(&measure("floor", filled.0.path())?);
    let pure = rate(&filled.drain(&add, "drain")?);
    // The jobs that a queue has delivered to all of its steps are gone.
    let effects = rate(&Filled::new(folder, jobs)?.drain(&act, "drain")?);
    let (ratio, syncs) = (pure / floor, syncs_a_second(folder)?);
    Ok(vec![
        Row {
            path: "`serial` with a script",
            figure: format!("{ratio:.3} × ({pure:.0} jobs/s)"),
            target: "≥ 0.5 × floor",
            met: ratio >= 0.5,
        },
        Row {
            path: "  with effects",
            figure: format!("{effects:.0} jobs/s (the disk syncs {syncs:.0} times a second)"),
            target: "≥ 3,000 jobs/s",
            met: effects >= 3000.0,
        },
    ])
}

/// A deep backlog: the rate at its end against that at its beginning.
pub(crate) fn deep(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let filled = Filled::new(folder, jobs)?;
    let figures = filled.drain(&step("act", ACT, &at_once(1000)), "parts")?;
    let ratio = figures.p50_ms / figures.p99_ms;
    let last = as_float(jobs / PARTS) / figures.p99_ms * 1000.0;
    Ok(vec![Row {
        path: "the last tenth of a backlog, 1,000 at once, against the first",
        figure: format!("{ratio:.2} × ({last:.0} jobs/s)"),
        target: "≥ 0.9 ×",
        met: ratio >= 0.9,
    }])
}

/// Jobs that fail twice.
pub(crate) fn failing(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let retry = format!("retry = {{ backoff = \"fixed\", initial = \"{DELAY}\" }}\nerrors = \"failed\"");
    let figures =
        Filled::new(folder, jobs)?.drain(&step("third", "plugin:measure/third", &retry), "drain")?;
    let over = figures.seconds - DELAYS;
    let bytes = as_float(figures.written_bytes) / as_float(figures.jobs);
    Ok(vec![
        Row {
            path: "100,000 jobs that fail twice: time over their delays",
            figure: format!("{over:.1} s"),
            target: "≤ 8 s",
            met: over <= 8.0,
        },
        Row {
            path: "  bytes written",
            figure: format!("{bytes:.0} per job"),
            target: "≤ 2,400",
            met: bytes <= 2400.0,
        },
    ])
}

/// Number of `fdatasync` calls in a second, each after an append of one job.
fn syncs_a_second(folder: &Path) -> Result<f64, Box<dyn Error>> {
    let mut file = File::create(folder.join("syncs"))?;
    let (job, begun, mut syncs) = (paths::job(1), Instant::now(), 0);
    while begun.elapsed() < SYNCED {
        file.write_all(job.as_bytes())?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(as_float(syncs) / begun.elapsed().as_secs_f64())
}

/// In a process of its own: drains the queue. The milliseconds of its first and last tenth are in the figures.
pub(crate) fn parts(folder: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let (run, _) = child::prepare(folder)?;
    let stats = run.stats();
    let last = stats.steps().len().saturating_sub(1);
    let input = fs::read_to_string(folder.join("in.ndjson"))?.lines().count() as u64;
    let runner = thread::spawn(move || run.run().map(|report| report.end).map_err(|error| error.to_string()));
    let mut ends = BTreeMap::new();
    let begun = Instant::now();
    for part in 0..=PARTS {
        while stats.steps().get(last).is_none_or(|step| step.counters().taken < input * part / PARTS) {
            if runner.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        ends.insert(part, begun.elapsed());
    }
    runner.join().map_err(|_| "the run panicked")??;
    let took = |part: u64| ends[&part].saturating_sub(ends[&(part - 1)]).as_secs_f64() * 1000.0;
    (figures.jobs, figures.p50_ms, figures.p99_ms) = (input, took(1), took(PARTS));
    Ok(())
}

/// Largest number of threads of this process while it runs, without the one that counts.
pub(crate) struct Threads {
    most: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Threads {
    pub(crate) fn count() -> Self {
        let (most, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (Arc::clone(&most), Arc::clone(&ends));
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let now = fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count() as u64);
                counted.fetch_max(now.saturating_sub(1), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self { most, ends }
    }

    pub(crate) fn most(&self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.most.load(Ordering::Relaxed)
    }
}

/// Bytes that this process has caused to be written to a disk, as Linux counts them.
pub(crate) fn written_bytes() -> Result<u64, Box<dyn Error>> {
    let io = fs::read_to_string("/proc/self/io")?;
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(written.ok_or("`/proc/self/io` lacks `write_bytes`")?.trim().parse()?)
}
