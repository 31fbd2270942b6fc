//! Paths: the measured pipelines, and their input file.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

/// The function of the floor and of every script step.
pub(crate) const SCRIPT: &str = "fn process(job) { job.added = job.id * 2; job }";

const FORK: &str = "fn process(job) { job.added = job.id * 2; #{ one: job, two: job, three: job } }";

const JOIN: &str = "fn process(job) { job.left.added = job.right.id * 2; job.left }";

/// The function of the floor, with a look-up in a table that another script exports.
const LOOK_UP_CONSTANT: &str =
    "import \"table\" as t; fn process(job) { job.added = t::TABLE[job.name].factor * job.id; job }";

/// The same with a table of the step's `config`.
const LOOK_UP_CONFIG: &str =
    "fn process(job, ctx) { job.added = ctx.config.table[job.name].factor * job.id; job }";

/// The same with a lookup table of a queue.
const LOOK_UP_QUEUE: &str =
    "fn process(job) { job.added = lookup(\"names\", job.name).factor * job.id; job }";

/// The same scripts without the table. They read the same fields of the job, since a look-up needs its key in any
/// case.
const NO_CONSTANT: &str = "fn process(job) { let name = job.name; job.added = 2 * job.id; job }";
const NO_CONFIG: &str = "fn process(job, ctx) { let name = job.name; job.added = 2 * job.id; job }";

/// A path whose script finds the name of each job in a table, by the name of the path.
pub(crate) struct Table {
    pub(crate) path: &'static str,
    /// As many as the names of its jobs: each entry is read.
    pub(crate) entries: u64,
    pub(crate) place: TablePlace,
}

/// The place of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TablePlace {
    /// A script that the script imports.
    Constant,
    /// The `config` of the step.
    Config,
    /// The newest jobs of a queue.
    Queue,
}

/// The large tables, and a small one beside each. Rhai compares each key of a literal with all before it, so that
/// the constant is the smaller one.
pub(crate) const TABLES: [Table; 6] = [
    Table { path: "constant-10", entries: 10, place: TablePlace::Constant },
    Table { path: "constant", entries: 10_000, place: TablePlace::Constant },
    Table { path: "config-10", entries: 10, place: TablePlace::Config },
    Table { path: "config", entries: 100_000, place: TablePlace::Config },
    Table { path: "rows-10", entries: 10, place: TablePlace::Queue },
    Table { path: "rows", entries: 100_000, place: TablePlace::Queue },
];

/// The queue of a lookup table, and the step that fills it.
const ROWS: &str = "[source.lines]\ntype = \"file\"\npath = \"rows.ndjson\"\nformat = \"ndjson\"\n\
    [step.rows]\nfrom = \"lines\"\nto = \"rows\"\n";

/// The pipelines by name, as their TOML.
pub(crate) fn pipeline(path: &str) -> Option<String> {
    let source = |follow: bool| {
        format!(
            "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nfollow = {follow}\n"
        )
    };
    let sink = "[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";
    let step = |name: &str, from: &str, to: &str| {
        format!("[step.{name}]\nfrom = \"{from}\"\nrun = \"add.rhai\"\nto = \"{to}\"\n")
    };
    let mut toml = source(path == "follow");
    match path {
        "script" | "follow" => toml += &step("add", "events", "out"),
        "queue" | "kept" => {
            toml += &step("add", "events", "middle");
            toml += &step("again", "middle", "out");
            if path == "kept" {
                toml += "[queue.middle]\nretain = \"forever\"\n";
            }
        }
        "fork" => {
            let _ = write!(
                toml,
                "[step.fork]\nfrom = \"events\"\nrun = \"fork.rhai\"\n\
                 to = {{ one = \"one\", two = \"two\", three = \"three\" }}\n"
            );
        }
        "join" => {
            let _ = write!(
                toml,
                "[step.both]\nfrom = \"events\"\nto = {{ left = \"left\", right = \"right\" }}\n\
                 [step.join]\njoin = {{ left = \"left\", right = \"right\" }}\nrun = \"join.rhai\"\nto = \"out\"\n"
            );
        }
        "row" => {
            for number in 1..=10 {
                let from = if number == 1 { "events".to_owned() } else { format!("queue{}", number - 1) };
                toml += &step(&format!("step{number}"), &from, &format!("queue{number}"));
            }
            let _ = write!(toml, "[step.out]\nfrom = \"queue10\"\nto = \"out\"\n");
        }
        "no-constant" | "no-config" => {
            toml += &step("add", "events", "out").replace("add.rhai", &format!("{path}.rhai"));
        }
        "isolated" => {
            toml += &step("pass", "events", "out")
                .replace("\"add.rhai\"", "\"plugin:measure/pass\"\nisolate = \"process\"");
        }
        "plain" => {
            let _ = write!(toml, "[step.copy]\nfrom = \"events\"\nto = \"out\"\n");
        }
        "fill" => {
            let _ = write!(toml, "[step.fill]\nfrom = \"events\"\nto = \"backlog\"\n");
        }
        // The rows of the lookup tables, before the jobs that find them.
        "fill-rows" => return Some(format!("{ROWS}[queue.rows]\nretain = \"forever\"\n")),
        // The filled queue, and a step that is new to it.
        "backlog" => {
            let _ = write!(toml, "[step.fill]\nfrom = \"events\"\nto = \"backlog\"\n");
            toml += &step("drain", "backlog", "out");
        }
        // The filled queue, and a queued step.
        "fifo" | "lanes" => {
            let _ = write!(toml, "[step.fill]\nfrom = \"events\"\nto = \"backlog\"\n");
            let queuer = if path == "fifo" {
                "strategy = \"fifo\""
            } else {
                "strategy = \"one-round-serial\", lane = \"lane\""
            };
            let _ = write!(
                toml,
                "[step.pick]\nfrom = \"backlog\"\nto = \"none\"\nqueuer = {{ {queuer} }}\n\
                 [sink.none]\ntype = \"null\"\n"
            );
        }
        _ => {
            toml +=
                &looking_up(TABLES.iter().find(|table| table.path == path)?, &step("add", "events", "out"));
        }
    }
    if !["fill", "fork", "fifo", "lanes"].contains(&path) {
        toml += sink;
    }
    Some(toml)
}

/// The step of a path with a table.
fn looking_up(table: &Table, step: &str) -> String {
    match table.place {
        TablePlace::Constant => step.replace("add.rhai", "constant-step.rhai"),
        TablePlace::Config => {
            let mut toml = step.replace("add.rhai", "config-step.rhai") + "[step.add.config.table]\n";
            for number in 0..table.entries {
                let _ = writeln!(toml, "sensor-{number} = {{ factor = 2, site = \"site {number}\" }}");
            }
            toml
        }
        TablePlace::Queue => {
            let step = step.replace("add.rhai", "queue-step.rhai");
            format!("{step}{ROWS}[table.names]\nqueue = \"rows\"\nkey = \"name\"\n")
        }
    }
}

/// Writes the rows of a lookup table.
pub(crate) fn write_rows(path: &Path, entries: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, fs::File::create(path)?);
    for number in 0..entries {
        writeln!(file, r#"{{"name":"sensor-{number}","factor":2,"site":"site {number}"}}"#)?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Writes `jobs` jobs of about 105 bytes.
pub(crate) fn write_input(path: &Path, jobs: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, fs::File::create(path)?);
    for id in 1..=jobs {
        writeln!(file, "{}", job(id))?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Writes `jobs` jobs of about 105 bytes, over `lanes` lanes.
pub(crate) fn write_lanes(path: &Path, jobs: u64, lanes: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, fs::File::create(path)?);
    for id in 1..=jobs {
        let job = job(id);
        writeln!(file, "{{\"lane\":\"l{}\",{}", scattered(id) % lanes, &job[1..])?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Writes `jobs` jobs of about 105 bytes, with `names` different names.
pub(crate) fn write_names(path: &Path, jobs: u64, names: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, fs::File::create(path)?);
    for id in 1..=jobs {
        writeln!(file, "{}", named(id, scattered(id) % names))?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Writes `jobs` jobs of about 1 KiB with 30 fields.
pub(crate) fn write_wide(path: &Path, jobs: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, fs::File::create(path)?);
    for id in 1..=jobs {
        let job = job(id);
        write!(file, "{}", &job[..job.len() - 1])?;
        for field in 7..30 {
            write!(file, r#","station-{field}":"{:024x}""#, scattered(id + field))?;
        }
        writeln!(file, "}}")?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Neighbours are far apart, and none is more regular than another.
fn scattered(id: u64) -> u64 {
    id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

pub(crate) fn job(id: u64) -> String {
    named(id, id % 1000)
}

fn named(id: u64, sensor: u64) -> String {
    format!(
        r#"{{"id":{id},"name":"sensor-{sensor}","time":1517363399650,"mag":{}.31,"type":"earthquake","ok":true,"net":"uw"}}"#,
        id % 7
    )
}

/// Writes the configuration of `path` into `folder`.
pub(crate) fn write_configuration(folder: &Path, path: &str) -> io::Result<()> {
    let toml = pipeline(path).ok_or_else(|| io::Error::other(format!("no path `{path}`")))?;
    fs::write(folder.join("bench.toml"), toml)?;
    fs::write(folder.join("fork.rhai"), FORK)?;
    fs::write(folder.join("join.rhai"), JOIN)?;
    fs::write(folder.join("config-step.rhai"), LOOK_UP_CONFIG)?;
    fs::write(folder.join("constant-step.rhai"), LOOK_UP_CONSTANT)?;
    fs::write(folder.join("queue-step.rhai"), LOOK_UP_QUEUE)?;
    if let Some(table) = TABLES.iter().find(|table| table.path == path) {
        fs::write(folder.join("table.rhai"), exported(table.entries))?;
    }
    fs::write(folder.join("no-constant.rhai"), NO_CONSTANT)?;
    fs::write(folder.join("no-config.rhai"), NO_CONFIG)?;
    fs::write(folder.join("add.rhai"), SCRIPT)
}

/// A script that exports a table, in which each job finds its name.
fn exported(entries: u64) -> String {
    let mut script = "export const TABLE = #{\n".to_owned();
    for number in 0..entries {
        let _ = writeln!(script, "\"sensor-{number}\": #{{ factor: 2, site: \"site {number}\" }},");
    }
    script + "};\n"
}

/// Removes state and output of earlier runs.
pub(crate) fn begin_anew(folder: &Path) -> io::Result<()> {
    let absent = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
    fs::remove_file(folder.join("out.ndjson")).or_else(absent)?;
    fs::remove_dir_all(folder.join(".tidegate")).or_else(absent)
}
