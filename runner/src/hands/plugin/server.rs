//! A process that runs a plugin's step, as the runner sees it: starts it, talks with it, weighs it, and
//! tells what it died of.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use tidegate_plugin::{Failure, Level, Payloads};

use super::frames::{self, Frame, Jobs, Setup};
use super::image::Image;

/// The hidden command that makes a process serve.
pub const COMMAND: &str = "plugin-host";

/// How often a process is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process may leave unread what it is sent.
const UNREAD: Duration = Duration::from_secs(30);
/// What a process holds by itself.
const SETUP_BYTES: u64 = 16 << 20;
/// How long a step may take to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Memory is looked at so often, at least, while batches are answered fast.
const WEIGH: Duration = Duration::from_millis(100);

/// Outputs by binding and how long it took, or why there are none.
pub(super) type Answer = Result<(Vec<Payloads>, Duration), Failure>;

#[derive(Debug)]
pub(super) struct Server {
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
pub(super) enum Seen {
    Working,
    Done,
    Refused,
    Gone,
}

impl Server {
    pub(super) fn start(setup: &Setup, image: &Image) -> io::Result<Self> {
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
            // Whoever does not even read is not waited for for ever.
            .and_then(|()| socket.set_write_timeout(Some(UNREAD)))
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
    pub(super) fn look(&mut self) -> Seen {
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
    pub(super) fn take(
        &mut self,
        answers: &mut VecDeque<Answer>,
        lines: &mut Vec<(Level, String)>,
    ) -> io::Result<bool> {
        let length = self.shared.metadata()?.len().saturating_sub(self.read);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.shared.read_exact_at(&mut bytes, self.read)?;
        let (mut at, mut moved) = (0, false);
        while let Some((frame, length)) = frames::read(&bytes[at..])? {
            at += length;
            match frame {
                Frame::Made(outputs, took) => answers.push_back(Ok((outputs, took))),
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
    pub(super) fn overweight(&mut self) -> Option<u64> {
        self.weighed = Instant::now();
        self.weigh().filter(|weight| *weight > self.most)
    }

    fn weigh(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// From here on it may hold so much more than it holds now.
    pub(super) fn set_up(&mut self, memory: u64) {
        self.most = self.weigh().unwrap_or(0).saturating_add(memory);
    }

    /// Whether nobody has looked at its memory for a while.
    pub(super) fn is_unwatched(&self) -> bool {
        self.weighed.elapsed() >= WEIGH
    }

    pub(super) fn send(&mut self, jobs: &Jobs, from: usize, stops: bool) -> io::Result<()> {
        self.empty()?;
        jobs.send(from, stops, &mut self.socket)
    }

    /// What it died of.
    pub(super) fn post_mortem(mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("its process {}", ending(status)),
            Err(error) => format!("its process is gone: {error}"),
        }
    }

    /// Lets the step end in peace, but does not wait for long.
    pub(super) fn dismiss(mut self) {
        let _ = self.socket.shutdown(Shutdown::Both); // it is gone where this fails
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < FAREWELL {
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
