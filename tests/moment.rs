//! `Moment`: the point at which a run is killed.

use std::fs;
use std::time::{Duration, Instant};

use crate::project::Project;
use crate::random::Random;
use crate::running::Running;

/// How often a test kills its run: `usual`, or the number in the environment variable `TIDEGATE_TEST_KILLS`.
pub(crate) fn kills(usual: u64) -> u64 {
    match std::env::var("TIDEGATE_TEST_KILLS") {
        Ok(text) => text.parse().expect("TIDEGATE_TEST_KILLS is a number"),
        Err(_) => usual,
    }
}

/// The point at which a run is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// This long after its start: while it opens the store, recovers, reads the first jobs.
    After(Duration),
    /// When the output file has grown by this many bytes, shortly before their commit.
    Output(u64),
    /// After this many writes to the store.
    Store(u64),
}

impl Moment {
    /// A moment before the output has grown by `most` bytes. `ahead`: more is delivered than expected. Then
    /// the kill comes early, so that jobs are left for all kills, on any machine.
    pub(crate) fn choose(random: &mut Random, most: u64, ahead: bool) -> Self {
        match random.below(4) {
            _ if ahead => Self::After(Duration::from_micros(random.below(10_000))),
            0 => Self::After(Duration::from_micros(random.below(25_000))),
            1 => Self::Store(1 + random.below(4)),
            _ => Self::Output(random.below(most)),
        }
    }

    /// Waits for it. Polls without a pause, since a moment is short.
    pub(crate) fn wait(self, project: &Project, output: &str, running: &mut Running) {
        let started = Instant::now();
        let before = project.len(output);
        let (mut written, mut writes) = ([None; 2], 0);
        while !running.has_ended() {
            let is_now = match self {
                Self::After(time) => started.elapsed() >= time,
                Self::Output(growth) => project.len(output) > before + growth,
                Self::Store(wanted) => {
                    // To the store itself, or to its log.
                    let now = [".tidegate/store.redb", ".tidegate/store.wal"].map(|name| {
                        let file = fs::metadata(project.path().join(name));
                        file.and_then(|metadata| metadata.modified()).ok()
                    });
                    writes += u64::from(now != written);
                    written = now;
                    writes > wanted
                }
            };
            if is_now {
                return;
            }
            std::thread::yield_now();
        }
    }
}
