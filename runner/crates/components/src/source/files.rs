//! Which files a path means, and how a file is known again: by what the file system calls it, and
//! by a fingerprint of its beginning.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use twox_hash::XxHash3_64;

use super::error::SourceError;
use tidegate_model::{Address, Segment};

/// When a file was written to: seconds and nanoseconds since 1970.
pub(crate) type Written = (i64, i64);

pub(crate) fn written(metadata: &Metadata) -> Written {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// How much of a file's beginning tells it from another.
pub(crate) const FINGERPRINT_BYTES: u32 = 1024;

/// What the file system calls a file; stays through a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(crate) fn of_segment(segment: &Segment) -> Self {
        Self { device: segment.device, inode: segment.inode }
    }
}

/// A file that a path means now.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    pub(crate) len: u64,
    pub(crate) written: Written,
}

/// The files that a path means now, in order of name.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) files: Vec<Found>,
    /// The path names one file, not a folder or a pattern.
    pub(crate) single: bool,
}

/// Lists what `path` means: a file, the files of a folder, or the matches of a glob. Hidden files
/// and sub-folders of a folder are passed over. What is missing is an error unless `follow`.
pub(crate) fn list(address: &Address, path: &Path, follow: bool) -> Result<Listing, SourceError> {
    let missing = |path: &Path| SourceError::Missing { address: address.clone(), path: path.to_owned() };
    let single = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(Listing { files: list_folder(path)?, single: false }),
        Ok(metadata) if metadata.is_file() => Some(found(path.to_owned(), &metadata)?),
        Ok(_) => return Err(SourceError::NotAFile { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(base) = glob_base(path) {
                if base.is_dir() {
                    return Ok(Listing { files: list_glob(path)?, single: false });
                }
                return if follow {
                    Ok(Listing { files: vec![], single: false })
                } else {
                    Err(missing(&base))
                };
            }
            if !follow {
                return Err(missing(path));
            }
            None
        }
        Err(error) => return Err(SourceError::open(path, error)),
    };
    Ok(Listing { files: Vec::from_iter(single), single: true })
}

fn list_folder(folder: &Path) -> Result<Vec<Found>, SourceError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| SourceError::list(folder, error))? {
        let entry = entry.map_err(|error| SourceError::list(folder, error))?;
        if !entry.file_name().as_bytes().starts_with(b".") {
            files.extend(found_if_file(entry.path())?);
        }
    }
    Ok(sorted(files))
}

fn list_glob(path: &Path) -> Result<Vec<Found>, SourceError> {
    let Some(pattern) = path.to_str() else {
        return Err(SourceError::Name { path: path.to_owned() });
    };
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let matches = glob::glob_with(pattern, options)
        .map_err(|source| SourceError::Pattern { path: path.to_owned(), source })?;
    let mut files = Vec::new();
    for path in matches {
        let path = path.map_err(|error| {
            let path = error.path().to_owned();
            SourceError::List { path, source: error.into() }
        })?;
        files.extend(found_if_file(path)?);
    }
    Ok(sorted(files))
}

/// Names are compared byte by byte: the order does not depend on the machine's language.
fn sorted(mut files: Vec<Found>) -> Vec<Found> {
    files.sort_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
    files
}

fn found_if_file(path: PathBuf) -> Result<Option<Found>, SourceError> {
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => found(path, &metadata).map(Some),
        Ok(_) => Ok(None),
        // Removed since it was listed, or a link to nowhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SourceError::open(&path, error)),
    }
}

/// The store keeps paths as text, so a path that is none is refused here, where it can be named.
pub(crate) fn found(path: PathBuf, metadata: &Metadata) -> Result<Found, SourceError> {
    if path.to_str().is_none() {
        return Err(SourceError::Name { path });
    }
    Ok(Found { path, id: FileId::of(metadata), len: metadata.len(), written: written(metadata) })
}

/// The folder that a glob starts from; `None` where `path` has no wildcard.
pub(crate) fn glob_base(path: &Path) -> Option<PathBuf> {
    let wild = |part: &std::ffi::OsStr| part.as_bytes().iter().any(|byte| b"*?[".contains(byte));
    let mut base = PathBuf::new();
    for part in path.components() {
        if wild(part.as_os_str()) {
            return Some(if base.as_os_str().is_empty() { PathBuf::from(".") } else { base });
        }
        base.push(part);
    }
    None
}

/// The folder that holds `path`.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Where everything was moved to another folder, a segment's file is looked for in the one that
/// `path` means now. Whether it is the same file is seen when it is opened.
pub(crate) fn relocate(segment: &mut Segment, path: &Path) {
    let home = if path.is_dir() { path } else { folder_of(path) };
    if folder_of(&segment.path) == home || segment.path.exists() {
        return;
    }
    if let Some(moved) = segment.path.file_name().map(|name| home.join(name)).filter(|moved| moved.exists()) {
        segment.path = moved;
    }
}

/// Whether the content of `path` is compressed, by its ending.
pub(crate) fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"))
}

/// The first bytes of a file's content, at most [`FINGERPRINT_BYTES`].
#[derive(Debug)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    /// A packed file ends before its content does.
    cut: bool,
}

impl Head {
    /// `packed`: the content is what gzip makes of the file. Of content that is damaged, what stands
    /// before the damage.
    pub(crate) fn of(file: &File, packed: bool) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(FINGERPRINT_BYTES as usize);
        let raw = Positioned { file, offset: 0 };
        let limit = u64::from(FINGERPRINT_BYTES);
        if packed {
            use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
            match MultiGzDecoder::new(io::BufReader::new(raw)).take(limit).read_to_end(&mut bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == UnexpectedEof => return Ok(Self { bytes, cut: true }),
                Err(error) if matches!(error.kind(), InvalidData | InvalidInput) => {}
                Err(error) => return Err(error),
            }
        } else {
            raw.take(limit).read_to_end(&mut bytes)?;
        }
        Ok(Self { bytes, cut: false })
    }

    /// Whether a packed file ends before so much of its content.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// XXH3-64 of its first `len` bytes (or of all, where there are fewer), and how many these are.
    pub(crate) fn fingerprint(&self, len: u32) -> (u64, u32) {
        let bytes = &self.bytes[..self.bytes.len().min(len as usize)];
        // At most `FINGERPRINT_BYTES`, which fits.
        (XxHash3_64::oneshot(bytes), u32::try_from(bytes.len()).unwrap_or(u32::MAX))
    }

    /// Whether the file of `segment` began so.
    pub(crate) fn is_of(&self, segment: &Segment) -> bool {
        self.fingerprint(segment.fingerprint_len) == (segment.fingerprint, segment.fingerprint_len)
    }
}

/// Reads a file from a place of its own, and leaves the file's place as it is.
struct Positioned<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Whether `file` begins as the file of `segment` did.
pub(crate) fn begins_like(file: &File, segment: &Segment) -> io::Result<bool> {
    let packed = is_gzip(&segment.path);
    // Runners up to store version 5 took the fingerprint of the packed bytes, and so does `bytes`.
    Ok((packed && Head::of(file, true)?.is_of(segment)) || Head::of(file, false)?.is_of(segment))
}

/// Whether `file` holds what the second fingerprint of `segment` says, if it is long enough to tell.
pub(crate) fn goes_on_like(file: &File, segment: &Segment) -> io::Result<bool> {
    let Some(tail) = segment.tail.filter(|_| !is_gzip(&segment.path)) else { return Ok(true) };
    let mut bytes = vec![0; tail.len as usize];
    match file.read_exact_at(&mut bytes, tail.at.offset - u64::from(tail.len)) {
        Ok(()) => Ok(XxHash3_64::oneshot(&bytes) == tail.hash),
        // Less is there than was read, which its reader sees.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether the file at `path` begins as the file of `segment` did; not where there is none.
pub(crate) fn still_begins_like(path: &Path, segment: &Segment) -> Result<bool, SourceError> {
    match open_if_there(path)? {
        Some((file, _)) => begins_like(&file, segment).map_err(|error| SourceError::open(path, error)),
        None => Ok(false),
    }
}

/// Opens a file for reading; `None` where there is none.
pub(crate) fn open_if_there(path: &Path) -> Result<Option<(File, Metadata)>, SourceError> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SourceError::open(path, error)),
    }
}

/// Finds the file of `segment` again, if all of it up to `offset` is still there: under its own
/// name, under another name in the same folder (rotated), or as a copy that replaced it (saved by
/// an editor). A follower looks for the rotated file first, since the new one may begin alike.
pub(crate) fn find_again(
    segment: &Segment,
    offset: u64,
    follow: bool,
) -> Result<Option<(File, Metadata)>, SourceError> {
    let fits = |opened: (File, Metadata)| -> Result<Option<(File, Metadata)>, SourceError> {
        let long_enough = is_gzip(&segment.path) || opened.1.len() >= offset;
        let failed = |error| SourceError::open(&segment.path, error);
        let same = long_enough
            && begins_like(&opened.0, segment).map_err(failed)?
            && goes_on_like(&opened.0, segment).map_err(failed)?;
        Ok(same.then_some(opened))
    };
    let mut copy = None;
    if let Some(opened) = open_if_there(&segment.path)? {
        if FileId::of(&opened.1) == FileId::of_segment(segment) {
            return fits(opened);
        }
        if segment.fingerprint_len > 0 {
            copy = fits(opened)?;
        }
    }
    if copy.is_some() && !follow {
        return Ok(copy);
    }
    let renamed = open_by_id(folder_of(&segment.path), FileId::of_segment(segment))?;
    Ok(renamed.map(fits).transpose()?.flatten().or(copy))
}

/// Opens the file of `folder` that the file system calls `id`, under whatever name it has by then.
fn open_by_id(folder: &Path, id: FileId) -> Result<Option<(File, Metadata)>, SourceError> {
    let mut before = None;
    for _ in 0..LOOKS_MAX {
        let seen = look(folder, |_| true, |_, _| true);
        if let Some(named) = seen.iter().flatten().find(|named| named.id == id) {
            let opened = open_if_there(&named.path)?;
            if let Some(opened) = opened.filter(|opened| FileId::of(&opened.1) == id) {
                return Ok(Some(opened));
            }
        }
        if seen.is_some() && before == seen {
            break;
        }
        before = seen;
    }
    Ok(None)
}

/// A file of a folder, by the name that it had in one moment.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    pub(crate) metadata: Metadata,
}

impl PartialEq for Named {
    /// The name stands for the same file. How much is in it does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.path == other.path
    }
}

/// How often a folder is looked at until two looks agree.
const LOOKS_MAX: usize = 64;

/// The files of `folder` that are `wanted` by name or identity, in order of name. While a log is
/// rotated its files move from name to name, and one look can miss a file on its way: two looks in a
/// row have to see the same. `None` where they never did.
pub(crate) fn settled(folder: &Path, wanted: impl Fn(&[u8], FileId) -> bool) -> Option<Vec<Named>> {
    settle(|| look(folder, |_| true, &wanted))
}

/// As [`settled`], by name alone: a folder may hold thousands of other files.
pub(crate) fn settled_by_name(folder: &Path, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<Named>> {
    settle(|| look(folder, &wanted, |_, _| true))
}

fn settle(look: impl Fn() -> Option<Vec<Named>>) -> Option<Vec<Named>> {
    let mut before = look();
    for _ in 1..LOOKS_MAX {
        let seen = look();
        if seen.is_some() && seen == before {
            return seen;
        }
        before = seen;
    }
    None
}

/// A folder that cannot be listed holds nothing that could be found. `None` where a file was moved away
/// meanwhile.
fn look(
    folder: &Path,
    by_name: impl Fn(&[u8]) -> bool,
    wanted: impl Fn(&[u8], FileId) -> bool,
) -> Option<Vec<Named>> {
    let Ok(entries) = fs::read_dir(folder) else { return Some(vec![]) };
    let mut files = Vec::new();
    for entry in entries.flatten().filter(|entry| by_name(entry.file_name().as_bytes())) {
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => continue,
        };
        let id = FileId::of(&metadata);
        if metadata.is_file() && wanted(entry.file_name().as_bytes(), id) {
            files.push(Named { path: entry.path(), id, metadata });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Some(files)
}
