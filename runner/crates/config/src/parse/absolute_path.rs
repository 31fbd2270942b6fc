//! Absolute paths: do not depend on the working folder, which code of a plugin may change.

use std::env;
use std::path::{Component, Display, Path, PathBuf};
use std::sync::LazyLock;

/// The working folder at the start of the process.
static START: LazyLock<PathBuf> = LazyLock::new(|| env::current_dir().unwrap_or_default());

/// The absolute path, relative to the folder in which the process was started.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    START.join(path).components().filter(|component| *component != Component::CurDir).collect()
}

/// A path for messages: relative to the folder in which the process was started, if it is inside.
#[must_use]
pub fn shown(path: &Path) -> Display<'_> {
    match path.strip_prefix(&*START) {
        Ok(rest) if rest.as_os_str().is_empty() => Path::new(".").display(),
        Ok(rest) => rest.display(),
        Err(_) => path.display(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_as_it_was_meant() {
        for (path, as_shown) in
            [("a/b", "a/b"), ("./a/./b", "a/b"), (".", "."), ("/a/b", "/a/b"), ("../a", "../a")]
        {
            let absolute = absolute(Path::new(path));
            assert!(absolute.is_absolute(), "{path}");
            assert_eq!(shown(&absolute).to_string(), as_shown, "{path}");
        }
    }
}
