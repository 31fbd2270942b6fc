//! Place: the folder or file of the configuration that a runner runs. A command may name another one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_config::absolute;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigurationPlace {
    /// Absolute.
    pub(crate) path: String,
    /// Device and number of the folder or file; `None` if it is not there. Two containers may see it under two paths.
    identity: Option<(u64, u64)>,
}

impl ConfigurationPlace {
    pub(crate) fn of(config: &Path) -> Self {
        let config = absolute(config);
        let gone = || Some(fs::canonicalize(config.parent()?).ok()?.join(config.file_name()?));
        let path = fs::canonicalize(&config).ok().or_else(gone).unwrap_or_else(|| config.clone());
        let identity = fs::metadata(&path).ok().map(|found| (found.dev(), found.ino()));
        Self { path: path.display().to_string(), identity }
    }

    /// Whether they differ. If one of them is gone, the paths decide.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        match (self.identity, other.identity) {
            (Some(one), Some(other)) => one != other,
            _ => self.path != other.path,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.identity.is_none()
    }
}
