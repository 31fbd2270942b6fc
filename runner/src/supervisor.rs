//! Supervisor: sends the states of a run to the service manager that started it (`sd_notify`).
//!
//! The service manager names a datagram socket in `NOTIFY_SOCKET`. Without it, nothing is sent.

use std::env;
use std::io;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use tidegate_engine::Handle;
use tidegate_model::log_target;
use tidegate_model::sync::Mutex;

/// How long a message may wait for a service manager that does not read.
const PATIENCE: Duration = Duration::from_secs(1);
/// Signs of life per watchdog interval.
const SIGNS_PER_INTERVAL: u32 = 3;

/// The socket of the service manager, if there is one.
static MANAGER: OnceLock<Option<(UnixDatagram, SocketAddr)>> = OnceLock::new();
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// The run works, or waits to take over: `status` describes that to operators.
pub(crate) fn ready(status: &str) {
    if !IS_STOPPING.load(Ordering::Acquire) {
        send(&["READY=1", &status_line(status)]);
    }
}

/// The run reads its configuration again. [`ready`] follows.
pub(crate) fn reloading() {
    if IS_STOPPING.load(Ordering::Acquire) {
        return;
    }
    let now = clock_gettime(ClockId::Monotonic);
    // Both are positive, and a monotonic clock begins at the start of the machine.
    let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
    send(&["RELOADING=1", &format!("MONOTONIC_USEC={micros}")]);
}

/// The run ends. Further calls have no effect.
pub(crate) fn stopping() {
    if !IS_STOPPING.swap(true, Ordering::AcqRel) {
        send(&["STOPPING=1", &status_line("running jobs are finished first")]);
    }
}

/// Signs of life for the watchdog of the service manager.
pub(crate) struct Watchdog {
    run: Arc<Mutex<Option<Handle>>>,
}

impl Watchdog {
    /// Sends signs of life if the service manager wants them, on a thread that ends with the process.
    pub(crate) fn start() -> io::Result<Self> {
        let run: Arc<Mutex<Option<Handle>>> = Arc::default();
        let micros = env::var("WATCHDOG_USEC").ok();
        let pid = env::var("WATCHDOG_PID").ok();
        let interval = watchdog_interval(micros.as_deref(), pid.as_deref(), std::process::id());
        if let Some(interval) = interval.filter(|_| manager().is_some()) {
            let run = Arc::clone(&run);
            thread::Builder::new().name("watchdog".into()).spawn(move || {
                loop {
                    let run = run.lock().clone();
                    // An event loop that hangs does not answer, and then there is no sign of life.
                    if let Some(run) = run.filter(|run| !run.is_over()) {
                        drop(run.lingering());
                    }
                    send(&["WATCHDOG=1"]);
                    thread::sleep(interval / SIGNS_PER_INTERVAL);
                }
            })?;
        }
        Ok(Self { run })
    }

    /// From now on, signs of life depend on the event loop of this run.
    pub(crate) fn watches(&self, run: Handle) {
        *self.run.lock() = Some(run);
    }
}

/// The interval of the watchdog, if it is meant for this process.
fn watchdog_interval(micros: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let is_own = pid.is_none_or(|pid| pid.trim().parse() == Ok(own));
    let micros = micros?.trim().parse().ok().filter(|&micros| micros > 0 && is_own)?;
    Some(Duration::from_micros(micros))
}

fn status_line(status: &str) -> String {
    // A line end would begin another assignment.
    format!("STATUS={}", tidegate_model::plain::on_one_line(status))
}

fn send(assignments: &[&str]) {
    let Some((socket, address)) = manager() else { return };
    if let Err(error) = socket.send_to_addr(assignments.join("\n").as_bytes(), address) {
        tracing::debug!(target: log_target::RUNNER, %error, "the service manager does not receive a message");
    }
}

fn manager() -> Option<&'static (UnixDatagram, SocketAddr)> {
    let open = || {
        let name = env::var("NOTIFY_SOCKET").ok()?;
        match open(&name) {
            Ok(opened) => Some(opened),
            Err(error) => {
                tracing::warn!(target: log_target::RUNNER, socket = name, %error, "the service manager is not notified");
                None
            }
        }
    };
    MANAGER.get_or_init(open).as_ref()
}

fn open(name: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, address(name)?))
}

/// `/path/of/a/socket`, or `@name` in the abstract name space.
fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => SocketAddr::from_abstract_name(name),
        #[cfg(not(target_os = "linux"))]
        Some(_) => Err(io::ErrorKind::Unsupported.into()),
        None if name.starts_with('/') => SocketAddr::from_pathname(name),
        None => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "`NOTIFY_SOCKET` must be an absolute path, or a name that begins with `@`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_a_path_or_an_abstract_name() {
        assert_eq!(address("/run/notify").unwrap().as_pathname(), Some("/run/notify".as_ref()));
        assert_eq!(address("@notify/7").unwrap().as_abstract_name(), Some(&b"notify/7"[..]));
        for other in ["", "notify", "vsock:2:1234"] {
            assert!(address(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_watchdog_of_another_process_is_left_alone() {
        let interval = |micros, pid| watchdog_interval(micros, pid, 7);
        assert_eq!(interval(Some("30000000"), None), Some(Duration::from_secs(30)));
        assert_eq!(interval(Some("500"), Some("7")), Some(Duration::from_micros(500)));
        for (micros, pid) in [
            (None, None),
            (Some("0"), None),
            (Some("x"), None),
            (Some("5"), Some("8")),
            (Some("5"), Some("")),
        ] {
            assert_eq!(interval(micros, pid), None, "{micros:?} {pid:?}");
        }
    }

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(status_line("a\nREADY=1"), "STATUS=a\\nREADY=1");
    }
}
