//! Cost of change: measures starts with many steps, reloads by a saved file, work beside reloads, and events beside
//! idle steps.
//!
//! A runner in a process of its own is measured as an operator sees it: from the save of a file to the generation that
//! `GET /reload` reports.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_config::LoadOptions;
use tidegate_engine::{Generation, Handle, Run, RunOptions};
use tidegate_model::SystemClock;
use tidegate_store::Trigger;

use crate::child::{self, Figures};
use crate::http::{Runner, SETTINGS, push_through};
use crate::paths;
use crate::report::{Row, measure};

/// Steps of each pipeline, in a row.
const STEPS: usize = 10;
/// Saved changes of one script.
const SAVES: u64 = 1000;
/// Saves after which memory, threads and files have been counted for the first time. Until then the allocator takes
/// memory that it keeps.
const WARM: u64 = 300;
/// Threads that answer requests, and files that are being read, come and go.
const SPARE: usize = 2;
/// Saves over which the most is counted: threads that wait for requests come and go.
const COUNTED: u64 = 50;
/// Jobs that are pushed for the cost of an event.
const PUSHED: u64 = 2000;
/// Jobs of a file that is read beside reloads. A faster machine may end it before the last of them.
const WORK: u64 = 22_000_000;
/// Reloads beside work, and of the step of a job.
const RELOADS: u64 = 100;
/// Reloads beside work that are enough for a figure.
const RELOADS_MIN: u64 = 50;
/// Time that is measured without a reload, and as long with one at its beginning. The machine is slower in one minute
/// than in the next, so both are compared beside each other. The costs of a reload after it are in both.
const WINDOW: Duration = Duration::from_millis(120);

/// Cold starts.
pub(crate) fn starts(folder: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for (pipelines, path, target, most) in [
        (100, "start of a runner with 1,000 steps, until the first job is durable", "< 300 ms", 0.3),
        (500, "  with 5,000 steps", "< 1.5 s", 1.5),
    ] {
        let project = project(folder, pipelines)?;
        let mut seconds = Vec::new();
        for _ in 0..5 {
            paths::begin_anew(project.path())?;
            let begun = Instant::now();
            let runner = Runner::start(project.path())?;
            Client::connect(&runner.address)?.push("p0", 1)?;
            seconds.push(begun.elapsed().as_secs_f64());
        }
        let seconds = middle(seconds);
        eprintln!("  starts: {pipelines} pipelines, {seconds:.3} s");
        rows.push(Row { path, figure: format!("{:.0} ms", seconds * 1000.0), target, met: seconds < most });
    }
    Ok(rows)
}

/// Reloads of one script of 100 pipelines, and work beside reloads.
pub(crate) fn reloads(folder: &Path, rounds: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = saves(folder)?;
    rows.extend(beside(folder, rounds)?);
    Ok(rows)
}

fn saves(folder: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let project = project(folder, 100)?;
    let runner = Runner::start(project.path())?;
    let mut client = Client::connect(&runner.address)?;
    let mut latencies = Vec::new();
    let (mut before, mut after) = (Held::default(), Held::default());
    for save in 1..=SAVES {
        let serving = client.generation()?;
        let begun = Instant::now();
        fs::write(project.path().join("p7.rhai"), script(save))?;
        while client.generation()? == serving {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(format!("save {save} has no effect").into());
            }
            // The runner needs the core more.
            thread::sleep(Duration::from_millis(1));
        }
        latencies.push(begun.elapsed());
        // Its ten steps take their new script, which workers compile.
        client.push("p7", save)?;
        for (end, held) in [(WARM, &mut before), (SAVES, &mut after)] {
            if (end - COUNTED..end).contains(&save) {
                *held = held.most(Held::of(runner.id())?);
            }
        }
    }
    latencies.sort_unstable();
    let at = |share: usize| latencies[latencies.len() * share / 100].as_secs_f64() * 1000.0;
    let (p50, p99) = (at(50), at(99));
    let growth = after.mib / before.mib;
    eprintln!(" reloads: p50 {p50:.0} ms, p99 {p99:.0} ms, {before:?} to {after:?}");
    Ok(vec![
        Row {
            path: "save of a script → new generation, 1,000 steps, p50",
            figure: format!("{p50:.0} ms"),
            target: "< 150 ms",
            met: p50 < 150.0,
        },
        Row {
            path: "save of a script → new generation, 1,000 steps, p99",
            figure: format!("{p99:.0} ms"),
            target: "< 400 ms",
            met: p99 < 400.0,
        },
        Row {
            path: "  memory after 1,000 reloads, against 300",
            figure: format!("{growth:.2} × ({:.0} MiB)", after.mib),
            target: "≤ 1.1 ×",
            met: growth <= 1.1,
        },
        Row {
            path: "  threads and open files, against 300 reloads",
            figure: format!("{} and {}, {} and {}", after.threads, after.files, before.threads, before.files),
            target: "≤ 2 more",
            met: after.threads <= before.threads + SPARE && after.files <= before.files + SPARE,
        },
    ])
}

fn beside(folder: &Path, rounds: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let project = project(folder, 10)?;
    let folder = project.path();
    paths::write_input(&folder.join("in.ndjson"), WORK)?;
    let toml = paths::pipeline("script").unwrap_or_default();
    fs::write(folder.join("bench.toml"), toml)?;
    fs::write(folder.join("add.rhai"), paths::SCRIPT)?;
    let mut dips = Vec::new();
    for _ in 0..rounds {
        paths::begin_anew(folder)?;
        dips.push(measure("reloaded", folder)?.p99_ms);
    }
    fs::remove_file(folder.join("bench.toml"))?;
    paths::begin_anew(folder)?;
    let changed = measure("changed", folder)?;
    eprintln!(" reloads: throughput that they cost in each round, in percent: {dips:.1?}");
    let dip = middle(dips);
    let longer = changed.seconds * 1000.0 - changed.p50_ms;
    Ok(vec![
        Row {
            path: "throughput that 100 reloads of other pipelines cost, 8 a second",
            figure: format!("{dip:.1} %"),
            target: "< 3 %",
            met: dip < 3.0,
        },
        Row {
            path: "wait that 100 reloads of its own step add for a job, most",
            figure: format!("{longer:.1} ms"),
            target: "< 250 ms",
            met: longer < 250.0,
        },
    ])
}

/// The cost of a pushed job, alone and beside 5,000 idle steps.
pub(crate) fn events(folder: &Path, rounds: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let (one, many) = (project(folder, 1)?, project(folder, 501)?);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (project, milliseconds) in [(&one, &mut alone), (&many, &mut beside)] {
            paths::begin_anew(project.path())?;
            milliseconds.push(cpu_of_a_push(project.path())?);
        }
    }
    let (alone, beside) = (middle(alone), middle(beside));
    let ratio = beside / alone;
    eprintln!("  events: {alone:.3} ms alone, {beside:.3} ms beside idle steps");
    Ok(vec![Row {
        path: "CPU of a pushed job through 10 steps, beside 5,000 idle steps",
        figure: format!("{ratio:.2} × ({beside:.2} ms)"),
        target: "≤ 1.1 ×",
        met: ratio <= 1.1,
    }])
}

/// CPU time in milliseconds.
fn cpu_of_a_push(folder: &Path) -> Result<f64, Box<dyn Error>> {
    let runner = Runner::start(folder)?;
    let mut client = Client::connect(&runner.address)?;
    // The first ones run in a cold process.
    for id in 0..PUSHED / 10 {
        client.push("p0", id)?;
    }
    let before = Held::of(runner.id())?.cpu;
    for id in 0..PUSHED {
        client.push("p0", id)?;
    }
    let cpu = Held::of(runner.id())?.cpu.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
    Ok(cpu.as_secs_f64() * 1000.0 / PUSHED as f64)
}

/// A folder of pipelines of ten steps in a row, each with an HTTP source and a script.
fn project(folder: &Path, pipelines: usize) -> Result<TempDir, Box<dyn Error>> {
    let folder = TempDir::new_in(folder)?;
    fs::write(folder.path().join("tidegate.toml"), SETTINGS)?;
    for pipeline in 0..pipelines {
        let mut toml = "[source.in]\ntype = \"http\"\nmax_waiting = 0\n".to_owned();
        for step in 0..STEPS {
            let from = if step == 0 { "in".to_owned() } else { format!("queue{step}") };
            let to = if step + 1 == STEPS { "out".to_owned() } else { format!("queue{}", step + 1) };
            let _ = write!(
                toml,
                "[step.step{step}]\nfrom = \"{from}\"\nrun = \"p{pipeline}.rhai\"\nto = \"{to}\"\n"
            );
        }
        toml += "[sink.out]\ntype = \"null\"\n";
        fs::write(folder.path().join(format!("p{pipeline}.toml")), toml)?;
        fs::write(folder.path().join(format!("p{pipeline}.rhai")), script(0))?;
    }
    Ok(folder)
}

fn script(version: u64) -> String {
    format!("fn process(job) {{ job.version = {version}; job }}")
}

/// In a process of its own: a file through a step, beside reloads of another pipeline. `p99_ms`: the throughput that they
/// cost, in percent.
pub(crate) fn work(folder: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let run = run(folder)?;
    let (stats, handle) = (run.stats(), run.handle());
    let runner = thread::spawn(move || run.run().map(|_| ()).map_err(|error| error.to_string()));
    let taken = || stats.steps().iter().map(|step| step.counters().taken).max().unwrap_or(0);
    while taken() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let (mut alone, mut beside) = (Progress::default(), Progress::default());
    let mut done = 0;
    for version in 1..=RELOADS {
        let mut pair = (Progress::default(), Progress::default());
        // Each is the first one in half of the pairs.
        if version % 2 == 0 {
            pair.0.add(taken, || Ok(()))?;
        }
        pair.1.add(taken, || reload(folder, &handle, version))?;
        if version % 2 == 1 {
            pair.0.add(taken, || Ok(()))?;
        }
        if taken() >= WORK {
            break;
        }
        (alone, beside) = (alone.and(&pair.0), beside.and(&pair.1));
        done = version;
    }
    if done < RELOADS_MIN {
        return Err(format!("the file ended after {done} reloads").into());
    }
    handle.stop();
    runner.join().map_err(|_| "the run panicked")??;
    figures.jobs = taken();
    figures.p99_ms = 100.0 * (1.0 - beside.a_second() / alone.a_second());
    Ok(())
}

/// Jobs that were taken in some windows.
#[derive(Default)]
struct Progress {
    jobs: u64,
    time: Duration,
}

impl Progress {
    /// Adds a window that begins with `work`.
    fn add(
        &mut self,
        taken: impl Fn() -> u64,
        work: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let (begun, before) = (Instant::now(), taken());
        work()?;
        thread::sleep(WINDOW.saturating_sub(begun.elapsed()));
        self.jobs += taken() - before;
        self.time += begun.elapsed();
        Ok(())
    }

    fn and(self, other: &Self) -> Self {
        Self { jobs: self.jobs + other.jobs, time: self.time + other.time }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
    fn a_second(&self) -> f64 {
        self.jobs as f64 / self.time.as_secs_f64()
    }
}

/// In a process of its own: jobs through a pipeline, without reloads and during reloads of its script. `p50_ms`: without;
/// `seconds`: the longest wait during reloads.
pub(crate) fn change(folder: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let run = run(folder)?;
    let (stats, handle) = (run.stats(), run.handle());
    let pusher = run.handle();
    let runner = thread::spawn(move || run.run().map(|_| ()).map_err(|error| error.to_string()));
    let push = |id: u64| push_through(&pusher, &stats, id);
    let mut alone = (1..=500).map(&push).collect::<Result<Vec<_>, _>>()?;
    alone.sort_unstable();
    let folder = folder.to_owned();
    let (ended, over) = (Arc::new(AtomicBool::new(false)), handle);
    let flag = Arc::clone(&ended);
    let reloading = thread::spawn(move || -> Result<_, String> {
        for version in 1..=RELOADS {
            reload(&folder, &over, version)?;
        }
        flag.store(true, Ordering::Relaxed);
        Ok(over)
    });
    let (mut longest, mut id) = (Duration::ZERO, 500);
    while !ended.load(Ordering::Relaxed) && !reloading.is_finished() {
        id += 1;
        longest = longest.max(push(id)?);
    }
    reloading.join().map_err(|_| "the reloads panicked")??.stop();
    runner.join().map_err(|_| "the run panicked")??;
    (figures.jobs, figures.p50_ms) = (id, alone[alone.len() / 2].as_secs_f64() * 1000.0);
    figures.seconds = longest.as_secs_f64();
    Ok(())
}

fn run(folder: &Path) -> Result<Run, Box<dyn Error>> {
    let generation = generation(folder)?;
    let opened = tidegate_store::open(&generation.configuration.data)?;
    Ok(Run::new(generation, opened, Arc::new(SystemClock), RunOptions::default())?)
}

fn generation(folder: &Path) -> Result<Generation, String> {
    Generation::load(folder, &LoadOptions::default()).map_err(|diagnostics| diagnostics.render(false))
}

/// Changes the script of the first pipeline, and carries it out.
fn reload(folder: &Path, handle: &Handle, version: u64) -> Result<(), String> {
    fs::write(folder.join("p0.rhai"), script(version)).map_err(|error| error.to_string())?;
    // As after a save.
    let mut turn = handle.reload_turn();
    let next = Generation::load_again(&handle.generation(), &mut turn, Trigger::Watch);
    let next = next.map_err(|diagnostics| diagnostics.render(false))?;
    let outcome = handle.reload(&next, Trigger::Watch);
    outcome.map(drop).ok_or_else(|| "the run ended during reloads".to_owned())
}

/// Resources that a process holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    mib: f64,
    threads: usize,
    files: usize,
    cpu: Duration,
}

impl Held {
    /// The most of each.
    fn most(self, other: Self) -> Self {
        Self {
            mib: self.mib.max(other.mib),
            threads: self.threads.max(other.threads),
            files: self.files.max(other.files),
            cpu: self.cpu.max(other.cpu),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^52")]
    fn of(process: u32) -> Result<Self, Box<dyn Error>> {
        let folder = Path::new("/proc").join(process.to_string());
        Ok(Self {
            mib: child::held_bytes(&folder)? as f64 / f64::from(1 << 20),
            threads: fs::read_dir(folder.join("task"))?.count(),
            files: fs::read_dir(folder.join("fd"))?.count(),
            cpu: Duration::from_nanos(child::nanoseconds_of(&folder)?),
        })
    }
}

/// A connection to the runner's port.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Result<Self, Box<dyn Error>> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Number of the generation in force.
    fn generation(&mut self) -> Result<u64, Box<dyn Error>> {
        let answer = self.ask("GET /reload HTTP/1.1\r\nhost: localhost\r\n\r\n", "200")?;
        Ok(answer["generation"].as_u64().ok_or("the answer has no generation")?)
    }

    /// Pushes a job, which is durable then.
    fn push(&mut self, pipeline: &str, id: u64) -> Result<(), Box<dyn Error>> {
        let job = paths::job(id);
        let request = format!(
            "POST /sources/{pipeline}/in HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{job}",
            job.len()
        );
        self.ask(&request, "202").map(drop)
    }

    fn ask(&mut self, request: &str, status: &str) -> Result<Value, Box<dyn Error>> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let (mut len, mut first) = (0, String::new());
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            let line = line.trim_end();
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                len = value.parse()?;
            }
            if first.is_empty() {
                line.clone_into(&mut first);
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body)?;
        if first.split(' ').nth(1) != Some(status) {
            return Err(format!("{first}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
