//! Rate of an HTTP source: the runner is a process of its own, and a load generator runs beside it, on the
//! same machine. It also measures the latency from push to delivery.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_config::{LoadOptions, QueueRef};
use tidegate_engine::{Generation, Handle, Push, Run, RunOptions, Stats};
use tidegate_model::SystemClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{paths, plugins};

pub(crate) const CONNECTIONS: u64 = 64;
/// With many jobs per body fewer connections suffice.
const BULK_CONNECTIONS: u64 = 4;
const BULK_JOBS: u64 = 1000;
const LATENCY_JOBS: u64 = 2000;

pub(crate) const SETTINGS: &str = "[runner]\nlisten = \"127.0.0.1:0\"\n";
const PIPELINE: &str = "[source.requests]\ntype = \"http\"\nmax_waiting = 0\n\
                        [sink.out]\nfrom = \"requests\"\ntype = \"null\"\n";

/// Durable jobs per second, and milliseconds from push to delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) single: f64,
    pub(crate) bulk: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

pub(crate) fn taken(folder: &Path, jobs: u64, rounds: u64) -> Result<Taken, Box<dyn Error>> {
    let folder = tempfile::TempDir::new_in(folder)?;
    let folder = folder.path();
    fs::write(folder.join("tidegate.toml"), SETTINGS)?;
    fs::write(folder.join("p.toml"), PIPELINE)?;
    let (mut single, mut bulk) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        single.push(rate(folder, CONNECTIONS, 1, (jobs / 5).max(CONNECTIONS))?);
        bulk.push(rate(folder, BULK_CONNECTIONS, BULK_JOBS, jobs.max(BULK_CONNECTIONS * BULK_JOBS))?);
    }
    let (p50_ms, p99_ms) = latency(folder)?;
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let taken = Taken { single: median(single), bulk: median(bulk), p50_ms, p99_ms };
    eprintln!("    http: {taken:.3?}");
    Ok(taken)
}

/// Durable jobs per second of one connection that sends one after the other.
pub(crate) fn single(folder: &Path, jobs: u64) -> Result<f64, Box<dyn Error>> {
    let folder = tempfile::TempDir::new_in(folder)?;
    fs::write(folder.path().join("tidegate.toml"), SETTINGS)?;
    fs::write(folder.path().join("p.toml"), PIPELINE)?;
    rate(folder.path(), 1, 1, jobs)
}

/// A runner that is killed with its handle.
pub(crate) struct Runner {
    child: Child,
    /// The address of its port.
    pub(crate) address: String,
    /// Its standard error, which must stay open.
    stderr: BufReader<ChildStderr>,
}

impl Runner {
    /// Runs the configuration in `folder` until it listens.
    pub(crate) fn start(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["run", "."])
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = BufReader::new(child.stderr.take().ok_or("standard error is a pipe")?);
        let mut runner = Self { child, address: String::new(), stderr };
        let mut line = String::new();
        while runner.address.is_empty() {
            line.clear();
            if runner.stderr.read_line(&mut line)? == 0 {
                return Err("the runner does not listen".into());
            }
            if let Some((_, address)) = line.split_once("listening address=") {
                address.trim().clone_into(&mut runner.address);
            }
        }
        Ok(runner)
    }
}

impl Runner {
    /// Number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rate(folder: &Path, connections: u64, body_jobs: u64, jobs: u64) -> Result<f64, Box<dyn Error>> {
    paths::begin_anew(folder)?;
    let runner = Runner::start(folder)?;
    let address = &runner.address;
    let bodies = jobs / connections / body_jobs;
    let sent = bodies * connections * body_jobs;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let begun = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..connections)
            .map(|number| tokio::spawn(send(address.clone(), number * bodies * body_jobs, bodies, body_jobs)))
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    #[expect(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
    let rate = sent as f64 / begun.elapsed().as_secs_f64();
    Ok(rate)
}

/// Sends bodies one after the other, each when the one before was accepted.
async fn send(address: String, first: u64, bodies: u64, body_jobs: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let kind = if body_jobs == 1 { "application/json" } else { "application/x-ndjson" };
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    for body in 0..bodies {
        let start = first + body * body_jobs;
        let jobs: Vec<String> = (start..start + body_jobs).map(paths::job).collect();
        let jobs = jobs.join("\n");
        request.clear();
        let head = format!(
            "POST /sources/p/requests HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            jobs.len()
        );
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(jobs.as_bytes());
        stream.write_all(&request).await?;
        expect(&mut stream, b"HTTP/1.1 202", &mut answer).await?;
    }
    Ok(())
}

/// Waits for an answer with this beginning.
pub(crate) async fn expect(
    stream: &mut TcpStream,
    start: &[u8],
    answer: &mut Vec<u8>,
) -> std::io::Result<()> {
    answer.clear();
    // The answer ends with a line break behind an object.
    while !answer.ends_with(b"}\n") {
        if stream.read_buf(answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    if answer.starts_with(start) {
        return Ok(());
    }
    Err(std::io::Error::other(String::from_utf8_lossy(answer).into_owned()))
}

/// Pushes the job with this number to the first queue, and waits until the first step has durably delivered it.
pub(crate) fn push_through(handle: &Handle, stats: &Stats, id: u64) -> Result<Duration, Box<dyn Error>> {
    let (sender, answer) = mpsc::channel();
    let jobs = [paths::job(id).as_bytes()].into_iter().collect();
    let answer_with = Box::new(move |outcome: Result<_, _>| _ = sender.send(outcome.is_ok()));
    let begun = Instant::now();
    let push = Push {
        queue: QueueRef(0),
        jobs,
        whole: None,
        each: Vec::new(),
        late: BTreeMap::new(),
        answer: answer_with,
    };
    if !handle.push(push) || !answer.recv()? {
        return Err("a job was not accepted".into());
    }
    while stats.step(0).counters().taken < id {
        // Yields the core to the runner; the latency is measured.
        thread::yield_now();
    }
    Ok(begun.elapsed())
}

/// Pushes one job, waits until it is durably delivered, and again.
pub(crate) fn latency(folder: &Path) -> Result<(f64, f64), Box<dyn Error>> {
    paths::begin_anew(folder)?;
    let options = LoadOptions { plugins: vec![plugins::folder()?], ..LoadOptions::default() };
    let generation = Generation::load(folder, &options).map_err(|diagnostics| diagnostics.render(false))?;
    let opened = tidegate_store::open(&generation.configuration.data)?;
    let run = Run::new(generation, opened, Arc::new(SystemClock), RunOptions::default())?;
    let (stats, handle) = (run.stats(), run.handle());
    let runner = thread::spawn(move || run.run().map(|report| report.end).map_err(|error| error.to_string()));
    let mut latencies = Vec::new();
    for id in 1..=LATENCY_JOBS {
        latencies.push(push_through(&handle, &stats, id)?);
    }
    handle.stop();
    runner.join().map_err(|_| "the run panicked")??;
    // The first ones run in a cold process.
    latencies.drain(..50);
    latencies.sort_unstable();
    let at = |share: usize| latencies[latencies.len() * share / 100].as_secs_f64() * 1000.0;
    Ok((at(50), at(99)))
}
