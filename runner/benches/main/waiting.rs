//! Cost of waiting jobs: measures the lateness of jobs that become due at the same time. It also measures a
//! million jobs while none is due, and the start of a runner that finds a million.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use tidegate_model::Address;

use crate::child::{self, Figures};
use crate::report::{Row, measure};
use crate::{paths, plugins};

/// Jobs that become due per second …
const A_SECOND: u64 = 10_000;
/// … for this many seconds …
const SECONDS: u64 = 10;
/// … starting this many milliseconds after the start: by then all of them wait.
const LEAD_MS: u128 = 12_000;
/// Duration of the measurement of idle cost.
const WATCHED: Duration = Duration::from_secs(30);
const LANES: u64 = 100_000;

const SOURCE: &str = "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n";

/// Every job is due at a time of its own, and a later step reports its lateness.
const SPREAD: &str = "fn process(job, ctx) { \
    let due = ctx.config.base + job.id / 10; \
    emit_at(\"later\", #{ due: due, job: job }, due) }";
const LATE: &str = "fn process(job, ctx) { ctx.now - job.due }";
const AN_HOUR: &str = "fn process(job) { emit_in(\"later\", job, \"1h\") }";
const AGAIN: &str = "fn process(job) { retry_in(\"1h\", \"not yet\") }";

/// The cost of a million waiting jobs.
pub(crate) fn rows(folder: &Path, jobs: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let folder = TempDir::new_in(folder)?;
    let folder = folder.path();
    let p99 = late(folder, "late.rhai")?;
    let mut rows = vec![Row {
        path: "10,000 jobs a second come due: how late they are, p99",
        figure: p99.to_string(),
        target: "≤ 20 ms",
        met: p99.p99 <= 20,
    }];
    rows.extend(idle(folder, jobs, "outputs that are due in an hour", "later")?);
    rows.extend(idle(folder, jobs, "jobs that are retried in an hour", "again")?);
    rows.extend(restart(folder, jobs)?);
    Ok(rows)
}

/// Jobs with outside effects that come due.
pub(crate) fn due(folder: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    plugins::build()?;
    let folder = TempDir::new_in(folder)?;
    let late = late(folder.path(), "plugin:measure/late")?;
    Ok(vec![Row {
        path: "10,000 jobs with effects a second come due: how late they are, p99",
        figure: late.to_string(),
        target: "≤ 50 ms",
        met: late.p99 <= 50,
    }])
}

/// Milliseconds by which jobs are late.
struct Lateness {
    p50: i64,
    p99: i64,
    most: i64,
}

impl std::fmt::Display for Lateness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms (p50 {} ms, most {} ms)", self.p99, self.p50, self.most)
    }
}

/// `run`: the processor that outputs how late a job is.
fn late(folder: &Path, run: &str) -> Result<Lateness, Box<dyn Error>> {
    paths::begin_anew(folder)?;
    paths::write_input(&folder.join("in.ndjson"), A_SECOND * SECONDS)?;
    let base = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() + LEAD_MS;
    write(
        folder,
        &format!(
            "{SOURCE}[step.spread]\nfrom = \"events\"\nrun = \"spread.rhai\"\nto = {{ later = \"later\" }}\n\
             config = {{ base = {base} }}\n\
             [step.take]\nfrom = \"later\"\nrun = \"{run}\"\nto = \"out\"\n\
             [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
        ),
    )?;
    measure("late", folder)?;
    let mut late: Vec<i64> =
        fs::read_to_string(folder.join("out.ndjson"))?.lines().map(str::parse).collect::<Result<_, _>>()?;
    if late.len() as u64 != A_SECOND * SECONDS {
        return Err(format!("{} jobs came due of {}", late.len(), A_SECOND * SECONDS).into());
    }
    late.sort_unstable();
    if late[0] < 0 {
        return Err(format!("a job came {} ms early", -late[0]).into());
    }
    Ok(Lateness { p50: late[late.len() / 2], p99: late[late.len() * 99 / 100], most: late[late.len() - 1] })
}

fn idle(folder: &Path, jobs: u64, what: &'static str, script: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    paths::begin_anew(folder)?;
    paths::write_input(&folder.join("in.ndjson"), jobs)?;
    let (to, queuer) = match script {
        "later" => ("{ later = \"later\" }", ""),
        _ => ("\"later\"", "queuer = { strategy = \"fifo\" }\n"),
    };
    write(
        folder,
        &format!(
            "{SOURCE}[step.fill]\nfrom = \"events\"\nto = \"backlog\"\n\
             [step.wait]\nfrom = \"backlog\"\nrun = \"{script}.rhai\"\nto = {to}\n{queuer}\
             [sink.out]\nfrom = \"later\"\ntype = \"null\"\n"
        ),
    )?;
    let figures = measure("idle", folder)?;
    // One figure per row, both of the same run.
    let share = figures.cpu_seconds / WATCHED.as_secs_f64() * 100.0;
    #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^52")]
    let mib = figures.peak_bytes as f64 / f64::from(1 << 20);
    Ok(vec![
        Row {
            path: what,
            figure: format!("{share:.3} % of a core over 30 s"),
            target: "≤ 0.2 %",
            met: share <= 0.2,
        },
        Row {
            path: "  memory of the process meanwhile",
            figure: format!("{mib:.0} MiB"),
            target: "≤ 150 MiB",
            met: mib <= 150.0,
        },
    ])
}

/// A crashed process has left a million waiting jobs over many lanes. The rows are the times from the start of
/// the next one to its first delivery, and to the end of reading all of them: medians of three.
fn restart(folder: &Path, jobs: u64) -> Result<[Row; 2], Box<dyn Error>> {
    paths::begin_anew(folder)?;
    paths::write_lanes(&folder.join("in.ndjson"), jobs, LANES)?;
    paths::write_configuration(folder, "fill")?;
    measure("fill", folder)?;
    paths::write_configuration(folder, "lanes")?;
    // Each ends in a crash, and the next one finds nearly as many.
    let first = seconds_of("backlog", folder)?;
    let shut = paths::pipeline("lanes")
        .unwrap_or_default()
        .replace("[step.pick]\n", "[step.pick]\ngate = \"shut\"\n");
    fs::write(folder.join("shut.rhai"), "fn open(answer, ctx) { false }")?;
    fs::write(folder.join("bench.toml"), shut + "[gate.shut]\nrun = \"shut.rhai\"\nevery = \"1h\"\n")?;
    let all = seconds_of("view", folder)?;
    Ok([
        Row {
            path: "first delivery with a million waiting over 100,000 lanes, after a crash",
            figure: format!("{first:.2} s"),
            target: "≤ 2 s",
            met: first <= 2.0,
        },
        Row {
            path: "  until all of them are in view",
            figure: format!("{all:.2} s"),
            target: "≤ 2 s",
            met: all <= 2.0,
        },
    ])
}

fn seconds_of(path: &str, folder: &Path) -> Result<f64, Box<dyn Error>> {
    let mut seconds = Vec::new();
    for _ in 0..3 {
        seconds.push(measure(path, folder)?.seconds);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[1])
}

/// In a process of its own: starts, and waits until the last step, which may start none, has read all jobs.
pub(crate) fn view(folder: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let (run, store) = child::prepare(folder)?;
    let (last, handle) = (run.stats().steps().len() - 1, run.handle());
    let backlog = Address::parse("bench/backlog").ok_or("this is an address")?;
    let head = store.queue(&backlog)?.map_or(0, |queue| queue.head);
    thread::spawn(move || run.run().map(|report| report.end).map_err(|error| error.to_string()));
    while handle.view(last).is_none_or(|sight| sight.read < head) {
        if started.elapsed() > Duration::from_mins(1) {
            return Err("not all jobs came into view".into());
        }
        // A query takes time itself.
        thread::sleep(Duration::from_millis(50));
    }
    (figures.seconds, figures.jobs) = (started.elapsed().as_secs_f64(), head);
    figures.peak_bytes = child::peak_bytes()?;
    Ok(())
}

fn write(folder: &Path, toml: &str) -> std::io::Result<()> {
    fs::write(folder.join("bench.toml"), toml)?;
    fs::write(folder.join("spread.rhai"), SPREAD)?;
    fs::write(folder.join("late.rhai"), LATE)?;
    fs::write(folder.join("later.rhai"), AN_HOUR)?;
    fs::write(folder.join("again.rhai"), AGAIN)
}

/// In a process of its own: parks all jobs, and then measures the process while none is due.
pub(crate) fn watch(folder: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let (run, store) = child::prepare(folder)?;
    let (stats, handle) = (run.stats(), run.handle());
    let runner = thread::spawn(move || run.run().map(|report| report.end).map_err(|error| error.to_string()));
    let wait = Address::parse("bench/wait").ok_or("this is an address")?;
    let begun = Instant::now();
    loop {
        let (read, waiting) = (stats.step(0).counters().taken, store.parked_count(&wait)?);
        if read > 0 && read == waiting {
            // Their consequences have ended, too.
            thread::sleep(Duration::from_secs(1));
            if stats.step(0).counters().taken == read && store.parked_count(&wait)? == read {
                figures.jobs = read;
                break;
            }
        }
        if begun.elapsed() > Duration::from_mins(3) {
            return Err(format!("{waiting} of {read} jobs wait").into());
        }
        thread::sleep(Duration::from_millis(100));
    }
    let before = child::nanoseconds_of_cpu()?;
    thread::sleep(WATCHED);
    figures.cpu_seconds = Duration::from_nanos(child::nanoseconds_of_cpu()? - before).as_secs_f64();
    figures.peak_bytes = child::held_bytes(Path::new(child::OWN))?;
    handle.stop();
    runner.join().map_err(|_| "the run panicked")??;
    Ok(())
}
