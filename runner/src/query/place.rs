//! Place: the folder or file of the configuration that a runner runs. A command may name another one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigurationPlace {
    /// Absolute, if it is there.
    pub(crate) path: String,
    /// Device and number of the folder or file; `None` if it is not there. Two containers may see it under two paths.
    identity: Option<(u64, u64)>,
}

impl ConfigurationPlace {
    pub(crate) fn of(config: &Path) -> Self {
        let path = fs::canonicalize(config).unwrap_or_else(|_| config.to_owned());
        let identity = fs::metadata(&path).ok().map(|found| (found.dev(), found.ino()));
        Self { path: path.display().to_string(), identity }
    }

    /// Whether both are there and differ.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        self.identity.is_some() && other.identity.is_some() && self.identity != other.identity
    }
}
