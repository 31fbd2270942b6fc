//! Report: runs the selected measurements, and prints one table.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::calls::{self, Load};
use crate::child::Figures;
use crate::paths::TablePlace;
use crate::{completing, effects, http, paths, plugins, reloads, waiting};

const BACKLOG_FACTOR: u64 = 5;

/// The path that all others are compared with.
const FLOOR: &str = "floor";

/// A line of the table.
pub(crate) struct Row {
    pub(crate) path: &'static str,
    pub(crate) figure: String,
    pub(crate) target: &'static str,
    pub(crate) met: bool,
}

/// Lines of the table that are measured together.
type Rows = Result<Vec<Row>, Box<dyn Error>>;

/// Rows that are measured together, by the name that selects them.
struct Measure {
    name: &'static str,
    /// The paths that it compares with the floor, or with each other, in each round.
    paths: &'static [&'static str],
    rows: fn(&mut Bench) -> Rows,
}

/// In the order of the table.
const MEASURES: [Measure; 33] = [
    Measure { name: "script", paths: &["script"], rows: script },
    Measure { name: "wide", paths: &[], rows: wide },
    Measure { name: "queue", paths: &["queue"], rows: |bench| bench.path("queue") },
    Measure { name: "plain", paths: &["plain"], rows: |bench| bench.path("plain") },
    Measure { name: "fork", paths: &["fork"], rows: |bench| bench.path("fork") },
    Measure { name: "join", paths: &["join"], rows: |bench| bench.path("join") },
    Measure { name: "row", paths: &["row"], rows: |bench| bench.path("row") },
    Measure { name: "tables", paths: &[], rows: tables },
    Measure { name: "queue-table", paths: &[], rows: queue_table },
    Measure { name: "retention", paths: &["queue", "kept"], rows: retention },
    Measure { name: "latency", paths: &[], rows: latency },
    Measure { name: "memory", paths: &["script"], rows: memory },
    Measure { name: "backlog", paths: &[], rows: backlog },
    Measure { name: "queuers", paths: &[], rows: queuers },
    Measure { name: "waiting", paths: &[], rows: waiting },
    Measure { name: "due", paths: &[], rows: |bench| waiting::due(&bench.folder) },
    Measure { name: "plugins", paths: &[], rows: native },
    Measure { name: "http", paths: &[], rows: pushed },
    Measure { name: "calls", paths: &[], rows: called },
    Measure { name: "completions", paths: &[], rows: completions },
    Measure { name: "effects", paths: &[], rows: |bench| effects::default(&bench.folder, bench.jobs / 20) },
    Measure {
        name: "effects-1000",
        paths: &[],
        rows: |bench| effects::thousand(&bench.folder, bench.jobs / 10),
    },
    Measure {
        name: "effects-steps",
        paths: &[],
        rows: |bench| effects::steps(&bench.folder, bench.jobs / 20),
    },
    Measure { name: "effects-1", paths: &[], rows: |bench| effects::one(&bench.folder, bench.jobs / 200) },
    Measure { name: "effects-latency", paths: &[], rows: |bench| effects::latency(&bench.folder) },
    Measure { name: "effects-deep", paths: &[], rows: |bench| effects::deep(&bench.folder, bench.jobs) },
    Measure { name: "retries", paths: &[], rows: |bench| effects::failing(&bench.folder, bench.jobs / 10) },
    Measure { name: "serial", paths: &[], rows: |bench| effects::serial(&bench.folder, bench.jobs / 50) },
    Measure { name: "beside", paths: &[], rows: |bench| effects::beside(&bench.folder, bench.jobs) },
    Measure { name: "push-1", paths: &[], rows: |bench| effects::push(&bench.folder, bench.jobs / 200) },
    Measure { name: "starts", paths: &[], rows: |bench| reloads::starts(&bench.folder) },
    Measure { name: "reloads", paths: &[], rows: |bench| reloads::reloads(&bench.folder, bench.rounds) },
    Measure { name: "events", paths: &[], rows: |bench| reloads::events(&bench.folder, bench.rounds) },
];

/// The paths with a row of their own: their description, and the least ratio to the floor.
const RATIOS: [(&str, &str, f64, &str); 6] = [
    ("script", "file → script → file, exactly once", 1.7, "≥ 1.7 × floor"),
    ("queue", "file → script → queue → script → file", 0.55, "≥ 0.55 × floor"),
    ("plain", "file → file without a script", 3.0, "≥ 3 × floor"),
    ("fork", "file → script → fork to 3 queues", 0.4, "≥ 0.4 × floor"),
    ("join", "file → 2 queues → join → script → file", 0.35, "≥ 0.35 × floor"),
    ("row", "file → 10 × (script → queue) → file", 0.2, "≥ 0.2 × floor"),
];

/// The settings of the measurement, and its results so far.
struct Bench {
    folder: PathBuf,
    jobs: u64,
    rounds: u64,
    /// The content of `in.ndjson`: number of jobs, and of lanes.
    input: Option<(u64, u64)>,
    /// Medians by path, the floor included.
    figures: BTreeMap<&'static str, Figures>,
}

/// Measures the named rows, or all without names, and prints the table.
pub(crate) fn report(names: &[String]) -> Result<(), Box<dyn Error>> {
    let chosen = chosen(names)?;
    let (jobs, rounds) = (number("TIDEGATE_BENCH_JOBS", 1_000_000), number("TIDEGATE_BENCH_ROUNDS", 3));
    let folder = TempDir::new()?;
    eprintln!("{jobs} jobs of {} bytes, {rounds} rounds", paths::job(jobs / 2).len() + 1);
    let folder = folder.path().to_owned();
    let mut bench = Bench { folder, jobs, rounds, input: None, figures: BTreeMap::new() };
    bench.measure_paths(&chosen)?;
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for measure in chosen {
        match (measure.rows)(&mut bench) {
            Ok(measured) => rows.extend(measured),
            // The others are measured all the same.
            Err(error) => failed.push(format!("row `{}` failed: {error}", measure.name)),
        }
    }
    print(bench.figures.get(FLOOR), &rows);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

/// The selected rows, in the order of the table.
fn chosen(names: &[String]) -> Result<Vec<&'static Measure>, String> {
    for name in names {
        if !MEASURES.iter().any(|measure| measure.name == name) {
            let known: Vec<_> = MEASURES.iter().map(|measure| measure.name).collect();
            return Err(format!("row `{name}` is unknown; the rows are {}", known.join(", ")));
        }
    }
    let is_chosen = |measure: &&Measure| names.is_empty() || names.iter().any(|name| name == measure.name);
    Ok(MEASURES.iter().filter(is_chosen).collect())
}

impl Bench {
    /// Writes `in.ndjson` with this number of jobs.
    fn jobs(&mut self, jobs: u64) -> Result<&Path, Box<dyn Error>> {
        if self.input != Some((jobs, 0)) {
            paths::write_input(&self.folder.join("in.ndjson"), jobs)?;
            self.input = Some((jobs, 0));
        }
        Ok(&self.folder)
    }

    /// Writes `in.ndjson` with jobs of this number of lanes.
    fn lanes(&mut self, lanes: u64) -> Result<&Path, Box<dyn Error>> {
        if self.input != Some((self.jobs, lanes)) {
            paths::write_lanes(&self.folder.join("in.ndjson"), self.jobs, lanes)?;
            self.input = Some((self.jobs, lanes));
        }
        Ok(&self.folder)
    }

    /// Measures the paths that these rows need, each beside the floor, in rounds.
    fn measure_paths(&mut self, measures: &[&Measure]) -> Result<(), Box<dyn Error>> {
        let paths: BTreeSet<&'static str> =
            measures.iter().flat_map(|measure| measure.paths).copied().collect();
        let Some(first) = paths.first().copied() else { return Ok(()) };
        let (jobs, rounds) = (self.jobs, self.rounds);
        let folder = self.jobs(jobs)?.to_owned();
        // The first measurement runs on a cold machine, and a disk that is still busy with the input.
        measure(FLOOR, &folder)?;
        fresh(first, &folder)?;
        let mut figures: BTreeMap<&'static str, Vec<Figures>> = BTreeMap::new();
        for _ in 0..rounds {
            for path in &paths {
                figures.entry(FLOOR).or_default().push(measure(FLOOR, &folder)?);
                figures.entry(path).or_default().push(fresh(path, &folder)?);
            }
        }
        self.figures = figures.into_iter().map(|(path, figures)| (path, median(&figures))).collect();
        Ok(())
    }

    fn figures(&self, path: &str) -> Result<Figures, String> {
        self.figures.get(path).copied().ok_or_else(|| format!("the path `{path}` was not measured"))
    }

    /// The row of a path in [`RATIOS`].
    fn path(&self, path: &str) -> Rows {
        let found = RATIOS.iter().find(|(name, ..)| *name == path);
        let &(_, what, least, target) = found.ok_or_else(|| format!("the path `{path}` has no target"))?;
        Ok(vec![ratio(what, &self.figures(path)?, &self.figures(FLOOR)?, least, target)])
    }
}

fn script(bench: &mut Bench) -> Rows {
    let mut rows = bench.path("script")?;
    rows.push(cpu("  its CPU time", &bench.figures("script")?, &bench.figures(FLOOR)?));
    Ok(rows)
}

/// The first path and the floor with large jobs, of which the script uses two fields.
fn wide(bench: &mut Bench) -> Rows {
    let folder = TempDir::new_in(&bench.folder)?;
    let folder = folder.path();
    paths::write_wide(&folder.join("in.ndjson"), bench.jobs / 5)?;
    let (mut floor, mut script) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        floor.push(measure(FLOOR, folder)?);
        script.push(fresh("script", folder)?);
    }
    let path = "  with jobs of 1 KiB and 30 fields";
    Ok(vec![ratio(path, &median(&script), &median(&floor), 4.0, "≥ 4 × the floor with them")])
}

/// Scripts that look up each job in a table: a large table against a small one, and against a script without any.
fn tables(bench: &mut Bench) -> Rows {
    let without = [("no-constant", 10_000), ("no-config", 100_000)];
    let rates = look_ups(bench, &[TablePlace::Constant, TablePlace::Config], &without)?;
    let row = |path, large, other| look_up(path, rates[large], rates[other]);
    Ok(vec![
        row("a look-up in a constant of 10,000 entries, against one of 10", "constant", "constant-10"),
        row("  against the script without it", "constant", "no-constant"),
        row("a look-up in a `config` of 100,000 entries, against one of 10", "config", "config-10"),
        row("  against the script without it", "config", "no-config"),
    ])
}

/// The same for a lookup table whose rows are in a queue. The rows are there before the jobs.
fn queue_table(bench: &mut Bench) -> Rows {
    let rates = look_ups(bench, &[TablePlace::Queue], &[("no-config", 100_000)])?;
    let row = |path, large, other| look_up(path, rates[large], rates[other]);
    Ok(vec![
        row("a look-up in a queue table of 100,000 rows, against one of 10", "rows", "rows-10"),
        row("  against the script without it", "rows", "no-config"),
    ])
}

/// A row that compares two rates.
fn look_up(path: &'static str, large: f64, other: f64) -> Row {
    let ratio = large / other;
    let figure = format!("{ratio:.2} × ({large:.0} jobs/s)");
    Row { path, figure, target: "≥ 0.8 ×", met: ratio >= 0.8 }
}

/// Jobs per second of the paths with tables in these places, and of scripts without any, with their number of names.
/// A large table takes long to read, once in each worker. So the time of a run with a tenth of the jobs is
/// subtracted from that of a run with all of them.
fn look_ups(
    bench: &Bench,
    places: &[TablePlace],
    without: &[(&'static str, u64)],
) -> Result<BTreeMap<&'static str, f64>, Box<dyn Error>> {
    let mut runs: BTreeMap<&str, [Vec<Figures>; 2]> = BTreeMap::new();
    let tables = paths::TABLES.iter().filter(|table| places.contains(&table.place));
    let paths: Vec<(&str, u64)> =
        tables.map(|table| (table.path, table.entries)).chain(without.iter().copied()).collect();
    let mut inputs: BTreeMap<u64, [TempDir; 2]> = BTreeMap::new();
    for &(_, names) in &paths {
        let [tenth, all] = [bench.jobs / 10, bench.jobs].map(|jobs| -> Result<TempDir, Box<dyn Error>> {
            let folder = TempDir::new_in(&bench.folder)?;
            paths::write_names(&folder.path().join("in.ndjson"), jobs, names)?;
            Ok(folder)
        });
        inputs.insert(names, [tenth?, all?]);
    }
    for _ in 0..bench.rounds {
        for &(path, names) in &paths {
            for (folder, figures) in inputs[&names].iter().zip(runs.entry(path).or_default()) {
                figures.push(with_rows(path, names, folder.path())?);
            }
        }
    }
    let rate = |runs: &[Vec<Figures>; 2]| {
        let [tenth, all] = [&runs[0], &runs[1]].map(|figures| median(figures));
        let (jobs, seconds) = (all.jobs - tenth.jobs, all.seconds - tenth.seconds);
        rate(&Figures { jobs, seconds, ..all })
    };
    Ok(runs.iter().map(|(path, runs)| (*path, rate(runs))).collect())
}

/// Runs a path. If it has a lookup table of a queue, a run before it fills the queue.
fn with_rows(path: &str, entries: u64, folder: &Path) -> Result<Figures, Box<dyn Error>> {
    let is_queue = |table: &paths::Table| table.path == path && table.place == TablePlace::Queue;
    if !paths::TABLES.iter().any(is_queue) {
        return fresh(path, folder);
    }
    paths::write_rows(&folder.join("rows.ndjson"), entries)?;
    fresh("fill-rows", folder)?;
    paths::write_configuration(folder, path)?;
    measure(path, folder)
}

fn latency(bench: &mut Bench) -> Rows {
    let apart = TempDir::new_in(&bench.folder)?;
    paths::write_input(&apart.path().join("in.ndjson"), 0)?;
    let follow = fresh("follow", apart.path())?;
    Ok(vec![
        Row {
            path: "one job, appended → durable, p50",
            figure: format!("{:.2} ms", follow.p50_ms),
            target: "< 3 ms",
            met: follow.p50_ms < 3.0,
        },
        Row {
            path: "one job, appended → durable, p99",
            figure: format!("{:.2} ms", follow.p99_ms),
            target: "< 10 ms",
            met: follow.p99_ms < 10.0,
        },
    ])
}

/// Seconds to the first delivery from a queue that a crashed process has filled: median of three.
fn backlog(bench: &mut Bench) -> Rows {
    let folder = bench.jobs(bench.jobs * BACKLOG_FACTOR)?;
    fresh("fill", folder)?;
    let mut seconds = Vec::new();
    for _ in 0..3 {
        // Each round ends in a crash, and the next one continues.
        paths::write_configuration(folder, "backlog")?;
        seconds.push(measure("backlog", folder)?.seconds);
    }
    seconds.sort_by(f64::total_cmp);
    let first = seconds[1];
    Ok(vec![Row {
        path: "first delivery with 5 × the jobs as backlog, after a crash",
        figure: format!("{:.0} ms", first * 1000.0),
        target: "< 300 ms",
        met: first < 0.3,
    }])
}

/// Jobs that wait for a time.
fn waiting(bench: &mut Bench) -> Rows {
    waiting::rows(&bench.folder, bench.jobs)
}

/// The cost of native plugins.
fn native(bench: &mut Bench) -> Rows {
    let (jobs, rounds) = (bench.jobs, bench.rounds);
    let folder = bench.jobs(jobs)?;
    plugins::build()?;
    let calls = plugins::calls()?;
    eprintln!("plugins: {calls:.1?}");
    let isolated: Result<Vec<_>, _> = (0..rounds).map(|_| fresh("isolated", folder)).collect();
    let isolated = rate(&median(&isolated?));
    let (added, faster) = (calls.plugin - calls.built_in, calls.script / calls.field);
    Ok(vec![
        Row {
            path: "a plugin's no-op over a built-in one",
            figure: format!("{added:.0} ns per job"),
            target: "≤ 60 ns",
            met: added <= 60.0,
        },
        Row {
            path: "a plugin that parses one field, against Rhai",
            figure: format!("{faster:.1} × ({:.0} ns per job)", calls.field),
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

/// Jobs that wait in a queue, and are chosen by a queuer for a step that does nothing.
fn queuers(bench: &mut Bench) -> Rows {
    let rounds = bench.rounds;
    let folder = bench.lanes(10_000)?;
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
    Ok(vec![
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

/// The rate of an HTTP source.
fn pushed(bench: &mut Bench) -> Rows {
    let http::Taken { single, bulk, p50_ms, p99_ms } = http::taken(&bench.folder, bench.jobs, bench.rounds)?;
    Ok(vec![
        Row {
            path: "jobs over HTTP, one per request, 64 connections, durable",
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
    ])
}

/// The rate of requests and commands.
fn called(bench: &mut Bench) -> Rows {
    let ms = std::time::Duration::from_millis;
    let folder = &bench.folder;
    let (many, bare_many) = calls::http(folder, Load { delay: ms(50), at_once: 5000, jobs: 50_000 })?;
    let (quick, bare_quick) = calls::http(folder, Load { delay: ms(1), at_once: 100, jobs: 20_000 })?;
    let (run, bare_run) = calls::commands(folder, Load { delay: ms(0), at_once: 16, jobs: 2000 })?;
    let ratio = |ran: calls::Called, bare: calls::Called| {
        format!(
            "{:.2} × ({:.0} of {:.0}/s, {:.0} µs of CPU)",
            ran.rate / bare.rate,
            ran.rate,
            bare.rate,
            ran.cpu_us
        )
    };
    Ok(vec![
        Row {
            path: "requests of 50 ms, 5,000 at once, against a bare loop",
            figure: ratio(many, bare_many),
            target: "≥ 0.9 ×",
            met: many.rate >= 0.9 * bare_many.rate,
        },
        Row {
            path: "  threads of the runner",
            figure: many.threads.to_string(),
            target: "≤ 40",
            met: many.threads <= 40,
        },
        Row {
            path: "  memory of a request",
            figure: format!("{} KiB", many.bytes >> 10),
            target: "≤ 64 KiB",
            met: many.bytes <= 64 << 10,
        },
        Row {
            path: "requests of 1 ms, 100 at once, against a bare loop",
            figure: ratio(quick, bare_quick),
            target: "≥ 9,000/s",
            met: quick.rate >= 9_000.0,
        },
        Row {
            path: "commands, 16 at once, against threads that run them",
            figure: ratio(run, bare_run),
            target: "≥ 0.9 ×",
            met: run.rate >= 0.9 * bare_run.rate,
        },
    ])
}

/// The rate of completions of pending jobs.
fn completions(bench: &mut Bench) -> Rows {
    let completed = completing::rate(&bench.folder, bench.jobs, bench.rounds)?;
    Ok(vec![Row {
        path: "completions by an external system, 64 connections, durable",
        figure: format!("{completed:.0} jobs/s"),
        target: "≥ 5,000 jobs/s",
        met: completed >= 5_000.0,
    }])
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a path that starts without state.
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
    Row { path, figure, target: "≤ 1.0 × floor", met: ratio <= 1.0 }
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs and bytes are far below 2^52")]
fn memory(bench: &mut Bench) -> Rows {
    let (small, rounds) = (bench.figures("script")?, bench.rounds);
    let folder = bench.jobs(bench.jobs * BACKLOG_FACTOR)?;
    let large: Result<Vec<_>, _> = (0..rounds).map(|_| fresh("script", folder)).collect();
    let large = median(&large?);
    let mib = |figures: &Figures| figures.peak_bytes as f64 / f64::from(1 << 20);
    let growth = mib(&large) / mib(&small);
    Ok(vec![
        Row {
            path: "peak memory of the first path",
            figure: format!("{:.0} MiB", mib(&small)),
            target: "< 128 MiB",
            met: mib(&small) < 128.0,
        },
        Row {
            path: "  with 5 × the jobs",
            figure: format!("{:.0} MiB ({growth:.2} ×)", mib(&large)),
            target: "0.9 – 1.1 ×",
            met: (0.9..=1.1).contains(&growth) && mib(&large) < 128.0,
        },
    ])
}

/// The cost of retention. The file must not grow with deleted jobs: it holds the jobs in flight, whose number
/// depends on the speed of the disk.
#[expect(clippy::cast_precision_loss, reason = "counts of jobs and bytes are far below 2^52")]
fn retention(bench: &mut Bench) -> Rows {
    let (queue, kept) = (bench.figures("queue")?, bench.figures("kept")?);
    let endless = fresh("queue", bench.jobs(bench.jobs * BACKLOG_FACTOR)?)?;
    let share = rate(&queue) / rate(&kept);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (long, all) = (mib(endless.store_bytes), mib(kept.store_bytes) * BACKLOG_FACTOR as f64);
    Ok(vec![
        Row {
            path: "  deleting consumed jobs, against keeping them",
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
    ])
}

fn print(floor: Option<&Figures>, rows: &[Row]) {
    println!("\n| path | reached | target | |");
    println!("| --- | --- | --- | --- |");
    if let Some(floor) = floor {
        let figure = format!("{:.0} jobs/s, {:.2} CPU s", rate(floor), floor.cpu_seconds);
        println!("| the floor: a bare loop | {figure} | | |");
    }
    for Row { path, figure, target, met } in rows {
        println!("| {path} | {figure} | {target} | {} |", if *met { "met" } else { "**missed**" });
    }
}
