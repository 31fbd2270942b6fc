//! `Project`: a folder with a configuration, in which the executable is run.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_model::Address;
use tidegate_store::{Store, open_existing, verify};

use crate::running::Running;

/// A folder per test, which is removed with the test.
pub(crate) struct Project {
    folder: TempDir,
}

/// The output of a command, and its end.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Project {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().expect("a temporary folder can be made") }
    }

    /// A pipeline `p` with this text. The files are added: a source `in` reads `in.ndjson`, a sink `out`
    /// writes `out.ndjson`.
    pub(crate) fn pipeline(toml: &str) -> Self {
        Self::new().file("p.toml", format!("{SOURCE}{toml}{SINK}"))
    }

    /// A copy of the demonstration of this name, without the state of earlier runs.
    pub(crate) fn demonstration(name: &str) -> Self {
        let project = Self::new();
        let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(name);
        copy(&original, project.path());
        project
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, with its folders.
    pub(crate) fn file(self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Self {
        self.write(path, text);
        self
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folders can be made");
        fs::write(path, text).expect("files can be written");
    }

    /// Appends to a file, with one write.
    pub(crate) fn append(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        use std::io::Write as _;
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.path().join(path));
        let file = file.as_mut().expect("the file can be opened");
        file.write_all(text.as_ref()).expect("files can be written");
    }

    /// Replaces a part of a file, which must exist.
    pub(crate) fn change(&self, path: impl AsRef<Path>, from: &str, to: &str) {
        let before = self.read(&path);
        assert!(before.contains(from), "`{from}` is missing in\n{before}");
        self.write(path, before.replace(from, to));
    }

    pub(crate) fn read(&self, path: impl AsRef<Path>) -> String {
        let path: PathBuf = self.path().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The content of a file; empty if it is missing.
    pub(crate) fn read_if_there(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(self.path().join(path)).unwrap_or_default()
    }

    /// The ids of the jobs in a file that a run is writing: an incomplete last line does not count.
    pub(crate) fn ids_so_far(&self, path: impl AsRef<Path>) -> Vec<u64> {
        let text = self.read_if_there(path);
        ids(whole_lines(&text))
    }

    /// The length of a file; 0 if it is missing.
    pub(crate) fn len(&self, path: impl AsRef<Path>) -> u64 {
        fs::metadata(self.path().join(path)).map_or(0, |metadata| metadata.len())
    }

    /// The executable, to be run in the folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.current_dir(self.path()).args(arguments).env_clear().stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn tidegate(&self, arguments: &[&str]) -> Outcome {
        self.command(arguments).output().expect("the executable can be started").into()
    }

    /// Runs a command to its end, with this standard input.
    pub(crate) fn tidegate_given(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> Outcome {
        let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        fs::write(file.path(), input).expect("files can be written");
        let input = fs::File::open(file.path()).expect("the file can be opened");
        self.command(arguments).stdin(input).output().expect("the executable can be started").into()
    }

    /// `tidegate run .` to its end.
    pub(crate) fn run(&self) -> Outcome {
        self.tidegate(&["run", "."])
    }

    /// Starts a command and lets it run.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.path(), self.command(arguments))
    }

    /// Starts `tidegate run .` and waits until it answers queries.
    pub(crate) fn started(&self) -> Running {
        self.started_with(&[])
    }

    /// As [`Self::started`], with more arguments.
    pub(crate) fn started_with(&self, arguments: &[&str]) -> Running {
        let mut running = self.start(&[&["run", "."], arguments].concat());
        running.wait_until("its socket", || self.is_answered());
        running
    }

    /// Whether a runner accepts queries. A runner that was killed leaves a socket that accepts none.
    pub(crate) fn is_answered(&self) -> bool {
        UnixStream::connect(self.path().join(".tidegate/control.sock")).is_ok()
    }

    /// The output of a query with `--format json`.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let outcome = self.tidegate(&[arguments, &["--format", "json"]].concat()).done();
        serde_json::from_str(&outcome.stdout).expect("it is JSON")
    }

    /// The jobs on a queue: up to ten thousand, the oldest first.
    pub(crate) fn queue(&self, queue: &str) -> Vec<Value> {
        let shown = self.json(&["queue", "show", queue, "--limit", "10000"]);
        shown.as_array().expect("a list").iter().map(|shown| shown["job"].clone()).collect()
    }

    /// The values of `status` for a step and one of its inputs.
    pub(crate) fn status(&self, step: &str, input: &str) -> Value {
        let status = self.json(&["status"]);
        let steps = status["steps"].as_array().expect("a list");
        let found = steps.iter().find(|found| found["step"] == step && found["input"] == input);
        found.unwrap_or_else(|| panic!("no {step} that reads {input}: {status}")).clone()
    }

    /// Asserts that the store is valid. No runner may have it open.
    pub(crate) fn assert_sound(&self) {
        self.look_into(|store| {
            let problems = verify(store).expect("the store can be read").problems;
            assert!(problems.is_empty(), "{problems:?}");
        });
    }

    /// Number of batches with effects that were started and are not delivered. No runner may have the store
    /// open.
    pub(crate) fn snapshots(&self) -> usize {
        self.look_into(|store| store.all_snapshots().expect("the store can be read").len())
    }

    /// Number of jobs of a queued step that are recorded as started and not finished. No runner may have the
    /// store open.
    pub(crate) fn begun(&self, step: &str) -> usize {
        let step = Address::parse(step).expect("it is an address");
        let totals = self.look_into(|store| store.parked_totals(&step).expect("the store can be read"));
        usize::try_from(totals.started).expect("it is small")
    }

    fn look_into<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        let opened = open_existing(&self.path().join(".tidegate")).expect("the store can be opened");
        // Both handles: the store can be read while the writer exists.
        let (store, _writer) = opened.expect("there is a store");
        look(&store)
    }

    /// The output, without parts that differ between runs.
    pub(crate) fn stable(&self, text: &str) -> String {
        let folder = self.path().display().to_string();
        without_times(&text.replace(&folder, "FOLDER"))
    }
}

/// Files keep their permissions.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("the folder can be read");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_file() {
            fs::copy(path, to).expect("files can be copied");
        } else if entry.file_name() != "out" && entry.file_name() != ".tidegate" {
            fs::create_dir(&to).expect("folders can be made");
            copy(&path, &to);
        }
    }
}

/// Times like `2026-01-31T12:00:00.123Z` as `TIME`.
fn without_times(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_digit() || "-:.TZ".contains(c);
    let mut rest = text;
    let mut stable = String::new();
    while let Some(start) = rest.find(is_part) {
        let len = rest[start..].find(|c| !is_part(c)).unwrap_or(rest.len() - start);
        let (before, found) = (&rest[..start], &rest[start..start + len]);
        stable.push_str(before);
        stable.push_str(if found.len() >= 20 && found.ends_with('Z') { "TIME" } else { found });
        rest = &rest[start + len..];
    }
    stable + rest
}

const SOURCE: &str = "[source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n";
const SINK: &str = "\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("output is text"),
            stderr: String::from_utf8(output.stderr).expect("output is text"),
        }
    }
}

impl Outcome {
    /// Asserts that the command ended with exit code 0.
    pub(crate) fn done(self) -> Self {
        self.failed(0)
    }

    /// Asserts that the command ended with this exit code.
    pub(crate) fn failed(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that standard error contains this text.
    pub(crate) fn says(self, what: &str) -> Self {
        assert!(self.stderr.contains(what), "`{what}` is missing in\n{}", self.stderr);
        self
    }
}

/// Jobs `{"id": …}` with these numbers, one per line.
pub(crate) fn jobs(ids: impl IntoIterator<Item = u64>) -> String {
    let mut lines = String::new();
    for id in ids {
        lines.extend(["{\"id\":", &id.to_string(), "}\n"]);
    }
    lines
}

/// Without an incomplete last line.
pub(crate) fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

/// The numbers of such jobs, with any other fields.
pub(crate) fn ids(lines: &str) -> Vec<u64> {
    lines.lines().map(id).collect()
}

fn id(line: &str) -> u64 {
    let job: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    job["id"].as_u64().unwrap_or_else(|| panic!("no id: {line}"))
}
