//! A plugin's step in a process of its own (`isolate = "process"`), seen from the runner.
//!
//! Whatever the plugin does to its process, the runner goes on: only the job that was running then
//! fails, the answers to those before it are there already, and those after it go to a new process. A
//! process that hangs is killed when a job has run for longer than `timeout`; one that holds more
//! memory than `limits.memory` is killed when that is noticed, within some milliseconds. What counts is
//! its resident anonymous memory beyond what it had when the step was set up: address space that is only
//! reserved does no harm.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use tidegate_plugin::host::Offer;
use tidegate_plugin::{Failure, FailureKind, Job, Level, Outputs, Payloads, Step};

use super::frames::{self, Frame, Jobs, Setup};
use super::image::Image;
use super::loaded::Loaded;
use super::step::{Journal, PluginSpec, Tracing};
use crate::words::{format_duration, format_size};

/// The hidden command that makes a process serve.
pub const COMMAND: &str = "plugin-host";

/// How often a process is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(10);
/// How much longer than `timeout` a process has for ending an attempt by itself.
const GRACE: Duration = Duration::from_millis(50);
/// How long a process may take to load a library and set up a step, beyond the step's `timeout`.
const SETUP: Duration = Duration::from_secs(30);
/// What a process holds by itself.
const SETUP_BYTES: u64 = 16 << 20;
/// How long a step may take to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Memory is looked at so often, at least, while batches are answered fast.
const WEIGH: Duration = Duration::from_millis(100);

/// Runs a plugin's step in a process of its own.
#[derive(Debug)]
pub struct Isolated {
    setup: Setup,
    image: Arc<Image>,
    journal: Tracing,
    server: Option<Server>,
    /// Those of the batch, and how many of them have been answered to the caller.
    jobs: Jobs,
    answered: usize,
    answers: VecDeque<Answer>,
    stops_at_failure: bool,
    /// A failure has ended the batch.
    stopped: bool,
}

type Answer = Result<Vec<Payloads>, Failure>;

#[derive(Debug)]
struct Server {
    child: Child,
    socket: UnixStream,
    shared: File,
    /// How much of the shared file has been read.
    read: u64,
    weighed: Instant,
    /// Bytes that it may hold.
    most: u64,
}

/// What a look at a process found.
enum Seen {
    Working,
    Done,
    Refused,
    Gone,
}

impl Isolated {
    /// Starts a process and sets up the step in it.
    ///
    /// # Errors
    /// What the plugin says, or why there is no process.
    pub fn new(loaded: &Loaded, offer: &Offer, spec: &PluginSpec<'_>) -> Result<Self, Failure> {
        let setup = Setup {
            path: loaded.image().path().to_owned(),
            offer: offer.name().to_owned(),
            named: spec.named.to_owned(),
            pipeline: spec.pipeline.to_owned(),
            step: spec.step.to_owned(),
            config: spec.config.clone(),
            bindings: spec.bindings.iter().map(|&binding| binding.to_owned()).collect(),
            timeout: spec.timeout,
            memory: spec.memory,
        };
        let mut isolated = Self {
            setup,
            image: Arc::clone(loaded.image()),
            journal: Tracing::new(spec),
            server: None,
            jobs: Jobs::default(),
            answered: 0,
            answers: VecDeque::new(),
            stops_at_failure: false,
            stopped: false,
        };
        isolated.start()?;
        Ok(isolated)
    }

    /// Begins another batch, and forgets what is left of the one before.
    pub fn begin(&mut self, stops_at_failure: bool) {
        self.jobs.clear();
        self.answers.clear();
        (self.answered, self.stopped, self.stops_at_failure) = (0, false, stops_at_failure);
    }

    /// Adds a job to the batch.
    pub fn queue(&mut self, job: &Job<'_>) {
        self.jobs.push(job);
    }

    /// Waits for what the next job of the batch came to.
    ///
    /// # Errors
    /// What the plugin says, or what its process died of.
    pub fn next(&mut self, outputs: &mut Outputs) -> Result<(), Failure> {
        if self.stopped || self.answered == self.jobs.len() {
            return Err(self.failure(FailureKind::Failed, "a job before this one ended the batch"));
        }
        if self.answers.is_empty()
            && let Err((kind, why)) = self.work()
            && self.answered + self.answers.len() < self.jobs.len()
        {
            // Those before it have their answers, so it is this one.
            let failure = self.failure(kind, &why);
            self.answers.push_back(Err(failure));
        }
        self.answered += 1;
        let answer = self
            .answers
            .pop_front()
            .unwrap_or_else(|| Err(self.failure(FailureKind::Failed, "its process left the job out")));
        self.stopped = answer.is_err() && self.stops_at_failure;
        for (position, payloads) in answer?.iter().enumerate() {
            if let Some(place) = outputs.get_mut(position) {
                place.append(payloads);
            }
        }
        Ok(())
    }

    /// Has the process work off what is left of the batch, as far as it comes.
    fn work(&mut self) -> Result<(), (FailureKind, String)> {
        self.weigh_between_batches();
        if !self.send() {
            // It died between two batches, which is no job's fault.
            self.server = None;
            self.start().map_err(|failure| (failure.kind, failure.message))?;
            self.send();
        }
        match self.wait(self.setup.timeout) {
            Ok(Seen::Gone) => Err((FailureKind::Crashed, self.post_mortem())),
            Ok(_) => Ok(()),
            Err(ended) => {
                self.server = None;
                Err(ended)
            }
        }
    }

    /// Whether there is a process and it could be reached.
    fn send(&mut self) -> bool {
        let Some(server) = &mut self.server else { return false };
        let sent = server
            .empty()
            .and_then(|()| self.jobs.send(self.answered, self.stops_at_failure, &mut server.socket));
        sent.is_ok()
    }

    /// Waits until the process is done, is gone, or has to be ended; takes in all answers on the way.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<Seen, (FailureKind, String)> {
        let mut since = Instant::now();
        loop {
            let Some(server) = &mut self.server else { return Ok(Seen::Gone) };
            let seen = server.look();
            let mut lines = Vec::new();
            let took = server.take(&mut self.answers, &mut lines);
            for (level, message) in lines {
                self.journal.log(level, &message);
            }
            match (took, seen) {
                (Err(error), _) => {
                    return Err((FailureKind::Crashed, format!("its process wrote nonsense: {error}")));
                }
                (Ok(moved), Seen::Working) => {
                    if moved {
                        since = Instant::now();
                    }
                }
                (Ok(_), seen) => return Ok(seen),
            }
            if let Some(timeout) = timeout
                && since.elapsed() > timeout + GRACE
            {
                let timeout = format_duration(timeout);
                return Err((
                    FailureKind::Limit,
                    format!("it ran for longer than `timeout` of {timeout}; its process was killed"),
                ));
            }
            if let Some(weight) = server.overweight() {
                return Err((FailureKind::Limit, self.too_heavy(weight)));
            }
        }
    }

    fn too_heavy(&self, weight: u64) -> String {
        let (weight, most) = (format_size(weight), format_size(self.setup.memory));
        format!(
            "its process came to hold {weight} of memory, more than `limits.memory` of {most}, and was killed"
        )
    }

    /// A process that grows slowly, over many short jobs, is replaced without harm to any of them.
    fn weigh_between_batches(&mut self) {
        let Some(server) = self.server.as_mut().filter(|server| server.weighed.elapsed() >= WEIGH) else {
            return;
        };
        if let Some(weight) = server.overweight() {
            let why = format!("{}; no job failed of it", self.too_heavy(weight));
            self.journal.log(Level::Warn, &why);
            self.server = None;
        }
    }

    fn start(&mut self) -> Result<(), Failure> {
        let started = Server::start(&self.setup, &self.image);
        let started = started.map_err(|error| format!("a process for it cannot be started: {error}"));
        self.server = Some(started.map_err(|why| self.failure(FailureKind::Failed, &why))?);
        let limit = self.setup.timeout.map(|timeout| timeout.saturating_add(SETUP));
        let (kind, why) = match self.wait(limit) {
            Ok(Seen::Done) => {
                if let Some(server) = &mut self.server {
                    server.most = server.weigh().unwrap_or(0).saturating_add(self.setup.memory);
                }
                return Ok(());
            }
            Ok(Seen::Gone) => (FailureKind::Crashed, self.post_mortem()),
            Ok(Seen::Refused | Seen::Working) => {
                self.server = None;
                if let Some(Err(failure)) = self.answers.pop_back() {
                    return Err(failure);
                }
                (FailureKind::Failed, "its process could not set it up".to_owned())
            }
            Err(ended) => ended,
        };
        self.server = None;
        Err(self.failure(kind, &format!("while it was set up, {why}")))
    }

    /// What the process died of.
    fn post_mortem(&mut self) -> String {
        let Some(mut server) = self.server.take() else { return "its process is gone".to_owned() };
        match server.child.wait() {
            Ok(status) => format!("its process {}", ending(status)),
            Err(error) => format!("its process is gone: {error}"),
        }
    }

    fn failure(&self, kind: FailureKind, why: &str) -> Failure {
        Failure::new(kind, format!("plugin `{}`: {why}", self.setup.named))
    }
}

impl Step for Isolated {
    fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        self.begin(false);
        self.queue(job);
        self.next(outputs)
    }
}

impl Server {
    fn start(setup: &Setup, image: &Image) -> io::Result<Self> {
        let (socket, other) = UnixStream::pair()?;
        let shared = File::from(memfd_create("tidegate-plugin", MemfdFlags::CLOEXEC)?);
        // The same executable, even if another one has taken its place on disk.
        let mut child = Command::new("/proc/self/exe")
            .arg(COMMAND)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::from(shared.try_clone()?))
            // A Ctrl-C in the terminal is for the runner, which lets jobs finish.
            .process_group(0)
            .spawn()?;
        let mut to = &socket;
        let begun = socket
            .set_read_timeout(Some(LOOK))
            .and_then(|()| frames::send_setup(&mut to, setup, image.bytes()));
        // A process that is gone already is told by what it died of.
        if let Err(error) = begun
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let _ = child.kill(); // it is of no use, and may be gone
            let _ = child.wait();
            return Err(error);
        }
        // While it is set up it also holds the library, some times over.
        let most = setup.memory.saturating_add(SETUP_BYTES).saturating_add(4 * image.bytes().len() as u64);
        Ok(Self { child, socket, shared, read: 0, weighed: Instant::now(), most })
    }

    /// Makes room for the answers of a batch.
    fn empty(&mut self) -> io::Result<()> {
        self.read = 0;
        self.shared.set_len(0)
    }

    /// Waits a moment for the process to say something.
    fn look(&mut self) -> Seen {
        let mut said = [0];
        match self.socket.read(&mut said) {
            Ok(0) => Seen::Gone,
            Ok(_) if said[0] == frames::DONE => Seen::Done,
            Ok(_) => Seen::Refused,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
                    Seen::Working
                }
                _ => Seen::Gone,
            },
        }
    }

    /// Takes in what stands in the shared file, and answers whether a job was among it.
    fn take(&mut self, answers: &mut VecDeque<Answer>, lines: &mut Vec<(Level, String)>) -> io::Result<bool> {
        let length = self.shared.metadata()?.len().saturating_sub(self.read);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.shared.read_exact_at(&mut bytes, self.read)?;
        let (mut at, mut moved) = (0, false);
        while let Some((frame, length)) = frames::read(&bytes[at..])? {
            at += length;
            match frame {
                Frame::Made(outputs) => answers.push_back(Ok(outputs)),
                Frame::Failed(failure) => answers.push_back(Err(failure)),
                Frame::Log(level, message) => {
                    lines.push((level, message));
                    continue;
                }
            }
            moved = true;
        }
        self.read += at as u64;
        Ok(moved)
    }

    /// How many bytes the process holds, if they are too many.
    fn overweight(&mut self) -> Option<u64> {
        self.weighed = Instant::now();
        self.weigh().filter(|weight| *weight > self.most)
    }

    fn weigh(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib * 1024)
    }
}

impl Drop for Isolated {
    /// Lets the step end in peace, but does not wait for long.
    fn drop(&mut self) {
        let Some(server) = &mut self.server else { return };
        let _ = server.socket.shutdown(Shutdown::Both); // it is gone where this fails
        let begun = Instant::now();
        while matches!(server.child.try_wait(), Ok(None)) && begun.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may be gone already
        let _ = self.child.wait();
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by {}", signal_name(signal)),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}
