//! `ChildProcess`: the runner's handle of a process that runs a plugin's step. It starts the process, exchanges
//! frames, measures its memory, ends its group, and reports the cause of its death.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::descriptor;
use super::protocol;
use super::protocol::{BatchFrame, ChildAnswer, ChildRole};
use super::seal::Seals;
use crate::plugin::image::Image;
use crate::plugin::in_process::Journal;
use tidegate_model::{format_duration, format_size};

/// The hidden command that runs the process.
pub const COMMAND: &str = "plugin-host";

/// Interval of the checks while the process is awaited.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum time for which a process may leave its input unread.
const UNREAD: Duration = Duration::from_secs(30);
/// Memory of the process itself, in bytes.
const SETUP_BYTES: u64 = 16 << 20;
/// Maximum time for the end of a step.
const FAREWELL: Duration = Duration::from_secs(1);
/// Maximum time for the exit of a process whose connection is closed.
const LAST_BREATH: Duration = Duration::from_millis(200);
/// Maximum interval of memory checks while batches are answered fast.
const WEIGH: Duration = Duration::from_millis(100);
/// Stack of the thread that passes on log lines, in bytes.
const STACK: usize = 128 << 10;

/// A process, the leader of its group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    pid: Pid,
    /// Readable when the process has ended, also if another process holds its descriptors.
    end: OwnedFd,
    socket: UnixStream,
    /// The received part of the next word on the socket.
    word: Vec<u8>,
    words: Seals,
    shared: File,
    /// Bytes of the shared file that have been read.
    read: u64,
    seal: u64,
    /// Number of batches that were sent.
    batches: u64,
    frames: Seals,
    log: Log,
    weighed: Instant,
    /// Its memory limit in bytes.
    most: u64,
    /// It was reaped, so its number may be reused.
    ended: bool,
}

/// The log lines of a process, on their way to the runner's log.
#[derive(Debug)]
struct Log {
    socket: UnixStream,
    forwarder: Option<JoinHandle<()>>,
    /// Invalid bytes were received.
    broken: Arc<AtomicBool>,
}

/// The result of a check of the process.
pub(crate) enum ChildState {
    Working,
    Done,
    /// It ended its batch early.
    Cut,
    Refused,
    /// It has ended, or has closed its socket.
    Gone,
    /// It wrote invalid bytes.
    Stray,
}

impl ChildProcess {
    /// Starts a process with a limit of `memory` bytes. Its output goes to `prints`.
    pub(crate) fn start(
        order: &ChildRole,
        image: &Image,
        memory: u64,
        journal: &Arc<dyn Journal>,
        prints: Stdio,
    ) -> io::Result<Self> {
        let (socket, other) = UnixStream::pair()?;
        let (lines, its_lines) = UnixStream::pair()?;
        let shared = File::from(memfd_create("tidegate-plugin", MemfdFlags::CLOEXEC)?);
        // A stray write of a plugin then damages no earlier answer.
        fcntl_setfl(&shared, OFlags::APPEND)?;
        // The same executable, even if it was replaced on disk.
        let mut child = Command::new("/proc/self/exe")
            .arg(COMMAND)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::from(shared.try_clone()?))
            .stderr(prints)
            // A Ctrl-C in the terminal is for the runner, which lets jobs finish.
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&child);
        let mut to = &socket;
        // A process that does not read is not awaited for longer than an attempt may take.
        let timeout = match order {
            ChildRole::Describe { .. } => None,
            ChildRole::Run(setup) => setup.timeout,
        };
        let unread = timeout.map_or(UNREAD, |timeout| timeout.clamp(LAST_BREATH, UNREAD));
        let begun = socket
            .set_write_timeout(Some(UNREAD))
            .and_then(|()| descriptor::send(&socket, its_lines))
            .and_then(|()| protocol::send_order(&mut to, order, image.bytes()))
            .and_then(|()| socket.set_write_timeout(Some(unread)));
        // For a process that is already gone, the cause of its death is reported.
        let begun = begun.or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
            _ => Err(error),
        });
        let started = begun.and_then(|()| {
            let end = pidfd_open(pid, PidfdFlags::empty())?;
            Ok((end, Log::start(lines, order.seal(), journal)?))
        });
        let (end, log) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = end_group(pid, &mut child);
                return Err(error);
            }
        };
        // During its setup it also holds several copies of the library.
        let most = memory.saturating_add(SETUP_BYTES).saturating_add(4 * image.bytes().len() as u64);
        Ok(Self {
            child,
            pid,
            end,
            socket,
            word: Vec::new(),
            words: Seals::new(order.seal(), protocol::WORDS),
            shared,
            read: 0,
            seal: order.seal(),
            batches: 0,
            frames: Seals::new(order.seal(), protocol::BATCHES),
            log,
            weighed: Instant::now(),
            most,
            ended: false,
        })
    }

    /// Clears the file for the answers of a batch.
    fn empty(&mut self) -> io::Result<()> {
        self.batches += 1;
        self.frames = Seals::new(self.seal, protocol::BATCHES + self.batches);
        self.read = 0;
        self.shared.set_len(0)
    }

    /// Waits up to [`LOOK`] for a frame of the process.
    pub(crate) fn look(&mut self) -> ChildState {
        if self.log.broken.load(Ordering::Acquire) {
            return ChildState::Stray;
        }
        let (answered, ended) = self.wait(LOOK);
        if answered {
            self.hear()
        } else if ended {
            ChildState::Gone
        } else {
            ChildState::Working
        }
    }

    /// Whether the socket is readable, and whether the process has ended.
    fn wait(&self, patience: Duration) -> (bool, bool) {
        let patience = timespec(patience);
        let mut polled = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, Some(&patience)) {
            Ok(_) => (!polled[0].revents().is_empty(), !polled[1].revents().is_empty()),
            // The next check follows soon.
            Err(_) => (false, false),
        }
    }

    /// Reads the available part of a word.
    fn hear(&mut self) -> ChildState {
        let mut bytes = [0; 9];
        let read = self.socket.read(&mut bytes[self.word.len()..]);
        match read {
            Ok(0) => return ChildState::Gone,
            Ok(read) => self.word.extend_from_slice(&bytes[self.word.len()..][..read]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return ChildState::Gone,
        }
        let Ok(word) = <[u8; 9]>::try_from(&self.word[..]) else { return ChildState::Working };
        self.word.clear();
        match self.words.kind(word) {
            Ok(protocol::DONE) => ChildState::Done,
            Ok(protocol::CUT) => ChildState::Cut,
            Ok(protocol::REFUSED) => ChildState::Refused,
            _ => ChildState::Stray,
        }
    }

    /// Reads the new frames of the shared file, and returns whether any were there.
    pub(crate) fn take(&mut self, answers: &mut VecDeque<ChildAnswer>) -> io::Result<bool> {
        let bytes = unread(&self.shared, self.read)?;
        let mut at = 0;
        while let Some((answer, length)) = protocol::read(&bytes[at..], &mut self.frames)? {
            at += length;
            answers.push_back(answer);
        }
        self.read += at as u64;
        Ok(at > 0)
    }

    /// The memory of the process in bytes, if it exceeds the limit.
    pub(crate) fn overweight(&mut self) -> Option<u64> {
        self.weighed = Instant::now();
        self.weigh().filter(|weight| *weight > self.most)
    }

    fn weigh(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// From here on its limit is `memory` above its present use.
    pub(crate) fn set_up(&mut self, memory: u64) {
        self.most = self.weigh().unwrap_or(0).saturating_add(memory);
    }

    /// Whether its memory was not checked for a while.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.weighed.elapsed() >= WEIGH
    }

    pub(crate) fn send(&mut self, jobs: &BatchFrame, range: Range<usize>, stops: bool) -> io::Result<()> {
        self.empty()?;
        jobs.send(range, stops, &mut self.socket)
    }

    /// The cause of its death.
    pub(crate) fn post_mortem(mut self) -> String {
        if !self.ends_within(LAST_BREATH) {
            return "its process closed its connection to the runner without ending; it was killed"
                .to_owned();
        }
        match self.end() {
            Ok(status) => format!("its process {}", ending(status)),
            Err(error) => format!("its process is gone: {error}"),
        }
    }

    /// Lets the step end, for a limited time. Returns the error, if any.
    pub(crate) fn dismiss(mut self) -> Option<String> {
        let _ = self.socket.shutdown(Shutdown::Both); // it is gone if this fails
        if !self.ends_within(FAREWELL) {
            let patience = format_duration(FAREWELL);
            return Some(format!(
                "its process did not end within {patience} of the end of the step, and was killed"
            ));
        }
        let status = self.end().ok().filter(|status| !status.success())?;
        Some(format!("its process {} when the step ended", ending(status)))
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let patience = timespec(left);
            let mut polled = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
            let polled = poll(&mut polled, Some(&patience));
            if polled.is_ok_and(|ready| ready > 0) || left.is_zero() {
                return polled.is_ok_and(|ready| ready > 0);
            }
        }
    }

    /// Ends it with its group if it is still running, and returns its exit status.
    fn end(&mut self) -> io::Result<ExitStatus> {
        self.ended = true;
        end_group(self.pid, &mut self.child)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
        self.log.end();
    }
}

impl Log {
    fn start(socket: UnixStream, seal: u64, journal: &Arc<dyn Journal>) -> io::Result<Self> {
        let (broken, journal) = (Arc::new(AtomicBool::new(false)), Arc::clone(journal));
        let (mut lines, breaks) = (BufReader::new(socket.try_clone()?), Arc::clone(&broken));
        let forward = move || {
            let mut seals = Seals::new(seal, protocol::LINES);
            loop {
                match protocol::receive_line(&mut lines, &mut seals) {
                    Ok(Some((level, line))) => journal.log(level, &line),
                    Ok(None) => return,
                    Err(_) => return breaks.store(true, Ordering::Release),
                }
            }
        };
        let forwarder = thread::Builder::new().name("plugin-log".into()).stack_size(STACK).spawn(forward)?;
        Ok(Self { socket, forwarder: Some(forwarder), broken })
    }

    /// The process is gone: passes on its last lines.
    fn end(&mut self) {
        // A process that it has started may hold the other end for ever.
        let _ = self.socket.shutdown(Shutdown::Read);
        if let Some(forwarder) = self.forwarder.take() {
            let _ = forwarder.join();
        }
    }
}

/// Kills a process with its group. It is not reaped before, so that the number of the group can only be its
/// own.
fn end_group(pid: Pid, child: &mut Child) -> io::Result<ExitStatus> {
    let _ = kill_process_group(pid, Signal::KILL); // there may be nothing left of it
    let _ = child.kill();
    child.wait()
}

/// The answers of a batch are smaller: a batch is cut when they grow.
const UNREAD_MAX: u64 = 16 << 30;

/// The bytes of the shared file from `from` on. The process can make it arbitrarily long.
fn unread(shared: &File, from: u64) -> io::Result<Vec<u8>> {
    let length = shared.metadata()?.len().saturating_sub(from);
    if length > UNREAD_MAX {
        return Err(io::Error::other(format!("the answers of a batch take {}", format_size(length))));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    shared.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

fn timespec(time: Duration) -> Timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_that_was_made_endless_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"answer", 2).unwrap();
        assert_eq!(unread(&file, 2).unwrap(), b"answer");
        assert_eq!(unread(&file, 100).unwrap(), b"");
        file.set_len(1 << 40).unwrap();
        assert!(unread(&file, 2).unwrap_err().to_string().starts_with("the answers of a batch take "));
    }
}
