//! Calls of external systems: the runner asks an HTTP service, or runs commands, beside a bare loop that does the
//! same.
//!
//! The service is in this process and answers after a delay. The runner and the bare loop are processes of their own.
//! The rate counts from the first request to the last one, so that the start of a process does not count.

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::paths;

/// Time between two reads of the figures of a process.
const LOOKS: Duration = Duration::from_millis(10);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
const END: &[u8] = b"\r\n\r\n";

/// Calls that are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) delay: Duration,
    pub(crate) at_once: u64,
    pub(crate) jobs: u64,
}

/// Figures of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Called {
    /// Calls per second.
    pub(crate) rate: f64,
    /// Most threads at a time.
    pub(crate) threads: u64,
    /// Growth of the memory over that of one call at a time, for each call.
    pub(crate) bytes: u64,
    /// Microseconds of CPU time for each call.
    pub(crate) cpu_us: f64,
}

/// The runner, and the bare loop, at the same service.
pub(crate) fn http(folder: &Path, load: Load) -> Result<(Called, Called), Box<dyn Error>> {
    let service = Service::start(load.delay)?;
    let address = service.address;
    let url = format!("http = {{ url = \"http://{address}/{{id}}\" }}");
    let lone = Load { at_once: 1, jobs: 50, ..load };
    let base = runner(folder, lone, &format!("run = \"builtin:http\"\n{url}"))?.peak_bytes;
    service.take();
    let mut ran = runner(folder, load, &format!("run = \"builtin:http\"\n{url}"))?;
    ran.peak_bytes = ran.peak_bytes.saturating_sub(base);
    let ran = ran.of(load, service.take());
    let mut bare = Command::new(std::env::current_exe()?);
    bare.args(["child", "caller"]).arg(format!("{address}/{}/{}", load.at_once, load.jobs));
    let bare = watch(bare.stdout(Stdio::null()).spawn()?)?.of(load, service.take());
    eprintln!("   calls: {ran:.1?}, bare {bare:.1?}");
    Ok((ran, bare))
}

/// The runner, and threads that run the same commands.
pub(crate) fn commands(folder: &Path, load: Load) -> Result<(Called, Called), Box<dyn Error>> {
    let begun = Instant::now();
    let lone = Load { jobs: 1, ..load };
    let run = "run = \"builtin:exec\"\nexec = { command = [\"/bin/true\"] }";
    runner(folder, lone, run)?;
    let start = begun.elapsed();
    let begun = Instant::now();
    let ran = runner(folder, load, run)?;
    let ran = ran.of(load, begun.elapsed().saturating_sub(start));
    let begun = Instant::now();
    let mut bare = Command::new(std::env::current_exe()?);
    bare.args(["child", "spawner"]).arg(format!("{}/{}", load.at_once, load.jobs));
    let bare = watch(bare.stdout(Stdio::null()).spawn()?)?.of(load, begun.elapsed());
    eprintln!("commands: {ran:.1?}, bare {bare:.1?}");
    Ok((ran, bare))
}

/// The bare loop of requests: `ADDRESS/AT_ONCE/JOBS`.
pub(crate) fn call(load: &Path) -> Result<(), Box<dyn Error>> {
    let load = load.to_string_lossy();
    let [address, at_once, jobs] = load.split('/').collect::<Vec<_>>()[..] else {
        return Err("no load".into());
    };
    let (address, at_once, jobs): (SocketAddr, u64, u64) =
        (address.parse()?, at_once.parse()?, jobs.parse()?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let loops: Vec<_> = (0..at_once).map(|_| tokio::spawn(ask(address, jobs / at_once))).collect();
        for asked in loops {
            asked.await??;
        }
        Ok(())
    })
}

async fn ask(address: SocketAddr, jobs: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut answer = Vec::new();
    for job in 0..jobs {
        stream.write_all(format!("GET /{job} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await?;
        answer.clear();
        while answer.len() < ANSWER.len() {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(())
}

/// The bare loop of commands: `AT_ONCE/JOBS`.
pub(crate) fn spawn(load: &Path) -> Result<(), Box<dyn Error>> {
    let load = load.to_string_lossy();
    let (at_once, jobs) = load.split_once('/').ok_or("no load")?;
    let (at_once, jobs): (u64, u64) = (at_once.parse()?, jobs.parse()?);
    let spawn = move || {
        (0..jobs / at_once).try_for_each(|_| {
            let mut command = Command::new("/bin/true");
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.output().map(drop)
        })
    };
    let threads: Vec<_> = (0..at_once).map(|_| thread::spawn(spawn)).collect();
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?.map_err(Into::into))
}

/// Runs the step to its end.
fn runner(folder: &Path, load: Load, run: &str) -> Result<Watched, Box<dyn Error>> {
    let folder = TempDir::new_in(folder)?;
    paths::write_input(&folder.path().join("in.ndjson"), load.jobs)?;
    let toml = format!(
        "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = false\n\
         [sink.out]\ntype = \"null\"\n[step.call]\nfrom = \"in\"\n{run}\nto = \"out\"\n\
         queuer = {{ strategy = \"fifo\", max_processing = {} }}\n",
        load.at_once
    );
    fs::write(folder.path().join("bench.toml"), toml)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "bench.toml"]).current_dir(folder.path());
    watch(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// Figures in `/proc` of a process that has ended.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    threads: u64,
    peak_bytes: u64,
    cpu_ticks: u64,
}

impl Watched {
    #[expect(clippy::cast_precision_loss, reason = "counts of calls are far below 2^52")]
    fn of(self, load: Load, took: Duration) -> Called {
        Called {
            rate: load.jobs as f64 / took.as_secs_f64(),
            threads: self.threads,
            bytes: self.peak_bytes / load.at_once,
            cpu_us: self.cpu_ticks as f64 * 10_000.0 / load.jobs as f64,
        }
    }
}

/// Reads the figures of a process until it ends.
fn watch(mut child: Child) -> Result<Watched, Box<dyn Error>> {
    let process = Path::new("/proc").join(child.id().to_string());
    let mut watched = Watched::default();
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(watched) } else { Err("a process failed".into()) };
        }
        let number = |status: &str, of: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(of));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        watched.threads = watched.threads.max(number(&status, "Threads:"));
        watched.peak_bytes = watched.peak_bytes.max(number(&status, "VmHWM:") * 1024);
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        // Fields 14 and 15: user and system time, in hundredths of a second.
        if let [user, system] = fields.get(11..13).unwrap_or_default() {
            watched.cpu_ticks = watched.cpu_ticks.max(user + system);
        }
        thread::sleep(LOOKS);
    }
}

/// A service that answers after a delay.
struct Service {
    address: SocketAddr,
    _runtime: Runtime,
    /// Times of the first and the last request.
    seen: Arc<Mutex<Option<(Instant, Instant)>>>,
}

impl Service {
    fn start(delay: Duration) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(None));
        let times = Arc::clone(&seen);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, delay, Arc::clone(&times)));
            }
        });
        Ok(Self { address, _runtime: runtime, seen })
    }

    /// Time from the first request to the last answer, since the last call.
    fn take(&self) -> Duration {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        seen.map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

async fn serve(
    mut stream: TcpStream,
    delay: Duration,
    seen: Arc<Mutex<Option<(Instant, Instant)>>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    loop {
        request.clear();
        while !request.ends_with(END) {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let begun = Instant::now();
        tokio::time::sleep(delay).await;
        let now = Instant::now();
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let first = seen.map_or(begun, |(first, _)| first);
            *seen = Some((first, now));
        }
        stream.write_all(ANSWER).await?;
    }
}
