//! Process of a plugin: sets its signals, hides its descriptors, ends with the runner, and controls its exit.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::plugin::inside;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, getpgrp, getpid, getppid, getrlimit, kill_current_process_group,
    kill_process, pidfd_open, set_parent_process_death_signal,
};

/// The runner's descriptors start this far below the limit of a process, or at this number. Their cost is a
/// table of all numbers up to them.
const OURS: u64 = 64;
const OURS_FROM_MAX: u64 = 960;
/// The exit code of a process that a plugin has ended.
const EXITED: i32 = 1;
/// Interval of the checks for the runner, if the system does not report its end.
const LOOKS: Duration = Duration::from_millis(200);

/// Ends this process at once, without exit handlers of libraries: threads may still run their code, or hold
/// standard output.
pub fn leave(code: i32) -> ! {
    // SAFETY: it may be called at any time, and does not return.
    unsafe { libc::_exit(code) }
}

/// Detects, until it is dropped, that code of a plugin ends this process as if its work were done. The
/// process then names that code, and exits with a failure.
#[derive(Debug)]
pub struct ExitGuard(());

/// Number of guards.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

impl ExitGuard {
    #[must_use]
    pub fn new() -> Self {
        static ONCE: Once = Once::new();
        // SAFETY: the function may be called at any time from then on, and does not unwind. If the
        // registration fails, nothing is detected.
        ONCE.call_once(|| _ = unsafe { libc::atexit(at_exit) });
        GUARDS.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Default for ExitGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        GUARDS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs on the thread that ends the process.
extern "C" fn at_exit() {
    if GUARDS.load(Ordering::Acquire) == 0 {
        return;
    }
    let whose = match inside::now() {
        Some(inside) => format!("while {inside}"),
        None => "on a thread that no step runs on".to_owned(),
    };
    let message = format!("error: code of a plugin ended the process with `exit`, {whose}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), message.as_bytes()); // it may go nowhere
    leave(EXITED)
}

/// Blocks, in this process and all its threads, the signals that terminals and supervisors send to all
/// processes of a service. They are for the runner, which lets jobs finish.
pub(crate) fn hear_no_requests_to_end() -> io::Result<()> {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes its argument, and the other calls get that set. The previous mask is
    // not requested.
    let failed = unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// The same file under a number that plugin code does not use by mistake, or close as its own.
pub(crate) fn out_of_the_way(file: impl AsFd) -> io::Result<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let from = limit.saturating_sub(OURS).clamp(3, OURS_FROM_MAX);
    let from = i32::try_from(from).unwrap_or(3);
    Ok(fcntl_dupfd_cloexec(file, from)?)
}

/// Ends this process and its whole group when the runner is gone, also while a plugin hangs.
pub(crate) fn end_with_the_runner() -> io::Result<()> {
    let runner = getppid();
    // A stopped process is continued then, and ends.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    let end = runner.and_then(|runner| pidfd_open(runner, PidfdFlags::empty()).ok());
    let end = end.map(out_of_the_way).transpose()?;
    thread::Builder::new().name("runner-watch".into()).spawn(move || {
        wait_for_the_end(runner, end.as_ref());
        if getpgrp() == getpid() {
            let _ = kill_current_process_group(Signal::KILL); // that is this process, too
        }
        let _ = kill_process(getpid(), Signal::KILL); // there is no way in which this fails
    })?;
    Ok(())
}

fn wait_for_the_end(runner: Option<Pid>, end: Option<&OwnedFd>) {
    while getppid() == runner {
        let Some(end) = end else {
            thread::sleep(LOOKS);
            continue;
        };
        let mut polled = [PollFd::new(end, PollFlags::IN)];
        let ended = poll(&mut polled, None).is_ok();
        if ended && polled[0].revents().contains(PollFlags::IN) {
            return;
        }
        // The plugin has closed the descriptor.
        thread::sleep(LOOKS);
    }
}

/// Moves the two descriptors of the runner's channels, standard input and output, to other numbers. They are
/// replaced by an empty file and standard error.
pub(crate) fn take_over_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    let (input, output) = (out_of_the_way(rustix::stdio::stdin())?, out_of_the_way(rustix::stdio::stdout())?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok((input, output))
}
