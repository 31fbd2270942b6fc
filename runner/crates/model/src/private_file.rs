//! Private files: only their owner can access them, with any umask, and no link redirects a write.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// The mode of a file that only its owner reads and writes.
pub const FILE_MODE: u32 = 0o600;
/// The permission bits of other users.
pub const OTHERS: u32 = 0o077;

/// Creates an empty file at `path`, in place of an existing file. A link at `path` is replaced, not followed.
pub fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = options().read(true).write(true).create_new(true).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// The bytes of a file, at most `bytes_max`; empty if the file does not exist.
pub fn read_at_most(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(bytes_max).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(bytes)
}

/// Opens a file for reading and writing, and creates it if it is missing. A link is refused.
pub fn open_or_create_private(path: &Path) -> io::Result<File> {
    let file = options().read(true).write(true).create(true).truncate(false).open(path)?;
    // A file of another user keeps the mode that its owner has chosen.
    let _ = tighten_file(&file);
    Ok(file)
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE_MODE).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

fn tighten_file(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & OTHERS != 0 {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(())
}
