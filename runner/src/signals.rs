//! `Signals`: the first signal to end stops the run in order, the second ends the process.
//!
//! SIGTERM and SIGINT ask for an end, SIGHUP for a reload. A SIGHUP that is ignored at the start (`nohup`) stays
//! ignored.
//! After [`Signals::watch`], no signal ends the process in another way.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle as Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{console, log};
use crate::reload::reload;
use crate::supervisor;
use tidegate_components::plugin::leave;
use tidegate_engine::Handle;
use tidegate_model::log_target;
use tidegate_model::sync::Mutex;
use tidegate_store::Trigger;

/// Interval at which the log reports omitted messages.
const LEFT_OUT_INTERVAL: Duration = Duration::from_secs(1);

/// The thread that handles signals and other I/O outside of the run.
pub(crate) struct Signals {
    runtime: Runtime,
    phase: Arc<Mutex<Phase>>,
}

/// The state that a signal stops.
enum Phase {
    /// Nothing: the configuration is being loaded, and no run exists.
    Loading,
    /// A run that cannot be stopped yet, and whether it is to stop.
    Starting {
        asked: bool,
    },
    Running {
        run: Handle,
        asked: bool,
    },
}

impl Signals {
    /// Starts to handle signals, on a thread that ends with the process.
    pub(crate) fn watch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let phase = Arc::new(Mutex::new(Phase::Loading));
        let guard = runtime.enter();
        let asks = asks()?;
        // A write beyond the limit of a file's size then fails as one to a full disk does.
        let too_large = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
        drop(guard);
        let signals = Self { runtime: runtime.handle().clone(), phase: Arc::clone(&phase) };
        let carry = async move {
            let _too_large = too_large;
            tokio::spawn(log_left_out_messages());
            obey(asks, &phase).await;
        };
        thread::Builder::new().name("io".into()).spawn(move || runtime.block_on(carry))?;
        Ok(signals)
    }

    /// From now on a signal stops the run that starts.
    pub(crate) fn starts(&self) {
        *self.phase.lock() = Phase::Starting { asked: false };
    }

    /// Whether a signal has asked the run to stop before it has begun.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Starting { asked: true } | Phase::Running { asked: true, .. })
    }

    /// From now on a signal stops this run, which also stops if a signal arrived before.
    pub(crate) fn runs(&self, run: Handle) {
        let mut phase = self.phase.lock();
        let asked = matches!(*phase, Phase::Starting { asked: true });
        if asked {
            stop(&run);
        }
        *phase = Phase::Running { run, asked };
    }

    /// The runtime for the thread's other tasks.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// The signals that stop a run or reload, each with its number.
fn asks() -> io::Result<Vec<(i32, Signal)>> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let kinds = kinds.into_iter().filter(|kind| *kind != SignalKind::hangup() || !is_ignored(*kind));
    kinds.map(|kind| Ok((kind.as_raw_value(), signal(kind)?))).collect()
}

/// Whether the process was started with the signal ignored; false if that cannot be determined.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}

/// Returns the next signal.
async fn next(asks: &mut [(i32, Signal)]) -> i32 {
    poll_fn(|context| {
        let come = asks
            .iter_mut()
            .find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
        come.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

async fn obey(mut asks: Vec<(i32, Signal)>, phase: &Mutex<Phase>) {
    let hangup = SignalKind::hangup().as_raw_value();
    loop {
        let number = next(&mut asks).await;
        match &mut *phase.lock() {
            // A run that starts reads the files anyway.
            Phase::Loading | Phase::Starting { .. } if number == hangup => {}
            Phase::Running { run, asked } if number == hangup => {
                if !*asked {
                    let run = run.clone();
                    tokio::task::spawn_blocking(move || reload(&run, Trigger::Signal));
                }
            }
            Phase::Loading => {
                warn_stopped_before();
                std::process::exit(0);
            }
            Phase::Starting { asked: asked @ false } => *asked = true,
            Phase::Running { run, asked } if !*asked => {
                *asked = true;
                stop(run);
            }
            Phase::Starting { .. } => leave(128 + number),
            // Nothing is lost: uncommitted jobs run again.
            Phase::Running { run, .. } => {
                run.abandon();
                leave(128 + number);
            }
        }
    }
}

/// Reports that no run began.
pub(crate) fn warn_stopped_before() {
    console::log(console::Gravity::Info, "tidegate", "stopped before the run began");
}

fn stop(run: &Handle) {
    // The stop comes first, since the log may block on a reader.
    run.stop();
    supervisor::stopping();
    tracing::info!(target: log_target::RUNNER, "stopping: running jobs are finished first; a second signal ends the process at once");
}

async fn log_left_out_messages() {
    loop {
        tokio::time::sleep(LEFT_OUT_INTERVAL).await;
        log::write_rest(false);
    }
}
