//! `Process`: a process whose output is read while it runs; it leads a group of its own.
//!
//! It blocks the thread of its source, and waits for output, the end and a waker at once. A grandchild may keep the
//! outputs open; its end is not awaited.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::exec::RunningCommands;
use crate::exec::process_group::{ProcessEnd, ProcessGroup};
use crate::exec::stderr_tail::StderrTail;

/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// Maximum number of reads after the end, since a grandchild may continue to write. A pipe holds less.
const LAST_READS: usize = 64;

/// A running process. Dropping it kills its group.
#[derive(Debug)]
pub(crate) struct Process {
    group: ProcessGroup,
    /// Readable when the process has ended.
    end: OwnedFd,
    out: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    stderr_tail: StderrTail,
}

/// The events of a wait.
#[expect(clippy::struct_excessive_bools, reason = "one for each awaited event")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) end: bool,
    pub(crate) out: bool,
    errors: bool,
    pub(crate) woken: bool,
}

impl Ready {
    /// Whether the time of the wait is over.
    pub(crate) fn is_nothing(self) -> bool {
        !(self.end || self.out || self.errors || self.woken)
    }
}

impl Process {
    pub(crate) fn start(command: &mut Command, running_commands: &Arc<RunningCommands>) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut group, end) = ProcessGroup::start(command, running_commands)?;
        let (_, out, errors) = group.pipes();
        for pipe in [out.as_ref().map(AsFd::as_fd), errors.as_ref().map(AsFd::as_fd)] {
            pipe.map_or(Ok(()), |pipe| rustix::io::ioctl_fionbio(pipe, true))?;
        }
        Ok(Self { group, end, out, errors, stderr_tail: StderrTail::default() })
    }

    /// Waits for output (if `reads`), the end, or `waker`. Standard error is read meanwhile. `wait`: `None` is without a
    /// limit.
    pub(crate) fn wait(
        &mut self,
        waker: BorrowedFd<'_>,
        reads: bool,
        wait: Option<Duration>,
    ) -> io::Result<Ready> {
        let ready = self.poll(waker, reads, wait)?;
        if ready.errors {
            self.read_errors()?;
        }
        Ok(ready)
    }

    fn poll(&self, waker: BorrowedFd<'_>, reads: bool, wait: Option<Duration>) -> io::Result<Ready> {
        let out = self.out.as_ref().filter(|_| reads);
        let files: [Option<BorrowedFd<'_>>; 4] = [
            Some(self.end.as_fd()),
            out.map(AsFd::as_fd),
            self.errors.as_ref().map(AsFd::as_fd),
            Some(waker),
        ];
        let mut places = Vec::with_capacity(files.len());
        let mut polled = Vec::with_capacity(files.len());
        for (place, file) in files.into_iter().enumerate() {
            if let Some(file) = file {
                places.push(place);
                polled.push(PollFd::from_borrowed_fd(file, PollFlags::IN));
            }
        }
        let wait = wait.map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        match poll(&mut polled, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = [false; 4];
        for (place, polled) in places.into_iter().zip(&polled) {
            ready[place] = !polled.revents().is_empty();
        }
        let [end, out, errors, woken] = ready;
        Ok(Ready { end, out, errors, woken })
    }

    /// Takes the available output, about `most` bytes of it.
    pub(crate) fn read_some(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut output = Vec::new();
        while output.len() < most {
            match take(&mut self.out, &mut output)? {
                Some(0) => self.out = None,
                Some(_) => continue,
                None => {}
            }
            break;
        }
        Ok(output)
    }

    /// The end of a process that has ended, with its last output. After a failure nothing of its group is left.
    pub(crate) fn finish(&mut self) -> io::Result<(ProcessEnd, Vec<u8>)> {
        let mut output = Vec::new();
        for _ in 0..LAST_READS {
            if take(&mut self.out, &mut output)?.is_none_or(|read| read == 0) {
                break;
            }
        }
        for _ in 0..LAST_READS {
            if self.read_errors()? == 0 {
                break;
            }
        }
        Ok((self.group.ended()?, output))
    }

    /// The end of standard error.
    pub(crate) fn stderr_tail(&self) -> &StderrTail {
        &self.stderr_tail
    }

    /// Asks the group to end.
    pub(crate) fn terminate(&self) {
        self.group.terminate();
    }

    /// Kills the group.
    pub(crate) fn kill(&mut self) {
        self.group.kill_and_reap();
    }

    fn read_errors(&mut self) -> io::Result<usize> {
        let Some(read) = take(&mut self.errors, self.stderr_tail.buffer())? else { return Ok(0) };
        if read == 0 {
            self.errors = None;
        }
        self.stderr_tail.shorten();
        Ok(read)
    }
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
