//! Tests of sinks: a file and its committed position stay consistent.

pub(crate) mod model;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tempfile::TempDir;

use super::*;
use tidegate_config::{FileSink, OnMismatch, SinkFormat};

/// A sink's file, and its position in a store.
struct World {
    folder: TempDir,
    on_mismatch: OnMismatch,
    stored: Option<SinkPosition>,
}

impl World {
    fn new(on_mismatch: OnMismatch) -> Self {
        Self { folder: TempDir::new().unwrap(), on_mismatch, stored: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("out/report.ndjson")
    }

    fn content(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn put(&self, content: &str) {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::write(self.path(), content).unwrap();
    }

    fn append(&self, content: &str) {
        OpenOptions::new().append(true).open(self.path()).unwrap().write_all(content.as_bytes()).unwrap();
    }

    fn open(&self) -> Result<SinkWriter, SinkError> {
        open(&self.path(), self.on_mismatch, self.stored.as_ref())
    }

    fn commit(&mut self, sink: &mut SinkWriter, position: Option<SinkPosition>) {
        if let Some(position) = position {
            self.stored = Some(position.clone());
            sink.committed(&position);
        }
    }

    fn write(&mut self, sink: &mut SinkWriter, lines: &[&str]) -> Result<(), SinkError> {
        let position = sink.needs_opening()?;
        self.commit(sink, position);
        sink.write(&payloads(lines))
    }

    fn deliver(&mut self, sink: &mut SinkWriter, lines: &[&str]) -> Result<(), SinkError> {
        self.write(sink, lines)?;
        let position = sink.sync()?;
        self.commit(sink, position);
        Ok(())
    }

    fn stop(&mut self, mut sink: SinkWriter) {
        let position = sink.closing();
        self.commit(&mut sink, position);
    }

    /// A run that delivers `lines` and stops cleanly.
    fn run(&mut self, lines: &[&str]) -> Result<(), SinkError> {
        let mut sink = self.open()?;
        self.deliver(&mut sink, lines)?;
        self.stop(sink);
        Ok(())
    }

    /// The text of `error` without the folder of the test.
    fn text(&self, error: &SinkError) -> String {
        error.to_string().replace(&self.folder.path().display().to_string(), "")
    }
}

fn open(
    path: &Path,
    on_mismatch: OnMismatch,
    stored: Option<&SinkPosition>,
) -> Result<SinkWriter, SinkError> {
    let spec = FileSink { path: path.to_owned(), format: SinkFormat::Ndjson, on_mismatch };
    SinkWriter::open(&Address::parse("quakes/report").unwrap(), &SinkKind::File(spec), stored)
}

fn payloads(lines: &[&str]) -> Payloads {
    lines.iter().map(|line| line.as_bytes()).collect()
}

#[test]
fn a_pipe_without_a_reader_takes_nothing() {
    let mut world = World::new(OnMismatch::Refuse);
    fs::create_dir_all(world.path().parent().unwrap()).unwrap();
    mknodat(CWD, world.path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(matches!(world.open(), Err(SinkError::Open { .. })));

    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut reading = OpenOptions::new().read(true).custom_flags(nonblocking).open(world.path()).unwrap();
    let mut sink = world.open().unwrap();
    world.write(&mut sink, &["1", "2"]).unwrap();
    let mut lines = [0; 64];
    let read = reading.read(&mut lines).unwrap();
    assert_eq!(lines[..read], *b"1\n2\n");
    drop(reading);
    assert!(matches!(world.write(&mut sink, &["3"]), Err(SinkError::Write { .. })));
}

#[test]
fn lines_are_written_in_folders_that_are_made() {
    let mut world = World::new(OnMismatch::Refuse);
    world.run(&["1", "2"]).unwrap();
    world.run(&["3"]).unwrap();
    assert_eq!(world.content(), "1\n2\n3\n");
    assert!(!world.stored.unwrap().open);
}

#[test]
fn a_run_with_nothing_to_do_changes_nothing() {
    let mut world = World::new(OnMismatch::Refuse);
    let sink = world.open().unwrap();
    assert_eq!(sink.closing(), None);
    world.stop(sink);
    assert!(!world.path().exists());
    world.run(&["1"]).unwrap();
    let sink = world.open().unwrap();
    assert_eq!(sink.closing(), None);
}

#[test]
fn an_opening_is_asked_for_once_a_run() {
    let mut world = World::new(OnMismatch::Refuse);
    let mut sink = world.open().unwrap();
    assert!(sink.needs_opening().unwrap().is_some());
    world.deliver(&mut sink, &["1"]).unwrap();
    assert_eq!(sink.needs_opening().unwrap(), None);
    assert_eq!(sink.sync().unwrap(), None);
}

#[test]
fn what_was_not_committed_is_cut_off_after_a_crash() {
    let mut world = World::new(OnMismatch::Refuse);
    let mut sink = world.open().unwrap();
    world.deliver(&mut sink, &["1"]).unwrap();
    world.write(&mut sink, &["2", "3"]).unwrap();
    drop(sink);
    assert_eq!(world.content(), "1\n2\n3\n");
    let sink = world.open().unwrap();
    assert_eq!(world.content(), "1\n");
    world.stop(sink);
    world.run(&["2"]).unwrap();
    assert_eq!(world.content(), "1\n2\n");
}

#[test]
fn a_crash_before_the_first_commit_is_no_mismatch() {
    let mut world = World::new(OnMismatch::Refuse);
    let mut sink = world.open().unwrap();
    world.write(&mut sink, &["1"]).unwrap();
    drop(sink);
    world.run(&["1"]).unwrap();
    assert_eq!(world.content(), "1\n");
    // Not even the opening was committed.
    let world = World::new(OnMismatch::Refuse);
    assert!(world.open().unwrap().needs_opening().unwrap().is_some());
    assert!(world.open().unwrap().needs_opening().unwrap().is_some());
}

#[test]
fn a_file_that_somebody_changed_is_refused() {
    let change = |change: fn(&World)| {
        let mut world = World::new(OnMismatch::Refuse);
        world.run(&["1", "2"]).unwrap();
        change(&world);
        let error = world.open().unwrap_err();
        assert!(!error.is_full());
        world.text(&error)
    };
    insta::assert_snapshot!(change(|world| world.append("x\n")), @"sink `quakes/report` cannot continue in `/out/report.ndjson`: it was extended by another program from 4 bytes to 6; truncate it with `truncate --size=4 /out/report.ndjson`, or accept it with `on_mismatch = \"append\"`");
    insta::assert_snapshot!(change(|world| world.put("1\n")), @"sink `quakes/report` cannot continue in `/out/report.ndjson`: it was shortened by another program from 4 bytes to 2; restore it, or accept it with `on_mismatch = \"append\"`");
    insta::assert_snapshot!(change(|world| world.put("1\n3\n")), @"sink `quakes/report` cannot continue in `/out/report.ndjson`: its content was changed by another program; restore it, or accept it with `on_mismatch = \"append\"`");
    insta::assert_snapshot!(change(|world| fs::remove_file(world.path()).unwrap()), @"sink `quakes/report` cannot continue in `/out/report.ndjson`: it is missing, but must hold 4 bytes; restore it, or accept it with `on_mismatch = \"append\"`");
}

#[test]
fn somebody_elses_file_is_refused_on_first_use() {
    let world = World::new(OnMismatch::Refuse);
    world.put("mine\n");
    let error = world.open().unwrap_err();
    insta::assert_snapshot!(world.text(&error), @"sink `quakes/report` cannot continue in `/out/report.ndjson`: it holds 5 bytes that Tidegate did not write; move it away, or accept it with `on_mismatch = \"append\"`");
    assert_eq!(world.content(), "mine\n");
}

#[test]
fn a_copy_put_back_in_place_is_taken_as_the_file() {
    let mut world = World::new(OnMismatch::Refuse);
    world.run(&["1"]).unwrap();
    let copy = world.folder.path().join("copy");
    fs::copy(world.path(), &copy).unwrap();
    fs::rename(&copy, world.path()).unwrap();
    world.run(&["2"]).unwrap();
    assert_eq!(world.content(), "1\n2\n");
    assert_eq!(world.stored.as_ref().unwrap().inode, fs::metadata(world.path()).unwrap().ino());
}

#[test]
fn append_takes_the_file_as_it_is() {
    let mut world = World::new(OnMismatch::Append);
    world.put("mine, without newline");
    world.run(&["1"]).unwrap();
    assert_eq!(world.content(), "mine, without newline\n1\n");
    world.append("more\n");
    world.run(&["2"]).unwrap();
    assert_eq!(world.content(), "mine, without newline\n1\nmore\n2\n");
    fs::remove_file(world.path()).unwrap();
    world.run(&["3"]).unwrap();
    assert_eq!(world.content(), "3\n");
    world.put("other\n");
    world.run(&["4"]).unwrap();
    assert_eq!(world.content(), "other\n4\n");
}

#[test]
fn append_still_cuts_off_its_own_after_a_crash() {
    let mut world = World::new(OnMismatch::Append);
    world.put("mine");
    let mut sink = world.open().unwrap();
    world.write(&mut sink, &["1"]).unwrap();
    drop(sink);
    assert_eq!(world.content(), "mine\n1\n");
    world.run(&["1"]).unwrap();
    assert_eq!(world.content(), "mine\n1\n");
}

#[test]
fn a_change_under_a_running_sink_is_refused() {
    let change = |change: fn(&World)| {
        let mut world = World::new(OnMismatch::Refuse);
        let mut sink = world.open().unwrap();
        world.deliver(&mut sink, &["1"]).unwrap();
        change(&world);
        match sink.needs_opening().unwrap_err() {
            SinkError::Mismatch { mismatch, .. } => mismatch,
            error => panic!("{error}"),
        }
    };
    assert_eq!(change(|world| world.append("x\n")), Mismatch::Longer { expected: 2, len: 4 });
    assert_eq!(change(|world| world.put("")), Mismatch::Shorter { expected: 2, len: 0 });
    assert_eq!(change(|world| fs::remove_file(world.path()).unwrap()), Mismatch::Removed);
    assert_eq!(
        change(|world| {
            fs::rename(world.path(), world.path().with_extension("1")).unwrap();
            world.put("");
        }),
        Mismatch::Replaced
    );
}

#[test]
fn append_follows_a_rotation_between_commits() {
    let mut world = World::new(OnMismatch::Append);
    let mut sink = world.open().unwrap();
    world.deliver(&mut sink, &["1"]).unwrap();
    world.write(&mut sink, &["2"]).unwrap();
    let rotated = world.path().with_extension("1");
    fs::rename(world.path(), &rotated).unwrap();
    world.deliver(&mut sink, &["3"]).unwrap();
    world.deliver(&mut sink, &["4"]).unwrap();
    assert_eq!(fs::read_to_string(&rotated).unwrap(), "1\n2\n3\n");
    assert_eq!(world.content(), "4\n");
    world.append("x\n");
    world.deliver(&mut sink, &["5"]).unwrap();
    assert_eq!(world.content(), "4\nx\n5\n");
    world.stop(sink);
    world.run(&["6"]).unwrap();
    assert_eq!(world.content(), "4\nx\n5\n6\n");
}

#[test]
fn rolling_back_lets_the_same_payloads_be_written_again() {
    let mut world = World::new(OnMismatch::Refuse);
    let mut sink = world.open().unwrap();
    world.deliver(&mut sink, &["1"]).unwrap();
    world.write(&mut sink, &["2", "3"]).unwrap();
    let _never_committed = sink.sync().unwrap();
    sink.roll_back().unwrap();
    assert_eq!(world.content(), "1\n");
    assert!(sink.closing().is_some());
    world.deliver(&mut sink, &["2", "3"]).unwrap();
    assert_eq!(world.content(), "1\n2\n3\n");
}

#[test]
fn a_stop_with_uncommitted_lines_leaves_them_to_recovery() {
    let mut world = World::new(OnMismatch::Refuse);
    let mut sink = world.open().unwrap();
    world.write(&mut sink, &["1"]).unwrap();
    assert_eq!(sink.closing(), None);
}

#[test]
fn a_second_writer_is_refused() {
    let mut world = World::new(OnMismatch::Refuse);
    let mut sink = world.open().unwrap();
    world.deliver(&mut sink, &["1"]).unwrap();
    let error = world.open().unwrap_err();
    // Not every file system reports the owner of a lock.
    let text = world.text(&error).replace("sink or another process", "sink of this runner");
    insta::assert_snapshot!(text, @"sink `quakes/report` cannot write to `/out/report.ndjson`: another sink of this runner has it locked");
    drop(sink);
    world.open().unwrap();
}

#[test]
fn a_full_disk_is_told_from_other_errors() {
    let mut sink = open(Path::new("/dev/full"), OnMismatch::Refuse, None).unwrap();
    assert_eq!(sink.needs_opening().unwrap(), None);
    let error = sink.write(&payloads(&["1"])).unwrap_err();
    assert!(error.is_full(), "{error}");
    sink.roll_back().unwrap();
    let error = open(Path::new("/"), OnMismatch::Refuse, None).unwrap_err();
    assert!(!error.is_full());
}

#[test]
fn a_device_takes_everything_and_has_no_position() {
    let mut sink = open(Path::new("/dev/null"), OnMismatch::Refuse, None).unwrap();
    assert_eq!(sink.needs_opening().unwrap(), None);
    sink.write(&payloads(&["1"])).unwrap();
    assert_eq!(sink.sync().unwrap(), None);
    assert_eq!(sink.closing(), None);
}

#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<(Vec<u8>, bool)>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut pipe = self.0.lock().unwrap();
        if pipe.1 {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        pipe.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn standard_output_gets_what_is_synced() {
    let pipe = Pipe::default();
    let mut sink = SinkWriter::Stdout(StdoutWriter::new(Box::new(pipe.clone()), SinkFormat::Lines));
    sink.write(&payloads(&["\"a\""])).unwrap();
    sink.roll_back().unwrap();
    sink.write(&payloads(&["\"b\"", "1"])).unwrap();
    assert_eq!(sink.sync().unwrap(), None);
    assert_eq!(pipe.0.lock().unwrap().0, b"b\n1\n");
    pipe.0.lock().unwrap().1 = true;
    sink.write(&payloads(&["2"])).unwrap();
    assert!(matches!(sink.sync(), Err(SinkError::Closed)));
}
