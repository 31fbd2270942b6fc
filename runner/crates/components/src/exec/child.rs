//! `Running`: a process with its input, outputs and time limit, until its end.
//!
//! It waits for all events at once, so that a process that does not read, or does not stop writing, blocks
//! nothing. A grandchild may keep the outputs open; its end is not awaited.

use std::io::{self, ErrorKind, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::running_commands::RunningCommands;
use crate::open_files;

/// Interval at which a cancellation is checked.
const LOOKS: Duration = Duration::from_millis(100);
/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// Bytes of standard error that are kept: at least this, at most twice as many.
const SAID: usize = 8 << 10;
/// Maximum number of reads of standard error after the end, since a grandchild may continue to write.
const LAST_LOOKS: usize = 16;

/// The limits of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildLimits<'q> {
    pub(crate) until: Option<Instant>,
    /// Kills it when its output is no longer needed.
    pub(crate) running_commands: &'q RunningCommands,
    /// Maximum bytes of standard output.
    pub(crate) bytes: u64,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    Exited(i32),
    Killed(i32),
    /// It was killed after its time limit.
    Late,
    /// It was killed after its output limit.
    Large,
    /// It was killed, since its output is no longer needed.
    GivenUp,
}

/// The output of a process.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    pub(crate) out: Vec<u8>,
    /// The end of standard error.
    pub(crate) said: Vec<u8>,
    /// Earlier standard error was dropped.
    pub(crate) said_more: bool,
}

/// A process, the leader of its group. Dropping it before its end kills the group.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pid: Pid,
    /// Readable when the process has ended.
    end: OwnedFd,
    input: Option<ChildStdin>,
    out: Option<ChildStdout>,
    said: Option<ChildStderr>,
    printed: Printed,
    running_commands: Arc<RunningCommands>,
    reaped: bool,
}

impl Running {
    pub(crate) fn start(command: &mut Command, running_commands: &Arc<RunningCommands>) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = running_commands.start(command)?;
        let pid = Pid::from_child(&child);
        open_files::restore(pid);
        let (input, out, said) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let opened = pidfd_open(pid, PidfdFlags::empty()).and_then(|end| {
            for pipe in [
                input.as_ref().map(AsFd::as_fd),
                out.as_ref().map(AsFd::as_fd),
                said.as_ref().map(AsFd::as_fd),
            ] {
                pipe.map_or(Ok(()), |pipe| rustix::io::ioctl_fionbio(pipe, true))?;
            }
            Ok(end)
        });
        match opened {
            Ok(end) => {
                let (printed, running_commands) = (Printed::default(), Arc::clone(running_commands));
                Ok(Self { child, pid, end, input, out, said, printed, running_commands, reaped: false })
            }
            Err(error) => {
                let _ = kill_process_group(pid, Signal::KILL); // it may have ended already
                running_commands.ended(pid);
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Writes `input` and a line end to it, and waits for its end.
    pub(crate) fn finish(&mut self, input: &[u8], limits: ChildLimits<'_>) -> io::Result<ChildEnd> {
        let mut rest: &[&[u8]] = &[input, b"\n"];
        let mut at = 0;
        loop {
            let wait = limits.until.map(|until| until.saturating_duration_since(Instant::now()));
            if wait.is_some_and(|wait| wait.is_zero()) {
                return self.kill(ChildEnd::Late);
            }
            if limits.running_commands.is_given_up() {
                return self.kill(ChildEnd::GivenUp);
            }
            let ready = self.wait(wait.map_or(LOOKS, |wait| wait.min(LOOKS)))?;
            if ready.input {
                (rest, at) = self.feed(rest, at);
            }
            if ready.out && !self.read_out(limits.bytes)? {
                return self.kill(ChildEnd::Large);
            }
            if ready.said {
                self.read_said()?;
            }
            if ready.end {
                return self.ended(limits.bytes);
            }
        }
    }

    pub(crate) fn into_printed(mut self) -> Printed {
        std::mem::take(&mut self.printed)
    }

    fn wait(&self, wait: Duration) -> io::Result<Ready> {
        let pipes: [(Option<BorrowedFd<'_>>, PollFlags); 4] = [
            (Some(self.end.as_fd()), PollFlags::IN),
            (self.input.as_ref().map(AsFd::as_fd), PollFlags::OUT),
            (self.out.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.said.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ];
        let mut places = Vec::with_capacity(pipes.len());
        let mut polled = Vec::with_capacity(pipes.len());
        for (place, (pipe, flags)) in pipes.into_iter().enumerate() {
            if let Some(pipe) = pipe {
                places.push(place);
                polled.push(PollFd::from_borrowed_fd(pipe, flags));
            }
        }
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = [false; 4];
        for (place, polled) in places.into_iter().zip(&polled) {
            ready[place] = !polled.revents().is_empty();
        }
        let [end, input, out, said] = ready;
        Ok(Ready { end, input, out, said })
    }

    /// Writes as much as the pipe accepts. A process need not read its input.
    fn feed<'i>(&mut self, rest: &'i [&'i [u8]], at: usize) -> (&'i [&'i [u8]], usize) {
        let (Some(pipe), Some(first)) = (&mut self.input, rest.first()) else { return (rest, at) };
        let (rest, at) = match pipe.write(&first[at..]) {
            Ok(written) if at + written == first.len() => (&rest[1..], 0),
            Ok(written) => (rest, at + written),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                (rest, at)
            }
            Err(_) => (&[][..], 0),
        };
        if rest.is_empty() {
            self.input = None;
        }
        (rest, at)
    }

    /// Reads standard output. Returns whether it is within the limit.
    fn read_out(&mut self, most: u64) -> io::Result<bool> {
        let Some(read) = take(&mut self.out, &mut self.printed.out)? else { return Ok(true) };
        if read == 0 {
            self.out = None;
        }
        Ok(self.printed.out.len() as u64 <= most)
    }

    fn read_said(&mut self) -> io::Result<usize> {
        let said = &mut self.printed.said;
        let Some(read) = take(&mut self.said, said)? else { return Ok(0) };
        if read == 0 {
            self.said = None;
        }
        if said.len() > 2 * SAID {
            said.drain(..said.len() - SAID);
            self.printed.said_more = true;
        }
        Ok(read)
    }

    /// Reads the rest of the pipes after the end, and returns the end.
    fn ended(&mut self, most: u64) -> io::Result<ChildEnd> {
        while let Some(read) = take(&mut self.out, &mut self.printed.out)? {
            if self.printed.out.len() as u64 > most {
                return self.kill(ChildEnd::Large);
            }
            if read == 0 {
                break;
            }
        }
        for _ in 0..LAST_LOOKS {
            if self.read_said()? == 0 {
                break;
            }
        }
        // The process is not reaped yet, so its number can only name its own group.
        let seen = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        if seen.and_then(|seen| seen.exit_status()) != Some(0) {
            self.kill_group();
        }
        let status = self.reap()?;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => ChildEnd::Exited(code),
            (None, signal) => ChildEnd::Killed(signal.unwrap_or_default()),
        })
    }

    fn kill(&mut self, why: ChildEnd) -> io::Result<ChildEnd> {
        self.kill_group();
        self.reap()?;
        Ok(why)
    }

    /// From here on the number may be reused.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.running_commands.ended(self.pid);
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status)
    }

    fn kill_group(&self) {
        let _ = kill_process_group(self.pid, Signal::KILL); // none of it may be left
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill_group();
            let _ = self.reap();
        }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "one for each awaited event")]
struct Ready {
    end: bool,
    input: bool,
    out: bool,
    said: bool,
}

/// Appends the available bytes. Returns their number, or `None` if none are available or the pipe is closed.
fn take(pipe: &mut Option<impl Read>, to: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let Some(pipe) = pipe else { return Ok(None) };
    let before = to.len();
    to.resize(before + CHUNK, 0);
    let read = pipe.read(&mut to[before..]);
    to.truncate(before + read.as_ref().copied().unwrap_or(0));
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
