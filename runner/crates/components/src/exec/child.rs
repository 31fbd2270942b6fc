//! `Running`: a process with its input, outputs and time limit, until its end.
//!
//! It awaits all events at once and keeps no thread, so that a process that does not read, or does not stop
//! writing, blocks nothing. A grandchild may keep the outputs open; its end is not awaited.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use super::process_group::{ProcessEnd, ProcessGroup};
use super::running_commands::RunningCommands;
use super::stderr_tail::StderrTail;

/// Bytes per read.
const CHUNK: usize = 16 << 10;
/// Maximum number of reads of standard error after the end, since a grandchild may continue to write.
const LAST_LOOKS: usize = 16;

/// A process whose end is to be awaited, with its limits.
#[derive(Debug)]
pub struct AwaitedCommand {
    pub(crate) running: Running,
    /// Standard input; a line end follows it.
    pub(crate) input: Vec<u8>,
    pub(crate) until: Option<Instant>,
    /// Maximum bytes of standard output.
    pub(crate) bytes: u64,
}

/// The end and the output of a process.
#[derive(Debug)]
pub struct EndedCommand {
    /// An error of the system: the process could not be monitored.
    pub(crate) end: io::Result<ChildEnd>,
    pub(crate) printed: Printed,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    Ended(ProcessEnd),
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
    pub(crate) errors: StderrTail,
}

/// A process. Dropping it before its end kills its group.
#[derive(Debug)]
pub(crate) struct Running {
    group: ProcessGroup,
    /// Readable when the process has ended.
    end: Option<OwnedFd>,
    /// Standard input, output and error.
    pipes: [Option<OwnedFd>; 3],
    printed: Printed,
    running_commands: Arc<RunningCommands>,
}

impl Running {
    pub(crate) fn start(command: &mut Command, running_commands: &Arc<RunningCommands>) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut group, end) = ProcessGroup::start(command, running_commands)?;
        let (stdin, out, err) = group.pipes();
        let pipes = [stdin.map(Into::into), out.map(Into::into), err.map(Into::into)];
        let (printed, running_commands) = (Printed::default(), Arc::clone(running_commands));
        Ok(Self { group, end: Some(end), pipes, printed, running_commands })
    }

    /// Writes `input` and a line end to it, and awaits its end.
    async fn finish(
        &mut self,
        mut input: Vec<u8>,
        until: Option<Instant>,
        most: u64,
    ) -> io::Result<ChildEnd> {
        input.push(b'\n');
        let mut written = 0;
        let Some(end) = self.end.take() else { return Err(ErrorKind::NotFound.into()) };
        // It is watched like a pipe, and nothing is read from it.
        let end = Receiver::from_owned_fd_unchecked(end)?;
        let [stdin, out, err] = std::mem::take(&mut self.pipes);
        let mut stdin = stdin.map(Sender::from_owned_fd).transpose()?;
        let (mut out, mut err) =
            (out.map(Receiver::from_owned_fd).transpose()?, err.map(Receiver::from_owned_fd).transpose()?);
        let mut given_up = self.running_commands.given_up();
        let why = loop {
            tokio::select! {
                () = over(until) => break Some(ChildEnd::Late),
                () = given_up.happens() => break Some(ChildEnd::GivenUp),
                wrote = write(stdin.as_ref(), &input[written..]) => {
                    // A process need not read its input, or only a part of it.
                    written = wrote.map_or(input.len(), |wrote| written + wrote);
                    if written >= input.len() {
                        stdin = None;
                    }
                }
                read = read(out.as_ref(), &mut self.printed.out) => {
                    if read? == 0 {
                        out = None;
                    }
                    if self.printed.out.len() as u64 > most {
                        break Some(ChildEnd::Large);
                    }
                }
                read = read(err.as_ref(), self.printed.errors.buffer()) => {
                    if read? == 0 {
                        err = None;
                    }
                    self.printed.errors.shorten();
                }
                ended = end.readable() => {
                    ended?;
                    break None;
                }
            }
        };
        let why = why.or_else(|| self.read_rest(out.as_ref(), err.as_ref(), most));
        match why {
            Some(why) => self.kill(why, &end).await,
            None => Ok(ChildEnd::Ended(self.group.ended()?)),
        }
    }

    /// Reads the rest of the pipes after the end. Returns the reason to kill the group, if there is one.
    fn read_rest(&mut self, out: Option<&Receiver>, err: Option<&Receiver>, most: u64) -> Option<ChildEnd> {
        let Printed { out: printed, errors } = &mut self.printed;
        while append(out, printed).is_ok_and(|read| read > 0) {
            if printed.len() as u64 > most {
                return Some(ChildEnd::Large);
            }
        }
        for _ in 0..LAST_LOOKS {
            if !append(err, errors.buffer()).is_ok_and(|read| read > 0) {
                break;
            }
        }
        errors.shorten();
        None
    }

    /// Kills it, and reaps it when it has ended: a process that waits for a disk ends later.
    async fn kill(&mut self, why: ChildEnd, end: &Receiver) -> io::Result<ChildEnd> {
        self.group.kill();
        end.readable().await?;
        self.group.reap()?;
        Ok(why)
    }
}

impl AwaitedCommand {
    /// Awaits the end of the process. If this is dropped, the process is killed with its group.
    pub(crate) async fn run(self) -> EndedCommand {
        let Self { mut running, input, until, bytes } = self;
        let end = running.finish(input, until, bytes).await;
        EndedCommand { end, printed: std::mem::take(&mut running.printed) }
    }
}

/// Awaits a time; without one, for ever.
async fn over(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Writes as much as the pipe accepts, and returns the number of bytes. Waits for ever without a pipe.
async fn write(pipe: Option<&Sender>, bytes: &[u8]) -> io::Result<usize> {
    let Some(pipe) = pipe else { return std::future::pending().await };
    loop {
        pipe.writable().await?;
        match pipe.try_write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            wrote => return wrote,
        }
    }
}

/// Appends the next bytes of the pipe, and returns their number: 0 at its end. Waits for ever without a pipe.
async fn read(pipe: Option<&Receiver>, to: &mut Vec<u8>) -> io::Result<usize> {
    let Some(receiver) = pipe else { return std::future::pending().await };
    loop {
        receiver.readable().await?;
        match receiver.try_io(|| append(pipe, to)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Appends the available bytes, and returns their number: 0 at the end of the pipe, and without one.
fn append(pipe: Option<&Receiver>, to: &mut Vec<u8>) -> io::Result<usize> {
    let Some(pipe) = pipe else { return Ok(0) };
    let before = to.len();
    to.resize(before + CHUNK, 0);
    let read = rustix::io::retry_on_intr(|| rustix::io::read(pipe.as_fd(), &mut to[before..]));
    to.truncate(before + read.unwrap_or(0));
    Ok(read?)
}
