//! Files of a source: lists the files of a path, and recognizes a file by its identity in the file system and
//! by a fingerprint of its beginning.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use twox_hash::XxHash3_64;

use super::error::SourceError;
use tidegate_model::{Address, Segment};

/// Modification time of a file: seconds and nanoseconds since 1970.
pub(crate) type Written = (i64, i64);

pub(crate) fn written(metadata: &Metadata) -> Written {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// Number of leading bytes in a fingerprint.
pub(crate) const FINGERPRINT_BYTES: u32 = 1024;

/// The identity of a file in the file system, which survives a rename.
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

/// A file of a path.
#[derive(Clone, Debug)]
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    pub(crate) len: u64,
    pub(crate) written: Written,
}

/// The files of a path, in order of name.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) files: Vec<FoundFile>,
    /// The path names one file, not a folder or a pattern.
    pub(crate) single: bool,
}

/// Lists the files of `path`: a file, the files of a folder, or the matches of a glob. Hidden files and
/// sub-folders of a folder are skipped. A missing path is an error unless `follow`.
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

fn list_folder(folder: &Path) -> Result<Vec<FoundFile>, SourceError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| SourceError::list(folder, error))? {
        let entry = entry.map_err(|error| SourceError::list(folder, error))?;
        if !entry.file_name().as_bytes().starts_with(b".") {
            files.extend(found_if_file(entry.path())?);
        }
    }
    Ok(sorted(files))
}

fn list_glob(path: &Path) -> Result<Vec<FoundFile>, SourceError> {
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

/// Names are compared byte by byte: the order does not depend on the machine's locale. The rotated files of a log come before
/// it, the oldest first: by date, or by a number that grows with age.
fn sorted(files: Vec<FoundFile>) -> Vec<FoundFile> {
    let names: HashSet<&[u8]> = files.iter().map(|file| file.path.as_os_str().as_bytes()).collect();
    let keys: Vec<ListingKey> = files.iter().map(|file| ListingKey::of(&file.path, &names)).collect();
    let mut keyed: Vec<(ListingKey, FoundFile)> = keys.into_iter().zip(files).collect();
    keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
    keyed.into_iter().map(|(_, file)| file).collect()
}

/// Place of a file in a listing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListingKey {
    /// The log that it was rotated from, or its own path.
    log: Vec<u8>,
    /// Whether it was not rotated.
    is_present: bool,
    /// Its number, if it has one.
    number: Option<Reverse<u16>>,
    path: Vec<u8>,
}

impl ListingKey {
    /// `names`: all paths of the listing.
    fn of(path: &Path, names: &HashSet<&[u8]>) -> Self {
        let path = path.as_os_str().as_bytes();
        let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let ends = (name + 1..path.len()).filter(|&end| matches!(path[end], b'.' | b'-'));
        let mut logs = ends.map(|end| (&path[..end], path[end], &path[end + 1..]));
        // A file with another ending, such as `.bak`, is no part of a rotated log. Rotation adds a date behind `-`, and a
        // number is part of the name there.
        let rotated = logs.find(|(log, mark, suffix)| {
            suffix.first().is_some_and(u8::is_ascii_digit)
                && (*mark == b'.' || rotation_number(suffix).is_none())
                && names.contains(log)
        });
        let (log, number) =
            rotated.map_or((path, None), |(log, _, suffix)| (log, rotation_number(suffix).map(Reverse)));
        Self { log: log.to_vec(), is_present: rotated.is_none(), number, path: path.to_vec() }
    }
}

/// The number in the suffix of a rotated file. A date increases with time, and is no number.
pub(crate) fn rotation_number(suffix: &[u8]) -> Option<u16> {
    std::str::from_utf8(suffix).ok()?.trim_end_matches(".gz").parse().ok()
}

fn found_if_file(path: PathBuf) -> Result<Option<FoundFile>, SourceError> {
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => found(path, &metadata).map(Some),
        Ok(_) => Ok(None),
        // Removed since it was listed, or a dangling link.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SourceError::open(&path, error)),
    }
}

/// The store keeps paths as text, so another path is refused here, with its name.
pub(crate) fn found(path: PathBuf, metadata: &Metadata) -> Result<FoundFile, SourceError> {
    if path.to_str().is_none() {
        return Err(SourceError::Name { path });
    }
    Ok(FoundFile { path, id: FileId::of(metadata), len: metadata.len(), written: written(metadata) })
}

/// The folder that a glob starts from; `None` if `path` has no wildcard.
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

/// The folder of `path`.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// If all files were moved to another folder, the file of a segment is searched in the present folder of
/// `path`. Its identity is checked when it is opened.
pub(crate) fn relocate(segment: &mut Segment, path: &Path) {
    let home = if path.is_dir() { path } else { folder_of(path) };
    if folder_of(&segment.path) == home || segment.path.exists() {
        return;
    }
    if let Some(moved) = segment.path.file_name().map(|name| home.join(name)).filter(|moved| moved.exists()) {
        segment.path = moved;
    }
}

/// Whether the content of `path` is compressed, judged by its extension.
pub(crate) fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"))
}

/// The first bytes of a file's content, at most [`FINGERPRINT_BYTES`].
#[derive(Debug)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    /// A compressed file ends before its content does.
    cut: bool,
}

impl Head {
    /// `packed`: the content is the decompressed file. If it is damaged, the bytes before the damage are
    /// used.
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

    /// Whether a compressed file ends before [`FINGERPRINT_BYTES`] of its content.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// XXH3-64 of its first `len` bytes (or of all, if it has fewer), and their number.
    pub(crate) fn fingerprint(&self, len: u32) -> (u64, u32) {
        let bytes = &self.bytes[..self.bytes.len().min(len as usize)];
        // At most `FINGERPRINT_BYTES`, which fits.
        (XxHash3_64::oneshot(bytes), u32::try_from(bytes.len()).unwrap_or(u32::MAX))
    }

    /// Whether the file of `segment` had this beginning.
    pub(crate) fn is_of(&self, segment: &Segment) -> bool {
        self.fingerprint(segment.fingerprint_len) == (segment.fingerprint, segment.fingerprint_len)
    }
}

/// Reads a file from a position of its own, and leaves the file's position unchanged.
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

/// Whether `file` has the beginning of the file of `segment`.
pub(crate) fn begins_like(file: &File, segment: &Segment) -> io::Result<bool> {
    let packed = is_gzip(&segment.path);
    // Runners up to store version 5 took the fingerprint of the compressed bytes, and so does `bytes`.
    Ok((packed && Head::of(file, true)?.is_of(segment)) || Head::of(file, false)?.is_of(segment))
}

/// Whether `file` matches the second fingerprint of `segment`, if it is long enough.
pub(crate) fn goes_on_like(file: &File, segment: &Segment) -> io::Result<bool> {
    let Some(tail) = segment.tail.filter(|_| !is_gzip(&segment.path)) else { return Ok(true) };
    let mut bytes = vec![0; tail.len as usize];
    match file.read_exact_at(&mut bytes, tail.at.offset - u64::from(tail.len)) {
        Ok(()) => Ok(XxHash3_64::oneshot(&bytes) == tail.hash),
        // The file is shorter than the read part, which its reader notices.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether the file at `path` has the beginning of the file of `segment`; false if it is missing.
pub(crate) fn still_begins_like(path: &Path, segment: &Segment) -> Result<bool, SourceError> {
    match open_if_there(path)? {
        Some((file, _)) => begins_like(&file, segment).map_err(|error| SourceError::open(path, error)),
        None => Ok(false),
    }
}

/// Whether the file at `path` still has what was read of the file of `segment`. Two fingerprints prove that: one is of its
/// beginning, and one of the bytes before the end of the part that was read. False if it is missing.
pub(crate) fn still_continues(path: &Path, segment: &Segment) -> Result<bool, SourceError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(false) };
    let is_same = begins_like(&file, segment).and_then(|begins| Ok(begins && goes_on_like(&file, segment)?));
    is_same.map_err(|error| SourceError::open(path, error))
}

/// Opens a file for reading; `None` if it is missing.
pub(crate) fn open_if_there(path: &Path) -> Result<Option<(File, Metadata)>, SourceError> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SourceError::open(path, error)),
    }
}

/// Finds the file of `segment` again, if its content up to `offset` still exists: under its own name, under
/// another name in the same folder (rotated), or as a copy that replaced it (saved by an editor). A follower
/// searches the rotated file first, since the new one may have the same beginning.
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

/// Opens the file of `folder` with the identity `id`, under any name.
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

/// A file of a folder, by the name that it had at one moment.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    pub(crate) metadata: Metadata,
}

impl PartialEq for Named {
    /// The name belongs to the same file. Its length does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.path == other.path
    }
}

/// Maximum number of listings of a folder until two agree.
const LOOKS_MAX: usize = 64;

/// The files of `folder` that are `wanted` by name or identity, in order of name. While a log is rotated its
/// files are renamed, and one listing can miss a file: two successive listings must agree. `None` if they
/// never did.
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

/// A folder that cannot be listed counts as empty. `None` if a file was renamed meanwhile.
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
