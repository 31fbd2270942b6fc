//! Runs all measurements and prints one table.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::child::Figures;
use crate::{completing, http, paths, plugins, waiting};

const BACKLOG_FACTOR: u64 = 5;

/// The paths that are measured against the floor.
const PATHS: [&str; 7] = ["script", "queue", "plain", "kept", "fork", "join", "row"];

/// A line of the table.
pub(crate) struct Row {
    pub(crate) path: &'static str,
    pub(crate) figure: String,
    pub(crate) target: &'static str,
    pub(crate) met: bool,
}

pub(crate) fn report() -> Result<(), Box<dyn Error>> {
    let jobs = number("TIDEGATE_BENCH_JOBS", 1_000_000);
    let rounds = number("TIDEGATE_BENCH_ROUNDS", 3);
    let folder = TempDir::new()?;
    let folder = folder.path();
    eprintln!("{jobs} jobs of {} bytes, {rounds} rounds", paths::job(jobs / 2).len() + 1);
    paths::write_input(&folder.join("in.ndjson"), jobs)?;

    match std::env::var("TIDEGATE_BENCH_ONLY").as_deref() {
        Ok("plugins") => return native(folder, rounds).map(|rows| print_rows(&rows)),
        Ok("queuers") => return picked(folder, jobs, rounds).map(|rows| print_rows(&rows)),
        Ok("waiting") => return waiting::rows(folder, jobs).map(|rows| print_rows(&rows)),
        Ok("tables") => return tables(folder, rounds).map(|row| print_rows(&[row])),
        Ok("http") => return pushed(folder, jobs, rounds).map(|rows| print_rows(&rows)),
        _ => {}
    }
    // What comes first finds a cold machine, and a disk that is still busy with the input.
    measure("floor", folder)?;
    fresh(PATHS[0], folder)?;
    let (mut floors, mut paths) = (Vec::new(), PATHS.map(|_| Vec::new()));
    for _ in 0..rounds {
        for (path, figures) in PATHS.iter().zip(&mut paths) {
            floors.push(measure("floor", folder)?);
            figures.push(fresh(path, folder)?);
        }
    }
    let follow = latency(folder)?;
    let (large, endless) = large(folder, jobs, rounds)?;
    let starts = starts(folder)?;

    let floor = median(&floors);
    let [script, queue, plain, kept, fork, join, row] = paths.map(|figures| median(&figures));
    let mut rows = vec![
        ratio("file → script → file, exactly once", &script, &floor, 1.2, "≥ 1.2 × floor"),
        cpu("  its CPU time", &script, &floor),
        ratio("file → script → queue → script → file", &queue, &floor, 0.55, "≥ 0.55 × floor"),
        ratio("file → file without a script", &plain, &floor, 3.0, "≥ 3 × floor"),
        ratio("file → script → fork to 3 queues", &fork, &floor, 0.4, "≥ 0.4 × floor"),
        ratio("file → 2 queues → join → script → file", &join, &floor, 0.35, "≥ 0.35 × floor"),
        ratio("file → 10 × (script → queue) → file", &row, &floor, 0.09, "≥ 0.09 × floor"),
    ];
    rows.push(tables(folder, rounds)?);
    rows.extend(retention(&queue, &kept, &endless));
    rows.push(Row {
        path: "one job, appended → durable, p50",
        figure: format!("{:.2} ms", follow.p50_ms),
        target: "< 3 ms",
        met: follow.p50_ms < 3.0,
    });
    rows.push(Row {
        path: "one job, appended → durable, p99",
        figure: format!("{:.2} ms", follow.p99_ms),
        target: "< 10 ms",
        met: follow.p99_ms < 10.0,
    });
    rows.extend(memory(&script, &large));
    rows.push(Row {
        path: "first delivery with 5 × the jobs as backlog, after a crash",
        figure: format!("{:.0} ms", starts * 1000.0),
        target: "< 300 ms",
        met: starts < 0.3,
    });
    paths::write_input(&folder.join("in.ndjson"), jobs)?;
    rows.extend(picked(folder, jobs, rounds)?);
    rows.extend(waiting::rows(folder, jobs)?);
    paths::write_input(&folder.join("in.ndjson"), jobs)?;
    rows.extend(native(folder, rounds)?);
    rows.extend(pushed(folder, jobs, rounds)?);
    print(&floor, &rows);
    Ok(())
}

/// A script that looks up each job in a table of 100,000 entries, against one that does not.
fn tables(folder: &Path, rounds: u64) -> Result<Row, Box<dyn Error>> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(fresh("bare", folder)?);
        with.push(fresh("table", folder)?);
    }
    let (with, without) = (rate(&median(&with)), rate(&median(&without)));
    let ratio = with / without;
    Ok(Row {
        path: "  with a look-up in a table of 100,000 entries, against without",
        figure: format!("{ratio:.2} × ({with:.0} jobs/s)"),
        target: "≥ 0.8 ×",
        met: ratio >= 0.8,
    })
}

/// What native plugins cost.
fn native(folder: &Path, rounds: u64) -> Result<[Row; 3], Box<dyn Error>> {
    plugins::build()?;
    let calls = plugins::calls()?;
    eprintln!("plugins: {calls:.1?}");
    let isolated: Result<Vec<_>, _> = (0..rounds).map(|_| fresh("isolated", folder)).collect();
    let isolated = rate(&median(&isolated?));
    let (added, faster) = (calls.plugin - calls.built_in, calls.script / calls.field);
    Ok([
        Row {
            path: "a plugin's no-op over a built-in one",
            figure: format!("{added:.0} ns a job"),
            target: "≤ 60 ns",
            met: added <= 60.0,
        },
        Row {
            path: "a plugin that parses one field, against Rhai",
            figure: format!("{faster:.1} × ({:.0} ns a job)", calls.field),
            target: "≥ 5 ×",
            met: faster >= 5.0,
        },
        Row {
            path: "file → plugin in a process of its own → file",
            figure: format!("{isolated:.0} jobs/s"),
            target: "≥ 250,000 jobs/s",
            met: isolated >= 250_000.0,
        },
    ])
}

/// Jobs that wait in a queue, and are picked by the rules of a queuer for a step that does nothing.
fn picked(folder: &Path, jobs: u64, rounds: u64) -> Result<[Row; 2], Box<dyn Error>> {
    paths::write_lanes(&folder.join("in.ndjson"), jobs, 10_000)?;
    let drain = |path: &str| -> Result<f64, Box<dyn Error>> {
        let mut figures = Vec::new();
        for _ in 0..rounds {
            fresh("fill", folder)?;
            paths::write_configuration(folder, path)?;
            figures.push(measure(path, folder)?);
        }
        Ok(rate(&median(&figures)))
    };
    let (fifo, lanes) = (drain("fifo")?, drain("lanes")?);
    Ok([
        Row {
            path: "waiting jobs through `fifo`",
            figure: format!("{fifo:.0} jobs/s"),
            target: "≥ 300,000 jobs/s",
            met: fifo >= 300_000.0,
        },
        Row {
            path: "  through `one-round-serial`, 10,000 lanes",
            figure: format!("{lanes:.0} jobs/s"),
            target: "≥ 100,000 jobs/s",
            met: lanes >= 100_000.0,
        },
    ])
}

/// What an HTTP source takes, and what is said of pending jobs.
fn pushed(folder: &Path, jobs: u64, rounds: u64) -> Result<[Row; 5], Box<dyn Error>> {
    let http::Taken { single, bulk, p50_ms, p99_ms } = http::taken(folder, jobs, rounds)?;
    let completed = completing::rate(folder, jobs, rounds)?;
    Ok([
        Row {
            path: "jobs over HTTP, one a request, 64 connections, durable",
            figure: format!("{single:.0} jobs/s"),
            target: "≥ 15,000 jobs/s",
            met: single >= 15_000.0,
        },
        Row {
            path: "  as NDJSON bodies of 1,000",
            figure: format!("{bulk:.0} jobs/s"),
            target: "≥ 250,000 jobs/s",
            met: bulk >= 250_000.0,
        },
        Row {
            path: "one job, pushed → delivered, both durable, p50",
            figure: format!("{p50_ms:.2} ms"),
            target: "< 0.8 ms",
            met: p50_ms < 0.8,
        },
        Row {
            path: "one job, pushed → delivered, both durable, p99",
            figure: format!("{p99_ms:.2} ms"),
            target: "< 4 ms",
            met: p99_ms < 4.0,
        },
        Row {
            path: "completions from outside, 64 connections, durable",
            figure: format!("{completed:.0} jobs/s"),
            target: "≥ 5,000 jobs/s",
            met: completed >= 5_000.0,
        },
    ])
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a path that begins without state.
fn fresh(path: &str, folder: &Path) -> Result<Figures, Box<dyn Error>> {
    paths::begin_anew(folder)?;
    paths::write_configuration(folder, path)?;
    measure(path, folder)
}

/// Runs one path in a process of its own.
pub(crate) fn measure(path: &str, folder: &Path) -> Result<Figures, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .args(["child", path])
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let figures: Figures = serde_json::from_str(text.trim()).map_err(|_| format!("`{path}` said: {text}"))?;
    eprintln!("{path:>8}: {figures:.3?}");
    Ok(figures)
}

fn latency(folder: &Path) -> Result<Figures, Box<dyn Error>> {
    let apart = TempDir::new_in(folder)?;
    paths::write_input(&apart.path().join("in.ndjson"), 0)?;
    fresh("follow", apart.path())
}

/// The first path with five times the jobs, for its memory, and one through a queue, for its file.
fn large(folder: &Path, jobs: u64, rounds: u64) -> Result<(Figures, Figures), Box<dyn Error>> {
    paths::write_input(&folder.join("in.ndjson"), jobs * BACKLOG_FACTOR)?;
    let figures: Result<Vec<_>, _> = (0..rounds).map(|_| fresh("script", folder)).collect();
    Ok((median(&figures?), fresh("queue", folder)?))
}

/// Seconds to the first delivery from a queue that a crashed process has filled: median of three.
fn starts(folder: &Path) -> Result<f64, Box<dyn Error>> {
    fresh("fill", folder)?;
    let mut seconds = Vec::new();
    for _ in 0..3 {
        // Each round ends in a crash, and the next one takes up where it was.
        paths::write_configuration(folder, "backlog")?;
        seconds.push(measure("backlog", folder)?.seconds);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[1])
}

fn median(figures: &[Figures]) -> Figures {
    let middle = |of: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let mut peaks: Vec<u64> = figures.iter().map(|figures| figures.peak_bytes).collect();
    peaks.sort_unstable();
    let mut stores: Vec<u64> = figures.iter().map(|figures| figures.store_bytes).collect();
    stores.sort_unstable();
    Figures {
        store_bytes: stores[stores.len() / 2],
        jobs: figures[0].jobs,
        seconds: middle(|figures| figures.seconds),
        cpu_seconds: middle(|figures| figures.cpu_seconds),
        peak_bytes: peaks[peaks.len() / 2],
        ..Figures::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs and bytes are far below 2^52")]
fn rate(figures: &Figures) -> f64 {
    figures.jobs as f64 / figures.seconds
}

fn ratio(path: &'static str, figures: &Figures, floor: &Figures, least: f64, target: &'static str) -> Row {
    let ratio = rate(figures) / rate(floor);
    Row { path, figure: format!("{ratio:.2} × ({:.0} jobs/s)", rate(figures)), target, met: ratio >= least }
}

fn cpu(path: &'static str, figures: &Figures, floor: &Figures) -> Row {
    let ratio = figures.cpu_seconds / floor.cpu_seconds;
    let figure = format!("{ratio:.2} × ({:.2} s)", figures.cpu_seconds);
    Row { path, figure, target: "≤ 1.5 × floor", met: ratio <= 1.5 }
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs and bytes are far below 2^52")]
fn memory(small: &Figures, large: &Figures) -> [Row; 2] {
    let mib = |figures: &Figures| figures.peak_bytes as f64 / f64::from(1 << 20);
    let growth = mib(large) / mib(small);
    [
        Row {
            path: "peak memory of the first path",
            figure: format!("{:.0} MiB", mib(small)),
            target: "< 128 MiB",
            met: mib(small) < 128.0,
        },
        Row {
            path: "  with 5 × the jobs",
            figure: format!("{:.0} MiB ({growth:.2} ×)", mib(large)),
            target: "0.9 – 1.1 ×",
            met: (0.9..=1.1).contains(&growth) && mib(large) < 128.0,
        },
    ]
}

/// What it costs to let go of jobs, and that the file does not grow with them: it holds what is on its
/// way at one time, which is more or less as the disk is slow or fast.
#[expect(clippy::cast_precision_loss, reason = "counts of jobs and bytes are far below 2^52")]
fn retention(queue: &Figures, kept: &Figures, endless: &Figures) -> [Row; 2] {
    let share = rate(queue) / rate(kept);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (long, all) = (mib(endless.store_bytes), mib(kept.store_bytes) * BACKLOG_FACTOR as f64);
    [
        Row {
            path: "  letting go of consumed jobs, against keeping them",
            figure: format!("{share:.2} ×"),
            target: "≥ 0.85 ×",
            met: share >= 0.85,
        },
        Row {
            path: "  the store's file after 5 × the jobs, against keeping them",
            figure: format!("{long:.1} of {all:.0} MiB"),
            target: "≤ 0.1 ×",
            met: long <= all * 0.1,
        },
    ]
}

fn print(floor: &Figures, rows: &[Row]) {
    println!("\n| path | reached | target | |");
    println!("| --- | --- | --- | --- |");
    let figure = format!("{:.0} jobs/s, {:.2} CPU s", rate(floor), floor.cpu_seconds);
    println!("| the floor: a bare loop | {figure} | | |");
    print_rows(rows);
}

fn print_rows(rows: &[Row]) {
    for Row { path, figure, target, met } in rows {
        println!("| {path} | {figure} | {target} | {} |", if *met { "met" } else { "**missed**" });
    }
}
