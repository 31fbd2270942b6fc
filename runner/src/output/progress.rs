//! `RunProgress`: the progress bar of a run on a terminal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::console;
use super::table::{self, grouped, rate};
use tidegate_config::{Configuration, Input, SourceKind, SourceRef};
use tidegate_engine::Stats;

const REFRESH: Duration = Duration::from_millis(100);

/// A bar that is shown until it is dropped.
pub(crate) struct RunProgress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunProgress {
    /// Starts the bar if standard error is a terminal.
    pub(crate) fn start(configuration: &Arc<Configuration>, stats: Arc<Stats>) -> Option<Self> {
        if !console::is_terminal() || console::speaks_json() {
            return None;
        }
        let bar = bar(total_bytes(configuration));
        console::above(Some(bar.clone()));
        let (end, ended) = mpsc::channel();
        let configuration = Arc::clone(configuration);
        let show = move || {
            let started = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(REFRESH) {
                update(&bar, &configuration, &stats, started);
            }
            // Lines that are written meanwhile are above the bar still.
            bar.finish_and_clear();
            console::above(None);
        };
        let thread = thread::Builder::new().name("progress".into()).spawn(show).ok()?;
        Some(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => {
            let bar = ProgressBar::with_draw_target(Some(total), console::bar());
            (bar, "{bar:32.cyan/dim} {percent:>3}%  {msg}")
        }
        None => (ProgressBar::with_draw_target(None, console::bar()), "{spinner:.cyan} {msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

fn update(bar: &ProgressBar, configuration: &Configuration, stats: &Stats, started: Instant) {
    let (mut jobs, mut bytes, mut failed) = (0, 0, 0);
    for (step, stats) in stats.of(configuration) {
        let counters = stats.counters();
        failed += counters.failed;
        if step.reads_source() {
            jobs += counters.taken;
            // A line's end belongs to the file, not to the job.
            bytes += stats.bytes() + counters.taken;
        }
    }
    let rate = rate(jobs, started.elapsed());
    let failed = if failed > 0 { format!(", {} failed", grouped(failed)) } else { String::new() };
    bar.set_message(format!("{} in, {}/s{failed}", table::jobs(jobs), grouped(rate)));
    match bar.length() {
        Some(total) => bar.set_position(bytes.min(total)),
        None => bar.tick(),
    }
}

/// The size of bounded sources, once per reading step. `None` if a source is unbounded.
fn total_bytes(configuration: &Configuration) -> Option<u64> {
    let mut total = 0;
    for input in configuration.steps.iter().flat_map(|step| &step.inputs) {
        let Input::Source(SourceRef(source)) = input.input else { continue };
        let SourceKind::File(file) = &configuration.sources[source].kind else { return None };
        if file.follow {
            return None;
        }
        total += size(&file.path);
    }
    Some(total)
}

fn size(path: &Path) -> u64 {
    let len = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if path.is_file() {
        return len(path);
    }
    let pattern = if path.is_dir() { path.join("*") } else { path.to_owned() };
    let files = glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten();
    files.filter(|path: &PathBuf| path.is_file()).map(|path| len(&path)).sum()
}
