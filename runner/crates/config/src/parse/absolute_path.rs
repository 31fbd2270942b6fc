//! Paths that stay what they are: code of a plugin may change the working folder of the process.

use std::env;
use std::path::{Component, Display, Path, PathBuf};
use std::sync::LazyLock;

/// The working folder in which the process was started.
static START: LazyLock<PathBuf> = LazyLock::new(|| env::current_dir().unwrap_or_default());

/// The path from the root on, as it is meant in the folder in which the process was started.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    START.join(path).components().filter(|component| *component != Component::CurDir).collect()
}

/// A path as messages show it: from the folder on in which the process was started, where it lies in it.
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
