//! `FileSinkWriter`: writes lines to a file, exactly once.
//!
//! The committed position has the length of the file and a hash of its end. Bytes after it are the sink's own
//! if a runner was active (`open`), and are cut off. Otherwise another program changed the file, and the sink
//! refuses it or, with [`OnMismatch::Append`], accepts it.
//!
//! A special file (`/dev/null`, a named pipe) has no position: it gets every payload at least once, and
//! nothing can be truncated. A pipe must have a reader.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use tidegate_plugin::Payloads;
use twox_hash::XxHash3_64;

use super::error::{Mismatch, SinkError};
use super::file_tail::Tail;
use super::format::append_lines;
use tidegate_config::{FileSink, OnMismatch};
use tidegate_model::log_target;
use tidegate_model::{Address, LockHolder, SinkPosition};

/// Bytes of the line buffer that are kept between writes.
const KEPT_BYTES: usize = 4 << 20;

/// Writes to one file, and tracks the committed length.
#[derive(Debug)]
pub struct FileSinkWriter {
    address: Address,
    spec: FileSink,
    /// `None`: no file exists yet.
    target: Option<Target>,
    /// The position of the next byte.
    offset: u64,
    /// The bytes before `offset`.
    tail: Tail,
    /// The committed position in the store for this file.
    committed: Option<SinkPosition>,
    path_hash: u64,
    lines: Vec<u8>,
    /// The start, if too many files were open then: the file is opened before the first write.
    unopened: Option<Unopened>,
}

/// A start without an open file.
#[derive(Clone, Debug)]
struct Unopened {
    /// The position in the store.
    committed: Option<SinkPosition>,
}

#[derive(Debug)]
struct Target {
    file: File,
    device: u64,
    inode: u64,
    regular: bool,
}

impl FileSinkWriter {
    /// If too many files are open, opening is retried before the first write.
    pub(crate) fn open(
        address: &Address,
        spec: &FileSink,
        committed: Option<&SinkPosition>,
    ) -> Result<Self, SinkError> {
        match Self::open_now(address, spec, committed) {
            Err(error) if error.is_short_of_files() => {
                let unopened = Some(Unopened { committed: committed.cloned() });
                Ok(Self { unopened, ..Self::new(address, spec) })
            }
            opened => opened,
        }
    }

    fn new(address: &Address, spec: &FileSink) -> Self {
        Self {
            address: address.clone(),
            spec: spec.clone(),
            target: None,
            offset: 0,
            tail: Tail::default(),
            committed: None,
            path_hash: path_hash(&spec.path),
            lines: Vec::new(),
            unopened: None,
        }
    }

    fn open_now(
        address: &Address,
        spec: &FileSink,
        committed: Option<&SinkPosition>,
    ) -> Result<Self, SinkError> {
        let mut writer = Self::new(address, spec);
        let opened = writer.open_file(false)?;
        // A sink with a new path starts a new file, unless its file was moved with it.
        let elsewhere = committed;
        let committed = committed.filter(|committed| {
            let went_along = || opened.as_ref().is_some_and(|(target, _)| target.inode == committed.inode);
            committed.path_hash == writer.path_hash || went_along()
        });
        let Some((target, len)) = opened else {
            if let Some(expected) = committed.map(|it| it.offset).filter(|&offset| offset > 0) {
                writer.tolerate(Mismatch::Missing { expected })?;
            }
            return Ok(writer);
        };
        if let (Some(elsewhere), None, OnMismatch::Refuse) = (elsewhere, committed, spec.on_mismatch)
            && writer.is_copy(&target, len, elsewhere)?
        {
            writer.tolerate(Mismatch::Copied)?;
        }
        if target.regular {
            writer.recover(&target, len, committed)?;
        }
        writer.target = Some(target);
        Ok(writer)
    }

    pub(crate) fn needs_opening(&mut self) -> Result<Option<SinkPosition>, SinkError> {
        if let Some(Unopened { committed }) = self.unopened.clone() {
            *self = Self::open_now(&self.address, &self.spec, committed.as_ref())?;
        }
        match self.mismatch_now()? {
            None => {}
            Some(mismatch) => {
                self.tolerate(mismatch)?;
                self.take_over(mismatch)?;
            }
        }
        if self.target.is_none() {
            self.create()?;
        }
        let opened = self.committed.as_ref().is_some_and(|committed| committed.open);
        Ok(if opened { None } else { self.position() })
    }

    pub(crate) fn write(&mut self, payloads: &Payloads) -> Result<(), SinkError> {
        let Some(target) = &mut self.target else {
            return Err(SinkError::open(&self.spec.path, io::ErrorKind::NotFound.into()));
        };
        debug_assert!(!target.regular || self.committed.as_ref().is_some_and(|committed| committed.open));
        self.lines.clear();
        if self.tail.is_mid_line() {
            self.lines.push(b'\n');
        }
        append_lines(self.spec.format, payloads, &mut self.lines);
        let written = if target.regular {
            target.file.write_all_at(&self.lines, self.offset)
        } else {
            target.file.write_all(&self.lines)
        };
        written.map_err(|error| SinkError::write(&self.spec.path, self.offset, error))?;
        if target.regular {
            self.offset += self.lines.len() as u64;
            self.tail.push(&self.lines);
        }
        self.lines.clear();
        self.lines.shrink_to(KEPT_BYTES);
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<Option<SinkPosition>, SinkError> {
        let Some(target) = self.target.as_ref().filter(|_| self.is_ahead()) else { return Ok(None) };
        target.file.sync_data().map_err(|error| SinkError::write(&self.spec.path, self.offset, error))?;
        Ok(self.position())
    }

    pub(crate) fn committed(&mut self, position: &SinkPosition) {
        self.committed = Some(position.clone());
    }

    pub(crate) fn forget_position(&mut self) {
        self.committed = None;
    }

    pub(crate) fn roll_back(&mut self) -> Result<(), SinkError> {
        let (Some(target), Some(committed)) = (&self.target, &self.committed) else { return Ok(()) };
        let path = &self.spec.path;
        let len = target.file.metadata().map_err(|error| SinkError::look(path, error))?.len();
        self.offset = committed.offset;
        // A file that another program shortened further is detected before the next write.
        if len >= committed.offset {
            target.file.set_len(committed.offset).map_err(|source| SinkError::CutBack {
                path: path.clone(),
                offset: committed.offset,
                source,
            })?;
            self.tail =
                Tail::read(&target.file, committed.offset).map_err(|error| SinkError::look(path, error))?;
        }
        Ok(())
    }

    pub(crate) fn closing(&self) -> Option<SinkPosition> {
        let committed = self.committed.as_ref().filter(|committed| committed.open && !self.is_ahead())?;
        Some(SinkPosition { open: false, ..committed.clone() })
    }

    /// Whether a file at another path has the committed content, as after a copy together with the store.
    fn is_copy(&self, target: &Target, len: u64, committed: &SinkPosition) -> Result<bool, SinkError> {
        if !target.regular || committed.offset == 0 || len < committed.offset {
            return Ok(false);
        }
        let tail = Tail::read(&target.file, committed.offset)
            .map_err(|error| SinkError::look(&self.spec.path, error))?;
        Ok(tail.len() == committed.tail_len && tail.hash() == committed.tail_hash)
    }

    /// Compares the file with the committed position, and cuts off the bytes that a dead runner left.
    fn recover(
        &mut self,
        target: &Target,
        len: u64,
        committed: Option<&SinkPosition>,
    ) -> Result<(), SinkError> {
        let look = |error| SinkError::look(&self.spec.path, error);
        let Some(committed) = committed else {
            if len > 0 {
                self.tolerate(Mismatch::NotOurs { len })?;
                self.tail = Tail::read(&target.file, len).map_err(look)?;
                self.offset = len;
            }
            return Ok(());
        };
        let expected = committed.offset;
        let mismatch = if len < expected {
            Some(Mismatch::Shorter { expected, len })
        } else {
            let tail = Tail::read(&target.file, expected).map_err(look)?;
            // The number of a device may change when the machine restarts.
            let ours = committed.open && committed.inode == target.inode;
            if tail.len() != committed.tail_len || tail.hash() != committed.tail_hash {
                Some(Mismatch::Changed)
            } else if len > expected && !ours {
                Some(Mismatch::Longer { expected, len })
            } else {
                self.tail = tail;
                None
            }
        };
        if let Some(mismatch) = mismatch {
            self.tolerate(mismatch)?;
            self.tail = Tail::read(&target.file, len).map_err(look)?;
            self.offset = len;
            return Ok(());
        }
        if len > expected {
            let path = &self.spec.path;
            tracing::info!(target: log_target::SINK, sink = %self.address, path = %path.display(), bytes = len - expected,
                "cuts off uncommitted bytes");
            target.file.set_len(expected).map_err(|source| SinkError::CutBack {
                path: path.clone(),
                offset: expected,
                source,
            })?;
        }
        self.offset = expected;
        // A restored copy of the file is reported like a new file.
        let same = (committed.device, committed.inode, committed.path_hash)
            == (target.device, target.inode, self.path_hash);
        self.committed = same.then(|| committed.clone());
        Ok(())
    }

    /// The difference of the file from its state, while the sink is in use.
    fn mismatch_now(&self) -> Result<Option<Mismatch>, SinkError> {
        let Some(target) = self.target.as_ref().filter(|target| target.regular) else { return Ok(None) };
        let path = &self.spec.path;
        let expected = self.offset;
        let len = target.file.metadata().map_err(|error| SinkError::look(path, error))?.len();
        if len != expected {
            return Ok(Some(if len < expected {
                Mismatch::Shorter { expected, len }
            } else {
                Mismatch::Longer { expected, len }
            }));
        }
        match fs::metadata(path) {
            Ok(metadata) if target.is(&metadata) => Ok(None),
            // As in any program whose file is rotated: started writes go to the old file.
            _ if self.spec.on_mismatch == OnMismatch::Append && self.is_ahead() => Ok(None),
            Ok(_) => Ok(Some(Mismatch::Replaced)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Mismatch::Removed)),
            Err(error) => Err(SinkError::look(path, error)),
        }
    }

    /// An error, unless a changed file is accepted.
    fn tolerate(&self, mismatch: Mismatch) -> Result<(), SinkError> {
        match self.spec.on_mismatch {
            OnMismatch::Append => {
                tracing::warn!(target: log_target::SINK, sink = %self.address, path = %self.spec.path.display(), "{mismatch}; the sink continues at the end of the file");
                Ok(())
            }
            OnMismatch::Refuse => Err(SinkError::Mismatch {
                address: self.address.clone(),
                path: self.spec.path.clone(),
                mismatch,
            }),
        }
    }

    /// Continues at the end of the present file.
    fn take_over(&mut self, mismatch: Mismatch) -> Result<(), SinkError> {
        if matches!(mismatch, Mismatch::Removed | Mismatch::Replaced) {
            // No write is uncommitted here, so the old file is no longer needed.
            self.target = None;
            (self.offset, self.tail, self.committed) = (0, Tail::default(), None);
            let Some((target, len)) = self.open_file(false)? else { return Ok(()) };
            if target.regular {
                self.tail =
                    Tail::read(&target.file, len).map_err(|error| SinkError::look(&self.spec.path, error))?;
                self.offset = len;
            }
            self.target = Some(target);
            return Ok(());
        }
        let Some(target) = &self.target else { return Ok(()) };
        let look = |error| SinkError::look(&self.spec.path, error);
        if !self.is_ahead() {
            self.committed = None;
        }
        let len = target.file.metadata().map_err(look)?.len();
        self.tail = Tail::read(&target.file, len).map_err(look)?;
        self.offset = len;
        Ok(())
    }

    fn create(&mut self) -> Result<(), SinkError> {
        let folder = folder_of(&self.spec.path);
        make_folder(folder).map_err(|source| SinkError::Folder { path: folder.to_owned(), source })?;
        let Some((target, len)) = self.open_file(true)? else { return Ok(()) };
        sync_folder(folder).map_err(|error| SinkError::open(&self.spec.path, error))?;
        if target.regular && len > 0 {
            self.tolerate(Mismatch::NotOurs { len })?;
            self.tail =
                Tail::read(&target.file, len).map_err(|error| SinkError::look(&self.spec.path, error))?;
            self.offset = len;
        }
        self.target = Some(target);
        Ok(())
    }

    /// Opens and locks the file; `None` if it is missing and must not be created.
    fn open_file(&self, create: bool) -> Result<Option<(Target, u64)>, SinkError> {
        let path = &self.spec.path;
        let opened = match fs::metadata(path) {
            Ok(found) if found.file_type().is_fifo() => open_pipe(path),
            _ => OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path),
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
            Err(error) => return Err(SinkError::open(path, error)),
        };
        let metadata = file.metadata().map_err(|error| SinkError::look(path, error))?;
        let target = Target::new(file, &metadata);
        if target.regular {
            match target.file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let (address, holder) = (self.address.clone(), Box::new(LockHolder::of(&target.file)));
                    return Err(SinkError::Locked { address, path: path.clone(), holder });
                }
                Err(TryLockError::Error(error)) => {
                    // Some network file systems have no locks; the store's own lock must suffice.
                    tracing::debug!(target: log_target::SINK, path = %path.display(), %error, "cannot lock");
                }
            }
        }
        Ok(Some((target, metadata.len())))
    }

    /// Bytes were written since the last commit.
    fn is_ahead(&self) -> bool {
        self.committed.as_ref().is_some_and(|committed| committed.offset != self.offset)
    }

    fn position(&self) -> Option<SinkPosition> {
        let target = self.target.as_ref().filter(|target| target.regular)?;
        Some(SinkPosition {
            offset: self.offset,
            tail_len: self.tail.len(),
            tail_hash: self.tail.hash(),
            device: target.device,
            inode: target.inode,
            path_hash: self.path_hash,
            path: stored_path(&self.spec),
            open: true,
        })
    }
}

/// Hash of the absolute path, so that the working folder does not matter.
fn path_hash(path: &Path) -> u64 {
    XxHash3_64::oneshot(absolute(path).as_os_str().as_encoded_bytes())
}

/// The path of the file as positions have it; `None` if it is not UTF-8.
#[must_use]
pub fn stored_path(spec: &FileSink) -> Option<String> {
    absolute(&spec.path).to_str().map(str::to_owned)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl Target {
    fn new(file: File, metadata: &Metadata) -> Self {
        Self { file, device: metadata.dev(), inode: metadata.ino(), regular: metadata.is_file() }
    }

    fn is(&self, metadata: &Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino())
    }
}

/// The lock must be released explicitly: a program that is being started by this process holds a copy of the
/// file handle, and with it the lock, for a moment.
impl Drop for Target {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(target: log_target::SINK, %error, "cannot unlock");
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Creates a folder and its parents, each durable before the next.
fn make_folder(folder: &Path) -> io::Result<()> {
    let above = folder_of(folder);
    if folder.is_dir() || above == folder {
        return Ok(());
    }
    make_folder(above)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => Err(error),
        _ => sync_folder(above),
    }
}

/// Opens a pipe for writing only. A handle that could also read would count as a reader, and written bytes
/// would be lost.
fn open_pipe(path: &Path) -> io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let opened = OpenOptions::new().write(true).custom_flags(nonblocking).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(errno) if errno == Errno::NXIO.raw_os_error() => {
            io::Error::other("the pipe has no reader; start the reader first")
        }
        _ => error,
    })?;
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
