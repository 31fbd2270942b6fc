//! Privacy of the data folder: only its owner can access it and its files, with any umask.
//!
//! The store holds every job and the key of the completion tokens, so a reader of its file could complete any
//! pending job. A user who can open the lock file can also hold its lock.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tidegate_model::log_target;
use tidegate_model::{FILE_MODE, OTHERS};

const FOLDER_MODE: u32 = 0o700;
/// A folder with this bit is shared, as `/tmp` is.
const STICKY: u32 = 0o1000;

/// Creates a folder that only its owner can enter; folders above it get the mode of the umask.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the access rights of other users to the data folder and its files, and logs it.
///
/// A folder keeps its mode if it belongs to another user, is shared (as `/tmp` is), or holds other files than
/// a store. The files in it do not.
pub(crate) fn tighten(folder: &Path) -> io::Result<()> {
    let mut opened = Vec::new();
    let mut only_ours = true;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !OURS.iter().any(|name| entry.file_name() == *name) {
            only_ours = false;
            continue;
        }
        // The metadata of a link describes the link itself.
        if entry.file_type()?.is_file() && entry.metadata()?.mode() & OTHERS != 0 {
            fs::set_permissions(entry.path(), Permissions::from_mode(FILE_MODE))?;
            opened.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    if !opened.is_empty() {
        opened.sort();
        tracing::warn!(
            target: log_target::STORE,
            folder = %folder.display(),
            files = opened.join(", "),
            "access of other users to files of the store was removed (mode 0600)"
        );
    }
    let metadata = fs::metadata(folder)?;
    let (mode, owner) = (metadata.mode(), metadata.uid());
    let is_own = owner == rustix::process::geteuid().as_raw();
    if mode & OTHERS != 0 && mode & STICKY == 0 && only_ours && is_own {
        fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?;
        tracing::warn!(
            target: log_target::STORE,
            folder = %folder.display(),
            before = format!("{:04o}", mode & 0o7777),
            "access of other users to the data folder was removed (mode 0700)"
        );
    }
    Ok(())
}

/// The files of a data folder.
const OURS: [&str; 11] = [
    "store.redb",
    "store.redb.new",
    "store.wal",
    "lock",
    "attempts",
    "attempts.new",
    "begun",
    "begun.new",
    "setups",
    "control.sock",
    "control.sock.new",
];
