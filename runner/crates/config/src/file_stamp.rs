//! `FileStamp`: recognizes an unchanged file without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tidegate_model::Timestamp;

/// Identity of a file's content: device, inode, size, and the times of the last change of content and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// As `modified`. No program can set it back.
    changed: (i64, i64),
}

/// A later change of the same size has another time, even on a file system that keeps whole seconds.
const REST_SECONDS: i64 = 2;

impl FileStamp {
    /// `None` for a file that does not exist, or that cannot be accessed. A link without a target has a stamp of its own,
    /// so that its removal is noticed.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).or_else(|_| fs::symlink_metadata(path)).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether the file has rested so long that every later change gives another stamp.
    #[must_use]
    pub fn is_settled(&self, now: Timestamp) -> bool {
        now.0.div_euclid(1000) > self.modified.0.max(self.changed.0) + REST_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_that_keeps_size_and_time_gives_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rhai");
        fs::write(&path, "one").unwrap();
        let before = FileStamp::of(&path).unwrap();
        assert_eq!(FileStamp::of(&path), Some(before));
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        loop {
            // The clock of the file system has ticks of some milliseconds.
            fs::write(&path, "two").unwrap();
            File::open(&path).unwrap().set_modified(modified).unwrap();
            if FileStamp::of(&path) != Some(before) {
                break;
            }
        }
        assert_eq!(FileStamp::of(&folder.path().join("b.rhai")), None);
    }

    #[test]
    fn a_file_that_was_just_written_is_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rhai");
        File::create(&path).unwrap();
        let changed = FileStamp::of(&path).unwrap().changed.0 * 1000;
        assert!(!FileStamp::of(&path).unwrap().is_settled(Timestamp(changed)));
        assert!(FileStamp::of(&path).unwrap().is_settled(Timestamp(changed) + Duration::from_secs(4)));
    }
}
