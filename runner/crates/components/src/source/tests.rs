//! Tests of sources: readers deliver into a store in memory.

pub(crate) mod beginnings;
pub(crate) mod copies;
pub(crate) mod follow;
pub(crate) mod formats;
pub(crate) mod model;
pub(crate) mod resume;
pub(crate) mod rotate;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use tidegate_config::DataFormat;
use tidegate_model::Form;

const LIMIT: BatchLimit = BatchLimit { jobs: 1000, bytes: 64 << 10 };

/// A folder of files, a source over them, and the records of a store.
pub(crate) struct World {
    folder: TempDir,
    spec: FileSource,
    segments: BTreeMap<u32, Segment>,
    marks: BTreeMap<u64, SourceOffset>,
}

/// A job as a step receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    index: u64,
    /// File name and line; empty if a job has no place.
    place: String,
    /// The payload, or the fault after a `!`.
    text: String,
}

impl World {
    /// A source that reads `name` in a fresh folder, as ndjson.
    pub(crate) fn new(name: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let spec = FileSource {
            path: folder.path().join(name),
            format: DataFormat::Ndjson,
            follow: false,
            max_line: 16 << 20,
            headers: true,
            delimiter: b',',
        };
        Self { folder, spec, segments: BTreeMap::new(), marks: BTreeMap::new() }
    }

    pub(crate) fn format(mut self, format: DataFormat) -> Self {
        self.spec.format = format;
        self
    }

    pub(crate) fn follow(mut self) -> Self {
        self.spec.follow = true;
        self
    }

    pub(crate) fn max_line(mut self, bytes: usize) -> Self {
        self.spec.max_line = bytes;
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn append(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let file = OpenOptions::new().append(true).open(self.path(name));
        file.unwrap().write_all(content.as_ref()).unwrap();
        self
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> &Self {
        fs::rename(self.path(from), self.path(to)).unwrap();
        self
    }

    /// Opens the source, as a new run does.
    pub(crate) fn open(&self) -> Result<SourceLog, SourceError> {
        let address = Address::parse("quakes/events").unwrap();
        SourceLog::open(&address, &self.spec, self.segments.values().cloned().collect())
    }

    pub(crate) fn mark(&self, next: u64) -> Option<SourceOffset> {
        self.marks.range(..=next).next_back().map(|(_, mark)| *mark)
    }

    pub(crate) fn reader(&self, source: &SourceLog, next: u64) -> Reader {
        source.reader(next, self.mark(next))
    }

    /// Commits the records of a batch.
    pub(crate) fn commit(&mut self, read: &SourceBatch) {
        self.marks.extend(read.mark.map(|mark| (mark.index, mark)));
        self.segments.extend(read.segments.iter().map(|segment| (segment.ordinal, segment.clone())));
    }

    /// Reads until no job is available, and commits each batch.
    pub(crate) fn drain(&mut self, reader: &mut Reader) -> Result<Vec<Seen>, SourceError> {
        let mut all = Vec::new();
        while let Read::Batch(read) = reader.read(LIMIT)? {
            self.commit(&read);
            all.extend(self.see(&read.batch));
        }
        Ok(all)
    }

    /// A run with one reader that begins at `next`.
    pub(crate) fn run(&mut self, next: u64) -> Vec<Seen> {
        let source = self.open().unwrap();
        let mut reader = self.reader(&source, next);
        self.drain(&mut reader).unwrap()
    }

    pub(crate) fn see(&self, batch: &Batch) -> Vec<Seen> {
        let name = |path: &Path| path.strip_prefix(self.folder.path()).unwrap().display().to_string();
        let see = |(position, payload): (usize, &[u8])| Seen {
            index: batch.first + position as u64,
            place: batch
                .places
                .as_ref()
                .map_or(String::new(), |places| format!("{}:{}", name(&places.file), places.line(position))),
            text: match batch.fault(position) {
                Some(fault) => format!("!{}", self.text(fault)),
                None => self.text(&String::from_utf8_lossy(payload)),
            },
        };
        batch.payloads.iter().enumerate().map(see).collect()
    }

    /// `text` without the folder of the test.
    pub(crate) fn text(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }

    /// A run with one reader that begins at `next`: its jobs, and its warnings.
    pub(crate) fn warned_run(&mut self, next: u64) -> String {
        let folder = self.folder.path().to_owned();
        let (seen, warnings) = warned(&folder, || self.run(next));
        [table(&seen), warnings].concat()
    }

    /// The error of the next run, with its causes.
    pub(crate) fn error(&mut self, next: u64) -> String {
        let failed = self.open().and_then(|source| {
            let mut reader = self.reader(&source, next);
            self.drain(&mut reader)
        });
        let error = failed.unwrap_err();
        let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
        self.text(&format!("{error}{cause}"))
    }
}

/// Records that a watch has woken it.
#[derive(Debug)]
pub(crate) struct Rung {
    rings: crossbeam_channel::Receiver<()>,
    _wake: Arc<dyn Wake>,
}

#[derive(Debug)]
struct Ring(crossbeam_channel::Sender<()>);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

impl std::fmt::Debug for dyn Wake {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Wake")
    }
}

impl Rung {
    pub(crate) fn at(watch: &SourceWatch, path: &Path) -> Self {
        let (ring, rings) = crossbeam_channel::unbounded();
        let wake: Arc<dyn Wake> = Arc::new(Ring(ring));
        watch.register(path, &wake);
        Self { rings, _wake: wake }
    }

    pub(crate) fn wait(&self) {
        self.rings.recv_timeout(std::time::Duration::from_mins(1)).unwrap();
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.rings.try_recv().is_ok()
    }
}

pub(crate) fn texts(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|job| job.text.as_str()).collect()
}

/// `index place text`, one job per line.
pub(crate) fn table(seen: &[Seen]) -> String {
    let line = |job: &Seen| [&job.index.to_string(), " ", &job.place, " ", &job.text, "\n"].concat();
    seen.iter().map(line).collect()
}

/// The result of `work`, and its warnings, without the folder of the test.
pub(crate) fn warned<T>(folder: &Path, work: impl FnOnce() -> T) -> (T, String) {
    let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(std::sync::Mutex::new(file))
        .finish();
    let answer = tracing::subscriber::with_default(subscriber, work);
    let warnings = fs::read_to_string(path).unwrap();
    (answer, warnings.replace(&format!("{}/", folder.display()), ""))
}

/// The numbers as lines.
pub(crate) fn numbers(range: std::ops::RangeInclusive<u64>) -> String {
    range.map(|number| number.to_string() + "\n").collect()
}

pub(crate) fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_batch_knows_whether_its_payloads_are_json() {
    for (format, form) in [(DataFormat::Ndjson, Form::Unchecked), (DataFormat::Lines, Form::Json)] {
        let world = World::new("a").format(format);
        world.put("a", "1\n");
        let source = world.open().unwrap();
        let Read::Batch(read) = world.reader(&source, 1).read(LIMIT).unwrap() else { panic!() };
        assert_eq!(read.batch.form, form);
    }
}
