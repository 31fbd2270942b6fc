//! `Running`: a command that runs beside the test.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tempfile::TempDir;

use crate::project::Outcome;

/// A wait fails after this time. It is long, since the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// A started command. It is killed with the test.
pub(crate) struct Running {
    child: Child,
    /// Its output goes to files, so that no pipe can fill up.
    said: TempDir,
    changes: Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Running {
    pub(crate) fn start(folder: &Path, command: Command) -> Self {
        let said = TempDir::new().expect("a temporary folder can be made");
        let stderr = File::create(said.path().join("stderr")).expect("files can be made");
        Self::start_in(folder, command, said, stderr.into())
    }

    /// As [`Self::start`], with this standard error.
    pub(crate) fn start_with(folder: &Path, command: Command, stderr: Stdio) -> Self {
        Self::start_in(folder, command, TempDir::new().expect("a temporary folder can be made"), stderr)
    }

    fn start_in(folder: &Path, mut command: Command, said: TempDir, stderr: Stdio) -> Self {
        let stdout = File::create(said.path().join("stdout")).expect("files can be made");
        command.stdout(stdout).stderr(stderr);
        let (tell, changes) = mpsc::channel();
        let changed = move |_: notify::Result<notify::Event>| {
            // The test may have ended.
            let _ = tell.send(());
        };
        let mut watcher = notify::recommended_watcher(changed).expect("files can be watched");
        for folder in [folder, said.path()] {
            watcher.watch(folder, RecursiveMode::Recursive).expect("folders can be watched");
        }
        let child = command.spawn().expect("the executable can be started");
        Self { child, said, changes, _watcher: watcher }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.said("stderr")
    }

    /// Waits until `done`, which is checked at each change of a file.
    pub(crate) fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            let ended = self.child.try_wait().expect("a child can be asked");
            assert!(ended.is_none() || done(), "it ended before {what}:\n{}", self.stderr());
            assert!(Instant::now() < deadline, "no sign of {what}:\n{}", self.stderr());
            self.pause();
        }
    }

    /// Waits until standard error contains this text.
    pub(crate) fn wait_until_it_says(&mut self, what: &str) {
        let stderr = self.said.path().join("stderr");
        self.wait_until(what, || fs::read_to_string(&stderr).is_ok_and(|text| text.contains(what)));
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        terminate(self.pid());
    }

    /// Sends it a signal: `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Kills it; false if it had ended by itself.
    pub(crate) fn kill(mut self) -> bool {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for").code().is_none()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be asked").is_some()
    }

    /// Waits for its end.
    pub(crate) fn outcome(mut self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.stderr());
            self.pause();
        };
        Outcome { code: status.code(), stdout: self.said("stdout"), stderr: self.said("stderr") }
    }

    /// Waits for its end. Returns its peak memory in MiB.
    pub(crate) fn peak_mib(&mut self) -> u64 {
        let status = format!("/proc/{}/status", self.pid());
        let mut peak_kib = 0;
        // The last value counts; the peak is the kernel's.
        while !self.has_ended() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
            peak_kib = peak.unwrap_or(peak_kib).max(peak_kib);
            self.pause();
        }
        assert!(peak_kib > 0, "the peak was never seen");
        peak_kib / 1024
    }

    /// Asks it to end, and waits for it.
    pub(crate) fn stop(self) -> Outcome {
        self.terminate();
        self.outcome()
    }

    /// Waits until a file changes, or briefly: not every change is in a file.
    pub(crate) fn pause(&self) {
        let _ = self.changes.recv_timeout(Duration::from_millis(10));
        while self.changes.try_recv().is_ok() {}
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.said.path().join(name)).unwrap_or_default()
    }
}

/// Runs a test of this program that is ignored otherwise.
pub(crate) fn in_a_process(test: &str) {
    let outcome = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", test, "--ignored", "--test-threads", "1"])
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success() && said.contains("1 passed"), "{}\n{said}", outcome.status);
}

/// Asks a process to end.
pub(crate) fn terminate(pid: u32) {
    signal(pid, "TERM");
}

/// Sends a process a signal: `HUP`.
pub(crate) fn signal(pid: u32, name: &str) {
    let script = format!("kill -{name} \"$0\"");
    let status = Command::new("sh").args(["-c", &script, &pid.to_string()]).status();
    assert!(status.expect("a shell can be started").success());
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
